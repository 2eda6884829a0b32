"""CUDA libraries that TensorFlow needs are not installed on this machine.

What it means
-------------
TensorFlow's wheel does not contain CUDA: it opens NVIDIA's libraries (the runtime, cuBLAS, cuFFT, cuSOLVER, cuSPARSE,
cuDNN) when it lists the GPUs. If any of them is missing, it prints "Cannot dlopen some GPU libraries. Skipping
registering GPU devices..." and uses the CPU. The driver does not include them.

How it is seen
--------------
The check follows glibc's rules for each library that TensorFlow opens, and searches the usual folders (NVIDIA's
wheels, conda, /usr/local/cuda*, the system's folders) for files of that name in any version. It finds none.

What to do
----------
Install NVIDIA's wheels in the versions that this TensorFlow's own extra pins. TensorFlow 2.14 and newer
finds them by itself, except 2.16.1 (none of them) and 2.21.0 (all but cuSOLVER): for these the finding has the links to
make. 2.5 to 2.13 needs LD_LIBRARY_PATH. For older releases, conda has the libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Severity
from tfdoctor.prediction.libraries import choose_libraries_cause
from tfdoctor.remedies.libraries import make_library_remedies
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.prediction.libraries import MissingLibrary


INSTALLABLE_CAUSES = (
    Cause.LIBS_NOT_INSTALLED,
    Cause.LIBS_WRONG_VERSION,
    Cause.CUDNN_MISSING,
    Cause.CUDNN_VERSION_MISMATCH,
)
"""Causes that one installation of libraries removes together."""


def find_libraries_to_install(context: RuleContext) -> tuple[Cause | None, tuple[MissingLibrary, ...]]:
    """Return the cause whose rule reports the missing libraries, and the libraries that must be installed.

    The cause belongs to TFD201 or TFD202; it is None if neither applies. Other rules report damaged files, and
    cuDNN if it alone is missing.
    """
    libraries = tuple(
        library
        for library in context.missing_libraries
        if library.cause in INSTALLABLE_CAUSES
        # TFD209 reports a damaged file
        and not (library.file_problem and library.cause is Cause.LIBS_NOT_INSTALLED)
    )
    causes = [library.cause for library in libraries]
    wrong_count = causes.count(Cause.LIBS_WRONG_VERSION)
    absent_count = causes.count(Cause.LIBS_NOT_INSTALLED)
    if not wrong_count and not absent_count:
        return None, libraries
    main_cause = choose_libraries_cause(context.facts, context.build) if context.build is not None else None
    if main_cause in {Cause.LIBS_WRONG_VERSION, Cause.LIBS_NOT_INSTALLED} and main_cause in causes:
        return main_cause, libraries
    return (Cause.LIBS_WRONG_VERSION if wrong_count >= absent_count else Cause.LIBS_NOT_INSTALLED), libraries


def check(context: RuleContext) -> Result:
    main_cause, libraries = find_libraries_to_install(context)
    build = context.build
    if build is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    if main_cause is not Cause.LIBS_NOT_INSTALLED:
        return ()
    names = [library.soname for library in libraries]
    are_all_missing = len(libraries) == len(build.required_libraries)
    explanation = (
        "TensorFlow needs the CUDA libraries. The driver does not include them, and neither does a plain `pip install "
        "tensorflow`. "
        f"TensorFlow {build.version} is built for CUDA {build.cuda} and opens {', '.join(build.required_libraries)}. "
        + (
            f"None of them is {context.location_phrase}."
            if are_all_missing
            else f"{', '.join(names)} cannot be found anywhere."
        )
    )
    title = (
        "The CUDA libraries are not installed"
        if are_all_missing
        else f"{_format_subject(names)} not installed"
    )
    evidence = [Evidence("the loader", library.resolution.error) for library in libraries]
    evidence += [
        Evidence(other.path, f"exists, but {library.soname} is needed")
        for library in libraries
        for other in library.other_versions[:2]
    ]
    return [
        RULE.make_finding(
            Cause.LIBS_NOT_INSTALLED,
            Severity.ERROR,
            explanation,
            title=title,
            evidence=evidence,
            remedies=make_library_remedies(context.target, names),
        )
    ]


def _format_subject(names: list[str]) -> str:
    """Return the subject and verb of the title, such as "libcublas.so.12 is" or "5 CUDA libraries are"."""
    if len(names) > 3:
        return f"{len(names)} CUDA libraries are"
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


RULE = Rule(
    "TFD201",
    "libs-not-installed",
    "CUDA libraries are not installed",
    (Cause.LIBS_NOT_INSTALLED,),
    check,
    short_title="not installed",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    fix_order=51,
)
