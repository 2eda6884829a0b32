"""The rules about tfdoctor's own data (TFD901 to TFD903), and the table of companions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import commands, finding, healthy, run, with_tensorflow, without_libraries
from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.facts import Unknown
from tfdoctor.findings import Observation, OutcomeKind, Severity
from tfdoctor.rules import ALL_RULES, not_known, prediction_differs, unknown_release

if TYPE_CHECKING:
    from pathlib import Path

SAW_ONE = Observation(True, True, 1, (), 5.0)
SAW_NONE = Observation(True, False, 0, ("libcufft.so.11",), 5.0)


def test_agreement_is_clean():
    assert run(prediction_differs.RULE, healthy(), SAW_ONE).kind is OutcomeKind.CLEAN
    assert run(prediction_differs.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


def test_a_difference_asks_for_a_report():
    one = finding(prediction_differs.RULE, healthy(), SAW_NONE)
    assert one.severity is Severity.WARNING
    assert commands(one) == ["tfdoctor check --deep --json > tfdoctor-report.json"]
    assert finding(prediction_differs.RULE, without_libraries(healthy()), SAW_ONE)
    assert finding(prediction_differs.RULE, healthy(), replace(SAW_ONE, gpu_count=2))
    broken = Observation(False, None, None, (), 1.0, error="ImportError")
    assert finding(prediction_differs.RULE, healthy(), broken)


def test_an_import_error_names_only_the_first():
    facts = without_libraries(healthy())
    first = Observation(True, False, 0, (), 5.0)
    assert run(prediction_differs.RULE, facts, first).kind is OutcomeKind.CLEAN


def test_silence_is_not_agreement():
    outcome = run(prediction_differs.RULE, healthy(), Observation(True, None, None, (), 180.0))
    assert outcome.kind is OutcomeKind.COULD_NOT_CHECK


def test_unknown_release():
    assert run(unknown_release.RULE, healthy()).kind is OutcomeKind.CLEAN
    one = finding(unknown_release.RULE, with_tensorflow(healthy(), version="2.30.0"))
    assert one.severity is Severity.INFO
    assert "2.30.0" in one.title


def test_not_known():
    facts = replace(healthy(), loader=Unknown("only glibc's loader is modelled"))
    one = finding(not_known.RULE, facts)
    assert "glibc" in one.explanation
    assert run(not_known.RULE, facts, SAW_ONE).kind is OutcomeKind.NOT_APPLICABLE
    assert run(not_known.RULE, healthy()).kind is OutcomeKind.CLEAN


def test_rules_are_in_order_and_unique():
    codes = [rule.code for rule in ALL_RULES]
    assert codes == sorted(set(codes))


# ---------------------------------------------------------------- compat/imports.toml


def test_every_row_has_its_run():
    for row in Compat.load().companions:
        assert row.fails, row.id
        assert row.tensorflow


def test_local_versions_and_nonsense():
    assert [
        r.id for r in Compat.load().breaking("1.15.5+nv23.3", {"numpy": "1.18", "protobuf": "4.25.3"}, {})
    ]
    assert Compat.load().breaking("no version", {"numpy": "2"}, {}) == ()
    assert Compat.load().breaking(None, {}, {}) == ()
    assert not [
        r for r in Compat.load().breaking("2.18.0", {"numpy": "strange", "protobuf": "5.29"}, {}) if r.breaks
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version is 2"),
        ('effect = "import"', 'effect = "imports"', "did you mean `import`"),
        ('package = "protobuf"', 'pakage = "protobuf"', "unknown key `pakage`, did you mean `package`"),
        ('tensorflow = "<2.12.dev0"', 'tensorflow = "older"', "is not a specification"),
        ('id = "numpy-missing"', 'id = "protobuf-missing"', "is there twice"),
    ],
)
def test_the_loader_is_strict(tmp_path: Path, old: str, new: str, message: str):
    text = (data_dir("compat") / "imports.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "imports.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        _ = Compat(tmp_path).companions
