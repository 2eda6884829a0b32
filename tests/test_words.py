"""Printed and written text avoids the words that tests/words.toml lists."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compat.every_row import for_each

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
"""Keys of compat's tables whose texts are printed."""
SHOWN_MODULES = ("rules/", "images/checks/")
"""Folders whose module docstrings are shown by `explain` and in docs/codes."""


def find_hidden_docstrings(tree: ast.Module, name: str) -> set[int]:
    """Return the ids of the docstrings that users never see.

    Users see those of the rules and those of the functions of cli (`--help`).
    """
    visible = (
        {id(tree.body[0].value)}
        if name.startswith(SHOWN_MODULES) and isinstance(tree.body[0], ast.Expr)
        else set()
    )
    if name.startswith("cli/"):
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
        visible |= {id(node.body[0].value) for node in functions if isinstance(node.body[0], ast.Expr)}
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)} - visible


def list_strings() -> Iterator[tuple[str, str]]:
    """Yield (place, text) for all printed texts of the package.

    These are the strings of several words and the visible docstrings.
    """
    package = ROOT / "doctor" / "tfdoctor"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        silent = find_hidden_docstrings(tree, name)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in silent
                and " " in node.value
            ):
                yield f"{name}:{node.lineno}", " ".join(node.value.split())


def list_table_texts(value: object, key: str = "") -> Iterator[str]:
    """Yield the printed texts of a table of compat."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from list_table_texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from list_table_texts(inner, key)
    elif isinstance(value, str) and key in SHOWN_KEYS:
        yield value


def list_data_texts() -> Iterator[tuple[str, str]]:
    """Yield (file, text) for all printed texts of compat."""
    for path in sorted((ROOT / "compat").rglob("*.toml")):
        for text in list_table_texts(tomllib.loads(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT).as_posix(), text


def list_asset_texts() -> Iterator[tuple[str, str]]:
    """Yield (place, text) for each line of the templates and scripts of HTML pages."""
    for path in sorted((ROOT / "doctor" / "tfdoctor").rglob("assets/*")):
        if path.suffix in {".j2", ".js"}:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                yield f"{path.name}:{number}", " ".join(re.sub(r"<[^>]*>", " ", line).split())


def find_bad_words(text: str, listed: dict[str, str]) -> list[str]:
    """Return a message for each listed word in a text, with its context and the better word."""
    pattern = re.compile(r"\b(?:" + "|".join(re.escape(word) for word in listed) + r")\b", re.IGNORECASE)
    return [
        f"{match[0]!r}, better {listed[match[0].lower()]!r}: …{text[max(0, match.start() - 40) : match.end() + 30]}…"
        for match in pattern.finditer(text)
    ]


def test_printed_text_uses_plain_words() -> None:
    problems = [
        f"{location}: {problem}"
        for location, text in (*list_strings(), *list_data_texts(), *list_asset_texts())
        for problem in find_bad_words(text, WORDS)
    ]
    assert not problems, "\n".join(problems)


@for_each([*PAGES, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))])
def test_page_uses_plain_words(name: str) -> None:
    problems = find_bad_words(" ".join((ROOT / name).read_text(encoding="utf-8").split()), WORDS)
    assert not problems, "\n".join(problems)


def test_word_list_is_sorted_and_used() -> None:
    assert list(WORDS) == sorted(WORDS)
    assert all(word == word.lower() and better for word, better in WORDS.items())
    assert find_bad_words("It was Mended.", WORDS)
    assert list(list_data_texts())
    assert list(list_asset_texts())
