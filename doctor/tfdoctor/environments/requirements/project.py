"""Read the dependencies of a project from pyproject.toml, in the format of PEP 621 or of poetry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tfdoctor.core import toml
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.requirements.lines import MAX_LINES, parse_line
from tfdoctor.environments.requirements.models import RequirementFile, VersionCondition

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_table", "convert_poetry_constraint", "load_toml", "read_project"]

_VERSION = r"v?[0-9]+(?:\.[0-9]+){0,6}(?:[-_.]?(?:a|b|c|rc|alpha|beta|dev|post|pre)[-_.]?[0-9]*)?"
# A clause with poetry's own operators, `^1.2` or `~1.2`.
_CARET_OR_TILDE = re.compile(rf"(\^|~)\s*({_VERSION})")
# A clause without an operator or with "=": exactly this version, or `1.2.*`.
_EXACT_VERSION = re.compile(rf"=?\s*({_VERSION})(\.\*)?")


def load_toml(text: str, display_path: str) -> dict[str, Any]:
    """Parse the text of a TOML file. Raise UsageError if it is not valid TOML."""
    try:
        return toml.loads(text)
    except toml.TomlError as error:
        msg = f"-r: {display_path} is not TOML: {clean_line(str(error))}."
        raise UsageError(msg) from error


def read_project(text: str, display_path: str) -> RequirementFile:
    """Return the dependencies in the text of a pyproject.toml.

    Raise UsageError if the file does not list them, or if a dependency cannot be used.
    """
    document = load_toml(text, display_path)
    project, poetry = (
        as_table(document.get("project")),
        as_table(as_table(document.get("tool")).get("poetry")),
    )
    result = RequirementFile()
    if isinstance(project.get("requires-python"), str):
        result.python_conditions.append(
            _parse_python_condition(project["requires-python"], f"{display_path}, requires-python")
        )
    dependencies = project.get("dependencies")
    if isinstance(dependencies, list):
        _add_requirements(dependencies, f"{display_path}, [project] dependencies", result)
        _note_optional_dependencies(as_table(project.get("optional-dependencies")), display_path, result)
    elif isinstance(poetry.get("dependencies"), dict):
        _add_poetry_dependencies(
            poetry["dependencies"], f"{display_path}, [tool.poetry.dependencies]", result
        )
        _note_optional_dependencies(as_table(poetry.get("extras")), display_path, result)
    elif "dependencies" in (project.get("dynamic") or ()):
        msg = f"-r: {display_path} leaves its dependencies to its build program (dynamic)."
        raise UsageError(msg, hint="Name the file that they stand in: -r requirements.txt")
    else:
        msg = f"-r: {display_path} has neither [project] dependencies nor [tool.poetry.dependencies]."
        raise UsageError(msg, hint="Name a file that lists packages.")
    return result


def as_table(value: Any) -> dict[str, Any]:
    """Return the value if it is a table; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def _note_optional_dependencies(extras: dict[str, Any], display_path: str, result: RequirementFile) -> None:
    """Add a note about the optional dependencies, which are left out, to `result`."""
    if extras:
        names = ", ".join(clean_line(str(name), limit=60) for name in list(extras)[:20])
        result.notes.append(f"{display_path}: its optional dependencies ({names}) are left out.")


def _add_requirements(entries: list[Any], location: str, result: RequirementFile) -> None:
    """Parse requirement lines and add them to `result`. Raise UsageError if a line cannot be used."""
    if len(entries) > MAX_LINES:
        msg = f"{location}: more than {MAX_LINES}."
        raise UsageError(msg)
    for entry in entries:
        if not isinstance(entry, str):
            msg = f"{location}: an entry is not a text file."
            raise UsageError(msg)
        item = parse_line(entry, location)
        if item is not None:
            result.requirements.append(item)


def _parse_python_condition(text: str, location: str) -> VersionCondition:
    """Return the condition on the Python version. Raise UsageError if the specifier is not valid."""
    try:
        return VersionCondition(SpecifierSet(text), location)
    except InvalidSpecifier as error:
        msg = f"{location}: `{clean_line(text)}` is not a set of versions."
        raise UsageError(msg) from error


# ---------------------------------------------------------------- poetry


def _add_poetry_dependencies(dependencies: dict[str, Any], section: str, result: RequirementFile) -> None:
    """Add dependencies in poetry's format to `result`. Add only a note for an optional dependency.

    Raise UsageError if a dependency cannot be used.
    """
    for name, value in list(dependencies.items())[:MAX_LINES]:
        location = f"{section}, {clean_line(str(name), limit=80)}"
        if name.lower() == "python":
            if isinstance(value, str):
                result.python_conditions.append(
                    _parse_python_condition(convert_poetry_constraint(value, location), location)
                )
            continue
        for alternative in value if isinstance(value, list) else [value]:
            table = {"version": alternative} if isinstance(alternative, str) else as_table(alternative)
            if not table:
                msg = f"{location}: this is not a version."
                raise UsageError(msg)
            if table.get("optional") is True:
                result.notes.append(f"{location}: it is optional and left out.")
                continue
            item = parse_line(_format_requirement(name, table, location), location)
            if item is not None:
                result.requirements.append(item)


def _format_requirement(name: str, table: dict[str, Any], location: str) -> str:
    """Return a poetry dependency as a PEP 508 requirement.

    Raise UsageError if the dependency is a local path, or has no version.
    """
    if "path" in table or "file" in table:
        msg = f"{location}: a path of this machine; only what an index has can be taken."
        raise UsageError(msg, hint="Publish it to an index, and name its version.")
    extras = table.get("extras")
    requirement = name + (f"[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else "")
    if "git" in table:
        revision = next((str(table[key]) for key in ("rev", "tag", "branch") if key in table), "")
        requirement += f" @ git+{table['git']}" + (f"@{revision}" if revision else "")
    elif "url" in table:
        requirement += f" @ {table['url']}"
    elif isinstance(table.get("version"), str):
        requirement += convert_poetry_constraint(table["version"], location)
    else:
        msg = f"{location}: no version is named."
        raise UsageError(msg)
    markers = list(_iter_markers(table, location))
    return f"{requirement} ; {' and '.join(markers)}" if markers else requirement


def _iter_markers(table: dict[str, Any], location: str) -> Iterator[str]:
    """Yield the markers for the conditions of a poetry dependency: its `markers`, `python` and `platform`."""
    if isinstance(table.get("markers"), str):
        yield f"({table['markers']})"
    if isinstance(table.get("python"), str):
        for clause in convert_poetry_constraint(table["python"], location).split(","):
            match = re.fullmatch(r"(<=|>=|==|!=|~=|<|>)(.+)", clause)
            if match is not None:
                has_patch = match[2].removesuffix(".*").count(".") > 1
                yield f"{'python_full_version' if has_patch else 'python_version'} {match[1]} '{_add_minor(match[2])}'"
    if isinstance(table.get("platform"), str):
        yield f"sys_platform == '{table['platform']}'"


def _add_minor(version: str) -> str:
    """Return a version with at least two numbers, to be compared with `python_version`: `4.0` for `4`."""
    return version if "." in version else f"{version}.0"


def convert_poetry_constraint(text: str, location: str) -> str:
    """Return a poetry version constraint as a PEP 440 specifier: `>=1.2,<2.0` for `^1.2`, "" for `*`.

    `location` is for error messages. Raise UsageError if the constraint allows alternatives or is not valid.
    """
    text = text.strip()
    if "|" in text:
        msg = f"{location}: `{clean_line(text)}` allows one of several; name one of them."
        raise UsageError(msg)
    # Commas and spaces both separate clauses.
    clauses = [clause for part in text.split(",") for clause in _split_clauses(part)]
    specifiers = [specifier for clause in clauses if (specifier := _convert_clause(clause))]
    try:
        SpecifierSet(",".join(specifiers))
    except InvalidSpecifier as error:
        msg = f"{location}: `{clean_line(text)}` is not a set of versions."
        raise UsageError(msg) from error
    return ",".join(specifiers)


def _split_clauses(part: str) -> list[str]:
    """Return the space-separated clauses of a constraint, such as `>=1.0 <2.0`.

    A space between an operator and its version, as in `>= 1.0`, does not separate clauses.
    """
    return re.sub(r"(?<=[0-9*a-z])\s+(?=[<>=!~^])", "\n", part.strip()).split("\n")


def _convert_clause(text: str) -> str:
    """Return a clause of a poetry constraint as a PEP 440 specifier; "" if it allows every version."""
    text = text.strip()
    if text in ("", "*", "==*", "=*"):
        return ""
    match = _CARET_OR_TILDE.fullmatch(text)
    if match is not None:
        return f">={match[2]},<{_compute_upper_bound(match[1], match[2])}"
    match = _EXACT_VERSION.fullmatch(text)
    if match is not None:
        return f"=={match[1]}{match[2] or ''}"
    return text


def _compute_upper_bound(operator: str, version: str) -> str:
    """Return the first version that `^` or `~` excludes.

    `~` allows changes after the second number, and `^` after the first number that is not zero.
    """
    # `index` is that of the last number that must not change.
    # int() refuses very long numbers
    match = re.match(r"v?([0-9]{1,18}(?:\.[0-9]{1,18}){0,20})", version)
    numbers = [int(part) for part in match[1].split(".")]  # type: ignore[index]
    if operator == "~":
        index = min(1, len(numbers) - 1)
    else:
        index = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
    upper = [*numbers[:index], numbers[index] + 1]
    return ".".join(str(part) for part in [*upper, *[0] * (max(len(numbers), 2) - len(upper))])
