"""Results of the hosts in a fleet, and their evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.findings import Severity

__all__ = ["Fleet", "FleetCard", "FleetFinding", "FleetHost", "Group", "Result", "State", "Value"]

State = Literal["ok", "found", "failed", "lost", "timeout"]
"""State of a host.

ok: TensorFlow will use its GPUs; found: it will not, or that is not known; failed: there is no usable result; lost: the
host was not reached, or went away; timeout: it did not respond in time.
"""
Value = tuple[str, str]
"""Key of a comparable value: its area and name, such as ("driver", "NVIDIA driver")."""


@dataclass(frozen=True, slots=True)
class FleetCard:
    """One GPU of a host."""

    model: str
    """Name of the GPU, or a PCI ID such as "10de:20b2" if the driver does not list it."""
    uuid: str | None
    """GPU identifier; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Result:
    """Part of a host's `check --json` that is compared. The texts come from the host and were cleaned."""

    usable: bool | None
    """Whether TensorFlow will use a GPU; None if that is not known."""
    cause: str | None
    summary: str
    codes: tuple[str, ...]
    """Codes of the findings that are warnings or errors."""
    cards: tuple[FleetCard, ...]
    values: Mapping[Value, str | None]
    """Comparable values. None means that something does not exist on the host."""
    little: frozenset[Value]
    """Keys of values whose differences rarely matter."""
    at: float | None
    """Time of the result by the host's clock, in seconds since 1970; None if not known."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host of the fleet."""

    name: str
    state: State
    cause: str | None = None
    seconds: float | None = None
    """Duration of the run; None if not known."""
    group: int | None = None
    """Number of its group; None if there is no usable result."""
    why: str = ""
    """Reason in one line if there is no usable result, else ""."""
    unknown: bool = False
    """Whether its result says that the verdict is not known."""


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts whose compared values are all equal. Group 1 is the largest."""

    number: int
    hosts: tuple[str, ...]
    differs: Mapping[Value, tuple[str, str]]
    """Values that differ from group 1, as pairs of this group's value and that of group 1.

    Differences that only follow from others are left out.
    """
    state: State
    cause: str | None
    cards: str
    """Description of the GPUs, such as "8 × NVIDIA A100-SXM4-80GB" or "none"."""
    unknown: bool = False
    """Whether its results say that the verdict is not known."""


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """Problem or difference of some hosts."""

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
    """All findings, the most severe first."""
    common: tuple[tuple[str, str], ...] = ()
    """Names and values that describe the hosts in group 1, such as ("driver", "550.54.14")."""
    aside: int = 0
    """Number of files in the folder that are not results."""
