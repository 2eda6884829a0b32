"""JSON output for other programs. The schemas in docs/schemas define it."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from typing import Any

from tfdoctor import __version__
from tfdoctor.core import links
from tfdoctor.core.facts import Absent, Known, Unknown

SCHEMA_VERSION = 1


def make_document_head(name: str) -> dict[str, Any]:
    """Return the first fields of a document: the version of its schema and, once the project is published, its address."""
    address = f"schemas/{name}.schema.json"
    url = {"$schema": links.format_docs_url(__version__, address)} if links.is_published() else {}
    return {**url, "schema_version": SCHEMA_VERSION}


def write_json(value: Any) -> None:
    """Print a JSON document to standard output."""
    sys.stdout.write(format_json(value))


def format_json(value: Any) -> str:
    """Return a document as JSON text in ASCII, which every terminal and locale can display.

    Unpaired surrogates, which file names that are not UTF-8 produce, are replaced with U+FFFD because strict parsers
    reject them.
    """
    text = json.dumps(value, indent=2)
    if "\\ud" not in text:  # the first digits of every escaped surrogate
        return text + "\n"
    repaired = (  # UTF-16 joins paired surrogates and replaces the others
        json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
    return json.dumps(json.loads(repaired), indent=2) + "\n"


def to_json(value: Any) -> Any:
    """Convert facts to values that the module `json` can write.

    A `Known` becomes {"known": value, "source": source}, an `Absent` {"absent": why, "source": source} and an
    `Unknown` {"unknown": why, "source": source}.
    """
    if isinstance(value, Known):
        return {"known": to_json(value.value), "source": value.source}
    if isinstance(value, Absent):
        return {"absent": value.why, "source": value.source}
    if isinstance(value, Unknown):
        return {"unknown": value.why, "source": value.source}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_json(item) for item in value)
    if isinstance(value, enum.Enum):
        return value.value
    return value
