"""The output of `lint`: source lines with a caret, JSON, and formats for CI servers.

docs/schemas/lint.schema.json defines the JSON. The formats for CI servers are GitHub annotations, SARIF 2.1.0
and JUnit XML.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import tfdoctor
from tfdoctor.core.findings import Severity
from tfdoctor.core.links import format_repository_url, format_rule_url, is_published
from tfdoctor.core.text import clean, clean_line
from tfdoctor.extensions.lint.codes import LINT_PAGES
from tfdoctor.render.json import format_json, make_document_head
from tfdoctor.render.paragraphs import count_columns
from tfdoctor.render.xml import escape_element, quote_attribute

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.extensions.lint.models import LintProblem, LintResult

__all__ = ["FORMATTERS", "make_lint_json", "render_lint"]

_COLOUR_CODES = {Severity.ERROR: "31", Severity.WARNING: "33"}
"""The terminal code of the colour of each severity."""
_QUOTED = re.compile(r"'([^'\n]{1,300})'")


def render_lint(result: LintResult, *, width: int = 80, colour: bool = False) -> str:
    """Return the location, the message and the source line of each problem, followed by a summary."""
    lines: list[str] = []
    for problem in result.problems:
        code = (
            f"\x1b[{_COLOUR_CODES.get(problem.severity, '33')}m{problem.code}\x1b[0m"
            if colour
            else problem.code
        )
        lines.append(
            f"{_format_location(problem)}: {code} {problem.kind_name}: {clean_line(problem.message, limit=1000)}"
        )
        source_part, caret_offset = _fit_line(problem, width)
        if source_part:
            line_number = str(problem.line)
            lines.append(f"  {line_number} | {source_part}")
            lines.append(f"  {' ' * len(line_number)} | {' ' * caret_offset}^")
        lines.append("")
    lines += [
        f"{clean_line(unreadable.path)}: not checked{' completely' if unreadable.is_read else ''}: "
        f"{clean_line(unreadable.reason)}"
        for unreadable in result.unreadable_files
    ]
    lines.append(_summarize(result))
    return "\n".join(lines) + "\n"


def _format_location(problem: LintProblem) -> str:
    cell = f":cell {problem.cell_number}" if problem.cell_number is not None else ""
    return f"{clean_line(problem.path)}{cell}:{problem.line}:{problem.column}"


def _fit_line(problem: LintProblem, width: int) -> tuple[str, int]:
    """Return the part of the source line that fits into `width` columns, and the offset of the caret."""
    source = clean(problem.source.replace("\t", " "), limit=10_000).replace("\n", " ")
    indent = len(source) - len(source.lstrip())
    caret_index = max(problem.column - 1, 0)
    # Leave space for the line number, and do not cut the line too short on a narrow terminal.
    max_chars = max(width - 10, 30)
    start = min(indent, caret_index)
    if caret_index - start > max_chars - 10:
        start = caret_index - max_chars // 2  # the caret is in the middle
    return source[start : start + max_chars].rstrip(), count_columns(source[start:caret_index])


def _summarize(result: LintResult) -> str:
    """Return a sentence with the numbers of files, problems and possible fixes."""
    files_text = f"{result.file_count:,} file{'s' if result.file_count != 1 else ''}"
    unreadable_count = len(result.unreadable_files)
    if result.has_read_nothing:
        text = "No file was checked."
    elif not result.problems and unreadable_count:
        unread_count = sum(not unreadable.is_read for unreadable in result.unreadable_files)
        return (
            f"Incomplete: {unreadable_count:,} of {result.file_count + unread_count:,} could not be checked completely. "
            "No problems found in the rest."
        )
    elif not result.problems:
        text = f"No problems found in {files_text}."
    else:
        problem_count = len(result.problems)
        text = f"{problem_count:,} finding{'s' if problem_count != 1 else ''} in {files_text}."
        safe_fix_count = sum(problem.fix is not None and problem.fix.is_safe for problem in result.problems)
        if safe_fix_count:
            text += (
                f" --fix corrects {safe_fix_count:,} of them." if problem_count > 1 else " --fix corrects it."
            )
        text += f" What one means: `tfdoctor explain {result.problems[0].code}`"
    return f"Incomplete ({unreadable_count:,} not checked completely): {text}" if unreadable_count else text


def make_lint_json(result: LintResult) -> dict[str, Any]:
    """Return the document that `lint --json` prints."""
    return {
        **make_document_head("lint"),
        "files": result.file_count,
        "findings": [
            {
                "code": item.code,
                "name": item.kind_name,
                "severity": item.severity.name.lower(),
                "path": item.path,
                "cell": item.cell_number,
                "line": item.line,
                "column": item.column,
                "message": item.message,
                "service": item.service or None,
                "fix": None
                if item.fix is None
                else {
                    "safe": item.fix.is_safe,
                    "line": item.fix.line,
                    "column": item.fix.column,
                    "end_line": item.fix.end_line,
                    "end_column": item.fix.end_column,
                    "text": item.fix.new_text,
                },
            }
            for item in result.problems
        ],
        "unreadable": [{"path": item.path, "message": item.reason} for item in result.unreadable_files],
    }


def _format_json(result: LintResult, **_options: Any) -> str:
    return format_json(make_lint_json(result))


def _escape_message(text: str) -> str:
    """Escape a text for the message of a GitHub workflow command."""
    return clean(text, limit=2000).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """Escape a text for a property of a GitHub workflow command."""
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")


def _format_github(result: LintResult, **_options: Any) -> str:
    """Return a GitHub annotation for each problem and each unreadable file, with redacted texts: logs of CI are public."""
    from tfdoctor.system.identity import make_redactor

    redactor = make_redactor(os.environ, include_local_names=True)

    def redact_quoted(match: re.Match[str]) -> str:
        return f"'{redactor.redact_prefix(match[1])}'"

    redacted_texts = redactor.redact_texts(
        [problem.message for problem in result.problems] + [file.reason for file in result.unreadable_files]
    )
    for problem in result.problems:
        if problem.kind_name.startswith("cluster-"):  # it quotes what stands where a host should
            text = redacted_texts[problem.message]
            redacted_texts[problem.message] = _QUOTED.sub(redact_quoted, text)
    lines = []
    for problem in result.problems:
        location = f"file={_escape_property(problem.path)}"
        if problem.cell_number is None:  # annotations cannot refer to lines of notebook cells
            location += f",line={problem.line},col={problem.column}"
        title = _escape_property(f"{problem.code} {problem.kind_name}")
        cell = f"cell {problem.cell_number}, line {problem.line}: " if problem.cell_number is not None else ""
        level = "error" if problem.severity is Severity.ERROR else "warning"
        lines.append(
            f"::{level} {location},title={title}::{_escape_message(cell + redacted_texts[problem.message])}"
        )
    lines += [
        f"::warning file={_escape_property(unreadable.path)}::{_escape_message(redacted_texts[unreadable.reason])}"
        for unreadable in result.unreadable_files
    ]
    return "".join(f"{line}\n" for line in lines)


def _format_sarif(result: LintResult, **_options: Any) -> str:
    """Return the problems as SARIF 2.1.0."""
    name_by_code = {problem.code: problem.kind_name for problem in result.problems}
    results = []
    for problem in result.problems:
        region = (
            {"startLine": problem.line, "startColumn": problem.column}
            if problem.cell_number is None
            else {"startLine": 1}  # SARIF cannot refer to lines of notebook cells
        )
        cell = (
            f" (cell {problem.cell_number}, line {problem.line})" if problem.cell_number is not None else ""
        )
        results.append(
            {
                "ruleId": problem.code,
                "level": "error" if problem.severity is Severity.ERROR else "warning",
                "message": {"text": f"{problem.message}{cell}"},
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {
                                "uri": quote(os.fsencode(PurePath(problem.path).as_posix()))
                            },
                            "region": region,
                        }
                    }
                ],
            }
        )
    notes = [
        {"level": "warning", "message": {"text": f"{unreadable.path}: {unreadable.reason}"}}
        for unreadable in result.unreadable_files
    ]
    driver = {
        "name": "tfdoctor",
        "version": tfdoctor.__version__,
        "rules": [_make_sarif_rule(code, name_by_code[code]) for code in sorted(name_by_code)],
    }
    if is_published():
        driver["informationUri"] = format_repository_url()
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notes}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return format_json({"$schema": schema, "version": "2.1.0", "runs": [run]})


def _make_sarif_rule(code: str, name: str) -> dict[str, Any]:
    """Return the description of a rule, which a forge shows beside its results."""
    url = format_rule_url(code, tfdoctor.__version__)
    rule: dict[str, Any] = {"id": code, "name": name, **({} if url is None else {"helpUri": url})}
    page = next((page for page in LINT_PAGES if page.code == code), None)
    if page is not None:  # None for the rules of Dockerfiles
        rule["shortDescription"] = {"text": page.title}
        rule["fullDescription"] = {"text": f"{page.summary} {page.meaning}"}
        rule["help"] = {"text": page.remedy}
    return rule


def _format_junit(result: LintResult, **_options: Any) -> str:
    """Return JUnit XML with a failed test case for each problem."""
    unread = result.unreadable_files if result.has_read_nothing else ()
    problem_count, error_count = len(result.problems), len(unread)
    test_count = max(problem_count + error_count, 1)
    # A run without problems is reported as one passed test.
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{test_count}" failures="{problem_count}" errors="{error_count}">',
        (
            f'<testsuite name="tfdoctor lint" tests="{test_count}" failures="{problem_count}" '
            f'errors="{error_count}" skipped="0">'
        ),
    ]
    for problem in result.problems:
        details = f"{_format_location(problem)}: {problem.message}"
        lines.append(
            f"<testcase classname={quote_attribute(problem.path)} "
            f"name={quote_attribute(f'{problem.code} {_format_location(problem)}')}>"
            f"<failure type={quote_attribute(problem.kind_name)} message={quote_attribute(problem.message)}>"
            f"{escape_element(details)}</failure></testcase>"
        )
    lines += [
        f'<testcase classname={quote_attribute(unreadable.path)} name="lint">'
        f"<error message={quote_attribute(unreadable.reason)}/></testcase>"
        for unreadable in unread
    ]
    if not problem_count + error_count:
        lines.append('<testcase classname="tfdoctor.lint" name="lint"/>')
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])


FORMATTERS: dict[str, Callable[..., str]] = {
    "text": render_lint,
    "json": _format_json,
    "github": _format_github,
    "sarif": _format_sarif,
    "junit": _format_junit,
}
"""The function that formats the result, by the value of `--format`."""
