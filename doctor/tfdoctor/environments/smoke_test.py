"""Test an installed environment: examine it as `tfdoctor check` does, and run its TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Severity
from tfdoctor.diagnosis import examine
from tfdoctor.diagnosis.areas import find_area
from tfdoctor.environments.install_state import INSTALLING_VARIABLE
from tfdoctor.prediction.build import describe_build
from tfdoctor.rules.base import CUDA, CUDNN, LOADER, TENSORFLOW
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Report
    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.environments.install import InstallRequest

__all__ = ["examine_installed", "is_gpu_missing", "is_intact"]

ENVIRONMENT_AREAS = frozenset({CUDA, CUDNN, LOADER, TENSORFLOW})
"""The areas of findings about an environment, as opposed to the machine."""
CHECK_TIMEOUT_S = 20.0
"""The time limit in seconds for the examination."""


def examine_installed(
    request: InstallRequest, compat: Compat, progress: Progress, *, run_tensorflow: bool
) -> Report:
    """Examine the environment as `tfdoctor check` does.

    If `run_tensorflow`, TensorFlow is also run, provided that the driver reports a GPU.
    """
    # With these variables of the caller, another Python or other packages would be examined.
    removed_names = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", INSTALLING_VARIABLE}
    env = {name: value for name, value in request.env.items() if name not in removed_names}
    system = LiveSystem(env=env)
    python = str(request.folder / "bin" / "python")

    def should_run(facts: Facts) -> bool:
        cuda = value_of(facts.driver.cuda)
        return run_tensorflow and cuda is not None and bool(cuda.devices)

    return examine(
        system,
        compat,
        python=python,
        timeout=CHECK_TIMEOUT_S,
        deep=should_run,
        on_message=progress.begin_stage,
    )


def is_intact(report: Report) -> bool:
    """Return whether no problem was found in the environment, apart from missing driver libraries."""
    tensorflow, prediction = value_of(report.facts.tensorflow), report.prediction
    has_environment_error = any(
        finding.severity is Severity.ERROR and find_area(finding) in ENVIRONMENT_AREAS
        for finding in report.findings
    )
    if tensorflow is None or has_environment_error or prediction.import_ok is False:
        return False
    driver_libraries = describe_build(tensorflow, Compat.load()).driver_libraries
    if set(prediction.missing_libraries) - set(driver_libraries):
        return False
    return report.observed is None or report.observed.import_ok


def is_gpu_missing(report: Report) -> bool:
    """Return whether TensorFlow was run and registered no GPU although that was predicted.

    A GPU that was registered but failed to compute does not count: the environment is not the cause.
    """
    observed = report.observed
    return (
        observed is not None and observed.gpu_registered is False and report.prediction.gpu_registered is True
    )
