"""Plain English: what is printed and written uses the words of the field; tests/words.toml lists which not to use."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
WORDS: dict[str, str] = tomllib.loads((ROOT / "tests" / "words.toml").read_text(encoding="utf-8"))
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml")
SHOWN_KEYS = ("says", "text", "title", "remedy", "why", "note", "reason")
"""The keys of compat's tables whose texts are printed."""
SHOWN_MODULES = ("rules/", "dockerfile/checks/")
"""Where a module's docstring is shown, by `explain` and in docs/rules.md."""


def hidden(tree: ast.Module, name: str) -> set[int]:
    """The docstrings that nobody sees: all but those of rules, and of functions of cli (`--help`)."""
    shown = (
        {id(tree.body[0].value)}
        if name.startswith(SHOWN_MODULES) and isinstance(tree.body[0], ast.Expr)
        else set()
    )
    if name.startswith("cli/"):
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
        shown |= {id(node.body[0].value) for node in functions if isinstance(node.body[0], ast.Expr)}
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)} - shown


def strings() -> Iterator[tuple[str, str]]:
    """(place, text) of all that is printed: the package's strings of several words, and docstrings that are shown."""
    package = ROOT / "doctor" / "tfdoctor"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        silent = hidden(tree, name)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in silent
                and " " in node.value
            ):
                yield f"{name}:{node.lineno}", " ".join(node.value.split())


def make_tables(value: object, key: str = "") -> Iterator[str]:
    """The texts of a table of compat that are printed."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from make_tables(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from make_tables(inner, key)
    elif isinstance(value, str) and key in SHOWN_KEYS:
        yield value


def data() -> Iterator[tuple[str, str]]:
    """(file, text) of all that is printed from compat."""
    for path in sorted((ROOT / "compat").rglob("*.toml")):
        for text in make_tables(tomllib.loads(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT).as_posix(), text


def assets() -> Iterator[tuple[str, str]]:
    """(place, text) of the templates and scripts of pages, by their lines."""
    for path in sorted((ROOT / "doctor" / "tfdoctor").rglob("assets/*")):
        if path.suffix in {".j2", ".js"}:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                yield f"{path.name}:{number}", " ".join(re.sub(r"<[^>]*>", " ", line).split())


def bad(text: str, words: dict[str, str]) -> list[str]:
    """What of a text is on the list, with what is around it and what is better."""
    pattern = re.compile(r"\b(?:" + "|".join(re.escape(word) for word in words) + r")\b", re.IGNORECASE)
    return [
        f"{match[0]!r}, better {words[match[0].lower()]!r}: …{text[max(0, match.start() - 40) : match.end() + 30]}…"
        for match in pattern.finditer(text)
    ]


def test_what_is_printed_is_plain_english() -> None:
    found = [
        f"{place}: {one}" for place, text in (*strings(), *data(), *assets()) for one in bad(text, WORDS)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "name", [*PAGES, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
)
def test_a_page_is_plain_english(name: str) -> None:
    found = bad(" ".join((ROOT / name).read_text(encoding="utf-8").split()), WORDS)
    assert not found, "\n".join(found)


def test_the_list_is_used() -> None:
    assert list(WORDS) == sorted(WORDS)
    assert all(word == word.lower() and better for word, better in WORDS.items())
    assert bad("It was Mended.", WORDS)
    assert list(data())
    assert list(assets())
