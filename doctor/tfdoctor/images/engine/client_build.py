"""Build images with BuildKit through Docker's own client, for what the classic builder cannot do.

BuildKit mounts secrets and package caches into a step without storing them in a layer. Docker's SDK has no BuildKit.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.text import clean, clean_line
from tfdoctor.images.engine.building import MAX_STEP_LINES, BuildEvent, make_build_error
from tfdoctor.images.engine.connection import EngineError
from tfdoctor.system import LiveSystem
from tfdoctor.system.writing import write_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.images.engine.building import BuildRequest
    from tfdoctor.images.engine.connection import ContainerEngine

__all__ = ["build_with_client", "find_buildkit_client"]

FIRST_BUILDKIT_API = (1, 41)
"""The first API version (engine 20.10) whose BuildKit knows `RUN --mount` without a frontend that must be pulled."""
_CLIENT_VERSION = re.compile(r"Docker version (\d{1,4})\.")
_VERTEX = re.compile(r"#(\d{1,6}) (.*)")
_INSTRUCTION = re.compile(r"\[(?:[\w.-]{1,100} )?\s*(\d{1,4})/(\d{1,4})\] (.*)")
_TIMED_LINE = re.compile(r"\d{1,6}\.\d{1,4} (.*)")
_CLIENT_TIMEOUT_S = 20


def find_buildkit_client(engine: ContainerEngine) -> tuple[str, ...] | None:
    """Return the command line of a client that builds with the engine's BuildKit, or None if there is none.

    From version 23 on, Docker's client needs the buildx plugin for it. Versions 20 to 22 have it built in. As in Docker's
    client, DOCKER_BUILDKIT=0 selects the classic builder.
    """
    system = LiveSystem()
    if engine.name != "docker" or engine.api_version < FIRST_BUILDKIT_API:
        return None
    docker = system.which("docker")
    if docker is None or system.env.get("DOCKER_BUILDKIT") == "0":
        return None
    if system.run((docker, "buildx", "version"), timeout=_CLIENT_TIMEOUT_S).ok:
        return (docker, "buildx", "build", "--load")
    match = _CLIENT_VERSION.search(system.run((docker, "--version"), timeout=_CLIENT_TIMEOUT_S).stdout)
    return (docker, "build") if match and 20 <= int(match[1]) < 23 else None


def build_with_client(
    engine: ContainerEngine,
    client: tuple[str, ...],
    request: BuildRequest,
    on_event: Callable[[BuildEvent], None],
) -> str:
    """Build an image with BuildKit, report its events, and return the ID of the image.

    Secrets are files in a private folder while the build runs. Raise BuildFailedError if a step fails, and EngineError if
    the client fails.
    """
    reader = _ProgressReader(on_event)
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        folder = Path(name)
        command = [*client, "--progress", "plain", "--iidfile", str(folder / "id"), "--tag", request.tag]
        for secret, content in request.secrets.items():
            path = folder / f"secret-{secret}"
            path.write_bytes(content)
            command += ["--secret", f"id={secret},src={path}"]
        for option, values in (("--label", request.labels), ("--build-arg", request.arguments)):
            command += [word for key, value in values.items() for word in (option, f"{key}={value}")]
        for option, value in (("--platform", request.platform), ("--network", request.network)):
            command += [option, value] if value else []
        command += ["--no-cache"] if request.no_cache else []
        context = folder / "context"
        files = {**request.files, "Dockerfile": request.dockerfile.encode()}
        write_tree(context, files, request.executables, epoch=0)
        # The client writes its progress to standard error.
        result = LiveSystem().run_streaming(
            ("sh", "-c", 'exec "$@" 2>&1', "sh", *command, str(context)),
            reader.feed,
            timeout=request.silence_timeout_s,
            env=_make_client_variables(engine),
        )
        if not result.ok:
            raise reader.make_error(result.describe_outcome())
        return (folder / "id").read_text(encoding="ascii").strip()


def _make_client_variables(engine: ContainerEngine) -> dict[str, str]:
    """Return the variables with which the client builds on this engine, not on another builder of the user."""
    variables = {"DOCKER_BUILDKIT": "1", "BUILDX_BUILDER": "default", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    if engine.url.startswith(
        "unix://"
    ):  # other addresses come from the variables or the context that the client reads
        variables["DOCKER_HOST"] = engine.url
    return variables


class _ProgressReader:
    """A reader of BuildKit's plain progress: each line begins with the number of its step."""

    def __init__(self, on_event: Callable[[BuildEvent], None]) -> None:
        self._on_event = on_event
        self._rest = b""
        self._steps: dict[str, tuple[str, int, int]] = {}
        self._lines: dict[str, list[str]] = {}
        self._other_lines: list[str] = []
        self._failed_step = self._reason = ""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data)[-1_000_000:].split(b"\n")
        for line in lines:
            self._read_line(clean(line.decode("utf-8", "replace"), limit=20_000).rstrip())

    def _read_line(self, line: str) -> None:
        match = _VERTEX.fullmatch(line)
        if match is None:
            self._other_lines = [*self._other_lines[-MAX_STEP_LINES + 1 :], line]
            return
        number, text = match[1], match[2]
        header = _INSTRUCTION.fullmatch(text)
        if header is not None:
            if number not in self._steps:
                self._steps[number] = (header[3], int(header[1]), int(header[2]))
                self._on_event(BuildEvent("step", *self._steps[number]))
            return
        if text.startswith("ERROR: "):
            self._failed_step, self._reason = number, text.removeprefix("ERROR: ")
        step = self._steps.get(number)
        if step is None:
            return
        if text == "CACHED":
            self._on_event(BuildEvent("cached", *step))
        elif (output := _TIMED_LINE.fullmatch(text)) is not None:
            self._lines[number] = [*self._lines.get(number, ())[-MAX_STEP_LINES + 1 :], output[1]]
            self._on_event(BuildEvent("output", output[1], step[1], step[2]))

    def make_error(self, outcome: str) -> EngineError:
        """Return the error for a client that failed."""
        if self._rest:
            self.feed(b"\n")
        instruction = self._steps.get(self._failed_step, ("", 0, 0))[0]
        reason = self._reason or next((line for line in reversed(self._other_lines) if line), outcome)
        if not self._steps:
            message = f"Docker's client could not build: {clean_line(reason, limit=600)}"
            return EngineError(message)
        return make_build_error(instruction, self._lines.get(self._failed_step, []), reason)
