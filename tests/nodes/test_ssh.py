"""Tests of `fleet run --ssh` with real sshd processes on local ports, one per host, and the system's ssh."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodes.machines import node, start_process, write_script
from nodes.real_sshd import list_missing_programs, sshd
from processes import find_processes_of
from tfdoctor.extensions.fleet.nodes import NodeJob
from tfdoctor.extensions.fleet.nodes.ssh import make_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodes.real_sshd import Hosts

pytestmark = [
    pytest.mark.few(0),
    pytest.mark.skipif(bool(list_missing_programs()), reason=f"there is no {list_missing_programs()}"),
    pytest.mark.timeout(150),
]

KINDS = {
    "good": "healthy-two-gpus",
    "odd": "kernel-updated",
    "hanging": "hanging",
    "lying": "lying",
    "flooding": "flooding",
    "failing": "failing",
    "cut": "hanging",
}
STATES = {
    "good": "ok",
    "odd": "found",
    "hanging": "timeout",
    "lying": "failed",
    "flooding": "failed",
    "failing": "failed",
    "cut": "lost",
    "refusing": "lost",
    "silent": "lost",
    "closed": "lost",
    "stranger": "lost",
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("ssh")
    names = [*KINDS, "stranger"]
    with sshd(folder / "ssh", names, refusing="refusing", silent="silent", closed="closed") as ssh_hosts:
        known_hosts = ssh_hosts.folder / "known_hosts"
        other_key = (ssh_hosts.folder / "other_key.pub").read_text().split()[:2]
        port = ssh_hosts.ports["stranger"]  # its key differs from the one in known_hosts
        lines = [line for line in known_hosts.read_text().splitlines() if f":{port} " not in line]
        known_hosts.write_text("\n".join([*lines, f"[127.0.0.1]:{port} {' '.join(other_key)}"]) + "\n")
        yield ssh_hosts


@pytest.fixture
def runner(hosts: Hosts, tmp_path: Path) -> Path:
    """Return a stand-in for the Python of the hosts, which recognizes its host by the port."""
    names = "".join(f"{hosts.ports[name]}) name={name};; " for name in KINDS)
    for name, kind in KINDS.items():
        node(tmp_path, name, kind)
    path = tmp_path / "a python"
    folder = shlex.quote(str(tmp_path))
    command = f"export TFDOCTOR_TEST={folder}; exec {folder}/nodes/$name/python3"
    write_script(path, f'case ${{SSH_CONNECTION##* }} in {names} esac; {command} "$@"')
    return path


def assert_nothing_left(hosts: Hosts, tmp_path: Path) -> None:
    deadline = time.monotonic() + 15
    while (find_processes_of(tmp_path) or list_remaining(hosts)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert (find_processes_of(tmp_path), list_remaining(hosts)) == ([], [])


def list_remaining(hosts: Hosts) -> list[Path]:
    return list((hosts.folder / "tmp").iterdir())


def wait_for_results(tmp_path: Path, *names: str) -> None:
    deadline = time.monotonic() + 60
    while not all((tmp_path / "out" / f"{name}.json").exists() for name in names):
        assert time.monotonic() < deadline, f"not all of {names} answer"
        time.sleep(0.1)


def wait_for_start(name: str, tmp_path: Path) -> None:
    """Wait until the command on this host has started."""
    deadline = time.monotonic() + 60
    python_path = f"{tmp_path}/nodes/{name}/python3".encode()
    while time.monotonic() < deadline:
        for number in find_processes_of(tmp_path):
            with contextlib.suppress(OSError):
                if python_path in Path(f"/proc/{number}/cmdline").read_bytes():
                    return
        time.sleep(0.1)
    pytest.fail(f"{name} does not begin")


def test_bad_hosts_do_not_affect_the_others(hosts: Hosts, tmp_path: Path, runner: Path) -> None:
    process = start_process(hosts.env, tmp_path, runner, "--ssh", ",".join(STATES), "--timeout", "15")
    wait_for_start("cut", tmp_path)
    hosts.cut("cut")
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    report: dict[str, Any] = json.loads(stdout)
    reasons = {entry["host"]: entry["why"] for entry in report["hosts"]}
    assert {entry["host"]: entry["status"] for entry in report["hosts"]} == STATES, reasons
    assert "Permission denied" in reasons["refusing"]
    assert "refused" in reasons["closed"]
    assert "Host key verification failed" in reasons["stranger"]
    assert "it is broken" in reasons["failing"]
    assert "no answer within 15 s" in reasons["hanging"]
    assert all(reasons[name] for name in STATES if STATES[name] not in ("ok", "found"))
    assert_nothing_left(hosts, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_remote_processes_end_with_the_run(
    hosts: Hosts, tmp_path: Path, runner: Path, number: signal.Signals
) -> None:
    """Even after SIGKILL the hosts notice that no client waits for them any more."""
    process = start_process(hosts.env, tmp_path, runner, "--ssh", "good,hanging")
    wait_for_results(tmp_path, "good")
    wait_for_start("hanging", tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    if number != signal.SIGKILL:
        assert "1 of 2 hosts had answered; --resume asks the others" in stderr
    assert_nothing_left(hosts, tmp_path)


@pytest.mark.parametrize("shell", ["tcsh", "fish", "bash", "dash", "ksh", "zsh"])
def test_command_works_in_any_login_shell(tmp_path: Path, shell: str) -> None:
    """sshd passes the command to the user's login shell."""
    shell_path = shutil.which(shell)
    if shell_path is None:
        pytest.skip(f"there is no {shell}")
    file = tmp_path / "file.py"
    file.write_text("import os, sys; print(sys.argv[1:], os.environ['TMPDIR'])\n")
    (tmp_path / "tmp").mkdir()
    job = NodeJob(file, ("check", "a b", "it's", '{"x": ["$y", "`z`"]}'), python=sys.executable)
    process = subprocess.Popen(
        [shell_path, "-c", make_command(job)],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(file.read_bytes())
    process.stdin.flush()
    assert process.stdout is not None
    output = process.stdout.read().decode()
    process.stdin.close()
    assert process.wait(20) == 0
    assert output.startswith(str(list(job.arguments)) + f" {tmp_path}/tmp/tfdoctor-")
    process.stdout.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_broken_ssh_configuration_is_reported(hosts: Hosts, tmp_path: Path, runner: Path) -> None:
    process = start_process(hosts.env, tmp_path, runner, "--ssh", "good", "--pass-on=-oNonsense=1")
    stdout, _ = process.communicate(timeout=60)
    (entry,) = json.loads(stdout)["hosts"]
    assert (process.returncode, entry["status"]) == (1, "lost")
    assert "onsense" in entry["why"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fleet.jsonl"]
