"""Data types for the results of the hosts in a fleet, and for their evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.findings import Severity

__all__ = [
    "Fleet",
    "FleetCard",
    "FleetFinding",
    "FleetHost",
    "HostGroup",
    "HostResult",
    "HostState",
    "ValueKey",
]

HostState = Literal["ok", "found", "failed", "lost", "timeout"]
"""The state of a host.

* ok: TensorFlow will use its GPUs.
* found: TensorFlow will not use its GPUs, or that is unknown.
* failed: there is no usable result.
* lost: the host was not reached, or went away.
* timeout: the host did not respond in time.
"""
ValueKey = tuple[str, str]
"""The key of a comparable value: its area and name, such as ("driver", "NVIDIA driver")."""


@dataclass(frozen=True, slots=True)
class FleetCard:
    """One GPU of a host."""

    model: str
    """The name of the GPU, or a PCI ID such as "10de:20b2" if the driver does not list it."""
    uuid: str | None
    """The identifier of the GPU. None if unknown."""


@dataclass(frozen=True, slots=True)
class HostResult:
    """The part of a host's `check --json` that is compared. The texts come from the host and were cleaned."""

    gpu_usable: bool | None
    """Whether TensorFlow will use a GPU. None if unknown."""
    cause: str | None
    """The cause in the verdict. None if there is none."""
    summary: str
    codes: tuple[str, ...]
    """The codes of the findings that are warnings or errors."""
    cards: tuple[FleetCard, ...]
    values: Mapping[ValueKey, str | None]
    """The comparable values. None means that something does not exist on the host."""
    minor_keys: frozenset[ValueKey]
    """The keys of values whose differences rarely matter."""
    created_at: float | None
    """The time of the result by the host's clock, in seconds since 1970. None if unknown."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """A host of the fleet."""

    name: str
    state: HostState
    cause: str | None = None
    duration_s: float | None = None
    """The duration of the run in seconds. None if unknown."""
    group_number: int | None = None
    """The number of its group. None if there is no usable result."""
    failure_reason: str = ""
    """The reason, in one line, why there is no usable result. Empty if there is one."""
    is_unknown: bool = False
    """Whether it is unknown if TensorFlow will use the GPUs."""


@dataclass(frozen=True, slots=True)
class HostGroup:
    """The hosts whose compared values are all equal. Group 1 is the largest."""

    number: int
    hosts: tuple[str, ...]
    differences: Mapping[ValueKey, tuple[str, str]]
    """The values that differ from group 1, as pairs (value of this group, value of group 1).

    Differences that only follow from others are omitted.
    """
    state: HostState
    cause: str | None
    card_description: str
    """A description of the GPUs, such as "8 × NVIDIA A100-SXM4-80GB" or "none"."""
    is_unknown: bool = False
    """Whether it is unknown if TensorFlow will use the GPUs."""


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """A problem or difference of some hosts."""

    kind: str
    """The kind of finding, such as "card-missing" (see fleet/codes.py)."""
    severity: Severity
    hosts: tuple[str, ...]
    message: str
    """Sentences without the names of the hosts."""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The evaluation of a fleet."""

    engine: str
    """The name of the engine that ran the check on the hosts, such as "slurm"."""
    summary: str
    hosts: tuple[FleetHost, ...]
    """All hosts, sorted by name."""
    groups: tuple[HostGroup, ...]
    findings: tuple[FleetFinding, ...]
    """All findings, the most severe first."""
    common_values: tuple[tuple[str, str], ...] = ()
    """The (name, value) pairs that describe the hosts in group 1, such as ("driver", "550.54.14")."""
    ignored_file_count: int = 0
    """The number of files in the folder that are not results."""
