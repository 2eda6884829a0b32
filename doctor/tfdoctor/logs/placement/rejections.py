"""Parse the messages with which TensorFlow refuses to place an operation on a device.

The first line of such a message contains the reason. Later lines name the operation's type and its kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tfdoctor.compat.kernels import normalize_type
from tfdoctor.core.text import clean_line
from tfdoctor.logs.placement.models import LOCAL_TASK, Refusal

__all__ = ["RefusalReader", "shorten_device"]

MAX_REFUSALS = 1000
"""The maximum number of different refusals that are stored."""
MAX_MESSAGE_BYTES = 1 << 14
"""The maximum length of a message, in bytes."""

_TRIGGERS = (
    b"annot assign a device",
    b"Could not satisfy",
    b"unknown device",
    b"OpKernel",
    b"Could not find device for node",
    b"Cannot colocate nodes",
    b"alformed device specification",
)
"""A block with a refusal contains one of these texts, which are faster to find than the pattern below.

The first letter of a text is missing if it may be a capital or a small letter.
"""
_MESSAGE_START = re.compile(
    rb"Cannot assign a device (?:to|for) (?:node|operation) "
    rb"|Could not satisfy (?:explicit )?device specification '[^'\n]{0,200}'\. enable_soft_placement"
    rb"|Could not find device for node: "
    rb"|Cannot colocate nodes "
    rb"|No registered '[\w>]{1,100}' OpKernel for "
    rb"|No OpKernel was registered to support Op '"
    rb"|/[^\s']{1,120} unknown device"
    rb"|Malformed device specification '"
)
# In the first group of these patterns is the name of the node, the requested device, or the type of the operation.
_NODE_PATTERNS = (
    re.compile(r"Cannot assign a device (?:to|for) (?:node|operation) ['\"`]?([\w./\\>\-]+)"),
    re.compile(r"Could not find device for node: \{\{node ([\w./\\>\-]+)\}\}"),
    re.compile(r"Cannot colocate nodes (?:\{\{(?:colocation_)?node |')?([\w./\\>\-]+)"),
    re.compile(r"used by \{\{node ([\w./\\>\-]+)\}\}"),
    re.compile(r"(?:compatible with node|used by node) (?:\{\{node )?'?([\w./\\>\-]+)"),
)
_DEVICE_PATTERNS = (
    re.compile(r"explicitly assigned to ([^\s']{1,200}) but available"),
    re.compile(r"(?:explicit )?device specification '([^'\n]{1,200})'"),
    re.compile(r"(/[^\s']{1,120}) unknown device"),
    re.compile(r"assigned device '([^'\n]{1,200})'"),
)
_OP_PATTERNS = (
    re.compile(r"No registered '([\w>]+)' OpKernel"),
    re.compile(r"No OpKernel was registered to support Op '([\w>]+)'"),
    re.compile(r"\[\[(?:Node: |\{\{node )?[\w./\\>\-]+(?:\}\})? = ([A-Za-z_][\w>]*)\["),
    re.compile(r"\}\} = ([A-Za-z_][\w>]*)\["),
    re.compile(r"^Op: ([\w>]+)$", re.MULTILINE),
    re.compile(r"\[Op:([\w>]+)\]"),
)
_COLOCATED_OP = r"^  {node} \(([\w>]+)\)"
# A kernel in the list: its kind of device, and the types to which it is limited.
_KERNEL = re.compile(r"device=['\\]{1,3}([A-Z_]{1,40})\\?'(; [^\n]*)?")
_KERNEL_LIST = re.compile(r"no registered kernels>|device=['\\]{1,3}[A-Z_]")
_ATTRIBUTES = re.compile(r"(?:= [A-Za-z_][\w>]*\[|^Node attrs: )([^\n]{1,2000})", re.MULTILINE)
_TYPE_ATTRIBUTE = re.compile(r"(?<![\w>])([A-Za-z_]\w{0,40})=(DT_[A-Z0-9_]{1,30})(?=[,\]]|$)")
_LATER_LINE = re.compile(
    r"\s|$|Registered |Colocation |All (?:kernels|available) |Op: |Node attrs: |Root Member|See node|Function call stack|"
    r"Traceback|During handling|[\w.]+(?:Error|Exception)\b|\d{4}-\d\d-\d\d |[IWEF]\d{4} "
)
_NEXT_ERROR = re.compile(r"\n(?:Traceback \(most|During handling|[\w.]+(?:Error|Exception)\b)")
_DEVICE_NAME = re.compile(
    r"(?:(/job:[\w.\-]{1,80})(?:/replica:(\d{1,9}))?(?:/task:(\d{1,9}))?)?/(?:device:)?([A-Za-z_]{1,40}):(\d{1,6}|\*)$"
)


def shorten_device(device_text: bytes | str) -> str:
    """Return the short name of a device, such as "GPU:0", or the full name if it belongs to another task.

    Return an empty string if the text is not a device name.
    """
    text = device_text.decode("utf-8", "replace") if isinstance(device_text, bytes) else device_text
    match = _DEVICE_NAME.fullmatch(text)
    if match is None:
        return ""
    job, replica, task, kind, index = match.groups()
    name = f"{kind.upper()}:{index}"
    task_name = f"{job}/replica:{replica or 0}/task:{task or 0}"
    return name if job is None or task_name == LOCAL_TASK else f"{task_name}/device:{name}"


@dataclass(frozen=True, slots=True)
class ParsedRefusal:
    """A refusal that was read from the log."""

    refusal: Refusal
    is_eager: bool
    """Whether the operation was to run eagerly, not in a graph."""


class RefusalReader:
    """A collector of the refusals in a log, which is read block by block. It stores each refusal once."""

    def __init__(self) -> None:
        self.refusals: list[ParsedRefusal] = []
        self.omitted_count = 0
        """The number of refusals that were not stored, because there were too many."""
        self._pending: tuple[bytes, int] | None = None
        """An incomplete message that may continue in the next block, and the number of its first line."""

    @property
    def is_incomplete(self) -> bool:
        """Whether the last message may continue in the next block."""
        return self._pending is not None

    def read_block(self, block: bytes, lines_before: int) -> None:
        """Read a block of complete lines that follows `lines_before` lines."""
        if self._pending is not None:
            message_start, line = self._pending
            self._pending = None
            self._parse_message(message_start + block[: MAX_MESSAGE_BYTES - len(message_start)], line)
        if not any(trigger in block for trigger in _TRIGGERS):
            return
        line, start = lines_before + 1, 0
        for match in _MESSAGE_START.finditer(block):
            line += block.count(b"\n", start, match.start())
            start = match.start()
            text = block[start : start + MAX_MESSAGE_BYTES]
            if start + MAX_MESSAGE_BYTES > len(block):  # the message may continue in the next block
                self._parse_pending()
                self._pending = text, line
            else:
                self._parse_message(text, line)

    def finish(self) -> None:
        """Read the message that is still incomplete after the last block."""
        self._parse_pending()

    def _parse_pending(self) -> None:
        """Parse the incomplete message as far as it was read, if there is one."""
        if self._pending is not None:
            message_start, line = self._pending
            self._parse_message(message_start, line)
            self._pending = None

    def _parse_message(self, message_bytes: bytes, line: int) -> None:
        """Parse a message up to the next message or error, and add its refusal."""
        first_start = _MESSAGE_START.match(message_bytes)
        next_start = _MESSAGE_START.search(message_bytes, first_start.end() if first_start is not None else 1)
        message = message_bytes[: next_start.start()] if next_start is not None else message_bytes
        text = message.decode("utf-8", "replace").replace("\r", "")
        next_error = _NEXT_ERROR.search(text)
        if next_error is not None:
            text = text[: next_error.start()]
        refusal = _parse_refusal(_join_wrapped_lines(text), line)
        if refusal is not None:
            self._add_refusal(refusal)

    def _add_refusal(self, new_entry: ParsedRefusal) -> None:
        """Add a refusal, or add its details to the known refusal of the same node and device."""
        refusal = new_entry.refusal
        for index, known_entry in enumerate(self.refusals):
            known_refusal = known_entry.refusal
            if (refusal.node_name, refusal.requested_device) == (
                known_refusal.node_name,
                known_refusal.requested_device,
            ) and (
                refusal.op == known_refusal.op
                or (refusal.node_name is not None and None in (refusal.op, known_refusal.op))
            ):
                self.refusals[index] = ParsedRefusal(
                    replace(
                        known_refusal,
                        op=known_refusal.op or refusal.op,
                        reason=known_refusal.reason or refusal.reason,
                        lists_kernels=known_refusal.lists_kernels or refusal.lists_kernels,
                        type_attributes=known_refusal.type_attributes or refusal.type_attributes,
                    ),
                    known_entry.is_eager or new_entry.is_eager,
                )
                return
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append(new_entry)
        else:
            self.omitted_count += 1


def _join_wrapped_lines(text: str) -> str:
    """Return a message whose first line a terminal wrapped with this line in one piece.

    The later lines of a message begin with a blank or one of a few words, so another line continues the first.
    """
    first_line, *lines = text.split("\n")
    while lines and not _LATER_LINE.match(lines[0]) and not first_line.endswith((".", "]", "}}")):
        first_line += lines.pop(0)
    return "\n".join((first_line, *lines))


def _parse_refusal(text: str, line: int) -> ParsedRefusal | None:
    """Parse a message into a refusal. Return None if it names neither a reason nor a device nor a node."""
    first_line = text.partition("\n")[0]
    if (
        "assign a device" in first_line
        and "Could not satisfy" not in first_line
        and "assigned" not in first_line
    ):
        first_line = text[:600]  # this message gives its reason on a later line
    node = next(
        (match[1].rstrip(".:") for pattern in _NODE_PATTERNS if (match := pattern.search(text))), None
    )
    device_text = next(
        (match[1] for pattern in _DEVICE_PATTERNS if (match := pattern.search(first_line))), None
    )
    device = shorten_device(device_text) if device_text else ""
    reason = _find_reason(text, first_line, device)
    op = next((match[1] for pattern in _OP_PATTERNS if (match := pattern.search(text))), None)
    colocated_op = re.search(_COLOCATED_OP.format(node=re.escape(node)), text, re.MULTILINE) if node else None
    if colocated_op is not None:
        op = colocated_op[1]
    if reason is None and not device and node is None:
        return None
    attributes = _ATTRIBUTES.search(text)
    type_attributes = (
        tuple(
            (attribute, normalize_type(type_name))
            for attribute, type_name in _TYPE_ATTRIBUTE.findall(attributes[1])
        )
        if attributes
        else ()
    )
    is_eager = "[Op:" in text or "enable_soft_placement=" in first_line or "unknown device" in first_line
    lists_kernels = _KERNEL_LIST.search(text) is not None
    return ParsedRefusal(
        Refusal(
            op=op,
            node_name=node,
            requested_device=device or None,
            reason=reason,
            line=line,
            text=clean_line(first_line, limit=300),
            lists_kernels=lists_kernels,
            type_attributes=type_attributes,
        ),
        is_eager,
    )


def _find_reason(text: str, first_line: str, device: str) -> str | None:
    """Return the reason in the first line of a message, or None if it gives none."""
    if "colocated with a group" in first_line or "Cannot colocate nodes" in first_line:
        return "colocation"
    if "available devices are" in first_line or "no devices matching that specification" in first_line:
        return "no-such-device"
    if "unknown device" in first_line:
        return "no-such-device"
    if "All available devices [" in first_line:
        available = re.findall(
            r"/[^\s,\]]+", first_line.partition("All available devices [")[2].partition("]")[0]
        )
        return (
            _find_kernel_reason(text, device)
            if device in map(shorten_device, available)
            else "no-such-device"
        )
    if (
        "no supported kernel" in first_line
        or "OpKernel" in first_line
        or "Could not find device for node" in first_line
    ):
        return _find_kernel_reason(text, device)
    return None


def _find_kernel_reason(text: str, device: str) -> str:
    """Return "no-kernel-for-type" if the message lists kernels for this kind of device, else "no-kernel".

    If the message names no kind of device, a kernel for any kind counts if it is limited to certain types.
    """
    kind = device.rpartition("/")[2].removeprefix("device:").partition(":")[0]
    listed_kernels = [(kernel_kind, types or "") for kernel_kind, types in _KERNEL.findall(text)]
    kind_match = re.search(r"OpKernel for '?([A-Z_]+)'? devices", text)
    kind = kind or (kind_match[1] if kind_match else "")
    if kind:
        return (
            "no-kernel-for-type"
            if any(kernel_kind == kind for kernel_kind, _ in listed_kernels)
            else "no-kernel"
        )
    return "no-kernel-for-type" if any(types for _, types in listed_kernels) else "no-kernel"
