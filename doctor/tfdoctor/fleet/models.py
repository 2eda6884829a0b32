"""Many hosts' results, and what is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.findings import Severity

__all__ = ["Fleet", "FleetCard", "FleetFinding", "FleetHost", "Group", "Result", "State", "Value"]

State = Literal["ok", "found", "failed", "lost", "timeout"]
"""ok: TensorFlow will use its GPUs there; found: it will not, or that could not be known; failed: no usable answer;
lost: the host could not be reached, or went away; timeout: it did not answer in time."""
Value = tuple[str, str]
"""(area, name) of something that can be compared: ("driver", "NVIDIA driver")."""


@dataclass(frozen=True, slots=True)
class FleetCard:
    """One card of a host. None: not known."""

    model: str
    """Its name, or "10de:20b2" where the driver does not show it."""
    uuid: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """What one host's `check --json` says, as far as it is needed here. All of it is from outside, and cleaned."""

    usable: bool | None
    cause: str | None
    summary: str
    codes: tuple[str, ...]
    """Of findings that are at least warnings."""
    cards: tuple[FleetCard, ...]
    values: Mapping[Value, str | None]
    """What can be compared; None: it is not there."""
    little: frozenset[Value]
    """Those of `values` of which a difference seldom matters."""
    at: float | None
    """The host's clock when it answered, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host of the fleet."""

    name: str
    state: State
    cause: str | None = None
    seconds: float | None = None
    group: int | None = None
    """None where it gave no usable answer."""
    why: str = ""
    """One line, where it gave no usable answer."""
    unknown: bool = False
    """Whether its answer is that the verdict is not known."""


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts that are alike in all that is compared. Number 1 is the largest."""

    number: int
    hosts: tuple[str, ...]
    differs: Mapping[Value, tuple[str, str]]
    """What is otherwise than in group 1, and does not merely follow: (here, there)."""
    state: State
    cause: str | None
    cards: str
    """ "8 × NVIDIA A100-SXM4-80GB", "none"."""
    unknown: bool = False
    """Whether their answer is that the verdict is not known."""


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """Something that some hosts have and the others have not."""

    name: str
    severity: Severity
    hosts: tuple[str, ...]
    message: str
    """Sentences, without the hosts' names."""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The answer."""

    engine: str
    summary: str
    hosts: tuple[FleetHost, ...]
    """By name."""
    groups: tuple[Group, ...]
    findings: tuple[FleetFinding, ...]
    """The most severe first."""
    common: tuple[tuple[str, str], ...] = ()
    """What the hosts of group 1 have, in words: ("driver", "550.54.14")."""
    aside: int = 0
    """Files of the folder that are no results."""
