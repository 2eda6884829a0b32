"""cuDNN is there in a version that this TensorFlow cannot use.

What it means
-------------
TensorFlow opens cuDNN by a name with its major version (libcudnn.so.9): another major is not taken and no
GPU is registered. Of the same major, a minor below the one that TensorFlow was built with is opened, and
the first convolution fails: "Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0. CuDNN
library needs to have matching major version and equal or higher minor version."

How it is seen
--------------
The loader's rules are followed for libcudnn; the version is that of the installed wheel, or of the file's
full name (libcudnn.so.8.0.5) beside it.

What to do
----------
Install the cuDNN that this TensorFlow's own extra pins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.findings import Cause, Evidence, Severity
from tfdoctor.rules import _hiding, advice
from tfdoctor.rules.base import (
    Context,
    CouldNotCheck,
    NotApplicable,
    Result,
    Rule,
    linked_hard,
    without_libraries,
)

if TYPE_CHECKING:
    from tfdoctor.findings import Finding


def check(context: Context) -> Result:
    unanswerable = without_libraries(context) or linked_hard(context)
    if unanswerable is not None:
        return unanswerable
    build, loader = context.build, context.loader
    if build is None or loader is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    if context.missing_because(Cause.CUDNN_VERSION_MISMATCH):
        if context.missing_because(Cause.LIBS_WRONG_VERSION):
            return NotApplicable("the whole CUDA has another version: that finding tells of cuDNN, too")
        names = [m.soname for m in context.missing_because(Cause.CUDNN_VERSION_MISMATCH)]
        return [_hiding.amended(context, _other_major(context), names)]
    used = next((r for r in loader.resolutions if r.soname.startswith("libcudnn.")), None)
    if used is None or not used.ok or used.path is None:
        return NotApplicable("TensorFlow opens no cuDNN here")
    built = build.release.cudnn if build.exact and build.release is not None else build.cudnn
    if built is None or "." not in built:
        return CouldNotCheck("with which cuDNN this TensorFlow was built is not known")
    version = library_version(context, used.path)
    if version is None:
        return CouldNotCheck(f"the version of {used.path} is not known")
    if versions.major(version) != versions.major(built) or versions.numbers(version)[:2] >= _minor(built):
        return ()
    return [_lower_minor(context, used.path, version, built)]


def _minor(version: str) -> tuple[int, ...]:
    return versions.numbers(version)[:2]


def library_version(context: Context, path: str) -> str | None:
    """The version of a found library: that of its wheel, else of the longer file name beside it."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".so")[0]
    site, inside, _ = path.partition("/nvidia/")
    if inside and context.python is not None:
        project = re.compile(rf"nvidia-{stem.removeprefix('lib').lower()}(-cu\d+)?\Z")
        wheels = [d for d in context.python.distributions if project.match(d.name) and d.location == site]
        if len(wheels) == 1:
            return wheels[0].version
    beside = (context.loader.found if context.loader is not None else ()) if not inside else ()
    full = [f.name.partition(".so.")[2] for f in beside if f.path == f"{folder}/{f.name}" and f.stem == stem]
    wanted = name.partition(".so.")[2]
    matching = [v for v in full if v.count(".") >= 2 and v.startswith(f"{wanted}.")]
    return matching[0] if len(matching) == 1 else None


def _other_major(context: Context) -> Finding:
    lost = context.missing_because(Cause.CUDNN_VERSION_MISMATCH)[0]
    build = context.build
    version = build.version if build is not None else ""
    there = ", ".join(dict.fromkeys(found.name for found in lost.other_versions)) or "a file of another kind"
    return RULE.finding(
        Cause.CUDNN_VERSION_MISMATCH,
        Severity.ERROR,
        f"TensorFlow {version} opens {lost.soname}; on this machine there is {there}. A link from one name "
        "to the "
        "other is no cure: the functions inside differ.",
        title=f"cuDNN is there in another version: {lost.soname} is wanted, {there} is installed",
        evidence=[
            Evidence("the loader", lost.resolution.error),
            *(Evidence(found.path, "is there") for found in lost.other_versions),
        ],
        remedies=advice.bring_libraries(context, [lost.soname]),
    )


def _lower_minor(context: Context, path: str, version: str, built: str) -> Finding:
    name = f"libcudnn.so.{versions.major(built)}"
    build = context.build
    return RULE.finding(
        Cause.CUDNN_VERSION_MISMATCH,
        Severity.ERROR,
        f"TensorFlow {build.version if build is not None else ''} was built with cuDNN {built} and needs "
        "that minor "
        f"version or a higher one. It registers the GPU with {version}, and the first convolution or "
        "recurrent "
        f'layer fails: "Loaded runtime CuDNN library: {version} but source was compiled with: {built}".',
        title=f"cuDNN {version} is older than the {built} that TensorFlow was built with",
        evidence=[Evidence(path, f"cuDNN {version}")],
        remedies=advice.bring_libraries(context, [name]),
    )


RULE = Rule(
    "TFD206",
    "cudnn-version-mismatch",
    "cuDNN is there in a version that TensorFlow cannot use",
    (Cause.CUDNN_VERSION_MISMATCH,),
    check,
)
