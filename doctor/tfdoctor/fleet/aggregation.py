"""Results, one after the other, kept in little room: hosts that are alike share what they have."""

from __future__ import annotations

from collections import defaultdict
from sys import intern
from typing import TYPE_CHECKING

from tfdoctor.fleet.models import FleetHost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.fleet.models import Result, State, Value
    from tfdoctor.fleet.peers import Peers

__all__ = ["Gathered", "Profile"]

OWN_NAME = "<host>"
SHORTEST = 3
"""Characters of a host's name that is looked for in its values."""


class Profile:
    """What hosts that are alike have. One object for all of them."""

    __slots__ = ("cards", "cause", "codes", "hosts", "usable", "values")

    def __init__(self, result: Result, values: Mapping[Value, str | None]) -> None:
        self.usable = result.usable
        self.cause = result.cause
        self.codes = result.codes
        self.values = values
        self.cards = tuple(card.model for card in result.cards)
        self.hosts: list[str] = []


class Gathered:
    """What has come in so far. `add` and `silent` once a host."""

    def __init__(self) -> None:
        self.hosts: dict[str, FleetHost] = {}
        self.profiles: dict[tuple[object, ...], Profile] = {}
        self.owners: dict[str, list[str]] = defaultdict(list)
        """A card's identifier → the hosts that showed it."""
        self.skews: dict[str, float] = {}
        """Host → seconds by which its clock was outside the time in which it was asked."""
        self.peers: dict[str, Peers] = {}
        """Host → whom it reaches; only of those that were asked."""
        self.mute: dict[str, str] = {}
        """Host → why it gave no answer to that."""

    def add(
        self,
        name: str,
        result: Result,
        *,
        seconds: float | None = None,
        asked: float | None = None,
        came: float | None = None,
    ) -> None:
        """asked, came: by the clock of here, when the host was asked and when its answer was there."""
        values = {
            _intern_pair(key): _strip_host_name(value, name)
            for key, value in result.values.items()
            if key not in result.little
        }
        looks = (result.usable, result.cause, result.codes, tuple(card.model for card in result.cards))
        key = (*looks, tuple(values.items()))
        profile = self.profiles.get(key)
        if profile is None:
            profile = self.profiles[key] = Profile(result, values)
        profile.hosts.append(name)
        for card in result.cards:
            if card.uuid is not None and card.uuid.strip("GPU-0"):
                self.owners[card.uuid].append(name)
        skew = _compute_skew(result.at, asked, came)
        if skew:
            self.skews[name] = skew
        state: State = "ok" if result.usable else "found"
        self.hosts[name] = FleetHost(name, state, result.cause, seconds, unknown=result.usable is None)

    def silent(self, name: str, state: State, why: str, *, seconds: float | None = None) -> None:
        """A host without a usable answer."""
        self.hosts[name] = FleetHost(name, state, None, seconds, why=why)


def _intern_pair(key: Value) -> Value:
    return intern(key[0]), intern(key[1])


def _strip_host_name(value: str | None, name: str) -> str | None:
    """Return the value without the host's own name, which differs from host to host and means nothing."""
    if value is None:
        return None
    short = name.partition(".")[0]
    for own in (name, short):
        if len(own) >= SHORTEST and own in value:
            value = value.replace(own, OWN_NAME)
    return intern(value)


def _compute_skew(at: float | None, asked: float | None, came: float | None) -> float:
    """Return seconds before `asked` (negative) or after `came`.

    0 where it lies between them, or one is not known.
    """
    if at is None or asked is None or came is None:
        return 0.0
    return min(0.0, at - asked) or max(0.0, at - came)
