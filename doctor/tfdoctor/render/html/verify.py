"""The HTML page of `verify`: the result, the remedy and the stages, with the failed one marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Status
from tfdoctor.render.html.check import make_finding_values, make_status_values
from tfdoctor.render.html.document import redact_values, render_page
from tfdoctor.render.verify import STATUS_BY_STAGE_STATUS

if TYPE_CHECKING:
    from tfdoctor.core.findings import Stage, Verification
    from tfdoctor.core.privacy.redactor import Redactor

__all__ = ["make_verification_html"]

STAGE_STATUS_TEXTS = {"passed": "passed", "failed": "failed here", "skipped": "not tried"}


def make_verification_html(verification: Verification, redactor: Redactor) -> bytes:
    """Return the HTML page of a verification, with all texts redacted."""
    status = {True: Status.GOOD, False: Status.BAD, None: Status.UNKNOWN}[verification.ok]
    values: dict[str, Any] = {
        "target": verification.target,
        "title": verification.summary,
        "cause": verification.cause.value
        if verification.cause is not None and verification.ok is False
        else "",
        "status": make_status_values(status),
        "stages": [_make_stage_values(item) for item in verification.stages],
        "findings": [make_finding_values(item) for item in verification.findings],
        "simulated": None
        if verification.simulated is None
        else {
            "title": verification.simulated.title,
            "shows": list(verification.simulated.proves),
            "not_shown": list(verification.simulated.does_not_prove),
        },
        "typed": verification.command,
    }
    return render_page("verify", **redact_values(values, redactor))


def _make_stage_values(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        **make_status_values(STATUS_BY_STAGE_STATUS[stage.status]),
        "word": STAGE_STATUS_TEXTS[stage.status],
        "failed": stage.status == "failed",
        "detail": stage.detail,
        "seconds": f"{stage.seconds:.1f} s" if stage.seconds >= 0.05 else "",
    }
