"""Choose the remedies that fix can try, and explain why the other findings are left to the user.

These functions only use the report: they read no files and change nothing.
"""

from __future__ import annotations

import math
import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import (
    SHELL_STEPS,
    CommentOutLine,
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
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Severity
from tfdoctor.environments.models import Candidate, Environment, UnfixedFinding
from tfdoctor.rules import RULES_BY_CODE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfdoctor.core.causes.steps import ShellStep, Step
    from tfdoctor.core.findings import Finding, Prediction, Report

__all__ = [
    "changes_packages",
    "is_improvement",
    "is_prediction_worse",
    "list_fix_candidates",
    "list_unfixed",
    "make_environment",
]

SYSTEM_PREFIXES = ("/usr", "/")
"""The prefixes (`sys.prefix`) of Pythons that belong to the operating system."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def make_environment(
    report: Report, kind: str | None, inherited_variables: frozenset[str] = frozenset()
) -> Environment | None:
    """Return the environment of the Python in a report; None if that Python could not be queried.

    `kind` is "venv", "conda" or None, and `inherited_variables` are the names of variables from the caller's shell. The result
    gives the reason if fix must not change the environment.
    """
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
    if choice is not None and choice.kernel is not None:  # Jupyter starts a kernel without an activation
        kind = None
    return Environment(
        prefix=python.prefix,
        interpreter_path=python.executable,
        activation_kind=kind,
        refusal_reason=refusal,
        inherited_variables=inherited_variables,
    )


def list_fix_candidates(
    report: Report, environment: Environment, codes: Collection[str] = ()
) -> tuple[Candidate, ...]:
    """Return the candidates that fix can try, those for the most severe findings first.

    If `codes` is not empty, only findings with these codes are considered, even if they are only informational.
    Otherwise all warnings and errors are considered.
    """
    findings = [
        finding
        for finding in report.findings
        if (finding.code in codes if codes else finding.severity >= Severity.WARNING)
    ]
    findings.sort(key=lambda finding: (-finding.severity, _get_fix_order(finding)))
    return tuple(
        Candidate(finding, remedy)
        for finding in findings
        for remedy in finding.remedies
        if remedy.steps and not find_obstacle(remedy.steps, environment, report)
    )


def _get_fix_order(finding: Finding) -> float:
    """Return the `fix_order` of a finding's rule, which sorts equally severe findings; infinity if it has none."""
    rule = RULES_BY_CODE.get(finding.code)
    return rule.fix_order if rule is not None and rule.fix_order is not None else math.inf


def find_obstacle(steps: Sequence[Step], environment: Environment, report: Report) -> str:
    """Return the reason why the steps are impossible in the environment, as a sentence, or ""."""
    if environment.refusal_reason:
        return environment.refusal_reason
    for step in steps:
        if isinstance(step, (UnsetVariable, SetVariable)) and step.name in environment.inherited_variables:
            return (
                f"{step.name} comes from the shell that tfdoctor was started in, and must be changed there."
            )
        path = _get_changed_path(step)
        if path is not None and not _is_inside(path, environment.prefix):
            return f"{path} lies outside the environment {environment.prefix}."
        if (
            path is None
            and not isinstance(step, (Install, Uninstall))
            and environment.activation_kind is None
        ):
            return "This Python is in no environment that is activated: its variables come from elsewhere."
        if isinstance(step, SHELL_STEPS) and not _is_safe_in_script(step):
            return "A name or a path in it has characters that do not belong in a shell script."
    paths = [path for step in steps if (path := _get_changed_path(step)) is not None]
    for link, target in environment.outward_links:
        if changes_packages(steps) or any(_is_inside(path, link) for path in paths):
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


def _is_safe_in_script(step: ShellStep) -> bool:
    """Return whether a step has valid names and printable values, so that a script may contain it."""
    names = (step.wrong_name, step.right_name) if isinstance(step, RenameVariable) else (step.name,)
    values: tuple[str, ...] = ()
    if isinstance(step, SetVariable):
        values = (step.value,)
    elif isinstance(step, (PrependEntries, RemoveEntries)):
        values = step.folders if isinstance(step, PrependEntries) else step.entries
    return all(_VARIABLE_NAME.fullmatch(name) for name in names) and all(map(str.isprintable, values))


def changes_packages(steps: Sequence[Step]) -> bool:
    """Return whether a step runs an installer, which may change anything in the environment."""
    return any(isinstance(step, (Install, Uninstall)) for step in steps)


def _get_changed_path(step: Step) -> str | None:
    """Return the path that a step changes; None for a step that changes packages or variables."""
    if isinstance(step, (MakeLink, RemovePath, CommentOutLine)):
        return step.path
    return step.link_folder if isinstance(step, LinkMatchingFiles) else None


def _is_inside(path: str, prefix: str) -> bool:
    return posixpath.normpath(path).startswith(f"{prefix.rstrip('/')}/")


def is_improvement(before: Report, after: Report, finding: Finding) -> bool:
    """Return whether a fix improved the report.

    A better prediction is an improvement. If the prediction is the same, either the finding must be gone, or some
    libraries must be no longer missing and no other library newly missing.
    """
    rank_before, rank_after = _rank_prediction(before.prediction), _rank_prediction(after.prediction)
    if rank_after != rank_before:
        return rank_after > rank_before
    if not any(
        (remaining.code, remaining.title) == (finding.code, finding.title) for remaining in after.findings
    ):
        return True
    no_longer_missing = set(before.prediction.missing_libraries) - set(after.prediction.missing_libraries)
    newly_missing = set(after.prediction.missing_libraries) - set(before.prediction.missing_libraries)
    return bool(no_longer_missing) and not newly_missing


def is_prediction_worse(before: Report, after: Report) -> bool:
    """Return whether a fix made the prediction worse."""
    return _rank_prediction(after.prediction) < _rank_prediction(before.prediction)


def _rank_prediction(prediction: Prediction) -> tuple[int, int, int]:
    """Return a sort key: whether TensorFlow can be imported, whether it registers a GPU, and how many GPUs."""
    order = {False: 0, None: 1, True: 2}  # unknown is better than no and worse than yes
    return order[prediction.import_ok], order[prediction.gpu_registered], prediction.gpu_count or 0


def list_unfixed(
    report: Report, environment: Environment, codes: Collection[str] = ()
) -> tuple[UnfixedFinding, ...]:
    """Return the findings that fix does not fix, each with the reason.

    `codes` restricts the findings as in `list_fix_candidates`.
    """
    unfixed = []
    for finding in report.findings:
        if finding.code not in codes if codes else finding.severity < Severity.WARNING:
            continue
        reasons = [
            find_obstacle(remedy.steps, environment, report) for remedy in finding.remedies if remedy.steps
        ]
        if reasons:
            reason = next((reason for reason in reasons if reason), "What was tried did not fix it.")
        elif any(remedy.changes_system for remedy in finding.remedies):
            reason = "This needs a change to the system; run it yourself:"
        elif finding.remedies:
            reason = "You have to decide this:"
        else:
            reason = "This cannot be fixed by software."
        unfixed.append(UnfixedFinding(finding, reason))
    return tuple(unfixed)
