"""Peers that each host reaches: parsing of `cluster --connect --json` from untrusted hosts, and findings. Pure.

A refused connection counts as reached, because the machine itself refuses it: nothing needs to listen there yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tfdoctor.findings import Severity
from tfdoctor.fleet.models import FleetFinding
from tfdoctor.fleet.results import UnusableError, parse_document
from tfdoctor.records import dataclass
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Peers", "get_machine", "read_peers", "report_peers"]

MAX_PEERS = 20_000
"""Most peers in one answer."""
MAX_TEXT_CHARS = 300
MAX_NAMED_PEERS = 3
"""Most peers that a sentence names."""
REASONS = {"timeout": "no answer in time", "no-such-name": "the name does not resolve there"}
"""Reasons why a host cannot reach a peer, in the words of `cluster`; other reasons come from the peer itself."""
REMEDY = (
    "A firewall, a route or a name server between them: `tfdoctor cluster --connect` there shows each peer."
)


@dataclass(frozen=True, slots=True)
class Peers:
    """Answer of one host. Addresses are as in the specification, such as "node017:2222"."""

    reached: frozenset[str]
    cut: Mapping[str, str]
    """Reason, a key of WHY, for each peer that the host does not reach."""


def read_peers(content: bytes) -> Peers:
    """Parse one host's answer. Raise UnusableError if it is invalid."""
    data = parse_document(content)
    members = data.get("members")
    if data.get("schema_version") != 1 or not isinstance(members, list):
        raise UnusableError("what it wrote is JSON, but not of `tfdoctor cluster --json`")
    reached, cut = set(), {}
    for member in members[:MAX_PEERS]:
        address = member.get("address") if isinstance(member, dict) else None
        if not isinstance(address, str):
            raise UnusableError("its peers are not as tfdoctor writes them")
        reason, ok = member.get("why"), member.get("reachable")
        address = clean_line(address, limit=MAX_TEXT_CHARS)
        if ok is True or (ok is False and reason in ("refused", "not-tensorflow")):
            reached.add(address)
        elif ok is False and reason in REASONS:
            cut[address] = str(reason)
    return Peers(frozenset(reached), cut)


def get_machine(name: str) -> str:
    """Return the machine in a host's name or a peer's address: without user, scheme and port, in lower case."""
    host = name.rpartition("//")[2].rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host.partition(":")[0] if host.count(":") == 1 else host).rstrip(".").lower()


def report_peers(found: Mapping[str, Peers], silent: Mapping[str, str]) -> Iterator[FleetFinding]:
    """Yield the findings about peers. `silent` maps hosts that did not answer this question to the reason."""
    answers = {host: _drop_self(host, peers) for host, peers in found.items()}
    askers: dict[str, list[str]] = defaultdict(list)
    for host, peers in answers.items():
        for address in (*peers.reached, *peers.cut):
            askers[address].append(host)
    unreachable = {
        address
        for address, hosts in askers.items()
        if len(hosts) > 1 and all(address in answers[host].cut for host in hosts)
    }
    yield from _report_unreachable(unreachable, askers, answers)
    alone = [
        host for host, peers in answers.items() if not peers.reached and len(set(peers.cut) - unreachable) > 1
    ]
    if alone:
        reasons = _join_reasons([answers[host] for host in alone])
        yield _make_finding(
            sorted(alone), f"{'reach' if len(alone) > 1 else 'reaches'} no other host: {reasons}."
        )
    hosts_by_peers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for host, peers in answers.items():
        missing = tuple(sorted(set(peers.cut) - unreachable))
        if missing and host not in alone:
            hosts_by_peers[missing].append(host)
    for addresses, hosts in sorted(hosts_by_peers.items(), key=lambda item: -len(item[1])):
        reasons = _join_reasons([answers[host] for host in hosts], addresses)
        yield _make_finding(
            sorted(hosts), f"{_format_verb(hosts)} {_join_addresses(addresses)}: {reasons}; others do."
        )
    if silent:
        reason = Counter(silent.values()).most_common(1)[0][0]
        message = f"no answer to the question which peers they reach{f': {reason}' if reason else ''}."
        yield FleetFinding("peers-apart", Severity.WARNING, tuple(sorted(silent)), message)


def _drop_self(host: str, peers: Peers) -> Peers:
    """Return a host's answer without the host itself."""
    own_names = {get_machine(host), get_machine(host).partition(".")[0]}
    return Peers(
        frozenset(address for address in peers.reached if get_machine(address) not in own_names),
        {address: reason for address, reason in peers.cut.items() if get_machine(address) not in own_names},
    )


def _report_unreachable(
    unreachable: set[str], askers: Mapping[str, Sequence[str]], answers: Mapping[str, Peers]
) -> Iterator[FleetFinding]:
    """Report peers that no host reaches. If a peer is one of the hosts, it is named instead of those that tried."""
    names: dict[str, str] = {}
    for host in answers:
        names.setdefault(get_machine(host).partition(".")[0], host)
        names[get_machine(host)] = host
    host_by_address = {address: names.get(get_machine(address)) for address in unreachable}
    own_addresses = sorted(address for address, host in host_by_address.items() if host)
    if own_addresses:
        hosts = sorted({str(host_by_address[address]) for address in own_addresses})
        reasons = _join_reasons(
            [answers[host] for address in own_addresses for host in askers[address]], own_addresses
        )
        yield _make_finding(hosts, f"nobody reaches {_join_addresses(own_addresses)}: {reasons}.")
    others = sorted(unreachable.difference(own_addresses))
    if others:
        hosts = sorted({host for address in others for host in askers[address]})
        reasons = _join_reasons([answers[host] for host in hosts], others)
        yield _make_finding(
            hosts, f"{_format_verb(hosts)} {_join_addresses(others)}, and nobody else does: {reasons}."
        )


def _make_finding(hosts: Sequence[str], message: str) -> FleetFinding:
    return FleetFinding("peers-apart", Severity.ERROR, tuple(hosts), message, REMEDY)


def _format_verb(hosts: Sequence[str]) -> str:
    return "do not reach" if len(hosts) > 1 else "does not reach"


def _join_addresses(addresses: Sequence[str]) -> str:
    shown = list(addresses[:MAX_NAMED_PEERS])
    more = len(addresses) - len(shown)
    return join_words([*shown, f"{more:,} more"] if more else shown)


def _join_reasons(answers: Sequence[Peers], addresses: Sequence[str] | None = None) -> str:
    found = {
        reason
        for a in answers
        for address, reason in a.cut.items()
        if addresses is None or address in addresses
    }
    return join_words([REASONS[reason] for reason in REASONS if reason in found])
