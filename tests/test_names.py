"""Names and docstrings follow the rules in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "doctor" / "tfdoctor"
MAX_ODD_NAMES, MAX_ODD_DOCSTRINGS = 14, 1
"""The number of violations that remain; lower it as violations are removed."""
CLASSES_TWICE = {"Check", "Installer", "Recommendation"}
"""Class names that occur twice.

Check and Recommendation are classes of the API, beside the models that they are made from.
"""
NO_FIRST_WORD = frozenset(
    """
    of without beside before after above below between within around apart along among at in out over under up
    down than until while who whose what which where when why how whether that this these those it its one
    nobody nothing none else other another each every all any some both either such same own again almost also
    always already maybe nearly never no not now often once only perhaps rather so soon still then there thus
    together too very about across against during except for inside into instead near past per since through
    toward upon via told said made seen given kept found known held built done gone meant lost shown written
    taken chosen brought left
    """.split()  # noqa: SIM905 - a list of words reads best as one
)
PARTICIPLE = re.compile(r"(?!need|feed|embed|read|speed|exceed|proceed|succeed)\w{3,}(?:ed|ing)")
ALLOWED = frozenset({"string", "setting", "warning", "finding", "as", "from", "to", "with", "on"})
NO_VERB = frozenset(
    """
    the a an what whether how why where which who of in for with without by as it its this that these those one
    all each every both no none not nothing nobody also only then there more most seconds bytes characters
    """.split()  # noqa: SIM905 - a list of words reads best as one
)
"""First words of docstrings that are no imperative verb."""


@functools.cache
def parse_package() -> dict[Path, ast.Module]:
    """Return the tree of every module of the package, which takes seconds."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


@functools.cache
def list_functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return the place and the node of every function of the package that is not a property."""
    return [
        (f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}", node)
        for path, tree in parse_package().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_property(node)
    ]


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether it is a property, whose name is a noun or an adjective."""
    names = {getattr(decorator, "id", getattr(decorator, "attr", "")) for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property"})


def breaks_rule(name: str) -> bool:
    """Return whether a function's name begins with a participle, preposition, pronoun or adverb."""
    if re.fullmatch(r"__\w+__", name):
        return False
    first_word = next((part for part in name.split("_") if part), "")
    return first_word not in ALLOWED and (
        first_word in NO_FIRST_WORD or PARTICIPLE.fullmatch(first_word) is not None
    )


@pytest.mark.parametrize(
    ("name", "breaks"),
    [
        *((name, True) for name in ("_told", "of_release", "without_gpus", "_decoded", "missing_of")),
        *((name, False) for name in ("read_answer", "find_library", "from_json", "_needs_root")),
    ],
)
def test_breaks_rule(name: str, breaks: bool) -> None:
    assert breaks_rule(name) is breaks


def test_function_names_begin_with_a_verb() -> None:
    violations = [location for location, node in list_functions() if breaks_rule(node.name)]
    assert len(violations) <= MAX_ODD_NAMES, violations


def test_docstrings_begin_with_a_verb() -> None:
    violations = []
    for location, node in list_functions():
        first = re.match(r"\W*(\w+)", ast.get_docstring(node) or "")
        if first is not None and first[1].lower() in NO_VERB:
            violations.append(location)
    assert len(violations) <= MAX_ODD_DOCSTRINGS, violations


def test_docstrings_describe_existing_parameters() -> None:
    violations = []
    for location, node in list_functions():
        described = re.findall(
            r"(?:^|[.:]\s+)`([a-z_]\w*)` (?:says|is|are|has|have)\b", ast.get_docstring(node) or "", re.M
        )
        known = {
            name
            for child in ast.walk(node)
            for name in (getattr(child, "arg", ""), getattr(child, "attr", ""))
        }
        known |= {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
        known |= {
            child.value
            for child in ast.walk(node)
            if isinstance(child, ast.Constant) and isinstance(child.value, str)
        }
        violations += [f"{location}: {name}" for name in described if name not in known]
    assert not violations


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for tree in parse_package().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} <= CLASSES_TWICE
