"""Examine a machine: collect the facts, run TensorFlow if requested, and run the rules.

Other packages use only these functions, which import the modules that they need when they are called. While they run,
a termination signal kills the child processes and raises an exception, even if CPython drops it in a callback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.probes.interpreter_selection import (
    choose_python,
    describe_unusable_environment,
    find_program_python,
    iter_uv_variables,
    read_kernel_variables,
)
from tfdoctor.probes.target import DEFAULT_TIMEOUT_S, extend_timeout, start_query
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Fact, Facts, PythonFacts
    from tfdoctor.core.facts.python import PythonChoice
    from tfdoctor.core.findings import Observation, Report
    from tfdoctor.remedies.target import TargetImage
    from tfdoctor.system import System

__all__ = [
    "PROBE_TIMEOUT_S",
    "RUN_TENSORFLOW_MESSAGE",
    "choose_python",
    "collect_facts",
    "describe_unusable_environment",
    "evaluate_facts",
    "examine",
    "find_program_python",
    "make_live_system",
    "query_chosen_python",
    "read_kernel_variables",
    "run_tensorflow",
    "start_query",
]

PROBE_TIMEOUT_S = DEFAULT_TIMEOUT_S
"""The time limit in seconds for collecting facts."""
RUN_TENSORFLOW_MESSAGE = "Running TensorFlow in a child process; this takes some seconds …"
"""The message that is shown before TensorFlow is run."""


def make_live_system(python: str | None, env: Mapping[str, str] | None = None) -> LiveSystem:
    """Return this machine as a system to examine.

    `env` replaces the environment variables of this process; None keeps them. If `python` is the kernel.json of a
    Jupyter kernel, the variables in that file are added, and otherwise those that `uv run` adds.
    """
    system = LiveSystem(env=env)
    added = (
        read_kernel_variables(system, python)
        if python
        else {name: value for name, value, *_ in iter_uv_variables(system) if name not in system.env}
    )
    return LiveSystem(env={**system.env, **added}) if added else system


def _ignore_message(message: str) -> None:
    """Ignore a message."""


def examine(
    system: System,
    compat: Compat,
    *,
    python: str | None = None,
    timeout: float = PROBE_TIMEOUT_S,
    deep: bool | Callable[[Facts], bool] = False,
    on_message: Callable[[str], None] = _ignore_message,
    meanwhile: Callable[[], object] | None = None,
    image: TargetImage | None = None,
    modify_facts: Callable[[Facts], Facts] | None = None,
) -> Report:
    """Collect the facts, run TensorFlow if requested, and return the report of the rules.

    `python` is the requested interpreter; with None, `choose_python` finds one. `timeout` is the time limit in seconds for
    collecting the facts. `deep` says whether to run TensorFlow, or is a function that decides this from the facts.
    `on_message` is called with a message before TensorFlow is run. `meanwhile` is called while the first probes run (see
    `collect.run_probes`). `image` is the image of the examined container. `modify_facts` replaces the facts with those of a
    simulated driver. Because that driver cannot compute, TensorFlow then only lists its GPUs.

    Raise UsageError if the requested Python cannot be examined.
    """
    facts = collect_facts(
        system, compat, python=python, timeout=timeout, meanwhile=meanwhile, on_message=on_message
    )
    if modify_facts is not None:
        facts = modify_facts(facts)
    runs_tensorflow = deep(facts) if callable(deep) else deep
    computes = modify_facts is None
    observed = (
        run_tensorflow(system, compat, facts, timeout=timeout, on_message=on_message, computes=computes)
        if runs_tensorflow
        else None
    )
    return evaluate_facts(facts, compat, observed, image=image)


def collect_facts(
    system: System,
    compat: Compat,
    *,
    python: str | None = None,
    timeout: float = PROBE_TIMEOUT_S,
    meanwhile: Callable[[], object] | None = None,
    on_message: Callable[[str], None] = _ignore_message,
) -> Facts:
    """Collect the facts as `examine` does, without running the rules. The parameters are the same.

    On a busy machine the time limit is longer. `on_message` is called once if a probe takes long.

    Raise UsageError if the requested Python cannot be examined.
    """
    from tfdoctor.diagnosis import collect

    with stop_on_signal(system):
        return collect.run_probes(
            system,
            compat,
            requested_python=python,
            timeout=extend_timeout(system, timeout),
            meanwhile=meanwhile,
            on_message=on_message,
        )


def run_tensorflow(
    system: System,
    compat: Compat,
    facts: Facts,
    *,
    timeout: float = PROBE_TIMEOUT_S,
    on_message: Callable[[str], None] = _ignore_message,
    computes: bool = True,
) -> Observation | None:
    """Run TensorFlow in a child process. Return None if no Python or no TensorFlow was found.

    The time limit is `timeout` or DEEP_TIMEOUT_S, whichever is longer, in seconds. `on_message` is called with a message
    before the start. If `computes` is false, TensorFlow only lists its GPUs.
    """
    interpreter, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if interpreter is None or tensorflow is None:
        return None
    from tfdoctor.diagnosis.tensorflow_run import DEEP_TIMEOUT_S, observe_tensorflow

    on_message(RUN_TENSORFLOW_MESSAGE)
    with stop_on_signal(system):
        run_timeout = max(timeout, DEEP_TIMEOUT_S)
        return observe_tensorflow(
            system, compat, interpreter.executable, tensorflow, timeout=run_timeout, computes=computes
        )


def evaluate_facts(
    facts: Facts, compat: Compat, observed: Observation | None = None, *, image: TargetImage | None = None
) -> Report:
    """Run all rules on the facts and return the report.

    `observed` is the behaviour of TensorFlow; None means that it was not run.
    """
    from tfdoctor.diagnosis.report import diagnose

    return diagnose(facts, compat, observed, image=image)


def query_chosen_python(
    system: System, choice: PythonChoice, *, is_requested: bool, timeout: float = PROBE_TIMEOUT_S
) -> Fact[PythonFacts]:
    """Return the fact about the chosen Python, without running any other probe.

    `is_requested` says whether the user named this Python. If so, raise UsageError if it is not a Python.
    """
    from tfdoctor.probes import python

    with stop_on_signal(system):
        fact, _ = python.probe(system, choice, is_requested=is_requested, timeout=timeout)
    return fact
