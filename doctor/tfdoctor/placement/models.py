"""What a placement log says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.findings import Finding

__all__ = [
    "LOCAL",
    "OTHER",
    "DeviceChange",
    "Lacking",
    "OnCpu",
    "OpCount",
    "Placement",
    "PlacementData",
    "PlacementDevice",
    "Refusal",
    "find_kind",
    "find_task",
]

OTHER = "(other)"
"""Operations of kinds that are not told apart: a log has too many."""
LOCAL = "/job:localhost/replica:0/task:0"
"""The task of a program that is in no cluster."""


@dataclass(frozen=True, slots=True)
class PlacementDevice:
    """A device that TensorFlow lists: in "Device mapping:" or where it creates it."""

    device: str
    """"GPU:0", or whole for another task's: "/job:worker/replica:0/task:1/device:GPU:0"."""
    kind: str
    """GPU, CPU, XLA_GPU, XLA_CPU, TPU …"""
    task: str
    name: str | None = None
    compute_capability: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True)
class OpCount:
    """How often operations of one type went to one device."""

    op: str
    device: str
    count: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An operation that TensorFlow would not put where it was wanted."""

    op: str | None
    node: str | None
    wanted: str | None
    reason: str | None
    """no-such-device, no-kernel, no-kernel-for-type, colocation, or None: the message does not say."""
    line: int
    text: str
    """The message's first line."""
    listed: bool = False
    """Whether the message lists the kernels that there are."""
    types: tuple[tuple[str, str], ...] = ()
    """(attribute, type) of the operation, where the message has them: ("T", "bfloat16")."""
    told: str = ""
    """What the kernels of the release say of it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy between devices that the log names, or one end of it."""

    op: str
    """What needed the copy; or the operation that is an end of it (_Send, _Recv), which is in `ops`, too."""
    before: str | None
    """The device that it was copied from; None: the log names the other end alone."""
    device: str | None
    """The device that it was copied to."""
    count: int


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """How often an operation that ran eagerly was on another device than the one before it."""

    before: str
    device: str
    count: int


@dataclass(frozen=True, slots=True)
class Lacking:
    """An operation that ran on a CPU, and for which the release has no GPU kernel, or none for some types."""

    op: str
    count: int
    attribute: str | None = None
    """None: it has no GPU kernel at all."""
    types: tuple[str, ...] = ()
    """Those of the attribute that GPU kernels take."""
    missing: tuple[str, ...] = ()
    """Those that only CPU kernels take."""


@dataclass(frozen=True, slots=True)
class OnCpu:
    """What the kernels of the release say of the operations on a CPU."""

    release: str
    """ "TensorFlow 2.10", or "TensorFlow 2.4 to 2.11": those that the log can be of; it is so in each of them."""
    none: tuple[Lacking, ...]
    """Without a GPU kernel, the most frequent first."""
    fewer: tuple[Lacking, ...]
    """With GPU kernels for fewer types than the CPU's."""


@dataclass(frozen=True, slots=True)
class PlacementData:
    """What was read, before it is judged."""

    api: str | None
    """"1": graphs placed for sessions. "2": operations executed one by one. None: nothing of placement is printed."""
    devices: tuple[PlacementDevice, ...]
    no_known_devices: bool
    """Whether "Device mapping: no known devices." stands there."""
    ops: tuple[OpCount, ...]
    """By device, then by operation."""
    refused: tuple[Refusal, ...]
    between: tuple[tuple[str, int], ...]
    """(operation, how often it ran on the CPU between two that ran on a GPU), the most frequent first."""
    said: bytes
    """What of the log tells which release wrote it."""
    forgotten: bool
    """Whether there were more nodes than are kept apart: those printed twice may count twice."""
    lines: int
    bytes: int
    calls: tuple[OpCount, ...] = ()
    """Calls of functions ("__inference_step_12") by device: what they do is printed for itself."""
    copies: tuple[Copied, ...] = ()
    """Those that the log names; nothing is concluded."""
    changes: tuple[DeviceChange, ...] = ()
    """Between operations that ran eagerly, one directly after the other."""
    left_out: tuple[tuple[str, int], ...] = ()
    """(devices, copies …, how many of them were not kept), because too many are different."""

    @property
    def complete(self) -> bool:
        """Return whether each operation is counted."""
        return "operations" not in dict(self.left_out)

    @property
    def count_others(self) -> int:
        """Return the operations that are counted as `OTHER`."""
        return sum(row.count for row in self.ops if row.op == OTHER)

    @property
    def totals(self) -> dict[str, int]:
        """Return device → operations."""
        totals: dict[str, int] = {}
        for row in self.ops:
            totals[row.device] = totals.get(row.device, 0) + row.count
        return totals

    @property
    def unused(self) -> tuple[str, ...]:
        """Return GPUs and TPUs that are listed and to which nothing went; none if operations were left out."""
        if not self.complete:
            return ()
        totals = {*self.totals, *(row.device for row in self.calls)}
        listed = dict.fromkeys(one.device for one in self.devices if one.kind in ("GPU", "TPU"))
        return tuple(one for one in listed if one not in totals)


@dataclass(frozen=True, slots=True)
class Placement:
    """Everything that `placement` has to say. Renderers compute nothing beyond it."""

    name: str
    """The file, as the user named it; "-" for standard input."""
    found: PlacementData
    summary: str
    findings: tuple[Finding, ...]
    on_cpu: OnCpu | None = None


def find_kind(device: str) -> str:
    """Return GPU of "GPU:0" and of "/job:worker/replica:0/task:1/device:GPU:0"."""
    return device.rpartition("/")[2].removeprefix("device:").partition(":")[0]


def find_task(device: str) -> str:
    """Return /job:worker/replica:0/task:1 of "/job:worker/replica:0/task:1/device:GPU:0"; LOCAL of "GPU:0"."""
    return device.partition("/device:")[0] if device.startswith("/job:") else LOCAL
