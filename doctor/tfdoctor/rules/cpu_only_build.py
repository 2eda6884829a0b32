"""The installed TensorFlow has no GPU code.

What it means
-------------
Some TensorFlow packages are built for the CPU alone: tensorflow-cpu, Intel's, conda's `mkl` and `eigen` builds,
the plain `tensorflow` before 1.15 and in 1.15.2 to 1.15.5 and 2.0, and the wheels for ARM and macOS. They never use
a GPU, whichever driver and CUDA are installed.

How it is seen
--------------
build_info.py and cuda_config.h of the installation say whether it was built with CUDA; if they do not,
the release table does.

What to do
----------
Replace it with the package that has GPU code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.build import list_installed_builds
from tfdoctor.prediction.fit.compatibility import can_use_release
from tfdoctor.remedies.pip import format_check_command, format_pip_uninstall, quote
from tfdoctor.remedies.releases import (
    find_best_release,
    make_recommend_remedy,
    make_release_remedy,
    make_replacement_remedy,
)
from tfdoctor.remedies.user_permissions import needs_new_environment
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

if TYPE_CHECKING:
    from tfdoctor.compat import Release
    from tfdoctor.core.facts import TensorFlowFacts
    from tfdoctor.prediction.build import Build

CONDA_CUDA_SPECIFICATION = "'tensorflow=*=cuda*'"
"""conda's specification for conda-forge's CUDA builds, quoted for a shell command."""


def check(context: RuleContext) -> Result:
    build, tensorflow = context.build, context.tensorflow
    if build is None or tensorflow is None:
        return NotApplicable("there is no TensorFlow")
    if build.is_rocm:
        return NotApplicable("this is a ROCm build, for AMD GPUs")
    if build.has_gpu_code is None:
        return CouldNotCheck("whether this build has GPU code could not be determined from its files")
    if build.has_gpu_code:
        return ()
    if context.prediction.cause is Cause.WINDOWS_NATIVE_UNSUPPORTED:
        return NotApplicable("no TensorFlow of this version has GPU code on Windows: TFD305 reports it")
    if context.prediction.cause is Cause.SHADOWED_MODULE:
        return NotApplicable("another TensorFlow, which has, is behind this one: TFD703 reports it")
    if len(list_installed_builds(context.facts)) > 1:
        return NotApplicable("two packages are installed over each other: TFD304 reports it")
    name = tensorflow.distribution or "TensorFlow"
    title = f"{name} {build.version or ''} has no GPU code".replace("  ", " ")  # without a version
    remedies = _build_remedies(context, build, tensorflow)
    if drivers.has_no_gpu(context):
        title += ", and no NVIDIA GPU is visible here"
        cpu_text = (
            "Nothing, if the CPU is enough: TensorFlow works here on the CPU."
            if drivers.can_use_cpu(context)
            else "If the CPU is enough, keep this TensorFlow."
        )
        remedies = [
            Remedy(cpu_text),
            # Without a GPU this changes nothing, so that `fix` must not do it.
            *(replace(remedy, text=f"Once there is a GPU: {remedy.text}", steps=()) for remedy in remedies),
        ]
    return [
        RULE.make_finding(
            Cause.CPU_ONLY_BUILD,
            Severity.ERROR,
            f"{_explain_cpu_build(context, build, tensorflow)} It can never use a GPU.",
            title=title,
            evidence=_list_evidence(context, tensorflow),
            remedies=remedies,
        )
    ]


def _explain_cpu_build(context: RuleContext, build: Build, tensorflow: TensorFlowFacts) -> str:
    """Return a sentence that says why this build has no GPU code."""
    name, machine = tensorflow.distribution or "", context.facts.machine
    if tensorflow.conda_build:
        return f"This is conda's build {tensorflow.conda_build}, made for the CPU."
    if machine.system == "Darwin":
        return "On macOS TensorFlow has no CUDA."
    if machine.machine.lower() in {"aarch64", "arm64"}:
        return "The wheels for 64-bit ARM are built for the CPU."
    distribution = context.compat.find_distribution(name) if name else None
    explanation = (
        distribution.explain_missing_gpu_code(build.minor_numbers)
        if distribution is not None and build.version is not None
        else None
    )
    if explanation is not None:
        return explanation
    return (
        distribution.note
        if distribution is not None and distribution.gpu is False
        else "This build was made without CUDA."
    )


def _list_evidence(context: RuleContext, tensorflow: TensorFlowFacts) -> list[Evidence]:
    """Return evidence from the installed files, the distribution and conda about the kind of build."""
    evidence = []
    is_cuda_build = tensorflow.build_info.get("is_cuda_build")
    if is_cuda_build is not None:
        evidence.append(
            Evidence(
                f"{tensorflow.core_dir}/python/platform/build_info.py", f"is_cuda_build: {is_cuda_build}"
            )
        )
    owner = (
        context.python.find_distribution(tensorflow.distribution or "")
        if context.python is not None
        else None
    )
    if owner is not None:
        evidence.append(Evidence(owner.location, f"{owner.name} {owner.version}"))
    if tensorflow.conda_build:
        evidence.append(Evidence("conda-meta", f"build {tensorflow.conda_build}"))
    return evidence


def _build_remedies(context: RuleContext, build: Build, tensorflow: TensorFlowFacts) -> list[Remedy]:
    """Return the remedy that replaces the build with one that has GPU code, if this machine can use one."""
    machine, python = context.facts.machine, context.python
    if machine.jetson:
        return [
            Remedy(
                "On a Jetson, TensorFlow for the GPU comes from NVIDIA, built for the version of JetPack; the first "
                'command shows that version. NVIDIA\'s guide is called "Installing TensorFlow for Jetson Platform". '
                "Its container images for Jetson are the other way.",
                (
                    "cat /etc/nv_tegra_release",
                    format_pip_uninstall(context.target, [tensorflow.distribution or "tensorflow"]),
                ),
            )
        ]
    if machine.system == "Darwin" or machine.machine.lower() in {"aarch64", "arm64"}:
        return [Remedy("On this machine TensorFlow uses the CPU: there is no CUDA wheel to change to.")]
    if tensorflow.conda_build and python is not None and python.conda_prefix is not None:
        prefix = quote(python.conda_prefix)
        return [
            Remedy(
                "Let conda choose the build with CUDA (the variable tells it that there is a driver, in "
                "case it does not detect "
                "one).",
                (
                    f"CONDA_OVERRIDE_CUDA=12.0 conda install --prefix {prefix} -c conda-forge {CONDA_CUDA_SPECIFICATION}",
                    format_check_command(context.target),
                ),
                replaces=True,
            )
        ]
    current = tensorflow.distribution or "tensorflow"
    same_version = _find_same_version(context, build)
    if same_version is not None:
        text = f"Install {same_version.package} {same_version.version}, which has GPU code, in its place."
        return [make_replacement_remedy(context.target, (current,), same_version, text)]
    best = find_best_release(context.target)
    if best is None:
        return [make_recommend_remedy()]
    name = f"TensorFlow {best.version}"
    if needs_new_environment(context.target):
        text = f"Make your own environment with {name}, the best for this machine and Python."
        return [make_release_remedy(context.target, best, text)]
    text = f"Install {name} in its place, the best with GPU code for this machine and Python."
    return [replace(make_replacement_remedy(context.target, (current,), best, text), steps=())]


def _find_same_version(context: RuleContext, build: Build) -> Release | None:
    """Return the release of this version that has GPU code and works here; None if there is none."""
    python = context.python
    if build.version is None or python is None:
        return None
    for package in ("tensorflow", "tensorflow-gpu"):
        release = context.compat.find_release(build.version, package)
        if (
            release is not None
            and release.gpu
            and can_use_release(context.compat, release, context.target.host, python.version)
        ):
            return release
    return None


RULE = Rule(
    "TFD303",
    "cpu-only-build",
    "This TensorFlow has no GPU code",
    (Cause.CPU_ONLY_BUILD,),
    check,
    short_title="no GPU code",
    needs=(prerequisites.require_tensorflow,),
    fix_order=13,
)
