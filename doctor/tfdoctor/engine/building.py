"""Building an image from a Dockerfile and its context, as a stream of events, cancellable at any of them.

The classic builder is used, which every engine from 1.9 to today and Podman's socket have: no BuildKit is needed.
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

from tfdoctor.engine.connection import EngineError, explain_api
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from tfdoctor.engine.connection import ContainerEngine

__all__ = [
    "BuildEvent",
    "BuildFailedError",
    "BuildRequest",
    "build",
    "context_archive",
    "forget_unfinished",
    "make_unfinished_name",
]

_STEP = re.compile(r"^STEP (\d{1,4})/(\d{1,4}): |^Step (\d{1,4})/(\d{1,4}) : ", re.IGNORECASE)
_BUILT = re.compile(r"^Successfully built ([0-9a-f]{12,64})")
_MADE = re.compile(r"^-{2,3}> ([0-9a-f]{11,64})$")
"""A step has ended with this image."""
UNFINISHED = "tfdoctor/unfinished"
"""What the finished steps of a build that did not end are called: without a name they are `<none>` among the images."""
_MAX_STEP_LINES = 40
"""Lines of a failing step that are told."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build."""

    dockerfile: str
    files: Mapping[str, bytes]
    tag: str
    labels: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments; the proxies' names are kept out of the image's history by the engine."""
    no_cache: bool = False
    platform: str | None = None
    network: str | None = None
    timeout: int = 4 * 3600
    """Seconds without a word from the engine after which it is given up."""


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """One thing that happened."""

    kind: Literal["step", "cached", "output", "layer", "image"]
    text: str = ""
    """"step": the instruction; "output": a line; "layer": its state; "image": the id."""
    number: int = 0
    total: int = 0
    layer: str = ""
    current: int | None = None
    """"layer": bytes."""
    size: int | None = None


class BuildFailedError(EngineError):
    """A step failed; `step` and the last lines it printed say which and why."""

    kind = "build"

    def __init__(self, message: str, *, hint: str, step: str, output: tuple[str, ...]) -> None:
        super().__init__(message, hint=hint)
        self.step = step
        self.output = output


def context_archive(dockerfile: str, files: Mapping[str, bytes]) -> bytes:
    """Return the context as an uncompressed tar.

    The same bytes for the same files, so that the engine's cache holds.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted({**files, "Dockerfile": dockerfile.encode()}.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, 0
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def build(engine: ContainerEngine, request: BuildRequest) -> Generator[BuildEvent, None, None]:
    """Build, and tell what happens; the last event is the "image".

    Closing the iterator (Ctrl-C does) makes the engine stop the running step and remove its container; finished
    steps stay in the engine under `make_unfinished_name`, so that the next build goes on from there. Raises
    BuildFailedError, EngineError.
    """
    made: list[str] = []
    ended = False
    try:
        stream = engine.client.api.build(
            fileobj=io.BytesIO(context_archive(request.dockerfile, request.files)),
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
        for event in _events(stream, made):
            ended = event.kind == "image"
            yield event
    except (APIError, DockerException, RequestException, HTTPError, OSError, ValueError) as error:
        # HTTPError is urllib3's: the SDK reads the stream without requests. ValueError: JSON that was cut off.
        raise explain_api(error, "building the image") from error
    finally:
        if made and not ended:
            _name_unfinished(engine, made[-1], request.tag)


def make_unfinished_name(tag: str) -> str:
    """Return what the finished steps of the build of this image are called, where it does not end."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", tag)[-120:].lstrip(".-")
    return f"{UNFINISHED}:{name or 'image'}"


def _name_unfinished(engine: ContainerEngine, image: str, tag: str) -> None:
    """Name the image of the last step that ended; never raises: another failure is on its way."""
    repository, _, name = make_unfinished_name(tag).rpartition(":")
    with contextlib.suppress(EngineError, APIError, DockerException, RequestException, HTTPError, OSError):
        last, before = engine.image(image), engine.image(make_unfinished_name(tag))
        if last is None or last.tags or last.digests:  # the base, or another's
            return
        engine.client.api.tag(last.id, repository, name)
        if before is not None and before.id != last.id:
            engine.remove_image(before.id)  # what is of no other image


def forget_unfinished(engine: ContainerEngine, tag: str) -> None:
    """The build has ended: what is left of one that had not is of the image, or of nothing."""
    with contextlib.suppress(EngineError):
        engine.remove_image(make_unfinished_name(tag))


def _events(stream: Iterator[dict[str, Any]], made: list[str]) -> Iterator[BuildEvent]:
    """Yield `made`: is given the images of the steps that ended."""
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
                    elif _MADE.match(text):
                        made.append(text.split()[1])
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
    """Return what an engine says of a layer while it is pulled."""
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
    said = clean_line(str(message.get("error", "")), limit=600)
    plain = explain_api(RuntimeError(said), "x")
    hint = plain.hint or _hint_of("\n".join(recent))
    what = f"the step `{clean_line(step, limit=200)}` failed" if step else "the build failed"
    return BuildFailedError(f"{what}: {said}", hint=hint, step=step, output=tuple(recent))


def _hint_of(output: str) -> str:
    """Return what a step's own words mean."""
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
    # pip says so, too, of an index that it did not reach: that is asked first.
    if "could not find a version" in lower or "no matching distribution" in lower:
        return "The package index does not have it: another --index, or the requirement is wrong."
    if "conflicting dependencies" in lower:
        return "A requirement of yours asks for a different version than TensorFlow's own: loosen it, or leave it out."
    if "no_pubkey" in lower or "is not signed" in lower:
        return "An apt list in the base has a retired key."
    return ""
