"""Lines of Requires-Dist: whether one applies in a Python, to which package, and whether a version meets it.

Most are plain (`numpy<2,>=1.23.5`, `x; extra == "y"`) and read without `packaging`, whose import and reading took a
tenth of a whole check; what is not plain is left to it. A test holds the two together.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RequirementLine", "format_asked", "met", "normal", "parse_asked"]

_PLAIN = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)"
    r" {0,2}(?:\(([<>=!~][^()\[\];@]{1,200})\)|([<>=!~][^()\[\];@]{1,200}))?"
    r" {0,2}"
)
_OF_EXTRA = re.compile(r"""extra {0,2}== {0,2}(?:"[A-Za-z0-9_.-]{1,100}"|'[A-Za-z0-9_.-]{1,100}')""")
_CONDITION = re.compile(
    r"""(?:(python_version|python_full_version) {0,2}(<|>|<=|>=|==|!=) {0,2}["'](\d{1,2}(?:\.\d{1,3}){1,2})["']"""
    r"""|(sys_platform|platform_system|platform_machine|os_name|platform_python_implementation|implementation_name)"""
    r""" {0,2}(==|!=) {0,2}["']([A-Za-z_][A-Za-z0-9_]{2,30})["'])"""
)
_Condition = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class RequirementLine:
    """What a line that applies asks for."""

    package: str
    """Its normal name."""
    line: str
    specification: str | None
    """The plain conditions on its version, maybe none; None where `packaging` has to be asked."""


def normal(name: str) -> str:
    """Return a distribution's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_asked(line: str, environment: Mapping[str, str]) -> RequirementLine | None:
    """Return what a line asks for; None if it cannot be read, or does not apply.

    `environment`: PEP 508's variables, with an empty `extra`.
    """
    plain = _plain(line)
    if plain is not None:
        package, specification, conditions = plain
        if conditions is None or not all(
            any(_holds(one, environment) for one in group) for group in conditions
        ):
            return None
        return RequirementLine(package, line, specification)
    requirement = versions.parse_requirement_or_none(line)
    if requirement is None:
        return None
    if requirement.marker is not None:
        from packaging.markers import UndefinedEnvironmentName

        try:
            if not requirement.marker.evaluate(dict(environment)):
                return None
        except UndefinedEnvironmentName:
            return None
    return RequirementLine(normal(requirement.name), line, None)


def met(one: RequirementLine, version: str) -> bool:
    """Return whether a version (of PEP 440) is one that is asked for."""
    if one.specification is not None:
        return not one.specification or versions.satisfies(version, one.specification)
    requirement = versions.parse_requirement_or_none(one.line)
    return requirement is None or requirement.specifier.contains(version, prereleases=True)


def format_asked(one: RequirementLine) -> str:
    """Name and conditions, as `packaging` writes them."""
    requirement = versions.parse_requirement_or_none(one.line)
    return f"{requirement.name}{requirement.specifier}" if requirement is not None else one.package


@lru_cache(maxsize=4096)
def _plain(line: str) -> tuple[str, str, tuple[tuple[_Condition, ...], ...] | None] | None:
    """Return (package, conditions on its version, those on the Python, as `_conditions`) of a plain line."""
    body, semicolon, marker = line.partition(";")
    conditions = _conditions(marker.strip()) if semicolon else ()
    if conditions is None and "@" not in body:
        return "", "", None  # whatever the rest says
    match = _PLAIN.fullmatch(body)
    if match is None or conditions is None or () in conditions:
        return None
    name, bracketed, bare = match.groups()
    specification = (bracketed or bare or "").strip()
    if specification and not versions.is_plain(specification):
        return None
    return normal(name), specification, conditions


def _conditions(marker: str) -> tuple[tuple[_Condition, ...], ...] | None:
    """Return what has to hold: of each group one.

    None if an extra is needed; with an empty group where it is not plain.
    """
    groups: list[tuple[_Condition, ...]] = []
    of_extra = False
    for part in re.split(r" and (?![^(]*\))", marker):  # not those in brackets
        if _OF_EXTRA.fullmatch(part):
            of_extra = True
            continue
        inner = part[1:-1] if part.startswith("(") and part.endswith(")") else ""
        if inner and " or " not in inner:
            alternatives = [[one] for one in inner.split(" and ")]
        else:
            alternatives = [inner.split(" or ") if inner else [part]]
        if any(set("()") & set(text) for one in alternatives for text in one):
            return ((),)
        for one in alternatives:
            found = [_CONDITION.fullmatch(text) for text in one]
            groups.append(tuple(_condition(match) for match in found if match) if all(found) else ())
    if not of_extra:
        return tuple(groups)
    alternative = re.search(r"\bor\b(?![^(]*\))", marker)  # outside of brackets, or of what looks like them
    return None if alternative is None else ((),)


def _condition(match: re.Match[str]) -> _Condition:
    groups = match.groups()
    variable, operator, value = groups[:3] if groups[0] else groups[3:]
    return variable, operator, value


def _holds(condition: _Condition, environment: Mapping[str, str]) -> bool:
    variable, operator, value = condition
    have = environment[variable]
    if variable.startswith("python_"):
        return versions.satisfies(have, f"{operator}{value}")
    return (have == value) is (operator == "==")
