"""Tests of running containers and of a container as a `System`, on a fake engine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from docker.errors import ImageNotFound

from images.engine.fake_engine import FakeApi, make_api_error, make_engine, make_frame, make_not_found
from tfdoctor import payload
from tfdoctor.images.engine import EngineError, GpuAccess, RunRequest, container_run, run
from tfdoctor.images.engine import system as system_module
from tfdoctor.images.engine.container_run import (
    SIMULATION_FOLDER,
    AttachedStreams,
    RunResult,
    create_container,
    put_simulation_folder,
    remove_container,
)
from tfdoctor.images.engine.system import ContainerEndedError, ContainerSystem, StartError
from tfdoctor.system import Failure, LiveSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = Path(payload.__file__).with_name("agent.py")
MARKER = b"tfdoctor-payload:"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_run.time, "sleep", lambda _: None)


# ---------------------------------------------------------------- requests and results


@pytest.mark.parametrize(
    ("access", "options"),
    [
        (GpuAccess("none"), ""),
        (GpuAccess("gpus"), "--gpus all"),
        (GpuAccess("gpus", ("0", "1")), "--gpus '\"device=0,1\"'"),
        (GpuAccess("runtime", ("0",)), "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0"),
        (GpuAccess("cdi", ("0", "1")), "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1"),
    ],
)
def test_gpu_options_of_docker_run(access: GpuAccess, options: str) -> None:
    assert access.run_options == options


@pytest.mark.parametrize(
    ("status", "signal"), [(None, None), (1, None), (128, None), (129, 1), (137, 9), (159, 31), (160, None)]
)
def test_status_above_128_is_a_signal(status: int | None, signal: int | None) -> None:
    result = RunResult(
        status=status,
        stdout="",
        stderr="",
        is_truncated=False,
        timed_out=False,
        oom_killed=False,
        start_error="",
        seconds=1,
    )
    assert result.signal == signal


def create(request: RunRequest, name: str = "docker") -> dict[str, Any]:
    api = FakeApi()
    create_container(make_engine(api, name), request, ("true",), name="x", stdin=False)
    return api.created


def test_container_has_neither_network_nor_new_privileges() -> None:
    created = create(RunRequest("image", ()))
    assert created["host_config"] == {
        "NetworkMode": "none",
        "Init": True,
        "SecurityOpt": ["no-new-privileges"],
    }
    assert (created["entrypoint"], created["tty"], created["stdin_open"]) == ([], False, False)
    request = RunRequest(
        "image", (), has_network=True, keeps_entrypoint=True, memory_bytes=1 << 20, shm_size=9
    )
    created = create(request, "podman")
    assert created["host_config"] == {
        "NetworkMode": "default",
        "Init": False,
        "SecurityOpt": ["no-new-privileges"],
        "Memory": 1 << 20,
        "ShmSize": 9,
    }
    assert created["entrypoint"] is None


@pytest.mark.parametrize(
    ("access", "device_request"),
    [
        (GpuAccess("gpus"), {"Count": -1, "Capabilities": [["gpu"]]}),
        (GpuAccess("gpus", ("1",)), {"DeviceIDs": ["1"], "Capabilities": [["gpu"]]}),
        (GpuAccess("cdi"), {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}),
    ],
)
def test_gpus_are_requested(access: GpuAccess, device_request: dict[str, Any]) -> None:
    (requested,) = create(RunRequest("image", (), gpus=access))["host_config"]["DeviceRequests"]
    assert {key: value for key, value in requested.items() if value} == device_request


def test_runtime_gets_the_devices_in_a_variable() -> None:
    created = create(RunRequest("image", (), gpus=GpuAccess("runtime", ("0", "2")), environment={"A": "b"}))
    assert created["host_config"]["Runtime"] == "nvidia"
    assert created["environment"] == {"A": "b", "NVIDIA_VISIBLE_DEVICES": "0,2"}


@pytest.mark.parametrize(("stdin", "memory"), [(True, None), (False, 7)])
def test_podman_gets_cdi_devices_through_its_own_api(stdin: bool, memory: int | None) -> None:
    api = Mock(base_url="http://p", timeout=3)
    request = RunRequest(
        "image", (), gpus=GpuAccess("cdi", ("0",)), memory_bytes=memory, keeps_entrypoint=stdin
    )
    create_container(make_engine(api, "podman"), request, ("true",), name="x", stdin=stdin)
    body = api.post.call_args.kwargs["json"]
    assert body["devices"] == [{"path": "nvidia.com/gpu=0"}]
    assert body["netns"] == {"nsmode": "none"}
    assert body["no_new_privileges"] is True
    assert body.get("stdin") == (True if stdin else None)
    assert body.get("entrypoint") == (None if stdin else [])
    assert body.get("resource_limits") == ({"memory": {"limit": 7}} if memory else None)
    assert api.post.call_args.kwargs["allow_redirects"] is False
    assert not api.create_container.called


# ---------------------------------------------------------------- run


def test_output_status_and_files() -> None:
    api = FakeApi(
        make_frame(1, b"one\ntw") + make_frame(2, b"bad\xff") + make_frame(1, b"o\nthree"), ExitCode=3
    )
    lines: list[str] = []
    result = run(
        make_engine(api), RunRequest("image", ("a",), files={"/f": b"1", "/d/e": b"2"}), lines.append
    )
    assert (result.status, result.stdout, result.stderr) == (3, "one\ntwo\nthree", "bad\ufffd")
    assert (result.timed_out, result.is_truncated, result.oom_killed, result.start_error) == (False,) * 3 + (
        "",
    )
    assert lines == ["one", "two"]
    assert api.files == {"/f": (b"1", 0o444), "/d/e": (b"2", 0o444)}
    assert "stdin" not in api.params
    assert api.calls[-1] == "remove_container"


@pytest.mark.parametrize(("more", "truncated"), [(0, False), (1, True)])
def test_output_is_stored_up_to_the_limit(
    more: int, truncated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_run, "_MAX_OUTPUT_BYTES", 10)
    monkeypatch.setattr(container_run, "_MAX_LINE_BYTES", 4)
    lines: list[str] = []
    api = FakeApi(make_frame(1, b"123456\n") + make_frame(1, b"78\n" + b"x" * more) + make_frame(2, b"e"))
    result = run(make_engine(api), RunRequest("image", ()), lines.append)
    assert (result.stdout, result.stderr, result.is_truncated) == ("123456\n78\n", "e", truncated)
    assert lines == ["1234", "78"]


def test_incomplete_frame_is_dropped() -> None:
    api = FakeApi(make_frame(1, b"whole") + make_frame(1, b"half")[:-1])
    assert run(make_engine(api), RunRequest("image", ())).stdout == "whole"


def test_container_is_killed_at_the_timeout() -> None:
    api = FakeApi(Running=True, Status="running", OOMKilled=True)
    result = run(make_engine(api), RunRequest("image", (), timeout_s=-1))
    assert (result.status, result.timed_out, result.oom_killed) == (None, True, True)
    assert api.calls[-2:] == ["kill", "remove_container"]


def test_created_container_has_not_ended() -> None:
    api = FakeApi(Status="created")
    assert run(make_engine(api), RunRequest("image", (), timeout_s=-1)).timed_out


@pytest.mark.parametrize(
    ("method", "removed"), [("create_container", False), ("attach_socket", True), ("start", True)]
)
def test_refused_start_is_reported(method: str, removed: bool) -> None:
    api = FakeApi()
    api.errors[method] = [make_api_error("no runtime")]
    result = run(make_engine(api), RunRequest("image", ()))
    assert (result.status, result.start_error) == (None, "no runtime")
    assert ("remove_container" in api.calls) is removed


def test_failing_engine_raises() -> None:
    api = FakeApi()
    api.errors["create_container"] = [ImageNotFound("x")]
    with pytest.raises(EngineError, match="the image image is not here") as caught:
        run(make_engine(api), RunRequest("image", ()))
    assert caught.value.hint == "docker pull image"
    assert "remove_container" not in api.calls
    api.errors["inspect_container"] = [make_api_error("cannot connect")]
    with pytest.raises(EngineError, match="running image: ") as caught:
        run(make_engine(api), RunRequest("image", ()))
    assert "The engine went away" in caught.value.hint
    assert api.calls[-1] == "remove_container"


@pytest.mark.parametrize(
    ("errors", "is_created", "attempts"),
    [
        ([], True, 1),
        ([make_not_found()] * 9, True, 1),
        ([make_not_found()] * 3, False, 4),
        ([make_api_error("busy")], True, 2),
        ([make_api_error("busy")] * 9, True, 2),
    ],
)
def test_removal_is_repeated(errors: list[BaseException], is_created: bool, attempts: int) -> None:
    """A container that the engine may still create is missing for a moment."""
    api = FakeApi()
    api.errors["remove_container"] = [*errors]
    remove_container(make_engine(api), "x", is_created=is_created)
    assert api.calls == ["remove_container"] * attempts


def test_interrupted_removal_is_tried_once_more() -> None:
    api = FakeApi()
    api.errors["remove_container"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        remove_container(make_engine(api), "x")
    assert api.calls == ["remove_container"] * 2


def test_simulation_files_are_executable_for_everybody() -> None:
    api = FakeApi()
    put_simulation_folder(make_engine(api), "x", {"libcuda.so.1": b"elf"})
    assert api.files == {
        SIMULATION_FOLDER: (b"", 0o555),
        f"{SIMULATION_FOLDER}/libcuda.so.1": (b"elf", 0o555),
    }


def test_standard_input_is_sent_and_closed() -> None:
    api = FakeApi()
    api.program = ["sort"]
    attached = AttachedStreams(make_engine(api), "x", stdin=True)
    api.start("x")
    container_run._send_input(attached, b"b\na\n")
    assert [*attached.read_frames()] == [(1, b"a\n"), (1, b"b\n")]
    assert api.params["stdin"] == 1
    attached.close()


# ---------------------------------------------------------------- a container as a System


@pytest.fixture
def container(tmp_path: Path) -> Iterator[ContainerSystem]:
    """Yield a system whose agent runs on this machine."""
    api = FakeApi(OOMKilled=True)
    api.program = [sys.executable, "-B", str(AGENT)]
    with ContainerSystem(make_engine(api), RunRequest("image", (), simulation_files={"a": b""})) as system:
        yield system
    assert api.calls[-1] == "remove_container"
    assert {path for path in api.files if "simulated" in path}


def test_files_and_commands_of_a_container(container: ContainerSystem, tmp_path: Path) -> None:
    content = os.urandom(100) * 3000
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "link").symlink_to("file")
    file = str(tmp_path / "file")
    assert container.read_bytes(file) == content
    assert container.read_bytes(file, limit=7) == content[:7]
    assert (container.exists(file), container.exists(f"{file}x")) == (True, False)
    assert (container.is_dir(file), container.is_dir(str(tmp_path))) == (False, True)
    assert sorted(container.listdir(str(tmp_path))) == ["file", "link"]
    assert container.realpath(str(tmp_path / "link")) == os.path.realpath(file)
    assert (container.which("sh") is not None, container.which("no-such-program")) == (True, None)
    assert (container.own_python, container.cwd) == (None, str(Path.cwd()))
    assert container.env["PATH"] == os.environ["PATH"]
    with pytest.raises(FileNotFoundError):
        container.read_text(f"{file}x")
    assert container.get_state()["OOMKilled"]
    assert container.read_elf(sys.executable) == LiveSystem().read_elf(sys.executable)


def test_results_of_commands(container: ContainerSystem) -> None:
    result = container.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=20)
    assert (result.returncode, result.stdout, result.stderr, result.failure) == (3, "out\n", "err\n", None)
    assert container.run(["/no/such"], timeout=20).failure is Failure.NOT_FOUND
    assert container.run(["/etc/passwd"], timeout=20).failure is Failure.PERMISSION
    late = container.run(["sleep", "30"], timeout=0.2)
    assert (late.returncode, late.failure, late.seconds) == (None, Failure.TIMEOUT, 0.2)
    payload_path = str(AGENT.with_name("agent.py"))
    listed = container.run(["ls", payload_path], timeout=20)
    assert listed.stdout.strip().endswith("/agent.py")
    assert listed.stdout.strip() != payload_path
    container.stop()
    assert container.run(["true"], timeout=20).failure is Failure.OS_ERROR


def script_replies(*replies: Any, error: bytes = b"") -> bytes:
    frames = b"".join(make_frame(1, MARKER + json.dumps(reply).encode() + b"\n") for reply in replies)
    return make_frame(1, b"hello\n") + frames + (make_frame(2, error) if error else b"")


HELLO = {"id": 1, "env": {"A": 5}, "cwd": "/w", "platform": {"machine": "x86_64"}}


def test_platform_is_complete() -> None:
    with ContainerSystem(
        make_engine(FakeApi(script_replies([1], "x", {"id": True}, HELLO))), RunRequest("i", ())
    ) as system:
        assert system.env == {"A": "5"}
        assert system.platform == {"system": "Linux", "machine": "x86_64", "release": "", "uid": ""}
        with pytest.raises(ContainerEndedError):
            system.exists("/")


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (script_replies(error=b"first\nlast line\n"), "the container ended: last line"),
        (script_replies(), "the container ended."),
        (script_replies({**HELLO, "env": 5}), "the container's answer cannot be read"),
        (script_replies({"id": 1}), "the container's answer cannot be read"),
        (script_replies({"id": 1, "errno": 13, "strerror": "no"}), "no"),
        (make_frame(1, MARKER + b"[" * 100_000 + b"\n"), "the container ended."),
    ],
)
def test_invalid_start_is_reported(frames: bytes, message: str) -> None:
    api = FakeApi(frames)
    with pytest.raises(EngineError) as caught:
        ContainerSystem(make_engine(api), RunRequest("i", ()))
    assert message in caught.value.message
    assert api.calls.count("remove_container") == 1


def test_reply_may_come_in_pieces() -> None:
    whole = MARKER + json.dumps(HELLO).encode() + b"\n"
    api = FakeApi(make_frame(1, whole[:5]) + make_frame(2, b"warning") + make_frame(1, whole[5:]))
    with ContainerSystem(make_engine(api), RunRequest("i", ())) as system:
        assert system.cwd == "/w"


def test_memory_that_ran_out_is_reported() -> None:
    with pytest.raises(ContainerEndedError, match="was killed because memory ran out") as caught:
        ContainerSystem(make_engine(FakeApi(OOMKilled=True)), RunRequest("i", ()))
    assert caught.value.is_out_of_memory
    assert not caught.value.has_no_python


def test_missing_shell_is_replaced_by_python() -> None:
    api = FakeApi(script_replies(HELLO))
    api.errors["start"] = [make_api_error('exec: "sh": executable file not found in $PATH')]
    with ContainerSystem(make_engine(api), RunRequest("i", ())) as system:
        assert api.created["command"][0] == "python3"
        assert system.cwd == "/w"
    api.errors["start"] = [
        make_api_error(f"exec {name} failed: No such file or directory")
        for name in ("sh", "python3", "python")
    ]
    with pytest.raises(ContainerEndedError) as caught:
        ContainerSystem(make_engine(api), RunRequest("i", ()))
    assert caught.value.has_no_python


@pytest.mark.parametrize("method", ["create_container", "start"])
def test_refused_start_of_a_system_raises(method: str) -> None:
    api = FakeApi()
    api.errors[method] = [make_api_error('unknown runtime "nvidia": not found in $PATH')]
    with pytest.raises(StartError, match="unknown runtime"):
        ContainerSystem(make_engine(api), RunRequest("i", ()))
    assert api.calls.count("remove_container") == (method == "start")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('exec: \\"python3\\": executable file not found in $PATH', True),
        ("executable file `python3` not found in $PATH", True),
        ("exec python3 failed: No such file or directory", True),
        ("exec python3 failed: Permission denied", False),
        ("exec python failed: No such file or directory", False),
    ],
)
def test_message_about_a_missing_command(message: str, expected: bool) -> None:
    assert system_module._is_missing_command(message, "python3") is expected


def test_blocks_of_a_remote_file_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import base64

    monkeypatch.setattr(system_module, "_READ_BYTES", 4)
    offsets: list[int] = []

    class Blocks:
        def _ask(self, request: dict[str, Any]) -> dict[str, str]:
            offsets.append(request["offset"])
            return {"data": base64.b64encode(b"abcdefghij"[request["offset"] :][:4]).decode()}

    file = system_module._RemoteFile(Blocks(), "/f", b"abcd", 10)  # type: ignore[arg-type]
    assert (file.read(2), file.tell(), file.read(5), offsets) == (b"ab", 2, b"cdefg", [4])
    assert (file.seek(-2, 2), file.read(), file.read(3)) == (8, b"ij", b"")
    assert (file.seek(1), file.seek(2, 1), file.read(1), offsets) == (1, 3, b"d", [4, 8])
    short = system_module._RemoteFile(Blocks(), "/f", b"abcd", 20)  # type: ignore[arg-type]
    assert short.read() == b"abcdefghij"
