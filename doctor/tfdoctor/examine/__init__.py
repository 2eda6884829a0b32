"""Look at a machine, run TensorFlow where asked, judge: what every command does that says something of a machine.

Nobody else knows the parts, which are loaded when they are needed. While they are at work a signal that asks us to end
is heard: what was started is killed, and the exception is raised even where CPython has dropped it in one of its own
callbacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import value_of
from tfdoctor.probes.choice import choose, kernel_variables, state_of
from tfdoctor.probes.target import begin
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.advice.target import InImage
    from tfdoctor.compat import Compat
    from tfdoctor.facts import Fact, Facts, PythonFacts
    from tfdoctor.facts.python import Choice
    from tfdoctor.findings import Observation, Report
    from tfdoctor.system import System

__all__ = [
    "LOOKING",
    "RUNNING",
    "ask_python",
    "begin",
    "choose",
    "examine",
    "judge",
    "kernel_variables",
    "live_machine",
    "look",
    "run_tensorflow",
    "state_of",
]

LOOKING = 10.0
"""Seconds that looking may take."""
RUNNING = "Running TensorFlow in a child process; this takes some seconds …"


def live_machine(python: str | None, env: Mapping[str, str] | None = None) -> LiveSystem:
    """This machine as the Python that is meant sees it: with the variables that its Jupyter kernel sets.

    `env`: others than those that this process was started with.
    """
    system = LiveSystem(env=env)
    more = kernel_variables(system, python) if python else {}
    return LiveSystem(env={**system.env, **more}) if more else system


def _nobody(text: str) -> None:
    """Nobody is told."""


def examine(
    system: System,
    compat: Compat,
    *,
    python: str | None = None,
    timeout: float = LOOKING,
    deep: bool | Callable[[Facts], bool] = False,
    tell: Callable[[str], None] = _nobody,
    meanwhile: Callable[[], object] | None = None,
    image: InImage | None = None,
    as_if: Callable[[Facts], Facts] | None = None,
) -> Report:
    """Look at everything, and judge it. The report has the facts, and what TensorFlow did where it was run.

    `python`: the one that is meant, else the usual search decides. `timeout`: seconds for the look. `deep`: whether
    TensorFlow is run, or what says so once the facts are there. `tell`: who is told that it takes a while.
    `meanwhile`: what is called while the first probes look (see `survey`). `image`: whose container it is. `as_if`:
    what is made of the facts before they are judged; TensorFlow then computes nothing, for its card is a stand-in.

    Raises UsageError where the Python that was asked for cannot be examined.
    """
    facts = look(system, compat, python=python, timeout=timeout, meanwhile=meanwhile)
    if as_if is not None:
        facts = as_if(facts)
    run = deep(facts) if callable(deep) else deep
    computes = as_if is None
    observed = (
        run_tensorflow(system, compat, facts, timeout=timeout, tell=tell, computes=computes) if run else None
    )
    return judge(facts, compat, observed, image=image)


def look(
    system: System,
    compat: Compat,
    *,
    python: str | None = None,
    timeout: float = LOOKING,
    meanwhile: Callable[[], object] | None = None,
) -> Facts:
    """The first part of `examine`, for those who ask what is there and not what is wrong with it."""
    from tfdoctor.examine import survey

    with stopping(system):
        return survey.survey(system, compat, requested_python=python, timeout=timeout, meanwhile=meanwhile)


def run_tensorflow(
    system: System,
    compat: Compat,
    facts: Facts,
    *,
    timeout: float = LOOKING,
    tell: Callable[[str], None] = _nobody,
    computes: bool = True,
) -> Observation | None:
    """What TensorFlow does in a child process of its Python; None where there is none of either.

    `timeout`: seconds, at least those that a first kernel may take. `computes`: else it lists its GPUs, no more.
    """
    interpreter, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if interpreter is None or tensorflow is None:
        return None
    from tfdoctor.examine.observe import DEEP_TIMEOUT, observe

    tell(RUNNING)
    with stopping(system):
        limit = max(timeout, DEEP_TIMEOUT)
        return observe(system, compat, interpreter.executable, tensorflow, timeout=limit, computes=computes)


def judge(
    facts: Facts, compat: Compat, observed: Observation | None = None, *, image: InImage | None = None
) -> Report:
    """The last part of `examine`: all rules, and what leads."""
    from tfdoctor.report.diagnose import diagnose

    return diagnose(facts, compat, observed, image=image)


def ask_python(system: System, chosen: Choice, *, named: bool, timeout: float = LOOKING) -> Fact[PythonFacts]:
    """What the chosen Python says of itself, and nothing else. `named`: somebody asked for it by name.

    Raises UsageError where one that was named is none.
    """
    from tfdoctor.probes import python

    with stopping(system):
        found, _ = python.probe(system, chosen, asked=named, timeout=timeout)
    return found
