"""XLA will not find libdevice and ptxas.

What it means
-------------
XLA compiles for the GPU when a program runs (`jit_compile=True`, which Keras 3 sets by itself on a GPU, and
which the optimizers of Keras 2.11 to 2.15 use). It needs two parts of the CUDA compiler that no TensorFlow
wheel has: libdevice and ptxas. Without them training stops with "libdevice not found at ./libdevice.10.bc".

How it is seen
--------------
The check searches the same locations as TensorFlow: the folder that XLA_FLAGS names, NVIDIA's wheel nvidia-cuda-nvcc (from
2.14 on), /usr/local/cuda, and the folder of the toolkit that it was built with.

What to do
----------
Install NVIDIA's wheel, or set XLA_FLAGS to a toolkit's folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install, SetVariable
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command, format_pip_install, quote
from tfdoctor.remedies.wheels import get_site_packages
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import CudaToolkit
    from tfdoctor.prediction.build import Build

DATA_DIR_FLAG = "--xla_gpu_cuda_data_dir="
"""The flag in XLA_FLAGS that names the folder of a CUDA toolkit."""


def check(context: RuleContext) -> Result:
    build, python = context.build, context.python
    if build is None or not build.has_gpu_code or not build.has_trait("xla-by-itself"):
        return NotApplicable("this TensorFlow does not compile with XLA on a GPU by itself")
    if not context.prediction.gpu_registered:
        return NotApplicable("no GPU will be registered, for which XLA could compile")
    if python is None:
        return CouldNotCheck("which wheels are installed is not known")
    if context.tensorflow is not None and context.tensorflow.conda_build:
        return NotApplicable("conda's TensorFlow brings its own libdevice")
    toolkits = [toolkit for toolkit in context.facts.toolkits if toolkit.libdevice and toolkit.ptxas]
    if any(is_searched_toolkit(context, build, toolkit) for toolkit in toolkits):
        return ()
    project = f"nvidia-cuda-nvcc-cu{versions.major(build.cuda)}" if build.cuda else ""
    if build.has_trait("libdevice-of-wheels") and any(
        distribution.name == project for distribution in python.distributions
    ):
        return ()
    return [
        RULE.make_finding(
            Cause.LIBDEVICE_OR_PTXAS_MISSING,
            Severity.WARNING,
            "The GPU is registered and ordinary operations work. What XLA compiles, such as the training "
            "step of "
            "Keras, needs libdevice and ptxas, which are in none of the places where this TensorFlow looks.",
            title="XLA will not find libdevice and ptxas",
            evidence=_list_evidence(context, build, project),
            remedies=_build_remedies(context, build, project, toolkits),
        )
    ]


def is_searched_toolkit(context: RuleContext, build: Build, toolkit: CudaToolkit) -> bool:
    """Return whether TensorFlow searches this toolkit by itself or through XLA_FLAGS."""
    xla_flags = context.facts.environment.variables.get("XLA_FLAGS", "")
    folders = {"/usr/local/cuda"}
    if build.cuda is not None and build.has_trait("libdevice-of-versioned-toolkit"):
        folders.add(f"/usr/local/cuda-{versions.major_minor(build.cuda)}")
    # a slash after the folder in XLA_FLAGS makes no difference
    return toolkit.path in folders or f"{DATA_DIR_FLAG}{toolkit.path.rstrip('/')}" in xla_flags.replace(
        "/ ", " "
    ).rstrip("/")


def _list_evidence(context: RuleContext, build: Build, project: str) -> list[Evidence]:
    """Return the locations that TensorFlow searches and that lack libdevice or ptxas."""
    evidence = [Evidence("/usr/local/cuda", "no libdevice and ptxas there")]
    if build.has_trait("libdevice-of-wheels"):
        evidence.append(Evidence("installed distributions", f"{project} is not among them"))
    flags = context.facts.environment.variables.get("XLA_FLAGS")
    evidence.append(Evidence("XLA_FLAGS", flags if flags is not None else "is not set"))
    return evidence


def _build_remedies(
    context: RuleContext, build: Build, project: str, toolkits: list[CudaToolkit]
) -> list[Remedy]:
    """Return the remedies: install NVIDIA's wheel, or set XLA_FLAGS to an installed toolkit."""
    remedies: list[Remedy] = []
    pins = build.release.extra_pins if build.is_exact_release and build.release is not None else ()
    requirement = next((pin for pin in pins if versions.parse_project_name(pin) == project), project)
    if build.has_trait("libdevice-of-wheels") and project:
        remedies.append(
            Remedy(
                "Install NVIDIA's wheel with the compiler.",
                (
                    format_pip_install(context.target, [requirement]),
                    format_check_command(context.target),
                ),
                steps=(Install((requirement,)),),
            )
        )
    if toolkits:
        command = f"export XLA_FLAGS={quote(DATA_DIR_FLAG + toolkits[0].path)}"
        step = SetVariable("XLA_FLAGS", DATA_DIR_FLAG + toolkits[0].path)
        remedies.append(
            Remedy(f"Name the toolkit that is there ({toolkits[0].path}).", (command,), steps=(step,))
        )
    elif project in {"nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12"} and not build.has_trait(
        "libdevice-of-wheels"
    ):
        folder = f"{get_site_packages(context.target)}/nvidia/cuda_nvcc"
        command = f"export XLA_FLAGS={quote(DATA_DIR_FLAG + folder)}"
        remedies.append(
            Remedy(
                "Install NVIDIA's wheel with the compiler and name its folder.",
                (format_pip_install(context.target, [project]), command),
                steps=(Install((project,)), SetVariable("XLA_FLAGS", DATA_DIR_FLAG + folder)),
            )
        )
    return remedies


RULE = Rule(
    "TFD208",
    "libdevice-or-ptxas-missing",
    "XLA will not find libdevice and ptxas",
    (Cause.LIBDEVICE_OR_PTXAS_MISSING,),
    check,
    short_title="libdevice and ptxas will not be found",
    needs=(prerequisites.require_tensorflow,),
    fix_order=61,
)
