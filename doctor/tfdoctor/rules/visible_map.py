"""Which cards TensorFlow's GPU:0, GPU:1 … are.

What it means
-------------
TensorFlow numbers the GPUs that the driver shows it, in the driver's order, and leaves out those that it
does not use. nvidia-smi numbers all GPUs by their PCI address. CUDA_VISIBLE_DEVICES selects and orders
GPUs; it stops at the first entry that names no GPU, and ignores the rest. Without
CUDA_DEVICE_ORDER=PCI_BUS_ID the driver puts the fastest GPU first.

How it is seen
--------------
tfdoctor calls the driver with the unchanged environment and, if CUDA_VISIBLE_DEVICES is set, again without
that variable.

What to do
----------
Nothing, if this is what you want. Otherwise name the GPUs by their identifiers (UUIDs), as these never
change.
"""

from __future__ import annotations

from tfdoctor.core.facts import CudaDevice, value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.prediction.stages import select_registered_devices
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.base import GPU, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, variable_origins

VISIBLE_DEVICES_VARIABLE, DEVICE_ORDER_VARIABLE = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def check(context: RuleContext) -> Result:
    driver_result = value_of(context.facts.driver.cuda)
    variables = context.facts.environment.variables
    if driver_result is None or not driver_result.devices:
        return NotApplicable("the driver shows no card")
    devices = driver_result.devices
    if context.build is not None:
        devices = select_registered_devices(devices, context.build, variables) or devices
    ignored = _list_ignored_entries(context, len(driver_result.devices))
    if ignored:
        return [_build_ignored_entries_finding(context, devices, ignored)]
    if (
        VISIBLE_DEVICES_VARIABLE not in variables
        and DEVICE_ORDER_VARIABLE not in variables
        and len(devices) < 2
    ):
        return NotApplicable("there is one card, and nothing renumbers it")
    return [_build_numbering_finding(context, devices)]


def _list_ignored_entries(context: RuleContext, device_count: int) -> list[str]:
    """Return the entries of CUDA_VISIBLE_DEVICES that the driver ignores.

    The driver stops at the first entry that names no GPU, so these are the entries after the first
    `device_count`.
    """
    value = context.facts.environment.variables.get(VISIBLE_DEVICES_VARIABLE)
    if value is None:
        return []
    entries = [entry.strip() for entry in value.split(",")]
    return entries[device_count:] if device_count < len(entries) else []


def _list_usable_entries(context: RuleContext, entries: list[str], used_count: int) -> list[str]:
    """Return the entries that name a card, those after the one at which the driver stops included.

    `used_count` is the number of entries before that one.
    """
    unhidden = context.facts.driver.cuda_unhidden
    all_devices = (
        unhidden_driver.devices if (unhidden_driver := value_of(unhidden) if unhidden else None) else ()
    )
    numbers = {str(device.ordinal) for device in all_devices}
    uuids = [device.uuid for device in all_devices if device.uuid]
    later_entries = [
        entry
        for entry in entries[used_count + 1 :]
        if entry.strip() in numbers
        or (entry.strip().startswith("GPU-") and any(uuid.startswith(entry.strip()) for uuid in uuids))
    ]
    return list(dict.fromkeys([*entries[:used_count], *later_entries]))


def _format_devices(devices: tuple[CudaDevice, ...]) -> list[str]:
    """Return a clause for each GPU, with the number that TensorFlow gives it."""
    return [
        f"GPU:{index} is {device.name or 'unnamed'}{f' ({device.pci_bus_id})' if device.pci_bus_id else ''}"
        for index, device in enumerate(devices)
    ]


def _list_evidence(context: RuleContext, clauses: list[str]) -> list[Evidence]:
    """Return the two variables, the lines that set them, and a clause for each GPU."""
    variables = context.facts.environment.variables
    return [
        *(
            Evidence(name, repr(variables[name]))
            for name in (VISIBLE_DEVICES_VARIABLE, DEVICE_ORDER_VARIABLE)
            if name in variables
        ),
        *(
            evidence
            for name in (VISIBLE_DEVICES_VARIABLE, DEVICE_ORDER_VARIABLE)
            for evidence in variable_origins.list_origin_evidence(context, name)
        ),
        *(Evidence("the driver", clause) for clause in clauses),
    ]


def _build_ignored_entries_finding(
    context: RuleContext, devices: tuple[CudaDevice, ...], ignored: list[str]
) -> Finding:
    """Return the finding that the driver ignores entries of CUDA_VISIBLE_DEVICES."""
    value = context.facts.environment.variables.get(VISIBLE_DEVICES_VARIABLE, "")
    clauses = _format_devices(devices)
    entries = value.split(",")
    usable_entries = ",".join(_list_usable_entries(context, entries, len(entries) - len(ignored)))
    others_text = f" and, with it, {', '.join(ignored[1:])}" if len(ignored) > 1 else ""
    return RULE.make_finding(
        Cause.HIDDEN_BY_ENV,
        Severity.WARNING,
        f"{VISIBLE_DEVICES_VARIABLE} is {value!r}.{variable_origins.format_origin_sentence(context, VISIBLE_DEVICES_VARIABLE)} "
        f"{ignored[0]!r} names no "
        "card; the driver stops "
        f"there and ignores it{others_text}. "
        f"{'; '.join(clauses)}.",
        short_title=f"{VISIBLE_DEVICES_VARIABLE} names a card that is not there",
        title=(
            f"{VISIBLE_DEVICES_VARIABLE} is only partly used: "
            f"the driver takes {len(entries) - len(ignored)} of {len(entries)} entries"
        ),
        evidence=_list_evidence(context, clauses),
        remedies=[
            Remedy(
                "Name only cards that are there (`nvidia-smi -L` lists them).",
                (
                    f"export {VISIBLE_DEVICES_VARIABLE}={quote(usable_entries)}",
                    format_check_command(context.target),
                ),
            )
        ],
    )


def _build_numbering_finding(context: RuleContext, devices: tuple[CudaDevice, ...]) -> Finding:
    """Return the finding that says which GPU has which number in TensorFlow."""
    clauses = _format_devices(devices)
    variables = context.facts.environment.variables
    addresses = [device.pci_bus_id for device in devices if device.pci_bus_id]
    differs_from_smi = (
        VISIBLE_DEVICES_VARIABLE not in variables
        and DEVICE_ORDER_VARIABLE not in variables
        and addresses != sorted(addresses)
    )
    remedies = []
    note = ""
    if differs_from_smi:
        note = " The driver puts the fastest card first; nvidia-smi counts along the PCI bus."
        remedies.append(
            Remedy(
                "To use nvidia-smi's numbers everywhere:",
                ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", format_check_command(context.target)),
            )
        )
    return RULE.make_finding(
        Cause.HEALTHY,
        Severity.INFO,
        f"{'; '.join(clauses)}.{note}",
        title="Which card is which for TensorFlow",
        short_title="numbered differently by nvidia-smi" if differs_from_smi else "",
        evidence=_list_evidence(context, clauses),
        remedies=remedies,
    )


RULE = Rule(
    "TFD604",
    "visible-map",
    "Which card is which for TensorFlow",
    (Cause.HEALTHY, Cause.HIDDEN_BY_ENV),
    check,
    short_title="how the cards are numbered",
    needs=(prerequisites.require_driver_result,),
    area=GPU,
)
