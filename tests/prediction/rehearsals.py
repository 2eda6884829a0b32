"""Environments as their lock has them, and results of a rehearsed import, for tests."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import COMPAT, SITE, healthy, with_python
from tfdoctor.core.facts import Distribution, Known
from tfdoctor.core.facts.imports import RehearsalFacts
from tfdoctor.prediction.rehearsal import plan_rehearsal

VERSION = "2.20.0"
REQUIRES = {
    "tensorflow": (
        "absl-py>=1.0.0",
        "numpy>=1.26.0",
        "ml-dtypes<1.0.0,>=0.5.1",
        "keras>=3.10.0",
        "protobuf>=5.28.0",
        "tensorflow-io-gcs-filesystem>=0.23.1; python_version < '3.12' and sys_platform == 'win32'",
        "nvidia-cublas-cu12<13.0,>=12.5.3.2; extra == 'and-cuda'",
    ),
    "keras": ("absl-py", "numpy", "h5py", "ml-dtypes", "rich", "namex", "optree", "packaging"),
    "h5py": ("numpy>=1.21.2",),
    "ml-dtypes": ("numpy>=1.21",),
    "optree": ("typing-extensions>=4.12",),
}


def make_facts(changes=(), *, version: str = VERSION, python: str = "3.11", **fields):
    """Return facts of TensorFlow's locked distributions, with the requirements that matter here.

    `changes` is a map of names to versions; None removes a distribution. `fields` has further fields by name.
    """
    locked = COMPAT.locks.get_lock("tensorflow", version, python)
    assert locked is not None
    versions = {**locked.versions, **dict(changes)}
    distributions = tuple(
        replace(
            Distribution(name, locked_version, SITE, "pip", requires=REQUIRES.get(name, ())),
            **fields.get(name, {}),
        )
        for name, locked_version in versions.items()
        if locked_version is not None
    )
    return with_python(healthy(version), distributions=distributions, version=f"{python}.4")


def with_rehearsal(facts, *answers, source=None, keras=(), oddities=()):
    """Return facts with these results of a rehearsed import."""
    rehearsal = RehearsalFacts(tuple(oddities), answers, source, tuple(keras))
    return replace(facts, rehearsal=Known(rehearsal, "a child"))


def list_keras_modules(facts):
    """Return the modules of Keras that would be imported with a stand-in for TensorFlow."""
    plan = plan_rehearsal(facts.python.value, facts.tensorflow.value, facts.environment.variables, COMPAT)
    return plan.keras_modules if plan is not None else ()


def plan_modules(facts):
    """Return the modules that would be rehearsed, and the modules of the oddities."""
    plan = plan_rehearsal(facts.python.value, facts.tensorflow.value, facts.environment.variables, COMPAT)
    if plan is None:
        return set(), set()
    return {name for name, _ in plan.modules}, {oddity.module for oddity in plan.reasons}
