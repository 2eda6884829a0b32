"""What fix did, as JSON (docs/schemas/fix.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.render.json import finding_json, report_json

if TYPE_CHECKING:
    from tfdoctor.environment.history.journal import Undone
    from tfdoctor.environment.models import Mending

__all__ = ["mending_json", "undone_json"]

SCHEMA_VERSION = 1


def mending_json(mending: Mending) -> dict[str, Any]:
    """A run of fix, or its plan."""
    return {
        "schema_version": SCHEMA_VERSION,
        "environment": mending.environment.prefix,
        "activated": mending.activated,
        "repairs": [
            {
                "code": done.way.finding.code,
                "cause": done.way.finding.cause.value,
                "title": done.way.finding.title,
                "text": done.way.remedy.text,
                "status": done.status.value,
                "detail": done.detail,
                "commands": list(done.commands),
                "changes": done.changes,
            }
            for done in mending.done
        ],
        "left": [{"why": left.why, "finding": finding_json(left.finding)} for left in mending.left],
        "recovered": list(mending.recovered),
        "undone": None,
        "check": report_json(mending.after),
    }


def undone_json(prefix: str, undone: Undone) -> dict[str, Any]:
    """A run of fix --undo."""
    return {
        "schema_version": SCHEMA_VERSION,
        "environment": prefix,
        "activated": False,
        "repairs": [],
        "left": [],
        "recovered": [],
        "undone": {
            "entries": [
                {
                    "codes": list(entry.codes),
                    "title": entry.title,
                    "when": entry.when,
                    "changes": entry.changes,
                }
                for entry in undone.entries
            ],
            "restored": undone.restored,
            "kept": list(undone.kept),
        },
        "check": None,
    }
