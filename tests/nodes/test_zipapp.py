"""Tests of tfdoctor as a single file, run by every installed Python without any package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from recorded import HOSTS
from tfdoctor.extensions.cluster.connect import CONNECT_COMMAND
from tfdoctor.extensions.fleet.nodes.zipapp import build_zipapp

PYENV = Path.home() / ".pyenv" / "versions"
HEALTHY = str(HOSTS / "healthy-two-gpus")
VARIABLE_KEYS = ("at", "facts", "tool")


def list_pythons() -> list[Path]:
    by_version = {
        tuple(map(int, path.name.split(".")[:2])): path
        for path in sorted(PYENV.glob("3.*"))
        if path.name[2:3]
    }
    return [path / "bin" / "python3" for version, path in sorted(by_version.items()) if version >= (3, 10)]


@cache
def build_content() -> bytes:
    return build_zipapp()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tfdoctor.pyz"
    path.write_bytes(build_content())
    return path


def make_env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "python", [Path(sys.executable), *list_pythons()], ids=lambda path: path.parent.parent.name
)
def test_report_equals_that_of_the_installed_tfdoctor(file: Path, tmp_path: Path, python: Path) -> None:
    arguments = ["check", "--json", "--from", HEALTHY]
    result = subprocess.run(
        [python, file, *arguments], env=make_env(tmp_path), capture_output=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")
    report: dict[str, Any] = json.loads(result.stdout)
    installed = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *arguments], capture_output=True, check=True
    )
    expected: dict[str, Any] = json.loads(installed.stdout)
    assert {k: v for k, v in report.items() if k not in VARIABLE_KEYS} == {
        k: v for k, v in expected.items() if k not in VARIABLE_KEYS
    }
    assert list((tmp_path / "tmp").iterdir()) == []


def test_facts_are_those_of_the_machine(file: Path, tmp_path: Path) -> None:
    """The libraries inside the file are not reported as those of the examined Python."""
    arguments = ["check", "--json", "--python", sys.executable]
    facts = []
    for tool in ([file], ["-m", "tfdoctor"]):
        result = subprocess.run(
            [sys.executable, *tool, *arguments],
            env=make_env(tmp_path),
            capture_output=True,
            timeout=60,
            check=False,
        )
        facts.append(json.loads(result.stdout)["facts"])
        facts[-1]["python"]["known"]["mapped"].sort()
    for part in ("python", "tensorflow", "loader", "machine", "choice"):
        assert facts[0][part] == facts[1][part]
    assert facts[0]["python"]["known"]["executable"] == sys.executable


def test_connecting_to_peers_needs_no_typer(file: Path, tmp_path: Path) -> None:
    spec = '{"cluster":{"worker":["127.0.0.1:9","localhost:9"]}}'
    arguments = [*CONNECT_COMMAND, "--timeout", "2", "--tf-config", spec]
    results = [
        subprocess.run(
            [sys.executable, *tool, *arguments], env=make_env(tmp_path), capture_output=True, check=False
        )
        for tool in ([file], ["-m", "tfdoctor"])
    ]
    assert [item.stdout for item in results] == [results[0].stdout] * 2
    assert [item["why"] for item in json.loads(results[0].stdout)["members"]] == ["refused", "refused"]


def test_file_is_reproducible() -> None:
    assert build_zipapp() == build_content()


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_leaves_no_folder(file: Path, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "nvidia-smi").chmod(0o755)
    environment = {**make_env(tmp_path), "PATH": f"{folder}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, file, "check", "--json", "--timeout", "50"], env=environment, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 20
    while not list((tmp_path / "tmp").glob("*/tfdoctor/cli")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["2.7", "3.6", "3.9"])
def test_too_old_python_is_reported(file: Path, tmp_path: Path, name: str) -> None:
    interpreters = sorted(PYENV.glob(f"{name}.*/bin/python"))
    if not interpreters:
        pytest.skip(f"there is no Python {name} here")
    result = subprocess.run(
        [interpreters[0], file, "check"], env=make_env(tmp_path), capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 3
    assert result.stderr.decode() == f"tfdoctor: Python {name} is too old: 3.10 or later is needed.\n"


def test_full_disk_is_reported(file: Path, tmp_path: Path) -> None:
    environment = {**make_env(tmp_path), "TMPDIR": "/dev/full", "TEMP": "/dev/full", "TMP": "/dev/full"}
    script = f"import tempfile; tempfile.tempdir = '/proc/1'; import runpy, sys; sys.argv = [{str(file)!r}, 'check']; "
    result = subprocess.run(
        [sys.executable, "-c", f"{script}runpy.run_path({str(file)!r}, run_name='__main__')"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3
    assert result.stderr.startswith("tfdoctor: it could not be unpacked: ")


@cache
def build_complete_content() -> bytes:
    return build_zipapp(is_complete=True)


@pytest.mark.few(0)
@pytest.mark.parametrize("python", list_pythons(), ids=lambda path: path.parent.parent.name)
def test_every_command_works_in_the_complete_file(tmp_path: Path, python: Path) -> None:
    file = tmp_path / "tfdoctor.pyz"
    file.write_bytes(build_complete_content())
    (tmp_path / "train.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVICE'] = '0'\n")
    (tmp_path / "old.py").write_text("import tensorflow as tf\nprint tf.Session()\n")
    (tmp_path / "x.log").write_text("failed call to cuInit: UNKNOWN ERROR (303)\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, file, *words],
            env=make_env(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert "tables of" in run("--version").stdout
    assert json.loads(run("check", "--from", "demo:plain-pip-install", "--json").stdout)["findings"]
    assert json.loads(run("diagnose", "x.log", "--json").stdout)["verdict"]["cause"] == "no-driver"
    assert "TFD201" in run("explain", "TFD201").stdout
    assert json.loads(run("matrix", "--tf", "2.20", "--json").stdout)["rows"]
    assert run("recommend", "--gpu", "RTX 4090", "--driver", "570").returncode == 0
    assert "FROM " in run("build", "--tf", "2.15", "--gpu", "T4", "--anywhere", "--print").stdout
    lint = json.loads(run("lint", "train.py", "old.py", "--json").stdout)
    assert [finding["name"] for finding in lint["findings"]] == ["misspelt-variable"]
    assert "tree-sitter" in lint["unreadable"][0]["message"]
