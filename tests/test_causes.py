"""The rows of causes: each is whole, and what one says of others is true."""

from __future__ import annotations

import re

import pytest

from tfdoctor.causes import Cause, Do
from tfdoctor.causes.codes import HARMLESS, MISREAD
from tfdoctor.compat import Compat
from tfdoctor.findings import Remedy
from tfdoctor.logs.advice import remedies
from tfdoctor.logs.events import Log
from tfdoctor.logs.log_context import Case

NOBODY = Case(Log(), Compat.load())
"""A log that names no release and no card."""


def test_a_cause_is_its_word_and_found_by_it() -> None:
    assert Cause("no-driver") is Cause.NO_DRIVER
    assert [cause.value for cause in Cause] == [str.__str__(cause) for cause in Cause]
    assert [cause.row.word for cause in Cause] == [cause.value for cause in Cause]
    with pytest.raises(ValueError, match="no-such-word"):
        Cause("no-such-word")


@pytest.mark.parametrize("cause", Cause)
def test_a_row_is_whole(cause: Cause) -> None:
    row = cause.row
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.word)
    assert cause.name == row.word.replace("-", "_").upper()
    assert re.fullmatch(r"TFD[1-9]\d\d", row.code)
    assert row.title
    assert not row.title.endswith(".")
    assert cause not in cause.brings  # and its words are of the vocabulary
    for remedy in remedies(NOBODY, cause):
        assert isinstance(remedy, Remedy)
        assert isinstance(remedy.commands, tuple)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.HEALTHY])
def test_something_can_be_typed_for_each(cause: Cause) -> None:
    assert any(remedy.commands for remedy in remedies(NOBODY, cause))


def test_codes_and_titles_are_of_one_cause_each() -> None:
    codes = [cause.row.code for cause in Cause] + [HARMLESS, MISREAD]
    assert len(set(codes)) == len(codes)
    titles = [cause.row.title for cause in Cause]
    assert len(set(titles)) == len(titles)
    places = [cause.row.refusal for cause in Cause if cause.row.refusal is not None]
    assert sorted(places) == list(range(1, len(places) + 1))


def test_what_is_shared_is_used_and_written() -> None:
    named = {one for c in Cause if isinstance(c.row.remedies, tuple) for one in c.row.remedies}
    assert {one for one in named if isinstance(one, Do)} == set(Do)
