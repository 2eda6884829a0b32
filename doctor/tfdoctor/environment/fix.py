"""Mending an environment: one finding after the other, each step journalled, judged by a new look, and taken back
where it did not help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.environment.actions import Hands, shown, touched
from tfdoctor.environment.activation import activated, inherited, kind_of
from tfdoctor.environment.history.journal import Journal, Undone, pending
from tfdoctor.environment.history.snapshot import OWN
from tfdoctor.environment.models import Done, Mending, Status
from tfdoctor.environment.ways import better, changes_packages, environment_of, left_over, ways, worse
from tfdoctor.errors import Error, UsageError
from tfdoctor.examine.observe import observe
from tfdoctor.examine.survey import survey
from tfdoctor.facts import value_of
from tfdoctor.probes.choice import choose, state_of
from tfdoctor.probes.python import probe
from tfdoctor.report.diagnose import diagnose
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.environment.models import Environment, Way
    from tfdoctor.facts import Fact, PythonFacts
    from tfdoctor.findings import Observation, Report
    from tfdoctor.progress import Progress
    from tfdoctor.system import System

__all__ = ["Wish", "look", "mend", "plan", "prefix_of", "undo"]

MOST = 25
"""Ways that are tried in one run: each finding has two or three, and mending one may show another."""
UNFINISHED = (
    "An earlier fix here was stopped half way, or one is at work: what it has done is taken back first."
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of fix."""

    python: str | None = None
    codes: tuple[str, ...] = ()
    """Of these findings alone; empty: of all that are warnings or errors."""
    installer: str | None = None
    timeout: float = 10.0
    deep: bool = True
    """Run TensorFlow at the end, where a driver is and something was mended."""
    inherit: bool = False
    """An installer may draw on standard error itself."""


@dataclass(frozen=True, slots=True)
class Look:
    """One examination: as the environment's activation sets the variables."""

    report: Report
    environment: Environment
    activated: bool


def look(new_system: Callable[[Mapping[str, str] | None], System], compat: Compat, wish: Wish) -> Look:
    """Examine the Python, activated where it has something to activate. Raises UsageError.

    `new_system`: this machine with other environment variables (None: those of this process).
    """
    system = new_system(None)
    python = _python(system, wish)
    kind = kind_of(python.prefix)
    variables = activated(system, python.prefix) if kind is not None else None
    from_outside = inherited(system, python.prefix)
    asked = wish.python
    if variables is not None:
        system, asked = new_system(variables), python.executable
    report = diagnose(survey(system, compat, requested_python=asked, timeout=wish.timeout), compat)
    environment = environment_of(report, kind, from_outside)
    if environment is None:
        raise _unexamined(report.facts.python)
    return Look(report, environment, activated=variables is not None)


def _python(system: System, wish: Wish) -> PythonFacts:
    choice = choose(system, wish.python)
    if choice.lost and wish.python is None:  # the Python that is left is none that anybody meant
        lost = choice.lost[0]
        message = (
            f"${lost.variable} names {clean_line(lost.prefix)}, {state_of(lost)}: which Python is meant?"
        )
        raise UsageError(message, hint=f"Name it: tfdoctor fix --python {clean_line(choice.path)}")
    fact, _ = probe(system, choice, asked=wish.python is not None, timeout=wish.timeout)
    python = value_of(fact)
    if python is None:
        raise _unexamined(fact)
    return python


def _unexamined(fact: Fact[PythonFacts]) -> UsageError:
    why = getattr(fact, "why", "") or "it did not answer"
    return UsageError(f"The Python to mend could not be examined: {why}.")


def plan(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    wish: Wish,
    env: Mapping[str, str],
) -> Mending:
    """What would be tried first for each finding. Changes nothing."""
    seen = look(new_system, compat, wish)
    hands = Hands(seen.environment, lambda: new_system(None), env, wish.installer)
    first: dict[str, Way] = {}
    for way in ways(seen.report, seen.environment, wish.codes):
        first.setdefault(way.finding.code, way)
    done = tuple(Done(way, Status.PLANNED, _commands(way, seen.environment, hands)) for way in first.values())
    left = tuple(
        one for one in left_over(seen.report, seen.environment, wish.codes) if one.finding.code not in first
    )
    return Mending(
        environment=seen.environment,
        done=done,
        left=left,
        before=seen.report,
        after=seen.report,
        recovered=(UNFINISHED,) if pending(Path(seen.environment.prefix)) else (),
        activated=seen.activated,
    )


def _commands(way: Way, environment: Environment, hands: Hands) -> tuple[str, ...]:
    installer = None
    if changes_packages(way.steps):
        try:
            installer = hands.installer()
        except Error:  # told when it is needed
            installer = None
    return shown(way.steps, environment, installer)


def mend(
    new_system: Callable[[Mapping[str, str] | None], System],
    compat: Compat,
    wish: Wish,
    env: Mapping[str, str],
    tell: Progress,
) -> Mending:
    """Mend what can be mended. Raises UsageError, JournalError; what one way fails with is in its `Done`."""
    known = Journal.read(Path(prefix_of(new_system, wish)))
    first = look(new_system, compat, wish)
    unfinished = pending(Path(first.environment.prefix))
    if not unfinished and not ways(first.report, first.environment, wish.codes):
        left = left_over(first.report, first.environment, wish.codes)
        return Mending(first.environment, (), left, first.report, first.report, activated=first.activated)
    with Journal.open(Path(first.environment.prefix), on_wait=tell.stage) as journal:
        # Somebody else may have changed it since; then what was seen is of no use.
        changed = unfinished or journal.recovered or journal.entries != known
        seen = look(new_system, compat, wish) if changed else first
        hands = Hands(
            seen.environment,
            lambda: new_system(None),
            env,
            wish.installer,
            on_line=tell.line,
            inherit=wish.inherit,
            held=(journal.fileno(),),
        )
        before, done = seen.report, list[Done]()
        tried: set[object] = set()
        mended: set[str] = set()
        while len(done) < MOST:
            way = next(
                (one for one in ways(seen.report, seen.environment, wish.codes) if one.key not in tried),
                None,
            )
            if way is None:
                break
            tried.add(way.key)
            tell.stage(f"{way.finding.code}  {way.finding.title}")
            one, seen = _attempt(way, seen, journal, hands, lambda: look(new_system, compat, wish))
            if one.status is Status.MENDED:
                mended.add(way.finding.code)
            done.append(one)
        recovered = journal.recovered
    observed = None
    if wish.deep and mended and seen.report.prediction.gpu_registered:
        tell.stage("Running TensorFlow in a child process; this takes some seconds …")
        observed = _observe(new_system, compat, seen)
    return Mending(
        environment=seen.environment,
        done=tuple(done),
        left=left_over(seen.report, seen.environment, wish.codes),
        before=before,
        after=replace(seen.report, observed=observed) if observed is not None else seen.report,
        recovered=recovered,
        observed=observed,
        activated=seen.activated,
    )


def _attempt(
    way: Way, seen: Look, journal: Journal, hands: Hands, again: Callable[[], Look]
) -> tuple[Done, Look]:
    """Try one way. What makes nothing better is rolled back; so is what fails or is interrupted."""
    commands = _commands(way, seen.environment, hands)
    paths = touched(way.steps, seen.environment)
    with journal.step(title=way.remedy.text, codes=(way.finding.code,), paths=paths) as step:
        try:
            hands.carry_out(way.steps)
        except Error as error:
            step.rollback()
            return Done(way, Status.FAILED, commands, error.message), seen
        now = again()
        if not better(seen.report, now.report, way.finding):
            step.rollback()
            why = "It made things worse." if worse(seen.report, now.report) else "It did not help."
            return Done(way, Status.ROLLED_BACK, commands, why), seen
        entry = step.commit()
    return Done(way, Status.MENDED, commands, changes=len(entry.changes)), now


def _observe(
    new_system: Callable[[Mapping[str, str] | None], System], compat: Compat, seen: Look
) -> Observation | None:
    tensorflow = value_of(seen.report.facts.tensorflow)
    if tensorflow is None:
        return None
    system = new_system(None)
    variables = activated(system, seen.environment.prefix) if seen.activated else None
    inside = new_system(variables) if variables is not None else system
    return observe(inside, compat, seen.environment.python, tensorflow)


def prefix_of(new_system: Callable[[Mapping[str, str] | None], System], wish: Wish) -> str:
    """The environment that `--python` means. Raises UsageError."""
    return _python(new_system(None), wish).prefix


def undo(prefix: str, *, force: bool, tell: Progress) -> Undone:
    """Take back everything that fix has done in an environment. Raises JournalError."""
    if not Path(prefix, OWN).exists():
        return Undone((), 0, ())  # nor is a journal made where nothing can be written
    with Journal.open(Path(prefix), on_wait=tell.stage) as journal:
        return journal.undo(force=force)
