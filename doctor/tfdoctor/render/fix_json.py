"""What fix did, as JSON (docs/schemas/fix.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.render.json import finding_json, report_json

if TYPE_CHECKING:
    from tfdoctor.environment.history.journal import Undone
    from tfdoctor.environment.models import FixResult

__all__ = ["fix_json", "undo_json"]

SCHEMA_VERSION = 1


def fix_json(result: FixResult) -> dict[str, Any]:
    """A run of fix, or its plan."""
    return {
        "schema_version": SCHEMA_VERSION,
        "environment": result.environment.prefix,
        "activated": result.activated,
        "repairs": [
            {
                "code": done.candidate.finding.code,
                "cause": done.candidate.finding.cause.value,
                "title": done.candidate.finding.title,
                "text": done.candidate.remedy.text,
                "status": done.status.value,
                "detail": done.detail,
                "commands": list(done.commands),
                "changes": done.changes,
            }
            for done in result.attempts
        ],
        "left": [{"why": left.why, "finding": finding_json(left.finding)} for left in result.unfixed],
        "recovered": list(result.recovered),
        "undone": None,
        "check": report_json(result.after),
    }


def undo_json(prefix: str, undone: Undone) -> dict[str, Any]:
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
