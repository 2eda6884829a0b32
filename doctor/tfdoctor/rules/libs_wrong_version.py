"""CUDA is installed, in a different version than this TensorFlow was built for.

What it means
-------------
A TensorFlow wheel is built for one CUDA version and opens its libraries by names that contain the version:
libcudart.so.12 for CUDA 12, libcudart.so.11.0 for CUDA 11. A CUDA of another major version has other names,
which TensorFlow does not open. The "CUDA Version" that `nvidia-smi` prints is the newest that the driver
supports, not the installed one.

How it is seen
--------------
The loader's rules find no file with the required name, but its search path or the usual folders have the same library
in a different version, or a file of that name for another kind of processor. The CUDA version is taken from the
names and the folder of these files, not from `nvcc` or /usr/local/cuda.

What to do
----------
Install the required version next to the other one: several CUDA versions can coexist. Or install a TensorFlow that is
built for the installed CUDA. A link from one name to the other does not help, because the functions differ.
"""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import RemoveEntries
from tfdoctor.core.facts import Known, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.prediction.fit.compatibility import can_use_release
from tfdoctor.prediction.libraries import find_foreign_link_target
from tfdoctor.remedies.libraries import make_library_remedies
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.remedies.releases import list_companion_pins
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.libs_not_installed import find_libraries_to_install
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Release
    from tfdoctor.core.findings import Finding
    from tfdoctor.prediction.libraries import MissingLibrary

RUNTIME_FILE_PATTERN = make_lazy_pattern(r"libcudart\.so\.(\d{1,2}\.\d{1,2})\.\d{1,4}\Z")
"""The full file name of the CUDA runtime, with its version: libcudart.so.11.2.152."""
TOOLKIT_FOLDER_PATTERN = make_lazy_pattern(r"(?:/[^/]{1,200}){0,8}?/cuda-?(\d{1,2}\.\d{1,2})?(?:/|\Z)")
"""The folder of a toolkit, with the version if the name has one: /usr/local/cuda-11.2/."""


def check(context: RuleContext) -> Result:
    build = context.build
    if build is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    main_cause, needed_libraries = find_libraries_to_install(context)
    libraries = context.select_missing_libraries(Cause.LIBS_WRONG_VERSION)
    if not libraries:
        return ()
    if main_cause is not Cause.LIBS_WRONG_VERSION:
        return NotApplicable("most libraries are not there in any version: TFD201 reports all of them")
    if any(library.link_target for library in libraries):
        return [_build_link_finding(context, libraries)]
    names = [missing.soname for missing in needed_libraries]
    other_arch_libraries = [
        library for library in libraries if library.file_problem and not library.other_versions
    ]
    cudas = find_other_cudas(context, libraries)
    cuda_labels = _join_labels(cudas)
    if len(other_arch_libraries) == len(libraries):
        title = f"{libraries[0].soname} is there for another kind of processor"
        explanation = (
            "The loader passes over "
            f"{', '.join(attempt.path for library in libraries for attempt in library.resolution.tried if attempt.problem)}: "
            f"{libraries[0].file_problem}. This Python needs libraries for {context.facts.machine.machine}, 64 bit."
        )
    else:
        title = (
            f"TensorFlow {build.version} needs CUDA {_format_cuda_series(context)}, but "
            f"{cuda_labels or 'another CUDA'} is installed"
        )
        explanation = (
            f"TensorFlow {build.version} is built for CUDA {build.cuda}, whose libraries are not {context.location_phrase}. "
            "The installed CUDA can stay. Several versions can be installed at once, and NVIDIA's wheels (pip) change only "
            f"the environment. Not found: {', '.join(names)}.{_describe_searched_files(cudas)} "
            "A link from the wanted name to another version does not help: the functions inside differ, and it fails later "
            "or gives wrong results."
        )
    finding = RULE.make_finding(
        Cause.LIBS_WRONG_VERSION,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=_list_evidence(context, libraries),
        remedies=[
            *make_library_remedies(context.target, names),
            *_build_other_release_remedy(context, libraries, cudas),
        ],
    )
    return [path_shadowing.add_shadowing_explanation(context, finding, names)]


def _join_labels(cudas: list[OtherCuda]) -> str:
    """Return the labels of up to three versions, each with its first folder and the number of its others."""
    cudas_by_version: dict[str | None, list[OtherCuda]] = {}
    for cuda in cudas:
        cudas_by_version.setdefault(cuda.version, []).append(cuda)
    return ", ".join(
        f"{group[0].label[:-1]}, and {len(group) - 1} more folder{'s' * (len(group) > 2)})"
        if len(group) > 1
        else group[0].label
        for group in list(cudas_by_version.values())[:3]
    )


def _build_link_finding(context: RuleContext, libraries: tuple[MissingLibrary, ...]) -> Finding:
    """Return the finding about libraries of another CUDA that are linked under the names that TensorFlow opens."""
    loader, build = context.loader, context.build
    resolutions = loader.resolutions if loader is not None else ()
    required_names = build.required_libraries if build is not None else ()
    linked = [
        resolution
        for resolution in resolutions
        if resolution.soname in required_names and find_foreign_link_target(resolution)
    ]
    targets = [
        f"{resolution.soname} is a link to {posixpath.basename(resolution.real)}" for resolution in linked
    ]
    folders = tuple(dict.fromkeys(posixpath.dirname(resolution.path or "") for resolution in linked))
    hiding = [
        entry for entry in (loader.library_path if loader is not None else ()) if entry.rstrip("/") in folders
    ]
    names = [resolution.soname for resolution in linked]
    remedies = make_library_remedies(context.target, names)
    if hiding:
        step = RemoveEntries("LD_LIBRARY_PATH", tuple(hiding))
        command = step.format_command(context.facts.environment.variables)
        text = f"Take {', '.join(hiding)}, which contains the links, off LD_LIBRARY_PATH. Then: "
        remedies = [
            replace(
                remedy,
                text=f"{text}{remedy.text}",
                commands=(command, *remedy.commands),
                steps=(step, *remedy.steps) if remedy.steps else (),
            )
            for remedy in remedies
        ]
    return RULE.make_finding(
        Cause.LIBS_WRONG_VERSION,
        Severity.ERROR,
        f"In {', '.join(folders)} {', '.join(targets)}. The functions inside differ, and {libraries[0].soname} cannot be opened: "
        f"{libraries[0].resolution.error}.",
        title=f"{targets[0]}: another CUDA under the names that TensorFlow opens",
        evidence=[Evidence(resolution.path or "", f"leads to {resolution.real}") for resolution in linked],
        remedies=remedies,
    )


def _format_cuda_series(context: RuleContext) -> str:
    """Return the CUDA that the build needs: "12" if all of CUDA 12 has its sonames, otherwise "11.0" or the like."""
    build = context.build
    if build is None or build.cuda is None:
        return "of a different version"
    major = str(versions.major(build.cuda))
    cuda_versions = [context.compat.list_cuda_with_soname(name) for name in build.required_libraries]
    return (
        major
        if all(major in candidates for candidates in cuda_versions if candidates)
        else versions.major_minor(build.cuda)
    )


@dataclass(frozen=True, slots=True)
class OtherCuda:
    """Libraries of another CUDA version in one folder."""

    folder: str
    version: str | None
    """The major and minor version, or only the major if the minor is not known. None if neither is known."""
    search_phrase: str
    """Why the loader searches the folder: "on LD_LIBRARY_PATH" or "where TensorFlow looks"; "" if it does not."""
    library_names: tuple[str, ...]
    """The names of all CUDA libraries in the folder that TensorFlow opens in some version."""
    wrong_library_names: tuple[str, ...]
    """The names of those libraries whose version is not the one that TensorFlow requires."""

    @property
    def label(self) -> str:
        """A label such as "CUDA 10.1 (/opt/cuda/lib64, on LD_LIBRARY_PATH)"."""
        name = f"CUDA {self.version}" if self.version else self.wrong_library_names[0]
        toolkit = TOOLKIT_FOLDER_PATTERN.match(self.folder)
        folder = toolkit[0].rstrip("/") if toolkit is not None and not self.search_phrase else self.folder
        return f"{name} ({folder}{f', {self.search_phrase}' if self.search_phrase else ''})"


def find_other_cudas(context: RuleContext, libraries: tuple[MissingLibrary, ...]) -> list[OtherCuda]:
    """Return the installed CUDA versions that TensorFlow cannot use.

    If any of them is in the loader's search path, the others are left out.
    """
    loader = context.loader
    if loader is None:
        return []
    phrase_by_folder = {
        posixpath.normpath(folder): "where TensorFlow looks" for folder in loader.runpath_folders
    }
    phrase_by_folder |= {posixpath.normpath(folder): "on LD_LIBRARY_PATH" for folder in loader.library_path}
    wrong_names: dict[str, list[str]] = {}
    for missing in libraries:
        for library in missing.other_versions:
            wrong_names.setdefault(posixpath.dirname(posixpath.normpath(library.path)), []).append(
                library.name
            )
    names_by_folder = {
        folder: tuple(
            file.name for file in loader.found if posixpath.dirname(posixpath.normpath(file.path)) == folder
        )
        for folder in wrong_names
    }
    cudas = [
        OtherCuda(
            folder=folder,
            version=_determine_cuda_version(context, folder, names_by_folder[folder]),
            search_phrase=phrase_by_folder.get(folder, ""),
            library_names=names_by_folder[folder],
            wrong_library_names=tuple(sorted(set(names))),
        )
        for folder, names in wrong_names.items()
    ]
    return [cuda for cuda in cudas if cuda.search_phrase] or cudas


def _determine_cuda_version(context: RuleContext, folder: str, names: Sequence[str]) -> str | None:
    """Return the CUDA version of a folder's libraries; None if it is not clear.

    The version comes from the full name of the runtime, from the toolkit's folder, or from the sonames if only one
    version has all of them.
    """
    runtime_versions = {match[1] for name in names if (match := RUNTIME_FILE_PATTERN.match(name)) is not None}
    if len(runtime_versions) == 1:
        return runtime_versions.pop()
    for toolkit in context.facts.toolkits:
        if toolkit.version and f"{folder}/".startswith(f"{toolkit.path}/"):
            return versions.major_minor(toolkit.version)
    toolkit_match = TOOLKIT_FOLDER_PATTERN.match(folder)
    if toolkit_match is not None and toolkit_match[1]:
        return toolkit_match[1]
    # the soname of the runtime is the most precise one
    runtime_names = [name for name in names if name.startswith("libcudart.")]
    candidates = [set(context.compat.list_cuda_with_soname(name)) for name in runtime_names or names]
    common_versions = set.intersection(*filter(None, candidates)) if any(candidates) else set()
    return common_versions.pop() if len(common_versions) == 1 else None


def _describe_searched_files(cudas: list[OtherCuda]) -> str:
    """Return a sentence about the wrong files in the loader's search path; "" if there are none."""
    searched_cudas = [cuda for cuda in cudas if cuda.search_phrase]
    if not searched_cudas:
        return ""
    descriptions = "; ".join(
        f"{', '.join(cuda.wrong_library_names[:6])} in {cuda.folder}" for cuda in searched_cudas[:3]
    )
    return f" The loader looks where these are: {descriptions}."


def _list_evidence(context: RuleContext, libraries: tuple[MissingLibrary, ...]) -> list[Evidence]:
    """Return the loader's errors, the files in other versions, the toolkits, and nvcc's release."""
    evidence = [Evidence("the loader", library.resolution.error) for library in libraries]
    for library in libraries:
        evidence += [
            Evidence(other.path, f"exists, but {library.soname} is needed")
            for other in library.other_versions[:3]
        ]
        evidence += [
            Evidence(attempt.path, attempt.problem) for attempt in library.resolution.tried if attempt.problem
        ]
    evidence += [
        Evidence(toolkit.path, f"CUDA toolkit {toolkit.version}")
        for toolkit in context.facts.toolkits
        if toolkit.version
    ]
    nvcc = context.facts.nvcc
    if isinstance(nvcc, Known):
        evidence.append(
            Evidence(nvcc.source, f"release {nvcc.value} (it says nothing of what TensorFlow opens)")
        )
    return evidence


def _build_other_release_remedy(
    context: RuleContext, libraries: tuple[MissingLibrary, ...], cudas: list[OtherCuda]
) -> list[Remedy]:
    """Return the remedy to install the newest TensorFlow that opens the installed libraries.

    The release works on this machine and Python. It was built with the installed CUDA version or, from CUDA
    11 on, with an older minor version of it: a release built with a newer one may call functions that the
    installed CUDA lacks.
    """
    python = value_of(context.facts.python)
    if python is None:
        return []
    stems = {library.soname.split(".so")[0] for library in libraries}
    for cuda in cudas:
        releases = [
            release
            for release in context.compat.list_releases_for_python(python.version, "linux", gpu=True)
            if _can_use(release, cuda, stems)
            and can_use_release(context.compat, release, context.target.host, python.version)
        ]
        # the installed minor version is not known: a release for the lowest one is the safest
        if releases and cuda.version is not None and "." not in cuda.version:
            lowest = min((release.cuda or "" for release in releases), key=versions.parse_numbers)
            releases = [release for release in releases if release.cuda == lowest]
        if not releases:
            continue
        distribution = context.tensorflow.distribution if context.tensorflow is not None else None
        newest_releases = [release for release in releases if release.version == releases[0].version]
        # prefer the installed package, so that two are not installed over each other
        release = next(
            (candidate for candidate in newest_releases if candidate.package == distribution),
            newest_releases[0],
        )
        return [
            Remedy(
                f"Install a TensorFlow for the CUDA that is there: {release.version}, built for CUDA {release.cuda}, "
                "is the newest for this Python.",
                (
                    format_pip_install(
                        context.target,
                        [
                            f"{release.package}=={release.version}",
                            *list_companion_pins(context.compat, release),
                        ],
                    ),
                    format_check_command(context.target),
                ),
            )
        ]
    return []


def _can_use(release: Release, cuda: OtherCuda, stems: set[str]) -> bool:
    """Return whether a release can use the libraries of an installed CUDA.

    `stems` are the names of the libraries without their versions ("libcublas").
    """
    sonames = [soname for soname in release.required_libraries if soname.split(".so")[0] in stems]
    if not sonames or not all(soname in cuda.library_names for soname in sonames) or release.cuda is None:
        return False
    if cuda.version is None:
        return True
    build_version = versions.parse_numbers(release.cuda)[:2]
    installed_version = versions.parse_numbers(cuda.version)[:2]
    if build_version[0] != installed_version[0]:
        return False
    # only the major version of the installed CUDA may be known
    return len(installed_version) < 2 or (
        build_version <= installed_version
        if installed_version[0] >= 11
        else build_version == installed_version
    )


RULE = Rule(
    "TFD202",
    "libs-wrong-version",
    "A different CUDA version is installed than TensorFlow needs",
    (Cause.LIBS_WRONG_VERSION,),
    check,
    short_title="a different version is installed",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    fix_order=50,
)
