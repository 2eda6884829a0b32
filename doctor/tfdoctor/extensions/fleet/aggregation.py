"""Store the results of many hosts compactly: hosts with equal results share one profile."""

from __future__ import annotations

from collections import defaultdict
from sys import intern
from typing import TYPE_CHECKING

from tfdoctor.extensions.fleet.models import FleetHost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.extensions.fleet.models import HostResult, HostState, ValueKey
    from tfdoctor.extensions.fleet.peers import HostPeers

__all__ = ["GatheredResults", "Profile"]

HOST_PLACEHOLDER = "<host>"
"""The text that replaces a host's own name in its values."""
MIN_NAME_CHARS = 3
"""The length in characters of the shortest host name that is replaced in values."""


class Profile:
    """The result that several hosts have in common.

    `cards` contains the models of the GPUs, and `values` the compared values, with each host's name replaced.
    """

    __slots__ = ("cards", "cause", "codes", "hosts", "usable", "values")

    def __init__(self, result: HostResult, values: Mapping[ValueKey, str | None]) -> None:
        self.usable = result.gpu_usable
        self.cause = result.cause
        self.codes = result.codes
        self.values = values
        self.cards = tuple(card.model for card in result.cards)
        self.hosts: list[str] = []


class GatheredResults:
    """The results of all hosts. Call `add` or `add_failure` once for each host."""

    def __init__(self) -> None:
        self.hosts: dict[str, FleetHost] = {}
        self.profiles: dict[tuple[object, ...], Profile] = {}
        self.hosts_by_gpu_uuid: dict[str, list[str]] = defaultdict(list)
        """The hosts that listed each GPU, by the GPU's identifier."""
        self.clock_skews_s: dict[str, float] = {}
        """The seconds by which a host's clock was ahead, or behind (negative). Correct clocks are omitted."""
        self.peers_by_host: dict[str, HostPeers] = {}
        """The peers of each host that reported them."""
        self.peer_failure_by_host: dict[str, str] = {}
        """The reason why a host did not report its peers, by host."""

    def add(
        self,
        name: str,
        result: HostResult,
        *,
        seconds: float | None = None,
        request_time: float | None = None,
        response_time: float | None = None,
    ) -> None:
        """Add one host's result.

        `seconds` is the duration of the run. `request_time` and `response_time` are in seconds since 1970 by this
        machine's clock. None means unknown.
        """
        values = {
            _intern_pair(value_key): _replace_host_name(value, name)
            for value_key, value in result.values.items()
            if value_key not in result.minor_keys
        }
        identity = (result.gpu_usable, result.cause, result.codes, tuple(card.model for card in result.cards))
        profile_key = (*identity, tuple(values.items()))
        profile = self.profiles.get(profile_key)
        if profile is None:
            profile = self.profiles[profile_key] = Profile(result, values)
        profile.hosts.append(name)
        for card in result.cards:
            # `strip` removes the prefix, hyphens and zeros: an identifier of zeros alone identifies no GPU
            if card.uuid is not None and card.uuid.strip("GPU-0"):
                self.hosts_by_gpu_uuid[card.uuid].append(name)
        skew = _compute_skew(result.created_at, request_time, response_time)
        if skew:
            self.clock_skews_s[name] = skew
        state: HostState = "ok" if result.gpu_usable else "found"
        self.hosts[name] = FleetHost(name, state, result.cause, seconds, is_unknown=result.gpu_usable is None)

    def add_failure(self, name: str, state: HostState, reason: str, *, seconds: float | None = None) -> None:
        """Add a host without a usable result. `reason` is the reason in one line."""
        self.hosts[name] = FleetHost(name, state, None, seconds, failure_reason=reason)


def _intern_pair(value_key: ValueKey) -> ValueKey:
    return intern(value_key[0]), intern(value_key[1])


def _replace_host_name(value: str | None, name: str) -> str | None:
    """Replace the host's own name in a value, because it always differs between hosts."""
    if value is None:
        return None
    short_name = name.partition(".")[0]
    for host_name in (name, short_name):
        if len(host_name) >= MIN_NAME_CHARS and host_name in value:
            value = value.replace(host_name, HOST_PLACEHOLDER)
    return intern(value)


def _compute_skew(
    result_time: float | None, request_time: float | None, response_time: float | None
) -> float:
    """Return the seconds by which a host's clock is ahead of this machine's, or behind it (negative).

    The result is 0 if the host's `result_time` is between the request and the response, or if a time is unknown.
    """
    if result_time is None or request_time is None or response_time is None:
        return 0.0
    return min(0.0, result_time - request_time) or max(0.0, result_time - response_time)
