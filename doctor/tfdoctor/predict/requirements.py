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

    from packaging.requirements import Requirement

__all__ = ["Asked", "asked", "met", "normal", "shown"]

_PLAIN = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)"
    r" {0,2}(?:\(([<>=!~][^()\[\];@]{1,200})\)|([<>=!~][^()\[\];@]{1,200}))?"
    r" {0,2}(?:; ?([^\n]{1,300}))?"
)
_OF_EXTRA = re.compile(r"""extra {0,2}== {0,2}(?:"[A-Za-z0-9_.-]{1,100}"|'[A-Za-z0-9_.-]{1,100}')""")
_CONDITION = re.compile(
    r"""(?:(python_version|python_full_version) {0,2}(<|>|<=|>=|==|!=) {0,2}["'](\d{1,2}(?:\.\d{1,3}){1,2})["']"""
    r"""|(sys_platform|platform_system|platform_machine|os_name|platform_python_implementation|implementation_name)"""
    r""" {0,2}(==|!=) {0,2}["']([A-Za-z_][A-Za-z0-9_]{2,30})["'])"""
)
_Condition = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a line that applies asks for."""

    package: str
    """Its normal name."""
    line: str
    specification: str | None
    """The plain conditions on its version, maybe none; None where `packaging` has to be asked."""


def normal(name: str) -> str:
    """A distribution's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked(line: str, environment: Mapping[str, str]) -> Asked | None:
    """What a line asks for; None where it cannot be read, or does not apply. `environment`: PEP 508's variables, with
    an empty `extra`."""
    plain = _plain(line)
    if plain is not None:
        package, specification, conditions = plain
        if conditions is None or not all(_holds(one, environment) for one in conditions):
            return None
        return Asked(package, line, specification)
    requirement = _requirement(line)
    if requirement is None:
        return None
    if requirement.marker is not None:
        from packaging.markers import UndefinedEnvironmentName

        try:
            if not requirement.marker.evaluate(dict(environment)):
                return None
        except UndefinedEnvironmentName:
            return None
    return Asked(normal(requirement.name), line, None)


def met(one: Asked, version: str) -> bool:
    """Whether a version (of PEP 440) is one that is asked for."""
    if one.specification is not None:
        return not one.specification or versions.satisfies(version, one.specification)
    requirement = _requirement(one.line)
    return requirement is None or requirement.specifier.contains(version, prereleases=True)


def shown(one: Asked) -> str:
    """Name and conditions, as `packaging` writes them."""
    requirement = _requirement(one.line)
    return f"{requirement.name}{requirement.specifier}" if requirement is not None else one.package


@lru_cache(maxsize=4096)
def _plain(line: str) -> tuple[str, str, tuple[_Condition, ...] | None] | None:
    """(package, conditions on its version, those on the Python: None where an extra is among them) of a plain line."""
    match = _PLAIN.fullmatch(line)
    if match is None:
        return None
    name, bracketed, bare, marker = match.groups()
    specification = (bracketed or bare or "").strip()
    if specification and not versions.is_plain(specification):
        return None
    conditions: list[_Condition] = []
    of_extra = False
    for part in re.split(r" and ", marker.strip()) if marker else ():
        found = _CONDITION.fullmatch(part)
        if found is not None:
            groups = found.groups()
            variable, operator, value = groups[:3] if groups[0] else groups[3:]
            conditions.append((variable, operator, value))
        elif _OF_EXTRA.fullmatch(part):
            of_extra = True
        else:
            return None
    return normal(name), specification, None if of_extra else tuple(conditions)


def _holds(condition: _Condition, environment: Mapping[str, str]) -> bool:
    variable, operator, value = condition
    have = environment[variable]
    if variable.startswith("python_"):
        return versions.satisfies(have, f"{operator}{value}")
    return (have == value) is (operator == "==")


@lru_cache(maxsize=4096)
def _requirement(line: str) -> Requirement | None:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line)
    except InvalidRequirement:  # of long ago: "numpy (>=1.8)x"
        return None
