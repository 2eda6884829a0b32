"""JSON for other programs, as docs/schemas defines it."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from typing import Any

from tfdoctor.facts import Absent, Known, Unknown

SCHEMA_VERSION = 1


def write_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json_text(value))


def json_text(value: Any) -> str:
    """Return a document in ASCII, which every terminal and locale can display.

    U+FFFD replaces unpaired surrogates (from a file name that is not UTF-8), because strict parsers refuse
    them.
    """
    text = json.dumps(value, indent=2)
    if "\\ud" not in text:
        return text + "\n"
    repaired = (
        json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
    return json.dumps(json.loads(repaired), indent=2) + "\n"


def to_json(value: Any) -> Any:
    """Return facts as JSON.

    A fact is {"known": …, "source": …}, {"absent": why, "source": …} or {"unknown": why, "source": …}.
    """
    if isinstance(value, Known):
        return {"known": to_json(value.value), "source": value.source}
    if isinstance(value, Absent):
        return {"absent": value.why, "source": value.source}
    if isinstance(value, Unknown):
        return {"unknown": value.why, "source": value.source}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_json(inner) for inner in value)
    if isinstance(value, enum.Enum):
        return value.value
    return value
