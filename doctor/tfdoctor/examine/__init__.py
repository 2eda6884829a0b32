"""Look at a machine, run TensorFlow where asked, judge: what every command does that says something of a machine.

Nobody else knows the parts, which are loaded when they are needed. While they are at work a signal that asks us to end
is heard: what was started is killed, and the exception is raised even where CPython has dropped it in one of its own
callbacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import value_of
from tfdoctor.probes.interpreter_selection import choose, kernel_variables, state_of
from tfdoctor.probes.target import begin
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.advice.target import InImage
    from tfdoctor.compat import Compat
    from tfdoctor.facts import Fact, Facts, PythonFacts
    from tfdoctor.facts.python import Choice
    from tfdoctor.findings import Observation, Report
    from tfdoctor.system import System

__all__ = [
    "PROBE_TIMEOUT_S",
    "RUNNING",
    "ask_python",
    "begin",
    "choose",
    "collect_facts",
    "evaluate_facts",
    "examine",
    "kernel_variables",
    "live_machine",
    "run_tensorflow",
    "state_of",
]

PROBE_TIMEOUT_S = 10.0
"""Seconds that looking may take."""
RUNNING = "Running TensorFlow in a child process; this takes some seconds …"


def live_machine(python: str | None, env: Mapping[str, str] | None = None) -> LiveSystem:
    """Return this machine with the variables that the Jupyter kernel of that Python sets.

    `env`: others than those that this process was started with.
    """
    system = LiveSystem(env=env)
    more = kernel_variables(system, python) if python else {}
    return LiveSystem(env={**system.env, **more}) if more else system


def _ignore_text(text: str) -> None:
    """Ignore a text."""


def examine(
    system: System,
    compat: Compat,
    *,
    python: str | None = None,
    timeout: float = PROBE_TIMEOUT_S,
    deep: bool | Callable[[Facts], bool] = False,
    tell: Callable[[str], None] = _ignore_text,
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
    facts = collect_facts(system, compat, python=python, timeout=timeout, meanwhile=meanwhile)
    if as_if is not None:
        facts = as_if(facts)
    run = deep(facts) if callable(deep) else deep
    computes = as_if is None
    observed = (
        run_tensorflow(system, compat, facts, timeout=timeout, tell=tell, computes=computes) if run else None
    )
    return evaluate_facts(facts, compat, observed, image=image)


def collect_facts(
    system: System,
    compat: Compat,
    *,
    python: str | None = None,
    timeout: float = PROBE_TIMEOUT_S,
    meanwhile: Callable[[], object] | None = None,
) -> Facts:
    """Collect the facts, the first part of `examine`, without any conclusion."""
    from tfdoctor.examine import collect

    with stop_on_signal(system):
        return collect.survey(system, compat, requested_python=python, timeout=timeout, meanwhile=meanwhile)


def run_tensorflow(
    system: System,
    compat: Compat,
    facts: Facts,
    *,
    timeout: float = PROBE_TIMEOUT_S,
    tell: Callable[[str], None] = _ignore_text,
    computes: bool = True,
) -> Observation | None:
    """Run TensorFlow in a child process of its Python; None if there is no Python or no TensorFlow.

    `timeout`: seconds, at least those that a first kernel may take. `computes`: else it lists its GPUs, no
    more.
    """
    interpreter, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if interpreter is None or tensorflow is None:
        return None
    from tfdoctor.examine.tensorflow_run import DEEP_TIMEOUT, observe

    tell(RUNNING)
    with stop_on_signal(system):
        limit = max(timeout, DEEP_TIMEOUT)
        return observe(system, compat, interpreter.executable, tensorflow, timeout=limit, computes=computes)


def evaluate_facts(
    facts: Facts, compat: Compat, observed: Observation | None = None, *, image: InImage | None = None
) -> Report:
    """Run all rules on the facts, the last part of `examine`."""
    from tfdoctor.report.diagnose import diagnose

    return diagnose(facts, compat, observed, image=image)


def ask_python(
    system: System, chosen: Choice, *, named: bool, timeout: float = PROBE_TIMEOUT_S
) -> Fact[PythonFacts]:
    """Ask the chosen Python about itself, and nothing else. `named`: the user named it.

    Raises UsageError where one that was named is none.
    """
    from tfdoctor.probes import python

    with stop_on_signal(system):
        found, _ = python.probe(system, chosen, asked=named, timeout=timeout)
    return found
