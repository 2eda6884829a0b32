"""The kernel's log reports faults of the card or its driver.

What it means
-------------
NVIDIA's kernel module writes what goes wrong into the kernel's log, in lines that begin with NVRM; an Xid
number names the kind. Some are a program's own doing (13, 31, 43, 45) and say nothing of the card. Others mean
that the card, its memory or its bus is in trouble (48, 63, 64, 74, 79, 95, 119), even where it works at the moment.

How it is seen
--------------
dmesg, else the systemd journal, else /var/log/kern.log, since the last start of the machine. Where this user may
read none of them, the check could not be made. The meanings are those of NVIDIA's documentation of Xid errors.

What to do
----------
After an Xid that a program caused: fix the program. Otherwise restart; if it recurs, the card, its power, cooling
or slot is at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import Unknown
from tfdoctor.findings import Cause, Finding, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext, outcome_if_unknown
from tfdoctor.rules.shared import drivers, kernels, xids

if TYPE_CHECKING:
    from tfdoctor.facts import KernelEvent

OTHER_EVENTS = {
    "bus-lost": (Cause.NO_DEVICE, "the card has fallen off the bus"),
    "api-mismatch": (
        Cause.DRIVER_LIB_MISMATCH,
        "a program came with driver libraries of a different version than the kernel module's",
    ),
    "needs-open": (Cause.NO_DEVICE, "the card needs NVIDIA's open kernel module"),
    "legacy": (Cause.NO_DEVICE, "the card is driven by an older branch of the driver"),
    "not-supported": (Cause.NO_DEVICE, "the driver does not know the card"),
    "taken": (Cause.NO_DEVICE, "another kernel driver holds the card"),
    "bad-bar": (Cause.NO_DEVICE, "the firmware gives the card no address space"),
    "firmware-missing": (Cause.DRIVER_INIT_UNKNOWN, "the driver's firmware is missing"),
    "init-failed": (Cause.DRIVER_INIT_UNKNOWN, "the module could not start the card"),
    "wrong-kernel": (Cause.NO_DEVICE, "the module does not fit this kernel"),
    "probe-failed": (Cause.NO_DEVICE, "the module took none of the cards"),
}
"""kind of an event → the cause that it speaks for, and what it means. "unsigned" names no module: TFD118 uses it."""


def check(context: RuleContext) -> Result:
    fact = context.facts.kernel.log
    if isinstance(fact, Unknown):
        look = "`sudo dmesg | grep -iE 'nvrm|xid'`"
        return CouldNotCheck(f"{fact.why}; {look} shows what there is of NVIDIA's driver")
    refused = outcome_if_unknown(fact, "the kernel's log")
    if refused is not None:
        return refused
    found = kernels.list_kernel_events(context)
    numbered = [event for event in found if event.xid is not None]
    grave = [e for e in numbered if _kind(e) in (xids.XidKind.FAULT, xids.XidKind.LOST)]
    light = [e for e in numbered if e not in grave]
    findings = [_grave(context, grave)] if grave else []
    others = [e for e in found if e.kind in OTHER_EVENTS and not _is_repeated_by_xid(e, grave)]
    if others:
        findings.append(_build_other_finding(context, others))
    if light:
        findings.append(_light(context, light))
    return findings


def _kind(event: KernelEvent) -> xids.XidKind:
    return xids.find_xid(event.xid or 0).kind


def _is_repeated_by_xid(event: KernelEvent, grave: list[KernelEvent]) -> bool:
    """Return whether an Xid reports the same as this line."""
    return event.kind == "bus-lost" and any(e.xid == xids.BUS_LOST for e in grave)


def _format_xid_event(event: KernelEvent) -> str:
    number = event.xid or 0
    said = xids.find_xid(number).meaning
    asked = xids.parse_recovery_action(event.text) if number == 154 else ""
    where = f" on {event.pci_bus_id}" if event.pci_bus_id else ""
    who = f", from {event.process}" if event.process else ""
    times = f", {event.count} times" if event.count > 1 else ""
    return f"Xid {number}{where}{who}{times}: {said}{f' ({asked})' if asked else ''}"


def _grave(context: RuleContext, found: list[KernelEvent]) -> Finding:
    lost = any(_kind(event) is xids.XidKind.LOST for event in found)
    works = drivers.driver_state(context).works
    now = " At the moment the driver does show a card." if works else ""
    return RULE.finding(
        Cause.NO_DEVICE if lost and not works else Cause.INCONCLUSIVE,
        Severity.WARNING,
        f"Since the last start: {'; '.join(_format_xid_event(event) for event in found)}.{now}",
        title="The kernel's log reports a fault of the card",
        evidence=kernels.evidence_of_kernel_events(context, found),
        remedies=[
            drivers.reboot_remedy(context, "A restart brings the card back into a known state."),
            Remedy(
                "If it recurs, look at the card's own counters, then at power, cooling and slot.",
                ("nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT,PERFORMANCE",),
            ),
        ],
    )


def _build_other_finding(context: RuleContext, found: list[KernelEvent]) -> Finding:
    cause = OTHER_EVENTS[found[0].kind][0]
    said = dict.fromkeys(OTHER_EVENTS[event.kind][1] for event in found)
    works = drivers.driver_state(context).works
    now = (
        " The driver still shows a card: the fault may concern another card, or may be over." if works else ""
    )
    return RULE.finding(
        cause,
        Severity.INFO if works else Severity.WARNING,
        f"The kernel's log says: {'; '.join(said)}.{now}",
        title="The kernel's log reports trouble with NVIDIA's driver",
        evidence=kernels.evidence_of_kernel_events(context, found),
        remedies=[drivers.kernel_log_remedy(context)],
    )


def _light(context: RuleContext, found: list[KernelEvent]) -> Finding:
    return RULE.finding(
        Cause.INCONCLUSIVE,
        Severity.INFO,
        f"Since the last start: {'; '.join(_format_xid_event(event) for event in found)}. These do "
        "not mean that the card is "
        "faulty, unless they come from many programs that work elsewhere.",
        title="The kernel's log notes errors of programs on the card",
        evidence=kernels.evidence_of_kernel_events(context, found),
    )


RULE = Rule(
    "TFD116",
    "kernel-log",
    "The kernel's log reports faults of the card or its driver",
    (Cause.NO_DEVICE, Cause.DRIVER_LIB_MISMATCH, Cause.DRIVER_INIT_UNKNOWN, Cause.INCONCLUSIVE),
    check,
    row="faults in the kernel's log",
)
