"""Push an image to the registry in its name, with the credentials that `docker login` stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from tfdoctor.core.text import clean_line
from tfdoctor.images.engine.building import make_layer_event
from tfdoctor.images.engine.connection import EngineError, make_engine_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.images.engine.connection import ContainerEngine

__all__ = ["parse_push_messages", "push"]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""The digest of an image in an engine's message."""


def push(engine: ContainerEngine, tag: str, progress: Progress) -> str:
    """Push the image with this name and return its digest. Raise EngineError if the push fails."""
    progress.begin_stage(f"Pushing {tag}")
    try:
        return parse_push_messages(engine.client.api.push(tag, stream=True, decode=True), tag, progress)
    except (APIError, DockerException, RequestException, HTTPError, OSError, ValueError) as error:
        # The SDK reads the stream with urllib3, whose HTTPError is not wrapped. Truncated JSON is a ValueError.
        if isinstance(error, EngineError):
            raise
        raise make_engine_error(error, f"pushing {tag}") from error


def parse_push_messages(messages: Iterable[dict[str, Any]], tag: str, progress: Progress) -> str:
    """Report the engine's messages about a push to `progress`, and return the digest that they end with.

    Raise EngineError if the push fails or no digest is reported.
    """
    digest = ""
    for message in messages:
        if "error" in message:
            raise make_engine_error(RuntimeError(str(message["error"])), f"pushing {tag}")
        aux = message.get("aux")
        text = str(aux.get("Digest", "")) if isinstance(aux, dict) else str(message.get("status", ""))
        match = _DIGEST.search(text)
        digest = match[0] if match else digest
        if "id" in message:
            event = make_layer_event(message)
            progress.report_layer(event.layer_id, event.text, event.transferred_bytes, event.layer_bytes)
    if not digest:
        msg = f"pushing {clean_line(tag)}: the engine did not report the image's digest."
        raise EngineError(msg, hint=f"docker push {clean_line(tag)}   says more.")
    return digest
