"""Messages that refuse a device → what was wanted where, and why not.

They are long: the reason stands in the first line, the operation's type and its kernels some lines below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tfdoctor.compat.kernels import type_named
from tfdoctor.placement.models import LOCAL, Refusal
from tfdoctor.text import clean_line

__all__ = ["Refusals", "shorten_device"]

MAX_REFUSALS = 1000
"""Different refusals that are kept."""
MAX_MESSAGE_BYTES = 1 << 14
"""Bytes behind the beginning of a message that may belong to it."""

_WORDS = (
    b"annot assign a device",
    b"Could not satisfy",
    b"unknown device",
    b"OpKernel",
    b"Could not find device for node",
    b"Cannot colocate nodes",
    b"alformed device specification",
)
_BEGIN = re.compile(
    rb"Cannot assign a device (?:to|for) (?:node|operation) "
    rb"|Could not satisfy (?:explicit )?device specification '[^'\n]{0,200}'\. enable_soft_placement"
    rb"|Could not find device for node: "
    rb"|Cannot colocate nodes "
    rb"|No registered '[\w>]{1,100}' OpKernel for "
    rb"|No OpKernel was registered to support Op '"
    rb"|/[^\s']{1,120} unknown device"
    rb"|Malformed device specification '"
)
_NODE = (
    re.compile(r"Cannot assign a device (?:to|for) (?:node|operation) ['\"`]?([\w./\\>\-]+)"),
    re.compile(r"Could not find device for node: \{\{node ([\w./\\>\-]+)\}\}"),
    re.compile(r"Cannot colocate nodes (?:\{\{(?:colocation_)?node |')?([\w./\\>\-]+)"),
    re.compile(r"(?:compatible with node|used by node) (?:\{\{node )?'?([\w./\\>\-]+)"),
)
_WANTED = (
    re.compile(r"explicitly assigned to ([^\s']{1,200}) but available"),
    re.compile(r"(?:explicit )?device specification '([^'\n]{1,200})'"),
    re.compile(r"(/[^\s']{1,120}) unknown device"),
    re.compile(r"assigned device '([^'\n]{1,200})'"),
)
_OP = (
    re.compile(r"No registered '([\w>]+)' OpKernel"),
    re.compile(r"No OpKernel was registered to support Op '([\w>]+)'"),
    re.compile(r"\[\[(?:Node: |\{\{node )?[\w./\\>\-]+(?:\}\})? = ([A-Za-z_][\w>]*)\["),
    re.compile(r"\}\} = ([A-Za-z_][\w>]*)\["),
    re.compile(r"^Op: ([\w>]+)$", re.MULTILINE),
    re.compile(r"\[Op:([\w>]+)\]"),
)
_MEMBER = r"^  {node} \(([\w>]+)\)"
_KERNEL = re.compile(r"device=['\\]{1,3}([A-Z_]{1,40})\\?'(; [^\n]*)?")
_LISTED = re.compile(r"no registered kernels>|device=['\\]{1,3}[A-Z_]")
_TYPES = re.compile(r"(?:= [A-Za-z_][\w>]*\[|^Node attrs: )([^\n]{1,2000})", re.MULTILINE)
_TYPE = re.compile(r"(?<![\w>])([A-Za-z_]\w{0,40})=(DT_[A-Z0-9_]{1,30})(?=[,\]]|$)")
_NEXT = re.compile(r"\n(?:Traceback \(most|During handling|[\w.]+(?:Error|Exception)\b)")
_SHORT = re.compile(
    r"(?:(/job:[\w.\-]{1,80})(?:/replica:(\d{1,9}))?(?:/task:(\d{1,9}))?)?/(?:device:)?([A-Za-z_]{1,40}):(\d{1,6}|\*)$"
)


def shorten_device(spelled: bytes | str) -> str:
    """Return a device as the answer names it: GPU:0, or whole if it is another task's; "" if it is none."""
    text = spelled.decode("utf-8", "replace") if isinstance(spelled, bytes) else spelled
    match = _SHORT.fullmatch(text)
    if match is None:
        return ""
    job, replica, task, kind, index = match.groups()
    name = f"{kind.upper()}:{index}"
    whole = f"{job}/replica:{replica or 0}/task:{task or 0}"
    return name if job is None or whole == LOCAL else f"{whole}/device:{name}"


@dataclass(frozen=True, slots=True)
class ReadRefusal:
    """A refusal, and whether it is of an operation that ran eagerly."""

    refusal: Refusal
    eager: bool


class Refusals:
    """The refusals of a log, each once, as its blocks come."""

    def __init__(self) -> None:
        self.found: list[ReadRefusal] = []
        self.left_out = 0
        """Refusals that were not kept."""
        self._open: tuple[bytes, int] | None = None
        """A message whose end may be in the next block, and the line that it begins in."""

    def take(self, block: bytes, lines_before: int) -> None:
        """Take one piece of whole lines, and how many lines came before it."""
        if self._open is not None:
            begun, line = self._open
            self._open = None
            self._message(begun + block[: MAX_MESSAGE_BYTES - len(begun)], line)
        if not any(word in block for word in _WORDS):
            return
        line, at = lines_before + 1, 0
        for match in _BEGIN.finditer(block):
            line += block.count(b"\n", at, match.start())
            at = match.start()
            text = block[at : at + MAX_MESSAGE_BYTES]
            if at + MAX_MESSAGE_BYTES > len(block):
                self._finish()
                self._open = text, line
            else:
                self._message(text, line)

    def end(self) -> None:
        """End: nothing more comes."""
        self._finish()

    def _finish(self) -> None:
        if self._open is not None:
            self._message(*self._open)
            self._open = None

    def _message(self, raw: bytes, line: int) -> None:
        another = _BEGIN.search(raw, 1)
        whole = raw[: another.start()] if another is not None else raw
        text = whole.decode("utf-8", "replace").replace("\r", "")
        following = _NEXT.search(text)
        if following is not None:
            text = text[: following.start()]
        told = _parse_refusal(text, line)
        if told is not None:
            self._add(told)

    def _add(self, new: ReadRefusal) -> None:
        """Add a refusal once: what one of its messages leaves out, another one may say."""
        one = new.refusal
        for number, old in enumerate(self.found):
            two = old.refusal
            if (one.node, one.wanted) == (two.node, two.wanted) and (
                one.op == two.op or (one.node is not None and None in (one.op, two.op))
            ):
                self.found[number] = ReadRefusal(
                    replace(
                        two,
                        op=two.op or one.op,
                        reason=two.reason or one.reason,
                        listed=two.listed or one.listed,
                        types=two.types or one.types,
                    ),
                    old.eager or new.eager,
                )
                return
        if len(self.found) < MAX_REFUSALS:
            self.found.append(new)
        else:
            self.left_out += 1


def _parse_refusal(text: str, line: int) -> ReadRefusal | None:
    first = text.partition("\n")[0]
    if "assign a device" in first and "Could not satisfy" not in first and "assigned" not in first:
        first = text[:600]
    node = next((match[1].rstrip(".:") for pattern in _NODE if (match := pattern.search(text))), None)
    asked = next((match[1] for pattern in _WANTED if (match := pattern.search(first))), None)
    wanted = shorten_device(asked) if asked else ""
    reason = _reason(text, first, wanted)
    op = next((match[1] for pattern in _OP if (match := pattern.search(text))), None)
    member = re.search(_MEMBER.format(node=re.escape(node)), text, re.MULTILINE) if node else None
    if member is not None:
        op = member[1]
    if reason is None and not wanted and node is None:
        return None
    definition = _TYPES.search(text)
    types = (
        tuple((name, type_named(word)) for name, word in _TYPE.findall(definition[1])) if definition else ()
    )
    eager = "[Op:" in text or "enable_soft_placement=" in first or "unknown device" in first
    listed = _LISTED.search(text) is not None
    return ReadRefusal(
        Refusal(op, node, wanted or None, reason, line, clean_line(first, limit=300), listed, types), eager
    )


def _reason(text: str, first: str, wanted: str) -> str | None:
    if "colocated with a group" in first or "Cannot colocate nodes" in first:
        return "colocation"
    if "available devices are" in first or "no devices matching that specification" in first:
        return "no-such-device"
    if "unknown device" in first:
        return "no-such-device"
    if "All available devices [" in first:
        there = re.findall(r"/[^\s,\]]+", first.partition("All available devices [")[2].partition("]")[0])
        return _find_reason(text, wanted) if wanted in map(shorten_device, there) else "no-such-device"
    if "no supported kernel" in first or "OpKernel" in first or "Could not find device for node" in first:
        return _find_reason(text, wanted)
    return None


def _find_reason(text: str, wanted: str) -> str:
    """Return whether it has kernels for that kind of device, of other types."""
    kind = wanted.rpartition("/")[2].removeprefix("device:").partition(":")[0]
    kinds = [(name, types or "") for name, types in _KERNEL.findall(text)]
    for_kind = re.search(r"OpKernel for '?([A-Z_]+)'? devices", text)
    kind = kind or (for_kind[1] if for_kind else "")
    if kind:
        return "no-kernel-for-type" if any(name == kind for name, _ in kinds) else "no-kernel"
    return "no-kernel-for-type" if any(types for _, types in kinds) else "no-kernel"
