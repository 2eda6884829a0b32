"""The kernel's log (``dmesg``, ``journalctl -k``, kern.log): what it says of NVIDIA's cards and their driver.

Only the part since the last start counts, and of what is said while the driver loads only what came after it
last loaded well. Messages of several lines are put together: NVRM begins each line with its own name.
"""

from __future__ import annotations

import re

from tfdoctor.facts import KernelEvent
from tfdoctor.text import clean_line, lazy_pattern

MAX_LINES = 20_000
"""Lines that are looked at, from the end."""
MAX_NVIDIA_LINES = 3_000
"""Lines about NVIDIA of these, from the end: a broken card can write thousands."""
MAX_EVENTS = 60
JOINED = 6
"""Lines that belong to one message of NVRM, at most."""

_START = lazy_pattern(r"\bLinux version [0-9]{1,2}\.[0-9]{1,3}")
_CONCERNS = lazy_pattern(
    r"NVRM|nvidia|Lockdown: |Loading of (?:unsigned|module with)|has fallen off the bus", re.IGNORECASE
)
# In front of a message: what syslog and journalctl put there, and the kernel's own time stamp.
_FRONT = lazy_pattern(r"(?:[^\[\n]{0,120}?\bkernel: ?)?(?:\[[^\]\n]{1,40}\] ?)?")
_ADDRESS = r"(?P<bus>[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})"
_XID = lazy_pattern(rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}[^)]{{0,60}}\): (?P<number>[0-9]{{1,4}})\b")
_PROCESS = lazy_pattern(r"\bpid='?(?P<pid>[0-9]{1,10})'?, name='?(?P<name>[^,']{1,64})")
_WELL = lazy_pattern(r"NVRM: loading NVIDIA UNIX")

KINDS = (
    (
        "api-mismatch",
        lazy_pattern(
            r"API mismatch: the client .{0,100}?has the version (?P<library>[0-9.]{3,20}),? ?but this "
            r"kernel module has the version (?P<module>[0-9.]{3,20})"
        ),
    ),
    ("needs-open", lazy_pattern(r"requires use of the NVIDIA open kernel modules")),
    (
        "legacy",
        lazy_pattern(
            r"installed in this system is supported through the NVIDIA (?P<branch>[0-9]{2,3})[.x0-9]* Legacy"
        ),
    ),
    ("not-supported", lazy_pattern(r"installed in this system is not supported by")),
    (
        "taken",
        lazy_pattern(r"is already bound to (?P<driver>[\w-]{1,40})|NVIDIA probe routine was not called for"),
    ),
    ("bad-bar", lazy_pattern(r"PCI I/O region assigned to your NVIDIA device is invalid")),
    ("bus-lost", lazy_pattern(r"has fallen off the bus")),
    ("firmware-missing", lazy_pattern(r"Direct firmware load for nvidia/\S{1,120} failed")),
    (
        "init-failed",
        lazy_pattern(r"RmInitAdapter failed! ?\((?P<code>[0-9A-Fa-fx:]{3,40})\)|rm_init_adapter"),
    ),
    (
        "wrong-kernel",
        lazy_pattern(
            r"nvidia(?:[_-]\w{1,20})?: (?:disagrees about version of symbol|version magic|Unknown symbol)"
        ),
    ),
    (
        "probe-failed",
        lazy_pattern(r"NVIDIA probe routine failed for|nvidia[^\n]{0,80} failed with error -[0-9]"),
    ),
    (
        "unsigned",
        lazy_pattern(
            r"unsigned module loading is restricted"
            r"|Loading of (?:unsigned module|module with unavailable key) is rejected"
        ),
    ),
)
"""(kind, what it looks like in a message), the telling ones first: a message is of the first kind it matches."""
STICKY = frozenset({"xid", "bus-lost"})
"""Kinds that stay true when the driver is loaded again."""


def parse_kernel_log(text: str) -> tuple[KernelEvent, ...]:
    """Return the events, each once with one of its lines and its count, in the order of their first line."""
    lines = text.split("\n")[-MAX_LINES:]
    starts = [number for number, line in enumerate(lines) if "Linux version" in line and _START.search(line)]
    if starts:
        lines = lines[starts[-1] :]
    concerned = [number for number, line in enumerate(lines) if _CONCERNS.search(line)]
    if len(concerned) > MAX_NVIDIA_LINES:
        lines = lines[concerned[-MAX_NVIDIA_LINES] :]
    events: dict[tuple[str, int | None, str | None], KernelEvent] = {}
    for message in _messages(lines):
        if _WELL.search(message):
            events = {key: event for key, event in events.items() if key[0] in STICKY}
            continue
        event = _event(message)
        if event is None:
            continue
        key = (event.kind, event.xid, event.pci_bus_id)
        before = events.get(key)
        count = before.count + 1 if before is not None else 1
        process = event.process or (before.process if before is not None else "")
        if before is not None or len(events) < MAX_EVENTS:
            # An Xid's last line is the newest news; of the driver's other complaints the first is the telling one.
            text = before.text if before is not None and event.xid is None else event.text
            events[key] = KernelEvent(event.kind, text, event.xid, event.pci_bus_id, process, count)
    return tuple(events.values())


def _messages(lines: list[str]) -> list[str]:
    """Return the messages that concern us, without what stands in front.

    NVRM's lines of one message as one.
    """
    found: list[str] = []
    joined = 0
    for line in lines:
        if not _CONCERNS.search(line):
            joined = JOINED
            continue
        front = _FRONT.match(line)
        ahead = front.end() if front is not None else 0
        message = clean_line(line[ahead:], limit=400)
        continued = (
            message.startswith("NVRM: ")
            and found
            and joined < JOINED
            and _goes_on(found[-1], message, stamped=bool(line[:ahead].strip()))
        )
        if continued:
            found[-1] = f"{found[-1]} {message.removeprefix('NVRM: ')}"
            joined += 1
        else:
            found.append(message)
            joined = 1
    return found


def _goes_on(before: str, message: str, *, stamped: bool) -> bool:
    """Return whether a line of NVRM's carries on the one before.

    `stamped`: it has a time stamp of its own.
    """
    if not before.startswith("NVRM: ") or "Xid (" in message or "Xid (" in before or _WELL.search(message):
        return False
    ended = before.endswith((".", "!", ")"))
    return not ended or (not stamped and message[6:7].islower())


def _event(message: str) -> KernelEvent | None:
    xid = _XID.search(message)
    if xid is not None:
        process = _PROCESS.search(message)
        return KernelEvent(
            "xid",
            message,
            int(xid["number"]),
            f"{xid['bus']}.0".lower(),
            f"{process['name'].strip()} ({process['pid']})" if process is not None else "",
        )
    for kind, pattern in KINDS:
        if pattern.search(message):
            bus = re.search(_ADDRESS, message)
            return KernelEvent(kind, message, None, f"{bus['bus']}.0".lower() if bus is not None else None)
    return None
