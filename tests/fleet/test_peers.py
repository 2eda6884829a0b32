"""Which peers each host reaches: what is read, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.made import answer, gather_results
from tfdoctor.findings import Severity
from tfdoctor.fleet import UnusableError, evaluate_fleet, read_peers
from tfdoctor.fleet.peers import Peers, machine, peer_findings

NAMES = ["node1", "node2", "node3", "node4"]


def make_output(members: list[Any], **changed: Any) -> bytes:
    return json.dumps({"schema_version": 1, "members": members, "findings": [], **changed}).encode()


def member(address: str, *, ok: bool | None = True, why: str | None = None) -> dict[str, Any]:
    return {"task": "worker:0", "address": address, "self": False, "reachable": ok, "why": why}


def summarize_answer(
    cut: dict[str, dict[str, str]], names: list[str] = NAMES
) -> list[tuple[tuple[str, ...], str]]:
    """cut: host → peer → why; all others are reached."""
    found = {}
    for name in names:
        addresses = {f"{one}:2222" for one in names}
        away = {f"{peer}:2222": why for peer, why in cut.get(name, {}).items()}
        found[name] = Peers(frozenset(addresses - away.keys()), away)
    return [(one.hosts, one.message) for one in peer_findings(found, {})]


def test_a_refusal_is_an_answer_of_that_machine() -> None:
    members = [
        member("a:1"),
        member("b:1", ok=False, why="refused"),
        member("c:1", ok=False, why="not-tensorflow"),
        member("d:1", ok=False, why="timeout"),
        member("e:1", ok=False, why="no-such-name"),
        member("f:1", ok=None),
    ]
    one = read_peers(make_output(members))
    assert one.reached == {"a:1", "b:1", "c:1"}
    assert one.cut == {"d:1": "timeout", "e:1": "no-such-name"}


def test_where_all_reach_all_nothing_is_told() -> None:
    assert summarize_answer({}) == []


def test_a_host_that_nobody_reaches_is_named() -> None:
    cut = {name: {"node3": "timeout"} for name in NAMES if name != "node3"}
    assert summarize_answer(cut) == [(("node3",), "nobody reaches node3:2222: no answer in time.")]


def test_a_host_that_reaches_nobody_is_named() -> None:
    cut = {"node2": dict.fromkeys(["node1", "node3", "node4"], "no-such-name")}
    assert summarize_answer(cut) == [(("node2",), "reaches no other host: the name does not resolve there.")]


def test_two_halves() -> None:
    cut = {
        "node1": {"node3": "timeout", "node4": "timeout"},
        "node2": {"node3": "timeout", "node4": "timeout"},
        "node3": {"node1": "timeout"},
    }
    assert summarize_answer(cut) == [
        (("node1", "node2"), "do not reach node3:2222 and node4:2222: no answer in time; others do."),
        (("node3",), "does not reach node1:2222: no answer in time; others do."),
    ]


def test_two_hosts() -> None:
    ((hosts, message),) = summarize_answer({"node1": {"node2": "timeout"}}, ["node1", "node2"])
    assert hosts == ("node1",)
    assert message.startswith("does not reach node2:2222: no answer in time")


def test_a_host_is_no_peer_of_itself() -> None:
    """Its own name may lead elsewhere, or to its loopback."""
    assert summarize_answer({"node1": {"node1": "timeout"}}) == []


def test_addresses_that_are_no_hosts_of_the_fleet() -> None:
    found = {name: Peers(frozenset(), {"10.0.0.9:5000": "timeout"}) for name in NAMES}
    (one,) = peer_findings(found, {})
    assert one.hosts == tuple(NAMES)
    assert "do not reach 10.0.0.9:5000, and nobody else does" in one.message


def test_it_is_among_the_findings_and_those_without_an_answer_are_named() -> None:
    made = gather_results({name: answer("healthy-two-gpus", number) for number, name in enumerate(NAMES)})
    made.peers = {name: Peers(frozenset({"node1:1", "node4:1"}), {}) for name in NAMES[:3]}
    made.peers["node2"] = Peers(frozenset({"node4:1"}), {"node1:1": "timeout"})
    made.mute = {"node4": "exit status 3"}
    found = [one for one in evaluate_fleet("ssh", made).findings if one.name == "peers-apart"]
    assert [(one.hosts, one.severity) for one in found] == [
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
def test_the_machine_in_a_name(name: str, host: str) -> None:
    assert machine(name) == host


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
def test_what_is_no_answer_is_refused(content: bytes) -> None:
    with pytest.raises(UnusableError):
        read_peers(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"address": JSON, "reachable": JSON, "why": JSON}) | JSON,
        max_size=4,
    )
)
def test_no_answer_makes_the_reader_stumble(members: list[Any]) -> None:
    try:
        one = read_peers(make_output(members))
    except UnusableError:
        return
    for finding in peer_findings({"a": one, "b": one}, {}):
        assert "\x1b" not in finding.message
