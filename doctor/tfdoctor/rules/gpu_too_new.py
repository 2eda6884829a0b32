"""The card is newer than the machine code in this TensorFlow.

What it means
-------------
If a GPU is newer than all machine code in a wheel, the driver compiles the wheel's PTX once, which can
take half an hour, and caches the result (in ~/.nv/ComputeCache). If the PTX is specific to one
architecture (sm_90a in TensorFlow 2.16 to 2.20), it cannot be compiled for a newer GPU: operations fail with
CUDA_ERROR_INVALID_PTX. If there is no PTX, nothing runs.

How it is seen
--------------
The compute capability comes from the driver, or from the GPU's PCI id. The code that each wheel contains was
determined from its files.

What to do
----------
Wait once and enlarge the cache, or install a TensorFlow that has code for the GPU. `tfdoctor recommend` compares the
releases and images that work with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import lower_first
from tfdoctor.prediction.fit.constraints import find_exceeded_capability
from tfdoctor.prediction.library_versions import find_cuda_version, find_cudnn_version
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.remedies.releases import find_best_release, make_best_release_remedies, make_recommend_remedy
from tfdoctor.rules.base import GPU, Result, Rule, RuleContext, get_required_value
from tfdoctor.rules.shared import drivers, prerequisites, variable_origins

if TYPE_CHECKING:
    from tfdoctor.compat.problems import Problem
    from tfdoctor.core.facts import CudaDevice
    from tfdoctor.prediction.build import Build

MAX_CACHE_BYTES = 4294967296
"""The maximum of CUDA_CACHE_MAXSIZE (4 GiB). The default is too small for TensorFlow's kernels."""


def check(context: RuleContext) -> Result:
    build, devices = get_required_value(context.build), drivers.list_devices_with_capability(context)
    findings = []
    for capability in dict.fromkeys(device.compute_capability or "" for device in devices):
        same_capability = [device for device in devices if device.compute_capability == capability]
        finding = _find_capability_problem(context, build, capability, same_capability)
        if finding is not None:
            findings.append(finding)
    return findings


def _find_capability_problem(
    context: RuleContext, build: Build, capability: str, devices: list[CudaDevice]
) -> Finding | None:
    """Return the finding about the GPUs of one compute capability; None if there is no problem."""
    code = drivers.find_code_kind(context, capability)
    newest_code = drivers.find_newest_code_capability(context)
    if code == "arch-specific":
        return _build_arch_specific_finding(context, build, capability, devices)
    if code == "none" and newest_code is not None and versions.is_at_least(capability, newest_code):
        return _build_code_gap_finding(context, capability, devices)
    if code == "jit":
        return _build_jit_finding(context, build, capability, devices)
    return _find_cudnn_problem(context, build, capability, devices) if code == "native" else None


def _list_known_problems(context: RuleContext, build: Build, capability: str) -> list[Problem]:
    """Return the known problems of this release that depend on the capability of the GPU alone."""
    release = build.release if build.is_exact_release else None
    if release is None:
        return []
    problems = context.compat.list_problems(
        release.package, release.version, capability=capability, area="gpu"
    )
    return [
        problem
        for problem in problems
        if problem.cause == Cause.GPU_TOO_NEW.value and set(problem.conditions) <= {"capability"}
    ]


def _list_evidence(context: RuleContext, devices: list[CudaDevice]) -> list[Evidence]:
    """Return the compute capability of each GPU, and the newest machine code of the build."""
    is_from_driver = devices[0].ordinal >= 0
    source = "the driver" if is_from_driver else getattr(context.facts.driver.pci, "source", "the PCI bus")
    evidence = [
        Evidence(source, f"{drivers.format_device(device)}: compute capability {device.compute_capability}")
        for device in devices
    ]
    newest_code = drivers.find_newest_code_capability(context)
    if newest_code is not None:
        evidence.append(Evidence("the wheel", f"its newest machine code is for {newest_code}"))
    return evidence


def _build_finding(
    context: RuleContext,
    devices: list[CudaDevice],
    severity: Severity,
    *,
    title: str,
    explanation: str,
    remedies: list[Remedy],
) -> Finding:
    """Return a finding of this rule about these GPUs."""
    if devices[0].ordinal < 0:
        severity = min(severity, Severity.WARNING)  # the missing driver is the more severe problem
    return RULE.make_finding(
        Cause.GPU_TOO_NEW,
        severity,
        explanation,
        title=title,
        evidence=_list_evidence(context, devices),
        remedies=remedies,
    )


def _describe_gap(context: RuleContext, devices: list[CudaDevice]) -> str:
    """Return the clause that the first GPU is newer than the machine code of the build."""
    return f"{devices[0].name or 'The card'} is newer than the machine code in {context.tensorflow_name}"


def _build_arch_specific_finding(
    context: RuleContext, build: Build, capability: str, devices: list[CudaDevice]
) -> Finding:
    """Return the finding that the PTX is specific to another architecture."""
    problems = _list_known_problems(context, build, capability)
    explanation = " ".join(problem.text for problem in problems) or (
        "A part of its PTX is specific to another architecture, which this card cannot compile."
    )
    return _build_finding(
        context,
        devices,
        Severity.ERROR,
        title=f"{context.tensorflow_name} has kernels that cannot run on this card (compute capability "
        f"{capability})",
        explanation=f"{_describe_gap(context, devices)}. {explanation} TensorFlow registers the card, and operations "
        "fail with CUDA_ERROR_INVALID_PTX.",
        remedies=_build_newer_release_remedies(context, capability)
        or [*(Remedy(problem.remedy) for problem in problems), make_recommend_remedy()],
    )


def _build_code_gap_finding(context: RuleContext, capability: str, devices: list[CudaDevice]) -> Finding:
    """Return the finding that the build has neither machine code nor PTX for the GPUs."""
    return _build_finding(
        context,
        devices,
        Severity.ERROR,
        title=f"{context.tensorflow_name} has no code for this card (compute capability {capability})",
        explanation=f"{_describe_gap(context, devices)}, and there is no PTX inside that the driver could "
        "compile for it. TensorFlow registers the card, and every operation fails.",
        remedies=_build_newer_release_remedies(context, capability),
    )


def _build_jit_finding(
    context: RuleContext, build: Build, capability: str, devices: list[CudaDevice]
) -> Finding:
    """Return the finding that the driver has to compile the build's PTX, or that a variable forbids it."""
    problems = _list_known_problems(context, build, capability)
    variables = context.facts.environment.variables
    library_limit = _describe_library_limit(context, build, capability)
    limits = [problem.title.removesuffix(".") for problem in problems]
    limits += ["some operations may fail"] if library_limit else []
    known_remedies = [Remedy(problem.remedy) for problem in problems]
    explanation = (
        f"{''.join(f'{problem.text} ' for problem in problems)}{_describe_gap(context, devices)}.{library_limit} "
        "The driver compiles its kernels when they are first used, which can take half an hour, and keeps them for the next "
        "time."
    )
    is_forbidden = variables.get("CUDA_DISABLE_PTX_JIT", "0") not in ("", "0")
    if is_forbidden:
        return _build_finding(
            context,
            devices,
            Severity.ERROR,
            title="CUDA_DISABLE_PTX_JIT forbids the compilation that this card needs",
            explanation=f"{explanation} CUDA_DISABLE_PTX_JIT forbids it, so operations fail.",
            remedies=[
                variable_origins.make_unset_remedy(
                    context, "CUDA_DISABLE_PTX_JIT", "Unset the variable.", with_steps=False
                ),
                *_build_newer_release_remedies(context, capability),
            ],
        )
    command = f"export CUDA_CACHE_MAXSIZE={MAX_CACHE_BYTES}"
    cache_remedy = Remedy(
        "Make the cache larger, so that you wait only once, and let the first run finish.", (command,)
    )
    remedies = [cache_remedy]
    if variables.get("CUDA_CACHE_DISABLE", "0") not in ("", "0"):
        remedies.insert(
            0,
            variable_origins.make_unset_remedy(
                context,
                "CUDA_CACHE_DISABLE",
                "CUDA_CACHE_DISABLE makes every start wait again: unset it.",
                with_steps=False,
            ),
        )
    return _build_finding(
        context,
        devices,
        Severity.WARNING,
        title=f"The first run will be slow{''.join(f', and {limit}' for limit in limits)}: "
        f"{context.tensorflow_name} has no machine code for compute capability {capability}",
        explanation=explanation,
        remedies=[*remedies, *_build_native_release_remedies(context, capability), *known_remedies],
    )


def _describe_library_limit(context: RuleContext, build: Build, capability: str) -> str:
    """Return a sentence about the newest GPUs that CUDA's libraries support; "" if this GPU is not newer.

    Unlike TensorFlow's kernels, these libraries are not compiled at first use.
    """
    cuda = find_cuda_version(context.facts) or (build.release.cuda if build.release is not None else None)
    newest = find_exceeded_capability(context.compat, cuda, capability) if cuda is not None else None
    if newest is None:
        return ""
    return (
        f" Its CUDA {cuda} supports GPUs up to compute capability {newest}: what needs cuBLAS or cuDNN may fail. "
        "`recommend` offers only releases with CUDA libraries for the card."
    )


def _find_cudnn_problem(
    context: RuleContext, build: Build, capability: str, devices: list[CudaDevice]
) -> Finding | None:
    """Return the finding that cuDNN is too old for these GPUs; None if it is not."""
    cudnn = find_cudnn_version(context.facts)
    if cudnn is None:
        return None
    support = context.compat.find_cudnn_support(cudnn.version, capability)
    if support.verdict != "too-new":
        return None
    remedies = []
    if cudnn.package_name not in ("", "cudnn") and build.cudnn is not None:
        requirement = f"{cudnn.package_name}>={build.cudnn},<{versions.major(cudnn.version) + 1}"
        remedies.append(
            Remedy(
                "Install the newest cuDNN of the same major version.",
                (
                    format_pip_install(context.target, (requirement,), options="--upgrade"),
                    format_check_command(context.target),
                ),
            )
        )
    return _build_finding(
        context,
        devices,
        Severity.WARNING,
        title=f"cuDNN {cudnn.version} does not support this card (compute capability {capability})",
        explanation=f"{support.explanation}; {context.tensorflow_name} itself has code for the card, and "
        "its convolutions may fail or be slow.",
        remedies=remedies,
    )


def _build_newer_release_remedies(context: RuleContext, capability: str) -> list[Remedy]:
    """Return the remedies to install a release that has code for the GPU.

    If that release has no machine code either, `recommend` prefers an image that has it, so it is the second remedy.
    """
    best = find_best_release(context.target)
    if best is None or context.compat.find_code(best, capability) == "native":
        return _build_native_release_remedies(context, capability)
    limits = [
        f", if you {lower_first(problem.remedy).removesuffix('.')}"
        for problem in context.compat.list_problems(
            best.package, best.version, capability=capability, area="gpu"
        )
        if set(problem.conditions) <= {"capability"}
    ]
    remedies = make_best_release_remedies(
        context.target,
        f"Install {{release}}, which runs on this card after a slow first start{''.join(limits)}.",
    )
    return [
        *remedies,
        Remedy(
            "Use an image with machine code for the card, if there is one: this compares the options.",
            ("tfdoctor recommend",),
        ),
    ]


def _build_native_release_remedies(context: RuleContext, capability: str) -> list[Remedy]:
    """Return the remedy to install the best release for this Python if it has machine code for the GPU."""
    best = find_best_release(context.target)
    if best is None or context.compat.find_code(best, capability) != "native":
        return []
    return make_best_release_remedies(
        context.target, "Install {release}, which has machine code for the card."
    )


RULE = Rule(
    "TFD111",
    "gpu-too-new",
    "The card is newer than the code in this TensorFlow",
    (Cause.GPU_TOO_NEW,),
    check,
    short_title="newer than TensorFlow's code",
    needs=(
        prerequisites.require_cuda_code,
        drivers.require_known_capability,
    ),
    area=GPU,
)
