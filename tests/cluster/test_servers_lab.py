"""Real servers of tf.distribute on the CPU, each fault by construction. What `cluster --connect` says while they run,
and what `diagnose` says of each process's log.

TFDOCTOR_LAB=1 makes an environment of 2.18 and one of 1.14; TFDOCTOR_LAB_PYTHONS="ENV/bin/python …" takes ready ones.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.servers import MIRRORED, PARAMETERS, SESSION, Servers, config, ports, tfdoctor
from lab import environments

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60
"""For an import of TensorFlow on a busy machine."""
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(400),  # the first one makes the environments
    pytest.mark.skipif(not environments.parse_wanted(), reason="set TFDOCTOR_LAB=1 to make environments"),
]


rare = pytest.mark.skipif(not environments.list_everything(), reason="half a minute: TFDOCTOR_LAB_FULL=1")


def releases(interpreters: list[str]) -> dict[str, str]:
    """Interpreter → its TensorFlow's release, as "2.20"."""
    found = {}
    for python in interpreters:
        for kept in sorted(
            Path(python).parent.parent.glob("lib/python*/site-packages/tensorflow*.dist-info")
        ):
            match = re.fullmatch(r"tensorflow(?:_cpu|_gpu)?-(\d+\.\d+)\..*\.dist-info", kept.name)
            if match is not None:
                found[python] = match[1]
    return found


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with ExitStack() as held:
        made = [
            held.enter_context(environments.environment(name, tmp_path_factory.mktemp("tf") / "env"))
            for name in environments.ready() or ["2.18", "1.14"]
        ]
        yield releases([str(one) for one in made if isinstance(one, Path)])


@pytest.fixture(scope="module")
def python(pythons: dict[str, str]) -> str:
    new = [one for one, release in pythons.items() if release.startswith("2.")]
    if not new:
        pytest.skip("no TensorFlow 2 here")
    return new[0]


def local(numbers: list[int]) -> list[str]:
    return [f"localhost:{number}" for number in numbers]


def run_question(tf_config: str) -> dict[str, str | None]:
    """What --connect tells of each task: None: it answers."""
    _, answer = tfdoctor("cluster", "--connect", "--timeout", "5", env={"TF_CONFIG": tf_config})
    return {one["task"]: one["why"] if one["reachable"] is False else None for one in answer["members"]}


def diagnose_text(servers: Servers, name: str) -> str:
    """What is said of the cluster, beside that this machine has no driver; "" where nothing is."""
    _, answer = tfdoctor("diagnose", str(servers.folder / f"{name}.log"))
    told: list[dict[str, Any]] = [one for one in answer["findings"] if one["cause"] == "cluster-failure"]
    return " ".join(f"{one['title']}: {one['explanation']}" for one in told)


def test_two_workers_that_find_each_other(tmp_path: Path, python: str) -> None:
    numbers = ports(2)
    cluster = {"worker": local(numbers)}
    with Servers(tmp_path) as servers:
        for index in range(2):
            servers.start(f"w{index}", python, MIRRORED, config(cluster, "worker", index))
        assert servers.wait(["w0", "w1"], SECONDS)
        assert servers.is_done("w0"), servers.text("w0")
        for index in range(2):
            assert run_question(config(cluster, "worker", index)) == {"worker:0": None, "worker:1": None}
            assert diagnose_text(servers, f"w{index}") == ""


def test_one_of_three_workers_is_missing(tmp_path: Path, python: str) -> None:
    numbers = ports(3)
    cluster = {"worker": local(numbers)}
    with Servers(tmp_path) as servers:
        for index in range(2):
            servers.start(f"w{index}", python, MIRRORED, config(cluster, "worker", index))
        assert servers.wait_for_ports(numbers[:2], SECONDS)
        for index in range(2):
            assert run_question(config(cluster, "worker", index)) == {
                "worker:0": None,
                "worker:1": None,
                "worker:2": "refused",
            }
        assert servers.says("w0", r"stragglers|2/3 tasks", 20)
        assert "worker:2" in diagnose_text(servers, "w0"), servers.text("w0")


@rare
def test_a_worker_on_another_port_than_the_others_think(tmp_path: Path, python: str) -> None:
    first, second, wrong = ports(3)
    here, there = {"worker": local([first, second])}, {"worker": local([first, wrong])}
    with Servers(tmp_path) as servers:
        servers.start("w0", python, MIRRORED, config(here, "worker", 0))
        servers.start("w1", python, MIRRORED, config(there, "worker", 1))
        assert servers.wait_for_ports([first, wrong], SECONDS)
        assert run_question(config(here, "worker", 0)) == {"worker:0": None, "worker:1": "refused"}
        assert run_question(config(there, "worker", 1)) == {"worker:0": None, "worker:1": None}
        for name, text in (
            ("w0.json", config(here, "worker", 0)),
            ("w1.json", config(there, "worker", 1)),
        ):
            (tmp_path / name).write_text(text, "utf-8")
        status, answer = tfdoctor("cluster", str(tmp_path / "w0.json"), str(tmp_path / "w1.json"))
        assert status == 1
        found = [(one["name"], one["task"]) for part in answer["others"] for one in part["findings"]]
        assert ("cluster-address", "worker:1") in found


@rare
def test_both_workers_say_that_they_are_the_first(tmp_path: Path, python: str) -> None:
    numbers = ports(2)
    given = config({"worker": local(numbers)}, "worker", 0)
    with Servers(tmp_path) as servers:
        servers.start("a", python, MIRRORED, given)
        assert servers.wait_for_ports(numbers[:1], SECONDS)
        servers.start("b", python, MIRRORED, given)
        assert servers.says("b", "Started server with target|Could not start gRPC server", SECONDS)
        assert not servers.is_done("b")
        assert run_question(given) == {"worker:0": None, "worker:1": "refused"}
        assert servers.says("b", "stragglers|tasks to connect|Could not start", 20)
        words = diagnose_text(servers, "b")
        assert "worker:1" in words or "same index" in words, servers.text("b")


@rare
def test_a_worker_cut_off_in_a_network_namespace(tmp_path: Path, python: str) -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:  # noqa: S607
        pytest.skip("needs root and network namespaces")
    numbers = ports(2)
    cluster = {"worker": local(numbers)}
    with Servers(tmp_path) as servers:
        servers.start("w0", python, MIRRORED, config(cluster, "worker", 0))
        servers.start("w1", python, MIRRORED, config(cluster, "worker", 1), before=("unshare", "-n"))
        assert servers.wait_for_ports(numbers[:1], SECONDS)
        assert run_question(config(cluster, "worker", 0)) == {"worker:0": None, "worker:1": "refused"}
        assert servers.says("w0", r"stragglers|1/2 tasks", 20)
        assert "worker:1" in diagnose_text(servers, "w0"), servers.text("w0")


def test_a_parameter_server_with_its_chief_and_a_worker(tmp_path: Path, python: str) -> None:
    numbers = ports(3)
    cluster = {"chief": local(numbers[:1]), "worker": local(numbers[1:2]), "ps": local(numbers[2:])}
    with Servers(tmp_path) as servers:
        for job in ("worker", "ps", "chief"):
            servers.start(job, python, PARAMETERS, config(cluster, job, 0))
        assert servers.wait(list(cluster), SECONDS)
        assert servers.is_done("chief"), servers.text("chief")
        assert run_question(config(cluster, "chief", 0)) == dict.fromkeys(("chief:0", "worker:0", "ps:0"))
        assert diagnose_text(servers, "chief") == ""


def test_a_session_of_tensorflow_1_waits_for_its_parameter_server(
    tmp_path: Path, pythons: dict[str, str]
) -> None:
    old = [one for one, release in pythons.items() if release.startswith("1.")]
    if not old:
        pytest.skip("no TensorFlow 1 here")
    numbers = ports(2)
    cluster = {"chief": local(numbers[:1]), "ps": local(numbers[1:])}
    with Servers(tmp_path) as servers:
        servers.start("chief", old[0], SESSION, config(cluster, "chief", 0))
        assert servers.wait_for_ports(numbers[:1], SECONDS)
        assert run_question(config(cluster, "chief", 0)) == {"chief:0": None, "ps:0": "refused"}
        assert servers.says("chief", "still waiting", 40)
        assert "ps:0" in diagnose_text(servers, "chief"), servers.text("chief")
