"""CUDA is installed but cuDNN is not.

What it means
-------------
cuDNN, NVIDIA's library for neural networks, is not part of the CUDA toolkit: it is installed separately. TensorFlow
opens it when it lists the GPUs, and without it registers none. cuDNN itself consists of several files, which it
opens when it is first used: if one of these is missing, the GPU is registered but convolutions fail.

How it is seen
--------------
The loader finds TensorFlow's CUDA libraries but not libcudnn, and no file of that name is in the usual
folders. If cuDNN is from a wheel, the check also tests whether the files of the wheel exist.

What to do
----------
Install cuDNN in the major version that this TensorFlow opens; if parts are missing, install it again.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.library_versions import list_nvidia_owners
from tfdoctor.remedies.libraries import make_library_remedies
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.remedies.system import APT, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import CUDNN, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding


def check(context: RuleContext) -> Result:
    build = context.build
    missing = context.select_missing_libraries(Cause.CUDNN_MISSING)
    if build is None:
        return ()
    if not missing:
        return _find_missing_parts(context)
    if context.select_missing_libraries(Cause.LIBS_NOT_INSTALLED, Cause.LIBS_WRONG_VERSION):
        return NotApplicable(
            "cuDNN is missing with the other CUDA libraries: that finding explains how to install it"
        )
    name = missing[0].soname
    remedies = make_library_remedies(context.target, [name])
    package = context.compat.find_nvidia_package(name, build.cuda)
    if package is not None and _has_nvidia_repository(context):
        remedies.append(
            Remedy(
                "Install NVIDIA's package, where its apt repository (the one CUDA came from) is set up.",
                (
                    f"{get_sudo_prefix(context.target)}apt-get install {package}",
                    format_check_command(context.target),
                ),
                changes_system=True,
            )
        )
    return [
        RULE.make_finding(
            Cause.CUDNN_MISSING,
            Severity.ERROR,
            f"TensorFlow {build.version} opens {name}. The CUDA toolkit does not contain cuDNN.",
            title=f"cuDNN is not installed: {name} is nowhere",
            evidence=[Evidence("the loader", missing[0].resolution.error)],
            remedies=remedies,
        )
    ]


def _find_missing_parts(context: RuleContext) -> list[Finding]:
    """Return the finding about a libcudnn that can be opened although other files of its wheel are missing.

    cuDNN opens these files when it is first used. The list is empty if none is missing.
    """
    loader, python = context.loader, context.python
    cudnn = next(
        (
            resolution
            for resolution in (loader.resolutions if loader else ())
            if resolution.soname.startswith("libcudnn.")
        ),
        None,
    )
    if python is None or cudnn is None or not cudnn.ok or cudnn.path is None:
        return []
    owner = next(
        (
            distribution
            for distribution in list_nvidia_owners(python, cudnn.path, cudnn.real)
            if distribution.lost
        ),
        None,
    )
    if owner is None:
        return []
    names = ", ".join(posixpath.basename(path) for path in owner.lost)
    pin = f"{owner.name}=={owner.version}"
    command = format_pip_install(context.target, [pin], options="--force-reinstall --no-deps")
    return [
        RULE.make_finding(
            Cause.CUDNN_MISSING,
            Severity.ERROR,
            f"{cudnn.soname} opens its parts when it is first used: the GPU is registered, and the first convolution "
            f"or recurrent layer fails for {names}, which the wheel {pin} brought and which is gone.",
            title=f"A part of cuDNN is missing: {names}",
            evidence=[Evidence(f"{owner.location}/{path}", "is not there") for path in owner.lost],
            remedies=[
                Remedy(
                    "Reinstall cuDNN's wheel.",
                    (command, format_check_command(context.target)),
                    steps=(Install((pin,), force_reinstall=True, install_dependencies=False),),
                )
            ],
        )
    ]


def _has_nvidia_repository(context: RuleContext) -> bool:
    """Return whether NVIDIA's apt repository is likely to be configured.

    It probably is if the system uses apt and cuBLAS is in /usr/local/cuda, where NVIDIA's packages put it.
    """
    if get_package_manager(context.target) != APT or context.loader is None:
        return False
    cublas_paths = [
        resolution.path or ""
        for resolution in context.loader.resolutions
        if resolution.ok and resolution.soname.startswith("libcublas.")
    ]
    return any(path.startswith("/usr/local/cuda") for path in cublas_paths)


RULE = Rule(
    "TFD205",
    "cudnn-missing",
    "cuDNN is not installed",
    (Cause.CUDNN_MISSING,),
    check,
    short_title="not installed",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    area=CUDNN,
    fix_order=52,
)
