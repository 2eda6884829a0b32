"""Which findings are fixed, in which order, and what fix leaves alone: pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.causes.steps import (
    Drop,
    Export,
    Install,
    LinkParts,
    MakeLink,
    Prepend,
    Remove,
    Rename,
    Uninstall,
    Unset,
)
from tfdoctor.compat import Compat
from tfdoctor.environment.candidates import (
    better,
    candidates,
    environment_of,
    explain_impossible,
    list_unfixed,
    worse,
)
from tfdoctor.environment.models import Environment
from tfdoctor.examine.collect import survey
from tfdoctor.facts import Known, PythonFacts, TensorFlowFacts, value_of
from tfdoctor.findings import Cause, Finding, Remedy, Report, Severity
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import ALL_RULES
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from tfdoctor.causes.steps import Step

HOST = Path(__file__).resolve().parents[1] / "hosts"
ENV = Environment("/env", "/env/bin/python", "venv")
LINK = MakeLink("/env/lib/a.so", "b.so")


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a machine on which everything is well, but without findings."""
    name = next(path.parent for path in sorted(HOST.glob("healthy*/host.json")))
    compat = Compat.load()
    return replace(diagnose(survey(RecordedSystem(name), compat), compat), findings=())


def finding(
    code: str, *ways_of: tuple[Step, ...], severity: Severity = Severity.ERROR, title: str = "title"
) -> Finding:
    remedies = tuple(
        Remedy(f"way {number}", ("command",), steps=steps) for number, steps in enumerate(ways_of)
    )
    return Finding(code, Cause.INCONCLUSIVE, severity, title, "", (), remedies)


def of(report: Report, *findings: Finding) -> Report:
    # where TensorFlow lies is asked of steps that change packages
    tensorflow = value_of(report.facts.tensorflow)
    assert tensorflow is not None
    inside: Known[TensorFlowFacts] = Known(
        replace(tensorflow, package_dir="/env/lib/python3.11/site-packages/tensorflow"), "test"
    )
    return replace(report, findings=findings, facts=replace(report.facts, tensorflow=inside))


def test_errors_come_before_warnings_and_the_import_before_libraries(report: Report) -> None:
    seen = of(
        report,
        finding("TFD602", (Unset("A"),), severity=Severity.WARNING),
        finding("TFD203", (LINK,)),
        finding("TFD307", (Install(("protobuf<4",)),)),
        finding("TFD604", (LINK,), severity=Severity.INFO),
    )
    assert [way.finding.code for way in candidates(seen, ENV)] == ["TFD307", "TFD203", "TFD602"]
    assert [way.finding.code for way in candidates(seen, ENV, ("TFD604", "TFD203"))] == ["TFD203", "TFD604"]


def test_what_comes_first() -> None:
    """TensorFlow itself, its import, variables, then libraries; no two rules have one place."""
    placed = sorted((rule.first, rule.code) for rule in ALL_RULES if rule.first is not None)
    assert [code for _, code in placed] == [
        *("TFD703", "TFD304", "TFD311", "TFD303"),
        *("TFD307", "TFD306", "TFD312"),
        *("TFD107", "TFD106", "TFD601"),
        *("TFD209", "TFD210", "TFD212", "TFD211"),
        *("TFD202", "TFD201", "TFD205", "TFD206", "TFD204", "TFD203"),
        *("TFD110", "TFD208"),
    ]
    assert len({place for place, _ in placed}) == len(placed)


def test_remedies_without_steps_are_no_ways_and_are_left(report: Report) -> None:
    by_hand = Remedy("root does it", ("sudo x",), changes_system=True)
    seen = of(
        report,
        replace(finding("TFD101"), remedies=(by_hand,)),
        finding("TFD110"),
        finding("TFD203", (LINK,), (LINK,)),
    )
    assert len(candidates(seen, ENV)) == 2
    whys = {left.finding.code: left.why for left in list_unfixed(seen, ENV)}
    assert whys["TFD101"] == "This needs a change to the system; run it yourself:"
    assert whys["TFD110"] == "This cannot be fixed by software."
    assert whys["TFD203"] == "What was tried did not fix it."


@pytest.mark.parametrize(
    ("step", "inside"),
    [
        (LINK, True),
        (MakeLink("/env", "x"), False),
        (MakeLink("/environment/a", "x"), False),
        (MakeLink("/env/../etc/passwd", "x"), False),
        (MakeLink("/usr/lib/a.so", "x"), False),
        (LinkParts("/anywhere", "*.so", "/env/lib"), True),
        (LinkParts("/env/lib", "*.so", "/usr/lib"), False),
        (Remove("/env/lib/x"), True),
        (Remove("/home/x"), False),
        (Remove("/env/lib/../../x"), False),
        (Install(("a",)), True),
        (Uninstall(("a",)), True),
        (Unset("A"), True),
    ],
    ids=str,
)
def test_steps_stay_in_the_environment(step: Step, inside: bool, report: Report) -> None:
    assert bool(candidates(of(report, finding("TFD203", (step,))), ENV)) is inside
    assert bool(explain_impossible((step,), ENV, of(report))) is not inside
    # one bad step spoils a way
    assert bool(candidates(of(report, finding("TFD203", (LINK, step))), ENV)) is inside


@pytest.mark.parametrize(
    ("step", "fits"),
    [
        (Unset("LD_LIBRARY_PATH"), True),
        (Unset("LD_LIBRARY_PATH`x`"), False),
        (Unset("A B"), False),
        (Unset(""), False),
        (Unset("1A"), False),
        (Rename("A;x", "B"), False),
        (Rename("A", "B$(x)"), False),
        (Export("A", "it's $(x) `y` \\ \""), True),
        (Export("A", "two\nlines"), False),
        (Drop("A", ("/a b",)), True),
        (Drop("A", ("/a", "/b\x1b[31m")), False),
        (Prepend("A", ("/a\rb",)), False),
        (Prepend("A", ("/ä",)), True),
    ],
    ids=repr,
)
def test_what_no_script_should_hold_is_refused(step: Step, fits: bool, report: Report) -> None:
    assert bool(candidates(of(report, finding("TFD602", (step,))), ENV)) is fits


def test_variables_of_a_python_that_nobody_activates_are_left(report: Report) -> None:
    bare = replace(ENV, kind=None)
    seen = of(report, finding("TFD602", (Unset("A"),)), finding("TFD203", (LINK,)))
    assert [way.finding.code for way in candidates(seen, bare)] == ["TFD203"]
    (left, _) = list_unfixed(seen, bare)
    assert "its variables come from elsewhere" in left.why


def test_a_tensorflow_outside_keeps_installers_away(report: Report) -> None:
    seen = of(report, finding("TFD201", (Install(("a",)),)))
    tensorflow = value_of(seen.facts.tensorflow)
    assert tensorflow is not None
    outside = Known(replace(tensorflow, package_dir="/usr/lib/python3/dist-packages/tensorflow"), "test")
    seen = replace(seen, facts=replace(seen.facts, tensorflow=outside))
    assert candidates(seen, ENV) == ()
    assert "outside the environment" in list_unfixed(seen, ENV)[0].why


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"virtual": True}, False),
        ({"externally_managed": True}, True),
        ({"externally_managed": True, "virtual": True}, False),
        ({"externally_managed": True, "conda_prefix": "/opt/conda"}, False),
        ({"prefix": "/usr"}, True),
        ({"prefix": "/opt/python3.12"}, False),
    ],
    ids=str,
)
def test_the_systems_python_is_not_touched(change: dict[str, Any], refused: bool, report: Report) -> None:
    python = value_of(report.facts.python)
    assert python is not None
    plain = {"externally_managed": False, "prefix": "/opt/x", "virtual": False, "conda_prefix": None}
    fact: Known[PythonFacts] = Known(replace(python, **plain | change), "test")
    environment = environment_of(replace(report, facts=replace(report.facts, python=fact)), None)
    assert environment is not None
    assert bool(environment.refusal) is refused
    seen = of(report, finding("TFD203", (Install(("a",)),)))
    assert bool(candidates(seen, replace(ENV, refusal=environment.refusal))) is not refused


def test_better_is_a_better_prediction_or_a_finding_less(report: Report) -> None:
    def make_prediction(
        registered: bool | None, count: int | None, *missing: str, import_ok: bool = True
    ) -> Report:
        prediction = replace(
            report.prediction,
            gpu_registered=registered,
            gpu_count=count,
            missing_libraries=missing,
            import_ok=import_ok,
        )
        return replace(report, prediction=prediction)

    one = finding("TFD203")
    broken, whole = make_prediction(False, 0, "a", "b"), make_prediction(True, 2)
    assert better(broken, whole, one)
    assert not better(whole, broken, one)
    assert (worse(whole, broken), worse(broken, whole), worse(whole, whole)) == (True, False, False)
    assert not better(make_prediction(True, 2), make_prediction(True, 1), one)
    assert better(make_prediction(False, 0, import_ok=False), make_prediction(False, 0), one)
    # equal predictions: whether the finding is still there
    stays = replace(whole, findings=(one,))
    assert not better(stays, stays, one)
    assert better(stays, whole, one)
    # it is there as it was, and a library less is missed; but not one in exchange for another
    fewer = replace(make_prediction(False, 0, "b"), findings=(one,))
    other = replace(make_prediction(False, 0, "b", "c"), findings=(one,))
    before = replace(broken, findings=(one,))
    assert better(before, fewer, one)
    assert not better(before, other, one)
