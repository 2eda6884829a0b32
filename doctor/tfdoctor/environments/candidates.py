"""Choose the remedies that fix can try, and explain why the other findings are left to the user.

These functions only use the report: they read no files and change nothing.
"""

from __future__ import annotations

import enum
import math
import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install, SetVariable, Uninstall, UnsetVariable, VariableStep
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.environments.models import Candidate, Environment, UnfixedFinding
from tfdoctor.rules import RULES_BY_CODE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import TypeGuard

    from tfdoctor.core.causes.steps import Step
    from tfdoctor.core.findings import Finding, Report

__all__ = [
    "Effect",
    "changes_packages",
    "choose_round",
    "compare_reports",
    "has_lost_facts",
    "list_fix_candidates",
    "list_unfixed",
    "make_environment",
    "make_round_key",
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
        if _sets_inherited_variable(step, environment):
            return (
                f"{step.name} comes from the shell that tfdoctor was started in, and must be changed there."
            )
        if isinstance(step, VariableStep):
            if environment.activation_kind is None:
                return (
                    "This Python is in no environment that is activated: its variables come from elsewhere."
                )
            if not _is_safe_in_script(step):
                return "A name or a path in it has characters that do not belong in a shell script."
        elif not isinstance(step, (Install, Uninstall)) and not _is_inside(
            step.changed_path, environment.prefix
        ):
            return f"{step.changed_path} lies outside the environment {environment.prefix}."
    paths = [step.changed_path for step in steps if not isinstance(step, (VariableStep, Install, Uninstall))]
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


def _sets_inherited_variable(step: Step, environment: Environment) -> TypeGuard[UnsetVariable | SetVariable]:
    """Return whether the step changes a variable that comes from the caller's shell."""
    return isinstance(step, (UnsetVariable, SetVariable)) and step.name in environment.inherited_variables


def _is_safe_in_script(step: VariableStep) -> bool:
    """Return whether a step has valid names and printable values, so that a script may contain it."""
    return all(map(_VARIABLE_NAME.fullmatch, step.names)) and all(map(str.isprintable, step.values))


def changes_packages(steps: Sequence[Step]) -> bool:
    """Return whether a step runs an installer, which may change anything in the environment."""
    return any(isinstance(step, (Install, Uninstall)) for step in steps)


def _is_inside(path: str, prefix: str) -> bool:
    return posixpath.normpath(path).startswith(f"{prefix.rstrip('/')}/")


def choose_round(candidates: Sequence[Candidate], tried_rounds: Collection[object]) -> tuple[Candidate, ...]:
    """Return the candidates to try together next: all errors at once, else the first candidate that is left.

    Errors may be fixed only together, and an installer then resolves their requirements as one set. `tried_rounds`
    contains the keys of the rounds that were tried (`make_round_key`). Return an empty tuple if nothing is left.
    """
    left = [candidate for candidate in candidates if make_round_key((candidate,)) not in tried_rounds]
    first_by_finding: dict[int, Candidate] = {}
    for candidate in left:
        if candidate.finding.severity >= Severity.ERROR:
            first_by_finding.setdefault(id(candidate.finding), candidate)
    together = tuple(first_by_finding.values())
    if len(together) > 1 and make_round_key(together) not in tried_rounds:
        return together
    return tuple(left[:1])


def make_round_key(candidates: Iterable[Candidate]) -> frozenset[object]:
    """Return the identity of a round: fix tries the same steps only once for the same finding codes."""
    return frozenset((candidate.finding.code, candidate.steps) for candidate in candidates)


class Effect(enum.Enum):
    """The effect of a change on the report. The values are sentences for the user."""

    BETTER = "It helped."
    NONE = "It did not help."
    WORSE = "It made things worse."
    UNKNOWN = "It could not be determined whether it helped."


def compare_reports(before: Report, after: Report, findings: Sequence[Finding]) -> Effect:
    """Return the effect of a change that was to fix the findings.

    What is known both before and after decides: the import, the registration and the number of GPUs, in this order. A fact
    that is unknown after the change proves nothing. If the prediction is the same, each finding must be gone, and its
    check must have run, or some libraries must be no longer missing and no other library newly missing.
    """
    are_gone = all(_is_gone(finding, after) for finding in findings)
    is_undetermined = False
    for old, new in zip(_list_decisive_facts(before), _list_decisive_facts(after), strict=True):
        if old is not None and new is not None and old != new:
            if new < old:
                return Effect.WORSE
            # Of several changes, each must have helped.
            return Effect.BETTER if len(findings) == 1 or are_gone else Effect.NONE
        is_undetermined |= new is None and old is not None
    if are_gone:
        return Effect.BETTER
    no_longer_missing = set(before.prediction.missing_libraries) - set(after.prediction.missing_libraries)
    newly_missing = set(after.prediction.missing_libraries) - set(before.prediction.missing_libraries)
    if len(findings) == 1 and no_longer_missing and not newly_missing:
        return Effect.BETTER
    return Effect.UNKNOWN if is_undetermined else Effect.NONE


def has_lost_facts(before: Report, after: Report) -> bool:
    """Return whether a decisive fact is unknown after a change that was known before it."""
    facts = zip(_list_decisive_facts(before), _list_decisive_facts(after), strict=True)
    return any(old is not None and new is None for old, new in facts)


def _list_decisive_facts(report: Report) -> tuple[int | None, ...]:
    """Return whether TensorFlow can be imported, whether it registers a GPU, and how many, each None if unknown."""
    prediction = report.prediction
    return prediction.import_ok, prediction.gpu_registered, prediction.gpu_count


def _is_gone(finding: Finding, report: Report) -> bool:
    """Return whether the report does not have the finding any more, although its check could run."""
    unchecked = (OutcomeKind.COULD_NOT_CHECK, OutcomeKind.CRASHED)
    return not any(
        (remaining.code, remaining.title) == (finding.code, finding.title) for remaining in report.findings
    ) and not any(outcome.code == finding.code and outcome.kind in unchecked for outcome in report.outcomes)


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
        obstacles = [
            find_obstacle(remedy.steps, environment, report) for remedy in finding.remedies if remedy.steps
        ]
        actor = "you"
        action = finding.remedies[0].text if finding.remedies and "" not in obstacles else ""
        if obstacles:
            reason = next((obstacle for obstacle in obstacles if obstacle), "What was tried did not fix it.")
            if any(_sets_inherited_variable(step, environment) for step in finding.remedies[0].steps):
                actor = "you, in the shell that tfdoctor was started in"
            elif "" in obstacles:
                actor = "you (`tfdoctor check -v` shows what else can be tried)"
        elif any(remedy.changes_system for remedy in finding.remedies):
            reason = "This needs a change to the system; run it yourself:"
            actor = "the administrator of this machine"
        elif finding.remedies:
            reason = "Needs your decision:"
        else:
            reason = "This cannot be fixed by software."
            actor = "nobody, with software alone"
        unfixed.append(UnfixedFinding(finding, reason, actor, action))
    return tuple(unfixed)
