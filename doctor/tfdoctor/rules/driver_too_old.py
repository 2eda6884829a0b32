"""The driver is too old for this TensorFlow's CUDA.

What it means
-------------
Each CUDA version needs a certain minimum driver. TensorFlow lists the cards anyway, because listing needs no CUDA
runtime, and fails at the first operation: "CUDA driver version is insufficient for CUDA runtime version". From CUDA
11 on, every release of a major runs on the first driver of that major; only code that has to be compiled from PTX
needs a driver that knows the version of that PTX. The wheels' kernels for their newest card are mostly PTX: on an H100
TensorFlow 2.17 and 2.18 need driver 545, 2.19 to 2.21 driver 555.

How it is seen
--------------
cuDriverGetVersion tells the newest CUDA that the driver speaks; where libcuda does not answer, the version
of the kernel module, of NVML or of nvidia-smi is compared with NVIDIA's table. cuInit itself can answer 35
or 36.

What to do
----------
Update the driver, or use a TensorFlow that was built with an older CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers

if TYPE_CHECKING:
    from tfdoctor.compat.cuda import DriverMinimum
    from tfdoctor.facts import CudaDevice


def check(context: RuleContext) -> Result:
    state = drivers.driver_state(context)
    if state.cause is Cause.DRIVER_TOO_OLD:
        return [_cuinit(context, state.why)]
    if state.cause is not None:
        return NotApplicable("the driver shows no device, for another reason")
    minimum = _minimum(context)
    if minimum is None or minimum.minimum is None:
        return NotApplicable(
            "there is no TensorFlow with a known CUDA"
            if minimum is None
            else f"no table says which driver CUDA {minimum.cuda} needs here"
        )
    speaks = state.answer.version if state.answer is not None else None
    version = drivers.driver_version(context)
    if speaks is not None:
        old = not versions.is_at_least(speaks, _min_driver_cuda(minimum))
    elif version is not None:
        old = not versions.is_at_least(version[0], minimum.minimum)
    else:
        return CouldNotCheck("the driver's version is not known")
    if not old:
        return _check_jit_support(context, minimum, speaks) or _check_support_minimum(
            context, minimum, version
        )
    if _lacks_newer_driver(context, minimum):
        return NotApplicable("no driver that is new enough drives this card, which TFD110 explains")
    return [_build_driver_finding(context, minimum, speaks)]


def _minimum(context: RuleContext) -> DriverMinimum | None:
    build = context.build
    if build is None or build.cuda is None or build.rocm or not versions.is_version(build.cuda):
        return None
    windows = context.facts.machine.system == "Windows" or bool(context.facts.machine.wsl)
    return context.compat.driver_minimum(build.cuda, "windows" if windows else "linux")


def _min_driver_cuda(minimum: DriverMinimum) -> str:
    """Return the CUDA version that the driver itself must support.

    x.0 with minor-version compatibility, else exactly this version.
    """
    if minimum.minor_version_compatibility:
        return f"{versions.major(minimum.cuda)}.0"
    return versions.major_minor(minimum.cuda)


def _lacks_newer_driver(context: RuleContext, minimum: DriverMinimum) -> bool:
    """Return whether no card here has a new enough driver branch, nor code in this TensorFlow."""
    devices = drivers.list_known_devices(context)
    if not devices or minimum.minimum is None:
        return False
    for device in devices:
        branch = context.compat.cards.find_ended(device.compute_capability or "99")
        if branch is None or versions.major(minimum.minimum) <= versions.major(branch.last):
            return False
        if drivers.code_for(context, device.compute_capability or "99") != "none":
            return False
    return True


def _evidence(context: RuleContext, speaks: str | None) -> list[Evidence]:
    version = drivers.driver_version(context)
    lines = [Evidence(version[1], f"driver {version[0]}")] if version is not None else []
    if speaks is not None:
        lines.append(Evidence("cuDriverGetVersion", f"supports CUDA {speaks} and older"))
    minimum = _minimum(context)
    if minimum is not None and minimum.minimum is not None:
        lines.append(Evidence("NVIDIA's table of toolkits and drivers", minimum.explanation))
    return lines


def _cuinit(context: RuleContext, why: str) -> Finding:
    minimum = _minimum(context)
    needs = (
        f" TensorFlow's CUDA {minimum.cuda} needs driver {minimum.minimum} or newer."
        if minimum is not None and minimum.minimum is not None
        else ""
    )
    return RULE.finding(
        Cause.DRIVER_TOO_OLD,
        Severity.ERROR,
        f"{why} The kernel's part of the driver is older than the library that asks it.{needs}",
        title="The driver is too old",
        evidence=[*_evidence(context, None), *drivers.module_evidence(context)],
        remedies=_remedies(context, minimum.minimum if minimum is not None else None),
    )


def _build_driver_finding(context: RuleContext, minimum: DriverMinimum, speaks: str | None) -> Finding:
    version = drivers.driver_version(context)
    have = f"Driver {version[0]}" if version is not None else "The driver"
    said = f"{have} supports CUDA {speaks}" if speaks is not None else f"{have} is there"
    return RULE.finding(
        Cause.DRIVER_TOO_OLD,
        Severity.ERROR,
        f"{said}; this TensorFlow was built with CUDA {minimum.cuda}, and {minimum.explanation}. TensorFlow "
        "lists the card and then cannot use it: the CUDA runtime refuses the driver.",
        title=f"The driver is too old for CUDA {versions.major_minor(minimum.cuda)}: {minimum.minimum} or "
        "newer is needed",
        row=f"too old for CUDA {versions.major_minor(minimum.cuda)}",
        evidence=_evidence(context, speaks),
        remedies=_remedies(context, minimum.minimum),
    )


def _check_support_minimum(
    context: RuleContext, minimum: DriverMinimum, version: tuple[str, str] | None
) -> list[Finding]:
    """Report a driver older than the one from which NVIDIA supports all of this CUDA major.

    The driver supports this major's first CUDA. Example: 450.51 to 450.66 with CUDA 11.1 to 11.8.
    `recommend` refuses it; it has not been observed to run or to fail.
    """
    if version is None or minimum.minimum is None or versions.is_at_least(version[0], minimum.minimum):
        return []
    return [
        RULE.finding(
            Cause.DRIVER_TOO_OLD,
            Severity.WARNING,
            f"{minimum.explanation[:1].upper()}{minimum.explanation[1:]}. Here is driver {version[0]}. It speaks CUDA "
            f"{_min_driver_cuda(minimum)}, so CUDA's runtime may take it; whether all of it works is not known.",
            title=f"NVIDIA promises CUDA {versions.major_minor(minimum.cuda)} only from driver {minimum.minimum} on",
            row=f"older than CUDA {versions.major_minor(minimum.cuda)} is promised for",
            evidence=_evidence(context, None),
            remedies=_remedies(context, minimum.minimum),
        )
    ]


def _check_jit_support(context: RuleContext, minimum: DriverMinimum, speaks: str | None) -> list[Finding]:
    """Report a driver that is new enough to run but too old to compile this build's PTX.

    This matters only to cards without machine code for all kernels.
    """
    if speaks is None:
        return []
    affected: list[tuple[CudaDevice, str, str]] = []
    for device in drivers.list_shown_devices(context):
        needed = drivers.to_compile(context, device.compute_capability) if device.compute_capability else None
        if needed is not None and not versions.is_at_least(speaks, versions.major_minor(needed[0])):
            affected.append((device, *needed))
    if not affected:
        return []
    names = ", ".join(drivers.device_label(device) for device, _, _ in affected)
    device, cuda, share = max(affected, key=lambda one: versions.parse(one[1]))
    inside = "no machine code" if share == "all" else f"{share} of its kernels as PTX alone"
    own = context.compat.driver_minimum(cuda, minimum.os).own
    return [
        RULE.finding(
            Cause.DRIVER_TOO_OLD,
            Severity.ERROR,
            f"{names}: this TensorFlow has {inside} for compute capability {device.compute_capability}, so the driver "
            f"would have to compile its PTX, which is of CUDA {versions.major_minor(cuda)}. The driver supports CUDA "
            f"{speaks} and refuses newer PTX (CUDA_ERROR_UNSUPPORTED_PTX_VERSION).",
            title=f"The driver is too old to compile this TensorFlow's code: {own or 'a newer one'} is needed",
            row="too old to compile TensorFlow's code",
            evidence=_evidence(context, speaks),
            remedies=_remedies(context, own),
        )
    ]


def _remedies(context: RuleContext, wanted: str | None) -> list[Remedy]:
    least = f" ({wanted} or newer)" if wanted is not None else ""
    machine = context.facts.machine
    if machine.wsl:
        update = Remedy(
            f"Update NVIDIA's driver in Windows{least}, then in PowerShell:",
            ("wsl --shutdown",),
            changes_system=True,
        )
    elif machine.container:
        update = Remedy(
            f"Update the host's driver{least}; the container uses it. On the host:",
            ("nvidia-smi",),
            changes_system=True,
        )
    else:
        install = advice.driver_install(context.target)
        update = Remedy(f"Update the driver{least}. {install.text}", install.commands, changes_system=True)
    return [update, *_older_release_remedies(context)]


def _older_release_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedy with the best release for this Python with the installed driver."""
    build, python = context.build, context.python
    version, answer = drivers.driver_version(context), value_of(context.facts.driver.cuda)
    if build is None or python is None or version is None or context.facts.machine.wsl:
        return []
    if answer is not None and answer.init in (35, 36):
        return []
    return advice.suggest_release(context.target, "Use {release}, which this driver can run.")


RULE = Rule(
    "TFD103",
    "driver-too-old",
    "The driver is too old for this TensorFlow's CUDA",
    (Cause.DRIVER_TOO_OLD,),
    check,
    row="too old for this CUDA",
)
