"""Fix the findings in an environment, in rounds: all errors at once, then one by one. What does not help is undone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.facts import value_of
from tfdoctor.core.facts.python import UnusablePython
from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis import (
    choose_python,
    describe_unusable_environment,
    evaluate_facts,
    examine,
    query_chosen_python,
    read_kernel_variables,
    run_tensorflow,
)
from tfdoctor.environments.actions import StepRunner, format_steps, list_changed_paths
from tfdoctor.environments.activation import (
    detect_activation_kind,
    list_inherited_variables,
    read_activated_variables,
)
from tfdoctor.environments.candidates import (
    Effect,
    changes_packages,
    choose_round,
    compare_reports,
    has_lost_facts,
    list_fix_candidates,
    list_unfixed,
    make_round_key,
)
from tfdoctor.environments.fix_availability import find_environment
from tfdoctor.environments.folder import STATE_FOLDER
from tfdoctor.environments.history.journal import Journal, UndoResult, has_unfinished_changes
from tfdoctor.environments.models import Attempt, FixResult, FixStatus
from tfdoctor.remedies.commands import combine_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Fact, PythonFacts
    from tfdoctor.core.facts.python import PythonChoice
    from tfdoctor.core.findings import Report
    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.environments.models import Candidate, Environment
    from tfdoctor.system import System

__all__ = ["FixRequest", "examine_environment", "find_prefix", "fix_environment", "plan_fix", "undo_fix"]

SLOW_EXAMINATION_FACTOR = 6
"""The factor of the time limit of an examination that is repeated because something decisive was not known in time."""
MAX_CANDIDATES = 25
"""The largest number of candidates that are tried in a run.

A finding has two or three candidates, and a fix may reveal another finding.
"""
UNFINISHED_MESSAGE = (
    "An earlier fix was interrupted, or another one is running: its changes are undone first."
)
"""The note of a plan for an environment with unfinished changes."""


@dataclass(frozen=True, slots=True)
class FixRequest:
    """A request to fix an environment."""

    python: str | None = None
    """The value of `--python`; None for the usual search."""
    codes: tuple[str, ...] = ()
    """The codes of the findings to fix; empty for all warnings and errors."""
    ignored_codes: tuple[str, ...] = ()
    """The codes of findings that the user does not want to see."""
    preferred_installer: str | None = None
    """`"uv"`, `"pip"`, or None for whichever is found."""
    timeout: float = 10.0
    """The time limit in seconds for each examination."""
    runs_tensorflow: bool = True
    """Whether to run TensorFlow at the end, if something was fixed and a GPU is expected."""
    inherits_stderr: bool = False
    """Whether an installer writes directly to standard error, so that its output is not recorded."""


@dataclass(frozen=True, slots=True)
class EnvironmentExamination:
    """The result of one examination of the environment."""

    report: Report
    environment: Environment
    is_activated: bool
    """Whether the environment was examined with the variables of its activation."""


def examine_environment(
    new_system: Callable[[Mapping[str, str] | None], System], compat: Compat, request: FixRequest
) -> EnvironmentExamination:
    """Examine the requested Python, with its environment activated if possible.

    `new_system` returns this machine with the given environment variables; None stands for those of this process.
    Raise UsageError if the Python cannot be examined.
    """
    system = new_system(None)
    choice, python_facts = _choose_python(system, request)
    kind = (
        detect_activation_kind(python_facts.prefix) if choice.kernel is None else None
    )  # Jupyter activates nothing
    variables = read_activated_variables(system, python_facts.prefix) if kind is not None else None
    inherited = list_inherited_variables(system, python_facts.prefix)
    interpreter = request.python
    if choice.kernel is not None:
        system = _apply_kernel_variables(new_system, choice.kernel)
    if variables is not None:
        system, interpreter = new_system(variables), python_facts.executable
    report = examine(system, compat, python=interpreter, timeout=request.timeout).ignore(
        request.ignored_codes
    )
    environment = find_environment(report, kind, inherited)
    if environment is None:
        raise _make_unexamined_error(report.facts.python)
    return EnvironmentExamination(report, environment, is_activated=variables is not None)


def _apply_kernel_variables(new_system: Callable[[Mapping[str, str] | None], System], path: str) -> System:
    """Return the machine with the variables that a Jupyter kernel sets."""
    system = new_system(None)
    return new_system({**system.env, **read_kernel_variables(system, path)})


def _choose_python(system: System, request: FixRequest) -> tuple[PythonChoice, PythonFacts]:
    """Return the Python to fix, and the facts about it.

    Raise UsageError if the active environment has no usable Python, or if the Python cannot be queried.
    """
    choice = choose_python(system, request.python)
    if choice.lost and request.python is None:  # the Python that was chosen instead may be the wrong one
        unusable = choice.lost[0]
        prefix = clean_line(unusable.prefix)
        message = f"${unusable.variable} names {prefix}, {describe_unusable_environment(unusable)}: which Python is meant?"
        raise UsageError(message, hint=f"Name it: tfdoctor fix --python {clean_line(choice.path)}")
    fact = query_chosen_python(
        system, choice, is_requested=request.python is not None, timeout=request.timeout
    )
    python_facts = value_of(fact)
    if python_facts is None:
        raise _make_unexamined_error(fact)
    return choice, python_facts


def _make_unexamined_error(fact: Fact[PythonFacts]) -> UsageError:
    """Return the error for a Python that could not be examined. The fact gives the reason."""
    reason = getattr(fact, "why", "") or "it did not answer"
    hint = "`tfdoctor check` says more."
    if isinstance(fact, UnusablePython) and fact.trouble is not None and fact.trouble.kind == "home":
        hint = "PYTHONHOME keeps it from starting. Type `unset PYTHONHOME`, then run `tfdoctor fix` again."
    return UsageError(f"The Python to fix could not be examined: {reason}.", hint=hint)


def plan_fix(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    request: FixRequest,
    env: Mapping[str, str],
) -> FixResult:
    """Return the first candidate for each finding as a planned attempt, without changing anything.

    Raise UsageError if the Python cannot be examined, or JournalError if the journal cannot be read.
    """
    examination = examine_environment(new_system, compat, request)
    runner = StepRunner(examination.environment, lambda: new_system(None), env, request.preferred_installer)
    first_by_code: dict[str, Candidate] = {}
    for candidate in list_fix_candidates(examination.report, examination.environment, request.codes):
        first_by_code.setdefault(candidate.finding.code, candidate)
    attempts = tuple(
        Attempt(candidate, FixStatus.PLANNED, _format_commands(candidate, examination.environment, runner))
        for candidate in first_by_code.values()
    )
    unfixed = tuple(
        entry
        for entry in list_unfixed(examination.report, examination.environment, request.codes)
        if entry.finding.code not in first_by_code
    )
    return FixResult(
        environment=examination.environment,
        attempts=attempts,
        unfixed_findings=unfixed,
        report_before=examination.report,
        report_after=examination.report,
        recovery_notes=(UNFINISHED_MESSAGE,)
        if has_unfinished_changes(Path(examination.environment.prefix))
        else (),
        is_activated=examination.is_activated,
        requested_codes=tuple(request.codes),
    )


def _format_commands(candidate: Candidate, environment: Environment, runner: StepRunner) -> tuple[str, ...]:
    """Return the commands of a candidate, as a user would type them."""
    installer = None
    if changes_packages(candidate.steps):
        try:
            installer = runner.get_installer()
        except Error:  # reported when the installer is needed
            installer = None
    return format_steps(candidate.steps, environment, installer)


def fix_environment(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    request: FixRequest,
    env: Mapping[str, str],
    progress: Progress,
) -> FixResult:
    """Try candidates until none is left or `MAX_CANDIDATES` were tried, and return the results.

    `env` contains the variables for installers. Raise UsageError if the Python cannot be examined, or JournalError if the
    journal cannot be used. A candidate that fails raises nothing: its `Attempt` contains the failure.
    """
    old_entries = Journal.read_entries(Path(find_prefix(new_system, request)))
    first_examination = examine_environment(new_system, compat, request)
    has_unfinished = has_unfinished_changes(Path(first_examination.environment.prefix))
    if not has_unfinished and not list_fix_candidates(
        first_examination.report, first_examination.environment, request.codes
    ):
        unfixed = list_unfixed(first_examination.report, first_examination.environment, request.codes)
        return FixResult(
            environment=first_examination.environment,
            attempts=(),
            unfixed_findings=unfixed,
            report_before=first_examination.report,
            report_after=first_examination.report,
            is_activated=first_examination.is_activated,
        )
    with Journal.open(Path(first_examination.environment.prefix), on_wait=progress.begin_stage) as journal:
        # If another process changed the environment since, the first report is outdated.
        is_outdated = has_unfinished or journal.recovery_notes or journal.entries != old_entries
        examination = examine_environment(new_system, compat, request) if is_outdated else first_examination
        runner = StepRunner(
            examination.environment,
            lambda: new_system(None),
            env,
            request.preferred_installer,
            on_line=progress.report_line,
            inherits_stderr=request.inherits_stderr,
            pass_fds=(journal.fileno(),),
        )
        report_before, attempts = examination.report, list[Attempt]()
        tried_rounds: set[object] = set()
        while len(attempts) < MAX_CANDIDATES:
            candidates = choose_round(
                list_fix_candidates(examination.report, examination.environment, request.codes), tried_rounds
            )
            if not candidates:
                break
            tried_rounds.add(make_round_key(candidates))
            for candidate in candidates:
                progress.begin_stage(f"{candidate.finding.code}  {candidate.finding.title}")
            round_attempts, after = _try_candidates(
                candidates,
                examination,
                journal,
                runner,
                lambda before=examination: _examine_again(new_system, compat, request, before),  # type: ignore[misc]
            )
            examination = after or examination
            if after is not None:
                tried_rounds |= {make_round_key((candidate,)) for candidate in candidates}
            # If several changes did not help together, each is tried on its own.
            if after is not None or len(candidates) == 1:
                attempts += round_attempts
        recovered = journal.recovery_notes
    report = examination.report
    if (
        request.runs_tensorflow
        and any(attempt.is_fixed for attempt in attempts)
        and examination.report.prediction.gpu_registered
    ):
        activated_system = _apply_activation(new_system, examination)
        observed = run_tensorflow(
            activated_system, compat, report.facts, timeout=request.timeout, on_message=progress.begin_stage
        )
        # The behaviour of TensorFlow overrides the prediction, in the verdict and in the findings.
        report = evaluate_facts(report.facts, compat, observed).ignore(request.ignored_codes)
    return FixResult(
        environment=examination.environment,
        attempts=tuple(attempts),
        unfixed_findings=list_unfixed(report, examination.environment, request.codes),
        report_before=report_before,
        report_after=report,
        recovery_notes=recovered,
        observed=report.observed,
        is_activated=examination.is_activated,
    )


def _examine_again(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    request: FixRequest,
    before: EnvironmentExamination,
) -> EnvironmentExamination:
    """Examine the environment after a change, with more time if something decisive is not known any more."""
    after = examine_environment(new_system, compat, request)
    if has_lost_facts(before.report, after.report):
        slow_request = replace(request, timeout=request.timeout * SLOW_EXAMINATION_FACTOR)
        after = examine_environment(new_system, compat, slow_request)
    return after


def _try_candidates(
    candidates: Sequence[Candidate],
    before: EnvironmentExamination,
    journal: Journal,
    runner: StepRunner,
    examine_again: Callable[[], EnvironmentExamination],
) -> tuple[list[Attempt], EnvironmentExamination | None]:
    """Apply the steps of the candidates together, and return the attempts and the examination of the result.

    The changes are rolled back if a step fails, is interrupted, or does not improve the report. Then the examination is None.
    """
    findings = tuple(candidate.finding for candidate in candidates)
    steps = combine_steps(candidate.remedy for candidate in candidates)
    commands = [_format_commands(candidate, before.environment, runner) for candidate in candidates]

    def make_attempts(status: FixStatus, detail: str = "", changed_path_count: int = 0) -> list[Attempt]:
        return [
            Attempt(candidate, status, lines, detail, changed_path_count)
            for candidate, lines in zip(candidates, commands, strict=True)
        ]

    with journal.begin_step(
        title=" Then: ".join(dict.fromkeys(candidate.remedy.text for candidate in candidates)),
        codes=tuple(dict.fromkeys(finding.code for finding in findings)),
        paths=list_changed_paths(steps, before.environment),
    ) as step:
        try:
            runner.run(steps)
        except Error as error:
            step.rollback()
            return make_attempts(FixStatus.FAILED, error.message), None
        after = examine_again()
        effect = compare_reports(before.report, after.report, findings)
        if effect is not Effect.BETTER:
            step.rollback()
            return make_attempts(FixStatus.ROLLED_BACK, effect.value), None
        entry = step.commit()
    return make_attempts(FixStatus.FIXED, changed_path_count=entry.changes), after


def _apply_activation(
    new_system: Callable[[Mapping[str, str] | None], System], examination: EnvironmentExamination
) -> System:
    """Return the machine with the variables of the Jupyter kernel or of the activated environment, if any."""
    choice = examination.report.facts.choice
    if choice is not None and choice.kernel is not None:
        return _apply_kernel_variables(new_system, choice.kernel)
    system = new_system(None)
    variables = (
        read_activated_variables(system, examination.environment.prefix) if examination.is_activated else None
    )
    return new_system(variables) if variables is not None else system


def find_prefix(new_system: Callable[[Mapping[str, str] | None], System], request: FixRequest) -> str:
    """Return the prefix (`sys.prefix`) of the requested Python.

    Raise UsageError if the Python cannot be queried.
    """
    _, python_facts = _choose_python(new_system(None), request)
    return python_facts.prefix


def undo_fix(prefix: str, *, force: bool, progress: Progress) -> UndoResult:
    """Undo all changes of fix in an environment.

    Raise JournalError if that is impossible, for example if other programs changed the files later and `force` is false.
    """
    if not Path(prefix, STATE_FOLDER).exists():
        # Opening the journal would create it, which may be impossible.
        return UndoResult(undone_steps=(), restored_count=0, unrestored_paths=())
    with Journal.open(Path(prefix), on_wait=progress.begin_stage) as journal:
        return replace(journal.undo(force=force), recovery_notes=journal.recovery_notes)
