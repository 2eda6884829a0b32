"""The driver is too old for this TensorFlow's CUDA.

What it means
-------------
Each CUDA version needs a certain minimum driver. With an older driver TensorFlow still lists the GPUs, because
listing needs no CUDA runtime, but fails at the first operation: "CUDA driver version is insufficient for CUDA runtime
version". From CUDA 11 on, every release of a major version runs on the first driver of that major; only code that has
to be compiled from PTX needs a driver that supports the version of that PTX. The wheels' kernels for their newest GPU
are mostly PTX: on an H100, TensorFlow 2.17 and 2.18 need driver 545, and 2.19 to 2.21 need driver 555.

How it is seen
--------------
cuDriverGetVersion returns the newest CUDA that the driver supports. If libcuda does not answer, the version
of the kernel module, of NVML or of nvidia-smi is compared with NVIDIA's table. cuInit can also return error 35
or 36.

What to do
----------
Update the driver, or use a TensorFlow that was built with an older CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import upper_first
from tfdoctor.prediction.fit.drivers import find_driver_version
from tfdoctor.remedies.releases import make_best_release_remedies
from tfdoctor.remedies.system import make_driver_remedy
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers

if TYPE_CHECKING:
    from tfdoctor.compat.cuda import DriverMinimum
    from tfdoctor.core.facts import CudaDevice


def check(context: RuleContext) -> Result:
    state = drivers.determine_driver_state(context)
    if state.cause is Cause.DRIVER_TOO_OLD:
        return [_build_cuinit_finding(context, state.reason)]
    if state.cause is not None:
        return NotApplicable("the driver shows no device, for another reason")
    driver_minimum = _find_minimum(context)
    if driver_minimum is None:
        return NotApplicable("there is no TensorFlow with a known CUDA")
    if driver_minimum.minimum is None:
        return NotApplicable(f"no table says which driver CUDA {driver_minimum.cuda} needs here")
    driver_cuda = state.driver_result.version if state.driver_result is not None else None
    driver_version, _ = find_driver_version(context.facts) or (None, "")
    if driver_cuda is not None:
        is_too_old = not versions.is_at_least(driver_cuda, _get_min_driver_cuda(driver_minimum))
    elif driver_version is not None:
        is_too_old = not versions.is_at_least(driver_version, driver_minimum.minimum)
    else:
        return CouldNotCheck("the driver's version is not known")
    if not is_too_old:
        return _find_jit_problem(context, driver_minimum, driver_cuda) or _find_support_problem(
            context, driver_minimum, driver_version
        )
    if _lacks_newer_driver(context, driver_minimum):
        return NotApplicable("no driver that is new enough drives this card, which TFD110 explains")
    return [_build_driver_finding(context, driver_minimum, driver_cuda)]


def _find_minimum(context: RuleContext) -> DriverMinimum | None:
    """Return the minimum driver of this build's CUDA; None if its CUDA is not known."""
    build = context.build
    if build is None or build.cuda is None or build.is_rocm or not versions.is_version(build.cuda):
        return None
    is_windows = context.facts.machine.system == "Windows" or bool(context.facts.machine.wsl)
    return context.compat.find_driver_minimum(build.cuda, "windows" if is_windows else "linux")


def _get_min_driver_cuda(driver_minimum: DriverMinimum) -> str:
    """Return the CUDA version that the driver itself must support.

    With minor-version compatibility it is the first version of the major (12.0), otherwise the build's own version.
    """
    if driver_minimum.minor_version_compatibility:
        return f"{versions.major(driver_minimum.cuda)}.0"
    return versions.major_minor(driver_minimum.cuda)


def _lacks_newer_driver(context: RuleContext, driver_minimum: DriverMinimum) -> bool:
    """Return whether no driver helps: the last branch for each GPU is too old, and the build has no code for it."""
    devices = drivers.list_known_devices(context)
    if not devices or driver_minimum.minimum is None:
        return False
    for device in devices:
        # an unknown GPU counts as so new ("99") that no driver has dropped it
        branch = context.compat.cards.find_unsupported(device.compute_capability or "99")
        if branch is None or versions.major(driver_minimum.minimum) <= versions.major(branch.last_branch):
            return False
        if drivers.find_code_kind(context, device.compute_capability or "99") != "none":
            return False
    return True


def _list_evidence(context: RuleContext, driver_cuda: str | None) -> list[Evidence]:
    """Return the driver version, the newest CUDA it supports and the required driver, as far as known."""
    driver_version, source = find_driver_version(context.facts) or (None, "")
    evidence = [Evidence(source, f"driver {driver_version}")] if driver_version is not None else []
    if driver_cuda is not None:
        evidence.append(Evidence("cuDriverGetVersion", f"supports CUDA {driver_cuda} and older"))
    driver_minimum = _find_minimum(context)
    if driver_minimum is not None and driver_minimum.minimum is not None:
        evidence.append(Evidence("NVIDIA's table of toolkits and drivers", driver_minimum.explanation))
    return evidence


def _build_cuinit_finding(context: RuleContext, reason: str) -> Finding:
    """Return the finding that cuInit itself refuses the driver's version; `reason` explains its error."""
    driver_minimum = _find_minimum(context)
    requirement = (
        f" TensorFlow's CUDA {driver_minimum.cuda} needs driver {driver_minimum.minimum} or newer."
        if driver_minimum is not None and driver_minimum.minimum is not None
        else ""
    )
    return RULE.make_finding(
        Cause.DRIVER_TOO_OLD,
        Severity.ERROR,
        f"{reason} The kernel's part of the driver is older than the library that asks it.{requirement}",
        title="The driver is too old",
        evidence=[*_list_evidence(context, None), *drivers.list_module_evidence(context)],
        remedies=_build_remedies(context, driver_minimum.minimum if driver_minimum is not None else None),
    )


def _build_driver_finding(
    context: RuleContext, driver_minimum: DriverMinimum, driver_cuda: str | None
) -> Finding:
    """Return the finding about a driver that is below the minimum for this build's CUDA."""
    driver_version, _ = find_driver_version(context.facts) or (None, "")
    name = f"Driver {driver_version}" if driver_version is not None else "The driver"
    statement = f"{name} supports CUDA {driver_cuda}" if driver_cuda is not None else f"{name} is there"
    return RULE.make_finding(
        Cause.DRIVER_TOO_OLD,
        Severity.ERROR,
        f"{statement}; this TensorFlow was built with CUDA {driver_minimum.cuda}, and {driver_minimum.explanation}. TensorFlow "
        "lists the card and then cannot use it: the CUDA runtime refuses the driver.",
        title=f"The driver is too old for CUDA {versions.major_minor(driver_minimum.cuda)}: {driver_minimum.minimum} or "
        "newer is needed",
        short_title=f"too old for CUDA {versions.major_minor(driver_minimum.cuda)}",
        evidence=_list_evidence(context, driver_cuda),
        remedies=_build_remedies(context, driver_minimum.minimum),
    )


def _find_support_problem(
    context: RuleContext, driver_minimum: DriverMinimum, driver_version: str | None
) -> list[Finding]:
    """Return a finding if NVIDIA supports this CUDA's major version only with newer drivers.

    An example is driver 450.51 to 450.66 with CUDA 11.1 to 11.8. Such a driver supports the first CUDA of this major;
    whether the later ones work has not been observed. `recommend` rejects it.
    """
    if driver_version is None or driver_minimum.minimum is None:
        return []
    if versions.is_at_least(driver_version, driver_minimum.minimum):
        return []
    cuda_series = versions.major_minor(driver_minimum.cuda)
    explanation = driver_minimum.explanation
    return [
        RULE.make_finding(
            Cause.DRIVER_TOO_OLD,
            Severity.WARNING,
            f"{upper_first(explanation)}. Here is driver {driver_version}. It speaks CUDA "
            f"{_get_min_driver_cuda(driver_minimum)}, so CUDA's runtime may take it; whether all of it works is not known.",
            title=f"NVIDIA promises CUDA {cuda_series} only from driver {driver_minimum.minimum} on",
            short_title=f"older than CUDA {cuda_series} is promised for",
            evidence=_list_evidence(context, None),
            remedies=_build_remedies(context, driver_minimum.minimum),
        )
    ]


def _find_jit_problem(
    context: RuleContext, driver_minimum: DriverMinimum, driver_cuda: str | None
) -> list[Finding]:
    """Return a finding if the driver can run this build's machine code but is too old to compile its PTX.

    The PTX is needed only for GPUs without machine code for all kernels.
    """
    if driver_cuda is None:
        return []
    affected: list[tuple[CudaDevice, str, str]] = []
    for device in drivers.list_shown_devices(context):
        compilation = (
            drivers.find_ptx_requirement(context, device.compute_capability)
            if device.compute_capability
            else None
        )
        if compilation is None:
            continue
        ptx_cuda, share = compilation
        if not versions.is_at_least(driver_cuda, versions.major_minor(ptx_cuda)):
            affected.append((device, ptx_cuda, share))
    if not affected:
        return []
    names = ", ".join(drivers.format_device(device) for device, _, _ in affected)
    # the GPU that needs the newest driver
    device, ptx_cuda, share = max(affected, key=lambda entry: versions.parse(entry[1]))
    code = "no machine code" if share == "all" else f"{share} of its kernels as PTX alone"
    required_driver = context.compat.find_driver_minimum(ptx_cuda, driver_minimum.os).toolkit_driver
    return [
        RULE.make_finding(
            Cause.DRIVER_TOO_OLD,
            Severity.ERROR,
            f"{names}: this TensorFlow has {code} for compute capability {device.compute_capability}, so the driver "
            f"would have to compile its PTX, which is of CUDA {versions.major_minor(ptx_cuda)}. The driver supports CUDA "
            f"{driver_cuda} and refuses newer PTX (CUDA_ERROR_UNSUPPORTED_PTX_VERSION).",
            title=f"The driver is too old to compile this TensorFlow's code: {required_driver or 'a newer one'} is needed",
            short_title="too old to compile TensorFlow's code",
            evidence=_list_evidence(context, driver_cuda),
            remedies=_build_remedies(context, required_driver),
        )
    ]


def _build_remedies(context: RuleContext, required_driver: str | None) -> list[Remedy]:
    """Return the remedies: update the driver, or use an older release.

    `required_driver` is the oldest version that works; None if it is not known.
    """
    version_text = f" ({required_driver} or newer)" if required_driver is not None else ""
    machine = context.facts.machine
    if machine.wsl:
        update_remedy = Remedy(
            f"Update NVIDIA's driver in Windows{version_text}, then in PowerShell:",
            ("wsl --shutdown",),
            changes_system=True,
        )
    elif machine.container:
        update_remedy = Remedy(
            f"Update the host's driver{version_text}; the container uses it. On the host:",
            ("nvidia-smi",),
            changes_system=True,
        )
    else:
        install_remedy = make_driver_remedy(context.target)
        update_remedy = Remedy(
            f"Update the driver{version_text}. {install_remedy.text}",
            install_remedy.commands,
            changes_system=True,
        )
    return [update_remedy, *_build_older_release_remedies(context)]


def _build_older_release_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedy with the best release for this Python and the installed driver."""
    build, python = context.build, context.python
    driver_result = value_of(context.facts.driver.cuda)
    if build is None or python is None or context.facts.machine.wsl:
        return []
    if find_driver_version(context.facts) is None:
        return []
    # the driver library is newer than the kernel module
    if driver_result is not None and driver_result.init in (35, 36):
        return []
    return make_best_release_remedies(context.target, "Install {release}, which works with this driver.")


RULE = Rule(
    "TFD103",
    "driver-too-old",
    "The driver is too old for this TensorFlow's CUDA",
    (Cause.DRIVER_TOO_OLD,),
    check,
    short_title="too old for this CUDA",
)
