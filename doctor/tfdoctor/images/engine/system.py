"""Present a container as a `System`, so that probes inspect it like this host.

A small script, the agent (payload/agent.py), runs in the container with any Python that the image has. It receives
requests on standard input and writes replies to standard output. Closing the system removes the container.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import json
import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

import tfdoctor.payload
from tfdoctor.images.engine.connection import EngineError, make_engine_error
from tfdoctor.images.engine.container_run import (
    AttachedStreams,
    RunRequest,
    create_container,
    make_container_name,
    put_file,
    put_simulation_folder,
    remove_container,
)
from tfdoctor.system import CommandResult, ElfFile, Failure
from tfdoctor.system.elf import read_elf_stream
from tfdoctor.system.payloads import list_payload_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from tfdoctor.images.engine.connection import ContainerEngine

__all__ = ["ContainerEndedError", "ContainerSystem", "StartError"]

REPLY_MARKER = b"tfdoctor-payload:"
"""The beginning of every line with a reply of the agent."""
AGENT_PATH = "/tfdoctor-agent.py"
"""The path of the agent in the container. Every image has the folder `/`."""
ISOLATION_OPTIONS = ("-B", "-E", "-S")
"""Python options that prevent the agent from loading the image's packages.

Such packages may set environment variables, for example in a .pth file, which the agent would report as the container's
own.
"""
NO_PYTHON_MESSAGE = "tfdoctor: no Python in this image"
"""The message of START_SCRIPT if it finds no Python."""
START_SCRIPT = (
    "for p in python3 python python2 python2.7 python3.6 python3.7 python3.8 /usr/bin/python3; do "
    f'command -v "$p" >/dev/null 2>&1 && exec "$p" {" ".join(ISOLATION_OPTIONS)} {AGENT_PATH}; done; '
    f"echo {NO_PYTHON_MESSAGE} >&2; exit 127"
)
"""A shell script that runs the agent with the first Python that it finds."""
START_COMMANDS = (
    ("sh", "-c", START_SCRIPT),
    ("python3", *ISOLATION_OPTIONS, AGENT_PATH),
    ("python", *ISOLATION_OPTIONS, AGENT_PATH),
)
"""The commands to try, in order: a shell that finds a Python, then a Python itself, for images without a shell."""
START_TIMEOUT_S = 60.0
"""Seconds to wait for the first reply of the agent."""
_READ_BYTES = 1 << 16
"""The size of the blocks in which files are read, and of the stored standard error."""
_MAX_LINE_BYTES = 64 << 20
"""The most bytes of one reply."""
_DEFAULT_PLATFORM = {"system": "Linux", "machine": "", "release": "", "uid": ""}
_REPLY_FIELDS: dict[str, dict[str, type]] = {
    "hello": {"env": dict, "cwd": str, "platform": dict},
    "read": {"data": str, "size": int, "device": int, "inode": int},
    "stat": {"exists": bool, "dir": bool, "real": str},
    "listdir": {"names": list},
    "put": {"folder": str},
}
"""The types of a reply's fields, by operation. They are checked, because images are not trusted."""


class StartError(EngineError):
    """The container could not be started. `message` is the engine's message."""

    kind = "container-start"

    def __init__(self, message: str) -> None:
        super().__init__(f"the container cannot be started: {message[:400]}")
        self.message = message


class ContainerEndedError(EngineError):
    """The container ended before or during the inspection."""

    kind = "container-ended"

    def __init__(self, last_line: str, *, oom: bool = False, no_python: bool = False) -> None:
        reason = "was killed because memory ran out" if oom else "ended"
        super().__init__(f"the container {reason}{': ' + last_line[:300] if last_line else '.'}")
        self.last_stderr_line = last_line
        """The last line on standard error. Empty if there is none."""
        self.is_out_of_memory = oom
        """Whether the engine reports that the container ran out of memory."""
        self.has_no_python = no_python
        """Whether the image has none of the Python commands that are tried."""


class ContainerSystem:
    """A running container of an image. It must be closed, or used as a context manager."""

    def __init__(self, engine: ContainerEngine, request: RunRequest) -> None:
        """Start the container. `request.command` is ignored.

        Raise StartError if it cannot be started, ContainerEndedError if it ends at once, and EngineError if the engine
        fails.
        """
        self._engine = engine
        self._replies: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._last_request_number = 0
        self._closed = threading.Event()
        self.stderr_tail = b""
        """The last output of the agent and its Python on standard error."""
        self._container, self._is_created = "", False
        self._attached: AttachedStreams | None = None
        try:
            hello = self._start_agent(request)
            self._env: Mapping[str, str] = _parse_texts(hello, "env")
            self._cwd: str = hello["cwd"]
            self._platform: Mapping[str, str] = {**_DEFAULT_PLATFORM, **_parse_texts(hello, "platform")}
        except (APIError, DockerException, RequestException) as error:
            self.close()
            raise make_engine_error(error, f"running {request.image}") from error
        except OSError as error:
            self.close()
            msg = f"the container of {request.image} cannot be asked: {error.strerror or error}"
            raise EngineError(msg) from error
        except BaseException:
            self.close()
            raise

    def _start_agent(self, request: RunRequest) -> dict[str, Any]:
        """Start the agent and return its first reply. Raise the errors of `__init__`."""
        for command in START_COMMANDS:
            if self._start(request, command):
                try:
                    return self._ask({"op": "hello"}, START_TIMEOUT_S)
                except ContainerEndedError as error:
                    # With an init process, the container starts, and the init process reports the missing command.
                    if not _is_missing_command(error.last_stderr_line, command[0]):
                        raise
            self._remove()
            self._closed.clear()
            self.stderr_tail = b""
        raise ContainerEndedError(NO_PYTHON_MESSAGE, no_python=True)

    def _start(self, request: RunRequest, command: tuple[str, ...]) -> bool:
        """Start the container with a command, and return False if the image does not have that command.

        Raise the errors of `__init__`.
        """
        agent = Path(tfdoctor.payload.__file__).with_name("agent.py").read_bytes()
        engine = self._engine
        try:
            self._container, self._is_created = make_container_name(), False
            create_container(engine, request, command, name=self._container, stdin=True)
            self._is_created = True
        except ImageNotFound as error:
            self._container = ""
            msg = f"the image {request.image} is not here."
            raise EngineError(msg, hint=f"{engine.name} pull {request.image}") from error
        except APIError as error:
            self._container = ""
            raise StartError(str(error.explanation or error)) from error
        put_file(engine, self._container, AGENT_PATH, agent)
        if request.simulation_files:
            put_simulation_folder(engine, self._container, request.simulation_files)
        try:  # Podman prepares the container and its GPUs at the attach, so that may fail, too
            self._attached = AttachedStreams(engine, self._container, stdin=True)
            engine.client.api.start(self._container)
        except APIError as error:
            reason = str(error.explanation or error)
            if _is_missing_command(reason, command[0]):
                return False
            raise StartError(reason) from error
        threading.Thread(target=self._listen, args=(self._attached,), daemon=True).start()
        return True

    def __enter__(self) -> ContainerSystem:  # noqa: PYI034 - typing has no Self before 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the container. Pending requests fail."""
        self._closed.set()
        self._remove()

    def _remove(self) -> None:
        """Remove the container, if there is one, and close its streams."""
        container, self._container = self._container, ""
        if container:
            remove_container(self._engine, container, is_created=self._is_created)
        if self._attached is not None:
            self._attached.close()

    def get_state(self) -> dict[str, Any]:
        """Return the container's state in the engine, with `OOMKilled` and `ExitCode`, or {} if it is gone."""
        if not self._container:
            return {}
        with contextlib.suppress(APIError, RequestException):
            return dict(self._engine.client.api.inspect_container(self._container)["State"])
        return {}

    # ------------------------------------------------------------ requests and replies

    def _listen(self, attached: AttachedStreams) -> None:
        """Pass the agent's replies to the threads that wait for them. Return when the container ends."""
        line_parts: list[bytes] = []
        line_length = 0
        try:
            for stream, body in attached.read_frames():
                if stream == 2:
                    self.stderr_tail = (self.stderr_tail + body)[-_READ_BYTES:]
                    continue
                *lines, last = body.split(b"\n")
                for line in lines:
                    self._handle_line(b"".join([*line_parts, line]))
                    line_parts, line_length = [], 0
                line_parts.append(last)
                line_length += len(last)
                if line_length > _MAX_LINE_BYTES:
                    break
        except (OSError, ValueError):
            pass
        self._closed.set()

    def _handle_line(self, line: bytes) -> None:
        """Pass a reply to the thread that waits for it. Ignore other lines, which the image may print."""
        if not line.startswith(REPLY_MARKER):
            return
        try:
            reply = json.loads(line[len(REPLY_MARKER) :])
        except (ValueError, RecursionError):
            return
        if isinstance(reply, dict) and type(reply.get("id")) is int:
            reply_queue = self._replies.pop(reply["id"], None)
            if reply_queue is not None:
                reply_queue.put(reply)

    def _ask(self, request: dict[str, Any], timeout: float = 30.0) -> dict[str, Any]:
        """Send a request to the agent and return the reply.

        Raise OSError if the operation fails in the container or the reply is invalid, TimeoutError if there is no reply
        within `timeout` seconds, and EngineError if the container has ended.
        """
        reply_queue: queue.Queue[dict[str, Any]] = queue.Queue(1)
        with self._lock:
            self._last_request_number += 1
            request_number = self._last_request_number
            self._replies[request_number] = reply_queue
            line = json.dumps({**request, "id": request_number}).encode() + b"\n"
            if self._attached is None:
                raise self._make_ended_error()
            try:
                self._attached.send(line)
            except OSError as error:
                raise self._make_ended_error() from error
        deadline = time.monotonic() + timeout
        while True:
            try:
                reply = reply_queue.get(timeout=0.2)
                break
            except queue.Empty:
                if self._closed.is_set() and reply_queue.empty():
                    raise self._make_ended_error() from None
                if time.monotonic() > deadline:
                    self._replies.pop(request_number, None)
                    # 110 is ETIMEDOUT on Linux.
                    raise TimeoutError(110, "the container did not answer in time") from None
        if isinstance(reply.get("errno"), int):
            raise OSError(reply["errno"], str(reply.get("strerror", "")), request.get("path"))
        field_types = _REPLY_FIELDS.get(request["op"], {})
        if not all(isinstance(reply.get(name), kind) for name, kind in field_types.items()):
            raise _make_reply_error()
        return reply

    def _make_ended_error(self) -> EngineError:
        """Return the error for a container that has ended."""
        lines = self.stderr_tail.decode("utf-8", "replace").strip().splitlines()
        state = self.get_state() if self._container else {}
        last = lines[-1] if lines else ""
        return ContainerEndedError(
            last, oom=bool(state.get("OOMKilled")), no_python=last == NO_PYTHON_MESSAGE
        )

    # ------------------------------------------------------------ System

    @property
    def env(self) -> Mapping[str, str]:
        return self._env

    @property
    def cwd(self) -> str:
        return self._cwd

    @property
    def platform(self) -> Mapping[str, str]:
        return self._platform

    @property
    def own_python(self) -> str | None:
        return None

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        return _decode_bytes(self._ask({"op": "read", "path": path, "size": limit})["data"])

    def read_elf(self, path: str) -> ElfFile:
        first = self._ask({"op": "read", "path": path, "size": _READ_BYTES})
        stream: Any = _RemoteFile(self, path, _decode_bytes(first["data"]), first["size"])
        identity = (first["device"], first["inode"])
        return read_elf_stream(stream, first["size"], identity, self._platform["machine"])

    def find_unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        """Return an empty tuple, because the check would have to copy whole libraries out of the container."""
        del path, providers
        return ()

    def _stat(self, path: str) -> dict[str, Any]:
        return self._ask({"op": "stat", "path": path})

    def exists(self, path: str) -> bool:
        return bool(self._stat(path)["exists"])

    def is_dir(self, path: str) -> bool:
        return bool(self._stat(path)["dir"])

    def listdir(self, path: str) -> list[str]:
        return [str(name) for name in self._ask({"op": "listdir", "path": path})["names"]]

    def realpath(self, path: str) -> str:
        return str(self._stat(path)["real"])

    def which(self, name: str) -> str | None:
        path = self._ask({"op": "which", "name": name}).get("path")
        return None if path is None else str(path)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",  # noqa: ARG002 - only recordings use it
    ) -> CommandResult:
        arguments = [self._copy_payload(argument) for argument in argv]
        request = {
            "op": "run",
            "argv": arguments,
            "timeout": timeout,
            "env": dict(env or {}),
            "unset": list(unset),
        }
        try:
            return self._make_result(tuple(argv), self._ask(request, timeout + 10), timeout)
        except TimeoutError:
            return CommandResult(tuple(argv), None, failure=Failure.TIMEOUT, seconds=timeout)
        except (OSError, EngineError) as error:
            return CommandResult(tuple(argv), None, failure=Failure.OS_ERROR, detail=str(error))
        except (KeyError, TypeError, ValueError):
            return CommandResult(tuple(argv), None, failure=Failure.OS_ERROR, detail=str(_make_reply_error()))

    def _make_result(self, argv: tuple[str, ...], reply: Mapping[str, Any], timeout: float) -> CommandResult:
        """Return the result of a command from the agent's reply. `timeout` is in seconds.

        Raise OSError, KeyError, TypeError or ValueError if the reply is invalid.
        """
        seconds = float(reply.get("seconds", 0.0))
        if "failure" in reply:
            # 2 is ENOENT and 13 is EACCES.
            failure = {2: Failure.NOT_FOUND, 13: Failure.PERMISSION}.get(reply["failure"], Failure.OS_ERROR)
            return CommandResult(argv, None, failure=failure, detail=str(reply["detail"]), seconds=seconds)
        return CommandResult(
            argv,
            None if reply["timed_out"] else int(reply["status"]),
            _decode_text(reply["stdout"]),
            _decode_text(reply["stderr"]),
            Failure.TIMEOUT if reply["timed_out"] else None,
            seconds=timeout if reply["timed_out"] else seconds,
        )

    def _copy_payload(self, argument: str) -> str:
        """Copy an argument that is one of tfdoctor's payloads into the container, and return its path there.

        The modules that the payload imports are copied as well. Any other argument is returned unchanged.
        """
        files = list_payload_files(Path(argument))
        if not files:
            return argument
        return f"{self.copy_files({path.name: path.read_bytes() for path in files})}/{files[0].name}"

    def copy_files(self, files: Mapping[str, bytes]) -> str:
        """Write files into a new folder in the container and return its path.

        Raise OSError if they cannot be written, and EngineError if the container has ended.
        """
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        return str(self._ask({"op": "put", "files": data}, 120)["folder"])

    def stop(self) -> None:
        """Make pending requests fail.

        The engine is not called, because this may run in a signal handler. `close` removes the container.
        """
        self._closed.set()
        if self._attached is not None:
            self._attached.close()


def _is_missing_command(message: str, command: str) -> bool:
    """Return whether an engine's message (by runc or crun) says that this program is missing."""
    plain_message = message.replace("\\", "")
    is_named = f"exec {command} failed" in plain_message or any(
        f"{quote}{command}{quote}" in plain_message for quote in "\"'`"
    )
    missing_texts = ("executable file not found", "no such file or directory", "not found in $path")
    return is_named and any(text in plain_message.lower() for text in missing_texts)


def _make_reply_error() -> OSError:
    """Return the error for a reply that is invalid."""
    return OSError(errno.EIO, "the container's answer cannot be read")


def _parse_texts(reply: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a mapping in a reply, with all keys and values as strings."""
    return {str(key): str(value) for key, value in reply[name].items()}


def _decode_bytes(data: str) -> bytes:
    """Decode base64. Raise OSError if it is invalid."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise _make_reply_error() from error


def _decode_text(data: str) -> str:
    """Decode base64, and the bytes as UTF-8. Raise OSError if the base64 is invalid."""
    return _decode_bytes(data).decode("utf-8", "replace")


class _RemoteFile(io.RawIOBase):
    """A file in the container. Its blocks are requested when they are first read."""

    def __init__(self, system: ContainerSystem, path: str, first_block: bytes, size: int) -> None:
        super().__init__()
        self._system, self._path, self._size = system, path, size
        self._blocks = {0: first_block}
        """The blocks that were read, by offset."""
        self._position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + {0: 0, 1: self._position, 2: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = self._size - self._position
        content = b""
        while size > 0 and self._position < self._size:
            start = self._position - self._position % _READ_BYTES
            block = self._blocks.get(start)
            if block is None:
                request = {"op": "read", "path": self._path, "offset": start, "size": _READ_BYTES}
                reply = self._system._ask(request)  # noqa: SLF001 - a part of that class
                block = self._blocks[start] = _decode_bytes(reply["data"])
            part = block[self._position - start : self._position - start + size]
            if not part:  # the file has become shorter
                break
            content += part
            self._position += len(part)
            size -= len(part)
        return content
