"""A verification for other programs: docs/schemas/verify.schema.json, and JUnit's XML for continuous integration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from tfdoctor.render.json import finding_json
from tfdoctor.text import clean

if TYPE_CHECKING:
    from tfdoctor.findings import Verification

__all__ = ["junit", "verification_json"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
