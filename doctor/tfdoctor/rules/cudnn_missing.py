"""CUDA is installed but cuDNN is not.

What it means
-------------
cuDNN, NVIDIA's library for neural networks, is not part of the CUDA toolkit: it is installed separately. TensorFlow
opens it when it lists the GPUs, and without it registers none. cuDNN in turn is in several files, which it opens
when it is first used: without one of these the GPU is registered and convolutions fail.

How it is seen
--------------
The loader gives TensorFlow its CUDA libraries and not libcudnn, and no file of that name is in the usual
places. Where cuDNN is from a wheel, the files that the wheel brought are looked for.

What to do
----------
Install cuDNN in the major version that this TensorFlow opens; where parts are gone, install it again.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.causes.steps import Install
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import owners
from tfdoctor.rules.base import CUDNN, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.findings import Finding


def check(context: RuleContext) -> Result:
    build = context.build
    lost = context.select_missing(Cause.CUDNN_MISSING)
    if build is None:
        return ()
    if not lost:
        return _check_lost_parts(context)
    if context.select_missing(Cause.LIBS_NOT_INSTALLED, Cause.LIBS_WRONG_VERSION):
        return NotApplicable(
            "cuDNN is missing with the other CUDA libraries: that finding explains how to install it"
        )
    name = lost[0].soname
    remedies = advice.bring_libraries(context.target, [name])
    package = context.compat.debian_package_for(name, build.cuda)
    if package is not None and _has_nvidia_repository(context):
        remedies.append(
            Remedy(
                "Install NVIDIA's package, where its apt repository (the one CUDA came from) is set up.",
                (
                    f"{advice.sudo(context.target)}apt-get install {package}",
                    advice.check_again(context.target),
                ),
                changes_system=True,
            )
        )
    return [
        RULE.finding(
            Cause.CUDNN_MISSING,
            Severity.ERROR,
            f"TensorFlow {build.version} opens {name}. The CUDA toolkit does not contain cuDNN.",
            title=f"cuDNN is not installed: {name} is nowhere",
            evidence=[Evidence("the loader", lost[0].resolution.error)],
            remedies=remedies,
        )
    ]


def _check_lost_parts(context: RuleContext) -> list[Finding]:
    """Report a libcudnn that opens while its wheel has lost parts that it opens when it is used."""
    loader, python = context.loader, context.python
    opened = next(
        (r for r in (loader.resolutions if loader else ()) if r.soname.startswith("libcudnn.")), None
    )
    if python is None or opened is None or not opened.ok or opened.path is None:
        return []
    owner = next((d for d in owners(python, opened.path, opened.real) if d.lost), None)
    if owner is None:
        return []
    names = ", ".join(posixpath.basename(path) for path in owner.lost)
    pin = f"{owner.name}=={owner.version}"
    command = advice.pip_install(context.target, [pin], options="--force-reinstall --no-deps")
    return [
        RULE.finding(
            Cause.CUDNN_MISSING,
            Severity.ERROR,
            f"{opened.soname} opens its parts when it is first used: the GPU is registered, and the first convolution "
            f"or recurrent layer fails for {names}, which the wheel {pin} brought and which is gone.",
            title=f"A part of cuDNN is missing: {names}",
            evidence=[Evidence(f"{owner.location}/{path}", "is not there") for path in owner.lost],
            remedies=[
                Remedy(
                    "Reinstall cuDNN's wheel.",
                    (command, advice.check_again(context.target)),
                    steps=(Install((pin,), again=True, dependencies=False),),
                )
            ],
        )
    ]


def _has_nvidia_repository(context: RuleContext) -> bool:
    """Return whether CUDA came as packages of the system: then its repository is configured."""
    if advice.package_manager(context.target) != advice.APT or context.loader is None:
        return False
    used = [r.path or "" for r in context.loader.resolutions if r.ok and r.soname.startswith("libcublas.")]
    return any(path.startswith("/usr/local/cuda") for path in used)


RULE = Rule(
    "TFD205",
    "cudnn-missing",
    "cuDNN is not installed",
    (Cause.CUDNN_MISSING,),
    check,
    row="not installed",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_late_opening),
    area=CUDNN,
    first=52,
)
