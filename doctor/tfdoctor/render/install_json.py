"""What `install` answers, in the shape of docs/schemas/install.schema.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.render.json import report_json
from tfdoctor.render.plan_json import option_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.findings import Report
    from tfdoctor.plan import Option

__all__ = ["install_json"]


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
