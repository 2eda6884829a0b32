"""`tfdoctor fix` killed, interrupted and run twice at once: the next run succeeds, and undo restores every byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from environments.fake import Fake, FileState, difference, make, needs_compiler, needs_uv
from processes import find_processes_by_word

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    needs_compiler,
]
FIX = ("fix", "--yes", "--no-deep")
HEADER_COUNT = 300
"""Number of header files in a wheel that takes a while to install."""


@pytest.fixture
def make_env(tmp_path: Path, standin_cache: Path) -> Callable[..., Fake]:
    """Return a function that makes an environment."""

    def build(version: str = "2.20.0") -> Fake:
        return make(tmp_path, standin_cache, version)

    return build


def remove_library(env: Fake) -> None:
    """Remove a library and put its wheel with many files into the index."""
    files = env.make_files("nvidia-cufft-cu12", "11.2.3.61")
    env.nvidia_path("cufft/lib/libcufft.so.11").unlink()
    headers = {f"nvidia/cufft/include/header{number}.h": b"/* */\n" * 200 for number in range(HEADER_COUNT)}
    env.add_wheel("nvidia-cufft-cu12", "11.2.3.61", {**files, **headers})


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> bool:
    """Wait for a condition while the process runs; return whether it came true."""
    for _ in range(30_000):
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.001)
    return False


def check_recovery(env: Fake, before: dict[str, FileState], *options: str) -> None:
    """Check that the next run fixes the environment, another one does nothing, and undo restores it."""
    run = env.run(*FIX, *options)
    assert run.status == 0, run
    assert "will use 2 GPUs" in run.flat_output
    assert "Nothing to fix automatically" in env.run(*FIX, *options).flat_output
    undone = env.run("fix", "--undo")
    assert undone.status == 0, undone
    assert difference(before, env.list_files()) == {}


KILLED = """
import os, signal, sys
from environments.killer import CHANGES, WRITES
from tfdoctor.cli.startup import run

left, root = int(sys.argv[1]), sys.argv[2]
sys.argv[:] = ["tfdoctor", *sys.argv[3:]]

def hook(event, arguments):
    global left
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
    if (event in CHANGES or writes) and any(str(one).startswith(root) for one in arguments[:2]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
run()
"""


def kill_before(env: Fake, number: int, *arguments: str) -> int:
    """Run tfdoctor, killed before its N-th change of a file in the environment; return its exit status."""
    command = [sys.executable, "-c", KILLED, str(number), str(env.root), *env.command(*arguments)[3:]]
    variables = env.environment(PYTHONPATH=str(Path(__file__).parents[1]))
    return subprocess.run(
        command, env=variables, cwd=env.work, capture_output=True, check=False, timeout=120
    ).returncode


@pytest.mark.few(2)
@pytest.mark.parametrize("number", [5, 11, 14, 17])
def test_killed_before_a_change_of_a_file(number: int, make_env: Callable[..., Fake]) -> None:
    env = make_env("2.21.0")
    before = env.list_files()
    assert kill_before(env, number, *FIX) == -signal.SIGKILL
    check_recovery(env, before)


@pytest.mark.few(2)
@pytest.mark.parametrize("number", [4, 8, 13])
def test_undo_killed_before_a_change_of_a_file(number: int, make_env: Callable[..., Fake]) -> None:
    env = make_env("2.21.0")
    before = env.list_files()
    assert env.run(*FIX).status == 0
    assert kill_before(env, number, "fix", "--undo") == -signal.SIGKILL
    run = env.run("fix", "--undo")
    assert run.status == 0, run
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(1)
@pytest.mark.parametrize("installer", [pytest.param("uv", marks=needs_uv), "pip"])
@pytest.mark.parametrize("seen", ["steps/1/manifest.json", "header7.h", "header250.h"])
def test_killed_while_an_installer_works(seen: str, installer: str, make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_library(env)
    env.add_pip()
    before = env.list_files()
    path = env.root / ".tfdoctor" / seen if "/" in seen else env.nvidia_path(f"cufft/include/{seen}")
    process = env.start(*FIX, "--installer", installer)
    assert wait_until(path.exists, process), process.communicate()
    process.kill()
    process.communicate()
    check_recovery(env, before, "--installer", installer)


@pytest.mark.few(0)
def test_killed_at_a_random_time(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_library(env)
    before = env.list_files()
    process = env.start(*FIX)
    time.sleep(random.uniform(0.2, 2.0))
    process.kill()
    process.communicate()
    check_recovery(env, before)


# ---------------------------------------------------------------- an installer that never ends


def add_slow_uv(env: Fake) -> Path:
    """Add a uv that changes the environment and then hangs; return the file with its process id."""
    pid_file, folder = env.work / "installing", env.make_folder("slow")
    script = (
        "#!/bin/sh\n"
        f"case \"$*\" in \"pip install\"*) echo half > '{env.site}/half.py'; rm -r '{env.nvidia_path('cublas')}';\n"
        f"echo $$ > '{pid_file}.new'; mv '{pid_file}.new' '{pid_file}'; exec sleep 300;; esac\n"
    )
    (folder / "uv").write_text(script, encoding="utf-8")
    (folder / "uv").chmod(0o755)
    env.variables["PATH"] = f"{folder}:/usr/bin:/bin"
    return pid_file


def test_ctrl_c_ends_the_installer_and_undoes_everything(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_library(env)
    before = env.list_files()
    pid_file = add_slow_uv(env)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores SIGINT
    try:
        process = env.start(*FIX)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert wait_until(pid_file.exists, process), process.communicate()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Interrupted" in err) == (130, True), err
    assert difference(before, env.list_files()) == {}
    assert not Path(f"/proc/{int(pid_file.read_text())}").exists()
    assert not find_processes_by_word(str(env.root))


def test_killed_installer_is_reported_and_undone(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_library(env)
    before = env.list_files()
    pid_file = add_slow_uv(env)
    process = env.start(*FIX)
    assert wait_until(pid_file.exists, process), process.communicate()
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "uv was ended by SIGKILL" in out
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(0)
def test_installer_that_outlives_tfdoctor_is_awaited(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_library(env)
    before = env.list_files()
    pid_file = add_slow_uv(env)
    first = env.start(*FIX)
    assert wait_until(pid_file.exists, first), first.communicate()
    first.kill()
    first.wait()
    env.variables.pop("PATH")
    second = env.start(*FIX)
    assert second.stderr is not None
    message = second.stderr.readline()
    assert "is changing this environment; waiting for it." in message
    time.sleep(0.2)
    assert second.poll() is None
    assert (env.site / "half.py").exists()
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, (out, err)
    assert "what it had done was taken back" in " ".join(out.split()), out
    assert not (env.site / "half.py").exists()
    first.communicate()
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(0)
def test_two_runs_at_once_fix_only_once(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_library(env)
    before = env.list_files()
    processes = [env.start(*FIX, "--json") for _ in range(2)]
    outputs = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    statuses = [entry["status"] for output in outputs for entry in output["repairs"]]
    assert statuses == ["mended"]
    assert all(output["check"]["verdict"]["gpu_usable"] for output in outputs)
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}


def test_dry_run_reports_an_interrupted_step(make_env: Callable[..., Fake]) -> None:
    env = make_env("2.21.0")
    assert kill_before(env, 14, *FIX) == -signal.SIGKILL
    before = env.list_files()
    run = env.run("fix", "--dry-run", "--json")
    assert ["interrupted" in sentence for sentence in run.json()["recovered"]] == [True]
    assert "interrupted" in env.run("fix", "--dry-run").flat_output
    assert difference(before, env.list_files()) == {}
    run = env.run(*FIX, "--json")
    assert ["was taken back" in sentence for sentence in run.json()["recovered"]] == [True]
