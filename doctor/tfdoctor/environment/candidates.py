"""Which findings of a report fix can try to fix, in which order, and which it leaves to a person. Pure."""

from __future__ import annotations

import math
import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.causes.steps import (
    SHELL_STEPS,
    Drop,
    Export,
    Install,
    LinkParts,
    MakeLink,
    Prepend,
    Remove,
    Rename,
    TakeOut,
    Uninstall,
    Unset,
)
from tfdoctor.environment.models import Candidate, Environment, Unfixed
from tfdoctor.facts import value_of
from tfdoctor.findings import Severity
from tfdoctor.rules import RULE_OF

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfdoctor.causes.steps import ShellStep, Step
    from tfdoctor.findings import Finding, Prediction, Report

__all__ = ["better", "candidates", "changes_packages", "environment_of", "list_unfixed", "worse"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
SYSTEM_PREFIXES = ("/usr", "/")


def environment_of(
    report: Report, kind: str | None, inherited: frozenset[str] = frozenset()
) -> Environment | None:
    """Return the environment of a report, and whether it may be changed; None if no Python answered."""
    python = value_of(report.facts.python)
    if python is None:
        return None
    refusal = ""
    if not python.virtual and not python.conda_prefix:
        if python.externally_managed:
            refusal = (
                "This Python is managed by the system (PEP 668): what is installed in it is the system's."
            )
        elif python.prefix in SYSTEM_PREFIXES:
            refusal = f"This is the system's own Python ({python.executable})."
    choice = report.facts.choice
    if choice is not None and choice.kernel is not None:  # Jupyter starts it, and activates nothing
        kind = None
    return Environment(python.prefix, python.executable, kind, refusal, inherited)


def candidates(
    report: Report, environment: Environment, codes: Collection[str] = ()
) -> tuple[Candidate, ...]:
    """Return what can be tried, best first.

    `codes`: of these findings alone, and then also what is merely informing.
    """
    found = [
        finding
        for finding in report.findings
        if (finding.code in codes if codes else finding.severity >= Severity.WARNING)
    ]
    found.sort(key=lambda finding: (-finding.severity, _turn(finding)))
    return tuple(
        Candidate(finding, remedy)
        for finding in found
        for remedy in finding.remedies
        if remedy.steps and not explain_impossible(remedy.steps, environment, report)
    )


def _turn(finding: Finding) -> float:
    """TensorFlow itself comes first, then its import, then what it opens; the rest stays as the report has it."""
    rule = RULE_OF.get(finding.code)
    return rule.first if rule is not None and rule.first is not None else math.inf


def explain_impossible(steps: Sequence[Step], environment: Environment, report: Report) -> str:
    """Return why these steps cannot be done in this environment, as a sentence; empty if they can."""
    if environment.refusal:
        return environment.refusal
    for step in steps:
        if isinstance(step, (Unset, Export)) and step.name in environment.inherited:
            return (
                f"{step.name} comes from the shell that tfdoctor was started in, and must be changed there."
            )
        place = _place(step)
        if place is not None and not _is_inside(place, environment.prefix):
            return f"{place} lies outside the environment {environment.prefix}."
        if place is None and not isinstance(step, (Install, Uninstall)) and environment.kind is None:
            return "This Python is in no environment that is activated: its variables come from elsewhere."
        if isinstance(step, SHELL_STEPS) and not _writable(step):
            return "A name or a path in it has characters that do not belong in a shell script."
    places = [place for step in steps if (place := _place(step)) is not None]
    for link, target in environment.leading_out:
        if changes_packages(steps) or any(_is_inside(place, link) for place in places):
            return (
                f"{link} is a link to {target}, outside the environment: changes there could not be undone."
            )
    tensorflow = value_of(report.facts.tensorflow)
    if (
        changes_packages(steps)
        and tensorflow is not None
        and not _is_inside(tensorflow.package_dir, environment.prefix)
    ):
        return f"TensorFlow is in {tensorflow.package_dir}, outside the environment {environment.prefix}."
    return ""


def _writable(step: ShellStep) -> bool:
    """Return whether a step can stand in a script: variables have plain names, and no text a line's end."""
    names = (step.wrong, step.right) if isinstance(step, Rename) else (step.name,)
    texts: tuple[str, ...] = ()
    if isinstance(step, Export):
        texts = (step.value,)
    elif isinstance(step, (Prepend, Drop)):
        texts = step.folders if isinstance(step, Prepend) else step.entries
    return all(_NAME.fullmatch(name) for name in names) and all(map(str.isprintable, texts))


def changes_packages(steps: Sequence[Step]) -> bool:
    """Return whether an installer is run, which may change anything in the environment."""
    return any(isinstance(step, (Install, Uninstall)) for step in steps)


def _place(step: Step) -> str | None:
    if isinstance(step, (MakeLink, Remove, TakeOut)):
        return step.path
    return step.folder if isinstance(step, LinkParts) else None


def _is_inside(path: str, prefix: str) -> bool:
    return posixpath.normpath(path).startswith(f"{prefix.rstrip('/')}/")


def better(before: Report, after: Report, finding: Finding) -> bool:
    """Return whether a fix has made things better: the prediction, or, that being equal, the finding is gone."""
    earlier, later = _rank(before.prediction), _rank(after.prediction)
    if later != earlier:
        return later > earlier
    if not any((one.code, one.title) == (finding.code, finding.title) for one in after.findings):
        return True
    gone = set(before.prediction.missing_libraries) - set(after.prediction.missing_libraries)
    more = set(after.prediction.missing_libraries) - set(before.prediction.missing_libraries)
    return bool(gone) and not more


def worse(before: Report, after: Report) -> bool:
    """Return whether the prediction was better before."""
    return _rank(after.prediction) < _rank(before.prediction)


def _rank(prediction: Prediction) -> tuple[int, int, int]:
    """Higher is better: whether TensorFlow can be imported, whether it registers GPUs, how many."""
    order = {False: 0, None: 1, True: 2}
    return order[prediction.import_ok], order[prediction.gpu_registered], prediction.gpu_count or 0


def list_unfixed(
    report: Report, environment: Environment, codes: Collection[str] = ()
) -> tuple[Unfixed, ...]:
    """Return what remains, each with the reason why it is not done here."""
    result = []
    for finding in report.findings:
        if finding.code not in codes if codes else finding.severity < Severity.WARNING:
            continue
        whys = [
            explain_impossible(remedy.steps, environment, report)
            for remedy in finding.remedies
            if remedy.steps
        ]
        if whys:
            why = next((why for why in whys if why), "What was tried did not fix it.")
        elif any(remedy.changes_system for remedy in finding.remedies):
            why = "This needs a change to the system; run it yourself:"
        elif finding.remedies:
            why = "You have to decide this:"
        else:
            why = "This cannot be fixed by software."
        result.append(Unfixed(finding, why))
    return tuple(result)
