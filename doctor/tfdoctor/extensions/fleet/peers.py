"""Parse the peers that hosts reach (`cluster --connect --json`), and find missing connections.

A refused connection counts as reached, because the peer itself refuses it if nothing listens there yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Severity
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.extensions.fleet.models import FleetFinding
from tfdoctor.extensions.fleet.results import UnusableResultError, parse_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["HostPeers", "find_peer_problems", "get_machine_name", "parse_peers"]

MAX_PEERS = 20_000
"""The most peers of one host that are read."""
MAX_TEXT_CHARS = 300
"""The length in characters to which addresses are cut."""
MAX_NAMED_PEERS = 3
"""The most peers that a sentence names."""
UNREACHED_REASONS = {"timeout": "no answer in time", "no-such-name": "the name does not resolve there"}
"""The reasons in the output of `cluster` that mean "not reached", with their texts. The peer itself causes the others."""
REMEDY = (
    "A firewall, a route or a name server between them: `tfdoctor cluster --connect` there shows each peer."
)


@dataclass(frozen=True, slots=True)
class HostPeers:
    """The peers of one host, by their address in the cluster's specification, such as "node017:2222"."""

    reached: frozenset[str]
    """The addresses that the host reaches."""
    unreached_reasons: Mapping[str, str]
    """The reason, a key of REASONS, for each address that the host does not reach."""


def parse_peers(content: bytes) -> HostPeers:
    """Parse one host's output. Raise UnusableError if it is invalid."""
    data = parse_document(content)
    entries = data.get("members")
    if data.get("schema_version") != 1 or not isinstance(entries, list):
        raise UnusableResultError("what it wrote is JSON, but not of `tfdoctor cluster --json`")
    reached_addresses, reason_by_address = set(), {}
    for entry in entries[:MAX_PEERS]:
        address = entry.get("address") if isinstance(entry, dict) else None
        if not isinstance(address, str):
            raise UnusableResultError("its peers are not as tfdoctor writes them")
        reason, is_reachable = entry.get("why"), entry.get("reachable")
        address = clean_line(address, limit=MAX_TEXT_CHARS)
        if is_reachable is True or (is_reachable is False and reason in ("refused", "not-tensorflow")):
            reached_addresses.add(address)
        elif is_reachable is False and reason in UNREACHED_REASONS:
            reason_by_address[address] = str(reason)
    return HostPeers(frozenset(reached_addresses), reason_by_address)


def get_machine_name(name: str) -> str:
    """Return the host in a host's name or a peer's address: without user, scheme and port, in lower case."""
    host = name.rpartition("//")[2].rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host.partition(":")[0] if host.count(":") == 1 else host).rstrip(".").lower()


def find_peer_problems(
    reported_peers: Mapping[str, HostPeers], failure_by_host: Mapping[str, str]
) -> Iterator[FleetFinding]:
    """Yield the findings about peers.

    `reported_peers` maps each host to its peers. `failure_by_host` maps each host that did not report its peers to the reason.
    """
    peers_by_host = {host: _drop_self(host, peers) for host, peers in reported_peers.items()}
    hosts_by_peer: dict[str, list[str]] = defaultdict(list)
    for host, peers in peers_by_host.items():
        for address in (*peers.reached, *peers.unreached_reasons):
            hosts_by_peer[address].append(host)
    unreachable = {
        address
        for address, hosts in hosts_by_peer.items()
        if len(hosts) > 1 and all(address in peers_by_host[host].unreached_reasons for host in hosts)
    }
    yield from _find_unreachable_peers(unreachable, hosts_by_peer, peers_by_host)
    # A host that misses only one peer is not isolated: the finding below names that peer.
    isolated_hosts = [
        host
        for host, peers in peers_by_host.items()
        if not peers.reached and len(set(peers.unreached_reasons) - unreachable) > 1
    ]
    if isolated_hosts:
        reasons = _join_reasons([peers_by_host[host] for host in isolated_hosts])
        yield _make_finding(
            sorted(isolated_hosts),
            f"{'reach' if len(isolated_hosts) > 1 else 'reaches'} no other host: {reasons}.",
        )
    hosts_by_peers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for host, peers in peers_by_host.items():
        missing = tuple(sorted(set(peers.unreached_reasons) - unreachable))
        if missing and host not in isolated_hosts:
            hosts_by_peers[missing].append(host)
    for addresses, hosts in sorted(hosts_by_peers.items(), key=lambda item: -len(item[1])):
        reasons = _join_reasons([peers_by_host[host] for host in hosts], addresses)
        yield _make_finding(
            sorted(hosts), f"{_format_verb(hosts)} {_join_addresses(addresses)}: {reasons}; others do."
        )
    if failure_by_host:
        reason = Counter(failure_by_host.values()).most_common(1)[0][0]
        message = f"no answer to the question which peers they reach{f': {reason}' if reason else ''}."
        yield FleetFinding("peers-apart", Severity.WARNING, tuple(sorted(failure_by_host)), message)


def _drop_self(host: str, peers: HostPeers) -> HostPeers:
    """Return a host's peers without the host itself."""
    own_names = {get_machine_name(host), get_machine_name(host).partition(".")[0]}
    return HostPeers(
        frozenset(address for address in peers.reached if get_machine_name(address) not in own_names),
        {
            address: reason
            for address, reason in peers.unreached_reasons.items()
            if get_machine_name(address) not in own_names
        },
    )


def _find_unreachable_peers(
    unreachable: set[str], hosts_by_peer: Mapping[str, Sequence[str]], peers_by_host: Mapping[str, HostPeers]
) -> Iterator[FleetFinding]:
    """Yield findings about peers that no host reaches.

    If the peer is one of the hosts, the finding names that host. Otherwise it names the hosts that tried to reach it.
    """
    host_by_name: dict[str, str] = {}
    for host in peers_by_host:
        host_by_name.setdefault(get_machine_name(host).partition(".")[0], host)
        host_by_name[get_machine_name(host)] = host
    host_by_address = {address: host_by_name.get(get_machine_name(address)) for address in unreachable}
    host_addresses = sorted(address for address, host in host_by_address.items() if host)
    if host_addresses:
        hosts = sorted({str(host_by_address[address]) for address in host_addresses})
        reasons = _join_reasons(
            [peers_by_host[host] for address in host_addresses for host in hosts_by_peer[address]],
            host_addresses,
        )
        yield _make_finding(hosts, f"nobody reaches {_join_addresses(host_addresses)}: {reasons}.")
    other_addresses = sorted(unreachable.difference(host_addresses))
    if other_addresses:
        hosts = sorted({host for address in other_addresses for host in hosts_by_peer[address]})
        reasons = _join_reasons([peers_by_host[host] for host in hosts], other_addresses)
        yield _make_finding(
            hosts,
            f"{_format_verb(hosts)} {_join_addresses(other_addresses)}, and nobody else does: {reasons}.",
        )


def _make_finding(hosts: Sequence[str], message: str) -> FleetFinding:
    return FleetFinding("peers-apart", Severity.ERROR, tuple(hosts), message, REMEDY)


def _format_verb(hosts: Sequence[str]) -> str:
    return "do not reach" if len(hosts) > 1 else "does not reach"


def _join_addresses(addresses: Sequence[str]) -> str:
    first_addresses = list(addresses[:MAX_NAMED_PEERS])
    other_count = len(addresses) - len(first_addresses)
    return join_words([*first_addresses, f"{other_count:,} more"] if other_count else first_addresses)


def _join_reasons(peer_sets: Sequence[HostPeers], addresses: Sequence[str] | None = None) -> str:
    """Return in words why these hosts do not reach `addresses`, or any of their peers if that is None."""
    reasons = {
        reason
        for peers in peer_sets
        for address, reason in peers.unreached_reasons.items()
        if addresses is None or address in addresses
    }
    return join_words([UNREACHED_REASONS[reason] for reason in UNREACHED_REASONS if reason in reasons])
