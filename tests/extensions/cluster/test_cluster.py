"""Tests of cluster specifications by TensorFlow's rules: the corpus, variants of its mistakes, and Python files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.core.causes.codes import CLUSTER_CODES
from tfdoctor.core.facts.network import ConnectionResult, ListeningPorts, Proxy
from tfdoctor.core.task_addresses import is_local_host, parse_address
from tfdoctor.extensions.cluster.analysis import evaluate_cluster
from tfdoctor.extensions.cluster.codes import CLUSTER_PAGES
from tfdoctor.extensions.cluster.merge import merge_clusters
from tfdoctor.extensions.cluster.network import find_proxy
from tfdoctor.extensions.cluster.reader import parse_cluster
from tfdoctor.extensions.cluster.render import make_cluster_json, render_cluster
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from tfdoctor.extensions.cluster.models import ClusterEvaluation

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "cluster"
LOCAL_STATE = ListeningPorts(frozenset({2222}), frozenset({"127.0.0.1", "10.0.0.7"}))


def evaluate_texts(*texts: str, python: bool = False, source: str = "text") -> list[ClusterEvaluation]:
    specs = [parse_cluster(text, source, is_python=python) for text in texts]
    return [evaluate_cluster(cluster, name) for name, cluster in merge_clusters(specs)]


def summarize_answer(text: str) -> list[tuple[str, str | None]]:
    (answer,) = evaluate_texts(text)
    return [(fault.kind, fault.task) for fault in answer.faults]


def config(cluster: Any, task: Any = ("worker", 0)) -> str:
    value: dict[str, Any] = {"cluster": cluster}
    if task is not None:
        value["task"] = {"type": task[0], "index": task[1]} if isinstance(task, tuple) else task
    return json.dumps(value)


@pytest.mark.parametrize(
    "address",
    [
        "a:1",
        "10.0.0.1:65535",
        "[::1]:80",
        "[2001:db8::1]:2222",
        "gpu_node:2222",
        "a.b.c.:2222",
        "A-1:09",
        "/bns/x",
    ],
)
def test_valid_address_has_no_fault(address: str) -> None:
    assert not parse_address(address).fault


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost2999", "colon between localhost and 2999 is missing"),
        ("host", "no port"),
        ("host:", "no port follows"),
        (":2222", "no host"),
        ("2222", "number without a host"),
        ("", "empty"),
        ("host:http", "no number"),
        ("host:70000", "no port 70000"),
        ("host:-1", "no number"),
        ("host:0", "any free port"),
        ("host:22²", "no number"),
        ("grpc://host:2222", "grpc://"),
        ("host:2222/", "slash"),
        ("[::1]", "no port"),
        ("[::1]2222", "colon"),
        ("[::1:2222", "not closed"),
        ("[zz]:2222", "no IPv6"),
        ("2001:db8::5:2222", "brackets"),
        ("::1", "brackets"),
        ("a:b:1", "more than one colon"),
        ("10.0.0.256:2222", "no IPv4"),
        ("10.0.0:2222", "no IPv4"),
        (" host:2222", "white space"),
        ("host: 2222", "character"),
        ("a:1,b:1", "character"),
        ("a..b:1", "part of its name"),
        ("x" * 64 + ":1", "longer"),
        ("x" * 5000, "longer"),
    ],
)
def test_invalid_address_is_explained(address: str, words: str) -> None:
    assert words in parse_address(address).fault


def test_local_addresses_are_recognized() -> None:
    addresses = (
        "localhost",
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "0.0.0.0",  # noqa: S104
        "::",
        "::ffff:127.0.0.1",
        "x.localhost",
    )
    assert all(map(is_local_host, addresses))
    assert not any(map(is_local_host, ("localhost2", "10.0.0.1", "128.0.0.1", "local", "::2")))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (config({"worker": ["a:1", "b:1"]}), []),
        (config({"worker": ["localhost:0"]}), []),
        (config({"worker": {"0": "a:1", "2": "b:1"}}, ("worker", 2)), []),
        (config({"worker": {"0": "a:1", "2": "b:1"}}, ("worker", 1)), [("cluster-task", "worker:1")]),
        (config({"worker": ["a:1"]}, None), []),
        (config({"worker": ["a:1", "b:1"]}, None), [("cluster-task", None)]),
        (config({"worker": ["a:1", "b:1"]}, {"type": "worker"}), [("cluster-task", None)]),
        (config({"worker": ["a:1", "b:1"]}, {"index": 1}), [("cluster-task", None)]),
        (config({"worker": ["a:1"]}, ("worker", "one")), [("cluster-task", None)]),
        (config({"worker": ["a:1"]}, ("worker", None)), [("cluster-task", None)]),
        (config({"worker": ["a:1"]}, "worker:0"), [("cluster-task", None)]),
        (config({"worker": ["a:1"]}, ("worker", -1)), [("cluster-task", "worker:-1")]),
        (config({"worker": ["a:1"]}, ("Worker", 0)), [("cluster-task", "Worker:0")]),
        (config({}, ("worker", 0)), [("cluster-task", "worker:0")]),
        (config({"worker": {"x": "a:1"}}, None), [("cluster-task", None)]),
        (config({"worker": "a:1"}, None), [("cluster-address", "worker:0")]),
        (config({"worker": [2222, "a:1"]}, ("worker", 1)), [("cluster-address", "worker:0")]),
        (config({"worker": ["a:1", "A.:1"]}), [("address-twice", "worker:1")]),
        (config({"worker": ["localhost:5", "127.0.0.1:5"]}), [("address-twice", "worker:1")]),
        (config({"worker": ["localhost:5", "0.0.0.0:6"]}), []),
        (config({"worker": ["a:1", "0.0.0.0:6"]}), [("localhost-among-hosts", "worker:1")]),
        (config({"chief": ["a:1", "b:1"], "worker": ["c:1"]}), [("chief-twice", "chief:1")]),
        (config({"master": ["a:1"], "worker": ["c:1"]}), [("job-name", None)]),
        (config({"wroker": ["a:1"]}, ("wroker", 0)), [("job-name", None)]),
        (config({"chief": ["a:1"], "evaluator": ["b:1"]}, ("chief", 0)), [("evaluator-in-cluster", "evaluator:0")]),
        ("", [("json-invalid", None)]),
        ("null", [("json-invalid", None)]),
        ("5", [("json-invalid", None)]),
        ("[]", [("json-invalid", None)]),
        ("\ufeff{}", [("json-invalid", None)]),
        ("{cluster: {worker: [a:1]}}", [("json-invalid", None)]),
        ('{"cluster": null}', [("json-invalid", None)]),
        ('{"cluster": ["a:1"]}', [("json-invalid", None)]),
        ('{"worker": ["a:1"], "task": {"type": "worker", "index": 0}}', [("json-invalid", None)]),
        ("[" * 100_000, [("json-invalid", None)]),
        ('{"worker": ["a:1", "b:1"]}', []),
        ('{"local": ["a:1", "b"]}', [("cluster-address", "local:1")]),
        ('{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}', [("cluster-task", None)]),
    ],
)  # fmt: skip
def test_faults_of_a_specification(text: str, want: list[tuple[str, str | None]]) -> None:
    assert summarize_answer(text) == want


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("{'cluster': {}}", "double quotes"),
        ('{"cluster": {"worker": ["a:1",]}}', "comma"),
        ("{cluster:{worker:[a:1]}}", "shell took"),
        ("\ufeff{}", "byte order mark"),
        ("", "Unset"),
        (config({"worker": ["http://a:1", "b:1"]}), '"a:1"'),
        (config({"workers": ["a:1"]}, ("workers", 0)), '"worker"'),
    ],
)
def test_fix_is_specific(text: str, fix: str) -> None:
    (answer,) = evaluate_texts(text)
    assert fix in answer.faults[0].remedy


def test_tf_config_needs_a_cluster() -> None:
    """A file may contain a bare ClusterSpec; TensorFlow does not accept one as TF_CONFIG."""
    (answer,) = evaluate_texts('{"worker": ["a:1", "b:1"]}', source="env")
    assert [fault.kind for fault in answer.faults] == ["json-invalid"]


# ---------------------------------------------------------------- Python files

SNIPPET = """\
import tensorflow as tf
cluster = tf.train.ClusterSpec({"local": ['localhost:2998', 'localhost2999']})
server = tf.train.Server(cluster, job_name='local', task_index=0)
sess = tf.Session(server.target)
"""


def test_faults_of_two_programs_of_a_tutorial() -> None:
    """Both programs of a tutorial start task 0, and `localhost2999` has no colon."""
    (answer,) = evaluate_texts(SNIPPET, SNIPPET, python=True)
    assert [(fault.kind, fault.task) for fault in answer.faults] == [
        ("cluster-address", "local:1"),
        ("cluster-task", "local:0"),
    ]
    assert [fault.remedy for fault in answer.faults] == [
        'Write "localhost:2999".',
        "Start one of them as local:1.",
    ]
    (single,) = evaluate_texts(SNIPPET, python=True)
    assert [fault.kind for fault in single.faults] == ["cluster-address"]
    corrected = SNIPPET.replace("localhost2999", "localhost:2999")
    (merged,) = evaluate_texts(corrected, corrected.replace("task_index=0", "task_index=1"), python=True)
    assert not merged.faults


def test_programs_with_different_addresses() -> None:
    corrected = SNIPPET.replace("localhost2999", "localhost:2999")
    first, second = evaluate_texts(corrected, corrected.replace(":2999", ":3000"), python=True)
    assert not first.faults
    assert [(fault.kind, fault.task) for fault in second.faults] == [("cluster-address", "local:1")]


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        ('ClusterSpec({"worker": "a:1,b:1".split(",")})', {"worker": ["a:1", "b:1"]}),
        ('P = 2222\nClusterSpec(dict(worker=[f"a:{P}"]))', {"worker": ["a:2222"]}),
        ('H = ["a:1"]\nD = {"ps": H, "worker": H+["b:1"]}\nClusterSpec(D)', {"ps": ["a:1"], "worker": ["a:1", "b:1"]}),
        ('ClusterSpec({"worker": {1: "a:1"}})', {"worker": {"1": "a:1"}}),
        ('ClusterSpec({"ps": ["a:1"], "worker": FLAGS.w.split(",")})', {"ps": ["a:1"]}),
        ("ClusterSpec(made())", None),
        ('os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ["a:1"]}})', {"worker": ["a:1"]}),
        ("os.environ['TF_CONFIG'] = '{\"cluster\": {\"worker\": [\"a:1\"]}}'", {"worker": ["a:1"]}),
        ("X = 1\nX = 2\nClusterSpec({'worker': [X]})", None),
    ],
)  # fmt: skip
def test_program_is_parsed_but_not_run(text: str, cluster: Any) -> None:
    (answer,) = evaluate_texts(text, python=True)
    assert answer.specification.original_cluster == cluster
    known = "FLAGS" not in text and cluster is not None
    assert bool(answer.notes) is not known


def test_same_server_in_two_branches_counts_once() -> None:
    server = "    Server(c, job_name='worker', task_index=0)\n"
    text = "c = ClusterSpec({'worker': ['a:1']})\nif x:\n" + server + "else:\n" + server
    (answer,) = evaluate_texts(text, python=True)
    assert not answer.faults
    (answer,) = evaluate_texts(
        text.replace("if x:\n", "").replace("else:\n", "").replace("    ", ""), python=True
    )
    assert [fault.kind for fault in answer.faults] == ["cluster-task"]


def test_recursive_assignment_terminates() -> None:
    (answer,) = evaluate_texts("a = b\nb = a\nClusterSpec({'worker': a})", python=True)
    assert answer.notes


# ---------------------------------------------------------------- observed state

TWO = parse_cluster(config({"worker": ["10.0.0.7:2222", "b:2223"]}), "env").specifications[0]


def test_own_task_and_its_listener_are_found() -> None:
    answer = evaluate_cluster(TWO, "env", listening_ports=LOCAL_STATE)
    assert [(member.is_own_task, member.is_listening) for member in answer.members] == [
        (True, True),
        (False, None),
    ]
    assert answer.notes
    assert not answer.faults


def test_address_of_another_machine_is_a_fault() -> None:
    cluster = parse_cluster(config({"worker": ["10.0.0.8:2222", "10.0.0.7:2222"]}), "env").specifications[0]
    assert [fault.kind for fault in evaluate_cluster(cluster, "env", listening_ports=LOCAL_STATE).faults] == [
        "wrong-self-address"
    ]
    assert not evaluate_cluster(cluster, "text", listening_ports=LOCAL_STATE).faults, (
        "a text can be of any machine"
    )
    assert not evaluate_cluster(cluster, "env").faults, "the addresses are not known"


def test_unreachable_tasks_are_counted() -> None:
    text = config({"worker": [f"127.0.0.1:{20000 + number}" for number in range(200)]})
    cluster = parse_cluster(text, "text").specifications[0]
    reached = {task: ConnectionResult(False, "refused") for task, _ in cluster.addresses}
    answer = evaluate_cluster(cluster, "text", connection_results=reached)
    assert "199 of 200 tasks cannot be reached" in answer.summary
    assert len(answer.faults) < 60


@pytest.mark.parametrize("why", ["refused", "timeout", "no-such-name", "not-tensorflow"])
def test_unreachable_task_is_reported(why: str) -> None:
    (own, _), (other, _) = TWO.addresses
    answer = evaluate_cluster(
        TWO, "env", connection_results={own: ConnectionResult(True), other: ConnectionResult(False, why)}
    )
    (fault,) = answer.faults
    assert (fault.kind, fault.task) == ("unreachable", "worker:1")
    assert "1 of 2 tasks cannot be reached" in answer.summary
    document = make_cluster_json([answer])
    assert [member["why"] for member in document["members"]] == [None, why]


@pytest.mark.parametrize(
    ("hosts", "goes"),
    [((), True), (("b",), False), (("x", ".lab"), True), (("10.0.0.0/8",), True)],
)
def test_proxy_of_grpc_is_reported(hosts: tuple[str, ...], goes: bool) -> None:
    """Two running servers of TensorFlow 2.20 wait for each other forever if http_proxy is set."""
    proxy = Proxy("http_proxy", hosts)
    names = [(fault.kind, fault.severity.word) for fault in evaluate_cluster(TWO, "env", proxy=proxy).faults]
    assert names == ([("unreachable", "warning")] if goes else [])
    assert not evaluate_cluster(TWO, "text", proxy=proxy).faults, "a text can be of any machine"


def test_proxy_of_grpc_is_found() -> None:
    env = {"HTTP_PROXY": "http://a", "no_proxy": "b, .lab"}
    assert find_proxy(LiveSystem(env=env)) is None
    assert find_proxy(LiveSystem(env={**env, "http_proxy": "http://a"})) == Proxy("http_proxy", ("b", ".lab"))
    grpc_env = {**env, "https_proxy": "x", "http_proxy": "x", "no_grpc_proxy": "c"}
    assert find_proxy(LiveSystem(env=grpc_env)) == Proxy("https_proxy", ("c",), "no_grpc_proxy")


def test_unknown_reachability_is_no_fault() -> None:
    (own, _), (other, _) = TWO.addresses
    answer = evaluate_cluster(
        TWO,
        "env",
        connection_results={
            own: ConnectionResult(False, "refused"),
            other: ConnectionResult(None, detail="no time"),
        },
    )
    assert not answer.faults, "this task is not started yet, and of the other nothing is known"
    assert "not known: no time" in render_cluster([answer])


# ---------------------------------------------------------------- the whole evaluation


def test_each_fault_has_a_code() -> None:
    assert [fault.name for fault in CLUSTER_PAGES] == list(CLUSTER_CODES)
    assert len(set(CLUSTER_CODES.values())) == len(CLUSTER_CODES)


def test_hostile_text_is_escaped_and_shortened() -> None:
    bad = "\x1b[31m" + "x" * 300
    (answer,) = evaluate_texts(config({bad: [bad] * 500, "worker": ["a:1"] * 500}, (bad, 9)))
    screen = render_cluster([answer])
    assert "\x1b" not in screen
    assert len(screen.splitlines()) <= 40
    assert "\x1b" not in render_cluster([answer], verbose=True)


def test_any_text_is_evaluated() -> None:
    chance = random.Random(3)
    pieces = ['{"cluster":', '{"worker":', "[", "]", "}", '"a:1"', ",", '"task":', '{"type":"worker","index":0}',
              "null", "1e999", "NaN", "'", "9" * 50, '"\\ud800"', "-", ":", '"[::1"', "{"]  # fmt: skip
    for _ in range(400):
        text = "".join(chance.choice(pieces) for _ in range(chance.randrange(12)))
        answers = evaluate_texts(text)
        json.dumps(make_cluster_json(answers), allow_nan=False)
        render_cluster(answers, width=chance.choice((20, 80)), verbose=True)


@pytest.mark.parametrize(
    "entry",
    json.loads((CORPUS / "truth.json").read_text("utf-8")) if CORPUS.is_dir() else [],
    ids=lambda entry: entry["file"],
)
def test_corpus_matches_the_expected_findings(entry: dict[str, Any]) -> None:
    (answer,) = evaluate_texts((CORPUS / "values" / entry["file"]).read_text("utf-8"))
    document = make_cluster_json([answer])
    allowed = {extra["name"] for extra in entry["allowed_extra"]}
    actual = {(fault["name"], fault["task"]) for fault in document["findings"]}
    expected = {(fault["name"], fault["task"]) for fault in entry["findings"]}
    assert {
        fault_key for fault_key in actual if fault_key[0] not in allowed or fault_key in expected
    } == expected
    assert (document["cluster"], document["task"]) == (entry["cluster"], entry["task"])
