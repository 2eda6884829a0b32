"""The HTML page of `verify`: the result, the remedy and the stages, with the failed one marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.findings import Status
from tfdoctor.render.finding import MARKS
from tfdoctor.render.html.check import finding_values
from tfdoctor.render.html.document import redact_values, render_page

if TYPE_CHECKING:
    from tfdoctor.findings import Stage, Verification
    from tfdoctor.privacy.redactor import Redactor

__all__ = ["verification_html"]

STATUS_OF_STAGE = {"passed": Status.GOOD, "failed": Status.BAD, "skipped": Status.UNKNOWN}
WORDS = {"passed": "passed", "failed": "failed here", "skipped": "not tried"}


def verification_html(done: Verification, redactor: Redactor) -> bytes:
    """Return the HTML page of a verification. All texts are redacted."""
    status = {True: Status.GOOD, False: Status.BAD, None: Status.UNKNOWN}[done.ok]
    values: dict[str, Any] = {
        "target": done.target,
        "title": done.summary,
        "cause": done.cause.value if done.cause is not None and done.ok is False else "",
        "status": _make_status_values(status),
        "stages": [_make_stage_values(item) for item in done.stages],
        "findings": [finding_values(item) for item in done.findings],
        "simulated": None
        if done.simulated is None
        else {
            "title": done.simulated.title,
            "shows": list(done.simulated.proves),
            "not_shown": list(done.simulated.does_not_prove),
        },
        "typed": done.command,
    }
    return render_page("verify", **redact_values(values, redactor))


def _make_status_values(status: Status) -> dict[str, str]:
    return {"status": status.value, "sign": MARKS[status]}


def _make_stage_values(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        **_make_status_values(STATUS_OF_STAGE[stage.status]),
        "word": WORDS[stage.status],
        "failed": stage.status == "failed",
        "detail": stage.detail,
        "seconds": f"{stage.seconds:.1f} s" if stage.seconds >= 0.05 else "",
    }
