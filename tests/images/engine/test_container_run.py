"""Tests of running a command in a container of a real engine: limits, results and cleanup."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.images.engine import EngineError, GpuAccess, RunRequest, run
from tfdoctor.images.engine.container_run import _MAX_OUTPUT_BYTES

if TYPE_CHECKING:
    from tfdoctor.images.engine import ContainerEngine

pytestmark = pytest.mark.usefixtures("nothing_left")


def shell(image: str, script: str, **options: Any) -> RunRequest:
    return RunRequest(image, ("sh", "-c", script), **options)


def test_status_and_both_streams(engine: ContainerEngine, small: str) -> None:
    result = run(engine, shell(small, "echo out; echo err >&2; exit 3"))
    assert (result.status, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert (result.timed_out, result.oom_killed, result.is_truncated, result.start_error) == (False,) * 3 + (
        "",
    )


def test_standard_input_files_and_environment(engine: ContainerEngine, small: str) -> None:
    request = shell(
        small,
        'cat; cat /tmp/note; echo "$WORD"',
        stdin=b"given\n",
        files={"/tmp/note": b"a file\n"},
        environment={"WORD": "it's $HOME"},
    )
    assert run(engine, request).stdout == "given\na file\nit's $HOME\n"


def test_a_megabyte_of_standard_input(engine: ContainerEngine, small: str) -> None:
    script = "import sys; print(len(sys.stdin.buffer.read()))"
    result = run(engine, RunRequest(small, ("python3", "-c", script), stdin=b"x" * 1_000_000))
    assert result.stdout == "1000000\n"


def test_container_is_stopped_at_its_deadline(engine: ContainerEngine, small: str) -> None:
    start = time.monotonic()
    result = run(engine, shell(small, "echo before; sleep 60", timeout_s=1))
    assert time.monotonic() - start < 20
    assert (result.timed_out, result.status, result.stdout) == (True, None, "before\n")


@pytest.mark.parametrize(("name", "number"), [("KILL", 9), ("SEGV", 11), ("ABRT", 6)])
def test_signal_of_the_process_is_reported(
    engine: ContainerEngine, small: str, name: str, number: int
) -> None:
    script = f"import os, signal; os.kill(os.getpid(), signal.SIG{name})"
    assert run(engine, RunRequest(small, ("python3", "-c", script))).signal == number


def test_out_of_memory_is_distinguished_from_a_kill(engine: ContainerEngine, small: str) -> None:
    script = "x = bytearray(400 << 20)"
    result = run(engine, RunRequest(small, ("python3", "-c", script), memory_bytes=64 << 20))
    assert result.oom_killed
    assert result.signal == 9


def test_long_output_is_truncated(engine: ContainerEngine, small: str) -> None:
    lines: list[str] = []
    script = "import os; [os.write(fd, (b'x' * 999 + b'\\n') * 9000) for fd in (1, 2)]; print('end')"
    result = run(engine, RunRequest(small, ("python3", "-c", script)), lines.append)
    assert result.status == 0
    assert result.is_truncated
    assert len(result.stdout) == len(result.stderr) == _MAX_OUTPUT_BYTES
    assert lines[-1] == "end"
    assert len(lines) == 9001


def test_no_network_by_default(engine: ContainerEngine, small: str) -> None:
    script = "import socket; print(len(socket.if_nameindex()))"
    assert run(engine, RunRequest(small, ("python3", "-c", script))).stdout == "1\n"


def test_undecodable_output_is_replaced(engine: ContainerEngine, small: str) -> None:
    script = "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\x1b[31m')"
    assert run(engine, RunRequest(small, ("python3", "-c", script))).stdout == "\ufffd\x00\x1b[31m"


def test_missing_program_is_reported(engine: ContainerEngine, small: str) -> None:
    result = run(engine, RunRequest(small, ("no-such-program",)))
    assert result.status in (127, None)
    assert "no-such-program" in result.stderr + result.start_error


def test_missing_image_raises(engine: ContainerEngine) -> None:
    with pytest.raises(EngineError, match="tfdoctor-test/none:1 is not here") as caught:
        run(engine, RunRequest("tfdoctor-test/none:1", ("true",)))
    assert caught.value.hint == "docker pull tfdoctor-test/none:1"


def test_missing_runtime_is_reported(engine: ContainerEngine, small: str) -> None:
    if "nvidia" in engine.runtimes:
        pytest.skip("this engine has it")
    result = run(engine, shell(small, "true", gpus=GpuAccess("runtime")))
    assert result.status is None
    assert "nvidia" in result.start_error


def test_interrupt_removes_the_container(engine: ContainerEngine, small: str) -> None:
    """Ctrl-C may be raised anywhere; the fixture `nothing_left` checks the cleanup."""

    def raise_interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfdoctor.images.engine.container_run.time.sleep", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(engine, shell(small, "sleep 60"))
