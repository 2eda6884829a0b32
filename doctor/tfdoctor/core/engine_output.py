"""Parse the output and the configuration files of container engines and of NVIDIA's container toolkit."""

from __future__ import annotations

import json
from typing import Any

from tfdoctor.core import toml
from tfdoctor.core.text import make_lazy_pattern

VERSION_PATTERN = make_lazy_pattern(r"\b(\d{1,4}\.\d{1,4}(?:\.\d{1,6})?(?:[-~+.][0-9A-Za-z.+~-]{1,40})?)")
_FAILURE_PHRASES = (
    ("permission", ("permission denied",)),
    ("context", ("context not found", "unable to resolve docker endpoint")),
    (
        "not-running",
        ("cannot connect to the docker daemon", "failed to connect to the docker api", "connection refused"),
    ),
)
"""Kinds of failure, each with phrases (in lower case) that releases of the Docker client print."""


def find_version(text: str) -> str | None:
    """Return the first version number in the output of `--version`, or None if there is no version number."""
    match = VERSION_PATTERN.search(text[:2000])
    return match[1].rstrip(".,") if match else None


def parse_info(text: str) -> dict[str, Any] | None:
    """Return the JSON object that `docker info --format '{{json .}}'` printed, or None if it is not valid."""
    start = text.find("{")
    try:
        document = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def classify_failure(stderr: str) -> str:
    """Return the kind of a Docker client failure: "permission", "context", "not-running" or "other"."""
    text = stderr[:8000].lower()
    return next(
        (kind for kind, phrases in _FAILURE_PHRASES if any(phrase in text for phrase in phrases)), "other"
    )


def parse_daemon_json(text: str) -> tuple[dict[str, Any], str]:
    """Return (object, "") for a daemon.json, or ({}, reason) if it is invalid.

    An empty file is valid, because dockerd accepts it, too.
    """
    if not text.strip():
        return {}, ""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, str(error)
    return (document, "") if isinstance(document, dict) else ({}, "it is not a JSON object")


def parse_toolkit_toml(text: str) -> tuple[dict[str, Any], str]:
    """Return (tables, "") for the toolkit's config.toml, or ({}, reason) if it is not valid TOML."""
    try:
        return toml.loads(text), ""
    except toml.TomlError as error:
        return {}, str(error)


def list_strings(value: Any) -> tuple[str, ...]:
    """Return the strings in a list, or () if the value is not a list."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def table_or_empty(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object or TOML table, else {}."""
    return value if isinstance(value, dict) else {}


def text_or_none(value: Any) -> str | None:
    """Return the value if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def bool_or_none(value: Any) -> bool | None:
    """Return the value if it is a boolean, else None."""
    return value if isinstance(value, bool) else None
