"""The card is older than this TensorFlow or its cuDNN supports.

What it means
-------------
A wheel has machine code for some generations of cards, by compute capability. Below its floor TensorFlow ignores a
card. Between the floor and the oldest code inside, it registers the card and every operation fails ("no kernel
image is available for execution on the device"). The same holds for cuDNN: from 9.11 on it has nothing for Maxwell,
Pascal and Volta, so convolutions fail although TensorFlow itself supports the card.

How it is seen
--------------
The compute capability comes from the driver, or, where that does not answer, from the card's PCI id; what
the wheel and the cuDNN have was read from their files.

What to do
----------
Install the newest TensorFlow that has code for the card, or an older cuDNN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import advice, fit, versions
from tfdoctor.causes.steps import Install
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.predict import cudnn_version, select_registered_devices
from tfdoctor.rules.base import GPU, Result, Rule, RuleContext, require_value
from tfdoctor.rules.shared import drivers, prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import CudaDevice
    from tfdoctor.predict import Build


def check(context: RuleContext) -> Result:
    build, devices = require_value(context.build), drivers.list_capable_devices(context)
    findings = _check_capability_floor(context, build, devices)
    rest = [d for d in devices if versions.is_at_least(d.compute_capability or "0", build.floor)]
    findings += _check_code_gap(context, build, rest)
    return findings or _cudnn(context, rest)


def _names(devices: list[CudaDevice]) -> str:
    return ", ".join(f"{drivers.device_label(d)}: {d.compute_capability}" for d in devices)


def _evidence(context: RuleContext, devices: list[CudaDevice]) -> list[Evidence]:
    known = any(device.ordinal >= 0 for device in devices)
    source = "the driver" if known else getattr(context.facts.driver.pci, "source", "the PCI bus")
    return [
        Evidence(source, f"{drivers.device_label(d)}: compute capability {d.compute_capability}")
        for d in devices
    ]


def _check_capability_floor(context: RuleContext, build: Build, devices: list[CudaDevice]) -> list[Finding]:
    """Report that nothing is registered because every card is below the floor.

    If only some cards are below it, TFD114 reports them.
    """
    if any(versions.is_at_least(d.compute_capability or "0", build.floor) for d in devices):
        return []
    return [
        RULE.finding(
            Cause.GPU_TOO_OLD,
            Severity.ERROR if devices[0].ordinal >= 0 else Severity.WARNING,
            f"TensorFlow {build.version} ignores every card below compute capability {build.floor}: "
            f"{_names(devices)}.",
            title=f"The card is too old: TensorFlow {build.version} needs compute capability {build.floor}",
            row=f"too old for TensorFlow {build.version}",
            evidence=_evidence(context, devices),
            remedies=_older_release(context),
        )
    ]


def _check_code_gap(context: RuleContext, build: Build, devices: list[CudaDevice]) -> list[Finding]:
    newest = drivers.newest_code(context)
    bad = [
        d
        for d in devices
        if d.compute_capability
        and newest is not None
        and drivers.code_for(context, d.compute_capability) == "none"
        and not versions.is_at_least(d.compute_capability, newest)
    ]
    if not bad:
        return []
    registered = select_registered_devices(devices, build, context.facts.environment.variables)
    every = all(device in bad for device in registered) and bad[0].ordinal >= 0
    return [
        RULE.finding(
            Cause.GPU_TOO_OLD,
            Severity.ERROR if every else Severity.WARNING,
            f"{_names(bad)}. TensorFlow {build.version} registers such a card (its floor is {build.floor}) "
            "and has no "
            f'code that runs on it{_format_build_code(context, build)}: the first operation stops with "no kernel '
            "image is "
            'available for execution on the device".',
            title=f"TensorFlow {build.version} has no code for this card (compute capability "
            f"{bad[0].compute_capability})",
            row=f"too old for TensorFlow {build.version}",
            evidence=_evidence(context, bad),
            remedies=_older_release(context),
        )
    ]


def _format_build_code(context: RuleContext, build: Build) -> str:
    own = drivers.list_build_architectures(context)
    code = own[0] if own is not None else (build.release.cubin if build.release is not None else ())
    return f" (it has {', '.join(code)})" if code else ""


def _older_release(context: RuleContext) -> list[Remedy]:
    """Return the remedy with the best release for this machine: on this Python, else on another.

    If the driver prevents it, recommend the release with a newer driver.
    """
    target, python = context.target, context.python
    for host, first in (
        (target.host, ""),
        (replace(target.host, driver=None), "After an update of the driver: "),
    ):
        own = fit.find_best_fit(target.compat, host, python=python.version) if python is not None else None
        if own is not None:
            name = f"TensorFlow {own.release.version}"
            text = f"{first}Install {name}, the best for this Python that has code for the card."
            return [advice.install_release(target, own.release, text)]
        other = fit.find_best_fit(target.compat, host)
        if other is not None and other.python is not None:
            pythons = other.release.pythons()
            text = (
                f"{first}The best TensorFlow that has code for the card is {other.release.version}, which needs Python "
                f"{other.python} (it has wheels for {pythons[0]} to {pythons[-1]})."
            )
            return [advice.install_release(target, other.release, text, python=other.python)]
    return [
        Remedy(
            "No published TensorFlow with code for this card is known; TensorFlow can only use the CPU here."
        )
    ]


# ---------------------------------------------------------------- cuDNN


def _cudnn(context: RuleContext, devices: list[CudaDevice]) -> list[Finding]:
    used, build = cudnn_version(context.facts), context.build
    if used is None or build is None:
        return []
    version, project = used.version, used.project
    bad = [
        d
        for d in devices
        if d.compute_capability
        and context.compat.cudnn_support(version, d.compute_capability).verdict == "dropped"
    ]
    if not bad:
        return []
    support = context.compat.cudnn_support(version, bad[0].compute_capability or "")
    every = len(bad) == len(devices) and bad[0].ordinal >= 0
    evidence = [*_evidence(context, bad), Evidence(project or "cuDNN", version)]
    return [
        RULE.finding(
            Cause.GPU_TOO_OLD,
            Severity.ERROR if every else Severity.WARNING,
            f"{_names(bad)}. {support.explanation}; TensorFlow {build.version} itself supports the card, and "
            "its convolutions fail in cuDNN.",
            title=f"cuDNN {version} has no code for this card (compute capability "
            f"{bad[0].compute_capability})",
            row=f"too old for cuDNN {version}",
            evidence=evidence,
            remedies=_older_cudnn(context, project),
        )
    ]


def _older_cudnn(context: RuleContext, project: str) -> list[Remedy]:
    build = context.build
    if build is None or build.cudnn is None or project in ("", "cudnn"):
        return [Remedy("Install an older cuDNN of the same major version.")]
    wanted = advice.cudnn_requirement(context.target, project, project, build.cudnn)
    return [
        Remedy(
            "Install the last cuDNN that has code for it.",
            (advice.pip_install(context.target, (wanted,)), advice.check_again(context.target)),
            steps=(Install((wanted,)),),
        )
    ]


RULE = Rule(
    "TFD110",
    "gpu-too-old",
    "The card is older than this TensorFlow or its cuDNN supports",
    (Cause.GPU_TOO_OLD,),
    check,
    row="too old for what is installed",
    needs=(
        prerequisites.require_cuda_code,
        drivers.require_known_capability,
    ),
    area=GPU,
    first=60,
)
