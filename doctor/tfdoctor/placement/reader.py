"""Find in the bytes of a log which operation went where. What is kept grows with the nodes, up to `MAX_SEEN_LINES`.

TensorFlow prints a node of a graph twice, with printf and with its logging: "MatMul: (MatMul): /job:…/device:GPU:0".
Before 0.12 it left the type out. An operation that runs eagerly is printed each time: "Executing op MatMul in device
…"; from 2.5 on the little graph that it runs in is printed as well, which is no further operation.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import groupby, islice
from typing import TYPE_CHECKING

from tfdoctor.logs.blocks import blocks
from tfdoctor.placement.models import (
    OTHER,
    Copied,
    DeviceChange,
    OpCount,
    PlacementData,
    PlacementDevice,
    find_kind,
    find_task,
)
from tfdoctor.placement.rejections import Refusals, shorten_device
from tfdoctor.placement.version_messages import FirstMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Reader", "read_placement"]

KINDS = 20_000
"""Operations, each with a device, that are told apart; TensorFlow has 1,500. Others are counted as `OTHER`."""
MAX_SEEN_LINES = 200_000
"""Lines and nodes by which others are known for the same, at least; some 70 bytes each, and twice as many at most."""
MAX_NODE_BYTES = 1000
"""Bytes before a device that may be a node's name and type."""
_EXECUTED = re.compile(rb"Executing op (\S+) in device (\S+)")
_PAIRS = 10_000
"""Pairs of devices that are told apart."""
_MAX_EAGER_NODES = 64
"""Nodes of a graph that may be one eager operation's own."""

_TASK = rb"/job:[\w.\-]{1,80}/replica:\d{1,9}/task:\d{1,9}"
_PLACED = re.compile(
    # what comes next ends the line, a string, or is the next message's time
    rb"("
    + _TASK
    + rb"/(?:device:)?[A-Za-z_]{1,40}:\d{1,6}?)(?:( -> )|(?=[\s\"'\\\x1b<,]|$|\d{4}-\d\d-\d\d ))"
)
_NAME_OF_NODE = re.compile(rb"[A-Za-z0-9_.][\w.\-/\\>]*")
_TYPE = re.compile(rb"[\w>]+")
_BEFORE_A_NODE = re.compile(rb"[\s\"'|:\]]")
_CREATED = re.compile(
    rb"Creat(?:ed|ing) (?:TensorFlow )?device \(?([^\s()]{1,200})[^()\n]{0,80}?\)? {1,2}-> ([^\n]{0,300})"
)
_NAME = re.compile(rb"name: ([^,\n]{1,200}?),? pci bus id: ")
_PCI = re.compile(rb"pci bus id: ([0-9A-Fa-f:.]{4,20})")
_CAPABILITY = re.compile(rb"compute capability: (\d{1,3}\.\d{1,3})")
_EXECUTING = b"Executing op "
_IN = b" in device "
_ARGUMENTS = (b"_Arg", b"_Retval", b"_DeviceArg", b"_DeviceRetval")
"""What carries a function's arguments and results: no work."""
_FUNCTION = re.compile(rb"__(?:inference|forward|backward)_[\w.\-/<>]+")
"""The names of functions that Python traced (tensorflow/python/eager)."""
_COPIES = {
    b"_Send": True,
    b"_HostSend": True,
    b"_CopyFromGpuToHost": True,
    b"_Recv": False,
    b"_HostRecv": False,
    b"_CopyFromHostToGpu": False,
}
"""Operations that are an end of a copy, and whether it goes from their device (else to it)."""
_COPIED = re.compile(
    # with the device policy "warn": tensorflow/core/common_runtime/eager/execute.cc
    rb"before computing ([\w>]{1,100}) input #\d{1,5} was expected to be on (/[^\s()]{1,200}) but is actually on "
    rb"(/[^\s()]{1,200}) [^\n]{0,300}This triggers a copy"
)
_OF_THE_CLIENT = re.compile(rb"(?:^|/)_(?:send|recv)_[^/]*$")
"""Nodes that give a graph what is fed and take what is fetched: no devices are between these two ends."""
_NUMBER = re.compile(r"_\d+$")


def read_placement(chunks: Iterable[bytes]) -> PlacementData:
    """Read the log's bytes. Never raises on any bytes."""
    reader = Reader()
    for _ in reader.read(chunks):
        pass
    return reader.end()


@lru_cache(maxsize=1024)
def _is_gpu(device: bytes) -> bool:
    kind = device.rpartition(b"/")[2]
    return b"GPU:" in kind or b"gpu:" in kind


class _Recently:
    """What was met, as numbers; of very many the oldest are forgotten."""

    def __init__(self) -> None:
        self.now: set[int] = set()
        self.before: set[int] = set()

    def add(self, *numbers: int) -> None:
        """Take note of them."""
        if len(self.now) >= MAX_SEEN_LINES:
            self.before, self.now = self.now, set()
        self.now.update(numbers)


class Reader:
    """Counts what passes; see `read_placement`."""

    def __init__(self) -> None:
        self.lines = self.bytes = 0
        self.placed: Counter[tuple[bytes, bytes]] = Counter()
        """(operation, device) → nodes of graphs."""
        self.arguments: Counter[tuple[bytes, bytes]] = Counter()
        self.executed: Counter[tuple[bytes, bytes]] = Counter()
        self.devices: dict[tuple[str, str | None, str | None], PlacementDevice] = {}
        """What tells one from another → the device, with all that any line says of it."""
        self.refusals = Refusals()
        self.mapped = self.nothing_known = False
        self.seen = _Recently()
        self.little: dict[int, tuple[int, bytes, bytes]] = {}
        """What was printed since the last eager operation, and may be that one's own graph: the line → the node."""
        self.little_nodes: set[int] = set()
        self.copied: Counter[tuple[bytes, bytes, bytes]] = Counter()
        """(operation, from, to) → how often TensorFlow said so."""
        self.called: Counter[tuple[bytes, bytes]] = Counter()
        self.clients: Counter[tuple[bytes, bytes]] = Counter()
        self.said = FirstMessages()
        self.last: bytes | None = None
        """Where the operation before this one ran."""
        self.on_gpu: bytes | None = None
        """The same, where that is a GPU."""
        self.changes: Counter[tuple[bytes, bytes]] = Counter()
        self.between: Counter[bytes] = Counter()
        self.after_gpu: list[bytes] | None = None
        self.ends_open = False
        self.left_out: Counter[str] = Counter()

    def read(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks, which may end anywhere, as pieces of whole lines; each is counted before."""
        for block in blocks(chunks):
            self.take(block)
            yield block

    def take(self, block: bytes) -> None:
        """Take one piece of whole lines."""
        self.refusals.take(block, self.lines)
        self._devices(block)
        self.said.take(block)
        if b"This triggers a copy" in block:
            for match in _COPIED.finditer(block):
                key = match[1], match[3], match[2]
                if key in self.copied or len(self.copied) < _PAIRS:
                    self.copied[key] += 1
                else:
                    self.left_out["copies"] += 1
        self.bytes += len(block)
        self.lines += block.count(b"\n")
        self.ends_open = not block.endswith(b"\n")
        if self._take_executed(block):
            return
        last = 0
        seen = self.seen
        for match in _PLACED.finditer(block):
            start = match.start()
            device = match[1]
            begin = block.rfind(b"\n", last, start) + 1 or last
            before = block[begin if start - begin < MAX_NODE_BYTES else start - MAX_NODE_BYTES : start]
            last = start
            if match[2] is not None:
                self._add_device(device, block[match.end() : match.end() + 300].partition(b"\n")[0])
                continue
            if before.endswith(_IN):
                at = before.rfind(_EXECUTING)
                if at >= 0:
                    op = before[at + len(_EXECUTING) : -len(_IN)].strip()
                    self._ran(op, device)
                continue
            told = before.rpartition(b"] ")[2]
            line = hash((told, device))
            if line not in seen.now and line not in seen.before and line not in self.little:
                self._stands(line, told, device)

    def _take_executed(self, block: bytes) -> bool:
        """Count a piece where only known operations and functions ran, as most do; return whether it is one.

        The same operations and devices come again and again, so what is fast is to split and to count, and what tells
        devices from other text is done once for each.
        """
        devices = block.count(b"/job:")
        pairs = _EXECUTED.findall(block) if devices and not self.little and b" -> " not in block else []
        if len(pairs) != devices:
            return False
        counts = Counter(pairs)
        places: dict[tuple[bytes, bytes], bytes | None] = {}
        """Operation and device → the device; None: a function, which runs operations that are not known."""
        for pair in counts:
            if pair not in self.executed and pair not in self.called:
                return False
            places[pair] = pair[1] if pair in self.executed else None
        for pair, count in counts.items():
            (self.called if places[pair] is None else self.executed)[pair] += count
        for device, run in groupby(pairs, key=places.__getitem__):
            if device is None:
                self.after_gpu = self.last = self.on_gpu = None
            else:
                self._went(device, run)
        return True

    def _count(self, table: Counter[tuple[bytes, bytes]], op: bytes, device: bytes) -> None:
        if (op, device) not in table and len(table) >= KINDS:
            op = OTHER.encode()
            if (op, device) not in table and len(table) >= 2 * KINDS:
                self.left_out["operations"] += 1
                return
        table[op, device] += 1

    def _stands(self, line: int, told: bytes, device: bytes) -> None:
        text, marked, op = told.removesuffix(b": ").removesuffix(b")").rpartition(b": (")
        if not marked:  # the type is left out, or this is something else
            text, op = told.removesuffix(b": "), b""
            if text == told:
                return
        name = text if _NAME_OF_NODE.fullmatch(text) else _BEFORE_A_NODE.split(text)[-1]
        if not _NAME_OF_NODE.fullmatch(name) or not (op == b"" or _TYPE.fullmatch(op)):
            return
        key = hash((name, op, device))
        if key in self.seen.now or key in self.seen.before:
            self.seen.add(line)  # the node's other spelling: standard output and standard error have one each
            return
        if key in self.little_nodes:
            return
        self.little[line] = key, op or _guess_operation(name), device
        self.little_nodes.add(key)
        if op in _COPIES and _OF_THE_CLIENT.search(name):
            self._count(self.clients, op, device)
        if len(self.little) > _MAX_EAGER_NODES:
            self._commit()

    def _commit(self) -> None:
        """Count the nodes that wait: they are those of a graph."""
        for line, (key, op, device) in self.little.items():
            self._count(self.arguments if op in _ARGUMENTS else self.placed, op, device)
            self.seen.add(line, key)
        self._forget()

    def _forget(self) -> None:
        self.little.clear()
        self.little_nodes.clear()

    def _ran(self, op: bytes, device: bytes) -> None:
        if self.little:
            work = [one for _, one, _ in self.little.values() if one not in _ARGUMENTS]
            if work in ([op], []):
                self._forget()
            else:
                self._commit()
        if op.startswith(b"__") and _FUNCTION.fullmatch(op):
            self._count(self.called, op, device)
            self.after_gpu = self.last = self.on_gpu = (
                None  # what it did before the next operation is not known
            )
            return
        if (op, device) in self.executed or _TYPE.fullmatch(op):
            self._count(self.executed, op, device)
            self._went(device, [(op, device)])

    def _went(self, device: bytes, run: Iterable[tuple[bytes, bytes]]) -> None:
        """Take note of operations that ran one after the other on one device."""
        if device != self.last:
            if self.last is not None:
                if len(self.changes) < _PAIRS or (self.last, device) in self.changes:
                    self.changes[self.last, device] += 1
                else:
                    self.left_out["changes of the device"] += 1
            self.last = device
        if _is_gpu(device):
            for one in self.after_gpu or ():
                self.between[one] += 1
            self.after_gpu = []
            self.on_gpu = device
            return
        self.on_gpu = None
        if self.after_gpu is not None:
            self.after_gpu += [op for op, _ in islice(run, _MAX_EAGER_NODES - len(self.after_gpu))]

    # ---------------------------------------------------------------- devices

    def _devices(self, block: bytes) -> None:
        if b"Device mapping:" in block:
            self.mapped = True
            self.nothing_known |= b"Device mapping: no known devices" in block
        if b"-> " not in block or (b"TensorFlow device (" not in block and b"Created device /" not in block):
            return
        for match in _CREATED.finditer(block):
            self._add_device(match[1], match[2], created=True)

    def _add_device(self, spelled: bytes, text: bytes, *, created: bool = False) -> None:
        device = shorten_device(spelled)
        if not device or (created and find_kind(device) not in ("GPU", "TPU")):
            return
        name, pci, capability = (pattern.search(text) for pattern in (_NAME, _PCI, _CAPABILITY))
        self.mapped = self.mapped or not created
        new = PlacementDevice(
            device,
            find_kind(device),
            find_task(device),
            name[1].decode("utf-8", "replace") if name else None,
            capability[1].decode() if capability else None,
            pci[1].decode() if pci else None,
        )
        key = (new.device, new.name, new.pci_bus_id)
        old = self.devices.get(key)
        if old is None and len(self.devices) >= _PAIRS:
            self.left_out["devices"] += 1
        elif old is None or old.compute_capability is None:
            self.devices[key] = new

    # ---------------------------------------------------------------- the end

    def end(self) -> PlacementData:
        """Return everything that was read."""
        self.refusals.end()
        eager = bool(self.executed or self.called) or any(one.eager for one in self.refusals.found)
        if self.little:
            ops = [op for _, op, _ in self.little.values()]
            work = [op for op in ops if op not in _ARGUMENTS]
            if self.executed and len(work) == 1 and len(ops) > 1:
                self._forget()  # cut before the line that says that it ran
            else:
                self._commit()
        tables = (self.placed, self.executed, *(() if eager else (self.arguments,)))
        graphs = bool(self.placed or self.arguments or self.mapped or self.refusals.found)
        return PlacementData(
            api="2" if eager else "1" if graphs else None,
            devices=tuple(self.devices.values()),
            no_known_devices=self.nothing_known,
            ops=_make_counts(*tables),
            refused=tuple(one.refusal for one in self.refusals.found),
            between=tuple((op.decode("utf-8", "replace"), n) for op, n in self.between.most_common(10)),
            said=self.said.text,
            forgotten=bool(self.seen.before),
            lines=self.lines + self.ends_open,
            bytes=self.bytes,
            calls=_make_counts(self.called),
            copies=self._copies(tables),
            changes=self._changes(),
            left_out=tuple((self.left_out + Counter(refusals=self.refusals.left_out)).items()),
        )

    def _copies(self, tables: Sequence[Counter[tuple[bytes, bytes]]]) -> tuple[Copied, ...]:
        """List what TensorFlow said first, then the operations that are ends."""
        found = [
            Copied(op.decode(), shorten_device(before), shorten_device(device), count)
            for (op, before, device), count in self.copied.most_common()
            if shorten_device(before) and shorten_device(device)
        ]
        ends: Counter[tuple[bytes, bytes]] = Counter()
        for table in tables:
            ends.update({key: count for key, count in table.items() if key[0] in _COPIES})
        for row in _make_counts(ends - self.clients):
            away = _COPIES[row.op.encode()]
            found.append(
                Copied(row.op, row.device if away else None, None if away else row.device, row.count)
            )
        return tuple(found)

    def _changes(self) -> tuple[DeviceChange, ...]:
        named = (
            (shorten_device(one), shorten_device(two), count)
            for (one, two), count in self.changes.most_common()
        )
        return tuple(DeviceChange(one, two, count) for one, two, count in named if one != two)


def _make_counts(*tables: Counter[tuple[bytes, bytes]]) -> tuple[OpCount, ...]:
    """Return the counts by device, then by operation."""
    counts: Counter[tuple[str, str]] = Counter()
    for table in tables:
        for (op, device), count in table.items():
            counts[op.decode("utf-8", "replace"), shorten_device(device)] += count
    rows = sorted(counts.items(), key=lambda row: (row[0][1], row[0][0]))
    return tuple(OpCount(op, device, count) for (op, device), count in rows)


def _guess_operation(name: bytes) -> bytes:
    """Return what very old releases leave of an operation: its node's name, without the number of a repeated one."""
    return _NUMBER.sub("", name.decode("utf-8", "replace")).encode()
