"""Run commands in containers with limits on time, memory and output, and remove the containers."""

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

from tfdoctor.images.engine.connection import EngineError, make_engine_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfdoctor.images.engine.connection import ContainerEngine

__all__ = [
    "SIMULATION_FOLDER",
    "AttachedStreams",
    "GpuAccess",
    "RunRequest",
    "RunResult",
    "create_container",
    "put_file",
    "put_simulation_folder",
    "remove_container",
    "run",
]

CONTAINER_LABEL = "io.tfdoctor.run"
"""The label of every container that tfdoctor starts, so that a leftover one can be found."""
SIMULATION_FOLDER = "/tfdoctor-simulated"
"""The folder in a container for `RunRequest.simulation_files`. No image has a folder with this name."""
_MAX_OUTPUT_BYTES = 4 * 1024 * 1024
"""The most bytes of each stream that are stored."""
_MAX_LINE_BYTES = 65536
"""The length at which a line is cut, so that output without line ends does not fill the memory."""
_GRACE_S = 5
"""Seconds to wait for a container's last output, or for a container that the engine may still be creating."""
_FIRST_POLL_S = 0.05
"""Seconds before the second request for a container's state. The intervals then grow."""


@dataclass(frozen=True, slots=True)
class GpuAccess:
    """The GPUs of a container, and the mechanism that adds them."""

    mechanism: Literal["none", "gpus", "runtime", "cdi"]
    """The mechanism.

    * none: the container gets no GPUs.
    * gpus: `--gpus`, which uses a hook.
    * runtime: the `nvidia` runtime.
    * cdi: CDI devices.
    """
    devices: tuple[str, ...] = ("all",)
    """`all`, indexes or UUIDs. For CDI, the parts of the device names after `nvidia.com/gpu=`."""

    @property
    def run_options(self) -> str:
        """The `docker run` options for these GPUs. Empty if there are none."""
        if self.mechanism == "gpus":
            return (
                "--gpus all" if self.devices == ("all",) else f"--gpus '\"device={','.join(self.devices)}\"'"
            )
        if self.mechanism == "runtime":
            return f"--runtime nvidia -e NVIDIA_VISIBLE_DEVICES={','.join(self.devices)}"
        if self.mechanism == "cdi":
            return " ".join(f"--device nvidia.com/gpu={device}" for device in self.devices)
        return ""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The command to run, and the settings of its container."""

    image: str
    command: tuple[str, ...]
    """The program and its arguments."""
    gpus: GpuAccess = GpuAccess("none")
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files that are written before the container starts: content by absolute path."""
    stdin: bytes = b""
    """The standard input of the command."""
    timeout_s: float = 120.0
    """Seconds after which the container is killed."""
    memory_bytes: int | None = None
    """The memory limit in bytes. None for no limit."""
    has_network: bool = False
    """Whether the container has a network."""
    user: str | None = None
    """The user of the command. None for the image's user."""
    keeps_entrypoint: bool = False
    """Whether the image's own entry point is used."""
    shm_size: int | None = None
    """The size of /dev/shm in bytes. None for the engine's default."""
    platform: str | None = None
    """The platform, such as `linux/amd64`. None for the engine's default."""
    simulation_files: Mapping[str, bytes] = field(default_factory=dict)
    """The content of the files to write into SIMULATION_FOLDER, by name. `run` ignores it."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a command in a container."""

    status: int | None
    """The exit status. None if the command could not be started, or was killed at the timeout."""
    stdout: str
    stderr: str
    is_truncated: bool
    """Whether output was dropped, because a stream had more than 4 MiB."""
    timed_out: bool
    """Whether the command was killed at the timeout."""
    oom_killed: bool
    """Whether the kernel killed the command because its memory was used up."""
    start_error: str
    """The engine's message if the container could not be started. Empty otherwise."""
    seconds: float
    """The duration, including the creation of the container."""

    @property
    def signal(self) -> int | None:
        """The signal that ended the command, or None. An exit status above 128 is 128 plus the signal."""
        return self.status - 128 if self.status is not None and 128 < self.status < 160 else None


def run(
    engine: ContainerEngine, request: RunRequest, on_line: Callable[[str], None] | None = None
) -> RunResult:
    """Run a command in a new container, and always remove the container.

    `on_line` is called with each line of standard output as it arrives. If the container cannot be started, the result
    has a `start_error`. Raise EngineError if the image is missing or the engine fails.
    """
    api = engine.client.api
    start_time = time.monotonic()
    container, is_created = make_container_name(), False
    attached: AttachedStreams | None = None
    try:
        try:
            create_container(engine, request, request.command, name=container, stdin=bool(request.stdin))
            is_created = True
        except ImageNotFound as error:
            container = ""
            msg = f"the image {request.image} is not here."
            raise EngineError(msg, hint=f"docker pull {request.image}") from error
        except APIError as error:
            container = ""
            return _make_start_failure(error, start_time)
        for path, content in request.files.items():
            put_file(engine, container, path, content)
        try:  # Podman prepares the container and its GPUs at the attach, so that may fail, too
            attached = AttachedStreams(engine, container, stdin=bool(request.stdin))
            api.start(container)
        except APIError as error:
            return _make_start_failure(error, start_time)
        return _wait_for_end(engine, request, container, attached, _Output(on_line), start_time)
    except (APIError, DockerException, RequestException, OSError) as error:
        if isinstance(error, EngineError):
            raise
        raise make_engine_error(error, f"running {request.image}") from error
    finally:
        if container:
            remove_container(engine, container, is_created=is_created)
        if attached is not None:
            attached.close()


def make_container_name() -> str:
    """Return a new container name.

    The name is chosen here and not by the engine, so that a container can be removed while it is being created.
    """
    return f"tfdoctor-{secrets.token_hex(8)}"


def create_container(
    engine: ContainerEngine, request: RunRequest, command: tuple[str, ...], *, name: str, stdin: bool
) -> None:
    """Create a container, but do not start it. Raise ImageNotFound, or APIError if the engine refuses."""
    if engine.name == "podman" and request.gpus.mechanism == "cdi":
        _create_in_podman(engine, request, command, name=name, stdin=stdin)
        return
    api = engine.client.api
    environment = dict(request.environment)
    options: dict[str, Any] = {
        "mem_limit": request.memory_bytes,
        "network_mode": None if request.has_network else "none",
        "shm_size": request.shm_size,
        "init": engine.name == "docker",
        "security_opt": ["no-new-privileges"],
    }
    devices = list(request.gpus.devices)
    if request.gpus.mechanism == "gpus":
        options["device_requests"] = [_make_device_request(devices)]
    elif request.gpus.mechanism == "runtime":
        options["runtime"] = "nvidia"
        environment["NVIDIA_VISIBLE_DEVICES"] = ",".join(devices)
    elif request.gpus.mechanism == "cdi":
        names = [f"nvidia.com/gpu={device}" for device in devices]
        options["device_requests"] = [DeviceRequest(driver="cdi", device_ids=names)]
    config = api.create_host_config(**{key: value for key, value in options.items() if value is not None})
    api.create_container(
        name=name,
        image=request.image,
        command=list(command),
        entrypoint=None if request.keeps_entrypoint else [],
        environment=environment,
        host_config=config,
        stdin_open=stdin,
        tty=False,
        user=request.user,
        labels={CONTAINER_LABEL: "1"},
        platform=request.platform,
    )


def _create_in_podman(
    engine: ContainerEngine, request: RunRequest, command: tuple[str, ...], *, name: str, stdin: bool
) -> None:
    """Create a container through Podman's own API.

    The API that Podman shares with Docker accepts no CDI names, only device paths (as of Podman 4.3).
    """
    api = engine.client.api
    options: dict[str, Any] = {
        "name": name,
        "image": request.image,
        "command": list(command),
        "entrypoint": None if request.keeps_entrypoint else [],
        "env": dict(request.environment),
        "devices": [{"path": f"nvidia.com/gpu={device}"} for device in request.gpus.devices],
        "labels": {CONTAINER_LABEL: "1"},
        "netns": None if request.has_network else {"nsmode": "none"},
        "no_new_privileges": True,
        "resource_limits": {"memory": {"limit": request.memory_bytes}} if request.memory_bytes else None,
        "shm_size": request.shm_size,
        "stdin": stdin or None,
        "user": request.user,
    }
    body = {key: value for key, value in options.items() if value is not None}
    response = api.post(
        f"{api.base_url}/v4.0.0/libpod/containers/create",
        json=body,
        timeout=api.timeout,
        allow_redirects=False,
    )
    api._raise_for_status(response)  # type: ignore[attr-defined] # noqa: SLF001 - as the SDK checks its own requests


def _make_device_request(devices: list[str]) -> DeviceRequest:
    """Return the device request that `--gpus` sends to the engine for these devices."""
    if devices == ["all"]:
        return DeviceRequest(count=-1, capabilities=[["gpu"]])
    return DeviceRequest(device_ids=devices, capabilities=[["gpu"]])


def put_file(engine: ContainerEngine, container: str, path: str, content: bytes) -> None:
    """Write a read-only file into a container that has not been started."""
    folder, _, name = path.rpartition("/")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = len(content), 0o444, 0
        archive.addfile(entry, io.BytesIO(content))
    engine.client.api.put_archive(container, folder or "/", buffer.getvalue())


def put_simulation_folder(engine: ContainerEngine, container: str, files: Mapping[str, bytes]) -> None:
    """Write SIMULATION_FOLDER with these files into a container that has not been started.

    Every user can read and execute the files.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo(SIMULATION_FOLDER.strip("/"))
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o555, 0
        archive.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o555, 0
            archive.addfile(entry, io.BytesIO(content))
    engine.client.api.put_archive(container, "/", buffer.getvalue())


class _Output:
    """The output of a container, up to a limit for each stream.

    Output beyond the limit is read and dropped, so that the command never blocks on a full pipe.
    """

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._chunks: dict[int, list[bytes]] = {1: [], 2: []}
        self._stored_bytes = {1: 0, 2: 0}
        self._on_line = on_line
        self._partial_line = b""
        self.truncated = False

    def read(self, attached: AttachedStreams) -> None:
        """Read until the container closes both streams."""
        with contextlib.suppress(OSError, ValueError):  # the connection may fail when the container ends
            for stream, chunk in attached.read_frames():
                self._store(stream, chunk)

    def _store(self, stream: int, chunk: bytes) -> None:
        """Store a piece of stream 1 (standard output) or 2 (standard error), and report complete lines."""
        free_bytes = _MAX_OUTPUT_BYTES - self._stored_bytes[stream]
        if len(chunk) > free_bytes:
            self.truncated = True
        if free_bytes > 0:
            self._chunks[stream].append(chunk[:free_bytes])
            self._stored_bytes[stream] += len(chunk[:free_bytes])
        if stream == 1 and self._on_line is not None:
            lines = (self._partial_line + chunk).split(b"\n")
            self._partial_line = lines.pop()[-_MAX_LINE_BYTES:]
            for line in lines:
                self._on_line(line[:_MAX_LINE_BYTES].decode("utf-8", "replace"))

    def text(self, stream: int) -> str:
        """Return the stored output of stream 1 or 2."""
        return b"".join(self._chunks[stream]).decode("utf-8", "replace")


class AttachedStreams:
    """The standard streams of a container, over one connection that is opened before the start."""

    def __init__(self, engine: ContainerEngine, container: str, *, stdin: bool) -> None:
        """Attach to a container. Raise APIError or RequestException if the engine refuses."""
        params = {"stdout": 1, "stderr": 1, "stream": 1, **({"stdin": 1} if stdin else {})}
        self._file: Any = engine.client.api.attach_socket(container, params=params)
        self._socket: Any = getattr(self._file, "_sock", self._file)
        with contextlib.suppress(Exception):
            self._socket.settimeout(None)

    def send(self, data: bytes) -> None:
        """Send data to standard input. Raise OSError if the connection fails."""
        self._socket.sendall(data)

    def close_input(self) -> None:
        """Close standard input."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def read_frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield (stream, data) until the container ends. Stream 1 is standard output, and 2 is standard error.

        Raise OSError if the connection fails.
        """
        while True:
            # A frame has a header of 8 bytes: the stream in the first byte, and the size in the last four.
            header = self._read_exactly(8)
            if header is None:
                return
            body = self._read_exactly(int.from_bytes(header[4:8], "big"))
            if body is None:
                return
            yield (2 if header[0] == 2 else 1), body

    def _read_exactly(self, remaining_bytes: int) -> bytes | None:
        """Return the next bytes of the connection, or None if it ends before `remaining_bytes` were received."""
        chunks = []
        while remaining_bytes:
            chunk = self._socket.recv(min(remaining_bytes, 1 << 20))
            if not chunk:
                return None
            chunks.append(chunk)
            remaining_bytes -= len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        """Close the connection. A reader in another thread then reaches the end of the streams."""
        with contextlib.suppress(Exception):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(Exception):
            self._file.close()
        with contextlib.suppress(Exception):
            self._file._response.close()  # noqa: SLF001 - the SDK stores it only there
        with contextlib.suppress(Exception):
            self._socket.close()


def _send_input(attached: AttachedStreams, data: bytes) -> None:
    """Send standard input and close it. Run this in a thread, because the command may not read it."""
    with contextlib.suppress(OSError):
        attached.send(data)
    attached.close_input()


def _wait_for_end(
    engine: ContainerEngine,
    request: RunRequest,
    container: str,
    attached: AttachedStreams,
    output: _Output,
    start_time: float,
) -> RunResult:
    """Wait until the container ends, or kill it at the timeout, and return the result."""
    api = engine.client.api
    reader = threading.Thread(target=output.read, args=(attached,), daemon=True)
    reader.start()
    if request.stdin:
        threading.Thread(target=_send_input, args=(attached, request.stdin), daemon=True).start()
    deadline = start_time + request.timeout_s
    timed_out = False
    state: dict[str, Any] = {}
    poll_interval = _FIRST_POLL_S
    while True:
        state = api.inspect_container(container)["State"]
        if not state.get("Running") and state.get("Status") != "created":
            break
        if time.monotonic() > deadline:
            timed_out = True
            with contextlib.suppress(APIError, RequestException):
                api.kill(container)
            break
        time.sleep(poll_interval)
        poll_interval = min(poll_interval * 1.3, 0.5)
    reader.join(_GRACE_S)
    return RunResult(
        status=None if timed_out else int(state.get("ExitCode", 0)),
        stdout=output.text(1),
        stderr=output.text(2),
        is_truncated=output.truncated,
        timed_out=timed_out,
        oom_killed=bool(state.get("OOMKilled")),
        start_error="",
        seconds=time.monotonic() - start_time,
    )


def _make_start_failure(error: APIError, start_time: float) -> RunResult:
    """Return the result for a container that could not be started."""
    reason = str(error.explanation or error)[:8000]
    return RunResult(
        status=None,
        stdout="",
        stderr="",
        is_truncated=False,
        timed_out=False,
        oom_killed=False,
        start_error=reason,
        seconds=time.monotonic() - start_time,
    )


def remove_container(engine: ContainerEngine, container: str, *, is_created: bool = True) -> None:
    """Remove a container. After Ctrl-C, try once more before KeyboardInterrupt is raised again.

    If `is_created` is false, the engine may still be creating the container. If it is missing, the removal is then
    repeated for up to 5 seconds.
    """
    deadline = time.monotonic() + (0 if is_created else _GRACE_S)
    failure_count = 0
    while failure_count < 2:
        try:
            engine.client.api.remove_container(container, force=True, v=True)
        except NotFound:
            if time.monotonic() > deadline:
                return
            time.sleep(_FIRST_POLL_S)
        except (APIError, RequestException):
            failure_count += 1
            time.sleep(0.2)
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                engine.client.api.remove_container(container, force=True, v=True)
            raise
        else:
            return
