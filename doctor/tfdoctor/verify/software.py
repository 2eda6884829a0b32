"""Computing beside stand-ins: TensorFlow's own kernels, from the PTX of its wheel, on a GPU that is software.

What it computes right is shown. What it cannot compute says nothing of the image: such a stage is never red.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat.fat_binaries import newest_text
from tfdoctor.errors import Error
from tfdoctor.simulate.compute_libraries import LibrarySet
from tfdoctor.simulate.request import make_software_variables
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.text import clean_line
from tfdoctor.verify.stages import Limits, read_answer

if TYPE_CHECKING:
    from tfdoctor.facts import PythonFacts
    from tfdoctor.predict import Build
    from tfdoctor.simulate.kernels import Binaries
    from tfdoctor.system import System
    from tfdoctor.verify.session import Verifying
    from tfdoctor.verify.stages import PayloadAnswer

__all__ = ["COMPUTING", "NOT_SIMULATED", "run_computing"]

COMPUTING = ("compute", "cudnn", "nccl")
"""The stages for which a card has to compute."""
NOT_SIMULATED = "not simulated: a stand-in computes nothing"
SHOWN = {
    "compute": "products are right where software runs TensorFlow's kernels from their PTX",
    "cudnn": "a convolution, forward and backward, is right there",
    "nccl": "an all-reduce is right there",
}
LIMITS = Limits(importing=180.0, visible=120.0, compute=120.0, cudnn=120.0, nccl=60.0)
"""Seconds; what is computed takes less than one."""


def run_computing(
    run: Verifying, system: System, python: PythonFacts, build: Build, binaries: Binaries, said: str
) -> None:
    """Run the requested computing stages, if what they need is available. `said`: about the kernels."""
    answer, why = _try_computing(run, system, python, build, binaries)
    for name in (one for one in COMPUTING if one in run.wish.stages):
        end = f". There is {said}" if name == "compute" else ""
        stage = answer.stage(name) if answer is not None else None
        if stage is not None and stage.status == "passed":
            run.add(name, "passed", f"in software: {stage.detail}{end}", stage.seconds)
            run.shown_by_simulation += (SHOWN[name],)
            if name == "compute" and answer is not None:
                run.computed = answer.count_computed()
                run.visible = len(answer.devices) if run.visible is None else run.visible
            continue
        if stage is not None and stage.status == "skipped":
            run.add(name, "skipped", stage.detail)
            continue
        told = why or (stage.detail if stage is not None else _explain_skipped(answer))
        told = told if why else f"not computed in software: {told}"
        run.add(name, "skipped", f"{told.rstrip('. ')}{end}" if end else told)


def _try_computing(
    run: Verifying, system: System, python: PythonFacts, build: Build, binaries: Binaries
) -> tuple[PayloadAnswer | None, str]:
    """Return what TensorFlow computed, or why it was not tried."""
    text = newest_text(binaries.counts)
    if run.software is None:
        return None, NOT_SIMULATED
    if text is None:
        return None, "not computed in software: that runs PTX, and there is machine code alone"
    wanted = _list_libraries(build)
    if wanted is None:
        return None, "not computed in software: which CUDA libraries this TensorFlow opens is not known"
    limit = versions.numbers(python.glibc) if python.glibc and versions.is_version(python.glibc) else None
    try:
        folder = run.software(wanted, limit)
    except (Error, OSError) as error:
        said = f"{error.message.rstrip('.')}. {error.hint or ''}" if isinstance(error, Error) else str(error)
        return None, clean_line(f"not computed in software: {said}", limit=600)
    stages = ["import", "visible", *(name for name in COMPUTING if name in run.wish.stages)]
    limits = Limits(
        **{
            _field(name): min(LIMITS.get_limit(name), run.wish.limits.get_limit(name))
            for name in LIMITS.as_json()
        }
    )
    asked = {"stages": stages, "small": True, "limits": limits.as_json()}
    with stop_on_signal(system):
        _, result = run_payload(
            system,
            python.executable,
            "stages",
            [json.dumps(asked)],
            timeout=limits.total(stages) + 15,
            env=make_software_variables(system.env, folder, text),
            unset=("TF_CPP_MAX_VLOG_LEVEL",),
            variant="software",
        )
    return read_answer(result, limits), ""


def _list_libraries(build: Build) -> LibrarySet | None:
    """Return the libraries that it opens.

    Its build information has cuDNN's major number alone, and it refuses one older than it was built with.
    """
    release, cudnn = build.release, build.cudnn
    if release is not None and release.cudnn is not None and cudnn is not None:
        same = versions.numbers(cudnn)[:1] == versions.numbers(release.cudnn)[:1]
        cudnn = release.cudnn if same else cudnn
    if build.cuda is None or cudnn is None or not build.required:
        return None
    return LibrarySet(build.required, build.cuda, cudnn)


def _field(name: str) -> str:
    return "importing" if name == "import" else name


def _explain_skipped(answer: PayloadAnswer | None) -> str:
    """Return why a stage was not reached."""
    failed = next((one for one in answer.stages if one.status == "failed"), None) if answer else None
    return f"{failed.name} failed there: {failed.detail}" if failed is not None else "it was not come to"
