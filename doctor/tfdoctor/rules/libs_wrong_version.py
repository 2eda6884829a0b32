"""CUDA is installed, in another version than this TensorFlow was built for.

What it means
-------------
A TensorFlow wheel is built for one CUDA and opens its libraries by names that carry the version:
libcudart.so.12 for CUDA 12, libcudart.so.11.0 for CUDA 11. A CUDA of another major version has other names,
and TensorFlow does not take them. What `nvidia-smi` prints as "CUDA Version" is the newest that the driver
can serve, not what is installed.

How it is seen
--------------
The loader's rules find no file of the wanted name; the usual places hold the same library in another
version, or a file of that name for another kind of processor.

What to do
----------
Install the wanted version beside the other one: several CUDAs live together. Or install a TensorFlow that
is built for the CUDA that is there. A link from one name to the other is no cure: the functions inside
differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import Known, value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules import _hiding, advice
from tfdoctor.rules.base import Context, NotApplicable, Result, Rule, linked_hard, without_libraries
from tfdoctor.rules.libs_not_installed import to_bring

if TYPE_CHECKING:
    from tfdoctor.predict import MissingLibrary


def check(context: Context) -> Result:
    unanswerable = without_libraries(context) or linked_hard(context)
    if unanswerable is not None:
        return unanswerable
    build = context.build
    if build is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    leading, brought = to_bring(context)
    lost = context.missing_because(Cause.LIBS_WRONG_VERSION)
    if not lost:
        return ()
    if leading is not Cause.LIBS_WRONG_VERSION:
        return NotApplicable("most libraries are not there in any version: TFD201 tells of all of them")
    names = [missing.soname for missing in brought]
    foreign = [m for m in lost if m.damaged and not m.other_versions]
    there = _there(context, lost)
    if len(foreign) == len(lost):
        title = f"{lost[0].soname} is there for another kind of processor"
        explanation = (
            "The loader passes over "
            f"{', '.join(t.path for m in lost for t in m.resolution.tried if t.problem)}: "
            f"{lost[0].damaged}. This Python needs libraries for {context.facts.machine.machine}, 64 bit."
        )
    else:
        title = f"TensorFlow {build.version} needs CUDA {_series(context)}, and {there or 'another CUDA'} is there"
        explanation = (
            f"TensorFlow {build.version} is built for CUDA {build.cuda} and opens {', '.join(names)}. On "
            "this "
            "machine these libraries have other versions. A link from the wanted name to another version is "
            "no "
            "cure: the functions inside differ, and it fails later or computes wrongly."
        )
    finding = RULE.finding(
        Cause.LIBS_WRONG_VERSION,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=_evidence(context, lost),
        remedies=[*advice.bring_libraries(context, names), *_other_tensorflow(context, lost)],
    )
    return [_hiding.amended(context, finding, names)]


def _series(context: Context) -> str:
    """ "12" where any CUDA 12 will do, "11.0" where only that one has all the sonames."""
    build = context.build
    if build is None or build.cuda is None:
        return "of another version"
    if build.minor == (2, 4) or versions.major(build.cuda) < 11:
        return versions.major_minor(build.cuda)
    return str(versions.major(build.cuda))


def _met(context: Context, lost: tuple[MissingLibrary, ...]) -> dict[str, str]:
    """Where the other versions lie, what the loader meets first of each library → the CUDA there, "" where unknown."""
    folders = dict.fromkeys(m.other_versions[0].path.rpartition("/")[0] for m in lost if m.other_versions)
    return {folder: _version_in(context, folder) for folder in folders}


def _version_in(context: Context, folder: str) -> str:
    """The version of the CUDA in a folder: its toolkit's, that of the full name of its libcudart, or its path's."""
    for toolkit in context.facts.toolkits:
        if toolkit.version and f"{folder}/".startswith(f"{toolkit.path}/"):
            return toolkit.version
    found = context.loader.found if context.loader is not None else ()
    full = [f.name for f in found if f.stem == "libcudart" and f.path == f"{folder}/{f.name}"]
    for text in (*full, folder):
        match = re.search(r"(?:libcudart\.so\.|cuda[-_])(\d{1,2}\.[1-9]\d?|\d{1,2}\.0(?=\.|/|$))", text)
        if match is not None and (text == folder or text.count(".") > 3):
            return match[1]
    return ""


def _there(context: Context, lost: tuple[MissingLibrary, ...]) -> str:
    """For people: "CUDA 12.4 (/usr/local/cuda-12.4/lib64)", else the files' names."""
    kits = {t.path for t in context.facts.toolkits}
    named = {
        f"CUDA {version} ({next((kit for kit in kits if folder.startswith(f'{kit}/')), folder)})"
        for folder, version in _met(context, lost).items()
        if version
    }
    if named:
        return ", ".join(sorted(named))
    first = [m.other_versions[0] for m in lost if m.other_versions]
    return ", ".join(sorted({f"{f.name} ({f.path.rpartition('/')[0]})" for f in first}))


def _evidence(context: Context, lost: tuple[MissingLibrary, ...]) -> list[Evidence]:
    lines = [Evidence("the loader", missing.resolution.error) for missing in lost]
    for missing in lost:
        lines += [
            Evidence(f.path, f"is there, {missing.soname} is wanted") for f in missing.other_versions[:3]
        ]
        lines += [Evidence(t.path, t.problem) for t in missing.resolution.tried if t.problem]
    lines += [Evidence(t.path, f"CUDA toolkit {t.version}") for t in context.facts.toolkits if t.version]
    nvcc = context.facts.nvcc
    if isinstance(nvcc, Known):
        lines.append(
            Evidence(nvcc.source, f"release {nvcc.value} (it says nothing of what TensorFlow opens)")
        )
    return lines


def _other_tensorflow(context: Context, lost: tuple[MissingLibrary, ...]) -> list[Remedy]:
    """The newest TensorFlow for this Python that opens what is there."""
    there = {f.name for missing in lost for f in missing.other_versions}
    python = value_of(context.facts.python)
    if python is None:
        return []
    known = [version for version in _met(context, lost).values() if version]
    for release in context.compat.releases_for_python(python.version, "linux", gpu=True):
        wanted = [
            s
            for s in release.required_libraries
            if s.split(".so")[0] in {m.soname.split(".so")[0] for m in lost}
        ]
        if known and (release.cuda is None or not all(_serves(version, release.cuda) for version in known)):
            continue
        if wanted and all(soname in there for soname in wanted):
            return [
                Remedy(
                    f"Install a TensorFlow for the CUDA that is there: {release.version} is the newest for "
                    "this "
                    "Python.",
                    (
                        advice.pip_install(
                            context,
                            [f"{release.package}=={release.version}", *advice.companion_pins(release)],
                        ),
                        advice.check_again(context),
                    ),
                )
            ]
    return []


def _serves(there: str, built: str) -> bool:
    """Whether a CUDA is of the major version that a release is built for, and not older."""
    return (
        versions.major(there) == versions.major(built)
        and versions.numbers(there)[:2] >= versions.numbers(built)[:2]
    )


RULE = Rule(
    "TFD202",
    "libs-wrong-version",
    "CUDA is there in another version than TensorFlow wants",
    (Cause.LIBS_WRONG_VERSION,),
    check,
)
