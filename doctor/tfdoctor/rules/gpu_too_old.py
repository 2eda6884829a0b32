"""The card is older than this TensorFlow or its cuDNN supports.

What it means
-------------
A wheel has machine code for some generations of GPUs, by compute capability. TensorFlow ignores GPUs below its
minimum capability. It registers a GPU between that minimum and the oldest code in the wheel, but every operation
fails ("no kernel image is available for execution on the device"). The same holds for cuDNN: from 9.11 on it has no
code for Maxwell, Pascal and Volta, so convolutions fail although TensorFlow itself supports the GPU.

How it is seen
--------------
The compute capability comes from the driver or, if that does not answer, from the GPU's PCI id. The code that each
wheel and cuDNN contain was determined from their files.

What to do
----------
Install the newest TensorFlow that has code for the GPU, or an older cuDNN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import join_words
from tfdoctor.prediction.fit.compatibility import find_best_fit
from tfdoctor.prediction.library_versions import find_cudnn_version
from tfdoctor.prediction.stages import select_registered_devices
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.remedies.releases import make_release_remedy
from tfdoctor.remedies.wheels import choose_cudnn_requirement
from tfdoctor.rules.base import GPU, Result, Rule, RuleContext, get_required_value
from tfdoctor.rules.shared import drivers, prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import CudaDevice
    from tfdoctor.prediction.build import Build


def check(context: RuleContext) -> Result:
    build, devices = get_required_value(context.build), drivers.list_devices_with_capability(context)
    findings = _find_minimum_problem(context, build, devices)
    supported_devices = [
        device
        for device in devices
        if versions.is_at_least(device.compute_capability or "0", build.min_capability)
    ]
    findings += _find_code_gap(context, build, supported_devices)
    return findings or _find_cudnn_problem(context, supported_devices)


def _join_gpus(devices: list[CudaDevice]) -> str:
    """Return the clause that names the GPUs and their compute capabilities."""
    verb = "has" if len(devices) == 1 else "have"
    names = join_words(
        [
            f"{device.name or 'the card'}{f' (GPU {device.ordinal})' if device.ordinal >= 0 else ''}"
            for device in devices
        ]
    )
    capabilities = join_words(list(dict.fromkeys(device.compute_capability or "" for device in devices)))
    return f"{names} {verb} compute capability {capabilities}"


def _list_evidence(context: RuleContext, devices: list[CudaDevice]) -> list[Evidence]:
    """Return the compute capability of each GPU as evidence."""
    is_from_driver = any(device.ordinal >= 0 for device in devices)
    source = "the driver" if is_from_driver else getattr(context.facts.driver.pci, "source", "the PCI bus")
    return [
        Evidence(source, f"{drivers.format_device(device)}: compute capability {device.compute_capability}")
        for device in devices
    ]


def _find_minimum_problem(context: RuleContext, build: Build, devices: list[CudaDevice]) -> list[Finding]:
    """Return a finding if TensorFlow ignores all GPUs because they are below its minimum capability.

    If only some GPUs are below it, TFD114 reports them.
    """
    if any(
        versions.is_at_least(device.compute_capability or "0", build.min_capability) for device in devices
    ):
        return []
    return [
        RULE.make_finding(
            Cause.GPU_TOO_OLD,
            Severity.ERROR if devices[0].ordinal >= 0 else Severity.WARNING,
            f"{_join_gpus(devices)}, but {context.tensorflow_name} ignores every card below {build.min_capability}.",
            title=f"The card is too old: {context.tensorflow_name} needs compute capability {build.min_capability}",
            short_title=f"too old for {context.tensorflow_name}",
            evidence=_list_evidence(context, devices),
            remedies=_build_older_release_remedies(context),
        )
    ]


def _find_code_gap(context: RuleContext, build: Build, devices: list[CudaDevice]) -> list[Finding]:
    """Return a finding if TensorFlow registers GPUs for which it has no code."""
    newest_code = drivers.find_newest_code_capability(context)
    old_gpus = [
        device
        for device in devices
        if device.compute_capability
        and newest_code is not None
        and drivers.find_code_kind(context, device.compute_capability) == "none"
        and not versions.is_at_least(device.compute_capability, newest_code)
    ]
    if not old_gpus:
        return []
    registered = select_registered_devices(devices, build, context.facts.environment.variables)
    all_fail = all(device in old_gpus for device in registered) and old_gpus[0].ordinal >= 0
    return [
        RULE.make_finding(
            Cause.GPU_TOO_OLD,
            Severity.ERROR if all_fail else Severity.WARNING,
            f"{_join_gpus(old_gpus)}. {context.tensorflow_name} has no code for it{_format_build_code(context, build)}. It "
            f"lists the card all the same, as any from {build.min_capability} on, and the first operation stops with "
            '"no kernel image is available for execution on the device".',
            title=f"{context.tensorflow_name} has no code for this card (compute capability "
            f"{old_gpus[0].compute_capability})",
            short_title=f"too old for {context.tensorflow_name}",
            evidence=_list_evidence(context, old_gpus),
            remedies=_build_older_release_remedies(context),
        )
    ]


def _format_build_code(context: RuleContext, build: Build) -> str:
    """Return the compute capabilities of the build's machine code in parentheses; "" if not known."""
    architectures = drivers.list_build_capabilities(context)
    code = (
        architectures[0]
        if architectures is not None
        else (build.release.cubin if build.release is not None else ())
    )
    return f" (it has {', '.join(code)})" if code else ""


def _build_older_release_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedy to install the best release for this Python, or else for another Python.

    If no release works with the installed driver, the remedy names the best release for a newer driver.
    """
    target, python = context.target, context.python
    for host, prefix in (
        (target.host, ""),
        (replace(target.host, driver=None), "After an update of the driver: "),
    ):
        same_python = (
            find_best_fit(target.compat, host, python=python.version) if python is not None else None
        )
        if same_python is not None:
            name = f"TensorFlow {same_python.release.version}"
            text = f"{prefix}Install {name}, the best for this Python that has code for the card."
            return [make_release_remedy(target, same_python.release, text)]
        best = find_best_fit(target.compat, host)
        if best is not None and best.python is not None:
            pythons = best.release.pythons()
            text = (
                f"{prefix}The best TensorFlow that has code for the card is {best.release.version}, which needs Python "
                f"{best.python} (it has wheels for {pythons[0]} to {pythons[-1]})."
            )
            return [make_release_remedy(target, best.release, text, python=best.python)]
    return [
        Remedy(
            "No published TensorFlow with code for this card is known; TensorFlow can only use the CPU here."
        )
    ]


# ---------------------------------------------------------------- cuDNN


def _find_cudnn_problem(context: RuleContext, devices: list[CudaDevice]) -> list[Finding]:
    """Return a finding if TensorFlow supports GPUs that this cuDNN no longer supports."""
    cudnn, build = find_cudnn_version(context.facts), context.build
    if cudnn is None or build is None:
        return []
    version, project = cudnn.version, cudnn.package_name
    old_gpus = [
        device
        for device in devices
        if device.compute_capability
        and context.compat.find_cudnn_support(version, device.compute_capability).verdict == "dropped"
    ]
    if not old_gpus:
        return []
    support = context.compat.find_cudnn_support(version, old_gpus[0].compute_capability or "")
    all_fail = len(old_gpus) == len(devices) and old_gpus[0].ordinal >= 0
    evidence = [*_list_evidence(context, old_gpus), Evidence(project or "cuDNN", version)]
    return [
        RULE.make_finding(
            Cause.GPU_TOO_OLD,
            Severity.ERROR if all_fail else Severity.WARNING,
            f"{_join_gpus(old_gpus)}. {support.explanation}; {context.tensorflow_name} itself supports the card, and "
            "its convolutions fail in cuDNN.",
            title=f"cuDNN {version} has no code for this card (compute capability "
            f"{old_gpus[0].compute_capability})",
            short_title=f"too old for cuDNN {version}",
            evidence=evidence,
            remedies=_build_older_cudnn_remedies(context, project),
        )
    ]


def _build_older_cudnn_remedies(context: RuleContext, project: str) -> list[Remedy]:
    """Return the remedy to install an older cuDNN."""
    build = context.build
    if build is None or build.cudnn is None or project in ("", "cudnn"):
        return [Remedy("Install an older cuDNN of the same major version.")]
    requirement = choose_cudnn_requirement(context.target, project, project, build.cudnn)
    return [
        Remedy(
            "Install the last cuDNN that has code for it.",
            (
                format_pip_install(context.target, (requirement,)),
                format_check_command(context.target),
            ),
            steps=(Install((requirement,)),),
        )
    ]


RULE = Rule(
    "TFD110",
    "gpu-too-old",
    "The card is older than this TensorFlow or its cuDNN supports",
    (Cause.GPU_TOO_OLD,),
    check,
    short_title="too old for what is installed",
    needs=(
        prerequisites.require_cuda_code,
        drivers.require_known_capability,
    ),
    area=GPU,
    fix_order=60,
)
