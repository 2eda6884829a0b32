"""Image builds from a Dockerfile and its context, as a stream of events that can be cancelled at any time.

The classic builder is used, because every engine since 1.9 and Podman's socket have it. BuildKit is not required.
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

from tfdoctor.engine.connection import EngineError, explain_api_error
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from tfdoctor.engine.connection import ContainerEngine

__all__ = [
    "BuildEvent",
    "BuildFailedError",
    "BuildRequest",
    "build",
    "make_context_archive",
    "make_unfinished_name",
    "remove_unfinished",
]

_STEP = re.compile(r"^STEP (\d{1,4})/(\d{1,4}): |^Step (\d{1,4})/(\d{1,4}) : ", re.IGNORECASE)
_BUILT = re.compile(r"^Successfully built ([0-9a-f]{12,64})")
_STEP_IMAGE = re.compile(r"^-{2,3}> ([0-9a-f]{11,64})$")
"""The line at the end of a step, with the id of its image."""
UNFINISHED_REPOSITORY = "tfdoctor/unfinished"
"""Repository for the finished steps of an interrupted build; an unnamed image is listed as `<none>`."""
_MAX_STEP_LINES = 40
"""Output lines of a failing step that are reported."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The image to build, and how."""

    dockerfile: str
    files: Mapping[str, bytes]
    tag: str
    labels: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments. The engine keeps the proxy variables out of the image's history."""
    no_cache: bool = False
    platform: str | None = None
    network: str | None = None
    timeout: int = 4 * 3600
    """Seconds of silence from the engine after which the build fails."""


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """One event of a build or a pull."""

    kind: Literal["step", "cached", "output", "layer", "image"]
    text: str = ""
    """"step" and "cached": the instruction; "output": a line; "layer": its state; "image": the id."""
    number: int = 0
    total: int = 0
    layer: str = ""
    current: int | None = None
    """Bytes of the layer that are done; None if unknown or if this is not a "layer" event."""
    size: int | None = None
    """Bytes of the whole layer; None as for `current`."""


class BuildFailedError(EngineError):
    """A build step failed: `step` is its instruction, `output` the last lines that it printed."""

    kind = "build"

    def __init__(self, message: str, *, hint: str, step: str, output: tuple[str, ...]) -> None:
        super().__init__(message, hint=hint)
        self.step = step
        self.output = output


def make_context_archive(dockerfile: str, files: Mapping[str, bytes]) -> bytes:
    """Return the context as an uncompressed tar.

    The same files give the same bytes, so that the engine's cache stays valid.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted({**files, "Dockerfile": dockerfile.encode()}.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, 0
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def build(engine: ContainerEngine, request: BuildRequest) -> Generator[BuildEvent, None, None]:
    """Build an image and yield the events of the build; the last one is the "image" event.

    Closing the iterator (Ctrl-C does) makes the engine stop the running step and remove its container. The finished
    steps stay in the engine under `make_unfinished_name`, so that the next build continues from them. Raise
    BuildFailedError if a step fails, and EngineError if the engine does.
    """
    finished_images: list[str] = []
    has_ended = False
    try:
        stream = engine.client.api.build(
            fileobj=io.BytesIO(make_context_archive(request.dockerfile, request.files)),
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
            timeout=request.timeout,
            decode=True,
        )
        for event in _parse_events(stream, finished_images):
            has_ended = event.kind == "image"
            yield event
    except (APIError, DockerException, RequestException, HTTPError, OSError, ValueError) as error:
        # HTTPError is urllib3's: the SDK reads the stream without requests. ValueError: JSON that was cut off.
        raise explain_api_error(error, "building the image") from error
    finally:
        if finished_images and not has_ended:
            _name_unfinished(engine, finished_images[-1], request.tag)


def make_unfinished_name(tag: str) -> str:
    """Return the image name for the finished steps of an interrupted build of `tag`."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", tag)[-120:].lstrip(".-")
    return f"{UNFINISHED_REPOSITORY}:{name or 'image'}"


def _name_unfinished(engine: ContainerEngine, image: str, tag: str) -> None:
    """Tag the image of the last finished step. Never raise, because another error is being handled."""
    repository, _, name = make_unfinished_name(tag).rpartition(":")
    with contextlib.suppress(EngineError, APIError, DockerException, RequestException, HTTPError, OSError):
        last, previous = engine.image(image), engine.image(make_unfinished_name(tag))
        if last is None or last.tags or last.digests:  # it is the base image, or belongs to another image
            return
        engine.client.api.tag(last.id, repository, name)
        if previous is not None and previous.id != last.id:
            engine.remove_image(previous.id)  # also deletes its layers, except those that other images share


def remove_unfinished(engine: ContainerEngine, tag: str) -> None:
    """Remove the name of an earlier unfinished build after a complete one.

    Its image is now a part of the complete one, or is deleted with the name.
    """
    with contextlib.suppress(EngineError):
        engine.remove_image(make_unfinished_name(tag))


def _parse_events(stream: Iterator[dict[str, Any]], finished_images: list[str]) -> Iterator[BuildEvent]:
    """Yield the events of a build's messages; append the image id of each finished step to `finished_images`.

    Raise BuildFailedError if a step fails, and EngineError if the stream ends without an image.
    """
    step, number, total, image = "", 0, 0, ""
    recent: list[str] = []
    try:
        for message in stream:
            if "error" in message:
                raise _make_build_error(step, recent, message)
            aux = message.get("aux")
            if isinstance(aux, dict) and str(aux.get("ID", "")).startswith("sha256:"):
                image = str(aux["ID"])
            if "stream" in message:
                for line in clean(str(message["stream"]), limit=20_000).splitlines():
                    text = line.strip()
                    match = _STEP.match(text)
                    if match:
                        number, total = (int(match[1] or match[3]), int(match[2] or match[4]))
                        step, recent = text[match.end() :], []
                        yield BuildEvent("step", step, number, total)
                    elif text.startswith(("---> Using cache", "--> Using cache")):
                        yield BuildEvent("cached", step, number, total)
                    elif _STEP_IMAGE.match(text):
                        finished_images.append(text.split()[1])
                    elif _BUILT.match(text):
                        image = image or _BUILT.match(text)[1]  # type: ignore[index]
                    elif text and not text.startswith(("--->", "--> ", "Removing intermediate container ")):
                        recent = [*recent[-_MAX_STEP_LINES + 1 :], line.rstrip()]
                        yield BuildEvent("output", line.rstrip(), number, total)
            elif "status" in message:
                yield layer_event(message, number, total)
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


def layer_event(message: dict[str, Any], number: int = 0, total: int = 0) -> BuildEvent:
    """Return an engine's message about a layer as a "layer" event."""
    detail = message.get("progressDetail") or {}
    current, size = detail.get("current"), detail.get("total")
    return BuildEvent(
        "layer",
        clean_line(str(message.get("status", "")), limit=120),
        number,
        total,
        clean_line(str(message.get("id", "")), limit=80),
        current if isinstance(current, int) else None,
        size if isinstance(size, int) else None,
    )


def _make_build_error(step: str, recent: list[str], message: dict[str, Any]) -> BuildFailedError:
    """Return the error for a failed build, with a hint from the engine's message or the step's output."""
    reason = clean_line(str(message.get("error", "")), limit=600)
    explained = explain_api_error(RuntimeError(reason), "x")
    hint = explained.hint or _explain_output("\n".join(recent))
    title = f"the step `{clean_line(step, limit=200)}` failed" if step else "the build failed"
    return BuildFailedError(f"{title}: {reason}", hint=hint, step=step, output=tuple(recent))


def _explain_output(output: str) -> str:
    """Return a hint for the output of a failed step, or an empty string."""
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
    # pip prints this also for an index that it cannot reach, so the network is checked first.
    if "could not find a version" in lower or "no matching distribution" in lower:
        return "The package index does not have it: another --index, or the requirement is wrong."
    if "conflicting dependencies" in lower:
        return "A requirement of yours asks for a different version than TensorFlow's own: loosen it, or leave it out."
    if "no_pubkey" in lower or "is not signed" in lower:
        return "An apt list in the base has a retired key."
    return ""
