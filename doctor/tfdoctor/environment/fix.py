"""Fixing an environment: one finding after the other. Each step can be taken back, and is where it did not help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.environment.actions import StepRunner, format_steps, list_touched
from tfdoctor.environment.activation import activate, kind_of, list_inherited
from tfdoctor.environment.candidates import (
    better,
    candidates,
    changes_packages,
    list_unfixed,
    worse,
)
from tfdoctor.environment.fix_availability import environment_at
from tfdoctor.environment.folder import OWN
from tfdoctor.environment.history.journal import Journal, Undone, has_pending
from tfdoctor.environment.models import Attempt, FixResult, FixStatus
from tfdoctor.errors import Error, UsageError
from tfdoctor.examine import ask_python, choose, examine, kernel_variables, run_tensorflow, state_of
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

__all__ = ["FixRequest", "fix_environment", "look", "plan", "prefix_of", "undo"]

MAX_CANDIDATES = 25
"""Candidates that are tried in one run: a finding has two or three, and fixing one may show another."""
UNFINISHED = "An earlier fix was interrupted, or another one is running: its changes are undone first."


@dataclass(frozen=True, slots=True)
class FixRequest:
    """What is asked of fix."""

    python: str | None = None
    codes: tuple[str, ...] = ()
    """Fix only these findings; empty: all that are warnings or errors."""
    installer: str | None = None
    timeout: float = 10.0
    deep: bool = True
    """Run TensorFlow at the end, where a driver is and something was fixed."""
    inherit: bool = False
    """An installer may draw on standard error itself."""


@dataclass(frozen=True, slots=True)
class Look:
    """One examination: as the environment's activation sets the variables."""

    report: Report
    environment: Environment
    activated: bool


def look(
    new_system: Callable[[Mapping[str, str] | None], System], compat: Compat, request: FixRequest
) -> Look:
    """Examine the Python, activated where it has something to activate. Raises UsageError.

    `new_system`: this machine with other environment variables (None: those of this process).
    """
    system = new_system(None)
    chosen, python = _python(system, request)
    kind = kind_of(python.prefix) if chosen.kernel is None else None  # Jupyter activates nothing
    variables = activate(system, python.prefix) if kind is not None else None
    from_outside = list_inherited(system, python.prefix)
    asked = request.python
    if chosen.kernel is not None:
        system = _apply_kernel_variables(new_system, chosen.kernel)
    if variables is not None:
        system, asked = new_system(variables), python.executable
    report = examine(system, compat, python=asked, timeout=request.timeout)
    environment = environment_at(report, kind, from_outside)
    if environment is None:
        raise _make_unexamined_error(report.facts.python)
    return Look(report, environment, activated=variables is not None)


def _apply_kernel_variables(new_system: Callable[[Mapping[str, str] | None], System], path: str) -> System:
    """Return the machine as a Jupyter kernel sets the variables."""
    system = new_system(None)
    return new_system({**system.env, **kernel_variables(system, path)})


def _python(system: System, request: FixRequest) -> tuple[Choice, PythonFacts]:
    choice = choose(system, request.python)
    if choice.lost and request.python is None:  # the Python that is left is none that anybody meant
        lost = choice.lost[0]
        message = (
            f"${lost.variable} names {clean_line(lost.prefix)}, {state_of(lost)}: which Python is meant?"
        )
        raise UsageError(message, hint=f"Name it: tfdoctor fix --python {clean_line(choice.path)}")
    fact = ask_python(system, choice, named=request.python is not None, timeout=request.timeout)
    python = value_of(fact)
    if python is None:
        raise _make_unexamined_error(fact)
    return choice, python


def _make_unexamined_error(fact: Fact[PythonFacts]) -> UsageError:
    why = getattr(fact, "why", "") or "it did not answer"
    return UsageError(f"The Python to fix could not be examined: {why}.")


def plan(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    request: FixRequest,
    env: Mapping[str, str],
) -> FixResult:
    """Return what would be tried first for each finding. Changes nothing."""
    seen = look(new_system, compat, request)
    runner = StepRunner(seen.environment, lambda: new_system(None), env, request.installer)
    first: dict[str, Candidate] = {}
    for candidate in candidates(seen.report, seen.environment, request.codes):
        first.setdefault(candidate.finding.code, candidate)
    done = tuple(
        Attempt(candidate, FixStatus.PLANNED, _commands(candidate, seen.environment, runner))
        for candidate in first.values()
    )
    left = tuple(
        one
        for one in list_unfixed(seen.report, seen.environment, request.codes)
        if one.finding.code not in first
    )
    return FixResult(
        environment=seen.environment,
        attempts=done,
        unfixed=left,
        before=seen.report,
        after=seen.report,
        recovered=(UNFINISHED,) if has_pending(Path(seen.environment.prefix)) else (),
        activated=seen.activated,
    )


def _commands(candidate: Candidate, environment: Environment, runner: StepRunner) -> tuple[str, ...]:
    installer = None
    if changes_packages(candidate.steps):
        try:
            installer = runner.installer()
        except Error:  # told when it is needed
            installer = None
    return format_steps(candidate.steps, environment, installer)


def fix_environment(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    request: FixRequest,
    env: Mapping[str, str],
    tell: Progress,
) -> FixResult:
    """Fix what can be fixed. Raises UsageError, JournalError; what one candidate fails with is in its `Attempt`."""
    known = Journal.read(Path(prefix_of(new_system, request)))
    first = look(new_system, compat, request)
    unfinished = has_pending(Path(first.environment.prefix))
    if not unfinished and not candidates(first.report, first.environment, request.codes):
        left = list_unfixed(first.report, first.environment, request.codes)
        return FixResult(first.environment, (), left, first.report, first.report, activated=first.activated)
    with Journal.open(Path(first.environment.prefix), on_wait=tell.stage) as journal:
        # Somebody else may have changed it since; then what was seen is of no use.
        changed = unfinished or journal.recovered or journal.entries != known
        seen = look(new_system, compat, request) if changed else first
        runner = StepRunner(
            seen.environment,
            lambda: new_system(None),
            env,
            request.installer,
            on_line=tell.line,
            inherit=request.inherit,
            held=(journal.fileno(),),
        )
        before, done = seen.report, list[Attempt]()
        tried: set[object] = set()
        fixed: set[str] = set()
        while len(done) < MAX_CANDIDATES:
            candidate = next(
                (
                    one
                    for one in candidates(seen.report, seen.environment, request.codes)
                    if one.key not in tried
                ),
                None,
            )
            if candidate is None:
                break
            tried.add(candidate.key)
            tell.stage(f"{candidate.finding.code}  {candidate.finding.title}")
            one, seen = _attempt(candidate, seen, journal, runner, lambda: look(new_system, compat, request))
            if one.status is FixStatus.FIXED:
                fixed.add(candidate.finding.code)
            done.append(one)
        recovered = journal.recovered
    observed = None
    if request.deep and fixed and seen.report.prediction.gpu_registered:
        inside = _apply_activation(new_system, seen)
        observed = run_tensorflow(inside, compat, seen.report.facts, timeout=request.timeout, tell=tell.stage)
    return FixResult(
        environment=seen.environment,
        attempts=tuple(done),
        unfixed=list_unfixed(seen.report, seen.environment, request.codes),
        before=before,
        after=replace(seen.report, observed=observed) if observed is not None else seen.report,
        recovered=recovered,
        observed=observed,
        activated=seen.activated,
    )


def _attempt(
    candidate: Candidate, seen: Look, journal: Journal, runner: StepRunner, again: Callable[[], Look]
) -> tuple[Attempt, Look]:
    """Try one candidate. What makes nothing better is rolled back; so is what fails or is interrupted."""
    commands = _commands(candidate, seen.environment, runner)
    paths = list_touched(candidate.steps, seen.environment)
    with journal.step(title=candidate.remedy.text, codes=(candidate.finding.code,), paths=paths) as step:
        try:
            runner.run(candidate.steps)
        except Error as error:
            step.rollback()
            return Attempt(candidate, FixStatus.FAILED, commands, error.message), seen
        now = again()
        if not better(seen.report, now.report, candidate.finding):
            step.rollback()
            why = "It made things worse." if worse(seen.report, now.report) else "It did not help."
            return Attempt(candidate, FixStatus.ROLLED_BACK, commands, why), seen
        entry = step.commit()
    return Attempt(candidate, FixStatus.FIXED, commands, changes=entry.changes), now


def _apply_activation(new_system: Callable[[Mapping[str, str] | None], System], seen: Look) -> System:
    """Return the machine as the environment's activation, or the kernel that was asked for, sets the variables."""
    choice = seen.report.facts.choice
    if choice is not None and choice.kernel is not None:
        return _apply_kernel_variables(new_system, choice.kernel)
    system = new_system(None)
    variables = activate(system, seen.environment.prefix) if seen.activated else None
    return new_system(variables) if variables is not None else system


def prefix_of(new_system: Callable[[Mapping[str, str] | None], System], request: FixRequest) -> str:
    """Return the environment that `--python` means. Raises UsageError."""
    return _python(new_system(None), request)[1].prefix


def undo(prefix: str, *, force: bool, tell: Progress) -> Undone:
    """Take back everything that fix has done in an environment. Raises JournalError."""
    if not Path(prefix, OWN).exists():
        return Undone((), 0, ())  # nor is a journal made where nothing can be written
    with Journal.open(Path(prefix), on_wait=tell.stage) as journal:
        return journal.undo(force=force)
