"""CUDA libraries are installed, but not where the loader looks.

What it means
-------------
The libraries that this TensorFlow opens are on the machine, but their folder is not on its RUNPATH or on
LD_LIBRARY_PATH, and ldconfig does not know it. TensorFlow prints "Cannot dlopen some GPU libraries. Skipping
registering GPU devices..." and uses the CPU.

How it is seen
--------------
The check follows glibc's rules for each library that TensorFlow opens, from the object that opens it; then it searches
the usual folders (NVIDIA's wheels, conda, /usr/local/cuda*, the system's folders) for files of that name.

What to do
----------
Add the folder to LD_LIBRARY_PATH before Python starts, link the file into a folder on TensorFlow's own RUNPATH,
or add the folder to ldconfig's configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.fit.compatibility import can_use_release
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.remedies.releases import list_gpu_requirements
from tfdoctor.remedies.search_path import make_ldconfig_remedy, make_path_remedy, make_runpath_link_remedy
from tfdoctor.rules.base import LOADER, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts import FoundElsewhere, LoaderFacts
    from tfdoctor.prediction.libraries import MissingLibrary

SYSTEM_CUDA_FOLDERS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr/local/lib")
"""Folders that can be added to ldconfig, because nothing in them interferes with other programs."""


def check(context: RuleContext) -> Result:
    libraries = context.select_missing_libraries(Cause.LIBS_NOT_ON_PATH)
    if not libraries or context.loader is None or context.build is None:
        return ()
    names = ", ".join(library.soname for library in libraries)
    files = [choose_library_copy(library.usable_files) for library in libraries]
    files += _choose_needed_copies(context.loader)
    folders = list_file_folders(files)
    evidence = [Evidence(file.path, "is there") for file in files]
    evidence += [Evidence("the loader", library.resolution.error) for library in libraries]
    search_path = ":".join(context.loader.library_path)
    evidence.append(Evidence("LD_LIBRARY_PATH", search_path or "is not set"))
    explanation = (
        f"TensorFlow {context.build.version} opens {names} from "
        f"{(context.loader.caller or '').rpartition('/')[2]}, and the loader does not look in "
        f"{', '.join(folders)}."
    )
    if has_runpath_defect(context, libraries):
        explanation += (
            f" This is a fault of TensorFlow {context.build.version} itself: the RUNPATH of that object "
            "leaves "
            "the folder out, so that even a complete installation with its own `and-cuda` extra registers "
            "no GPU."
        )
    subject = f"{names} is" if len(libraries) == 1 else f"{len(libraries)} CUDA libraries are"
    return [
        RULE.make_finding(
            Cause.LIBS_NOT_ON_PATH,
            Severity.ERROR,
            explanation,
            title=f"{subject} installed where the loader does not look",
            evidence=evidence,
            remedies=build_search_path_remedies(
                context, files, prefer_fixed_release=has_runpath_defect(context, libraries)
            ),
        )
    ]


def has_runpath_defect(context: RuleContext, libraries: Sequence[MissingLibrary]) -> bool:
    """Return whether this release is known to omit the folders of its own extra from its RUNPATH."""
    build = context.build
    release = build.release if build is not None and build.is_exact_release else None
    return release is not None and any(library.soname in release.runpath_misses for library in libraries)


def _choose_needed_copies(loader: LoaderFacts) -> list[FoundElsewhere]:
    """Return a file for each soname that the files outside the search path need and do not find by themselves."""
    copies_by_name: dict[str, list[FoundElsewhere]] = {}
    for file in loader.found:
        copies_by_name.setdefault(file.name, []).append(file)
    return [
        choose_library_copy(copies_by_name[name]) for name in loader.found_needs if name in copies_by_name
    ]


def choose_library_copy(copies: Sequence[FoundElsewhere]) -> FoundElsewhere:
    """Return the first copy that does not belong to PyTorch, or else the first copy."""
    return next((library for library in copies if library.package != "torch"), copies[0])


def list_file_folders(files: Sequence[FoundElsewhere]) -> tuple[str, ...]:
    """Return the folders of these files without duplicates."""
    return tuple(dict.fromkeys(library.path.rpartition("/")[0] for library in files))


def build_search_path_remedies(
    context: RuleContext, files: Sequence[FoundElsewhere], *, prefer_fixed_release: bool = False
) -> list[Remedy]:
    """Return the remedies that make the loader search the folders of these files.

    With `prefer_fixed_release`, the first remedy installs a release without the RUNPATH defect, if there is one.
    """
    folders = list_file_folders(files)
    remedies: list[Remedy] = []
    link_remedy = make_runpath_link_remedy(context.target, files)
    release_remedy = _build_fixed_release_remedy(context) if prefer_fixed_release else None
    if release_remedy is not None:
        remedies.append(release_remedy)
    if link_remedy is not None:
        remedies.append(link_remedy)
    # LD_LIBRARY_PATH cannot contain a folder with a separator in its name
    if not any(set(folder) & set(":;") for folder in folders):
        text = "Add the folder to the search path before Python starts (os.environ inside the program is too late)."
        remedies.append(make_path_remedy(context.target, folders, text))
    if all(folder.startswith(SYSTEM_CUDA_FOLDERS) and "-packages/" not in folder for folder in folders):
        remedies.append(make_ldconfig_remedy(context.target, folders))
    return remedies


def _build_fixed_release_remedy(context: RuleContext) -> Remedy | None:
    """Return the remedy to install a later release of the same minor version that finds its own libraries.

    Return None if there is no such release.
    """
    build, python = context.build, context.python
    if build is None or build.release is None or python is None:
        return None
    for release in context.compat.list_releases_for_python(python.version, "linux", gpu=True):
        has_same_minor = release.package == build.release.package and release.minor == build.release.minor
        is_fixed = has_same_minor and release.parsed > build.release.parsed and not release.runpath_misses
        if is_fixed and can_use_release(context.compat, release, context.target.host, python.version):
            return Remedy(
                f"Install {release.version}, where this is fixed.",
                (
                    format_pip_install(context.target, list_gpu_requirements(context.target, release)),
                    format_check_command(context.target),
                ),
            )
    return None


RULE = Rule(
    "TFD203",
    "libs-not-on-path",
    "CUDA libraries are where the loader does not look",
    (Cause.LIBS_NOT_ON_PATH,),
    check,
    short_title="not where the loader looks",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    area=LOADER,
    fix_order=55,
)
