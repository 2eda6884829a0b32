"""Check what requirements files, conda environment files and pip commands install, as in a Dockerfile that installs them."""

from __future__ import annotations

import bisect
import functools
import itertools
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.cli.build_check import make_file_reader
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.lint.analysis import parse_noqa
from tfdoctor.extensions.lint.containers import make_problem
from tfdoctor.extensions.lint.notebooks import list_code_cells
from tfdoctor.images.analysis import check_dockerfile
from tfdoctor.images.checks import no_such_release, requirements_conflict
from tfdoctor.images.read.compose import find_node
from tfdoctor.images.read.installs import iter_requirement_lines, parse_pip_call
from tfdoctor.images.read.shell import parse_commands

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from yaml.nodes import Node

    from tfdoctor.extensions.lint.models import LintProblem

__all__ = ["lint_conda_environment", "lint_pip_commands", "lint_requirements"]

_PYTHON_MARKER = re.compile(r";.*(?:python|implementation)")
_CAUSES = frozenset(
    [
        Cause.BOTH_PACKAGES,
        Cause.NO_MATCHING_WHEEL,
        Cause.NUMPY_ABI,
        Cause.PACKAGE_CONFLICT,
        Cause.PROTOBUF_CONFLICT,
    ]
)
"""The causes that requirements show by themselves, whatever they are installed into."""
_KINDS_OF_COMMANDS = frozenset([no_such_release.RULE.name, requirements_conflict.RULE.name])
"""The problems that no other command can resolve."""
MAX_CHECKED_COMMANDS = 500
"""The largest number of pip commands in a file that are checked."""
_CELL_COMMAND = re.compile(r"^[ \t]*[!%][ \t]*((?:[^\n]*\\\n)*[^\n]*)", re.M)
"""A shell command or a magic in a cell of a notebook, with continued lines."""
_NAMED_FILE = "named file"
"""The name of the requirements file in the build context. No requirements file can include it."""


def lint_requirements(
    text: str, path: Path, source: str | None = None
) -> tuple[list[LintProblem], str | None]:
    """Return the problems that requirements have on every Python, and which files they include cannot be read.

    The second item is None if everything was read. `source` is the text of the file if it has more than the requirements.
    """
    read_other = make_file_reader(path.parent)

    def read(name: str) -> str | None:
        content = text if name == _NAMED_FILE else read_other(name)
        return _blank_lines_for_some_pythons(content) if content is not None else None

    problems, unknown_lines = _lint_command(
        f'pip install -r "{_NAMED_FILE}"', path, (source or text).split("\n"), read
    )
    return problems, "; ".join(unknown_lines) or None


def lint_conda_environment(text: str, path: Path) -> tuple[list[LintProblem], str | None]:
    """Return the problems of the packages that pip installs into a conda environment, and what was not checked."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return [], "it is not YAML, or too deep"
    lines = [""] * (text.count("\n") + 1)
    conda_packages: list[str] = []
    for entry in _list_items(root, "dependencies"):
        if isinstance(entry, yaml.ScalarNode):
            conda_packages.append(entry.value)
        for item in _list_items(entry, "pip"):
            if isinstance(item, yaml.ScalarNode) and item.start_mark.line < len(lines):
                lines[item.start_mark.line] = item.value
    problems, unknown_reason = lint_requirements("\n".join(lines), path, text)
    tensorflow = next((name for name in conda_packages if re.match(r"(?:\S+::)?tensorflow", name)), None)
    if tensorflow is not None:
        return problems, f"what conda installs for {clean_line(tensorflow)} is not read"
    return problems, unknown_reason


def lint_pip_commands(text: str, kind: str, path: Path) -> list[LintProblem]:
    """Return the problems of the pip commands in a shell script or a notebook, each by itself.

    A command with an alternative (`||`) or with a part that is not known is not checked.
    """
    scripts: list[tuple[int | None, int, str]] = [(None, 1, text)]  # (cell number, first line, script)
    if kind == "notebook":
        try:
            cells = list_code_cells(text)
        except ValueError:
            return []
        scripts = [
            (cell.number, cell.source.count("\n", 0, match.start(1)) + 1, match[1])
            for cell in cells
            for match in _CELL_COMMAND.finditer(cell.source)
        ]
    problems: list[LintProblem] = []
    checked_count = 0
    for cell_number, first_line, script in scripts:
        lines = script.split("\n")
        line_starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
        for command in parse_commands(script, functools.partial(bisect.bisect_right, line_starts), {}):
            call = parse_pip_call(command)
            source = lines[command.line - 1]
            if (
                call is None
                or call.action != "install"
                or "||" in source
                or "tensorflow" not in command.text
                or checked_count >= MAX_CHECKED_COMMANDS
                or not all(word.is_known and "{" not in word.text for word in command.words)
            ):
                continue
            checked_count += 1
            found, _ = _lint_command(shlex.join(word.text for word in command.words), path, [])
            problems += [
                replace(item, line=first_line + command.line - 1, cell_number=cell_number, source=source)
                for item in found
                if item.kind_name in _KINDS_OF_COMMANDS
            ]
    return [
        item
        for item in problems
        if (names := parse_noqa(item.source)) is not None and item.kind_name not in names
    ]


def _lint_command(
    command: str, path: Path, lines: list[str], read: Callable[[str], str | None] = lambda _: None
) -> tuple[list[LintProblem], list[str]]:
    """Return the problems of a pip command on every Python, and descriptions of what could not be read.

    `lines` are those of the file at `path`, whose requirements `read` returns under the name of `_NAMED_FILE`.
    """
    dockerfile = f"ARG BASE\nFROM $BASE\nCOPY . /\nWORKDIR /\nRUN {command}\n"
    report = check_dockerfile(dockerfile, Compat.load(), name=_NAMED_FILE, read=read)
    assert report is not None  # noqa: S101 - it has a FROM
    problems = [
        make_problem(finding, path, lines, _NAMED_FILE)
        for finding in report.findings
        if finding.severity > Severity.INFO and finding.cause in _CAUSES
    ]
    # the remedies are written for a Dockerfile
    problems = [replace(item, message=item.message.replace("`RUN ", "`")) for item in problems]
    return problems, [line.text for line in report.image.unknown_lines if "could not be read" in line.text]


def _blank_lines_for_some_pythons(text: str) -> str:
    """Return requirements without those whose marker depends on the Python, which is not known."""
    lines = [""] * (text.count("\n") + 1)
    for number, line in iter_requirement_lines(text):
        if not _PYTHON_MARKER.search(line) and number <= len(lines):
            lines[number - 1] = line
    return "\n".join(lines)


def _list_items(node: Node | None, key: str) -> list[Node]:
    """Return the items of the list that a YAML mapping has under a key, or [] if there is none."""
    import yaml

    value = find_node(node, key)
    return value.value if isinstance(value, yaml.SequenceNode) else []
