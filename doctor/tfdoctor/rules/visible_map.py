"""Which cards TensorFlow's GPU:0, GPU:1 … are.

What it means
-------------
TensorFlow numbers the cards that the driver shows it, in the driver's order, and leaves out those that it does not
take. nvidia-smi numbers all cards by their place on the PCI bus. CUDA_VISIBLE_DEVICES chooses and orders; it stops
at the first entry that names no card, so what follows it is ignored. Without CUDA_DEVICE_ORDER=PCI_BUS_ID the
driver puts the fastest card first.

How it is seen
--------------
The driver is asked with the environment as it is, and, where CUDA_VISIBLE_DEVICES is set, without it.

What to do
----------
Nothing, if this is what you want. Otherwise name the cards by their identifiers, which never change.
"""

from __future__ import annotations

from tfdoctor import advice
from tfdoctor.facts import CudaDevice, value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.predict import select_registered_devices
from tfdoctor.rules.base import GPU, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, variable_origins

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def check(context: RuleContext) -> Result:
    answer = value_of(context.facts.driver.cuda)
    variables = context.facts.environment.variables
    if answer is None or not answer.devices:
        return NotApplicable("the driver shows no card")
    devices = answer.devices
    if context.build is not None:
        devices = select_registered_devices(devices, context.build, variables) or devices
    ignored = _list_ignored_entries(context, len(answer.devices))
    if ignored:
        return [_partly(context, devices, ignored)]
    if VISIBLE not in variables and ORDER not in variables and len(devices) < 2:
        return NotApplicable("there is one card, and nothing renumbers it")
    return [_map(context, devices)]


def _list_ignored_entries(context: RuleContext, shown: int) -> list[str]:
    """List the entries of CUDA_VISIBLE_DEVICES from the first one that names no card."""
    value = context.facts.environment.variables.get(VISIBLE)
    if value is None:
        return []
    entries = [entry.strip() for entry in value.split(",")]
    return entries[shown:] if shown < len(entries) else []


def _lines(devices: tuple[CudaDevice, ...]) -> list[str]:
    return [
        f"GPU:{index} is {device.name or 'unnamed'}{f' ({device.pci_bus_id})' if device.pci_bus_id else ''}"
        for index, device in enumerate(devices)
    ]


def _evidence(context: RuleContext, lines: list[str]) -> list[Evidence]:
    variables = context.facts.environment.variables
    return [
        *(Evidence(name, repr(variables[name])) for name in (VISIBLE, ORDER) if name in variables),
        *(line for name in (VISIBLE, ORDER) for line in variable_origins.origin_evidence(context, name)),
        *(Evidence("the driver", line) for line in lines),
    ]


def _partly(context: RuleContext, devices: tuple[CudaDevice, ...], ignored: list[str]) -> Finding:
    value = context.facts.environment.variables.get(VISIBLE, "")
    lines = _lines(devices)
    entries = value.split(",")
    good = ",".join(entries[: len(entries) - len(ignored)])
    rest = f" and, with it, {', '.join(ignored[1:])}" if len(ignored) > 1 else ""
    return RULE.finding(
        Cause.HIDDEN_BY_ENV,
        Severity.WARNING,
        f"{VISIBLE} is {value!r}.{variable_origins.origin_sentence(context, VISIBLE)} {ignored[0]!r} names no "
        "card; the driver stops "
        f"there and ignores it{rest}. "
        f"{'; '.join(lines)}.",
        title=f"{VISIBLE} is only partly used: {len(devices)} of {len(entries)} entries name a card",
        evidence=_evidence(context, lines),
        remedies=[
            Remedy(
                "Name only cards that are there (`nvidia-smi -L` lists them).",
                (f"export {VISIBLE}={advice.quote(good)}", advice.check_again(context.target)),
            )
        ],
    )


def _map(context: RuleContext, devices: tuple[CudaDevice, ...]) -> Finding:
    lines = _lines(devices)
    variables = context.facts.environment.variables
    addresses = [device.pci_bus_id for device in devices if device.pci_bus_id]
    other_order = VISIBLE not in variables and ORDER not in variables and addresses != sorted(addresses)
    remedies = []
    note = ""
    if other_order:
        note = " The driver puts the fastest card first; nvidia-smi counts along the PCI bus."
        remedies.append(
            Remedy(
                "To use nvidia-smi's numbers everywhere:",
                ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", advice.check_again(context.target)),
            )
        )
    return RULE.finding(
        Cause.HEALTHY,
        Severity.INFO,
        f"{'; '.join(lines)}.{note}",
        title="Which card is which for TensorFlow",
        evidence=_evidence(context, lines),
        remedies=remedies,
    )


RULE = Rule(
    "TFD604",
    "visible-map",
    "Which card is which for TensorFlow",
    (Cause.HEALTHY, Cause.HIDDEN_BY_ENV),
    check,
    row="numbered differently by nvidia-smi",
    needs=(prerequisites.require_driver,),
    area=GPU,
)
