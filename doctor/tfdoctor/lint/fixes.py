"""From findings with a certain correction to edits of the file's bytes."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.lint.notebooks import code_cells, plain
from tfdoctor.parse.edits import Edit, EditError, Source, edits_of_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfdoctor.lint.models import Fix, LintProblem

__all__ = ["drop_ambiguous_renames", "format_diff", "plan_edits"]

_RENAMES = ("misspelt-variable", "misspelt-option")
_LINE_ENDING = re.compile(r"\r\n|\r|\n")


def plan_edits(source: Source, problems: Sequence[LintProblem], kind: str) -> list[Edit]:
    """Return the edits for all certain corrections of a file. Raises EditError if it cannot be edited exactly."""
    fixes: dict[int | None, list[Fix]] = {}
    for one in problems:
        if one.fix is not None and one.fix.safe:
            fixes.setdefault(one.cell, []).append(one.fix)
    if not fixes:
        return []
    if kind != "notebook":
        return edits_of_text(source, _replacements(source.text, fixes.get(None, [])))
    return edits_of_text(
        source,
        [
            piece
            for cell in code_cells(source.text)
            for piece in cell.locate(_replacements(cell.source, fixes.get(cell.number, [])))
        ],
    )


def _replacements(text: str, fixes: Sequence[Fix]) -> list[tuple[int, int, str]]:
    """Return (start, end, new text) of each fix. Raises EditError if something else stands there."""
    starts = [0, *(match.end() for match in _LINE_ENDING.finditer(text))] if fixes else []
    out = []
    for fix in fixes:
        start = starts[fix.line - 1] + fix.column - 1 if 0 < fix.line <= len(starts) else -1
        end = start + len(fix.old)
        if start < 0 or text[start:end] != fix.old:
            raise EditError("the text to correct is not where it was found")
        out.append((start, end, fix.text))
    return out


def drop_ambiguous_renames(
    problems: Sequence[LintProblem],
    parts: Mapping[int | None, str],
    kind: str,
    names_read: Collection[str] = (),
) -> list[LintProblem]:
    """Return the problems, without the fix where correcting a name alone might break the file.

    That is so if the misspelt variable stands in the file elsewhere, too (what reads it would find nothing), or if the
    correct name stands beside it (one of the two values would win, or the file would be no longer valid). `parts`: the
    text of each cell, or the whole text under None; `names_read`: variables that Python both sets and reads.
    """
    renames = [one for one in problems if one.fix and one.name in _RENAMES]
    if not renames:
        return list(problems)
    words: Counter[str] = Counter()
    for text in parts.values():
        words.update(_WORD.findall(_strip_comments(text, kind)))
    fixed = Counter(one.fix.old for one in renames if one.fix)
    old_names = defaultdict(set)
    for one in renames:
        if one.fix:
            old_names[one.fix.text].add(one.fix.old)
    clashing = _find_clashes(old_names, parts, kind, words)
    unfixable = {one.message for one in problems if one.name in _RENAMES and one.fix is None}

    def reason(problem: LintProblem, fix: Fix) -> str:
        elsewhere = words[fix.old] > fixed[fix.old] or fix.old in names_read or problem.message in unfixable
        if problem.name == "misspelt-variable" and elsewhere:
            return "The name stands elsewhere in this file, too: correct all of them by hand."
        return f"{fix.text} is set beside it: correct it by hand." if fix.text in clashing else ""

    return [
        replace(one, fix=None, message=f"{one.message} {why}")
        if one.fix and one.name in _RENAMES and (why := reason(one, one.fix))
        else one
        for one in problems
    ]


_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT_LINE = re.compile(r"(?m)^[ \t]*#.*$")
_COMMENT_AFTER_CODE = re.compile(r"(?m)[ \t]#[^\n'\"]*$")


def _strip_comments(text: str, kind: str) -> str:
    """Return a text without comments that certainly are comments."""
    text = _COMMENT_LINE.sub("", text)
    return _COMMENT_AFTER_CODE.sub("", text) if kind in ("python", "notebook") else text


def _find_clashes(
    old_names: Mapping[str, set[str]], parts: Mapping[int | None, str], kind: str, words: Counter[str]
) -> set[str]:
    """Return the correct names that would stand twice in one call or dict; outside of Python: in one file."""
    clashing = set()
    for new, old in old_names.items():
        if not words[new] and len(old) == 1:
            continue
        code = "\n".join(_strip_comments(text, kind) for text in parts.values())
        if (
            kind not in ("python", "notebook")
            or len(old) > 1
            or _is_set(new, code)
            or any(
                sum(key == new or key in old for key in keys) > 1
                for text in parts.values()
                for keys in _keys_by_container(text)
            )
        ):
            clashing.add(new)
    return clashing


def _is_set(name: str, code: str) -> bool:
    """Return whether Python code seems to set a variable: `["NAME"] =`, `"NAME", …`, `"NAME": …`, `NAME=…`."""
    return re.search(rf"\b{name}(?:['\"]\s*(?:\]\s*=(?!=)|[,:])|\s*=(?!=))", code) is not None


def _keys_by_container(text: str) -> Iterator[list[object]]:
    """Yield the keys of each dict and the keywords of each call; all words at once if it is not Python 3."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(plain(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield list(_WORD.findall(text))
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield [one.value for one in node.keys if isinstance(one, ast.Constant)]
        elif isinstance(node, ast.Call):
            yield [one.arg for one in node.keywords]


def format_diff(path: str, before: str, after: str) -> str:
    """Return a unified diff; empty if nothing differs."""
    name = path.replace("\n", "?")
    rows = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm=""
    )
    return "".join(f"{row}\n" for row in rows)
