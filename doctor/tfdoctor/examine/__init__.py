"""The steps of examining a machine: collect facts, run TensorFlow if requested, run the rules.

Other packages use only these functions, which load the parts when they are needed. Meanwhile termination signals are
handled: child processes are killed, and the exception is raised even if CPython dropped it in one of its callbacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import value_of
from tfdoctor.probes.interpreter_selection import choose, describe_lost, kernel_variables
from tfdoctor.probes.target import start_query
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.advice.target import TargetImage
    from tfdoctor.compat import Compat
    from tfdoctor.facts import Fact, Facts, PythonFacts
    from tfdoctor.facts.python import Choice
    from tfdoctor.findings import Observation, Report
    from tfdoctor.system import System

__all__ = [
    "PROBE_TIMEOUT_S",
    "RUN_MESSAGE",
    "ask_python",
    "choose",
    "collect_facts",
    "describe_lost",
    "evaluate_facts",
    "examine",
    "kernel_variables",
    "make_live_system",
    "run_tensorflow",
    "start_query",
]

PROBE_TIMEOUT_S = 10.0
"""The time limit in seconds for collecting facts."""
RUN_MESSAGE = "Running TensorFlow in a child process; this takes some seconds …"


def make_live_system(python: str | None, env: Mapping[str, str] | None = None) -> LiveSystem:
    """Return this machine, with the variables that `python` sets if it is a Jupyter kernel.

    `env` replaces the variables that this process was started with.
    """
    system = LiveSystem(env=env)
    kernel_env = kernel_variables(system, python) if python else {}
    return LiveSystem(env={**system.env, **kernel_env}) if kernel_env else system


def _ignore_text(text: str) -> None:
    """Ignore a message."""


def examine(
    system: System,
    compat: Compat,
    *,
    python: str | None = None,
    timeout: float = PROBE_TIMEOUT_S,
    deep: bool | Callable[[Facts], bool] = False,
    tell: Callable[[str], None] = _ignore_text,
    meanwhile: Callable[[], object] | None = None,
    image: TargetImage | None = None,
    as_if: Callable[[Facts], Facts] | None = None,
) -> Report:
    """Collect the facts, run TensorFlow if requested, and return the report of the rules.

    `python` is the requested interpreter; None means the usual search. `timeout` (seconds) is for collecting the
    facts. `deep` says whether to run TensorFlow; a function decides it by the facts. `tell` receives a message before
    that. `meanwhile` is called while the first probes run (see `survey`). `image` is the image whose container this
    is. `as_if` changes the facts before the rules run; TensorFlow then computes nothing, because its GPU is a
    stand-in driver's.

    Raise UsageError if the requested Python cannot be examined.
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
    """Collect the facts without drawing conclusions: the first part of `examine`."""
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
    """Run TensorFlow in a child process of its Python; return None if there is no Python or no TensorFlow.

    `timeout` (seconds) is raised to DEEP_TIMEOUT if it is shorter. `tell` receives a message before the start. Without
    `computes` TensorFlow only lists its GPUs.
    """
    interpreter, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if interpreter is None or tensorflow is None:
        return None
    from tfdoctor.examine.tensorflow_run import DEEP_TIMEOUT, observe

    tell(RUN_MESSAGE)
    with stop_on_signal(system):
        limit = max(timeout, DEEP_TIMEOUT)
        return observe(system, compat, interpreter.executable, tensorflow, timeout=limit, computes=computes)


def evaluate_facts(
    facts: Facts, compat: Compat, observed: Observation | None = None, *, image: TargetImage | None = None
) -> Report:
    """Run all rules on the facts: the last part of `examine`."""
    from tfdoctor.report.diagnose import diagnose

    return diagnose(facts, compat, observed, image=image)


def ask_python(
    system: System, chosen: Choice, *, named: bool, timeout: float = PROBE_TIMEOUT_S
) -> Fact[PythonFacts]:
    """Query the chosen Python about itself alone. `named` says that the user requested it.

    Raise UsageError if the user requested it and it is no Python.
    """
    from tfdoctor.probes import python

    with stop_on_signal(system):
        fact, _ = python.probe(system, chosen, is_requested=named, timeout=timeout)
    return fact
