"""Read placement logs and count the operations on each device.

TensorFlow prints each node of a graph twice, once with printf and once with its logging:
"MatMul: (MatMul): /job:…/device:GPU:0". Before 0.12 the type in parentheses is missing. It prints an eager
operation each time that it runs: "Executing op MatMul in device …". From 2.5 on it also prints the nodes of the
small graph in which the operation runs; these are not counted as further operations.

Memory use grows with the number of nodes until 2 * `MAX_SEEN_LINES` of them are remembered.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import groupby, islice
from typing import TYPE_CHECKING

from tfdoctor.logs.blocks import iter_blocks
from tfdoctor.logs.placement.models import (
    OTHER_OPERATIONS,
    DeviceChange,
    DeviceCopy,
    OpCount,
    PlacementData,
    PlacementDevice,
    get_device_kind,
    get_device_task,
)
from tfdoctor.logs.placement.rejections import RefusalReader, shorten_device
from tfdoctor.logs.placement.version_messages import FirstMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["PlacementReader", "read_placement"]

MAX_OPERATION_PAIRS = 20_000
"""The maximum number of (operation, device) pairs. Others are counted as `OTHER_OPERATIONS`.

This is generous, because TensorFlow has 1,500 operations.
"""
MAX_SEEN_LINES = 200_000
"""The number of new lines and nodes after which older ones are forgotten. At most twice as many are remembered.

Each takes about 70 bytes.
"""
MAX_NODE_BYTES = 1000
"""The maximum number of bytes before a device that are searched for the node's name and type."""
_MAX_PAIRS = 10_000
"""The maximum number of devices, of device changes and of copies that are counted separately."""
_MAX_EAGER_NODES = 64
"""The maximum number of nodes in the graph of one eager operation."""
_MAX_OPS_BETWEEN = 10
"""The maximum number of operations between GPU operations that are reported."""

_EXECUTION = re.compile(rb"Executing op (\S+) in device (\S+)")
_TASK = rb"/job:[\w.\-]{1,80}/replica:\d{1,9}/task:\d{1,9}"
_DEVICE_POSITION = re.compile(
    # a full device name, followed by " -> " (a listed device), the end of the line or string, or a time stamp
    rb"("
    + _TASK
    + rb"/(?:device:)?[A-Za-z_]{1,40}:\d{1,6}?)(?:( -> )|(?=[\s\"'\\\x1b<,]|$|\d{4}-\d\d-\d\d ))"
)
_NODE_LINE = re.compile(
    rb"([A-Za-z0-9_.][\w.\-/\\>]*): \(([\w>]+)\)(?:: )?(" + _TASK + rb"/(?:device:)?[A-Za-z_]{1,40}:\d{1,6})"
)
"""A node with its type as printf and TensorFlow's logging print it. Few logs have other lines with devices."""
_NODE_LINES = re.compile(rb"^(?:[^\n]*\] )?" + _NODE_LINE.pattern + rb"$", re.MULTILINE)
"""The lines that consist of a node, also behind the time stamp and the source line of a message."""
_MIN_GRAPH_LINES = 4 * _MAX_EAGER_NODES
"""The number of lines of nodes without an eager operation from which on they are the nodes of a graph."""
_NODE_NAME = re.compile(rb"[A-Za-z0-9_.][\w.\-/\\>]*")
_TYPE = re.compile(rb"[\w>]+")
_NODE_SEPARATOR = re.compile(rb"[\s\"'|:\]]")
_DEVICE_CREATION = re.compile(
    rb"Creat(?:ed|ing) (?:TensorFlow )?device \(?([^\s()]{1,200})[^()\n]{0,80}?\)? {1,2}-> ([^\n]{0,300})"
)
_DEVICE_NAME = re.compile(rb"name: ([^,\n]{1,200}?),? pci bus id: ")
_PCI = re.compile(rb"pci bus id: ([0-9A-Fa-f:.]{4,20})")
_CAPABILITY = re.compile(rb"compute capability: (\d{1,3}\.\d{1,3})")
_EXECUTING = b"Executing op "
_NO_PAIR = (b"", b"")
_IN_DEVICE = b" in device "
_ARGUMENT_OPS = (b"_Arg", b"_Retval", b"_DeviceArg", b"_DeviceRetval")
"""Operations that only pass a function's arguments and results."""
_FUNCTION = re.compile(rb"__(?:inference|forward|backward)_[\w.\-/<>]+")
"""The names of functions that Python traced (tensorflow/python/eager)."""
_COPY_OPS = {
    b"_Send": True,
    b"_HostSend": True,
    b"_CopyFromGpuToHost": True,
    b"_Recv": False,
    b"_HostRecv": False,
    b"_CopyFromHostToGpu": False,
}
"""The operations at one end of a copy. True means that the copy starts at their device, False that it ends there."""
_COPY_MESSAGE = re.compile(
    # printed with the device policy "warn": tensorflow/core/common_runtime/eager/execute.cc
    rb"before computing ([\w>]{1,100}) input #\d{1,5} was expected to be on (/[^\s()]{1,200}) but is actually on "
    rb"(/[^\s()]{1,200}) [^\n]{0,300}This triggers a copy"
)
_CLIENT_NODE = re.compile(rb"(?:^|/)_(?:send|recv)_[^/]*$")
"""The names of nodes that feed a graph or fetch from it. These do not copy between devices."""
_NODE_NUMBER = re.compile(r"_\d+$")


def read_placement(chunks: Iterable[bytes]) -> PlacementData:
    """Read a log from chunks of bytes. Invalid content is ignored and raises no error."""
    reader = PlacementReader()
    for _ in reader.read(chunks):
        pass
    return reader.finish()


@lru_cache(maxsize=1024)
def _is_gpu(device: bytes) -> bool:
    kind = device.rpartition(b"/")[2]
    return b"GPU:" in kind or b"gpu:" in kind


class _RecentNumbers:
    """A set of numbers that has a limited size and forgets the oldest ones."""

    def __init__(self) -> None:
        self.newer: set[int] = set()
        """The newer numbers, up to `MAX_SEEN_LINES` of them."""
        self.older: set[int] = set()
        """The older numbers."""

    def add(self, *numbers: int) -> None:
        """Add numbers, and forget the older ones first if the newer set is full."""
        if len(self.newer) >= MAX_SEEN_LINES:
            self.older, self.newer = self.newer, set()
        self.newer.update(numbers)


class PlacementReader:
    """A counter of the operations and devices in a log (see `read_placement`)."""

    def __init__(self) -> None:
        """Initialize empty counters."""
        self.line_count = self.byte_count = 0
        self.placed_counts: Counter[tuple[bytes, bytes]] = Counter()
        """The number of graph nodes for each (operation, device)."""
        self.argument_counts: Counter[tuple[bytes, bytes]] = Counter()
        """The number of nodes that only pass arguments and results, for each (operation, device)."""
        self.executed_counts: Counter[tuple[bytes, bytes]] = Counter()
        """The number of eager operations for each (operation, device)."""
        self.devices: dict[tuple[str, str | None, str | None], PlacementDevice] = {}
        """The devices by (device, name, PCI bus ID)."""
        self.refusal_reader = RefusalReader()
        self.has_device_list = self.no_known_devices = False
        """Whether the log contains a list of devices, and whether the list says that no devices are known."""
        self.seen_hashes = _RecentNumbers()
        """The hashes of lines and nodes that were counted."""
        self.pending_by_line_hash: dict[int, tuple[int, bytes, bytes]] = {}
        """(key, operation, device) of nodes that may belong to the next eager operation, by line hash."""
        self.pending_keys: set[int] = set()
        """The keys of the pending nodes."""
        self.copy_counts: Counter[tuple[bytes, bytes, bytes]] = Counter()
        """The number of copies that TensorFlow reports for each (operation, from, to)."""
        self.call_counts: Counter[tuple[bytes, bytes]] = Counter()
        """The number of calls for each (function, device)."""
        self.client_counts: Counter[tuple[bytes, bytes]] = Counter()
        """The number of nodes that only feed a graph or fetch from it, for each (operation, device)."""
        self.pair_by_graph: dict[tuple[bytes, ...], tuple[bytes, bytes]] = {}
        """(operation, device) of an execution by its lines; `_NO_PAIR` for other lines."""
        self.first_messages = FirstMessages()
        self.last_device: bytes | None = None
        """The device of the previous operation."""
        self.last_gpu: bytes | None = None
        """The device of the previous operation if it is a GPU, else None."""
        self.change_counts: Counter[tuple[bytes, bytes]] = Counter()
        """The number of device changes for each (from, to)."""
        self.ops_between: Counter[bytes] = Counter()
        """The number of times that each operation ran on the CPU between two operations on a GPU."""
        self.cpu_ops_after_gpu: list[bytes] | None = None
        """The CPU operations since the last operation on a GPU. None if no operation ran on a GPU."""
        self.ends_without_newline = False
        """Whether the last line has no line end."""
        self.omitted_counts: Counter[str] = Counter()
        """The number of items that were omitted because there were too many, by kind."""

    def read(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Count the operations in the chunks, and yield their bytes as blocks of complete lines.

        The chunks may end anywhere. Each block is counted before it is yielded.
        """
        for block in iter_blocks(chunks):
            self.count_block(block)
            yield block

    def count_block(self, block: bytes) -> None:
        """Count one block of complete lines."""
        device_count, line_count = block.count(b"/job:"), block.count(b"\n")
        is_graph = self._count_graph(block, device_count)
        if not is_graph or device_count != line_count or self.refusal_reader.is_incomplete:
            self.refusal_reader.read_block(block, self.line_count)
            self._parse_devices(block)
            self._count_copies(block)
        self.first_messages.read_block(block)
        self.byte_count += len(block)
        self.line_count += line_count
        self.ends_without_newline = not block.endswith(b"\n")
        if device_count and not is_graph and not self._count_known_executions(block, device_count):
            self._count_lines(self._count_eager_graphs(block))

    def _count_copies(self, block: bytes) -> None:
        """Count the copies that TensorFlow reports."""
        if b"This triggers a copy" not in block:
            return
        for match in _COPY_MESSAGE.finditer(block):
            key = match[1], match[3], match[2]
            if key in self.copy_counts or len(self.copy_counts) < _MAX_PAIRS:
                self.copy_counts[key] += 1
            else:
                self.omitted_counts["copies"] += 1

    def _count_lines(self, block: bytes) -> None:
        """Count the operations of complete lines, one by one."""
        previous_start = 0
        seen_hashes = self.seen_hashes
        for match in _DEVICE_POSITION.finditer(block):
            start = match.start()
            device = match[1]
            line_start = block.rfind(b"\n", previous_start, start) + 1 or previous_start
            line_start_text = block[
                line_start if start - line_start < MAX_NODE_BYTES else start - MAX_NODE_BYTES : start
            ]
            previous_start = start
            if match[2] is not None:  # " -> " follows, so this is an entry of a list of devices
                self._add_device(device, block[match.end() : match.end() + 300].partition(b"\n")[0])
                continue
            if line_start_text.endswith(_IN_DEVICE):
                position = line_start_text.rfind(_EXECUTING)
                if position >= 0:
                    op = line_start_text[position + len(_EXECUTING) : -len(_IN_DEVICE)].strip()
                    self._count_execution(op, device)
                continue
            node_text = line_start_text.rpartition(b"] ")[2]
            line_hash = hash((node_text, device))
            if (
                line_hash not in seen_hashes.newer
                and line_hash not in seen_hashes.older
                and line_hash not in self.pending_by_line_hash
            ):
                self._add_node(line_hash, node_text, device)

    def _count_known_executions(self, block: bytes, device_count: int) -> bool:
        """Count a block that contains only executions of known operations and functions.

        Return False, and count nothing, if the block contains anything else. Most blocks contain only such executions,
        and their operations and devices repeat. So it is fast to examine each pair only once.
        """
        if self.pending_by_line_hash or b" -> " in block:
            return False
        pairs = _EXECUTION.findall(block)
        if len(pairs) != device_count:  # some device belongs to another kind of message
            return False
        pair_counts = Counter(pairs)
        device_by_pair: dict[tuple[bytes, bytes], bytes | None] = {}
        """The device of each (operation, device) pair. None for a function, whose operations are unknown."""
        for pair in pair_counts:
            if pair not in self.executed_counts and pair not in self.call_counts:
                return False
            device_by_pair[pair] = pair[1] if pair in self.executed_counts else None
        self._add_executions(pairs, pair_counts, device_by_pair)
        return True

    def _add_executions(
        self,
        pairs: Sequence[tuple[bytes, bytes]],
        pair_counts: Counter[tuple[bytes, bytes]],
        device_by_pair: Mapping[tuple[bytes, bytes], bytes | None],
    ) -> None:
        """Count executions (operation, device), which are in the order of the log."""
        for (op, device), count in pair_counts.items():
            is_call = device_by_pair[op, device] is None
            self._count(self.call_counts if is_call else self.executed_counts, op, device, count)
        for run_device, run_pairs in groupby(pairs, key=device_by_pair.__getitem__):
            if run_device is None:
                self.cpu_ops_after_gpu = self.last_device = self.last_gpu = None
            else:
                self._record_run(run_device, run_pairs)

    def _count_eager_graphs(self, block: bytes) -> bytes:
        """Count executions together with the small graphs before them, and return the rest of the block.

        The rest is the whole block if it contains anything else. The same graphs repeat, so each is examined once.
        """
        first = block.find(_EXECUTING)
        if first < 0 or b" -> " in block:
            return block
        if self.pending_by_line_hash:  # the first graph began in the block before
            end = block.find(b"\n", first) + 1
            self._count_lines(block[:end])
            block = block[end:]
            if self.pending_by_line_hash:
                return block
        end = block.find(b"\n", block.rfind(_EXECUTING)) + 1
        body, graph, pairs, line_count = block[:end], [], [], 0
        for line in body.split(b"\n"):
            if b"/job:" not in line:
                continue
            line_count += 1
            text = line.rpartition(b"] ")[2]
            graph.append(text)
            if text.startswith(_EXECUTING):
                key = tuple(graph)
                graph = []
                pair = self.pair_by_graph.get(key)
                if pair is None:
                    pair = self.pair_by_graph[key] = _match_eager_graph(key)
                pairs.append(pair)
        pair_counts = Counter(pairs)
        if len(self.pair_by_graph) > _MAX_PAIRS:
            self.pair_by_graph.clear()
        if _NO_PAIR in pair_counts or line_count != body.count(b"/job:"):
            return block
        self._add_executions(
            pairs,
            pair_counts,
            {pair: None if _FUNCTION.fullmatch(pair[0]) else pair[1] for pair in pair_counts},
        )
        return block[end:]

    def _count_graph(self, block: bytes, device_count: int) -> bool:
        """Count a block in which only nodes of graphs have devices. Return False, and count nothing, for other blocks."""
        if device_count < _MIN_GRAPH_LINES or _EXECUTING in block or b" -> " in block:
            return False
        nodes = _NODE_LINES.findall(block)
        if len(nodes) != device_count:
            return False
        self._count_pending()
        node_by_key = {hash(node): node for node in set(nodes)}
        new_keys = set(node_by_key) - self.seen_hashes.newer - self.seen_hashes.older
        for (op, device), count in Counter([node_by_key[key][1:] for key in new_keys]).items():
            self._count(
                self.argument_counts if op in _ARGUMENT_OPS else self.placed_counts, op, device, count
            )
        for name, op, device in (node_by_key[key] for key in new_keys if node_by_key[key][1] in _COPY_OPS):
            if _CLIENT_NODE.search(name):
                self._count(self.client_counts, op, device)
        self.seen_hashes.add(*new_keys)
        return True

    def _count(self, table: Counter[tuple[bytes, bytes]], op: bytes, device: bytes, count: int = 1) -> None:
        """Count an operation in a table, or as `OTHER_OPERATIONS` if the table is full."""
        if (op, device) not in table and len(table) >= MAX_OPERATION_PAIRS:
            op = OTHER_OPERATIONS.encode()
            if (op, device) not in table and len(table) >= 2 * MAX_OPERATION_PAIRS:
                self.omitted_counts["operations"] += count
                return
        table[op, device] += count

    def _add_node(self, line_hash: int, node_text: bytes, device: bytes) -> None:
        """Add a node to the pending ones. Ignore a text that is not a node, and a node that is known already."""
        text, separator, op = node_text.removesuffix(b": ").removesuffix(b")").rpartition(b": (")
        if not separator:  # without a type, or not a node
            text, op = node_text.removesuffix(b": "), b""
            if text == node_text:
                return
        name = text if _NODE_NAME.fullmatch(text) else _NODE_SEPARATOR.split(text)[-1]
        if not _NODE_NAME.fullmatch(name) or not (op == b"" or _TYPE.fullmatch(op)):
            return
        key = hash((name, op, device))
        if key in self.seen_hashes.newer or key in self.seen_hashes.older:
            # the same node in another spelling: standard output and standard error differ
            self.seen_hashes.add(line_hash)
            return
        if key in self.pending_keys:
            return
        self.pending_by_line_hash[line_hash] = key, op or _guess_operation(name), device
        self.pending_keys.add(key)
        if op in _COPY_OPS and _CLIENT_NODE.search(name):
            self._count(self.client_counts, op, device)
        if len(self.pending_by_line_hash) > _MAX_EAGER_NODES:
            self._count_pending()

    def _count_pending(self) -> None:
        """Count the pending nodes, because they do not belong to the graph of an eager operation."""
        for line_hash, (key, op, device) in self.pending_by_line_hash.items():
            self._count(self.argument_counts if op in _ARGUMENT_OPS else self.placed_counts, op, device)
            self.seen_hashes.add(line_hash, key)
        self._clear_pending()

    def _clear_pending(self) -> None:
        """Discard the pending nodes."""
        self.pending_by_line_hash.clear()
        self.pending_keys.clear()

    def _count_execution(self, op: bytes, device: bytes) -> None:
        """Count an eager operation or a function call.

        The pending nodes are discarded if they are the graph of this operation. Otherwise they are counted first.
        """
        if self.pending_by_line_hash:
            computing_ops = [
                node_op
                for _, node_op, _ in self.pending_by_line_hash.values()
                if node_op not in _ARGUMENT_OPS
            ]
            if computing_ops in ([op], []):  # the operation itself, or only its arguments and results
                self._clear_pending()
            else:
                self._count_pending()
        if _FUNCTION.fullmatch(op):
            self._count(self.call_counts, op, device)
            # the operations of the function are unknown
            self.cpu_ops_after_gpu = self.last_device = self.last_gpu = None
            return
        if (op, device) in self.executed_counts or _TYPE.fullmatch(op):
            self._count(self.executed_counts, op, device)
            self._record_run(device, [(op, device)])

    def _record_run(self, device: bytes, run_pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Record consecutive operations on one device, and the change from the previous device."""
        if device != self.last_device:
            if self.last_device is not None:
                if len(self.change_counts) < _MAX_PAIRS or (self.last_device, device) in self.change_counts:
                    self.change_counts[self.last_device, device] += 1
                else:
                    self.omitted_counts["changes of the device"] += 1
            self.last_device = device
        if _is_gpu(device):
            for cpu_op in self.cpu_ops_after_gpu or ():
                self.ops_between[cpu_op] += 1
            self.cpu_ops_after_gpu = []
            self.last_gpu = device
            return
        self.last_gpu = None
        if self.cpu_ops_after_gpu is not None:
            self.cpu_ops_after_gpu += [
                op for op, _ in islice(run_pairs, _MAX_EAGER_NODES - len(self.cpu_ops_after_gpu))
            ]

    # ---------------------------------------------------------------- devices

    def _parse_devices(self, block: bytes) -> None:
        """Read the devices that a block lists or creates."""
        if b"Device mapping:" in block:
            self.has_device_list = True
            self.no_known_devices |= b"Device mapping: no known devices" in block
        if b"-> " not in block or (b"TensorFlow device (" not in block and b"Created device /" not in block):
            return
        for match in _DEVICE_CREATION.finditer(block):
            self._add_device(match[1], match[2], is_created=True)

    def _add_device(self, device_text: bytes, description: bytes, *, is_created: bool = False) -> None:
        """Add a device, or replace the known device if its compute capability is unknown."""
        device = shorten_device(device_text)
        if not device or (is_created and get_device_kind(device) not in ("GPU", "TPU")):
            return
        name, pci, capability = (pattern.search(description) for pattern in (_DEVICE_NAME, _PCI, _CAPABILITY))
        self.has_device_list = self.has_device_list or not is_created
        new_device = PlacementDevice(
            device=device,
            kind=get_device_kind(device),
            task=get_device_task(device),
            name=name[1].decode("utf-8", "replace") if name else None,
            compute_capability=capability[1].decode() if capability else None,
            pci_bus_id=pci[1].decode() if pci else None,
        )
        key = (new_device.device, new_device.name, new_device.pci_bus_id)
        known_device = self.devices.get(key)
        if known_device is None and len(self.devices) >= _MAX_PAIRS:
            self.omitted_counts["devices"] += 1
        elif known_device is None or known_device.compute_capability is None:
            self.devices[key] = new_device

    # ---------------------------------------------------------------- the result

    def finish(self) -> PlacementData:
        """Return all data that was read.

        Pending nodes are counted first, unless they are the graph of an eager operation whose own line is
        missing at the end of the log.
        """
        self.refusal_reader.finish()
        is_eager = bool(self.executed_counts or self.call_counts) or any(
            entry.is_eager for entry in self.refusal_reader.refusals
        )
        if self.pending_by_line_hash:
            ops = [op for _, op, _ in self.pending_by_line_hash.values()]
            computing_ops = [op for op in ops if op not in _ARGUMENT_OPS]
            if self.executed_counts and len(computing_ops) == 1 and len(ops) > 1:
                self._clear_pending()  # the log ends before the line that reports the operation
            else:
                self._count_pending()
        tables = (self.placed_counts, self.executed_counts, *(() if is_eager else (self.argument_counts,)))
        has_graphs = bool(
            self.placed_counts or self.argument_counts or self.has_device_list or self.refusal_reader.refusals
        )
        return PlacementData(
            api="2" if is_eager else "1" if has_graphs else None,
            devices=tuple(self.devices.values()),
            no_known_devices=self.no_known_devices,
            op_counts=_make_counts(*tables),
            refusals=tuple(entry.refusal for entry in self.refusal_reader.refusals),
            cpu_ops_between_gpu_ops=tuple(
                (op.decode("utf-8", "replace"), count)
                for op, count in self.ops_between.most_common(_MAX_OPS_BETWEEN)
            ),
            release_messages=self.first_messages.text,
            has_forgotten_nodes=bool(self.seen_hashes.older),
            line_count=self.line_count + self.ends_without_newline,
            byte_count=self.byte_count,
            call_counts=_make_counts(self.call_counts),
            copies=self._list_copies(tables),
            device_changes=self._list_changes(),
            omitted_counts=tuple(
                (self.omitted_counts + Counter(refusals=self.refusal_reader.omitted_count)).items()
            ),
        )

    def _list_copies(self, tables: Sequence[Counter[tuple[bytes, bytes]]]) -> tuple[DeviceCopy, ...]:
        """Return the copies that TensorFlow reports, followed by the operations that send or receive a copy."""
        copies = [
            DeviceCopy(
                op=op.decode(), source=shorten_device(source), target=shorten_device(target), count=count
            )
            for (op, source, target), count in self.copy_counts.most_common()
            if shorten_device(source) and shorten_device(target)
        ]
        end_counts: Counter[tuple[bytes, bytes]] = Counter()
        for table in tables:
            end_counts.update(
                {(op, device): count for (op, device), count in table.items() if op in _COPY_OPS}
            )
        for entry in _make_counts(end_counts - self.client_counts):
            is_source = _COPY_OPS[entry.op.encode()]
            copies.append(
                DeviceCopy(
                    op=entry.op,
                    source=entry.device if is_source else None,
                    target=None if is_source else entry.device,
                    count=entry.count,
                )
            )
        return tuple(copies)

    def _list_changes(self) -> tuple[DeviceChange, ...]:
        """Return the device changes, the most frequent ones first."""
        changes = (
            (shorten_device(before), shorten_device(after), count)
            for (before, after), count in self.change_counts.most_common()
        )
        return tuple(
            DeviceChange(before, after, count) for before, after, count in changes if before != after
        )


def _make_counts(*tables: Counter[tuple[bytes, bytes]]) -> tuple[OpCount, ...]:
    """Return the counts of all tables together, sorted by device, then by operation."""
    counts: Counter[tuple[str, str]] = Counter()
    for table in tables:
        for (op, device), count in table.items():
            counts[op.decode("utf-8", "replace"), shorten_device(device)] += count
    items = sorted(counts.items(), key=lambda item: (item[0][1], item[0][0]))
    return tuple(OpCount(op, device, count) for (op, device), count in items)


def _match_eager_graph(texts: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    """Return the (operation, device) of an execution and of the nodes of its graph; `_NO_PAIR` for other lines."""
    execution = _EXECUTION.fullmatch(texts[-1])
    nodes = [_NODE_LINE.fullmatch(text) for text in dict.fromkeys(texts[:-1])]
    if execution is None or not (_TYPE.fullmatch(execution[1]) or _FUNCTION.fullmatch(execution[1])):
        return _NO_PAIR
    ops = [node[2] for node in nodes if node is not None and node[2] not in _ARGUMENT_OPS]
    is_its_graph = None not in nodes and len(nodes) <= _MAX_EAGER_NODES and ops in ([execution[1]], [])
    return (execution[1], execution[2]) if is_its_graph else _NO_PAIR


def _guess_operation(node_name: bytes) -> bytes:
    """Return the probable operation of a node whose type is not printed.

    It is the node's name without the number that TensorFlow appends to a repeated name, such as "MatMul_1".
    """
    return _NODE_NUMBER.sub("", node_name.decode("utf-8", "replace")).encode()
