"""`fleet run --ssh` with real sshd on ports of this machine, each a "host", and the system's own ssh."""

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

from nodes.machines import node, program, start_process
from nodes.real_sshd import make_missing, sshd
from processes import processes_of
from tfdoctor.fleet.nodes import Job
from tfdoctor.fleet.nodes.ssh import command_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodes.real_sshd import Hosts

pytestmark = [
    pytest.mark.few(0),
    pytest.mark.skipif(bool(make_missing()), reason=f"there is no {make_missing()}"),
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
    with sshd(folder / "ssh", names, refusing="refusing", silent="silent", closed="closed") as made:
        known = made.folder / "known_hosts"
        other = (made.folder / "other_key.pub").read_text().split()[:2]
        port = made.ports["stranger"]  # its key is not the one that is known
        lines = [line for line in known.read_text().splitlines() if f":{port} " not in line]
        known.write_text("\n".join([*lines, f"[127.0.0.1]:{port} {' '.join(other)}"]) + "\n")
        yield made


@pytest.fixture
def runner(hosts: Hosts, tmp_path: Path) -> Path:
    """The hosts' Python: which host it is says the port."""
    names = "".join(f"{hosts.ports[name]}) name={name};; " for name in KINDS)
    for name, kind in KINDS.items():
        node(tmp_path, name, kind)
    path = tmp_path / "a python"
    folder = shlex.quote(str(tmp_path))
    run = f"export TFDOCTOR_TEST={folder}; exec {folder}/nodes/$name/python3"
    program(path, f'case ${{SSH_CONNECTION##* }} in {names} esac; {run} "$@"')
    return path


def assert_nothing_stays(hosts: Hosts, tmp_path: Path) -> None:
    until = time.monotonic() + 15
    while (processes_of(tmp_path) or list_left(hosts)) and time.monotonic() < until:
        time.sleep(0.2)
    assert (processes_of(tmp_path), list_left(hosts)) == ([], [])


def list_left(hosts: Hosts) -> list[Path]:
    return list((hosts.folder / "tmp").iterdir())


def count_arrived(tmp_path: Path, *names: str) -> None:
    until = time.monotonic() + 60
    while not all((tmp_path / "out" / f"{one}.json").exists() for one in names):
        assert time.monotonic() < until, f"not all of {names} answer"
        time.sleep(0.1)


def runs(name: str, tmp_path: Path) -> None:
    """Waits until this host has begun."""
    until = time.monotonic() + 60
    mine = f"{tmp_path}/nodes/{name}/python3".encode()
    while time.monotonic() < until:
        for number in processes_of(tmp_path):
            with contextlib.suppress(OSError):
                if mine in Path(f"/proc/{number}/cmdline").read_bytes():
                    return
        time.sleep(0.1)
    pytest.fail(f"{name} does not begin")


def test_all_others_arrive_and_the_bad_ones_are_named(hosts: Hosts, tmp_path: Path, runner: Path) -> None:
    process = start_process(hosts.env, tmp_path, runner, "--ssh", ",".join(STATES), "--deadline", "15")
    runs("cut", tmp_path)
    hosts.cut("cut")
    printed, said = process.communicate(timeout=100)
    assert process.returncode == 1, said
    assert "Traceback" not in said
    told: dict[str, Any] = json.loads(printed)
    why = {one["host"]: one["why"] for one in told["hosts"]}
    assert {one["host"]: one["status"] for one in told["hosts"]} == STATES, why
    assert "Permission denied" in why["refusing"]
    assert "refused" in why["closed"]
    assert "Host key verification failed" in why["stranger"]
    assert "it is broken" in why["failing"]
    assert "no answer within 15 s" in why["hanging"]
    assert all(why[name] for name in STATES if STATES[name] not in ("ok", "found"))
    assert_nothing_stays(hosts, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_runs_there_ends_with_us(
    hosts: Hosts, tmp_path: Path, runner: Path, number: signal.Signals
) -> None:
    """Killed at once, too: the hosts see that nobody waits for them any more."""
    process = start_process(hosts.env, tmp_path, runner, "--ssh", "good,hanging")
    count_arrived(tmp_path, "good")
    runs("hanging", tmp_path)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    if number != signal.SIGKILL:
        assert "1 of 2 hosts had answered; --resume asks the others" in said
    assert_nothing_stays(hosts, tmp_path)


@pytest.mark.parametrize("shell", ["tcsh", "fish", "bash", "dash", "ksh", "zsh"])
def test_whatever_the_users_shell_is(tmp_path: Path, shell: str) -> None:
    """sshd gives the command to it."""
    where = shutil.which(shell)
    if where is None:
        pytest.skip(f"there is no {shell}")
    file = tmp_path / "file.py"
    file.write_text("import os, sys; print(sys.argv[1:], os.environ['TMPDIR'])\n")
    (tmp_path / "tmp").mkdir()
    job = Job(file, ("check", "a b", "it's", '{"x": ["$y", "`z`"]}'), python=sys.executable)
    process = subprocess.Popen(
        [where, "-c", command_of(job)],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(file.read_bytes())
    process.stdin.flush()
    assert process.stdout is not None
    said = process.stdout.read().decode()
    process.stdin.close()
    assert process.wait(20) == 0
    assert said.startswith(str(list(job.arguments)) + f" {tmp_path}/tmp/tfdoctor-")
    process.stdout.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_broken_configuration_is_told(hosts: Hosts, tmp_path: Path, runner: Path) -> None:
    process = start_process(hosts.env, tmp_path, runner, "--ssh", "good", "--pass-on=-oNonsense=1")
    printed, _ = process.communicate(timeout=60)
    (one,) = json.loads(printed)["hosts"]
    assert (process.returncode, one["status"]) == (1, "lost")
    assert "onsense" in one["why"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fleet.jsonl"]
