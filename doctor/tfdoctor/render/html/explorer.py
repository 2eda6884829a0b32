"""The matrix as a page to look things up in: system, card, driver, Python and TensorFlow are chosen, and what
`recommend` says of them is shown. Its script decides nothing: it looks up in the table that is given here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.plan.answer_table import ANY_CARD, PLACES
from tfdoctor.plan.release_sheet import code_of, conditions
from tfdoctor.render.html.document import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.plan.answer_table import Verdicts
    from tfdoctor.plan.overview import Overview
    from tfdoctor.plan.release_sheet import Sheet

__all__ = ["explorer_html", "pack_table"]


def explorer_html(
    verdicts: Verdicts, sheets: Sequence[Sheet], overview: Sequence[Overview], *, as_of: str
) -> bytes:
    """Return the page. sheets: of each release, newest first.

    Overview: what a reader sees who runs no scripts.
    """
    return document("explorer", data=pack_table(verdicts, sheets), as_of=as_of, overview=overview)


def pack_table(verdicts: Verdicts, sheets: Sequence[Sheet]) -> dict[str, Any]:
    """Return the table as the page's script reads it.

    cells[system][minor]: one of the blocks; block[Python]: a row for each card, or one row for all; 0 is "any" of
    each. rows: answers over the places of drivers (`plan.answer_table_builder.Drivers`), see `_compact`.
    """
    texts = list(verdicts.texts)
    known = {text: number for number, text in enumerate(texts)}
    rows: dict[tuple[int, ...], int] = {}

    def row(answers: tuple[int, ...]) -> int:
        return rows.setdefault(answers, len(rows))

    def text(one: str) -> int:
        if one not in known:
            known[one] = len(texts)
            texts.append(one)
        return known[one]

    blocks: dict[str, int] = {}
    kept: list[list[Any]] = []

    def block(system: str, minor: str) -> int:
        """Return the rows of a system and a minor; what systems have in common is kept once."""
        made: list[Any] = []
        for python in ("", *verdicts.pythons):
            alone = verdicts.cells.get((system, minor, python, ANY_CARD))
            if alone is not None:
                made.append(row(alone))
            else:
                every = ("", *verdicts.cards)
                made.append([row(verdicts.cells[system, minor, python, one]) for one in every])
        key = repr(made)
        if key not in blocks:
            blocks[key] = len(kept)
            kept.append(made)
        return blocks[key]

    recipes = sorted({str(one[0]) for one in verdicts.options})
    platforms = list(verdicts.drivers)
    cells = [[block(one.word, minor) for minor in ("", *verdicts.minors)] for one in verdicts.systems]
    releases = [_release(sheet, text) for sheet in sheets]
    return {
        "places": list(PLACES),
        "systems": [
            [one.word, one.title, platforms.index(one.platform), one.host.glibc or ""]
            for one in verdicts.systems
        ],
        "cards": [[capability, list(names)] for capability, names in verdicts.cards.items()],
        "drivers": [[list(one.steps), list(one.branches)] for one in verdicts.drivers.values()],
        "pythons": list(verdicts.pythons),
        "minors": list(verdicts.minors),
        "recipes": recipes,
        "options": [[recipes.index(str(one[0])), *one[1:]] for one in verdicts.options],
        "answers": [list(one) for one in verdicts.answers],
        "rows": [_compact(one) for one in rows],
        "blocks": kept,
        "cells": cells,
        "releases": releases,
        "texts": texts,
    }


def _compact(runs: Sequence[int]) -> str:
    """Return runs of an answer as `answer.times`, to the base 36, with a blank between.

    `answer` alone for one time.
    """
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return " ".join(_base36(answer) + (f".{_base36(times)}" if times > 1 else "") for answer, times in pairs)


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _release(sheet: Sheet, text: Any) -> list[Any]:
    release = sheet.row.release
    return [
        release.version,
        release.minor,
        release.released or "",
        [[text(what), text(how)] for what, how in sheet.needs],
        [
            [code_of(one), text(one.title), text(conditions(one)), text(one.remedy)]
            for one in sheet.row.problems
        ],
    ]
