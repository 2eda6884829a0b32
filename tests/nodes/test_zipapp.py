"""tfdoctor as one file, run by every Python that is here, with nothing installed for it."""

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
from tfdoctor.cli.fast_parser import CONNECTING
from tfdoctor.fleet.nodes.zipapp import zipapp

PYENV = Path.home() / ".pyenv" / "versions"
HEALTHY = str(HOSTS / "healthy-two-gpus")
CHANGING = ("at", "facts", "tool")


def pythons() -> list[Path]:
    found = {
        tuple(map(int, path.name.split(".")[:2])): path
        for path in sorted(PYENV.glob("3.*"))
        if path.name[2:3]
    }
    return [path / "bin" / "python3" for version, path in sorted(found.items()) if version >= (3, 10)]


@cache
def content() -> bytes:
    return zipapp()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tfdoctor.pyz"
    path.write_bytes(content())
    return path


def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)}


@pytest.mark.parametrize(
    "python", [Path(sys.executable), *pythons()], ids=lambda path: path.parent.parent.name
)
def test_it_says_what_the_installed_one_says(file: Path, tmp_path: Path, python: Path) -> None:
    words = ["check", "--json", "--facts", HEALTHY]
    ran = subprocess.run(
        [python, file, *words], env=env(tmp_path), capture_output=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    there: dict[str, Any] = json.loads(ran.stdout)
    installed = subprocess.run([sys.executable, "-m", "tfdoctor", *words], capture_output=True, check=True)
    here: dict[str, Any] = json.loads(installed.stdout)
    assert {k: v for k, v in there.items() if k not in CHANGING} == {
        k: v for k, v in here.items() if k not in CHANGING
    }
    assert list((tmp_path / "tmp").iterdir()) == []


def test_it_looks_at_the_machine_that_it_runs_on(file: Path, tmp_path: Path) -> None:
    """Its own libraries are not those of the examined Python."""
    words = ["check", "--json", "--python", sys.executable]
    seen = []
    for tool in ([file], ["-m", "tfdoctor"]):
        ran = subprocess.run(
            [sys.executable, *tool, *words], env=env(tmp_path), capture_output=True, timeout=60, check=False
        )
        seen.append(json.loads(ran.stdout)["facts"])
        seen[-1]["python"]["known"]["mapped"].sort()
    for part in ("python", "tensorflow", "loader", "machine", "choice"):
        assert seen[0][part] == seen[1][part]
    assert seen[0]["python"]["known"]["executable"] == sys.executable


def test_it_connects_to_peers_where_there_is_no_typer(file: Path, tmp_path: Path) -> None:
    spec = '{"cluster":{"worker":["127.0.0.1:9","localhost:9"]}}'
    words = [*CONNECTING, "--timeout", "2", "--tf-config", spec]
    ran = [
        subprocess.run([sys.executable, *tool, *words], env=env(tmp_path), capture_output=True, check=False)
        for tool in ([file], ["-m", "tfdoctor"])
    ]
    assert [one.stdout for one in ran] == [ran[0].stdout] * 2
    assert [one["why"] for one in json.loads(ran[0].stdout)["members"]] == ["refused", "refused"]


def test_the_same_parts_give_the_same_bytes() -> None:
    assert zipapp() == content()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ended_by_a_signal_it_leaves_nothing(file: Path, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "nvidia-smi").chmod(0o755)
    place = {**env(tmp_path), "PATH": f"{folder}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, file, "check", "--json", "--timeout", "50"], env=place, stdout=subprocess.PIPE
    )
    until = time.monotonic() + 20
    while not list((tmp_path / "tmp").glob("*/tfdoctor/cli")) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(1.5)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("name", ["2.7", "3.6", "3.9"])
def test_a_python_that_is_too_old_is_told(file: Path, tmp_path: Path, name: str) -> None:
    found = sorted(PYENV.glob(f"{name}.*/bin/python"))
    if not found:
        pytest.skip(f"there is no Python {name} here")
    ran = subprocess.run(
        [found[0], file, "check"], env=env(tmp_path), capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 3
    assert ran.stderr.decode() == f"tfdoctor: Python {name} is too old: 3.10 or later is needed.\n"


def test_a_full_disk_is_told(file: Path, tmp_path: Path) -> None:
    place = {**env(tmp_path), "TMPDIR": "/dev/full", "TEMP": "/dev/full", "TMP": "/dev/full"}
    run = f"import tempfile; tempfile.tempdir = '/proc/1'; import runpy, sys; sys.argv = [{str(file)!r}, 'check']; "
    ran = subprocess.run(
        [sys.executable, "-c", f"{run}runpy.run_path({str(file)!r}, run_name='__main__')"],
        env=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 3
    assert ran.stderr.startswith("tfdoctor: it could not be unpacked: ")
