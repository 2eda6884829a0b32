"""Find the address of the Docker client's engine: DOCKER_HOST, the current context, or the default."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from tfdoctor.core import engine_output as parse

if TYPE_CHECKING:
    from tfdoctor.system import System

__all__ = ["find_endpoint", "get_docker_settings_folder", "hash_context_name"]

DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"


def find_endpoint(system: System) -> tuple[str, str | None]:
    """Return the address that the Docker client would use, and the name of the context that defines it.

    The order of precedence is that of the client. The name is None if no context is used. The address is "" if
    the context does not exist or defines no address.
    """
    host = system.env.get("DOCKER_HOST", "")
    if host:
        return host, None
    folder = get_docker_settings_folder(system)
    name = system.env.get("DOCKER_CONTEXT") or ""
    if not name:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            name = (
                parse.text_or_none(
                    parse.table_or_empty(json.loads(system.read_text(f"{folder}/config.json"))).get(
                        "currentContext"
                    )
                )
                or ""
            )
    if name in ("", "default"):
        return DEFAULT_ENDPOINT, None
    meta_path = f"{folder}/contexts/meta/{hash_context_name(name)}/meta.json"
    with contextlib.suppress(OSError, ValueError, RecursionError):
        endpoints = parse.table_or_empty(
            parse.table_or_empty(json.loads(system.read_text(meta_path))).get("Endpoints")
        )
        return parse.text_or_none(parse.table_or_empty(endpoints.get("docker")).get("Host")) or "", name
    return "", name


def get_docker_settings_folder(system: System) -> str:
    """Return the settings folder of the Docker client."""
    return system.env.get("DOCKER_CONFIG") or f"{system.env.get('HOME', '')}/.docker"


def hash_context_name(context: str) -> str:
    """Return the SHA-256 digest that is the name of a context's folders."""
    import hashlib  # imports OpenSSL, which is slow

    return hashlib.sha256(context.encode("utf-8", "replace")).hexdigest()
