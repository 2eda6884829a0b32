"""The matrix as an interactive page.

The user chooses a system, GPU, driver, Python and TensorFlow, and sees the answer of `recommend`. The script
computes nothing; it only looks up the table in the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.plan.answer_table import ANY_GPU, PLACEHOLDERS
from tfdoctor.plan.release_sheet import describe_conditions, get_problem_code
from tfdoctor.render.html.document import render_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.plan.answer_table import AnswerTable
    from tfdoctor.plan.overview import Overview
    from tfdoctor.plan.release_sheet import Sheet

__all__ = ["make_explorer_html", "pack_table"]


def make_explorer_html(
    verdicts: AnswerTable, sheets: Sequence[Sheet], overview: Sequence[Overview], *, as_of: str
) -> bytes:
    """Return the HTML page.

    `sheets` has the data sheet of each release, newest first. Readers without scripts see the `overview`.
    """
    return render_page("explorer", data=pack_table(verdicts, sheets), as_of=as_of, overview=overview)


def pack_table(verdicts: AnswerTable, sheets: Sequence[Sheet]) -> dict[str, Any]:
    """Return the table in the format that the page's script reads.

    * `cells[system][minor]` is the index of a block.
    * A block has one entry for each Python: a list with a row for each GPU, or one row for all GPUs.
    * A row has the answers by driver (`plan.answer_table.Drivers`), in the format of `_encode_row`.

    In each dimension, index 0 means "any".
    """
    texts = list(verdicts.texts)
    index_by_text = {text: index for index, text in enumerate(texts)}
    index_by_row: dict[tuple[int, ...], int] = {}

    def add_row(answers: tuple[int, ...]) -> int:
        return index_by_row.setdefault(answers, len(index_by_row))

    def add_text(item: str) -> int:
        if item not in index_by_text:
            index_by_text[item] = len(texts)
            texts.append(item)
        return index_by_text[item]

    index_by_block: dict[str, int] = {}
    unique_blocks: list[list[Any]] = []

    def add_block(system: str, minor: str) -> int:
        """Return the index of the block for a system and a minor; equal blocks are stored once."""
        python_rows: list[Any] = []
        for python in ("", *verdicts.pythons):
            any_card_row = verdicts.cells.get((system, minor, python, ANY_GPU))
            if any_card_row is not None:
                python_rows.append(add_row(any_card_row))
            else:
                capabilities = ("", *verdicts.cards)
                python_rows.append(
                    [add_row(verdicts.cells[system, minor, python, item]) for item in capabilities]
                )
        key = repr(python_rows)
        if key not in index_by_block:
            index_by_block[key] = len(unique_blocks)
            unique_blocks.append(python_rows)
        return index_by_block[key]

    recipes = sorted({str(item[0]) for item in verdicts.options})
    platforms = list(verdicts.drivers)
    cells = [[add_block(item.key, minor) for minor in ("", *verdicts.minors)] for item in verdicts.systems]
    releases = [_pack_release(sheet, add_text) for sheet in sheets]
    return {
        "places": list(PLACEHOLDERS),
        "systems": [
            [item.key, item.title, platforms.index(item.platform), item.host.glibc or ""]
            for item in verdicts.systems
        ],
        "cards": [[capability, list(names)] for capability, names in verdicts.cards.items()],
        "drivers": [[list(item.steps), list(item.branches)] for item in verdicts.drivers.values()],
        "pythons": list(verdicts.pythons),
        "minors": list(verdicts.minors),
        "recipes": recipes,
        "options": [[recipes.index(str(item[0])), *item[1:]] for item in verdicts.options],
        "answers": [list(item) for item in verdicts.answers],
        "rows": [_encode_row(item) for item in index_by_row],
        "blocks": unique_blocks,
        "cells": cells,
        "releases": releases,
        "texts": texts,
    }


def _encode_row(runs: Sequence[int]) -> str:
    """Return the runs as text, separated by spaces.

    A run is `answer.count` in base 36, or only `answer` if the count is 1.
    """
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return " ".join(_base36(answer) + (f".{_base36(count)}" if count > 1 else "") for answer, count in pairs)


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _pack_release(sheet: Sheet, add_text: Any) -> list[Any]:
    release = sheet.row.release
    return [
        release.version,
        release.minor,
        release.released or "",
        [[add_text(name), add_text(requirement)] for name, requirement in sheet.requirements],
        [
            [
                get_problem_code(problem),
                add_text(problem.title),
                add_text(describe_conditions(problem)),
                add_text(problem.remedy),
            ]
            for problem in sheet.row.problems
        ],
    ]
