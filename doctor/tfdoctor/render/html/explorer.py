"""The matrix as an interactive page.

The user chooses a system, GPU, driver, Python and TensorFlow, and sees the answer of `recommend`. The page's script
computes nothing; it only looks answers up in a table that the page contains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.planning.answer_table import ANY_GPU, PLACEHOLDERS
from tfdoctor.planning.release_sheet import describe_conditions, get_problem_code
from tfdoctor.render.html.document import render_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.planning.answer_table import AnswerTable
    from tfdoctor.planning.overview import Overview
    from tfdoctor.planning.release_sheet import ReleaseSheet

__all__ = ["make_explorer_html", "pack_table"]


def make_explorer_html(
    table: AnswerTable, sheets: Sequence[ReleaseSheet], overview: Sequence[Overview], *, as_of: str
) -> bytes:
    """Return the HTML page.

    `sheets` are the data sheets of all releases, newest first. A browser without scripts shows the `overview`.
    """
    return render_page("explorer", data=pack_table(table, sheets), as_of=as_of, overview=overview)


def pack_table(table: AnswerTable, sheets: Sequence[ReleaseSheet]) -> dict[str, Any]:
    """Return the table in the format that the page's script reads.

    * `cells[system][minor]` is the index of a block.
    * A block has one entry for each Python: a list with a row for each GPU, or one row for all GPUs.
    * A row contains the answers by driver (`planning.answer_table.DriverSteps`), in the format of `_encode_row`.

    In each dimension, index 0 means "any".
    """
    texts = list(table.texts)
    index_by_text = {text: index for index, text in enumerate(texts)}
    index_by_row: dict[tuple[int, ...], int] = {}

    def add_row(answers: tuple[int, ...]) -> int:
        """Return the index of a row, and add the row if it is new."""
        return index_by_row.setdefault(answers, len(index_by_row))

    def add_text(text: str) -> int:
        """Return the index of a text, and add the text if it is new."""
        if text not in index_by_text:
            index_by_text[text] = len(texts)
            texts.append(text)
        return index_by_text[text]

    index_by_block: dict[str, int] = {}
    unique_blocks: list[list[Any]] = []

    def add_block(system: str, minor: str) -> int:
        """Return the index of the block for a system and a minor release. Equal blocks are stored once."""
        block: list[Any] = []
        for python in ("", *table.pythons):
            any_gpu_row = table.answer_rows.get((system, minor, python, ANY_GPU))
            if any_gpu_row is not None:
                block.append(add_row(any_gpu_row))
            else:
                capabilities = ("", *table.gpu_names)
                block.append(
                    [
                        add_row(table.answer_rows[system, minor, python, capability])
                        for capability in capabilities
                    ]
                )
        key = repr(block)
        if key not in index_by_block:
            index_by_block[key] = len(unique_blocks)
            unique_blocks.append(block)
        return index_by_block[key]

    recipes = sorted({str(recipe) for recipe, *_ in table.options})
    platforms = list(table.driver_steps)
    cells = [[add_block(system.key, minor) for minor in ("", *table.minors)] for system in table.systems]
    releases = [_pack_release(sheet, add_text) for sheet in sheets]
    return {
        "places": list(PLACEHOLDERS),
        "systems": [
            [system.key, system.title, platforms.index(system.platform), system.host.glibc or ""]
            for system in table.systems
        ],
        "cards": [[capability, list(names)] for capability, names in table.gpu_names.items()],
        "drivers": [[list(drivers.steps), list(drivers.branches)] for drivers in table.driver_steps.values()],
        "pythons": list(table.pythons),
        "minors": list(table.minors),
        "recipes": recipes,
        "options": [[recipes.index(str(recipe)), *values] for recipe, *values in table.options],
        "answers": [list(answer) for answer in table.answers],
        "rows": [_encode_row(row) for row in index_by_row],
        "blocks": unique_blocks,
        "cells": cells,
        "releases": releases,
        "texts": texts,
    }


def _encode_row(runs: Sequence[int]) -> str:
    """Encode a row of run-length encoded answers, [answer, count, answer, count, …], as text.

    A run is written as `answer.count` in base 36, or as `answer` if the count is 1. Spaces separate the runs.
    """
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return " ".join(
        _format_base36(answer) + (f".{_format_base36(count)}" if count > 1 else "") for answer, count in pairs
    )


def _format_base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _pack_release(sheet: ReleaseSheet, add_text: Any) -> list[Any]:
    """Return a data sheet as a list. `add_text` returns the index of a text in the table of texts."""
    release = sheet.main_row.release
    return [
        release.version,
        release.minor,
        release.release_date or "",
        [[add_text(name), add_text(requirement)] for name, requirement in sheet.requirements],
        [
            [
                get_problem_code(problem),
                add_text(problem.title),
                add_text(describe_conditions(problem)),
                add_text(problem.remedy),
            ]
            for problem in sheet.main_row.problems
        ],
    ]
