"""Tests of which peers each host reaches: reading the answers, and the findings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.fleet.made import answer, gather_results
from tfdoctor.core.findings import Severity
from tfdoctor.extensions.fleet.analysis import evaluate_fleet
from tfdoctor.extensions.fleet.peers import HostPeers, find_peer_problems, get_machine_name, parse_peers
from tfdoctor.extensions.fleet.results import UnusableResultError

NAMES = ["node1", "node2", "node3", "node4"]


def make_output(members: list[Any], **changes: Any) -> bytes:
    return json.dumps({"schema_version": 1, "members": members, "findings": [], **changes}).encode()


def member(address: str, *, ok: bool | None = True, why: str | None = None) -> dict[str, Any]:
    return {"task": "worker:0", "address": address, "self": False, "reachable": ok, "why": why}


def summarize_answer(
    cut: dict[str, dict[str, str]], names: list[str] = NAMES
) -> list[tuple[tuple[str, ...], str]]:
    """Return the hosts and the message of each finding.

    `cut` maps a host to its unreachable peers and the reasons; all other peers are reached.
    """
    peers = {}
    for name in names:
        addresses = {f"{item}:2222" for item in names}
        unreachable = {f"{peer}:2222": why for peer, why in cut.get(name, {}).items()}
        peers[name] = HostPeers(frozenset(addresses - unreachable.keys()), unreachable)
    return [(item.hosts, item.message) for item in find_peer_problems(peers, {})]


def test_refused_connection_counts_as_reached() -> None:
    members = [
        member("a:1"),
        member("b:1", ok=False, why="refused"),
        member("c:1", ok=False, why="not-tensorflow"),
        member("d:1", ok=False, why="timeout"),
        member("e:1", ok=False, why="no-such-name"),
        member("f:1", ok=None),
    ]
    peers = parse_peers(make_output(members))
    assert peers.reached == {"a:1", "b:1", "c:1"}
    assert peers.unreached_reasons == {"d:1": "timeout", "e:1": "no-such-name"}


def test_no_finding_if_all_hosts_reach_each_other() -> None:
    assert summarize_answer({}) == []


def test_host_that_no_host_reaches_is_reported() -> None:
    cut = {name: {"node3": "timeout"} for name in NAMES if name != "node3"}
    assert summarize_answer(cut) == [(("node3",), "nobody reaches node3:2222: no answer in time.")]


def test_host_that_reaches_no_host_is_reported() -> None:
    cut = {"node2": dict.fromkeys(["node1", "node3", "node4"], "no-such-name")}
    assert summarize_answer(cut) == [(("node2",), "reaches no other host: the name does not resolve there.")]


def test_two_separate_halves_are_reported() -> None:
    cut = {
        "node1": {"node3": "timeout", "node4": "timeout"},
        "node2": {"node3": "timeout", "node4": "timeout"},
        "node3": {"node1": "timeout"},
    }
    assert summarize_answer(cut) == [
        (("node1", "node2"), "do not reach node3:2222 and node4:2222: no answer in time; others do."),
        (("node3",), "does not reach node1:2222: no answer in time; others do."),
    ]


def test_fault_between_two_hosts_is_reported() -> None:
    ((hosts, message),) = summarize_answer({"node1": {"node2": "timeout"}}, ["node1", "node2"])
    assert hosts == ("node1",)
    assert message.startswith("does not reach node2:2222: no answer in time")


def test_a_host_is_no_peer_of_itself() -> None:
    """The host's own name may resolve to a different address or to its loopback."""
    assert summarize_answer({"node1": {"node1": "timeout"}}) == []


def test_unreachable_address_outside_the_fleet_is_reported() -> None:
    peers = {name: HostPeers(frozenset(), {"10.0.0.9:5000": "timeout"}) for name in NAMES}
    (finding,) = find_peer_problems(peers, {})
    assert finding.hosts == tuple(NAMES)
    assert "do not reach 10.0.0.9:5000, and nobody else does" in finding.message


def test_fleet_report_has_the_peer_findings() -> None:
    gathered = gather_results({name: answer("healthy-two-gpus", number) for number, name in enumerate(NAMES)})
    gathered.peers_by_host = {name: HostPeers(frozenset({"node1:1", "node4:1"}), {}) for name in NAMES[:3]}
    gathered.peers_by_host["node2"] = HostPeers(frozenset({"node4:1"}), {"node1:1": "timeout"})
    gathered.peer_failure_by_host = {"node4": "exit status 3"}
    findings = [
        finding for finding in evaluate_fleet("ssh", gathered).findings if finding.kind == "peers-apart"
    ]
    assert [(finding.hosts, finding.severity) for finding in findings] == [
        (("node2",), Severity.ERROR),
        (("node4",), Severity.WARNING),
    ]


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("Node1.example.org.:22", "node1.example.org"),
        ("ssh://me@node1:2222", "node1"),
        ("me@10.0.0.1", "10.0.0.1"),
        ("[fe80::1]:22", "fe80::1"),
        ("fe80::1", "fe80::1"),
    ],
)
def test_machine_is_extracted_from_a_name(name: str, host: str) -> None:
    assert get_machine_name(name) == host


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"[1]",
        b"[" * 100_000,
        make_output([5]),
        make_output([{}]),
        make_output([{"address": 5}]),
        make_output([], schema_version=2),
        json.dumps({"error": {"message": "no"}}).encode(),
        b"x" * (5 << 20),
    ],
)
def test_invalid_answer_is_refused(content: bytes) -> None:
    with pytest.raises(UnusableResultError):
        parse_peers(content)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional={"address": JSON_VALUES, "reachable": JSON_VALUES, "why": JSON_VALUES}
        )
        | JSON_VALUES,
        max_size=4,
    )
)
def test_any_answer_is_read_or_refused(members: list[Any]) -> None:
    try:
        peers = parse_peers(make_output(members))
    except UnusableResultError:
        return
    for finding in find_peer_problems({"a": peers, "b": peers}, {}):
        assert "\x1b" not in finding.message
