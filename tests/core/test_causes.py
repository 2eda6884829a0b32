"""The data of causes: each is complete, and its references to others are right."""

from __future__ import annotations

import re

import pytest

from compat.every_row import for_each
from tfdoctor.compat import Compat
from tfdoctor.core.causes import Cause, CommonRemedy
from tfdoctor.core.causes.codes import HARMLESS, MISLEADING
from tfdoctor.core.findings import Remedy
from tfdoctor.logs.advice import list_remedies
from tfdoctor.logs.events import Log
from tfdoctor.logs.log_context import LogContext

EMPTY_CASE = LogContext(Log(), Compat.load())
"""A log that names no release and no GPU."""


def test_cause_can_be_looked_up_by_its_word() -> None:
    assert Cause("no-driver") is Cause.NO_DRIVER
    assert [cause.value for cause in Cause] == [str.__str__(cause) for cause in Cause]
    assert [cause.data.word for cause in Cause] == [cause.value for cause in Cause]
    with pytest.raises(ValueError, match="no-such-word"):
        Cause("no-such-word")


@for_each(Cause)
def test_cause_data_is_complete(cause: Cause) -> None:
    data = cause.data
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", data.word)
    assert cause.name == data.word.replace("-", "_").upper()
    assert re.fullmatch(r"TFD[1-9]\d\d", data.finding_code)
    assert data.finding_title
    assert not data.finding_title.endswith(".")
    assert cause not in cause.consequences  # comparing also parses the words, which must be in the vocabulary
    for remedy in list_remedies(EMPTY_CASE, cause):
        assert isinstance(remedy, Remedy)
        assert isinstance(remedy.commands, tuple)


@for_each([cause for cause in Cause if cause is not Cause.HEALTHY])
def test_each_cause_has_a_remedy_with_commands(cause: Cause) -> None:
    assert any(remedy.commands for remedy in list_remedies(EMPTY_CASE, cause))


def test_codes_titles_and_refusal_ranks_are_unique() -> None:
    codes = [cause.data.finding_code for cause in Cause] + [HARMLESS, MISLEADING]
    assert len(set(codes)) == len(codes)
    titles = [cause.data.finding_title for cause in Cause]
    assert len(set(titles)) == len(titles)
    ranks = [cause.data.refusal_rank for cause in Cause if cause.data.refusal_rank is not None]
    assert sorted(ranks) == list(range(1, len(ranks) + 1))


def test_common_remedies_are_all_used() -> None:
    remedies = {
        remedy
        for cause in Cause
        if isinstance(cause.data.log_remedies, tuple)
        for remedy in cause.data.log_remedies
    }
    assert {remedy for remedy in remedies if isinstance(remedy, CommonRemedy)} == set(CommonRemedy)
