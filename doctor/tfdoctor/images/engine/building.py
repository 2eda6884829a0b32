"""Build images from a Dockerfile and its context, as a stream of events that can be cancelled.

The classic builder is used, because Docker (since version 1.9) and the API of Podman support it. BuildKit is not
required.
"""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from tfdoctor.core.text import clean, clean_line
from tfdoctor.images.engine.connection import EngineError, make_engine_error

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterator, Mapping

    from tfdoctor.images.engine.connection import ContainerEngine

__all__ = [
    "MAX_STEP_LINES",
    "BuildEvent",
    "BuildFailedError",
    "BuildRequest",
    "build",
    "make_build_error",
    "make_context_archive",
    "make_unfinished_image_name",
    "remove_unfinished_image",
]

_STEP = re.compile(r"^STEP (\d{1,4})/(\d{1,4}): |^Step (\d{1,4})/(\d{1,4}) : ", re.IGNORECASE)
"""The beginning of the line that announces a step: "STEP 1/9: " (Podman) or "Step 1/9 : " (Docker)."""
_BUILT = re.compile(r"^Successfully built ([0-9a-f]{12,64})")
"""The last line of a build, with the ID of the image."""
_STEP_IMAGE = re.compile(r"^-{2,3}> ([0-9a-f]{11,64})$")
"""The line at the end of a step, with the ID of its image."""
UNFINISHED_REPOSITORY = "tfdoctor/unfinished"
"""The name for the finished steps of an interrupted build, so that they are not listed as `<none>`."""
MAX_STEP_LINES = 40
"""The most output lines of a failed step that are reported."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The image to build, and the build settings."""

    dockerfile: str
    files: Mapping[str, bytes]
    """The content of each context file except the Dockerfile, by name."""
    tag: str
    executables: frozenset[str] = frozenset()
    """The names of the context files that are executable."""
    labels: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments. The engine omits the proxy variables from the image's history."""
    no_cache: bool = False
    """Whether to build every step again."""
    platform: str | None = None
    """The platform, such as `linux/amd64`. None for the engine's default."""
    network: str | None = None
    """The network of the build steps, such as `host`. None for the engine's default."""
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Build secrets by ID, which only BuildKit can mount (`client_build`)."""
    silence_timeout_s: int = 4 * 3600
    """Seconds without a message from the engine after which the build fails."""


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """An event of a build or a pull."""

    kind: Literal["step", "cached", "output", "layer", "image"]
    text: str = ""
    """The text of the event, depending on its kind.

    * "step" and "cached": the instruction.
    * "output": a line of output.
    * "layer": the state of the layer.
    * "image": the ID of the image.
    """
    step_number: int = 0
    """The number of the current step, starting at 1. 0 if no step has begun."""
    step_count: int = 0
    """The number of steps."""
    layer_id: str = ""
    """The ID of the layer. Empty unless this is a "layer" event."""
    transferred_bytes: int | None = None
    """Bytes of the layer that are transferred. None if unknown, or if this is not a "layer" event."""
    layer_bytes: int | None = None
    """Size of the layer in bytes. None if unknown, or if this is not a "layer" event."""


class BuildFailedError(EngineError):
    """A build step failed. `step` is its instruction, and `output` are the last lines that it printed."""

    kind = "build"

    def __init__(self, message: str, *, hint: str, step: str, output: tuple[str, ...]) -> None:
        super().__init__(message, hint=hint)
        self.step = step
        self.output = output


def make_context_archive(
    dockerfile: str, files: Mapping[str, bytes], executables: Container[str] = ()
) -> bytes:
    """Return the build context as an uncompressed tar archive.

    The same files give the same bytes, so that the engine's cache stays valid.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted({**files, "Dockerfile": dockerfile.encode()}.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o755 if name in executables else 0o644, 0
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def build(engine: ContainerEngine, request: BuildRequest) -> Generator[BuildEvent, None, None]:
    """Build an image and yield the events of the build. The last one is the "image" event.

    If the iterator is closed, for example by Ctrl-C, the engine stops the running step and removes its container. The
    finished steps stay in the engine under the name from `make_unfinished_image_name`, and the next build continues from them.
    Raise BuildFailedError if a step fails, and EngineError if the engine fails.
    """
    finished_images: list[str] = []
    has_ended = False
    try:
        stream = engine.client.api.build(
            fileobj=io.BytesIO(make_context_archive(request.dockerfile, request.files, request.executables)),
            custom_context=True,
            dockerfile="Dockerfile",
            tag=request.tag,
            labels=dict(request.labels),
            buildargs=dict(request.arguments),
            nocache=request.no_cache,
            rm=True,
            forcerm=True,
            pull=False,
            platform=request.platform,
            network_mode=request.network,
            timeout=request.silence_timeout_s,
            decode=True,
        )
        for event in _parse_events(stream, finished_images):
            has_ended = event.kind == "image"
            yield event
    except (APIError, DockerException, RequestException, HTTPError, OSError, ValueError) as error:
        # The SDK reads the stream with urllib3, whose HTTPError is not wrapped. Truncated JSON is a ValueError.
        raise make_engine_error(error, "building the image") from error
    finally:
        if finished_images and not has_ended:
            _name_unfinished(engine, finished_images[-1], request.tag)


def make_unfinished_image_name(tag: str) -> str:
    """Return the image name for the finished steps of an interrupted build of `tag`.

    A tag may have 128 characters and may not begin with a dot or a hyphen.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", tag)[-120:].lstrip(".-")
    return f"{UNFINISHED_REPOSITORY}:{name or 'image'}"


def _name_unfinished(engine: ContainerEngine, image: str, tag: str) -> None:
    """Tag the image of the last finished step, and remove the tagged image of an earlier build.

    Errors are ignored, because another error is being handled.
    """
    repository, _, name = make_unfinished_image_name(tag).rpartition(":")
    with contextlib.suppress(EngineError, APIError, DockerException, RequestException, HTTPError, OSError):
        last_image, previous_image = (
            engine.find_image(image),
            engine.find_image(make_unfinished_image_name(tag)),
        )
        # A name or a digest shows that the image is the base image, or that it already has another name.
        if last_image is None or last_image.tags or last_image.digests:
            return
        engine.client.api.tag(last_image.id, repository, name)
        if previous_image is not None and previous_image.id != last_image.id:
            engine.remove_image(previous_image.id)  # also deletes the layers that no other image uses


def remove_unfinished_image(engine: ContainerEngine, tag: str) -> None:
    """Remove the image of an earlier unfinished build after a complete build of `tag`.

    The layers that are part of the complete image are not deleted.
    """
    with contextlib.suppress(EngineError):
        engine.remove_image(make_unfinished_image_name(tag))


def _parse_events(stream: Iterator[dict[str, Any]], finished_images: list[str]) -> Iterator[BuildEvent]:
    """Yield the events in a build's messages, and append finished steps' image IDs to `finished_images`.

    Raise BuildFailedError if a step fails, and EngineError if the stream ends without an image.
    """
    instruction, number, total, image = "", 0, 0, ""
    recent_lines: list[str] = []
    try:
        for message in stream:
            if "error" in message:
                raise make_build_error(instruction, recent_lines, str(message.get("error", "")))
            aux = message.get("aux")
            if isinstance(aux, dict) and str(aux.get("ID", "")).startswith("sha256:"):
                image = str(aux["ID"])
            if "stream" in message:
                for line in clean(str(message["stream"]), limit=20_000).splitlines():
                    text = line.strip()
                    match = _STEP.match(text)
                    if match:
                        # The groups of Podman's form are 1 and 2, those of Docker's form 3 and 4.
                        number, total = (int(match[1] or match[3]), int(match[2] or match[4]))
                        instruction, recent_lines = text[match.end() :], []
                        yield BuildEvent("step", instruction, number, total)
                    elif text.startswith(("---> Using cache", "--> Using cache")):
                        yield BuildEvent("cached", instruction, number, total)
                    elif _STEP_IMAGE.match(text):
                        finished_images.append(text.split()[1])
                    elif _BUILT.match(text):
                        image = image or _BUILT.match(text)[1]  # type: ignore[index]
                    elif text and not text.startswith(("--->", "--> ", "Removing intermediate container ")):
                        recent_lines = [*recent_lines[-MAX_STEP_LINES + 1 :], line.rstrip()]
                        yield BuildEvent("output", line.rstrip(), number, total)
            elif "status" in message:
                yield make_layer_event(message, number, total)
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    if not image:
        raise EngineError(
            "the engine ended the build without an image and without a reason.",
            hint="See its log: sudo journalctl -u docker -n 50",
        )
    yield BuildEvent("image", image, number, total)


def make_layer_event(message: dict[str, Any], number: int = 0, total: int = 0) -> BuildEvent:
    """Return the "layer" event for an engine's message about a layer."""
    detail = message.get("progressDetail") or {}
    current, size = detail.get("current"), detail.get("total")
    return BuildEvent(
        kind="layer",
        text=clean_line(str(message.get("status", "")), limit=120),
        step_number=number,
        step_count=total,
        layer_id=clean_line(str(message.get("id", "")), limit=80),
        transferred_bytes=current if isinstance(current, int) else None,
        layer_bytes=size if isinstance(size, int) else None,
    )


def make_build_error(step: str, recent_lines: list[str], reason: str) -> BuildFailedError:
    """Return the error for a failed build.

    `recent_lines` are the last output lines of the step. The hint is derived from the engine's reason or these lines.
    """
    reason = clean_line(reason, limit=600)
    explained_error = make_engine_error(RuntimeError(reason), "x")  # only its hint is used
    hint = explained_error.hint or _explain_output("\n".join(recent_lines))
    title = f"the step `{clean_line(step, limit=200)}` failed" if step else "the build failed"
    return BuildFailedError(f"{title}: {reason}", hint=hint, step=step, output=tuple(recent_lines))


def _explain_output(output: str) -> str:
    """Return a hint for the output of a failed step, or an empty string if the cause is unknown."""
    lower = output.lower()
    if "no space left on device" in lower:
        return "The engine's disk is full: docker system df; docker builder prune; docker image prune"
    if (
        "certificate verify failed" in lower
        or "self-signed certificate" in lower
        or "self signed certificate" in lower
    ):
        return "Your network has its own certificate authority: --ca-cert /etc/ssl/certs/ca-certificates.crt"
    if "do not match the hashes" in lower:
        return "The index served a different file than the one that was tested: try another --index, or report it."
    if (
        "temporary failure resolving" in lower
        or "name or service not known" in lower
        or "failed to establish a new connection" in lower
        or "newconnectionerror" in lower
        or "connection timed out" in lower
        or "connecttimeouterror" in lower
        or "name resolution" in lower
        or "network is unreachable" in lower
    ):
        return (
            "The network of the build does not reach it: --proxy URL, --index URL, or the engine's settings."
        )
    if (
        "401 error" in lower
        or "403 error" in lower
        or "401 client error" in lower
        or "403 client error" in lower
    ):
        return "The package index refuses the login: see the entry for its host in ~/.netrc, or the keyring."
    # pip also prints this if it cannot reach the index, so the network is checked first.
    if "could not find a version" in lower or "no matching distribution" in lower:
        return "The package index does not have it: another --index, or the requirement is wrong."
    if "conflicting dependencies" in lower:
        return "A requirement of yours asks for a different version than TensorFlow's own: loosen it, or leave it out."
    if "no_pubkey" in lower or "is not signed" in lower:
        return "An apt list in the base has a retired key."
    return ""
