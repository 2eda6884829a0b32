"""Dataclasses for the content of a placement log and for its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding

__all__ = [
    "LOCAL_TASK",
    "OTHER_OPERATIONS",
    "CpuOperations",
    "DeviceChange",
    "MissingKernel",
    "OpCount",
    "Placement",
    "PlacementData",
    "PlacementDevice",
    "Refusal",
    "get_device_kind",
    "get_device_task",
]

OTHER_OPERATIONS = "(other)"
"""The name for operations that are not counted by type, because the log has too many types."""
LOCAL_TASK = "/job:localhost/replica:0/task:0"
"""The task of a program that does not run in a cluster."""


@dataclass(frozen=True, slots=True)
class PlacementDevice:
    """A device that TensorFlow lists after "Device mapping:", or names when it creates the device."""

    device: str
    """"GPU:0", or the full name for another task: "/job:worker/replica:0/task:1/device:GPU:0"."""
    kind: str
    """"GPU", "CPU", "XLA_GPU", "XLA_CPU", "TPU", …"""
    task: str
    """The task of a cluster that has the device. `LOCAL_TASK` outside a cluster."""
    name: str | None = None
    """The name of the product, such as "Tesla T4". None if not known."""
    compute_capability: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True)
class OpCount:
    """The number of operations of one type on one device."""

    op: str
    device: str
    count: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An operation that TensorFlow refused to place on the requested device."""

    op: str | None
    """The operation's type, such as "MatMul". None if the message does not name it."""
    node_name: str | None
    """The name of the graph node. None if the message does not name it."""
    requested_device: str | None
    """The requested device. None if the message does not name it."""
    reason: str | None
    """"no-such-device", "no-kernel", "no-kernel-for-type" or "colocation". None if not in the message."""
    line: int
    """The number of the message's first line in the log."""
    text: str
    """The first line of the message."""
    lists_kernels: bool = False
    """Whether the message lists the available kernels."""
    type_attributes: tuple[tuple[str, str], ...] = ()
    """The type attributes of the operation, such as ("T", "bfloat16"). Empty if the message has none."""
    explanation: str = ""
    """The explanation by the release's kernels. Empty if there is none."""


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A copy between devices. The log names both of them, or only one."""

    op: str
    """The operation that needed the copy.

    If the log names only one device, it is the operation that sends or receives (_Send, _Recv). `PlacementData.op_counts`
    counts that operation, too.
    """
    source: str | None
    """The source device. None if the log names only the target."""
    target: str | None
    """The target device. None if the log names only the source."""
    count: int


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """The number of times that an eager operation ran on another device than the operation before it."""

    previous_device: str
    """The device of the previous operation."""
    device: str
    count: int


@dataclass(frozen=True, slots=True)
class MissingKernel:
    """An operation that ran on a CPU and has no GPU kernel in the release, or none for some types."""

    op: str
    count: int
    attribute: str | None = None
    """The attribute whose types are limited. None if the operation has no GPU kernel at all."""
    gpu_types: tuple[str, ...] = ()
    """The types of the attribute that GPU kernels accept."""
    cpu_only_types: tuple[str, ...] = ()
    """The types that only CPU kernels accept."""


@dataclass(frozen=True, slots=True)
class CpuOperations:
    """The CPU operations, compared with the kernels of the release."""

    release_range_text: str
    """The releases that can have written the log ("TensorFlow 2.4 to 2.11"). The lists are true for all of them."""
    without_gpu_kernel: tuple[MissingKernel, ...]
    """The operations without a GPU kernel, the most frequent ones first."""
    with_fewer_gpu_types: tuple[MissingKernel, ...]
    """The operations whose GPU kernels accept fewer types than their CPU kernels, the most frequent ones first."""


@dataclass(frozen=True, slots=True)
class PlacementData:
    """The data read from a log, before conclusions are drawn."""

    api: str | None
    """"1" if graphs were placed for sessions, "2" for eager operations. None if the log has no placement."""
    devices: tuple[PlacementDevice, ...]
    no_known_devices: bool
    """Whether the log contains the line "Device mapping: no known devices"."""
    op_counts: tuple[OpCount, ...]
    """Counts sorted by device, then by operation."""
    refusals: tuple[Refusal, ...]
    cpu_ops_between_gpu_ops: tuple[tuple[str, int], ...]
    """(operation, number of runs) for the most frequent operations that ran on the CPU between two on a GPU."""
    release_messages: bytes
    """The parts of the log that help to find the release that wrote it."""
    has_forgotten_nodes: bool
    """Whether the log has more nodes than the reader remembers, so that repeated nodes may count twice."""
    line_count: int
    """The number of lines in the log."""
    byte_count: int
    """The size of the log, in bytes."""
    call_counts: tuple[OpCount, ...] = ()
    """The number of calls of each function ("__inference_step_12") on each device."""
    copies: tuple[DeviceCopy, ...] = ()
    """The copies that the log names. None are inferred."""
    device_changes: tuple[DeviceChange, ...] = ()
    """The device changes between consecutive eager operations."""
    omitted_counts: tuple[tuple[str, int], ...] = ()
    """(kind, number) of the items that were omitted because there were too many, such as ("devices", 3)."""

    @property
    def is_complete(self) -> bool:
        """Whether every operation was counted."""
        return "operations" not in dict(self.omitted_counts)

    @property
    def other_op_count(self) -> int:
        """The number of operations that are counted as `OTHER_OPERATIONS`."""
        return sum(entry.count for entry in self.op_counts if entry.op == OTHER_OPERATIONS)

    @property
    def count_by_device(self) -> dict[str, int]:
        """The number of operations on each device."""
        totals: dict[str, int] = {}
        for entry in self.op_counts:
            totals[entry.device] = totals.get(entry.device, 0) + entry.count
        return totals

    @property
    def unused_devices(self) -> tuple[str, ...]:
        """The listed GPUs and TPUs that ran nothing. Empty if some operations were not counted."""
        if not self.is_complete:
            return ()
        used_devices = {*self.count_by_device, *(call.device for call in self.call_counts)}
        listed_devices = dict.fromkeys(
            device.device for device in self.devices if device.kind in ("GPU", "TPU")
        )
        return tuple(device for device in listed_devices if device not in used_devices)


@dataclass(frozen=True, slots=True)
class Placement:
    """The complete result of the `tfdoctor diagnose --placement`. Renderers compute nothing beyond it."""

    file_name: str
    """The file as the user named it. "-" for standard input."""
    data: PlacementData
    """The data read from the log."""
    summary: str
    findings: tuple[Finding, ...]
    cpu_operations: CpuOperations | None = None
    """The CPU operations without a GPU kernel. None if they could not be compared with the kernels."""


def get_device_kind(device: str) -> str:
    """Return the kind of a device, such as "GPU" for "GPU:0" or "/job:worker/replica:0/task:1/device:GPU:0"."""
    return device.rpartition("/")[2].removeprefix("device:").partition(":")[0]


def get_device_task(device: str) -> str:
    """Return the task of a device ("/job:worker/replica:0/task:1"), or `LOCAL_TASK` for a short name."""
    return device.partition("/device:")[0] if device.startswith("/job:") else LOCAL_TASK
