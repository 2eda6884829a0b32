"""A verification: a line for each stage as it ends, then the answer; as JSON, and as JUnit's XML.

The shape of the JSON is docs/schemas/verify.schema.json; the XML is for the servers of continuous integration.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from tfdoctor.render.finding import explained, finding_json
from tfdoctor.render.page import Page, Text, hanging
from tfdoctor.render.screen import counted, more, todo, why
from tfdoctor.text import clean, clean_line, listed

if TYPE_CHECKING:
    from tfdoctor.findings import Stage, Verification

__all__ = ["junit", "render_end", "render_stage", "verification_json"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "skipped": ("–", "")}


def render_stage(stage: Stage, *, width: int = 80, colour: bool = False) -> str:
    """One stage's line."""
    out = Page(width, coloured=colour)
    mark, style = MARKS[stage.status]
    seconds = f" ({stage.seconds:.1f} s)" if stage.seconds >= 0.05 else ""
    hanging(
        out,
        Text(f"{mark} ", style=style) + Text(stage.name.ljust(11), style="bold"),
        clean_line(stage.detail, limit=1000) + seconds,
    )
    return out.text


def render_end(
    done: Verification, *, verbose: bool = False, quiet: bool = False, width: int = 80, colour: bool = False
) -> str:
    """The verdict, why, and what to do."""
    out = Page(width, coloured=colour)
    status = {True: "passed", False: "failed", None: "skipped"}[done.ok]
    mark, style = MARKS[status]
    cause = f" [{done.cause.value}]" if done.cause is not None and done.ok is False else ""
    if not quiet:
        out.print()
    hanging(out, Text(f"{mark} ", style=style), clean_line(done.summary, limit=1000) + cause, style="bold")
    if quiet or not done.findings:
        return out.text
    first, *rest = done.findings
    if verbose:
        explained(out, first)
        for finding in rest:
            hanging(out, Text("  Also  "), clean_line(f"{finding.title} [{finding.code}]"))
        return out.text
    out.print()
    why(out, first.explanation)
    todo(out, first, None, "tfdoctor verify", least=True)
    out.print()
    for finding in rest[:2]:
        hanging(out, Text("Also: "), clean_line(f"{finding.title} [{finding.code}]"))
    ways = [counted(len(first.remedies) - 1, "other way")] if len(first.remedies) > 1 else []
    ways += [counted(len(rest) - 2, "more finding")] if len(rest) > 2 else []
    more(out, "More", [(f"tfdoctor explain {first.code}", ""), ("-v", listed([*ways, "the evidence"]))])
    return out.text


# ---------------------------------------------------------------- for other programs


def verification_json(done: Verification) -> dict[str, Any]:
    """`verify --json`."""
    return {
        "schema_version": 1,
        "target": done.target,
        "access": done.access,
        "stages": [
            {"name": stage.name, "status": stage.status, "detail": stage.detail, "seconds": stage.seconds}
            for stage in done.stages
        ],
        "gpus": {"expected": done.expected, "visible": done.visible, "computed": done.computed},
        "verdict": {
            "gpu_usable": done.ok,
            "cause": done.cause.value if done.cause is not None else None,
            "summary": done.summary,
        },
        "findings": [finding_json(finding) for finding in done.findings],
    }


def junit(done: Verification) -> str:
    """One test case a stage, as the servers of continuous integration read it."""
    failed = sum(stage.status == "failed" for stage in done.stages)
    skipped = sum(stage.status == "skipped" for stage in done.stages)
    seconds = sum(stage.seconds for stage in done.stages)
    counts = (
        f'name={_attribute(f"tfdoctor verify {done.target}")} tests="{len(done.stages)}" '
        f'failures="{failed}" errors="0" skipped="{skipped}" time="{seconds:.2f}"'
    )
    rows = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{len(done.stages)}" failures="{failed}" skipped="{skipped}" time="{seconds:.2f}">',
        f"<testsuite {counts}>",
    ]
    for stage in done.stages:
        rows.append(
            f'<testcase classname="tfdoctor.verify" name={_attribute(stage.name)} time="{stage.seconds:.2f}">'
        )
        if stage.status == "failed":
            cause = done.cause.value if done.cause is not None else "inconclusive"
            told = "\n\n".join(f"{f.code} {f.title}\n{f.explanation}" for f in done.findings)
            rows.append(
                f"<failure type={_attribute(cause)} message={_attribute(stage.detail)}>{_text(told)}</failure>"
            )
        elif stage.status == "skipped":
            rows.append(f"<skipped message={_attribute(stage.detail)}/>")
        rows.append("</testcase>")
    return "\n".join([*rows, "</testsuite>", "</testsuites>", ""])


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", clean(text, limit=60_000)))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", clean(text, limit=2000)))
