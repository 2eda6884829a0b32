"""pyproject.toml: the dependencies of a project, as PEP 621 has them or as poetry does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tfdoctor.environment.requirements.lines import MAX_LINES, parse_line
from tfdoctor.environment.requirements.models import Condition, RequirementFile
from tfdoctor.errors import UsageError
from tfdoctor.parse import toml
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["poetry_specifier", "read_project", "tables"]

_VERSION = r"v?[0-9]+(?:\.[0-9]+){0,6}(?:[-_.]?(?:a|b|c|rc|alpha|beta|dev|post|pre)[-_.]?[0-9]*)?"
_CARET = re.compile(rf"(\^|~)\s*({_VERSION})")
_BARE = re.compile(rf"=?\s*({_VERSION})(\.\*)?")


def tables(text: str, shown: str) -> dict[str, Any]:
    """Return a TOML file. Raises UsageError."""
    try:
        return toml.loads(text)
    except toml.TomlError as error:
        msg = f"-r: {shown} is not TOML: {clean_line(str(error))}."
        raise UsageError(msg) from error


def read_project(text: str, shown: str) -> RequirementFile:
    """Return the dependencies of a project. Raises UsageError."""
    document = tables(text, shown)
    project, poetry = _table(document.get("project")), _table(_table(document.get("tool")).get("poetry"))
    part = RequirementFile()
    if isinstance(project.get("requires-python"), str):
        part.pythons.append(_python(project["requires-python"], f"{shown}, requires-python"))
    dependencies = project.get("dependencies")
    if isinstance(dependencies, list):
        _take(dependencies, f"{shown}, [project] dependencies", part)
        _tell_left(_table(project.get("optional-dependencies")), shown, part)
    elif isinstance(poetry.get("dependencies"), dict):
        _take_poetry(poetry["dependencies"], f"{shown}, [tool.poetry.dependencies]", part)
        _tell_left(_table(poetry.get("extras")), shown, part)
    elif "dependencies" in (project.get("dynamic") or ()):
        msg = f"-r: {shown} leaves its dependencies to its build program (dynamic)."
        raise UsageError(msg, hint="Name the file that they stand in: -r requirements.txt")
    else:
        msg = f"-r: {shown} has neither [project] dependencies nor [tool.poetry.dependencies]."
        raise UsageError(msg, hint="Name a file that lists packages.")
    return part


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tell_left(extras: dict[str, Any], shown: str, part: RequirementFile) -> None:
    if extras:
        names = ", ".join(clean_line(str(name), limit=60) for name in list(extras)[:20])
        part.notes.append(f"{shown}: its optional dependencies ({names}) are left out.")


def _take(rows: list[Any], where: str, part: RequirementFile) -> None:
    if len(rows) > MAX_LINES:
        msg = f"{where}: more than {MAX_LINES}."
        raise UsageError(msg)
    for row in rows:
        if not isinstance(row, str):
            msg = f"{where}: an entry is not a text file."
            raise UsageError(msg)
        item = parse_line(row, where)
        if item is not None:
            part.items.append(item)


def _python(text: str, where: str) -> Condition:
    try:
        return Condition(SpecifierSet(text), where)
    except InvalidSpecifier as error:
        msg = f"{where}: `{clean_line(text)}` is not a set of versions."
        raise UsageError(msg) from error


# ---------------------------------------------------------------- poetry


def _take_poetry(dependencies: dict[str, Any], where: str, part: RequirementFile) -> None:
    for name, said in list(dependencies.items())[:MAX_LINES]:
        here = f"{where}, {clean_line(str(name), limit=80)}"
        if name.lower() == "python":
            if isinstance(said, str):
                part.pythons.append(_python(poetry_specifier(said, here), here))
            continue
        for one in said if isinstance(said, list) else [said]:
            table = {"version": one} if isinstance(one, str) else _table(one)
            if not table:
                msg = f"{here}: this is not a version."
                raise UsageError(msg)
            if table.get("optional") is True:
                part.notes.append(f"{here}: it is optional and left out.")
                continue
            item = parse_line(_requirement(name, table, here), here)
            if item is not None:
                part.items.append(item)


def _requirement(name: str, table: dict[str, Any], here: str) -> str:
    """Return one dependency of poetry's as PEP 508 has it. Raises UsageError."""
    if "path" in table or "file" in table:
        msg = f"{here}: a path of this machine; only what an index has can be taken."
        raise UsageError(msg, hint="Publish it to an index, and name its version.")
    extras = table.get("extras")
    word = name + (f"[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else "")
    if "git" in table:
        at = next((str(table[key]) for key in ("rev", "tag", "branch") if key in table), "")
        word += f" @ git+{table['git']}" + (f"@{at}" if at else "")
    elif "url" in table:
        word += f" @ {table['url']}"
    elif isinstance(table.get("version"), str):
        word += poetry_specifier(table["version"], here)
    else:
        msg = f"{here}: no version is named."
        raise UsageError(msg)
    markers = list(_markers(table, here))
    return f"{word} ; {' and '.join(markers)}" if markers else word


def _markers(table: dict[str, Any], here: str) -> Iterator[str]:
    if isinstance(table.get("markers"), str):
        yield f"({table['markers']})"
    if isinstance(table.get("python"), str):
        for clause in poetry_specifier(table["python"], here).split(","):
            match = re.fullmatch(r"(<=|>=|==|!=|~=|<|>)(.+)", clause)
            if match is not None:
                full = match[2].removesuffix(".*").count(".") > 1
                yield f"{'python_full_version' if full else 'python_version'} {match[1]} '{_two(match[2])}'"
    if isinstance(table.get("platform"), str):
        yield f"sys_platform == '{table['platform']}'"


def _two(version: str) -> str:
    """`python_version` has two numbers: `4` → `4.0`."""
    return version if "." in version else f"{version}.0"


def poetry_specifier(text: str, where: str) -> str:
    """poetry's condition on a version as PEP 440 has it: `^1.2` → `>=1.2,<2.0`; `*` → nothing. Raises UsageError."""
    text = text.strip()
    if "|" in text:
        msg = f"{where}: `{clean_line(text)}` allows one of several; name one of them."
        raise UsageError(msg)
    clauses = [one for part in text.split(",") for one in _clauses(part)]
    found = [specifier for one in clauses if (specifier := _parse_constraint(one))]
    try:
        SpecifierSet(",".join(found))
    except InvalidSpecifier as error:
        msg = f"{where}: `{clean_line(text)}` is not a set of versions."
        raise UsageError(msg) from error
    return ",".join(found)


def _clauses(part: str) -> list[str]:
    """Return `">=1.0 <2.0"` → both."""
    return re.sub(r"(?<=[0-9*a-z])\s+(?=[<>=!~^])", "\n", part.strip()).split("\n")


def _parse_constraint(text: str) -> str:
    text = text.strip()
    if text in ("", "*", "==*", "=*"):
        return ""
    match = _CARET.fullmatch(text)
    if match is not None:
        return f">={match[2]},<{_compute_upper_bound(match[1], match[2])}"
    match = _BARE.fullmatch(text)
    if match is not None:
        return f"=={match[1]}{match[2] or ''}"
    return text


def _compute_upper_bound(sign: str, version: str) -> str:
    """Return the first version that `^` or `~` does not allow."""
    numbers = [int(one) for one in re.match(r"v?([0-9]+(?:\.[0-9]+)*)", version)[1].split(".")]  # type: ignore[index]
    if sign == "~":
        place = min(1, len(numbers) - 1)
    else:
        place = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
    above = [*numbers[:place], numbers[place] + 1]
    return ".".join(str(one) for one in [*above, *[0] * (max(len(numbers), 2) - len(above))])
