"""What container engines and NVIDIA's container toolkit print, and their configuration files."""

from __future__ import annotations

import json
from typing import Any

from tfdoctor.parse import toml
from tfdoctor.text import lazy_pattern

VERSION = lazy_pattern(r"\b(\d{1,4}\.\d{1,4}(?:\.\d{1,6})?(?:[-~+.][0-9A-Za-z.+~-]{1,40})?)")
_SILENCES = (
    ("permission", ("permission denied",)),
    ("context", ("context not found", "unable to resolve docker endpoint")),
    (
        "not-running",
        ("cannot connect to the docker daemon", "failed to connect to the docker api", "connection refused"),
    ),
)
"""Kind → what Docker's client of any release says then, in lower case."""


def version_in(text: str) -> str | None:
    """Return the first version number of what `--version` printed."""
    match = VERSION.search(text[:2000])
    return match[1].rstrip(".,") if match else None


def info_document(text: str) -> dict[str, Any] | None:
    """Return `docker info --format '{{json .}}'`: its JSON object, else None."""
    start = text.find("{")
    try:
        document = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def silence_of(stderr: str) -> str:
    """Return the kind of a refusal of Docker's client: "permission", "context", "not-running", "other"."""
    text = stderr[:8000].lower()
    return next((kind for kind, words in _SILENCES if any(word in text for word in words)), "other")


def daemon_json(text: str) -> tuple[dict[str, Any], str]:
    """Return (the object, "") of a daemon.json.

    ({}, why not) where it is none. dockerd takes an empty file.
    """
    if not text.strip():
        return {}, ""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, str(error)
    return (document, "") if isinstance(document, dict) else ({}, "it is not a JSON object")


def toolkit_toml(text: str) -> tuple[dict[str, Any], str]:
    """Return (the tables, "") of the toolkit's config.toml; ({}, why not) where it is not TOML."""
    try:
        return toml.loads(text), ""
    except toml.TomlError as error:
        return {}, str(error)


def strings(value: Any) -> tuple[str, ...]:
    """Return the texts of a list; nothing if it is none."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def table(value: Any) -> dict[str, Any]:
    """Return a JSON object or TOML table; an empty one where it is something else."""
    return value if isinstance(value, dict) else {}


def word(value: Any) -> str | None:
    """Return a text that is not empty."""
    return value if isinstance(value, str) and value else None


def truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
