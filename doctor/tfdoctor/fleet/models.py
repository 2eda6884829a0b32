"""Data classes for the results of many hosts and their evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.findings import Severity

__all__ = ["Fleet", "FleetCard", "FleetFinding", "FleetHost", "Group", "Result", "State", "Value"]

State = Literal["ok", "found", "failed", "lost", "timeout"]
"""State of a host.

ok: TensorFlow will use its GPUs; found: it will not, or that is not known; failed: no usable answer; lost: the host
was not reached, or went away; timeout: it did not answer in time.
"""
Value = tuple[str, str]
"""(area, name) of a comparable value, such as ("driver", "NVIDIA driver")."""


@dataclass(frozen=True, slots=True)
class FleetCard:
    """One GPU of a host. `uuid` is None if it is not known."""

    model: str
    """Name of the GPU, or a PCI ID such as "10de:20b2" if the driver does not list it."""
    uuid: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """The part of a host's `check --json` that is compared. All texts are external, and cleaned."""

    usable: bool | None
    cause: str | None
    summary: str
    codes: tuple[str, ...]
    """Codes of the findings that are warnings or errors."""
    cards: tuple[FleetCard, ...]
    values: Mapping[Value, str | None]
    """Comparable values; None for something that does not exist on the host."""
    little: frozenset[Value]
    """Keys of values whose differences rarely matter."""
    at: float | None
    """Host's clock when it answered, in seconds since 1970; None if not known."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host of the fleet."""

    name: str
    state: State
    cause: str | None = None
    seconds: float | None = None
    group: int | None = None
    """Number of its group; None if it gave no usable answer."""
    why: str = ""
    """Reason in one line if it gave no usable answer; else ""."""
    unknown: bool = False
    """Whether its result says that the verdict is not known."""


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts whose compared values are all equal. Group 1 is the largest."""

    number: int
    hosts: tuple[str, ...]
    differs: Mapping[Value, tuple[str, str]]
    """Values that differ from group 1 and are not mere consequences: (of this group, of group 1)."""
    state: State
    cause: str | None
    cards: str
    """GPUs in words, such as "8 × NVIDIA A100-SXM4-80GB" or "none"."""
    unknown: bool = False
    """Whether its results say that the verdict is not known."""


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """Property by which some hosts differ from the others."""

    name: str
    severity: Severity
    hosts: tuple[str, ...]
    message: str
    """Sentences without the names of the hosts."""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Evaluation of a fleet."""

    engine: str
    summary: str
    hosts: tuple[FleetHost, ...]
    """All hosts, sorted by name."""
    groups: tuple[Group, ...]
    findings: tuple[FleetFinding, ...]
    """Findings, the most severe first."""
    common: tuple[tuple[str, str], ...] = ()
    """Values of the hosts in group 1, such as ("driver", "550.54.14")."""
    aside: int = 0
    """Number of files in the folder that are not results."""
