"""Read the code cells of notebooks, and convert the lines in them that only IPython understands."""

from __future__ import annotations

import bisect
import itertools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Cell", "convert_magics", "list_code_cells"]

_ENV_MAGIC = re.compile(r"(\s*)%(?:env|set_env)\s+([A-Za-z_]\w{0,60})(?:\s*=\s*|\s+)(.*)\Z")
"""`%env NAME=VALUE` or `%set_env NAME VALUE`."""
_SHELL_LINE = re.compile(r"(\s*)(?:[\w, ]+=\s*)?!{1,2}(.*)\Z")
"""`!COMMAND` or `NAME = !COMMAND`."""
_LINE_MAGIC = re.compile(r"(\s*)(?:[\w, ]+=\s*)?%|(\s*)\?|[^#'\"]*\w\?{1,2}\s*\Z")
"""Any other line magic, or a request for help such as `?NAME` or `NAME?`."""
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
"""A magic for the whole cell, such as `%%bash`."""
_SPACE = re.compile(r"[ \t\n\r]*")
_JSON_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]", re.S)
"""One character in a JSON string: a surrogate pair, another escape or the character itself."""
_DECODER = json.JSONDecoder()
_NOT_A_NOTEBOOK = "it is not a notebook"


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell of a notebook."""

    number: int
    """The number among all cells, from 1."""
    source: str
    string_literals: tuple[tuple[int, int, str], ...]
    """(start, end, value) for each JSON string that the source consists of.

    The positions are those in the text of the notebook, without the quotes.
    """
    notebook_text: str
    """The text of the whole notebook file."""

    def convert_replacements(
        self, replacements: Iterable[tuple[int, int, str]]
    ) -> Iterator[tuple[int, int, str]]:
        """Convert replacements in the source to replacements in the text of the notebook.

        Both are (start, end, new text). A replacement that spans several JSON strings becomes one for each of them.
        """
        starts = [0, *itertools.accumulate(len(value) for _, _, value in self.string_literals)]
        character_offsets: dict[int, list[int]] = {}
        for start, end, new_text in replacements:
            json_text = json.dumps(new_text, ensure_ascii=self.notebook_text.isascii())[1:-1]
            literal_number = bisect.bisect_right(starts, start) - 1
            while starts[literal_number] < end:
                literal_start, literal_end, value = self.string_literals[literal_number]
                if literal_number not in character_offsets:
                    characters = _JSON_CHARACTER.finditer(self.notebook_text, literal_start, literal_end)
                    character_offsets[literal_number] = [
                        literal_start,
                        *(match.end() for match in characters),
                    ]
                first, last = (
                    max(start - starts[literal_number], 0),
                    min(end - starts[literal_number], len(value)),
                )
                yield (
                    character_offsets[literal_number][first],
                    character_offsets[literal_number][last],
                    json_text,
                )
                json_text, literal_number = (
                    "",
                    literal_number + 1,
                )  # only the first part contains the new text


def list_code_cells(text: str) -> list[Cell]:
    """Return the code cells of a notebook of format 3 or 4. Raise ValueError if it is not a notebook."""
    try:
        root = _parse_node(text, _skip_space(text, 0))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if _skip_space(text, root.end) != len(text):
        raise json.JSONDecodeError("Extra data", text, root.end)
    if not isinstance(root.value, dict):
        raise ValueError(_NOT_A_NOTEBOOK)  # noqa: TRY004 - the error is in a file, not in an argument
    cells = _get_items(text, root, "cells")
    if not cells:
        worksheets = _get_items(text, root, "worksheets")
        cells = [cell for sheet in worksheets for cell in _get_items(text, sheet, "cells")]
    result = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell.value, dict) or cell.value.get("cell_type") != "code":
            continue
        members = _list_members(text, cell)
        # format 3 calls it `input`
        source = members.get("source", members.get("input"))
        strings = _list_items(text, source) or ([source] if source is not None else [])
        literals = tuple(
            (string.start + 1, string.end - 1, string.value)
            for string in strings
            if isinstance(string.value, str)
        )
        if literals or not strings:
            result.append(Cell(number, "".join(value for _, _, value in literals), literals, text))
    return result


@dataclass(frozen=True, slots=True)
class _Node:
    """A JSON value and its position."""

    value: object
    start: int
    end: int


def _skip_space(text: str, position: int) -> int:
    """Return the position after the white space at a position."""
    match = _SPACE.match(text, position)
    return match.end() if match is not None else position


def _parse_node(text: str, position: int) -> _Node:
    """Return the JSON value that begins at a position."""
    value, end = _DECODER.raw_decode(text, position)
    return _Node(value, position, end)


def _list_members(text: str, node: _Node | None) -> dict[str, _Node]:
    """Return the members of a JSON object by key, and an empty dict for any other value.

    Of duplicate keys, the last one counts.
    """
    members: dict[str, _Node] = {}
    if node is None or not isinstance(node.value, dict) or not node.value:
        return members
    position = node.start
    while text[position] != "}":
        key = _parse_node(text, _skip_space(text, position + 1))
        value = _parse_node(text, _skip_space(text, _skip_space(text, key.end) + 1))
        members[str(key.value)] = value
        position = _skip_space(text, value.end)
    return members


def _get_items(text: str, node: _Node, name: str) -> list[_Node]:
    """Return the items of an array that is the member `name` of an object, or [] if it is missing or null.

    Raise ValueError if the member is anything else.
    """
    member = _list_members(text, node).get(name)
    if member is not None and member.value is not None and not isinstance(member.value, list):
        raise ValueError(_NOT_A_NOTEBOOK)
    return _list_items(text, member)


def _list_items(text: str, node: _Node | None) -> list[_Node]:
    """Return the items of a JSON array, and an empty list for any other value."""
    items: list[_Node] = []
    if node is None or not isinstance(node.value, list) or not node.value:
        return items
    position = node.start
    while text[position] != "]":
        item = _parse_node(text, _skip_space(text, position + 1))
        items.append(item)
        position = _skip_space(text, item.end)
    return items


def convert_magics(source: str) -> str:
    """Return the source of a cell as Python code.

    Magics that set variables or run a shell become calls of functions that the checks know. Others are removed. The
    line numbers stay the same.
    """
    magic = _CELL_MAGIC.match(source)
    if magic is not None:
        kind = magic[1]
        if kind in ("bash", "sh", "script", "shell"):
            body = source.partition("\n")[2]
            return f"__tfdoctor_shell({body!r})"
        if kind in ("time", "timeit", "capture", "prun"):
            return "\n" + convert_magics(source.partition("\n")[2])  # an empty line for that of the magic
        return ""
    if not re.search(r"[%!?]", source):
        return source
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if match := _ENV_MAGIC.match(line):
            lines[number] = f"{match[1]}__tfdoctor_env({match[2]!r}, {match[3].strip()!r})"
        elif match := _SHELL_LINE.match(line):
            lines[number] = f"{match[1]}__tfdoctor_shell({match[2]!r})"
        elif match := _LINE_MAGIC.match(line):
            lines[number] = f"{line[: len(line) - len(line.lstrip())]}pass"
    return "\n".join(lines)
