"""Whether what `install` made is right: a look at it as `check` takes it, and a run of its TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.environment.install_state import INSTALLING
from tfdoctor.examine import examine
from tfdoctor.facts import value_of
from tfdoctor.findings import Severity
from tfdoctor.predict import build_of
from tfdoctor.report.areas import find_area
from tfdoctor.rules.base import CUDA, CUDNN, LOADER, TENSORFLOW
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from tfdoctor.environment.install import Making
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Finding, Report
    from tfdoctor.report.progress import Progress

__all__ = ["gpu_is_missing", "is_right", "prove"]

OWN = frozenset({CUDA, CUDNN, LOADER, TENSORFLOW})
"""The areas of what an environment has itself."""
CHECK_TIMEOUT_S = 20.0
"""Seconds that checking what was made may take."""


def prove(making: Making, compat: Compat, told: Progress, *, deep: bool) -> Report:
    """Examine what was made as `check` does; with `deep` run its TensorFlow where the driver shows a GPU."""
    away = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", INSTALLING}
    env = {name: text for name, text in making.env.items() if name not in away}
    system = LiveSystem(env=env)
    python = str(making.folder / "bin" / "python")

    def with_a_card(seen: Facts) -> bool:
        cuda = value_of(seen.driver.cuda)
        return deep and cuda is not None and bool(cuda.devices)

    return examine(system, compat, python=python, timeout=CHECK_TIMEOUT_S, deep=with_a_card, tell=told.stage)


def _list_own_errors(report: Report) -> list[Finding]:
    """Return what is wrong with the environment itself: its libraries and its packages."""
    return [
        finding
        for finding in report.findings
        if finding.severity is Severity.ERROR and find_area(finding) in OWN
    ]


def is_right(report: Report) -> bool:
    """Return whether all that is in the environment is as it must be, as far as that can be told here."""
    tensorflow, prediction = value_of(report.facts.tensorflow), report.prediction
    if tensorflow is None or _list_own_errors(report) or prediction.import_ok is False:
        return False
    drivers = build_of(tensorflow, Compat.load()).driver_libraries
    if set(prediction.missing_libraries) - set(drivers):
        return False
    return report.observed is None or report.observed.import_ok


def gpu_is_missing(report: Report) -> bool:
    """Return whether TensorFlow was run and does not register the GPUs that it must.

    What the machine lacks, or a card that registers and does not compute, is no fault of the environment.
    """
    seen = report.observed
    return seen is not None and seen.gpu_registered is False and report.prediction.gpu_registered is True
