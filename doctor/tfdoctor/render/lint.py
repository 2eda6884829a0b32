"""What `lint` says: lines with the source and a caret, JSON (docs/schemas/lint.schema.json), and what servers of
continuous integration read: GitHub's annotations, SARIF 2.1.0, JUnit's XML."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tfdoctor.findings import Severity
from tfdoctor.render.json import SCHEMA_VERSION, json_text
from tfdoctor.render.paragraphs import cells
from tfdoctor.render.xml import attribute, element
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.lint import LintAnswer, LintProblem

__all__ = ["FORMATS", "lint_json", "render_lint"]

_STYLES = {Severity.ERROR: "31", Severity.WARNING: "33"}


def render_lint(answer: LintAnswer, *, width: int = 80, colour: bool = False) -> str:
    """Return a finding: its place and what it means; the line; a caret below the place. Then the count."""
    out: list[str] = []
    for one in answer.problems:
        code = f"\x1b[{_STYLES.get(one.severity, '33')}m{one.code}\x1b[0m" if colour else one.code
        out.append(f"{_place(one)}: {code} {one.name}: {clean_line(one.message, limit=1000)}")
        source, at = _fit_line(one, width)
        if source:
            number = str(one.line)
            out.append(f"  {number} | {source}")
            out.append(f"  {' ' * len(number)} | {' ' * at}^")
        out.append("")
    out += [
        f"{clean_line(bad.path)}: not judged as a whole: {clean_line(bad.message)}"
        for bad in answer.unreadable
    ]
    out.append(_count(answer))
    return "\n".join(out) + "\n"


def _place(one: LintProblem) -> str:
    cell = f":cell {one.cell}" if one.cell is not None else ""
    return f"{clean_line(one.path)}{cell}:{one.line}:{one.column}"


def _fit_line(one: LintProblem, width: int) -> tuple[str, int]:
    """Return the line as it fits the screen, and the columns before the caret."""
    source = clean(one.source.replace("\t", " "), limit=10_000).replace("\n", " ")
    left = len(source) - len(source.lstrip())
    at = max(one.column - 1, 0)
    room = max(width - 10, 30)
    start = min(left, at)
    if at - start > room - 10:
        start = at - room // 2
    return source[start : start + room].rstrip(), cells(source[start:at])


def _count(answer: LintAnswer) -> str:
    files = f"{answer.files:,} file{'s' if answer.files != 1 else ''}"
    if not answer.problems:
        text = f"No problems found in {files}."
    else:
        count = len(answer.problems)
        text = f"{count:,} finding{'s' if count != 1 else ''} in {files}."
        fixes = sum(one.fix is not None and one.fix.safe for one in answer.problems)
        if fixes:
            text += f" --fix corrects {fixes:,} of them." if count > 1 else " --fix corrects it."
        text += f" What one means: tfdoctor explain {answer.problems[0].code}"
    if answer.unreadable:
        many = len(answer.unreadable)
        text += (
            f" {many:,} could not be read completely."
            if answer.problems == ()
            else f" ({many:,} not read completely)"
        )
    return text


def lint_json(answer: LintAnswer) -> dict[str, Any]:
    """`lint --json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "files": answer.files,
        "findings": [
            {
                "code": one.code,
                "name": one.name,
                "severity": one.severity.name.lower(),
                "path": one.path,
                "cell": one.cell,
                "line": one.line,
                "column": one.column,
                "message": one.message,
                "fix": None
                if one.fix is None
                else {
                    "safe": one.fix.safe,
                    "line": one.fix.line,
                    "column": one.fix.column,
                    "end_line": one.fix.end_line,
                    "end_column": one.fix.end_column,
                    "text": one.fix.text,
                },
            }
            for one in answer.problems
        ],
        "unreadable": [{"path": one.path, "message": one.message} for one in answer.unreadable],
    }


def _json(answer: LintAnswer, **_looks: Any) -> str:
    return json_text(lint_json(answer))


def _data(text: str) -> str:
    """Return the message of a command of GitHub's."""
    return clean(text, limit=2000).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _github(answer: LintAnswer, **_looks: Any) -> str:
    rows = []
    for one in answer.problems:
        where = f"file={_property(one.path)}"
        if one.cell is None:  # an annotation of a notebook has no lines of cells
            where += f",line={one.line},col={one.column}"
        title = _property(f"{one.code} {one.name}")
        cell = f"cell {one.cell}, line {one.line}: " if one.cell is not None else ""
        level = "error" if one.severity is Severity.ERROR else "warning"
        rows.append(f"::{level} {where},title={title}::{_data(cell + one.message)}")
    rows += [f"::warning file={_property(one.path)}::{_data(one.message)}" for one in answer.unreadable]
    return "".join(f"{row}\n" for row in rows)


def _sarif(answer: LintAnswer, **_looks: Any) -> str:
    import tfdoctor

    rules = {one.code: one.name for one in answer.problems}
    results = []
    for one in answer.problems:
        region = {"startLine": one.line, "startColumn": one.column} if one.cell is None else {"startLine": 1}
        cell = f" (cell {one.cell}, line {one.line})" if one.cell is not None else ""
        results.append(
            {
                "ruleId": one.code,
                "level": "error" if one.severity is Severity.ERROR else "warning",
                "message": {"text": f"{one.message}{cell}"},
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": quote(os.fsencode(PurePath(one.path).as_posix()))},
                            "region": region,
                        }
                    }
                ],
            }
        )
    notes = [
        {"level": "warning", "message": {"text": f"{one.path}: {one.message}"}} for one in answer.unreadable
    ]
    driver = {
        "name": "tfdoctor",
        "version": tfdoctor.__version__,
        "rules": [{"id": code, "name": rules[code]} for code in sorted(rules)],
    }
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notes}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json_text({"$schema": schema, "version": "2.1.0", "runs": [run]})


def _junit(answer: LintAnswer, **_looks: Any) -> str:
    count = len(answer.problems)
    tests = max(count, 1)
    rows = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{tests}" failures="{count}">',
        f'<testsuite name="tfdoctor lint" tests="{tests}" failures="{count}" errors="0" skipped="0">',
    ]
    for one in answer.problems:
        told = f"{_place(one)}: {one.message}\n{one.source}"
        rows.append(
            f"<testcase classname={attribute(one.path)} name={attribute(f'{one.code} {_place(one)}')}>"
            f"<failure type={attribute(one.name)} message={attribute(one.message)}>{element(told)}</failure></testcase>"
        )
    if not count:
        rows.append('<testcase classname="tfdoctor.lint" name="lint"/>')
    return "\n".join([*rows, "</testsuite>", "</testsuites>", ""])


FORMATS: dict[str, Callable[..., str]] = {
    "text": render_lint,
    "json": _json,
    "github": _github,
    "sarif": _sarif,
    "junit": _junit,
}
"""`--format` → who writes it."""
