"""Check the images that Dockerfiles, compose files and devcontainer.json files describe, as rules check machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.cli.build_check import PROGRAMS_WITHOUT_GPU, WITHOUT_TENSORFLOW, check_container_file
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.core.text import clean_line, lower_first
from tfdoctor.extensions.lint.models import LintProblem
from tfdoctor.extensions.lint.rule_names import NAME_BY_CODE
from tfdoctor.images.checks import requirements_conflict
from tfdoctor.images.read.compose import StartFileError, is_compose_file, is_pod_file, names_gpu_image

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.core.findings import Evidence, Finding
    from tfdoctor.images.read.compose import ContainerStart

__all__ = ["describes_container", "lint_container_file", "make_problem"]


def describes_container(kind: str, path: Path, text: str) -> bool:
    """Return whether a file describes an image or how a container is started.

    Other YAML files than compose files can begin with the same key, such as `version`.
    """
    if kind == "yaml":
        return (
            is_compose_file(path.name, "")
            or re.search(r"^services:", text, re.MULTILINE) is not None
            or (("nvidia.com/" in text or names_gpu_image(text)) and is_pod_file(path.name, text))
        )
    return kind in ("dockerfile", "devcontainer")


def lint_container_file(
    text: str, path: Path, *, queries_index: bool
) -> tuple[list[tuple[LintProblem, str]], str | None]:
    """Return ((problem, path of the Dockerfile that it is in) for each problem, reason).

    The reason says which part could not be checked. It is None if everything was checked.
    """
    label = clean_line(str(path))
    try:
        results = check_container_file(text, path, label, queries_index=queries_index)
    except StartFileError as error:
        has_other_name = path.suffix in (".yaml", ".yml") and not is_compose_file(path.name, "")
        return [], None if has_other_name else clean_line(str(error))
    lines = text.split("\n")
    problems = []
    for start, report, _ in results:
        for finding in report.findings if report is not None else ():
            if finding.severity <= Severity.INFO:
                continue
            problem = make_problem(finding, path, lines, label, start)
            evidence = _find_evidence(finding)
            is_elsewhere = start is not None and evidence is not None and evidence.source != start.file
            origin = path.parent / evidence.source if is_elsewhere and evidence is not None else path
            problems.append((problem, str(origin)))
    reasons = [
        reason
        for start, report, reason in results
        if report is None
        and start is not None
        and start.program not in PROGRAMS_WITHOUT_GPU
        and reason != WITHOUT_TENSORFLOW
    ]
    reasons += [
        lower_first(finding.explanation)
        for _, report, _ in results
        for finding in (report.findings if report is not None else ())
        if finding.code == requirements_conflict.RULE.code and finding.cause is Cause.INCONCLUSIVE
    ]
    return problems, "; ".join(dict.fromkeys(reasons)) or None


def make_problem(
    finding: Finding, path: Path, lines: list[str], name: str, start: ContainerStart | None = None
) -> LintProblem:
    """Return a finding about an image as a problem in a file, which evidence calls `name` or, with `start`, `start.file`.

    If its evidence is in another file, the problem is on the line of the container, or the first that names that file.
    """
    evidence = _find_evidence(finding)
    is_here = evidence is not None and evidence.source == (start.file if start is not None else name)
    if evidence is not None and is_here:
        line = evidence.line or 1
    elif start is not None or evidence is None:
        line = start.line if start is not None else 1
    else:
        other_name = evidence.source.rpartition("/")[2]
        line = next((number for number, text in enumerate(lines, 1) if other_name in text), 1)
    location = f" ({evidence.source}, line {evidence.line})" if evidence and not is_here else ""
    return LintProblem(
        kind_name=NAME_BY_CODE.get(finding.code, finding.cause.value),
        message=f"{finding.title}{location}. {_format_remedy(finding)}".strip(),
        line=line,
        column=1,
        path=str(path),
        source=lines[line - 1] if line <= len(lines) else "",
        code=finding.code,
        severity=finding.severity,
        service=start.name if start is not None else None,
    )


def _find_evidence(finding: Finding) -> Evidence | None:
    """Return the first evidence of a finding that has a line."""
    return next((item for item in finding.evidence if item.line is not None), None)


def _format_remedy(finding: Finding) -> str:
    """Return the first remedy as one sentence with its command, or "" if there is none."""
    if not finding.remedies:
        return ""
    remedy = finding.remedies[0]
    command = f" `{remedy.commands[0]}`" if len(remedy.commands) == 1 else ""
    return f"{remedy.text}{command}"
