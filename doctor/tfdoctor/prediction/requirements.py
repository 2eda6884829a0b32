"""Parse and evaluate the Requires-Dist lines of distributions.

Plain lines, such as `numpy<2,>=1.23.5` or `x; extra == "y"`, are parsed here, because `packaging` took a tenth of the
time of a check. All other lines are parsed by `packaging`. A test ensures that the results agree.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "RequirementLine",
    "format_requirement",
    "is_requirement_met",
    "parse_requirement_line",
]

_PLAIN = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)"
    r" {0,2}(?:\(([<>=!~][^()\[\];@]{1,200})\)|([<>=!~][^()\[\];@]{1,200}))?"
    r" {0,2}"
)
_EXTRA_CONDITION = re.compile(r"""extra {0,2}== {0,2}(?:"[A-Za-z0-9_.-]{1,100}"|'[A-Za-z0-9_.-]{1,100}')""")
_PLAIN_CONDITION = re.compile(
    r"""(?:(python_version|python_full_version) {0,2}(<|>|<=|>=|==|!=) {0,2}["'](\d{1,2}(?:\.\d{1,3}){1,2})["']"""
    r"""|(sys_platform|platform_system|platform_machine|os_name|platform_python_implementation|implementation_name)"""
    r""" {0,2}(==|!=) {0,2}["']([A-Za-z_][A-Za-z0-9_]{2,30})["'])"""
)
_Condition = tuple[str, str, str]
"""(variable, operator, value) of a marker, such as ("python_version", "<", "3.12")."""


@dataclass(frozen=True, slots=True)
class RequirementLine:
    """A requirement that applies to the examined Python."""

    package: str
    """The normalised name."""
    line: str
    specifiers: str | None
    """The version specifiers of a plain line, which may be ""; None if `packaging` must parse the line."""


def parse_requirement_line(line: str, environment: Mapping[str, str]) -> RequirementLine | None:
    """Return the requirement in a line; None if the line is invalid or does not apply.

    `environment` has the PEP 508 marker variables, with an empty `extra`.
    """
    plain = _parse_plain_line(line)
    if plain is not None:
        package, specification, conditions = plain
        if conditions is None or not all(
            any(_is_true(condition, environment) for condition in group) for group in conditions
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
    return RequirementLine(versions.normalize_project_name(requirement.name), line, None)


def is_requirement_met(requirement_line: RequirementLine, version: str) -> bool:
    """Return whether a version (PEP 440) meets a requirement. Every version meets an invalid one."""
    if requirement_line.specifiers is not None:
        return not requirement_line.specifiers or versions.satisfies(version, requirement_line.specifiers)
    requirement = versions.parse_requirement_or_none(requirement_line.line)
    return requirement is None or requirement.specifier.contains(version, prereleases=True)


def format_requirement(requirement_line: RequirementLine) -> str:
    """Return the name and specifiers as `packaging` formats them, or only the name if they are invalid."""
    requirement = versions.parse_requirement_or_none(requirement_line.line)
    return (
        f"{requirement.name}{requirement.specifier}" if requirement is not None else requirement_line.package
    )


@lru_cache(maxsize=4096)
def _parse_plain_line(line: str) -> tuple[str, str, tuple[tuple[_Condition, ...], ...] | None] | None:
    """Return the package, version specifiers and marker conditions of a plain line; None for other lines.

    The conditions are the result of `_parse_conditions`.
    """
    body, semicolon, marker = line.partition(";")
    conditions = _parse_conditions(marker.strip()) if semicolon else ()
    if conditions is None and "@" not in body:
        return "", "", None  # the line is for an extra, so the package does not matter
    match = _PLAIN.fullmatch(body)
    if match is None or conditions is None or () in conditions:
        return None
    name, parenthesized, unparenthesized = match.groups()
    specification = (parenthesized or unparenthesized or "").strip()
    if specification and not versions.is_plain_specification(specification):
        return None
    return versions.normalize_project_name(name), specification, conditions


def _parse_conditions(marker: str) -> tuple[tuple[_Condition, ...], ...] | None:
    """Return groups of marker conditions. The marker is true if one condition of each group is.

    Return None if the marker requires an extra. The result contains an empty group if the marker is not plain.
    """
    groups: list[tuple[_Condition, ...]] = []
    needs_extra = False
    for part in re.split(r" and (?![^(]*\))", marker):  # "and" outside parentheses
        if _EXTRA_CONDITION.fullmatch(part):
            needs_extra = True
            continue
        # "(a and b)" becomes two groups of one condition, "(a or b)" one group of two.
        inner = part[1:-1] if part.startswith("(") and part.endswith(")") else ""
        if inner and " or " not in inner:
            alternatives = [[texts] for texts in inner.split(" and ")]
        else:
            alternatives = [inner.split(" or ") if inner else [part]]
        if any(set("()") & set(text) for texts in alternatives for text in texts):
            return ((),)
        for texts in alternatives:
            matches = [_PLAIN_CONDITION.fullmatch(text) for text in texts]
            groups.append(tuple(_make_condition(match) for match in matches if match) if all(matches) else ())
    if not needs_extra:
        return tuple(groups)
    has_top_level_or = re.search(r"\bor\b(?![^(]*\))", marker)  # "or" outside parentheses
    return None if has_top_level_or is None else ((),)


def _make_condition(match: re.Match[str]) -> _Condition:
    groups = match.groups()
    variable, operator, value = groups[:3] if groups[0] else groups[3:]
    return variable, operator, value


def _is_true(condition: _Condition, environment: Mapping[str, str]) -> bool:
    variable, operator, value = condition
    actual_value = environment[variable]
    if variable.startswith("python_"):
        return versions.satisfies(actual_value, f"{operator}{value}")
    return (actual_value == value) is (operator == "==")
