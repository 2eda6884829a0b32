"""Tests of `cluster --connect` and `diagnose` with real servers of tf.distribute on the CPU; each fault is built in.

TFDOCTOR_LAB=1 creates an environment of 2.18 and one of 1.14; TFDOCTOR_LAB_PYTHONS="ENV/bin/python ..." uses existing
ones.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from extensions.cluster.servers import MIRRORED, PARAMETERS, SESSION, Servers, config, ports, tfdoctor
from lab import environments

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60
"""Time limit for an import of TensorFlow on a busy machine."""
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(400),  # the first test creates the environments
    pytest.mark.skipif(not environments.is_lab_enabled(), reason="set TFDOCTOR_LAB=1 to make environments"),
]


rare = pytest.mark.skipif(not environments.is_full_run(), reason="half a minute: TFDOCTOR_LAB_FULL=1")


def find_releases(interpreters: list[str]) -> dict[str, str]:
    """Return the release of TensorFlow of each interpreter, as "2.20"."""
    by_python = {}
    for python in interpreters:
        for folder in sorted(
            Path(python).parent.parent.glob("lib/python*/site-packages/tensorflow*.dist-info")
        ):
            match = re.fullmatch(r"tensorflow(?:_cpu|_gpu)?-(\d+\.\d+)\..*\.dist-info", folder.name)
            if match is not None:
                by_python[python] = match[1]
    return by_python


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        created = [
            stack.enter_context(environments.provide_environment(name, tmp_path_factory.mktemp("tf") / "env"))
            for name in environments.list_existing() or ["2.18", "1.14"]
        ]
        yield find_releases([str(python_path) for python_path in created if isinstance(python_path, Path)])


@pytest.fixture(scope="module")
def python(pythons: dict[str, str]) -> str:
    interpreters = [interpreter for interpreter, release in pythons.items() if release.startswith("2.")]
    if not interpreters:
        pytest.skip("no TensorFlow 2 here")
    return interpreters[0]


def make_local_addresses(numbers: list[int]) -> list[str]:
    return [f"localhost:{number}" for number in numbers]


def probe_tasks(tf_config: str) -> dict[str, str | None]:
    """Return the reason why --connect cannot reach each task; None if it is not reported as unreachable."""
    _, answer = tfdoctor("cluster", "--connect", "--timeout", "5", env={"TF_CONFIG": tf_config})
    return {
        member["task"]: member["why"] if member["reachable"] is False else None
        for member in answer["members"]
    }


def diagnose_log(servers: Servers, name: str) -> str:
    """Return the cluster findings of `diagnose` for the log of a task, or "" if there are none."""
    _, answer = tfdoctor("diagnose", str(servers.folder / f"{name}.log"))
    findings: list[dict[str, Any]] = [
        finding for finding in answer["findings"] if finding["cause"] == "cluster-failure"
    ]
    return " ".join(f"{finding['title']}: {finding['explanation']}" for finding in findings)


def test_two_connected_workers_have_no_fault(tmp_path: Path, python: str) -> None:
    numbers = ports(2)
    cluster = {"worker": make_local_addresses(numbers)}
    with Servers(tmp_path) as servers:
        for index in range(2):
            servers.start(f"w{index}", python, MIRRORED, config(cluster, "worker", index))
        assert servers.wait(["w0", "w1"], SECONDS)
        assert servers.is_done("w0"), servers.text("w0")
        for index in range(2):
            assert probe_tasks(config(cluster, "worker", index)) == {"worker:0": None, "worker:1": None}
            assert diagnose_log(servers, f"w{index}") == ""


def test_missing_worker_is_reported(tmp_path: Path, python: str) -> None:
    numbers = ports(3)
    cluster = {"worker": make_local_addresses(numbers)}
    with Servers(tmp_path) as servers:
        for index in range(2):
            servers.start(f"w{index}", python, MIRRORED, config(cluster, "worker", index))
        assert servers.wait_for_ports(numbers[:2], SECONDS)
        for index in range(2):
            assert probe_tasks(config(cluster, "worker", index)) == {
                "worker:0": None,
                "worker:1": None,
                "worker:2": "refused",
            }
        assert servers.says("w0", r"stragglers|2/3 tasks", 20)
        assert "worker:2" in diagnose_log(servers, "w0"), servers.text("w0")


@rare
def test_worker_on_another_port_is_reported(tmp_path: Path, python: str) -> None:
    first, second, wrong_port = ports(3)
    right_cluster, wrong_cluster = (
        {"worker": make_local_addresses([first, second])},
        {"worker": make_local_addresses([first, wrong_port])},
    )
    with Servers(tmp_path) as servers:
        servers.start("w0", python, MIRRORED, config(right_cluster, "worker", 0))
        servers.start("w1", python, MIRRORED, config(wrong_cluster, "worker", 1))
        assert servers.wait_for_ports([first, wrong_port], SECONDS)
        assert probe_tasks(config(right_cluster, "worker", 0)) == {"worker:0": None, "worker:1": "refused"}
        assert probe_tasks(config(wrong_cluster, "worker", 1)) == {"worker:0": None, "worker:1": None}
        for name, text in (
            ("w0.json", config(right_cluster, "worker", 0)),
            ("w1.json", config(wrong_cluster, "worker", 1)),
        ):
            (tmp_path / name).write_text(text, "utf-8")
        status, answer = tfdoctor("cluster", str(tmp_path / "w0.json"), str(tmp_path / "w1.json"))
        assert status == 1
        findings = [
            (finding["name"], finding["task"]) for part in answer["others"] for finding in part["findings"]
        ]
        assert ("cluster-address", "worker:1") in findings


@rare
def test_two_workers_with_the_same_index_are_reported(tmp_path: Path, python: str) -> None:
    numbers = ports(2)
    tf_config = config({"worker": make_local_addresses(numbers)}, "worker", 0)
    with Servers(tmp_path) as servers:
        servers.start("a", python, MIRRORED, tf_config)
        assert servers.wait_for_ports(numbers[:1], SECONDS)
        servers.start("b", python, MIRRORED, tf_config)
        assert servers.says("b", "Started server with target|Could not start gRPC server", SECONDS)
        assert not servers.is_done("b")
        assert probe_tasks(tf_config) == {"worker:0": None, "worker:1": "refused"}
        assert servers.says("b", "stragglers|tasks to connect|Could not start", 20)
        diagnosis = diagnose_log(servers, "b")
        assert "worker:1" in diagnosis or "same index" in diagnosis, servers.text("b")


@rare
def test_worker_in_another_network_namespace_is_reported(tmp_path: Path, python: str) -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:  # noqa: S607
        pytest.skip("needs root and network namespaces")
    numbers = ports(2)
    cluster = {"worker": make_local_addresses(numbers)}
    with Servers(tmp_path) as servers:
        servers.start("w0", python, MIRRORED, config(cluster, "worker", 0))
        servers.start("w1", python, MIRRORED, config(cluster, "worker", 1), before=("unshare", "-n"))
        assert servers.wait_for_ports(numbers[:1], SECONDS)
        assert probe_tasks(config(cluster, "worker", 0)) == {"worker:0": None, "worker:1": "refused"}
        assert servers.says("w0", r"stragglers|1/2 tasks", 20)
        assert "worker:1" in diagnose_log(servers, "w0"), servers.text("w0")


def test_parameter_server_cluster_has_no_fault(tmp_path: Path, python: str) -> None:
    numbers = ports(3)
    cluster = {
        "chief": make_local_addresses(numbers[:1]),
        "worker": make_local_addresses(numbers[1:2]),
        "ps": make_local_addresses(numbers[2:]),
    }
    with Servers(tmp_path) as servers:
        for job in ("worker", "ps", "chief"):
            servers.start(job, python, PARAMETERS, config(cluster, job, 0))
        assert servers.wait(list(cluster), SECONDS)
        assert servers.is_done("chief"), servers.text("chief")
        assert probe_tasks(config(cluster, "chief", 0)) == dict.fromkeys(("chief:0", "worker:0", "ps:0"))
        assert diagnose_log(servers, "chief") == ""


def test_missing_parameter_server_of_tf1_is_reported(tmp_path: Path, pythons: dict[str, str]) -> None:
    interpreters = [interpreter for interpreter, release in pythons.items() if release.startswith("1.")]
    if not interpreters:
        pytest.skip("no TensorFlow 1 here")
    numbers = ports(2)
    cluster = {"chief": make_local_addresses(numbers[:1]), "ps": make_local_addresses(numbers[1:])}
    with Servers(tmp_path) as servers:
        servers.start("chief", interpreters[0], SESSION, config(cluster, "chief", 0))
        assert servers.wait_for_ports(numbers[:1], SECONDS)
        assert probe_tasks(config(cluster, "chief", 0)) == {"chief:0": None, "ps:0": "refused"}
        assert servers.says("chief", "still waiting", 40)
        assert "ps:0" in diagnose_log(servers, "chief"), servers.text("chief")
