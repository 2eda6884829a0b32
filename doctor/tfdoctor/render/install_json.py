"""What `install` answers, in the shape of docs/schemas/install.schema.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.render.json import report_json
from tfdoctor.render.plan_json import option_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.findings import Report
    from tfdoctor.plan import Option

__all__ = ["install_json", "resolution_json", "room_json"]


def install_json(
    option: Option,
    environment: dict[str, Any] | None,
    commands: Sequence[Sequence[str]],
    report: Report | None,
) -> dict[str, Any]:
    """The document that `tfdoctor install --json` prints. `environment`: None where nothing was made (--dry-run)."""
    return {
        "schema_version": 1,
        "plan": option_json(option, 1),
        "commands": [list(words) for words in commands],
        "environment": environment,
        "check": report_json(report) if report is not None else None,
    }


def resolution_json(
    changes: Sequence[tuple[str, str | None, str | None]], *, tried: bool, why: str | None
) -> dict[str, Any]:
    """What a user's requirements come to. changes: (name, version in the lock, chosen version)."""
    rows = [{"name": name, "locked": locked, "chosen": chosen} for name, locked, chosen in changes]
    return {"tried": tried, "why": why, "changes": rows}


def room_json(needs: Sequence[tuple[str, Sequence[str], int, int]]) -> list[dict[str, Any]]:
    """needs: (a folder, what is written to its disk, bytes needed, bytes free)."""
    return [
        {"path": path, "for": list(what), "needed_bytes": size, "free_bytes": free}
        for path, what, size, free in needs
    ]
