"""The fixing of an environment, one finding at a time. Each step is undone if it does not help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.environment.actions import StepRunner, format_steps, list_changed_paths
from tfdoctor.environment.activation import activate, detect_kind, list_inherited
from tfdoctor.environment.candidates import (
    changes_packages,
    is_better,
    is_worse,
    list_fix_candidates,
    list_unfixed,
)
from tfdoctor.environment.fix_availability import find_environment
from tfdoctor.environment.folder import STATE_FOLDER
from tfdoctor.environment.history.journal import Journal, UndoResult, has_pending
from tfdoctor.environment.models import Attempt, FixResult, FixStatus
from tfdoctor.errors import Error, UsageError
from tfdoctor.examine import ask_python, choose, describe_lost, examine, kernel_variables, run_tensorflow
from tfdoctor.facts import value_of
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.environment.models import Candidate, Environment
    from tfdoctor.facts import Fact, PythonFacts
    from tfdoctor.facts.python import Choice
    from tfdoctor.findings import Report
    from tfdoctor.report.progress import Progress
    from tfdoctor.system import System

__all__ = ["FixRequest", "examine_environment", "find_prefix", "fix_environment", "plan", "undo"]

MAX_CANDIDATES = 25
"""The largest number of candidates tried in a run: a finding has two or three, and a fix may reveal another one."""
UNFINISHED = "An earlier fix was interrupted, or another one is running: its changes are undone first."


@dataclass(frozen=True, slots=True)
class FixRequest:
    """A request to fix an environment."""

    python: str | None = None
    codes: tuple[str, ...] = ()
    """The codes of the findings to fix; empty for all warnings and errors."""
    installer: str | None = None
    timeout: float = 10.0
    deep: bool = True
    """Whether to run TensorFlow at the end, if something was fixed and a GPU is expected."""
    inherit: bool = False
    """Whether an installer may write to standard error itself."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of one examination, with the variables of the activated environment."""

    report: Report
    environment: Environment
    activated: bool


def examine_environment(
    new_system: Callable[[Mapping[str, str] | None], System], compat: Compat, request: FixRequest
) -> Examination:
    """Examine the Python, with its environment activated if it can be. Raise UsageError.

    `new_system` returns this machine with other environment variables (None: those of this process).
    """
    system = new_system(None)
    chosen, python = _choose_python(system, request)
    kind = detect_kind(python.prefix) if chosen.kernel is None else None  # Jupyter activates nothing
    variables = activate(system, python.prefix) if kind is not None else None
    from_outside = list_inherited(system, python.prefix)
    interpreter = request.python
    if chosen.kernel is not None:
        system = _apply_kernel_variables(new_system, chosen.kernel)
    if variables is not None:
        system, interpreter = new_system(variables), python.executable
    report = examine(system, compat, python=interpreter, timeout=request.timeout)
    environment = find_environment(report, kind, from_outside)
    if environment is None:
        raise _make_unexamined_error(report.facts.python)
    return Examination(report, environment, activated=variables is not None)


def _apply_kernel_variables(new_system: Callable[[Mapping[str, str] | None], System], path: str) -> System:
    """Return the machine with the variables that a Jupyter kernel sets."""
    system = new_system(None)
    return new_system({**system.env, **kernel_variables(system, path)})


def _choose_python(system: System, request: FixRequest) -> tuple[Choice, PythonFacts]:
    """Return the Python to fix, and the facts about it.

    Raise UsageError if it is unclear or does not answer.
    """
    choice = choose(system, request.python)
    if choice.lost and request.python is None:  # the Python found instead may be the wrong one
        lost = choice.lost[0]
        message = (
            f"${lost.variable} names {clean_line(lost.prefix)}, {describe_lost(lost)}: which Python is meant?"
        )
        raise UsageError(message, hint=f"Name it: tfdoctor fix --python {clean_line(choice.path)}")
    fact = ask_python(system, choice, named=request.python is not None, timeout=request.timeout)
    python = value_of(fact)
    if python is None:
        raise _make_unexamined_error(fact)
    return choice, python


def _make_unexamined_error(fact: Fact[PythonFacts]) -> UsageError:
    reason = getattr(fact, "why", "") or "it did not answer"
    return UsageError(f"The Python to fix could not be examined: {reason}.")


def plan(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    request: FixRequest,
    env: Mapping[str, str],
) -> FixResult:
    """Return the first candidate for each finding, without changing anything."""
    examined = examine_environment(new_system, compat, request)
    runner = StepRunner(examined.environment, lambda: new_system(None), env, request.installer)
    first_by_code: dict[str, Candidate] = {}
    for candidate in list_fix_candidates(examined.report, examined.environment, request.codes):
        first_by_code.setdefault(candidate.finding.code, candidate)
    attempts = tuple(
        Attempt(candidate, FixStatus.PLANNED, _format_commands(candidate, examined.environment, runner))
        for candidate in first_by_code.values()
    )
    unfixed = tuple(
        entry
        for entry in list_unfixed(examined.report, examined.environment, request.codes)
        if entry.finding.code not in first_by_code
    )
    return FixResult(
        environment=examined.environment,
        attempts=attempts,
        unfixed=unfixed,
        before=examined.report,
        after=examined.report,
        recovered=(UNFINISHED,) if has_pending(Path(examined.environment.prefix)) else (),
        activated=examined.activated,
    )


def _format_commands(candidate: Candidate, environment: Environment, runner: StepRunner) -> tuple[str, ...]:
    """Return the commands of a candidate, as a user would type them."""
    installer = None
    if changes_packages(candidate.steps):
        try:
            installer = runner.installer()
        except Error:  # reported when it is needed
            installer = None
    return format_steps(candidate.steps, environment, installer)


def fix_environment(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    request: FixRequest,
    env: Mapping[str, str],
    tell: Progress,
) -> FixResult:
    """Fix what can be fixed.

    Raise UsageError, JournalError; the failure of a candidate is in its `Attempt`.
    """
    entries_before = Journal.read(Path(find_prefix(new_system, request)))
    first_look = examine_environment(new_system, compat, request)
    unfinished = has_pending(Path(first_look.environment.prefix))
    if not unfinished and not list_fix_candidates(first_look.report, first_look.environment, request.codes):
        unfixed = list_unfixed(first_look.report, first_look.environment, request.codes)
        return FixResult(
            first_look.environment,
            (),
            unfixed,
            first_look.report,
            first_look.report,
            activated=first_look.activated,
        )
    with Journal.open(Path(first_look.environment.prefix), on_wait=tell.stage) as journal:
        # If another process changed the environment since, the first report is outdated.
        is_outdated = unfinished or journal.recovered or journal.entries != entries_before
        examined = examine_environment(new_system, compat, request) if is_outdated else first_look
        runner = StepRunner(
            examined.environment,
            lambda: new_system(None),
            env,
            request.installer,
            on_line=tell.line,
            inherit=request.inherit,
            held=(journal.fileno(),),
        )
        before, attempts = examined.report, list[Attempt]()
        tried_keys: set[object] = set()
        fixed: set[str] = set()
        while len(attempts) < MAX_CANDIDATES:
            candidate = next(
                (
                    one
                    for one in list_fix_candidates(examined.report, examined.environment, request.codes)
                    if one.key not in tried_keys
                ),
                None,
            )
            if candidate is None:
                break
            tried_keys.add(candidate.key)
            tell.stage(f"{candidate.finding.code}  {candidate.finding.title}")
            one, examined = _try_candidate(
                candidate, examined, journal, runner, lambda: examine_environment(new_system, compat, request)
            )
            if one.status is FixStatus.FIXED:
                fixed.add(candidate.finding.code)
            attempts.append(one)
        recovered = journal.recovered
    observed = None
    if request.deep and fixed and examined.report.prediction.gpu_registered:
        activated_system = _apply_activation(new_system, examined)
        observed = run_tensorflow(
            activated_system, compat, examined.report.facts, timeout=request.timeout, tell=tell.stage
        )
    return FixResult(
        environment=examined.environment,
        attempts=tuple(attempts),
        unfixed=list_unfixed(examined.report, examined.environment, request.codes),
        before=before,
        after=replace(examined.report, observed=observed) if observed is not None else examined.report,
        recovered=recovered,
        observed=observed,
        activated=examined.activated,
    )


def _try_candidate(
    candidate: Candidate,
    before: Examination,
    journal: Journal,
    runner: StepRunner,
    examine_again: Callable[[], Examination],
) -> tuple[Attempt, Examination]:
    """Try one candidate. Roll it back if it fails, is interrupted, or does not improve the report."""
    commands = _format_commands(candidate, before.environment, runner)
    paths = list_changed_paths(candidate.steps, before.environment)
    with journal.step(title=candidate.remedy.text, codes=(candidate.finding.code,), paths=paths) as step:
        try:
            runner.run(candidate.steps)
        except Error as error:
            step.rollback()
            return Attempt(candidate, FixStatus.FAILED, commands, error.message), before
        after = examine_again()
        if not is_better(before.report, after.report, candidate.finding):
            step.rollback()
            reason = "It made things worse." if is_worse(before.report, after.report) else "It did not help."
            return Attempt(candidate, FixStatus.ROLLED_BACK, commands, reason), before
        entry = step.commit()
    return Attempt(candidate, FixStatus.FIXED, commands, changes=entry.changes), after


def _apply_activation(
    new_system: Callable[[Mapping[str, str] | None], System], examined: Examination
) -> System:
    """Return the machine with the variables of the activated environment, or of the requested kernel."""
    choice = examined.report.facts.choice
    if choice is not None and choice.kernel is not None:
        return _apply_kernel_variables(new_system, choice.kernel)
    system = new_system(None)
    variables = activate(system, examined.environment.prefix) if examined.activated else None
    return new_system(variables) if variables is not None else system


def find_prefix(new_system: Callable[[Mapping[str, str] | None], System], request: FixRequest) -> str:
    """Return the prefix of the environment that `--python` selects. Raise UsageError."""
    return _choose_python(new_system(None), request)[1].prefix


def undo(prefix: str, *, force: bool, tell: Progress) -> UndoResult:
    """Undo everything that fix did in an environment. Raise JournalError."""
    if not Path(prefix, STATE_FOLDER).exists():
        return UndoResult((), 0, ())  # without this, a journal would be created, which may be impossible
    with Journal.open(Path(prefix), on_wait=tell.stage) as journal:
        return journal.undo(force=force)
