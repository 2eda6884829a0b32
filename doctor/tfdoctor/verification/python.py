"""Verify TensorFlow in a Python installation on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.diagnosis import examine
from tfdoctor.verification.session import VerificationRun, complete_request, count_expected_gpus, ignore_stage
from tfdoctor.verification.simulate.build import build_software_gpu
from tfdoctor.verification.simulate.facts import RealGpuFilter
from tfdoctor.verification.target_stages import PROBE_TIMEOUT_S, run_stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.compat import Compat
    from tfdoctor.core.findings import Stage, Verification
    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.system import System
    from tfdoctor.verification.session import VerifyRequest

__all__ = ["verify_python"]


def verify_python(
    system: System,
    compat: Compat,
    python: str | None,
    request: VerifyRequest,
    *,
    on_stage: Callable[[Stage], None] = ignore_stage,
    progress: Progress | None = None,
) -> Verification:
    """Verify TensorFlow in a Python installation on this machine.

    If `request.simulated` is set, `system` must have the variables that `add_stand_in` returns. `progress` shows long
    operations outside the stages. Raise UsageError if the Python is not found.
    """
    request = complete_request(
        replace(request, stages=tuple(name for name in request.stages if name != "runtime"))
    )
    simulation = RealGpuFilter() if request.simulated_gpus is not None else None
    report = examine(system, compat, python=python, timeout=PROBE_TIMEOUT_S, modify_facts=simulation)
    interpreter = value_of(report.facts.python)
    run = VerificationRun(
        interpreter.executable if interpreter is not None else str(python), request, on_stage
    )
    run.other_libcuda = simulation.other_libcuda if simulation is not None else None
    if request.simulated_gpus is not None:
        run.build_software_gpu = lambda libraries, glibc: str(
            build_software_gpu(libraries, system.env, glibc=glibc, progress=progress)
        )
    if run.expected_count is None:
        run.expected_count = count_expected_gpus(report.facts, request.gpus)
    run_stages(run, system, compat, report)
    return run.make_result()
