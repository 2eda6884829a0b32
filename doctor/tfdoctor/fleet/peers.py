"""Which peers each host reaches: `cluster --connect --json` of every host, read with distrust, and what follows. Pure.

A refusal comes from the machine that was asked, and counts as reached: nothing needs to listen there yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tfdoctor.findings import Severity
from tfdoctor.fleet.models import FleetFinding
from tfdoctor.fleet.results import UnusableError, document
from tfdoctor.records import dataclass
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Peers", "machine", "peer_findings", "read_peers"]

MAX_PEERS = 20_000
"""Peers of one answer."""
MAX_TEXT_CHARS = 300
MAX_NAMED_PEERS = 3
"""Peers that a sentence names."""
WHY = {"timeout": "no answer in time", "no-such-name": "the name does not resolve there"}
"""What keeps a host from a peer, by `cluster`'s words; the others come from the peer itself."""
FIX = "A firewall, a route or a name server between them: `tfdoctor cluster --connect` there shows each peer."


@dataclass(frozen=True, slots=True)
class Peers:
    """What one host says. Addresses are as the specification has them: "node017:2222"."""

    reached: frozenset[str]
    cut: Mapping[str, str]
    """A peer that it does not reach → why, a key of WHY."""


def read_peers(content: bytes) -> Peers:
    """Return one host's answer. Raises UnusableError."""
    data = document(content)
    members = data.get("members")
    if data.get("schema_version") != 1 or not isinstance(members, list):
        raise UnusableError("what it wrote is JSON, but not of `tfdoctor cluster --json`")
    reached, cut = set(), {}
    for one in members[:MAX_PEERS]:
        address = one.get("address") if isinstance(one, dict) else None
        if not isinstance(address, str):
            raise UnusableError("its peers are not as tfdoctor writes them")
        why, ok = one.get("why"), one.get("reachable")
        address = clean_line(address, limit=MAX_TEXT_CHARS)
        if ok is True or (ok is False and why in ("refused", "not-tensorflow")):
            reached.add(address)
        elif ok is False and why in WHY:
            cut[address] = str(why)
    return Peers(frozenset(reached), cut)


def machine(name: str) -> str:
    """Return the machine that a host's name or a peer's address names: without user, scheme and port, in lower case."""
    host = name.rpartition("//")[2].rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host.partition(":")[0] if host.count(":") == 1 else host).rstrip(".").lower()


def peer_findings(found: Mapping[str, Peers], silent: Mapping[str, str]) -> Iterator[FleetFinding]:
    """silent: host → why it gave no answer to this question."""
    asking = {host: _drop_self(host, one) for host, one in found.items()}
    askers: dict[str, list[str]] = defaultdict(list)
    for host, one in asking.items():
        for address in (*one.reached, *one.cut):
            askers[address].append(host)
    closed = {
        address
        for address, hosts in askers.items()
        if len(hosts) > 1 and all(address in asking[host].cut for host in hosts)
    }
    yield from _report_unreachable(closed, askers, asking)
    alone = [host for host, one in asking.items() if not one.reached and len(set(one.cut) - closed) > 1]
    if alone:
        whys = _whys([asking[host] for host in alone])
        yield _finding(sorted(alone), f"{'reach' if len(alone) > 1 else 'reaches'} no other host: {whys}.")
    apart: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for host, one in asking.items():
        left = tuple(sorted(set(one.cut) - closed))
        if left and host not in alone:
            apart[left].append(host)
    for addresses, hosts in sorted(apart.items(), key=lambda item: -len(item[1])):
        whys = _whys([asking[host] for host in hosts], addresses)
        yield _finding(sorted(hosts), f"{_they(hosts)} {_join_addresses(addresses)}: {whys}; others do.")
    if silent:
        why = Counter(silent.values()).most_common(1)[0][0]
        message = f"no answer to the question which peers they reach{f': {why}' if why else ''}."
        yield FleetFinding("peers-apart", Severity.WARNING, tuple(sorted(silent)), message)


def _drop_self(host: str, one: Peers) -> Peers:
    """Without the host itself."""
    mine = {machine(host), machine(host).partition(".")[0]}
    return Peers(
        frozenset(address for address in one.reached if machine(address) not in mine),
        {address: why for address, why in one.cut.items() if machine(address) not in mine},
    )


def _report_unreachable(
    closed: set[str], askers: Mapping[str, Sequence[str]], asking: Mapping[str, Peers]
) -> Iterator[FleetFinding]:
    """Yield peers that nobody reaches: the hosts themselves are named, where they are among those that were asked."""
    names: dict[str, str] = {}
    for host in asking:
        names.setdefault(machine(host).partition(".")[0], host)
        names[machine(host)] = host
    own = {address: names.get(machine(address)) for address in closed}
    known = sorted(address for address, host in own.items() if host)
    if known:
        hosts = sorted({str(own[address]) for address in known})
        whys = _whys([asking[host] for address in known for host in askers[address]], known)
        yield _finding(hosts, f"nobody reaches {_join_addresses(known)}: {whys}.")
    others = sorted(closed.difference(known))
    if others:
        hosts = sorted({host for address in others for host in askers[address]})
        whys = _whys([asking[host] for host in hosts], others)
        yield _finding(hosts, f"{_they(hosts)} {_join_addresses(others)}, and nobody else does: {whys}.")


def _finding(hosts: Sequence[str], message: str) -> FleetFinding:
    return FleetFinding("peers-apart", Severity.ERROR, tuple(hosts), message, FIX)


def _they(hosts: Sequence[str]) -> str:
    return "do not reach" if len(hosts) > 1 else "does not reach"


def _join_addresses(addresses: Sequence[str]) -> str:
    shown = list(addresses[:MAX_NAMED_PEERS])
    more = len(addresses) - len(shown)
    return join_words([*shown, f"{more:,} more"] if more else shown)


def _whys(those: Sequence[Peers], addresses: Sequence[str] | None = None) -> str:
    seen = {
        why for one in those for address, why in one.cut.items() if addresses is None or address in addresses
    }
    return join_words([WHY[why] for why in WHY if why in seen])
