"""Parse messages about NVIDIA GPUs in the kernel log (``dmesg``, ``journalctl -k``, kern.log).

Messages before the last boot are ignored. Messages before the driver was last loaded are ignored, too, except for
those in `PERMANENT_KINDS`. Messages of several lines are joined; NVRM starts each of its lines with "NVRM: ".
"""

from __future__ import annotations

import re

from tfdoctor.core.facts import KernelEvent
from tfdoctor.core.text import clean_line, make_lazy_pattern

MAX_LINES = 20_000
"""The maximum number of lines that are parsed, counted from the end of the log."""
MAX_NVIDIA_LINES = 3_000
"""The maximum number of lines about NVIDIA that are parsed, from the end of the log. A broken GPU logs thousands."""
MAX_EVENTS = 60
"""The maximum number of different events."""
MAX_JOINED_LINES = 6
"""The maximum number of lines that are joined to one NVRM message."""

_BOOT_LINE = make_lazy_pattern(r"\bLinux version [0-9]{1,2}\.[0-9]{1,3}")
_NVIDIA_LINE = make_lazy_pattern(
    r"NVRM|nvidia|Lockdown: |Loading of (?:unsigned|module with)|has fallen off the bus", re.IGNORECASE
)
_PREFIX = make_lazy_pattern(r"(?:[^\[\n]{0,120}?\bkernel: ?)?(?:\[[^\]\n]{1,40}\] ?)?")
"""The prefix of a message: that of syslog or journalctl, and the time stamp of the kernel."""
_BUS_ID = r"(?P<bus>[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})"
_XID = make_lazy_pattern(rf"NVRM: Xid \((?:PCI:)?{_BUS_ID}[^)]{{0,60}}\): (?P<number>[0-9]{{1,4}})\b")
_XID_PROCESS = make_lazy_pattern(r"\bpid='?(?P<pid>[0-9]{1,10})'?, name='?(?P<name>[^,']{1,64})")
_DRIVER_LOADED = make_lazy_pattern(r"NVRM: loading NVIDIA UNIX")

EVENT_PATTERNS = (
    (
        "api-mismatch",
        make_lazy_pattern(
            r"API mismatch: the client .{0,100}?has the version (?P<library>[0-9.]{3,20}),? ?but this "
            r"kernel module has the version (?P<module>[0-9.]{3,20})"
        ),
    ),
    ("needs-open", make_lazy_pattern(r"requires use of the NVIDIA open kernel modules")),
    (
        "legacy",
        make_lazy_pattern(
            r"installed in this system is supported through the NVIDIA (?P<branch>[0-9]{2,3})[.x0-9]* Legacy"
        ),
    ),
    ("not-supported", make_lazy_pattern(r"installed in this system is not supported by")),
    (
        "taken",
        make_lazy_pattern(
            r"is already bound to (?P<driver>[\w-]{1,40})|NVIDIA probe routine was not called for"
        ),
    ),
    ("bad-bar", make_lazy_pattern(r"PCI I/O region assigned to your NVIDIA device is invalid")),
    ("bus-lost", make_lazy_pattern(r"has fallen off the bus")),
    ("firmware-missing", make_lazy_pattern(r"Direct firmware load for nvidia/\S{1,120} failed")),
    (
        "init-failed",
        make_lazy_pattern(r"RmInitAdapter failed! ?\((?P<code>[0-9A-Fa-fx:]{3,40})\)|rm_init_adapter"),
    ),
    (
        "wrong-kernel",
        make_lazy_pattern(
            r"nvidia(?:[_-]\w{1,20})?: (?:disagrees about version of symbol|version magic|Unknown symbol)"
        ),
    ),
    (
        "probe-failed",
        make_lazy_pattern(r"NVIDIA probe routine failed for|nvidia[^\n]{0,80} failed with error -[0-9]"),
    ),
    (
        "unsigned",
        make_lazy_pattern(
            r"unsigned module loading is restricted"
            r"|Loading of (?:unsigned module|module with unavailable key) is rejected"
        ),
    ),
)
"""(kind of event, pattern). The first matching pattern decides, so the most specific patterns come first."""
PERMANENT_KINDS = frozenset({"xid", "bus-lost"})
"""Kinds of events that still matter after the driver is loaded again."""


def parse_kernel_log(text: str) -> tuple[KernelEvent, ...]:
    """Return the events in the order of their first occurrence.

    Events of the same kind, Xid and GPU are merged into one event with a count.
    """
    lines = text.split("\n")[-MAX_LINES:]
    boot_indices = [
        index for index, line in enumerate(lines) if "Linux version" in line and _BOOT_LINE.search(line)
    ]
    if boot_indices:
        lines = lines[boot_indices[-1] :]
    nvidia_indices = [index for index, line in enumerate(lines) if _NVIDIA_LINE.search(line)]
    if len(nvidia_indices) > MAX_NVIDIA_LINES:
        lines = lines[nvidia_indices[-MAX_NVIDIA_LINES] :]
    events: dict[tuple[str, int | None, str | None], KernelEvent] = {}
    for message in _split_messages(lines):
        if _DRIVER_LOADED.search(message):
            events = {key: event for key, event in events.items() if event.kind in PERMANENT_KINDS}
            continue
        event = _parse_event(message)
        if event is None:
            continue
        key = (event.kind, event.xid, event.pci_bus_id)
        earlier = events.get(key)
        count = earlier.count + 1 if earlier is not None else 1
        process = event.process or (earlier.process if earlier is not None else "")
        if earlier is not None or len(events) < MAX_EVENTS:
            # Keep the last message of an Xid, but the first of any other kind, because it names the cause.
            text = earlier.text if earlier is not None and event.xid is None else event.text
            events[key] = KernelEvent(event.kind, text, event.xid, event.pci_bus_id, process, count)
    return tuple(events.values())


def _split_messages(lines: list[str]) -> list[str]:
    """Return the messages about NVIDIA without their prefixes. The lines of an NVRM message are joined."""
    messages: list[str] = []
    line_count = 0
    for line in lines:
        if not _NVIDIA_LINE.search(line):
            line_count = MAX_JOINED_LINES  # the next message does not continue the one before this line
            continue
        prefix = _PREFIX.match(line)
        prefix_end = prefix.end() if prefix is not None else 0
        message = clean_line(line[prefix_end:], limit=400)
        is_continued = (
            message.startswith("NVRM: ")
            and messages
            and line_count < MAX_JOINED_LINES
            and _is_continuation(messages[-1], message, has_prefix=bool(line[:prefix_end].strip()))
        )
        if is_continued:
            messages[-1] = f"{messages[-1]} {message.removeprefix('NVRM: ')}"
            line_count += 1
        else:
            messages.append(message)
            line_count = 1
    return messages


def _is_continuation(previous: str, message: str, *, has_prefix: bool) -> bool:
    """Return whether a line continues the previous message.

    `has_prefix` says whether the line has a prefix, such as a time stamp.
    """
    if (
        not previous.startswith("NVRM: ")
        or "Xid (" in message
        or "Xid (" in previous
        or _DRIVER_LOADED.search(message)
    ):
        return False
    is_complete = previous.endswith((".", "!", ")"))
    return not is_complete or (not has_prefix and message[6:7].islower())  # the character after "NVRM: "


def _parse_event(message: str) -> KernelEvent | None:
    """Return the event that a message reports, or None if its kind is unknown."""
    xid_match = _XID.search(message)
    if xid_match is not None:
        process_match = _XID_PROCESS.search(message)
        return KernelEvent(
            kind="xid",
            text=message,
            xid=int(xid_match["number"]),
            pci_bus_id=f"{xid_match['bus']}.0".lower(),
            process=f"{process_match['name'].strip()} ({process_match['pid']})"
            if process_match is not None
            else "",
        )
    for kind, pattern in EVENT_PATTERNS:
        if pattern.search(message):
            bus_match = re.search(_BUS_ID, message)
            return KernelEvent(
                kind=kind,
                text=message,
                xid=None,
                pci_bus_id=f"{bus_match['bus']}.0".lower() if bus_match is not None else None,
            )
    return None
