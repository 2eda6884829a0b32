"""A fake container engine: its containers are programs of this machine, or scripted output."""

from __future__ import annotations

import io
import socket
import subprocess
import tarfile
import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from docker.errors import APIError, ImageNotFound, NotFound
from docker.types import HostConfig

from tfdoctor.images.engine import ContainerEngine

if TYPE_CHECKING:
    from collections.abc import Mapping


class FakeApi:
    """The SDK's client. It has one container, which `start` runs and `remove_container` removes."""

    base_url = "http+docker://fake"
    timeout = 5

    def __init__(self, frames: bytes = b"", **state: Any) -> None:
        self.frames = frames
        self.state: dict[str, Any] = {"Running": False, "Status": "exited", "ExitCode": 0, **state}
        self.program: list[str] | None = None
        """The program that the container runs, connected to its streams; None for `frames`."""
        self.errors: dict[str, list[BaseException]] = {}
        """Errors to raise at the next calls, by method."""
        self.calls: list[str] = []
        self.created: dict[str, Any] = {}
        self.files: dict[str, tuple[bytes, int]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []
        """The messages of a pull or a build."""
        self._ends: tuple[socket.socket, socket.socket] | None = None

    def _record(self, name: str) -> None:
        self.calls.append(name)
        if self.errors.get(name):
            raise self.errors[name].pop(0)

    def create_host_config(self, **options: Any) -> HostConfig:
        return HostConfig(version="1.43", **options)

    def create_container(self, **options: Any) -> None:
        self._record("create_container")
        self.created = options

    def put_archive(self, _container: str, folder: str, archive: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            for entry in opened.getmembers():
                file = opened.extractfile(entry)
                content = file.read() if file is not None else b""
                self.files[f"{folder.rstrip('/')}/{entry.name}"] = (content, entry.mode)

    def attach_socket(self, _container: str, params: Mapping[str, int]) -> socket.socket:
        self._record("attach_socket")
        self.params = params
        self._ends = socket.socketpair()
        return self._ends[0]

    def start(self, _container: str) -> None:
        assert self._ends is not None
        try:
            self._record("start")
        except APIError:
            self._ends[1].close()
            raise
        threading.Thread(target=self._serve, args=(self._ends[1],), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with end:
            if self.program is None:
                if "stdin" in self.params:
                    end.recv(1 << 16)
                end.sendall(self.frames)
                return
            with subprocess.Popen(self.program, stdin=end, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    try:
                        end.sendall(make_frame(1, line))
                    except OSError:
                        break
                process.kill()

    def inspect_container(self, _container: str) -> dict[str, Any]:
        self._record("inspect_container")
        return {"State": self.state}

    def kill(self, _container: str) -> None:
        self._record("kill")

    def remove_container(self, _container: str, **_: bool) -> None:
        self._record("remove_container")

    def inspect_image(self, reference: str) -> dict[str, Any]:
        self._record("inspect_image")
        if reference not in self.images:
            raise ImageNotFound(reference)
        return self.images[reference]

    def remove_image(self, reference: str, **_: bool) -> None:
        self._record(f"remove_image {reference}")
        if self.images.pop(reference, None) is None:
            raise ImageNotFound(reference)

    def tag(self, image: str, repository: str, tag: str) -> None:
        self._record(f"tag {image} {repository}:{tag}")

    def pull(self, _reference: str, **_: Any) -> list[dict[str, Any]]:
        self._record("pull")
        return self.messages

    def build(self, **options: Any) -> Any:
        self._record("build")
        self.created = options
        return iter(self.messages)


def make_frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def make_engine(api: Any, name: str = "docker") -> ContainerEngine:
    return ContainerEngine(
        client=Mock(api=api),
        url="unix:///fake.sock",
        name=name,
        version="27.0",
        api_version=(1, 46),
        runtimes=("runc",),
        default_runtime="runc",
        is_rootless=False,
        supports_cdi=True,
    )


def make_api_error(text: str) -> APIError:
    return APIError("500", explanation=text)


def make_not_found() -> NotFound:
    return NotFound("404", explanation="no such container")
