"""The installed cuDNN version does not work with this TensorFlow.

What it means
-------------
TensorFlow opens cuDNN by a name with its major version (libcudnn.so.9): if another major version is installed, it is not
opened and no GPU is registered. A lower minor version of the same major is opened, but the first convolution fails: "Loaded
runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0".

How it is seen
--------------
The check follows the loader's rules to find libcudnn. The version is taken from the wheel or conda package that owns
the file, else from the file's full name (libcudnn.so.8.0.5) or from the header next to it (cudnn_version.h).

What to do
----------
Install the cuDNN that this TensorFlow's own extra pins.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Evidence, Severity
from tfdoctor.prediction.library_versions import find_library_version
from tfdoctor.remedies.libraries import make_library_remedies
from tfdoctor.rules.base import CUDNN, CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding


def check(context: RuleContext) -> Result:
    build, loader = context.build, context.loader
    if build is None or loader is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    if context.select_missing_libraries(Cause.CUDNN_VERSION_MISMATCH):
        if context.select_missing_libraries(Cause.LIBS_WRONG_VERSION):
            return NotApplicable("the whole CUDA has another version: that finding covers cuDNN, too")
        names = [library.soname for library in context.select_missing_libraries(Cause.CUDNN_VERSION_MISMATCH)]
        return [path_shadowing.add_shadowing_explanation(context, _build_major_finding(context), names)]
    resolution = next(
        (candidate for candidate in loader.resolutions if candidate.soname.startswith("libcudnn.")), None
    )
    if resolution is None or not resolution.ok or resolution.path is None:
        return NotApplicable("TensorFlow opens no cuDNN here")
    built_cudnn = build.release.cudnn if build.is_exact_release and build.release is not None else build.cudnn
    if built_cudnn is None or "." not in built_cudnn:
        return CouldNotCheck("with which cuDNN this TensorFlow was built is not known")
    cudnn = find_library_version(context.facts, resolution)
    if cudnn is None:
        path = posixpath.normpath(resolution.path)
        return CouldNotCheck(
            f"the version of {path} is not known: no installed package owns the file, its name has no version, and "
            f"there is no cudnn_version.h in the include folder beside it. TensorFlow wants {built_cudnn} or a higher minor"
        )
    version = cudnn.version
    has_same_major = versions.major(version) == versions.major(built_cudnn)
    if not has_same_major or _get_major_minor(version) >= _get_major_minor(built_cudnn):
        return ()
    return [_build_minor_finding(context, resolution.path, version, built_cudnn)]


def _get_major_minor(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as (9, 3) for "9.3.0"."""
    return versions.parse_numbers(version)[:2]


def _build_major_finding(context: RuleContext) -> Finding:
    """Return the finding that only another major version of cuDNN is installed."""
    library = context.select_missing_libraries(Cause.CUDNN_VERSION_MISMATCH)[0]
    build = context.build
    version = build.version if build is not None else ""
    installed = (
        ", ".join(dict.fromkeys(other.name for other in library.other_versions)) or "a file of another kind"
    )
    return RULE.make_finding(
        Cause.CUDNN_VERSION_MISMATCH,
        Severity.ERROR,
        f"TensorFlow {version} opens {library.soname}; {context.location_phrase} there is {installed}. A link from one name "
        "to the "
        "other does not help: the functions inside differ.",
        title=f"A different cuDNN version is installed: {library.soname} is needed, {installed} is installed",
        evidence=[
            Evidence("the loader", library.resolution.error),
            *(Evidence(other.path, "is there") for other in library.other_versions),
        ],
        remedies=make_library_remedies(context.target, [library.soname]),
    )


def _build_minor_finding(context: RuleContext, path: str, version: str, built_cudnn: str) -> Finding:
    """Return the finding that cuDNN's minor version is too low."""
    name = f"libcudnn.so.{versions.major(built_cudnn)}"
    build = context.build
    return RULE.make_finding(
        Cause.CUDNN_VERSION_MISMATCH,
        Severity.ERROR,
        f"TensorFlow {build.version if build is not None else ''} was built with cuDNN {built_cudnn} and needs "
        "that minor "
        f"version or a higher one. It registers the GPU with {version}, and the first convolution or "
        "recurrent "
        f'layer fails: "Loaded runtime CuDNN library: {version} but source was compiled with: {built_cudnn}".',
        title=f"cuDNN {version} is older than the {built_cudnn} that TensorFlow was built with",
        evidence=[Evidence(path, f"cuDNN {version}")],
        remedies=make_library_remedies(context.target, [name]),
    )


RULE = Rule(
    "TFD206",
    "cudnn-version-mismatch",
    "The installed cuDNN version does not work with TensorFlow",
    (Cause.CUDNN_VERSION_MISMATCH,),
    check,
    short_title="does not fit this TensorFlow",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    area=CUDNN,
    fix_order=53,
)
