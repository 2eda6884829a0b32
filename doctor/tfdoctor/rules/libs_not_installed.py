"""CUDA libraries that TensorFlow opens are not installed on this machine.

What it means
-------------
TensorFlow's wheel has no CUDA in it: it opens NVIDIA's libraries (the runtime, cuBLAS, cuFFT, cuSOLVER, cuSPARSE,
cuDNN) when it lists the GPUs. Without any one of them it prints "Cannot dlopen some GPU libraries. Skipping
registering GPU devices..." and uses the CPU. The driver does not include them.

How it is seen
--------------
glibc's rules are followed for each library that TensorFlow opens, and the usual places (NVIDIA's wheels,
conda, /usr/local/cuda*, the system's folders) are searched for files of that name in any version: there is
none.

What to do
----------
Install NVIDIA's wheels in the versions that this TensorFlow's own extra pins. TensorFlow 2.14 and newer
looks into them by itself; 2.5 to 2.13 must be told through LD_LIBRARY_PATH; for older ones conda has the
libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.findings import Cause, Evidence, Severity
from tfdoctor.predict import libraries_cause
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.predict import MissingLibrary


INSTALLABLE_CAUSES = (
    Cause.LIBS_NOT_INSTALLED,
    Cause.LIBS_WRONG_VERSION,
    Cause.CUDNN_MISSING,
    Cause.CUDNN_VERSION_MISMATCH,
)
"""What is fixed by installing libraries, all at once."""


def libraries_to_install(context: RuleContext) -> tuple[Cause | None, tuple[MissingLibrary, ...]]:
    """Return (which of TFD201 and TFD202 reports them, the libraries that must be installed).

    Damaged files are reported elsewhere, and so is a cuDNN that is the only missing library.
    """
    lost = tuple(
        m for m in context.missing if m.cause in INSTALLABLE_CAUSES and not (m.damaged and _stops(m))
    )
    own = [m.cause for m in lost]
    wrong, none = own.count(Cause.LIBS_WRONG_VERSION), own.count(Cause.LIBS_NOT_INSTALLED)
    if not wrong and not none:
        return None, lost
    leading = libraries_cause(context.facts, context.build) if context.build is not None else None
    if leading in {Cause.LIBS_WRONG_VERSION, Cause.LIBS_NOT_INSTALLED} and leading in own:
        return leading, lost
    return (Cause.LIBS_WRONG_VERSION if wrong >= none else Cause.LIBS_NOT_INSTALLED), lost


def _stops(missing: MissingLibrary) -> bool:
    return missing.cause is Cause.LIBS_NOT_INSTALLED


def check(context: RuleContext) -> Result:
    (leading, lost), build = libraries_to_install(context), context.build
    if build is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    if leading is not Cause.LIBS_NOT_INSTALLED:
        return ()
    names = [missing.soname for missing in lost]
    whole = len(lost) == len(build.required)
    explanation = (
        f"TensorFlow {build.version} is built for CUDA {build.cuda} and opens {', '.join(build.required)}. "
        + (f"None of them is {context.here}." if whole else f"{', '.join(names)} cannot be found anywhere.")
        + " Neither the driver nor the plain `pip install tensorflow` includes them."
    )
    title = "The CUDA libraries are not installed" if whole else f"{_names(names)} not installed"
    evidence = [Evidence("the loader", missing.resolution.error) for missing in lost]
    evidence += [
        Evidence(found.path, f"exists, but {missing.soname} is needed")
        for missing in lost
        for found in missing.other_versions[:2]
    ]
    return [
        RULE.finding(
            Cause.LIBS_NOT_INSTALLED,
            Severity.ERROR,
            explanation,
            title=title,
            evidence=evidence,
            remedies=advice.bring_libraries(context.target, names),
        )
    ]


def _names(names: list[str]) -> str:
    if len(names) > 3:
        return f"{len(names)} CUDA libraries are"
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


RULE = Rule(
    "TFD201",
    "libs-not-installed",
    "CUDA libraries are not installed",
    (Cause.LIBS_NOT_INSTALLED,),
    check,
    row="not installed",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_late_opening),
    first=51,
)
