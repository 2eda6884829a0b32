"""Where Docker's client connects: DOCKER_HOST, the context that was chosen, or its own socket."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from tfdoctor.parse import engine as parse

if TYPE_CHECKING:
    from tfdoctor.system import System

__all__ = ["endpoint_of", "identity_of", "settings_folder"]

DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"


def endpoint_of(system: System) -> tuple[str, str | None]:
    """Return (where Docker's client would connect, the context that says so), in the client's own order.

    The first is empty if that context is not there, or names nothing.
    """
    host = system.env.get("DOCKER_HOST", "")
    if host:
        return host, None
    folder = settings_folder(system)
    name = system.env.get("DOCKER_CONTEXT") or ""
    if not name:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            name = (
                parse.word(
                    parse.table(json.loads(system.read_text(f"{folder}/config.json"))).get("currentContext")
                )
                or ""
            )
    if name in ("", "default"):
        return DEFAULT_ENDPOINT, None
    meta = f"{folder}/contexts/meta/{identity_of(name)}/meta.json"
    with contextlib.suppress(OSError, ValueError, RecursionError):
        endpoints = parse.table(parse.table(json.loads(system.read_text(meta))).get("Endpoints"))
        return parse.word(parse.table(endpoints.get("docker")).get("Host")) or "", name
    return "", name


def settings_folder(system: System) -> str:
    """Return where Docker's client has its settings."""
    return system.env.get("DOCKER_CONFIG") or f"{system.env.get('HOME', '')}/.docker"


def identity_of(context: str) -> str:
    """Return the name of a context's folders."""
    import hashlib  # loads OpenSSL, for Docker's contexts alone

    return hashlib.sha256(context.encode("utf-8", "replace")).hexdigest()
