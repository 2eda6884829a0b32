"""The kernel's log reports faults of the card or its driver.

What it means
-------------
NVIDIA's kernel module writes errors into the kernel's log, in lines that begin with NVRM; an Xid number names the
kind of error. Some are caused by a program (13, 31, 43, 45) and say nothing about the GPU. Others mean that the
GPU, its memory or its bus has a problem (48, 63, 64, 74, 79, 95, 119), even if it works at the moment.

How it is seen
--------------
The check reads dmesg, else the systemd journal, else /var/log/kern.log, since the last start of the machine. If this
user may read none of them, the check cannot run. The meanings are from NVIDIA's Xid documentation.

What to do
----------
If a program caused the Xid, fix the program. Otherwise restart; if it recurs, the GPU, its power, cooling
or slot is at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Unknown
from tfdoctor.core.findings import Cause, Finding, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext, require_known_fact
from tfdoctor.rules.shared import drivers, kernels, xids

if TYPE_CHECKING:
    from tfdoctor.core.facts import KernelEvent

EVENTS_WITHOUT_XID = {
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
"""The cause and the meaning of each kind of event without an Xid.

The kind "unsigned" is left to TFD118, because its line names no module.
"""


def check(context: RuleContext) -> Result:
    log = context.facts.kernel.log
    if isinstance(log, Unknown):
        command = "`sudo dmesg | grep -iE 'nvrm|xid'`"
        return CouldNotCheck(f"{log.why}; {command} shows what there is of NVIDIA's driver")
    unmet_result = require_known_fact(log, "the kernel's log")
    if unmet_result is not None:
        return unmet_result
    events = kernels.list_kernel_events(context)
    xid_events = [event for event in events if event.xid is not None]
    fault_events = [
        event
        for event in xid_events
        if _get_xid_kind(event) in (xids.XidKind.FAULT, xids.XidKind.NEEDS_RESET)
    ]
    program_events = [event for event in xid_events if event not in fault_events]
    findings = [_build_fault_finding(context, fault_events)] if fault_events else []
    other_events = [
        event
        for event in events
        if event.kind in EVENTS_WITHOUT_XID and not _is_repeated_by_xid(event, fault_events)
    ]
    if other_events:
        findings.append(_build_other_finding(context, other_events))
    if program_events:
        findings.append(_build_program_finding(context, program_events))
    return findings


def _get_xid_kind(event: KernelEvent) -> xids.XidKind:
    """Return the kind of the event's Xid."""
    return xids.find_xid(event.xid or 0).kind


def _is_repeated_by_xid(event: KernelEvent, fault_events: list[KernelEvent]) -> bool:
    """Return whether one of the fault events reports the same loss of a GPU as this event."""
    return event.kind == "bus-lost" and any(fault.xid == xids.FALLEN_OFF_BUS_XID for fault in fault_events)


def _format_xid_event(event: KernelEvent) -> str:
    """Format an event: its Xid, GPU, process, number of occurrences and meaning."""
    number = event.xid or 0
    meaning = xids.find_xid(number).meaning
    # Xid 154 names the action that the driver asks for
    action = xids.parse_recovery_action(event.text) if number == 154 else ""
    address = f" on {event.pci_bus_id}" if event.pci_bus_id else ""
    process_text = f", from {event.process}" if event.process else ""
    count_text = f", {event.count} times" if event.count > 1 else ""
    return f"Xid {number}{address}{process_text}{count_text}: {meaning}{f' ({action})' if action else ''}"


def _build_fault_finding(context: RuleContext, events: list[KernelEvent]) -> Finding:
    """Return the finding about Xid events that report faults of a GPU."""
    is_lost = any(_get_xid_kind(event) is xids.XidKind.NEEDS_RESET for event in events)
    driver_works = drivers.determine_driver_state(context).is_working
    status_sentence = " At the moment the driver does show a card." if driver_works else ""
    return RULE.make_finding(
        Cause.NO_DEVICE if is_lost and not driver_works else Cause.INCONCLUSIVE,
        Severity.WARNING,
        f"Since the last start: {'; '.join(_format_xid_event(event) for event in events)}.{status_sentence}",
        title="The kernel's log reports a fault of the card",
        evidence=kernels.make_kernel_event_evidence(context, events),
        remedies=[
            drivers.make_reboot_remedy(context, "A restart brings the card back into a known state."),
            Remedy(
                "If it recurs, look at the card's own counters, then at power, cooling and slot.",
                ("nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT,PERFORMANCE",),
            ),
        ],
    )


def _build_other_finding(context: RuleContext, events: list[KernelEvent]) -> Finding:
    """Return the finding about events without an Xid."""
    cause, _ = EVENTS_WITHOUT_XID[events[0].kind]
    meanings = dict.fromkeys(EVENTS_WITHOUT_XID[event.kind][1] for event in events)
    driver_works = drivers.determine_driver_state(context).is_working
    status_sentence = (
        " The driver still shows a card: the fault may concern another card, or may be over."
        if driver_works
        else ""
    )
    return RULE.make_finding(
        cause,
        Severity.INFO if driver_works else Severity.WARNING,
        f"The kernel's log says: {'; '.join(meanings)}.{status_sentence}",
        title="The kernel's log reports trouble with NVIDIA's driver",
        evidence=kernels.make_kernel_event_evidence(context, events),
        remedies=[drivers.make_kernel_log_remedy(context)],
    )


def _build_program_finding(context: RuleContext, events: list[KernelEvent]) -> Finding:
    """Return the finding about the other Xid events, which programs usually cause."""
    return RULE.make_finding(
        Cause.INCONCLUSIVE,
        Severity.INFO,
        f"Since the last start: {'; '.join(_format_xid_event(event) for event in events)}. These do "
        "not mean that the card is "
        "faulty, unless they come from many programs that work elsewhere.",
        title="The kernel's log notes errors of programs on the card",
        evidence=kernels.make_kernel_event_evidence(context, events),
    )


RULE = Rule(
    "TFD116",
    "kernel-log",
    "The kernel's log reports faults of the card or its driver",
    (Cause.NO_DEVICE, Cause.DRIVER_LIB_MISMATCH, Cause.DRIVER_INIT_UNKNOWN, Cause.INCONCLUSIVE),
    check,
    short_title="faults in the kernel's log",
)
