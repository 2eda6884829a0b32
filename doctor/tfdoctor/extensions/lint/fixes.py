"""Turn the fixes of findings into edits of the file, and drop the fixes that could break it."""

from __future__ import annotations

import ast
import difflib
import functools
import re
import warnings
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.edits import Edit, EditError, SourceText, make_edits
from tfdoctor.core.facts.variables import READ_VARIABLES, guess_variable
from tfdoctor.extensions.lint.notebooks import convert_magics, list_code_cells

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfdoctor.extensions.lint.models import Fix, LintProblem

__all__ = [
    "drop_fixes_of_shared_names",
    "drop_unsafe_fixes",
    "format_diff",
    "list_variables",
    "plan_edits",
]

_RENAME_KINDS = ("misspelt-variable", "misspelt-option")
"""The kinds of findings whose fixes correct a name."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_CAPITALS = re.compile(r"\b[A-Z][A-Z0-9_]{4,59}\b")
_COMMENT_LINE = re.compile(r"(?m)^[ \t]*#.*$")
_COMMENT_AFTER_CODE = re.compile(r"(?m)[ \t]#[^\n'\"]*$")
_LINE_ENDING = re.compile(r"\r\n|\r|\n")


def plan_edits(source: SourceText, problems: Sequence[LintProblem], kind: str) -> list[Edit]:
    """Return the edits that apply all safe fixes of a file. Raise EditError if the file has changed."""
    fixes: dict[int | None, list[Fix]] = {}
    for problem in problems:
        if problem.fix is not None and problem.fix.is_safe:
            fixes.setdefault(problem.cell_number, []).append(problem.fix)
    if not fixes:
        return []
    if kind != "notebook":
        return make_edits(source, _locate_fixes(source.text, fixes.get(None, [])))
    return make_edits(
        source,
        [
            replacement
            for cell in list_code_cells(source.text)
            for replacement in cell.convert_replacements(
                _locate_fixes(cell.source, fixes.get(cell.number, []))
            )
        ],
    )


def _locate_fixes(text: str, fixes: Sequence[Fix]) -> list[tuple[int, int, str]]:
    """Return (start, end, new text) for each fix. Raise EditError if its old text is not at its position."""
    starts = [0, *(match.end() for match in _LINE_ENDING.finditer(text))] if fixes else []
    replacements = []
    for fix in fixes:
        start = starts[fix.line - 1] + fix.column - 1 if 0 < fix.line <= len(starts) else -1
        end = start + len(fix.old_text)
        if start < 0 or text[start:end] != fix.old_text:
            raise EditError("the text to correct is not where it was found")
        replacements.append((start, end, fix.new_text))
    return replacements


def drop_unsafe_fixes(
    problems: Sequence[LintProblem],
    parts: Mapping[int | None, str],
    kind: str,
    variables_read: Collection[str] = (),
) -> list[LintProblem]:
    """Return the problems, without the fixes that could break the file.

    A fix is dropped in these cases:

    * The misspelt name also appears elsewhere in the file, where code that reads it would find nothing.
    * The correct name is also set, so that one of two values would win or the file would be invalid.
    * The code expects the TypeError that the fix prevents.
    * The fix would put quotes into an f-string.

    `parts` maps the number of each notebook cell to its text, or None to the whole text of any other file.
    `variables_read` are variables that Python code both sets and reads.
    """
    find_unsafe_lines = functools.cache(lambda cell: _find_unsafe_lines(parts[cell]))  # parses each cell once
    problems = [
        replace(item, fix=None)
        if item.fix
        and item.kind_name == "variable-set-wrongly"
        and item.line in find_unsafe_lines(item.cell_number)
        else item
        for item in problems
    ]
    rename_problems = [item for item in problems if item.fix and item.kind_name in _RENAME_KINDS]
    if not rename_problems:
        return problems
    word_counts: Counter[str] = Counter()
    for text in parts.values():
        word_counts.update(_WORD.findall(_strip_comments(text, kind)))
    fix_counts = Counter(item.fix.old_text for item in rename_problems if item.fix)
    old_names = defaultdict(set)
    for item in rename_problems:
        if item.fix:
            old_names[item.fix.new_text].add(item.fix.old_text)
    clashing_names = _find_clashes(old_names, parts, kind, word_counts)
    unfixable_messages = {
        item.message for item in problems if item.kind_name in _RENAME_KINDS and item.fix is None
    }

    def explain_drop(problem: LintProblem, fix: Fix) -> str:
        is_used_elsewhere = (
            word_counts[fix.old_text] > fix_counts[fix.old_text]
            or fix.old_text in variables_read
            or problem.message in unfixable_messages
        )
        if is_used_elsewhere:
            return "The name stands elsewhere in this file, too: correct all of them by hand."
        return (
            f"{fix.new_text} is set beside it: correct it by hand." if fix.new_text in clashing_names else ""
        )

    return [
        replace(item, fix=None, message=f"{item.message} {note}")
        if item.fix and item.kind_name in _RENAME_KINDS and (note := explain_drop(item, item.fix))
        else item
        for item in problems
    ]


def _strip_comments(text: str, kind: str) -> str:
    """Return the text without comments. A `#` after code is only removed if no quote follows on its line."""
    text = _COMMENT_LINE.sub("", text)
    return _COMMENT_AFTER_CODE.sub("", text) if kind in ("python", "notebook") else text


def _find_clashes(
    old_names: Mapping[str, set[str]], parts: Mapping[int | None, str], kind: str, word_counts: Counter[str]
) -> set[str]:
    """Return the correct names that a fix could set twice.

    `old_names` maps each correct name to its misspellings. A name clashes if it has several misspellings, or if the
    text already sets it. In a file that is not Python, any appearance of the name counts as setting it. In Python, its
    appearance in the same call or dict also counts.
    """
    candidates = {
        correct_name: misspellings
        for correct_name, misspellings in old_names.items()
        if word_counts[correct_name] or len(misspellings) > 1
    }
    if not candidates or kind not in ("python", "notebook"):
        return set(candidates)
    code = "\n".join(_strip_comments(text, kind) for text in parts.values())
    containers = [keys for text in parts.values() for keys in _iter_container_keys(text)]
    return {
        correct_name
        for correct_name, misspellings in candidates.items()
        if len(misspellings) > 1
        or _is_set(correct_name, code)
        or any(sum(key == correct_name or key in misspellings for key in keys) > 1 for keys in containers)
    }


def _is_set(variable: str, code: str) -> bool:
    """Return whether Python code seems to set a variable: `["NAME"] =`, `"NAME",`, `"NAME":`, `NAME=`."""
    return re.search(rf"\b{variable}(?:['\"]\s*(?:\]\s*=(?!=)|[,:])|\s*=(?!=))", code) is not None


def _find_unsafe_lines(text: str) -> set[int]:
    """Return the numbers of the lines on which no fix may put a number in quotes.

    These are the lines of f-strings, which cannot contain their own quotes before Python 3.12, and the lines whose
    code expects an error.
    """
    tree = _parse(text)
    lines: set[int] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.JoinedStr):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, (ast.Try, ast.With)) and _expects_error(node):
            lines.update(range(node.lineno, (node.body[-1].end_lineno or node.lineno) + 1))
    return lines


def _expects_error(node: ast.Try | ast.With) -> bool:
    """Return whether a `try` catches TypeError, or a `with` expects an error."""
    if isinstance(node, ast.With):  # pytest.raises(…) or self.assertRaises(…)
        # "aises" is part of both names, whose first letters differ in case
        return any("aises" in ast.unparse(item.context_expr) for item in node.items)
    return any(_catches_type_error(handler.type) for handler in node.handlers)


def _catches_type_error(exception_type: ast.expr | None) -> bool:
    """Return whether an `except` clause of this type catches TypeError. None stands for an `except` without a type."""
    return (
        exception_type is None
        or re.search(r"\b(?:TypeError|Exception|BaseException)\b", ast.unparse(exception_type)) is not None
    )


def list_variables(text: str, kind: str, problems: Sequence[LintProblem]) -> set[str]:
    """Return the misspelt variables that appear in a file, and the known ones that it may set for other programs.

    Python code sets variables for its own process only, as a rule.
    `problems` are the problems of the file. They also name misspelt variables that its code composes.
    """
    try:
        parts = [cell.source for cell in list_code_cells(text)] if kind == "notebook" else [text]
    except ValueError:  # an invalid notebook may still use the name
        parts = [text]
    code = "\n".join(_strip_comments(_LINE_ENDING.sub("\n", part), kind) for part in parts)
    is_python = kind in ("python", "notebook")
    return {
        name
        for name in set(_CAPITALS.findall(code))
        if guess_variable(name) or (name in READ_VARIABLES and not is_python)
        # the first word in capitals in these messages is the misspelt name
    }.union(
        *(_CAPITALS.findall(item.message)[:1] for item in problems if item.kind_name == "misspelt-variable")
    )


def drop_fixes_of_shared_names(
    problems: Sequence[LintProblem], variables: Mapping[str, set[str] | None]
) -> list[LintProblem]:
    """Return the problems, without the fixes of variables that another file uses or sets, or may use.

    `variables` maps the path of each other file to the result of `list_variables`, or to None if it is unreadable.
    """

    def explain_drop(problem: LintProblem) -> str:
        if problem.fix is None or problem.kind_name != "misspelt-variable":
            return ""
        for path, names in variables.items():
            if names is None:
                return f"{path} could not be read and may use the name, too: correct it by hand."
            if problem.fix.old_text in names:
                return f"The name stands in {path}, too: correct both by hand."
            if problem.fix.new_text in names:
                return f"{path} sets {problem.fix.new_text}: correct it by hand."
        return ""

    return [
        replace(problem, fix=None, message=f"{problem.message} {explanation}")
        if (explanation := explain_drop(problem))
        else problem
        for problem in problems
    ]


def _iter_container_keys(text: str) -> Iterator[list[object]]:
    """Yield the keys of each dict and the keywords of each call.

    If the text is not Python 3, yield all of its words as one list.
    """
    tree = _parse(text)
    if tree is None:
        yield list(_WORD.findall(text))
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield [item.value for item in node.keys if isinstance(item, ast.Constant)]
        elif isinstance(node, ast.Call):
            yield [item.arg for item in node.keywords]


def _parse(text: str) -> ast.Module | None:
    """Return the tree of Python 3 code or of a notebook cell, or None if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(convert_magics(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def format_diff(path: str, before: str, after: str) -> str:
    """Return a unified diff, or "" if nothing differs."""
    name = path.replace("\n", "?")
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)
