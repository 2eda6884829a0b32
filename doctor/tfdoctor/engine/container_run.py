"""Running a command in a container: bounded in time, memory and output, and gone afterwards."""

from __future__ import annotations

import contextlib
import io
import secrets
import socket
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
    from collections.abc import Callable, Iterator, Mapping

    from tfdoctor.engine.connection import ContainerEngine

__all__ = [
    "FOLDER",
    "Attached",
    "GpuAccess",
    "RunRequest",
    "RunResult",
    "create_container",
    "put_file",
    "put_folder",
    "remove_container",
    "run",
]

LABEL = "io.tfdoctor.run"
"""What all our containers carry, so that a lost one can be found."""
FOLDER = "/tfdoctor-simulated"
"""The folder of ours in a container (`RunRequest.folder`): no image has one of that name."""
_MAX_OUTPUT_BYTES = 4 * 1024 * 1024
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
    folder: Mapping[str, bytes] = field(default_factory=dict)
    """Names of files → content, for the folder FOLDER: made before it starts, and gone with it."""


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


def run(
    engine: ContainerEngine, request: RunRequest, on_line: Callable[[str], None] | None = None
) -> RunResult:
    """Run a command in a new container and remove it, however this ends.

    `on_line` is given each line of standard output as it comes. Raises EngineError where the image is not there or
    the engine went away; a container that cannot be started is a result (`start_error`).
    """
    api = engine.client.api
    began = time.monotonic()
    container, made = new_name(), False
    attached: Attached | None = None
    try:
        try:
            create_container(engine, request, request.command, name=container, stdin=bool(request.stdin))
            made = True
        except ImageNotFound as error:
            container = ""
            msg = f"the image {request.image} is not here."
            raise EngineError(msg, hint=f"docker pull {request.image}") from error
        except APIError as error:
            container = ""
            return _make_start_failure(error, began)
        for path, content in request.files.items():
            put_file(engine, container, path, content)
        try:  # Podman prepares the container, its GPUs too, when it is attached to
            attached = Attached(engine, container, stdin=bool(request.stdin))
            api.start(container)
        except APIError as error:
            return _make_start_failure(error, began)
        return _wait(engine, request, container, attached, _Output(on_line), began)
    except (APIError, DockerException, RequestException, OSError) as error:
        if isinstance(error, EngineError):
            raise
        raise explain_api(error, f"running {request.image}") from error
    finally:
        if container:
            remove_container(engine, container, made=made)
        if attached is not None:
            attached.close()


def new_name() -> str:
    """Return a container's name, chosen here, so that what an engine was just making can be removed, too."""
    return f"tfdoctor-{secrets.token_hex(8)}"


def create_container(
    engine: ContainerEngine, request: RunRequest, command: tuple[str, ...], *, name: str, stdin: bool
) -> None:
    """Make a container; it is not started. Raises APIError."""
    if engine.name == "podman" and request.gpus.way == "cdi":
        _create_in_podman(engine, request, command, name=name, stdin=stdin)
        return
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
    elif request.gpus.way == "cdi":
        names = [f"nvidia.com/gpu={device}" for device in devices]
        options["device_requests"] = [DeviceRequest(driver="cdi", device_ids=names)]
    config = api.create_host_config(**{key: value for key, value in options.items() if value is not None})
    api.create_container(
        name=name,
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


def _create_in_podman(
    engine: ContainerEngine, request: RunRequest, command: tuple[str, ...], *, name: str, stdin: bool
) -> None:
    """Through Podman's own API: the one that it shares with Docker takes paths of devices alone (4.3), no CDI names."""
    api = engine.client.api
    asked: dict[str, Any] = {
        "name": name,
        "image": request.image,
        "command": list(command),
        "entrypoint": None if request.entrypoint else [],
        "env": dict(request.environment),
        "devices": [{"path": f"nvidia.com/gpu={device}"} for device in request.gpus.devices],
        "labels": {LABEL: "1"},
        "netns": None if request.network else {"nsmode": "none"},
        "no_new_privileges": True,
        "resource_limits": {"memory": {"limit": request.memory}} if request.memory else None,
        "shm_size": request.shm_size,
        "stdin": stdin or None,
        "user": request.user,
    }
    given = {key: value for key, value in asked.items() if value is not None}
    answer = api.post(
        f"{api.base_url}/v4.0.0/libpod/containers/create",
        json=given,
        timeout=api.timeout,
        allow_redirects=False,
    )
    api._raise_for_status(answer)  # type: ignore[attr-defined] # noqa: SLF001 - as the SDK does for its own


def _device_request(devices: list[str]) -> DeviceRequest:
    if devices == ["all"]:
        return DeviceRequest(count=-1, capabilities=[["gpu"]])
    return DeviceRequest(device_ids=devices, capabilities=[["gpu"]])


def put_file(engine: ContainerEngine, container: str, path: str, content: bytes) -> None:
    """Put a file into a container that is not started yet."""
    folder, _, name = path.rpartition("/")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = len(content), 0o444, 0
        archive.addfile(entry, io.BytesIO(content))
    engine.client.api.put_archive(container, folder or "/", out.getvalue())


def put_folder(engine: ContainerEngine, container: str, files: Mapping[str, bytes]) -> None:
    """Put FOLDER with these files into a container that is not started yet: whoever runs in it may read it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        folder = tarfile.TarInfo(FOLDER.strip("/"))
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o555, 0
        archive.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o555, 0
            archive.addfile(entry, io.BytesIO(content))
    engine.client.api.put_archive(container, "/", out.getvalue())


class _Output:
    """The two streams, bounded; what is beyond is read and dropped, so that the container is never held up."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._parts: dict[int, list[bytes]] = {1: [], 2: []}
        self._size = {1: 0, 2: 0}
        self._on_line = on_line
        self._rest = b""
        self.truncated = False

    def read(self, attached: Attached) -> None:
        """Until the container closes both streams."""
        with contextlib.suppress(
            OSError, ValueError
        ):  # the connection ends with the container, in whatever way
            for which, piece in attached.frames():
                self._take(which, piece)

    def _take(self, which: int, piece: bytes) -> None:
        room = _MAX_OUTPUT_BYTES - self._size[which]
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


class Attached:
    """The streams of a container, over one connection of the engine's. Attach before the container starts."""

    def __init__(self, engine: ContainerEngine, container: str, *, stdin: bool) -> None:
        """Raises APIError, RequestException."""
        params = {"stdout": 1, "stderr": 1, "stream": 1, **({"stdin": 1} if stdin else {})}
        self._file: Any = engine.client.api.attach_socket(container, params=params)
        self._socket: Any = getattr(self._file, "_sock", self._file)
        with contextlib.suppress(Exception):
            self._socket.settimeout(None)

    def send(self, data: bytes) -> None:
        """Raises OSError."""
        self._socket.sendall(data)

    def end_input(self) -> None:
        """No more comes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield (1 or 2, a piece of standard output or error), until the container ends. Raises OSError."""
        while True:
            header = self._exactly(8)
            if header is None:
                return
            body = self._exactly(int.from_bytes(header[4:8], "big"))
            if body is None:
                return
            yield (2 if header[0] == 2 else 1), body

    def _exactly(self, count: int) -> bytes | None:
        parts = []
        while count:
            piece = self._socket.recv(min(count, 1 << 20))
            if not piece:
                return None
            parts.append(piece)
            count -= len(piece)
        return b"".join(parts)

    def close(self) -> None:
        """End the connection; whoever reads from it sees its end."""
        with contextlib.suppress(Exception):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(Exception):
            self._file.close()
        with contextlib.suppress(Exception):
            self._file._response.close()  # noqa: SLF001 - the SDK keeps it there, and nowhere else
        with contextlib.suppress(Exception):
            self._socket.close()


def _feed(attached: Attached, data: bytes) -> None:
    """In a thread: a command that reads slowly, or nothing, must not hold anyone up."""
    with contextlib.suppress(OSError):
        attached.send(data)
    attached.end_input()


def _wait(
    engine: ContainerEngine,
    request: RunRequest,
    container: str,
    attached: Attached,
    collected: _Output,
    began: float,
) -> RunResult:
    api = engine.client.api
    reader = threading.Thread(target=collected.read, args=(attached,), daemon=True)
    reader.start()
    if request.stdin:
        threading.Thread(target=_feed, args=(attached, request.stdin), daemon=True).start()
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
    reader.join(_STOP)
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


def _make_start_failure(error: APIError, began: float) -> RunResult:
    said = str(error.explanation or error)[:8000]
    return RunResult(None, "", "", False, False, False, said, time.monotonic() - began)


def remove_container(engine: ContainerEngine, container: str, *, made: bool = True) -> None:
    """Also while a Ctrl-C is on its way: then the engine is told once more.

    `made`: whether the engine has said that it made it; else it may be making it just now, and is waited for.
    """
    deadline = time.monotonic() + (0 if made else _STOP)
    tries = 0
    while tries < 2:
        try:
            engine.client.api.remove_container(container, force=True, v=True)
        except NotFound:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL)
        except (APIError, RequestException):
            tries += 1
            time.sleep(0.2)
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                engine.client.api.remove_container(container, force=True, v=True)
            raise
        else:
            return
