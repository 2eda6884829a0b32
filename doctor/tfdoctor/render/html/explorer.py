"""The matrix as a page to look things up in: card, driver, Python and TensorFlow are chosen, and what `recommend` says
of them is shown. Its script decides nothing: it looks up in the table that is given here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.plan import verdicts as table
from tfdoctor.plan.release_sheet import code_of, conditions
from tfdoctor.render.html.document import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.plan.overview import Overview
    from tfdoctor.plan.release_sheet import Sheet
    from tfdoctor.plan.verdicts import Verdicts

__all__ = ["explorer_html", "packed"]


def explorer_html(
    verdicts: Verdicts, sheets: Sequence[Sheet], overview: Sequence[Overview], *, as_of: str
) -> bytes:
    """The page. sheets: of each release, newest first; overview: what a reader sees who runs no scripts."""
    return document("explorer", data=packed(verdicts, sheets), as_of=as_of, overview=overview)


def packed(verdicts: Verdicts, sheets: Sequence[Sheet]) -> dict[str, Any]:
    """The table as the page's script reads it.

    cells[minor][Python]: a row for each card, or one row for all; 0 is "any" of each. rows: of (answer, how often),
    over the drivers, the unknown one last.
    """
    texts = list(verdicts.texts)
    known = {text: number for number, text in enumerate(texts)}
    rows: dict[tuple[int, ...], int] = {}

    def row(answers: tuple[int, ...]) -> int:
        return rows.setdefault(_runs(answers), len(rows))

    def text(one: str) -> int:
        if one not in known:
            known[one] = len(texts)
            texts.append(one)
        return known[one]

    cells: list[list[Any]] = []
    for minor in ("", *verdicts.minors):
        cells.append([])
        for python in ("", *verdicts.pythons):
            alone = verdicts.cells.get((minor, python, table.ANY_CARD))
            if alone is not None:
                cells[-1].append(row(alone))
                continue
            each = [row(verdicts.cells[minor, python, one]) for one in ("", *verdicts.cards)]
            cells[-1].append(each)
    releases = [_release(sheet, text) for sheet in sheets]
    return {
        "places": [table.NAME, table.QUOTED, table.CAPABILITY, table.DRIVER],
        "cards": [[capability, list(names)] for capability, names in verdicts.cards.items()],
        "drivers": list(verdicts.drivers),
        "pythons": list(verdicts.pythons),
        "minors": list(verdicts.minors),
        "options": [list(one) for one in verdicts.options],
        "answers": [list(one) for one in verdicts.answers],
        "rows": [list(one) for one in rows],
        "cells": cells,
        "releases": releases,
        "texts": texts,
    }


def _runs(answers: tuple[int, ...]) -> tuple[int, ...]:
    """(answer, how often, answer, how often, …)."""
    found: list[int] = []
    for one in answers:
        if found and found[-2] == one:
            found[-1] += 1
        else:
            found += [one, 1]
    return tuple(found)


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
