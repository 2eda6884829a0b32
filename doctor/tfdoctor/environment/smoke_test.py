"""A test of an installed environment: an examination as by `check`, and a run of its TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.environment.install_state import INSTALLING
from tfdoctor.examine import examine
from tfdoctor.facts import value_of
from tfdoctor.findings import Severity
from tfdoctor.predict import describe_build
from tfdoctor.report.areas import find_area
from tfdoctor.rules.base import CUDA, CUDNN, LOADER, TENSORFLOW
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from tfdoctor.environment.install import InstallRequest
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Finding, Report
    from tfdoctor.report.progress import Progress

__all__ = ["examine_installed", "is_gpu_missing", "is_intact"]

ENVIRONMENT_AREAS = frozenset({CUDA, CUDNN, LOADER, TENSORFLOW})
"""The areas that concern the content of an environment."""
CHECK_TIMEOUT_S = 20.0
"""The time limit in seconds for the examination."""


def examine_installed(making: InstallRequest, compat: Compat, progress: Progress, *, deep: bool) -> Report:
    """Examine the environment as `check` does; with `deep` run its TensorFlow if the driver offers a GPU."""
    removed = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", INSTALLING}
    env = {name: text for name, text in making.env.items() if name not in removed}
    system = LiveSystem(env=env)
    python = str(making.folder / "bin" / "python")

    def with_a_card(facts: Facts) -> bool:
        cuda = value_of(facts.driver.cuda)
        return deep and cuda is not None and bool(cuda.devices)

    return examine(
        system, compat, python=python, timeout=CHECK_TIMEOUT_S, deep=with_a_card, tell=progress.stage
    )


def _list_own_errors(report: Report) -> list[Finding]:
    """Return the errors of the environment itself: of its libraries and its packages."""
    return [
        finding
        for finding in report.findings
        if finding.severity is Severity.ERROR and find_area(finding) in ENVIRONMENT_AREAS
    ]


def is_intact(report: Report) -> bool:
    """Return whether no problem of the environment itself was found."""
    tensorflow, prediction = value_of(report.facts.tensorflow), report.prediction
    if tensorflow is None or _list_own_errors(report) or prediction.import_ok is False:
        return False
    drivers = describe_build(tensorflow, Compat.load()).driver_libraries
    if set(prediction.missing_libraries) - set(drivers):
        return False
    return report.observed is None or report.observed.import_ok


def is_gpu_missing(report: Report) -> bool:
    """Return whether TensorFlow was run and did not register the GPUs that were predicted.

    A problem of the machine, or a GPU that registers but does not compute, is not a problem of the environment.
    """
    observed = report.observed
    return (
        observed is not None and observed.gpu_registered is False and report.prediction.gpu_registered is True
    )
