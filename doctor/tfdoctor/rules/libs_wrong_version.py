"""CUDA is installed, in a different version than this TensorFlow was built for.

What it means
-------------
A TensorFlow wheel is built for one CUDA and opens its libraries by names that carry the version:
libcudart.so.12 for CUDA 12, libcudart.so.11.0 for CUDA 11. A CUDA of another major version has other names,
and TensorFlow does not take them. What `nvidia-smi` prints as "CUDA Version" is the newest that the driver
can serve, not what is installed.

How it is seen
--------------
The loader's rules find no file of the wanted name; the folders where it looks, or the usual places, hold the same
library in a different version, or a file of that name for another kind of processor. Which CUDA these files are of
is told by their names and folder, not by `nvcc` or /usr/local/cuda.

What to do
----------
Install the wanted version beside the other one: several CUDA versions can coexist. Or install a TensorFlow that is
built for the CUDA that is there. A link from one name to the other does not help: the functions inside differ.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor import advice, fit, versions
from tfdoctor.facts import Known, value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.records import dataclass
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.libs_not_installed import libraries_to_install
from tfdoctor.rules.shared import path_shadowing, prerequisites
from tfdoctor.text import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Release
    from tfdoctor.predict import MissingLibrary

FULL_RUNTIME = lazy_pattern(r"libcudart\.so\.(\d{1,2}\.\d{1,2})\.\d{1,4}\Z")
FOLDER = lazy_pattern(r"(?:/[^/]{1,200}){0,8}?/cuda-?(\d{1,2}\.\d{1,2})?(?:/|\Z)")
"""A toolkit's folder, with its version where it has one: /usr/local/cuda-11.2/."""


def check(context: RuleContext) -> Result:
    build = context.build
    if build is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    leading, brought = libraries_to_install(context)
    lost = context.select_missing(Cause.LIBS_WRONG_VERSION)
    if not lost:
        return ()
    if leading is not Cause.LIBS_WRONG_VERSION:
        return NotApplicable("most libraries are not there in any version: TFD201 reports all of them")
    names = [missing.soname for missing in brought]
    foreign = [m for m in lost if m.damaged and not m.other_versions]
    cudas = find_other_cudas(context, lost)
    there = ", ".join(cuda.label for cuda in cudas[:3])
    if len(foreign) == len(lost):
        title = f"{lost[0].soname} is there for another kind of processor"
        explanation = (
            "The loader passes over "
            f"{', '.join(t.path for m in lost for t in m.resolution.tried if t.problem)}: "
            f"{lost[0].damaged}. This Python needs libraries for {context.facts.machine.machine}, 64 bit."
        )
    else:
        title = (
            f"TensorFlow {build.version} needs CUDA {_format_cuda_series(context)}, but "
            f"{there or 'another CUDA'} is installed"
        )
        explanation = (
            f"TensorFlow {build.version} is built for CUDA {build.cuda} and opens {', '.join(names)}. "
            f"{context.here.capitalize()} these libraries have other versions."
            f"{_describe_met_files(cudas)} A link from the wanted name to another version does not help: the "
            f"functions inside differ, "
            "and it fails later or gives wrong results."
        )
    finding = RULE.finding(
        Cause.LIBS_WRONG_VERSION,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=_evidence(context, lost),
        remedies=[
            *advice.bring_libraries(context.target, names),
            *_find_other_tensorflow(context, lost, cudas),
        ],
    )
    return [path_shadowing.with_shadowing(context, finding, names)]


def _format_cuda_series(context: RuleContext) -> str:
    """Return "12" if any CUDA 12 is enough, "11.0" if only that version has all the sonames."""
    build = context.build
    if build is None or build.cuda is None:
        return "of a different version"
    major = str(versions.major(build.cuda))
    of_all = [context.compat.cuda_of_soname(name) for name in build.required]
    return major if all(major in some for some in of_all if some) else versions.major_minor(build.cuda)


@dataclass(frozen=True, slots=True)
class OtherCuda:
    """Libraries of another CUDA in one folder."""

    folder: str
    version: str | None
    """Its major and minor where names or the folder tell them, its major alone where only that is told."""
    via: str
    """"on LD_LIBRARY_PATH", "where TensorFlow looks"; empty where the loader does not look."""
    names: tuple[str, ...]
    """All its libraries of the families that TensorFlow opens."""
    wrong: tuple[str, ...]
    """Those that are there instead of what TensorFlow wants."""

    @property
    def label(self) -> str:
        """Return the label for people: "CUDA 10.1 (/opt/cuda/lib64, on LD_LIBRARY_PATH)"."""
        what = f"CUDA {self.version}" if self.version else self.wrong[0]
        toolkit = FOLDER.match(self.folder)
        where = toolkit[0].rstrip("/") if toolkit is not None and not self.via else self.folder
        return f"{what} ({where}{f', {self.via}' if self.via else ''})"


def find_other_cudas(context: RuleContext, lost: tuple[MissingLibrary, ...]) -> list[OtherCuda]:
    """Find the CUDAs of whose libraries TensorFlow needs other versions.

    Those where the loader searches, if there are any; else all that were found.
    """
    loader = context.loader
    if loader is None:
        return []
    looked = {posixpath.normpath(folder): "where TensorFlow looks" for folder in loader.runpath_folders}
    looked |= {posixpath.normpath(folder): "on LD_LIBRARY_PATH" for folder in loader.library_path}
    wrong: dict[str, list[str]] = {}
    for missing in lost:
        for found in missing.other_versions:
            wrong.setdefault(posixpath.dirname(posixpath.normpath(found.path)), []).append(found.name)
    found_in = {
        folder: tuple(f.name for f in loader.found if posixpath.dirname(posixpath.normpath(f.path)) == folder)
        for folder in wrong
    }
    cudas = [
        OtherCuda(
            folder,
            _determine_cuda_version(context, folder, found_in[folder]),
            looked.get(folder, ""),
            found_in[folder],
            tuple(sorted(set(names))),
        )
        for folder, names in wrong.items()
    ]
    return [cuda for cuda in cudas if cuda.via] or cudas


def _determine_cuda_version(context: RuleContext, folder: str, names: Sequence[str]) -> str | None:
    """Determine of which CUDA a folder's libraries are.

    Sources: the runtime's full name, a toolkit's folder, what all sonames share.
    """
    full = {match[1] for name in names if (match := FULL_RUNTIME.match(name)) is not None}
    if len(full) == 1:
        return full.pop()
    for toolkit in context.facts.toolkits:
        if toolkit.version and f"{folder}/".startswith(f"{toolkit.path}/"):
            return versions.major_minor(toolkit.version)
    named = FOLDER.match(folder)
    if named is not None and named[1]:
        return named[1]
    runtime = [name for name in names if name.startswith("libcudart.")]  # its name says most
    series = [set(context.compat.cuda_of_soname(name)) for name in runtime or names]
    shared = set.intersection(*filter(None, series)) if any(series) else set()
    return shared.pop() if len(shared) == 1 else None


def _describe_met_files(cudas: list[OtherCuda]) -> str:
    """List the files that the loader meets in its search."""
    met = [cuda for cuda in cudas if cuda.via]
    if not met:
        return ""
    shown = "; ".join(f"{', '.join(cuda.wrong[:6])} in {cuda.folder}" for cuda in met[:3])
    return f" The loader looks where these are: {shown}."


def _evidence(context: RuleContext, lost: tuple[MissingLibrary, ...]) -> list[Evidence]:
    lines = [Evidence("the loader", missing.resolution.error) for missing in lost]
    for missing in lost:
        lines += [
            Evidence(f.path, f"exists, but {missing.soname} is needed") for f in missing.other_versions[:3]
        ]
        lines += [Evidence(t.path, t.problem) for t in missing.resolution.tried if t.problem]
    lines += [Evidence(t.path, f"CUDA toolkit {t.version}") for t in context.facts.toolkits if t.version]
    nvcc = context.facts.nvcc
    if isinstance(nvcc, Known):
        lines.append(
            Evidence(nvcc.source, f"release {nvcc.value} (it says nothing of what TensorFlow opens)")
        )
    return lines


def _find_other_tensorflow(
    context: RuleContext, lost: tuple[MissingLibrary, ...], cudas: list[OtherCuda]
) -> list[Remedy]:
    """Find the newest TensorFlow for this machine and Python that opens the installed CUDA libraries.

    It was built with that CUDA or, from 11 on, an older minor of it: a newer one may call functions
    that the installed CUDA lacks.
    """
    python = value_of(context.facts.python)
    if python is None:
        return []
    stems = {m.soname.split(".so")[0] for m in lost}
    for cuda in cudas:
        fitting = [
            release
            for release in context.compat.releases_for_python(python.version, "linux", gpu=True)
            if _opens(release, cuda, stems)
            and fit.can_serve(context.compat, release, context.target.host, python.version)
        ]
        if fitting and cuda.version is not None and "." not in cuda.version:  # of its minor nothing is known
            least = min((r.cuda or "" for r in fitting), key=versions.numbers)
            fitting = [release for release in fitting if release.cuda == least]
        if not fitting:
            continue
        own = context.tensorflow.distribution if context.tensorflow is not None else None
        newest = [release for release in fitting if release.version == fitting[0].version]
        release = next((r for r in newest if r.package == own), newest[0])  # not two packages over each other
        return [
            Remedy(
                f"Install a TensorFlow for the CUDA that is there: {release.version}, built for CUDA {release.cuda}, "
                "is the newest for this Python.",
                (
                    advice.pip_install(
                        context.target,
                        [
                            f"{release.package}=={release.version}",
                            *advice.companion_pins(context.compat, release),
                        ],
                    ),
                    advice.check_again(context.target),
                ),
            )
        ]
    return []


def _opens(release: Release, cuda: OtherCuda, stems: set[str]) -> bool:
    wanted = [soname for soname in release.required_libraries if soname.split(".so")[0] in stems]
    if not wanted or not all(soname in cuda.names for soname in wanted) or release.cuda is None:
        return False
    if cuda.version is None:
        return True
    built, there = versions.numbers(release.cuda)[:2], versions.numbers(cuda.version)[:2]
    if built[0] != there[0]:
        return False
    return len(there) < 2 or (built <= there if there[0] >= 11 else built == there)


RULE = Rule(
    "TFD202",
    "libs-wrong-version",
    "A different CUDA version is installed than TensorFlow needs",
    (Cause.LIBS_WRONG_VERSION,),
    check,
    row="a different version is installed",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_late_opening),
    first=50,
)
