"""`import tensorflow` fails for a CUDA library (TensorFlow 1.13 and older).

What it means
-------------
The GPU builds of TensorFlow 1.13 and older are linked with CUDA: if one of its libraries is missing, the import
stops with "ImportError: libcublas.so.10.0: cannot open shared object file". The error names only the first missing
library.

How it is seen
--------------
The check reads the names of the required libraries from TensorFlow's own objects, and searches for them as the loader
does. Then it searches the usual folders for the same names and for other versions.

What to do
----------
Install the exact CUDA and cuDNN that this release was built with, add their folder to the loader's search path, or
use a newer TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.libraries import make_library_remedies
from tfdoctor.remedies.pip import format_pip_install, format_pip_uninstall
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.libs_not_on_path import build_search_path_remedies, choose_library_copy
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.prediction.build import Build


def check(context: RuleContext) -> Result:
    build, loader = context.build, context.loader
    if build is None or loader is None or build.linkage != "needed":
        return NotApplicable(
            "this TensorFlow links no CUDA library: from 1.14 on it opens them when it lists GPUs"
        )
    missing_names = tuple(
        dict.fromkeys(soname for resolution in loader.import_needs for soname in resolution.really_missing)
    )
    cuda_names = [name for name in missing_names if name in build.required_libraries]
    if not cuda_names:
        return ()
    finding = RULE.make_finding(
        Cause.IMPORT_MISSING_CUDA_LIB,
        Severity.ERROR,
        f"TensorFlow {build.version} is linked with CUDA {build.cuda} and cannot be imported without "
        f"{', '.join(cuda_names)}. No other version works in their place.",
        title=f"import tensorflow fails: {cuda_names[0]} cannot be opened",
        evidence=_list_evidence(context, cuda_names),
        remedies=_build_remedies(context, build, cuda_names),
    )
    return [path_shadowing.add_shadowing_explanation(context, finding)]


def _list_evidence(context: RuleContext, cuda_names: list[str]) -> list[Evidence]:
    """Return the loader's errors and the files that were found for the missing libraries."""
    loader = context.loader
    evidence = [
        Evidence("the loader", resolution.error) for resolution in (loader.import_needs if loader else ())
    ]
    for library in context.missing_libraries:
        if library.soname in cuda_names:
            evidence += [Evidence(copy.path, "is there") for copy in library.usable_files]
            evidence += [
                Evidence(other.path, f"exists, but {library.soname} is needed")
                for other in library.other_versions[:2]
            ]
            evidence += [
                Evidence(attempt.path, attempt.problem)
                for attempt in library.resolution.tried
                if attempt.problem
            ]
    return evidence


def _build_remedies(context: RuleContext, build: Build, cuda_names: list[str]) -> list[Remedy]:
    """Return the remedies: add a search path, install CUDA, or use the CPU package."""
    libraries_off_path = [
        library
        for library in context.select_missing_libraries(Cause.LIBS_NOT_ON_PATH)
        if library.soname in cuda_names
    ]
    remedies: list[Remedy] = []
    if libraries_off_path:
        remedies += build_search_path_remedies(
            context, [choose_library_copy(missing.usable_files) for missing in libraries_off_path]
        )
    if len(libraries_off_path) < len(cuda_names):
        remedies += make_library_remedies(context.target, cuda_names)
    name = "tensorflow" if build.version else ""
    if name and not libraries_off_path:
        remedies.append(
            Remedy(
                "Use the CPU: the plain package of the same version has no CUDA in it.",
                (
                    format_pip_uninstall(context.target, ["tensorflow-gpu"]),
                    format_pip_install(context.target, [f"tensorflow=={build.version}"]),
                ),
            )
        )
    return remedies


RULE = Rule(
    "TFD207",
    "import-missing-cuda-lib",
    "import tensorflow fails for a CUDA library",
    (Cause.IMPORT_MISSING_CUDA_LIB,),
    check,
    short_title="the import fails",
    needs=(prerequisites.require_cuda_libraries,),
)
