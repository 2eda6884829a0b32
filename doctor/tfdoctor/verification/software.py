"""Run the computing stages of a simulation on a software GPU, which executes TensorFlow's PTX.

Correct results are reported. A failed computation may be the software GPU's fault, so its stage counts as skipped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfdoctor.compat.fat_binaries import find_newest_ptx
from tfdoctor.core import versions
from tfdoctor.core.errors import Error
from tfdoctor.core.text import clean_line
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.verification.simulate.compute_libraries import LibrarySet
from tfdoctor.verification.simulate.request import make_software_variables
from tfdoctor.verification.stages import Limits, parse_payload_results

if TYPE_CHECKING:
    from tfdoctor.core.facts import PythonFacts
    from tfdoctor.prediction.build import Build
    from tfdoctor.system import System
    from tfdoctor.verification.session import VerificationRun
    from tfdoctor.verification.simulate.kernels import GpuCode
    from tfdoctor.verification.stages import PayloadResults

__all__ = ["COMPUTING_STAGES", "NOT_SIMULATED", "run_computing_stages"]

COMPUTING_STAGES = ("compute", "cudnn", "nccl")
"""Stages in which the GPUs compute."""
NOT_SIMULATED = "not simulated: a stand-in computes nothing"
COMPUTED_MEANINGS = {
    "compute": "products are right where software runs TensorFlow's kernels from their PTX",
    "cudnn": "a convolution, forward and backward, is right there",
    "nccl": "an all-reduce is right there",
}
"""Phrases for what a passed stage shows on a software GPU."""
SOFTWARE_LIMITS = Limits(importing=180.0, visible=120.0, compute=120.0, cudnn=120.0, nccl=60.0)
"""Time limits in seconds. The computation itself takes less than a second."""


def run_computing_stages(
    run: VerificationRun,
    system: System,
    python: PythonFacts,
    build: Build,
    gpu_code: GpuCode,
    kernel_description: str,
) -> None:
    """Run the requested computing stages, and record their results.

    `kernel_description` describes the GPU code in the fat binaries.
    """
    results, reason = _run_payload(run, system, python, build, gpu_code)
    for name in (stage_name for stage_name in COMPUTING_STAGES if stage_name in run.verify_request.stages):
        kernel_note = f". There is {kernel_description}" if name == "compute" else ""
        stage = results.find_stage(name) if results is not None else None
        if stage is not None and stage.status == "passed":
            run.record_stage(name, "passed", f"in software: {stage.detail}{kernel_note}", stage.seconds)
            run.simulation_results += (COMPUTED_MEANINGS[name],)
            if name == "compute" and results is not None:
                run.computed_count = results.count_correct_gpus()
                run.visible_count = (
                    len(results.device_names) if run.visible_count is None else run.visible_count
                )
            continue
        if stage is not None and stage.status == "skipped":
            run.record_stage(name, "skipped", stage.detail)
            continue
        detail = reason or (stage.detail if stage is not None else _explain_skipped(results))
        # A reason already begins with these words.
        detail = detail if reason else f"not computed in software: {detail}"
        run.record_stage(name, "skipped", f"{detail.rstrip('. ')}{kernel_note}" if kernel_note else detail)


def _run_payload(
    run: VerificationRun, system: System, python: PythonFacts, build: Build, gpu_code: GpuCode
) -> tuple[PayloadResults | None, str]:
    """Return the payload's results and "", or (None, reason) if the computation was not tried."""
    ptx = find_newest_ptx(gpu_code.binary_counts)
    if run.build_software_gpu is None:
        return None, NOT_SIMULATED
    if ptx is None:
        return None, "not computed in software: that runs PTX, and there is machine code alone"
    libraries = _list_libraries(build)
    if libraries is None:
        return None, "not computed in software: which CUDA libraries this TensorFlow opens is not known"
    glibc = (
        versions.parse_numbers(python.glibc) if python.glibc and versions.is_version(python.glibc) else None
    )
    try:
        folder = run.build_software_gpu(libraries, glibc)
    except (Error, OSError) as error:
        reason = (
            f"{error.message.rstrip('.')}. {error.hint or ''}" if isinstance(error, Error) else str(error)
        )
        return None, clean_line(f"not computed in software: {reason}", limit=600)
    stages = ["import", "visible", *(name for name in COMPUTING_STAGES if name in run.verify_request.stages)]
    requested_limits = run.verify_request.limits.as_json()
    limits = Limits(
        *(min(seconds, requested_limits[name]) for name, seconds in SOFTWARE_LIMITS.as_json().items())
    )
    request = {"stages": stages, "small": True, "limits": limits.as_json()}
    with stop_on_signal(system):
        _, result = run_payload(
            system,
            python.executable,
            "stages",
            [json.dumps(request)],
            timeout=limits.sum_limits(stages) + 15,  # seconds to start Python and to end
            env=make_software_variables(system.env, folder, ptx),
            unset=("TF_CPP_MAX_VLOG_LEVEL",),
            variant="software",
        )
    return parse_payload_results(result, limits), ""


def _list_libraries(build: Build) -> LibrarySet | None:
    """Return the libraries that TensorFlow opens; None if they are unknown.

    The build information contains only the major version of cuDNN, but TensorFlow rejects a cuDNN that is older than
    the one it was built with. So the exact version of the release is used if its major version is the same.
    """
    release, cudnn = build.release, build.cudnn
    if release is not None and release.cudnn is not None and cudnn is not None:
        is_same_major = versions.parse_numbers(cudnn)[:1] == versions.parse_numbers(release.cudnn)[:1]
        cudnn = release.cudnn if is_same_major else cudnn
    if build.cuda is None or cudnn is None or not build.required_libraries:
        return None
    return LibrarySet(build.required_libraries, build.cuda, cudnn)


def _explain_skipped(results: PayloadResults | None) -> str:
    """Return why a stage was not reached: because another stage failed, or for an unknown reason."""
    failed_stage = (
        next((stage for stage in results.stages if stage.status == "failed"), None) if results else None
    )
    return (
        f"{failed_stage.name} failed there: {failed_stage.detail}"
        if failed_stage is not None
        else "it was not come to"
    )
