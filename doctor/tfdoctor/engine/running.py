"""Running a command in a container: bounded in time, memory and output, and gone afterwards."""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest
from requests.exceptions import RequestException

from tfdoctor.engine.connection import EngineError, explain_api

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.engine.connection import Engine

__all__ = ["GpuAccess", "RunRequest", "RunResult", "create_container", "put_file", "remove_container", "run"]

LABEL = "io.tfdoctor.run"
"""What all our containers carry, so that a lost one can be found."""
_MOST_OUTPUT = 4 * 1024 * 1024
_STOP = 5
"""Seconds that a container has to end by itself."""
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class GpuAccess:
    """How GPUs get into a container."""

    way: Literal["none", "gpus", "runtime", "cdi"]
    """Nothing; `--gpus` (a hook); the `nvidia` runtime; a CDI device."""
    devices: tuple[str, ...] = ("all",)
    """"all", indexes, UUIDs; CDI: the part after `nvidia.com/gpu=`."""

    @property
    def option(self) -> str:
        """As it is typed after `docker run`."""
        if self.way == "gpus":
            return (
                "--gpus all" if self.devices == ("all",) else f"--gpus '\"device={','.join(self.devices)}\"'"
            )
        if self.way == "runtime":
            return f"--runtime nvidia -e NVIDIA_VISIBLE_DEVICES={','.join(self.devices)}"
        if self.way == "cdi":
            return " ".join(f"--device nvidia.com/gpu={device}" for device in self.devices)
        return ""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run."""

    image: str
    command: tuple[str, ...]
    gpus: GpuAccess = GpuAccess("none")
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path in the container → content; put there before it starts, and gone with it."""
    stdin: bytes = b""
    timeout: float = 120.0
    memory: int | None = None
    """Bytes."""
    network: bool = False
    user: str | None = None
    entrypoint: bool = False
    """Whether the image's own entry point is kept."""
    shm_size: int | None = None
    platform: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How it ended."""

    status: int | None
    """The exit status; None where it did not start, or had to be stopped."""
    stdout: str
    stderr: str
    truncated: bool
    """More was printed than is kept (4 MiB of each)."""
    timed_out: bool
    oom_killed: bool
    start_error: str
    """The engine's words where the container could not be started; empty where it was."""
    seconds: float

    @property
    def signal(self) -> int | None:
        """The signal that ended the command, where one did."""
        return self.status - 128 if self.status is not None and 128 < self.status < 160 else None


def run(engine: Engine, request: RunRequest, on_line: Callable[[str], None] | None = None) -> RunResult:
    """Run a command in a new container and remove it, however this ends.

    `on_line` is given each line of standard output as it comes. Raises EngineError where the image is not there or
    the engine went away; a container that cannot be started is a result (`start_error`).
    """
    api = engine.client.api
    began = time.monotonic()
    container = ""
    try:
        try:
            container = create_container(engine, request, request.command, stdin=bool(request.stdin))
        except ImageNotFound as error:
            msg = f"the image {request.image} is not here."
            raise EngineError(msg, hint=f"docker pull {request.image}") from error
        except APIError as error:
            return _not_started(error, began)
        for path, content in request.files.items():
            put_file(engine, container, path, content)
        collected = _Output(on_line)
        socket = _attach(api, container, collected, request)
        try:
            api.start(container)
        except APIError as error:
            return _not_started(error, began)
        return _wait(engine, request, container, collected, socket, began)
    except (APIError, DockerException, RequestException, OSError) as error:
        if isinstance(error, EngineError):
            raise
        raise explain_api(error, f"running {request.image}") from error
    finally:
        if container:
            remove_container(engine, container)


def create_container(engine: Engine, request: RunRequest, command: tuple[str, ...], *, stdin: bool) -> str:
    """The id of a new container, not started. Raises APIError."""
    api = engine.client.api
    environment = dict(request.environment)
    options: dict[str, Any] = {
        "mem_limit": request.memory,
        "network_mode": None if request.network else "none",
        "shm_size": request.shm_size,
        "init": engine.name == "docker",
        "security_opt": ["no-new-privileges"],
    }
    devices = list(request.gpus.devices)
    if request.gpus.way == "gpus":
        options["device_requests"] = [_device_request(devices)]
    elif request.gpus.way == "runtime":
        options["runtime"] = "nvidia"
        environment["NVIDIA_VISIBLE_DEVICES"] = ",".join(devices)
    elif request.gpus.way == "cdi" and engine.name == "docker":
        names = [f"nvidia.com/gpu={device}" for device in devices]
        options["device_requests"] = [DeviceRequest(driver="cdi", device_ids=names)]
    elif request.gpus.way == "cdi":
        options["devices"] = [f"nvidia.com/gpu={device}" for device in devices]
    config = api.create_host_config(**{key: value for key, value in options.items() if value is not None})
    if request.gpus.way == "cdi" and engine.name == "podman":
        # The SDK makes three paths of a device's name; Podman wants CDI's name as it is.
        config["Devices"] = [
            {"PathOnHost": f"nvidia.com/gpu={device}", "PathInContainer": "", "CgroupPermissions": ""}
            for device in devices
        ]
    made = api.create_container(
        image=request.image,
        command=list(command),
        entrypoint=None if request.entrypoint else [],
        environment=environment,
        host_config=config,
        stdin_open=stdin,
        tty=False,
        user=request.user,
        labels={LABEL: "1"},
        platform=request.platform,
    )
    return str(made["Id"])


def _device_request(devices: list[str]) -> DeviceRequest:
    if devices == ["all"]:
        return DeviceRequest(count=-1, capabilities=[["gpu"]])
    return DeviceRequest(device_ids=devices, capabilities=[["gpu"]])


def put_file(engine: Engine, container: str, path: str, content: bytes) -> None:
    """Put a file into a container that is not started yet."""
    folder, _, name = path.rpartition("/")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = len(content), 0o444, 0
        archive.addfile(entry, io.BytesIO(content))
    engine.client.api.put_archive(container, folder or "/", out.getvalue())


class _Output:
    """The two streams, bounded; what is beyond is read and dropped, so that the container is never held up."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._parts: dict[int, list[bytes]] = {1: [], 2: []}
        self._size = {1: 0, 2: 0}
        self._on_line = on_line
        self._rest = b""
        self.truncated = False
        self.thread: threading.Thread | None = None

    def read(self, stream: Any) -> None:
        """Until the container closes both streams."""
        with contextlib.suppress(Exception):  # the connection ends with the container, in whatever way
            for stdout, stderr in stream:
                for which, piece in ((1, stdout), (2, stderr)):
                    if piece:
                        self._take(which, piece)

    def _take(self, which: int, piece: bytes) -> None:
        room = _MOST_OUTPUT - self._size[which]
        if len(piece) > room:
            self.truncated = True
        if room > 0:
            self._parts[which].append(piece[:room])
            self._size[which] += len(piece[:room])
        if which == 1 and self._on_line is not None:
            lines = (self._rest + piece).split(b"\n")
            self._rest = lines.pop()[-65536:]
            for line in lines:
                self._on_line(line[:65536].decode("utf-8", "replace"))

    def text(self, which: int) -> str:
        return b"".join(self._parts[which]).decode("utf-8", "replace")


def _attach(api: Any, container: str, collected: _Output, request: RunRequest) -> Any:
    stream = api.attach(container, stdout=True, stderr=True, stream=True, logs=True, demux=True)
    collected.thread = threading.Thread(target=collected.read, args=(stream,), daemon=True)
    collected.thread.start()
    if not request.stdin:
        return None
    socket = api.attach_socket(container, params={"stdin": 1, "stream": 1})
    raw = getattr(socket, "_sock", socket)
    with contextlib.suppress(OSError):
        raw.sendall(request.stdin)
        raw.shutdown(1)
    return socket


def _wait(
    engine: Engine, request: RunRequest, container: str, collected: _Output, socket: Any, began: float
) -> RunResult:
    api = engine.client.api
    deadline = began + request.timeout
    timed_out = False
    state: dict[str, Any] = {}
    pause = _POLL
    while True:
        state = api.inspect_container(container)["State"]
        if not state.get("Running") and state.get("Status") != "created":
            break
        if time.monotonic() > deadline:
            timed_out = True
            with contextlib.suppress(APIError, RequestException):
                api.kill(container)
            break
        time.sleep(pause)
        pause = min(pause * 1.3, 0.5)
    if socket is not None:
        with contextlib.suppress(Exception):
            socket.close()
    if collected.thread is not None:
        collected.thread.join(_STOP)
    return RunResult(
        status=None if timed_out else int(state.get("ExitCode", 0)),
        stdout=collected.text(1),
        stderr=collected.text(2),
        truncated=collected.truncated,
        timed_out=timed_out,
        oom_killed=bool(state.get("OOMKilled")),
        start_error="",
        seconds=time.monotonic() - began,
    )


def _not_started(error: APIError, began: float) -> RunResult:
    said = str(error.explanation or error)[:8000]
    return RunResult(None, "", "", False, False, False, said, time.monotonic() - began)


def remove_container(engine: Engine, container: str) -> None:
    """Also while a Ctrl-C is on its way: a second try, and then the engine is told once more."""
    for _ in range(2):
        try:
            engine.client.api.remove_container(container, force=True, v=True)
        except NotFound:
            return
        except (APIError, RequestException):
            time.sleep(0.2)
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                engine.client.api.remove_container(container, force=True, v=True)
            raise
        else:
            return
