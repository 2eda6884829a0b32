"""Which findings `fix` handles, in which order, and which ones it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.causes.steps import (
    Install,
    LinkMatchingFiles,
    MakeLink,
    PrependEntries,
    RemoveEntries,
    RemovePath,
    RenameVariable,
    SetVariable,
    Uninstall,
    UnsetVariable,
)
from tfdoctor.core.facts import Known, PythonFacts, TensorFlowFacts, value_of
from tfdoctor.core.findings import Cause, Finding, Outcome, OutcomeKind, Remedy, Report, Severity
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.environments.candidates import (
    Effect,
    choose_round,
    compare_reports,
    find_obstacle,
    has_lost_facts,
    list_fix_candidates,
    list_unfixed,
    make_environment,
    make_round_key,
)
from tfdoctor.environments.models import Environment
from tfdoctor.remedies.commands import combine_steps
from tfdoctor.rules import ALL_RULES
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from tfdoctor.core.causes.steps import Step

HOST = Path(__file__).resolve().parents[1] / "hosts"
ENV = Environment("/env", "/env/bin/python", "venv")
LINK = MakeLink("/env/lib/a.so", "b.so")


@pytest.fixture(scope="module")
def report() -> Report:
    """Return the report on a healthy machine, without findings."""
    host = next(path.parent for path in sorted(HOST.glob("healthy*/host.json")))
    compat = Compat.load()
    return replace(diagnose(run_probes(RecordedSystem(host), compat), compat), findings=())


def finding(
    code: str, *step_lists: tuple[Step, ...], severity: Severity = Severity.ERROR, title: str = "title"
) -> Finding:
    """Return a finding with one remedy for each list of steps."""
    remedies = tuple(
        Remedy(f"way {number}", ("command",), steps=steps) for number, steps in enumerate(step_lists)
    )
    return Finding(code, Cause.INCONCLUSIVE, severity, title, "", (), remedies)


def with_findings(report: Report, *findings: Finding) -> Report:
    # Steps that change packages check where TensorFlow is installed.
    """Return the report with these findings and with TensorFlow inside the environment."""
    tensorflow = value_of(report.facts.tensorflow)
    assert tensorflow is not None
    inside: Known[TensorFlowFacts] = Known(
        replace(tensorflow, package_dir="/env/lib/python3.11/site-packages/tensorflow"), "test"
    )
    return replace(report, findings=findings, facts=replace(report.facts, tensorflow=inside))


def test_order_of_candidates(report: Report) -> None:
    changed = with_findings(
        report,
        finding("TFD602", (UnsetVariable("A"),), severity=Severity.WARNING),
        finding("TFD203", (LINK,)),
        finding("TFD307", (Install(("protobuf<4",)),)),
        finding("TFD604", (LINK,), severity=Severity.INFO),
    )
    assert [candidate.finding.code for candidate in list_fix_candidates(changed, ENV)] == [
        "TFD307",
        "TFD203",
        "TFD602",
    ]
    assert [
        candidate.finding.code for candidate in list_fix_candidates(changed, ENV, ("TFD604", "TFD203"))
    ] == [
        "TFD203",
        "TFD604",
    ]


def test_order_of_rules() -> None:
    """TensorFlow and its import come first, then variables, then libraries; positions are unique."""
    positions = sorted((rule.fix_order, rule.code) for rule in ALL_RULES if rule.fix_order is not None)
    assert [code for _, code in positions] == [
        *("TFD323", "TFD703", "TFD304", "TFD311", "TFD303"),
        *("TFD307", "TFD306", "TFD312"),
        *("TFD107", "TFD106", "TFD601"),
        *("TFD209", "TFD210", "TFD212", "TFD211"),
        *("TFD202", "TFD201", "TFD205", "TFD206", "TFD204", "TFD203"),
        *("TFD110", "TFD208"),
    ]
    assert len({position for position, _ in positions}) == len(positions)


def test_remedies_without_steps_are_not_candidates(report: Report) -> None:
    manual = Remedy("root does it", ("sudo x",), changes_system=True)
    changed = with_findings(
        report,
        replace(finding("TFD101"), remedies=(manual,)),
        finding("TFD110"),
        finding("TFD203", (LINK,), (LINK,)),
    )
    assert len(list_fix_candidates(changed, ENV)) == 2
    unfixed_findings = list_unfixed(changed, ENV)
    reasons = {unfixed.finding.code: unfixed.reason for unfixed in unfixed_findings}
    actions = {unfixed.finding.code: unfixed.action for unfixed in unfixed_findings}
    assert actions == {"TFD101": "root does it", "TFD110": "", "TFD203": ""}
    assert reasons["TFD101"] == "This needs a change to the system; run it yourself:"
    assert reasons["TFD110"] == "This cannot be fixed by software."
    assert reasons["TFD203"] == "What was tried did not fix it."


@pytest.mark.parametrize(
    ("step", "inside"),
    [
        (LINK, True),
        (MakeLink("/env", "x"), False),
        (MakeLink("/environment/a", "x"), False),
        (MakeLink("/env/../etc/passwd", "x"), False),
        (MakeLink("/usr/lib/a.so", "x"), False),
        (LinkMatchingFiles("/anywhere", "*.so", "/env/lib"), True),
        (LinkMatchingFiles("/env/lib", "*.so", "/usr/lib"), False),
        (RemovePath("/env/lib/x"), True),
        (RemovePath("/home/x"), False),
        (RemovePath("/env/lib/../../x"), False),
        (Install(("a",)), True),
        (Uninstall(("a",)), True),
        (UnsetVariable("A"), True),
    ],
    ids=str,
)
def test_steps_stay_in_the_environment(step: Step, inside: bool, report: Report) -> None:
    assert bool(list_fix_candidates(with_findings(report, finding("TFD203", (step,))), ENV)) is inside
    assert bool(find_obstacle((step,), ENV, with_findings(report))) is not inside
    # One bad step disqualifies the whole remedy.
    assert bool(list_fix_candidates(with_findings(report, finding("TFD203", (LINK, step))), ENV)) is inside


@pytest.mark.parametrize(
    ("step", "fits"),
    [
        (UnsetVariable("LD_LIBRARY_PATH"), True),
        (UnsetVariable("LD_LIBRARY_PATH`x`"), False),
        (UnsetVariable("A B"), False),
        (UnsetVariable(""), False),
        (UnsetVariable("1A"), False),
        (RenameVariable("A;x", "B"), False),
        (RenameVariable("A", "B$(x)"), False),
        (SetVariable("A", "it's $(x) `y` \\ \""), True),
        (SetVariable("A", "two\nlines"), False),
        (RemoveEntries("A", ("/a b",)), True),
        (RemoveEntries("A", ("/a", "/b\x1b[31m")), False),
        (PrependEntries("A", ("/a\rb",)), False),
        (PrependEntries("A", ("/ä",)), True),
    ],
    ids=repr,
)
def test_unsafe_shell_steps_are_refused(step: Step, fits: bool, report: Report) -> None:
    assert bool(list_fix_candidates(with_findings(report, finding("TFD602", (step,))), ENV)) is fits


def test_variables_without_activation_are_not_fixed(report: Report) -> None:
    without_activation = replace(ENV, activation_kind=None)
    changed = with_findings(report, finding("TFD602", (UnsetVariable("A"),)), finding("TFD203", (LINK,)))
    assert [candidate.finding.code for candidate in list_fix_candidates(changed, without_activation)] == [
        "TFD203"
    ]
    (unfixed, _) = list_unfixed(changed, without_activation)
    assert "its variables come from elsewhere" in unfixed.reason


def test_nothing_is_installed_if_tensorflow_is_outside(report: Report) -> None:
    changed = with_findings(report, finding("TFD201", (Install(("a",)),)))
    tensorflow = value_of(changed.facts.tensorflow)
    assert tensorflow is not None
    outside = Known(replace(tensorflow, package_dir="/usr/lib/python3/dist-packages/tensorflow"), "test")
    changed = replace(changed, facts=replace(changed.facts, tensorflow=outside))
    assert list_fix_candidates(changed, ENV) == ()
    assert "outside the environment" in list_unfixed(changed, ENV)[0].reason


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
def test_system_python_is_not_changed(change: dict[str, Any], refused: bool, report: Report) -> None:
    python = value_of(report.facts.python)
    assert python is not None
    defaults = {"externally_managed": False, "prefix": "/opt/x", "virtual": False, "conda_prefix": None}
    fact: Known[PythonFacts] = Known(replace(python, **defaults | change), "test")
    environment = make_environment(replace(report, facts=replace(report.facts, python=fact)), None)
    assert environment is not None
    assert bool(environment.refusal_reason) is refused
    changed = with_findings(report, finding("TFD203", (Install(("a",)),)))
    assert (
        bool(list_fix_candidates(changed, replace(ENV, refusal_reason=environment.refusal_reason)))
        is not refused
    )


def predict(
    report: Report,
    registered: bool | None,
    count: int | None,
    *missing: str,
    import_ok: bool | None = True,
    findings: tuple[Finding, ...] = (),
) -> Report:
    """Return the report with this prediction and these findings."""
    prediction = replace(
        report.prediction,
        gpu_registered=registered,
        gpu_count=count,
        missing_libraries=missing,
        import_ok=import_ok,
    )
    return replace(report, prediction=prediction, findings=findings)


def test_better_prediction_or_fewer_findings(report: Report) -> None:
    result = finding("TFD203")
    bad, good = predict(report, False, 0, "a", "b"), predict(report, True, 2)
    assert compare_reports(bad, good, (result,)) is Effect.BETTER
    assert compare_reports(good, bad, (result,)) is Effect.WORSE
    assert compare_reports(predict(report, True, 2), predict(report, True, 1), (result,)) is Effect.WORSE
    fails = predict(report, False, 0, import_ok=False)
    assert compare_reports(fails, predict(report, False, 0), (result,)) is Effect.BETTER
    # With equal predictions, the finding must be gone.
    unchanged = replace(good, findings=(result,))
    assert compare_reports(unchanged, unchanged, (result,)) is Effect.NONE
    assert compare_reports(unchanged, good, (result,)) is Effect.BETTER
    # The finding stays, but fewer libraries are missing; exchanging one for another does not count.
    fewer = predict(report, False, 0, "b", findings=(result,))
    exchanged = predict(report, False, 0, "b", "c", findings=(result,))
    before = replace(bad, findings=(result,))
    assert compare_reports(before, fewer, (result,)) is Effect.BETTER
    assert compare_reports(before, exchanged, (result,)) is Effect.NONE


def test_unknown_facts_prove_nothing(report: Report) -> None:
    """A late examination neither shows that a change helped, nor hides that it did."""
    result = finding("TFD203")
    before = predict(report, False, 0, "a", findings=(result,))
    late = predict(report, None, None, "a", import_ok=None, findings=(result,))
    assert has_lost_facts(before, late)
    assert not has_lost_facts(late, before)
    assert compare_reports(before, late, (result,)) is Effect.UNKNOWN
    assert compare_reports(before, replace(late, findings=()), (result,)) is Effect.BETTER
    # The import is not known any more, but the registration is.
    assert compare_reports(before, predict(report, True, 2, import_ok=None), (result,)) is Effect.BETTER
    # That a check could not run does not show that its finding is gone.
    outcomes = (Outcome("TFD203", OutcomeKind.COULD_NOT_CHECK, reason="too late"),)
    unchecked = replace(late, findings=(), outcomes=outcomes)
    assert compare_reports(before, unchecked, (result,)) is Effect.UNKNOWN
    assert compare_reports(unchecked, unchecked, (result,)) is Effect.NONE


def test_several_changes_must_all_help(report: Report) -> None:
    first, second = finding("TFD203"), finding("TFD307")
    before = predict(report, False, 0, import_ok=False, findings=(first, second))
    good = predict(report, True, 1)
    assert compare_reports(before, good, (first, second)) is Effect.BETTER
    assert compare_reports(before, replace(good, findings=(second,)), (first, second)) is Effect.NONE
    assert compare_reports(before, replace(before, findings=(second,)), (first, second)) is Effect.NONE


def test_errors_are_tried_together_then_one_by_one(report: Report) -> None:
    other_link = MakeLink("/env/lib/c.so", "b.so")
    changed = with_findings(
        report,
        finding("TFD602", (UnsetVariable("A"),), severity=Severity.WARNING),
        finding("TFD203", (LINK,), (other_link,)),
        finding("TFD307", (Install(("protobuf<4",)),)),
    )
    candidates = list_fix_candidates(changed, ENV)
    tried: set[object] = set()
    rounds = []
    while candidate_round := choose_round(candidates, tried):
        tried.add(make_round_key(candidate_round))
        rounds.append([(candidate.finding.code, candidate.steps[0]) for candidate in candidate_round])
    protobuf = ("TFD307", Install(("protobuf<4",)))
    assert rounds == [
        [protobuf, ("TFD203", LINK)],
        [protobuf],
        [("TFD203", LINK)],
        [("TFD203", other_link)],
        [("TFD602", UnsetVariable("A"))],
    ]
    steps = combine_steps(
        [
            Remedy("", steps=(LINK, Install(("a==1", "b")))),
            Remedy("", steps=(Install(("b", "c")), UnsetVariable("A"))),
            Remedy("", steps=(Install(("d",), force_reinstall=True, install_dependencies=False), LINK)),
        ]
    )
    assert steps == (
        UnsetVariable("A"),
        Install(("a==1", "b", "c")),
        Install(("d",), force_reinstall=True, install_dependencies=False),
        LINK,
    )
