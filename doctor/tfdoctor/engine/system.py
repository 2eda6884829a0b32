"""A container as a `System`: the same probes look into it as into this machine.

A small script (payload/agent.py) runs in the container on whatever Python it has, and answers over its standard input
and output. The container is removed when the system is closed.
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
from tfdoctor.engine.connection import EngineError, explain_api
from tfdoctor.engine.container_run import (
    Attached,
    RunRequest,
    create_container,
    new_name,
    put_file,
    put_folder,
    remove_container,
)
from tfdoctor.system import CommandResult, ElfFile, Failure
from tfdoctor.system.elf import read_elf_stream
from tfdoctor.system.payloads import files_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from tfdoctor.engine.connection import ContainerEngine

__all__ = ["ContainerEndedError", "ContainerSystem", "StartError"]

MARKER = b"tfdoctor-payload:"
AGENT = "/tfdoctor-agent.py"
"""In the folder that every image has."""
ALONE = ("-B", "-E", "-S")
"""Nothing of the image's packages runs in the agent: what they set (a .pth file) would pass for the container's own."""
NO_PYTHON = "tfdoctor: no Python in this image"
START = (
    "for p in python3 python python2 python2.7 python3.6 python3.7 python3.8 /usr/bin/python3; do "
    f'command -v "$p" >/dev/null 2>&1 && exec "$p" {" ".join(ALONE)} {AGENT}; done; '
    f"echo {NO_PYTHON} >&2; exit 127"
)
STARTS = (("sh", "-c", START), ("python3", *ALONE, AGENT), ("python", *ALONE, AGENT))
"""Through the image's shell, which finds its Python; where it has none, by name."""
START_TIMEOUT_S = 60.0
"""Seconds that the agent has for its first answer."""
_READ_BYTES = 1 << 16
_LONGEST_LINE = 64 << 20
_NO_PLATFORM = {"system": "Linux", "machine": "", "release": "", "uid": ""}
_SHAPES: dict[str, dict[str, type]] = {
    "hello": {"env": dict, "cwd": str, "platform": dict},
    "read": {"data": str, "size": int, "device": int, "inode": int},
    "stat": {"exists": bool, "dir": bool, "real": str},
    "listdir": {"names": list},
    "put": {"folder": str},
}
"""What an answer must have: whoever answers in an image is not to be trusted."""


class StartError(EngineError):
    """The container could not be started; `said` has the engine's words."""

    kind = "container-start"

    def __init__(self, said: str) -> None:
        super().__init__(f"the container cannot be started: {said[:400]}")
        self.said = said


class ContainerEndedError(EngineError):
    """The container ended before it could be looked at, or in the midst of it."""

    kind = "container-ended"

    def __init__(self, said: str, *, oom: bool = False, no_python: bool = False) -> None:
        why = "was killed because memory ran out" if oom else "ended"
        super().__init__(f"the container {why}{': ' + said[:300] if said else '.'}")
        self.said = said
        self.oom = oom
        """The engine says that it used up its memory."""
        self.no_python = no_python
        """No Python of a usual name is in it."""


class ContainerSystem:
    """A running container of an image. Close it, or use it with `with`."""

    def __init__(self, engine: ContainerEngine, request: RunRequest) -> None:
        """Start it. `request.command` is not used. Raises StartError, EngineError."""
        self._engine = engine
        self._replies: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._next = 0
        self._closed = threading.Event()
        self.errors = b""
        """What the agent and its Python wrote to standard error."""
        self._container, self._made = "", False
        self._attached: Attached | None = None
        try:
            hello = self._begin(request)
            self._env: Mapping[str, str] = _texts(hello, "env")
            self._cwd: str = hello["cwd"]
            self._platform: Mapping[str, str] = {**_NO_PLATFORM, **_texts(hello, "platform")}
        except (APIError, DockerException, RequestException) as error:
            self.close()
            raise explain_api(error, f"running {request.image}") from error
        except OSError as error:
            self.close()
            msg = f"the container of {request.image} cannot be asked: {error.strerror or error}"
            raise EngineError(msg) from error
        except BaseException:
            self.close()
            raise

    def _begin(self, request: RunRequest) -> dict[str, Any]:
        """Return the agent's first answer. Raises as `__init__` does."""
        for command in STARTS:
            if self._start(request, command):
                try:
                    return self._ask({"op": "hello"}, START_TIMEOUT_S)
                except (
                    ContainerEndedError
                ) as error:  # the engine's own first process says it, where there is one
                    if not _is_missing_command(error.said, command[0]):
                        raise
            self._remove()
            self._closed.clear()
            self.errors = b""
        raise ContainerEndedError(NO_PYTHON, no_python=True)

    def _start(self, request: RunRequest, command: tuple[str, ...]) -> bool:
        """Return whether the container runs; not where the command is none of the image's.

        Raises as `__init__` does.
        """
        agent = Path(tfdoctor.payload.__file__).with_name("agent.py").read_bytes()
        engine = self._engine
        try:
            self._container, self._made = new_name(), False
            create_container(engine, request, command, name=self._container, stdin=True)
            self._made = True
        except ImageNotFound as error:
            self._container = ""
            msg = f"the image {request.image} is not here."
            raise EngineError(msg, hint=f"{engine.name} pull {request.image}") from error
        except APIError as error:
            self._container = ""
            raise StartError(str(error.explanation or error)) from error
        put_file(engine, self._container, AGENT, agent)
        if request.folder:
            put_folder(engine, self._container, request.folder)
        try:  # Podman prepares the container, its GPUs too, when it is attached to
            self._attached = Attached(engine, self._container, stdin=True)
            engine.client.api.start(self._container)
        except APIError as error:
            said = str(error.explanation or error)
            if _is_missing_command(said, command[0]):
                return False
            raise StartError(said) from error
        threading.Thread(target=self._listen, args=(self._attached,), daemon=True).start()
        return True

    def __enter__(self) -> ContainerSystem:  # noqa: PYI034 - typing has no Self before 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the container; whoever waits for an answer gets none."""
        self._closed.set()
        self._remove()

    def _remove(self) -> None:
        container, self._container = self._container, ""
        if container:
            remove_container(self._engine, container, made=self._made)
        if self._attached is not None:
            self._attached.close()

    def state(self) -> dict[str, Any]:
        """Return the engine's account of the container: `OOMKilled`, `ExitCode`; {} where it is gone."""
        if not self._container:
            return {}
        with contextlib.suppress(APIError, RequestException):
            return dict(self._engine.client.api.inspect_container(self._container)["State"])
        return {}

    # ------------------------------------------------------------ talking

    def _listen(self, attached: Attached) -> None:
        """Until the container ends: what the agent answers goes to who asked."""
        rest: list[bytes] = []
        long = 0
        try:
            for stream, body in attached.frames():
                if stream == 2:
                    self.errors = (self.errors + body)[-_READ_BYTES:]
                    continue
                *lines, last = body.split(b"\n")
                for line in lines:
                    self._take(b"".join([*rest, line]))
                    rest, long = [], 0
                rest.append(last)
                long += len(last)
                if long > _LONGEST_LINE:
                    break
        except (OSError, ValueError):
            pass
        self._closed.set()

    def _take(self, line: bytes) -> None:
        if not line.startswith(MARKER):
            return
        try:
            reply = json.loads(line[len(MARKER) :])
        except (ValueError, RecursionError):
            return
        if isinstance(reply, dict) and type(reply.get("id")) is int:
            waiting = self._replies.pop(reply["id"], None)
            if waiting is not None:
                waiting.put(reply)

    def _ask(self, request: dict[str, Any], timeout: float = 30.0) -> dict[str, Any]:
        """Return one question, one answer.

        Raises OSError as the container's own system would, EngineError when it is gone.
        """
        waiting: queue.Queue[dict[str, Any]] = queue.Queue(1)
        with self._lock:
            self._next += 1
            number = self._next
            self._replies[number] = waiting
            line = json.dumps({**request, "id": number}).encode() + b"\n"
            if self._attached is None:
                raise self._make_gone_error()
            try:
                self._attached.send(line)
            except OSError as error:
                raise self._make_gone_error() from error
        deadline = time.monotonic() + timeout
        while True:
            try:
                reply = waiting.get(timeout=0.2)
                break
            except queue.Empty:
                if self._closed.is_set() and waiting.empty():
                    raise self._make_gone_error() from None
                if time.monotonic() > deadline:
                    self._replies.pop(number, None)
                    raise TimeoutError(110, "the container did not answer in time") from None
        if isinstance(reply.get("errno"), int):
            raise OSError(reply["errno"], str(reply.get("strerror", "")), request.get("path"))
        shape = _SHAPES.get(request["op"], {})
        if not all(isinstance(reply.get(name), kind) for name, kind in shape.items()):
            raise _nonsense()
        return reply

    def _make_gone_error(self) -> EngineError:
        said = self.errors.decode("utf-8", "replace").strip().splitlines()
        state = self.state() if self._container else {}
        last = said[-1] if said else ""
        return ContainerEndedError(last, oom=bool(state.get("OOMKilled")), no_python=last == NO_PYTHON)

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
        return _bytes(self._ask({"op": "read", "path": path, "size": limit})["data"])

    def read_elf(self, path: str) -> ElfFile:
        first = self._ask({"op": "read", "path": path, "size": _READ_BYTES})
        stream: Any = _Remote(self, path, _bytes(first["data"]), first["size"])
        place = (first["device"], first["inode"])
        return read_elf_stream(stream, first["size"], place, self._platform["machine"])

    def unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        """Not looked for: it would take whole libraries through the pipe."""
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
        found = self._ask({"op": "which", "name": name}).get("path")
        return None if found is None else str(found)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",  # noqa: ARG002 - a recording's
    ) -> CommandResult:
        words = [self._local(word) for word in argv]
        request = {
            "op": "run",
            "argv": words,
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
            return CommandResult(tuple(argv), None, failure=Failure.OS_ERROR, detail=str(_nonsense()))

    def _make_result(self, argv: tuple[str, ...], reply: Mapping[str, Any], timeout: float) -> CommandResult:
        """Raises OSError, KeyError, TypeError and ValueError where the answer makes no sense."""
        seconds = float(reply.get("seconds", 0.0))
        if "failure" in reply:
            failure = {2: Failure.NOT_FOUND, 13: Failure.PERMISSION}.get(reply["failure"], Failure.OS_ERROR)
            return CommandResult(argv, None, failure=failure, detail=str(reply["detail"]), seconds=seconds)
        return CommandResult(
            argv,
            None if reply["timed_out"] else int(reply["status"]),
            _text(reply["stdout"]),
            _text(reply["stderr"]),
            Failure.TIMEOUT if reply["timed_out"] else None,
            seconds=timeout if reply["timed_out"] else seconds,
        )

    def _local(self, word: str) -> str:
        """Return a payload of ours, put into the container with its parts; every other word as it is."""
        files = files_of(Path(word))
        if not files:
            return word
        return f"{self.put({path.name: path.read_bytes() for path in files})}/{files[0].name}"

    def put(self, files: Mapping[str, bytes]) -> str:
        """Put files into a new folder in the container, which is gone with it; its path comes back. Raises OSError,
        EngineError."""
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        return str(self._ask({"op": "put", "files": data}, 120)["folder"])

    def stop(self) -> None:
        """Whoever waits for an answer gets none. The engine is not spoken to, for this may be within a signal's
        handler: `close` removes the container."""
        self._closed.set()
        if self._attached is not None:
            self._attached.close()


def _is_missing_command(said: str, command: str) -> bool:
    """Return whether the engine refused for want of this program, by the words of runc and crun."""
    plain = said.replace("\\", "")
    named = f"exec {command} failed" in plain or any(f"{m}{command}{m}" in plain for m in "\"'`")
    missing = ("executable file not found", "no such file or directory", "not found in $PATH")
    return named and any(words in plain.lower() for words in missing)


def _nonsense() -> OSError:
    return OSError(errno.EIO, "the container's answer cannot be read")


def _texts(reply: Mapping[str, Any], name: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in reply[name].items()}


def _bytes(data: str) -> bytes:
    """Raises OSError."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise _nonsense() from error


def _text(data: str) -> str:
    return _bytes(data).decode("utf-8", "replace")


class _Remote(io.RawIOBase):
    """A file in the container, read in pieces as they are asked for."""

    def __init__(self, system: ContainerSystem, path: str, first: bytes, size: int) -> None:
        super().__init__()
        self._system, self._path, self._size = system, path, size
        self._pieces = {0: first}
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = self._size - self._at
        found = b""
        while size > 0 and self._at < self._size:
            start = self._at - self._at % _READ_BYTES
            piece = self._pieces.get(start)
            if piece is None:
                request = {"op": "read", "path": self._path, "offset": start, "size": _READ_BYTES}
                reply = self._system._ask(request)  # noqa: SLF001 - its own
                piece = self._pieces[start] = _bytes(reply["data"])
            part = piece[self._at - start : self._at - start + size]
            if not part:
                break
            found += part
            self._at += len(part)
            size -= len(part)
        return found
