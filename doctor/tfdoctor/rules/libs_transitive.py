"""A CUDA library is found, but something that it needs itself is not.

What it means
-------------
CUDA libraries need each other: cuSPARSE and cuSOLVER of CUDA 12 need nvJitLink, cuBLAS needs cuBLASLt. The
loader opens a library only if it finds everything that the library needs. TensorFlow then names the library
that it tried to open, not the one that is missing.

How it is seen
--------------
The check reads the dependencies of each library from the file and searches for them with that library's own RUNPATH,
as the loader does. It compares the required symbol versions with those that the found files have.

What to do
----------
Install the package that provides the missing library, or add its folder to the loader's search path.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.links import format_link_commands, make_file_link
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.remedies.search_path import make_folder_removal_remedy, make_path_remedy
from tfdoctor.remedies.system import APT, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.remedies.wheels import (
    exclude_installed_versions,
    find_wheel,
    get_site_packages,
    list_cuda_requirements,
    make_install_steps,
)
from tfdoctor.rules.base import LOADER, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import FoundElsewhere
    from tfdoctor.prediction.libraries import MissingLibrary

UNDEFINED_SYMBOL_PREFIX = "undefined symbol: "
"""The text before the symbol's name in the loader's error."""
DEBIAN_PACKAGES = {"libz.so.1": "zlib1g", "libgomp.so.1": "libgomp1", "libstdc++.so.6": "libstdc++6"}
"""Debian and Ubuntu packages of the system libraries that cuDNN and CUDA need."""


def check(context: RuleContext) -> Result:
    libraries = context.select_missing_libraries(Cause.LIBS_TRANSITIVE)
    if not libraries:
        return ()
    stale_paths = _find_stale_libraries(libraries)
    absent_names: tuple[str, ...] = ()
    if not stale_paths:
        absent_names = tuple(
            dict.fromkeys(
                soname
                for library in libraries
                for soname in library.resolution.really_missing
                if soname != library.soname
            )
        )
    title, explanation = _describe_missing(libraries, absent_names, stale_paths)
    finding = RULE.make_finding(
        Cause.LIBS_TRANSITIVE,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=[evidence for missing in libraries for evidence in _list_evidence(missing)],
        remedies=_build_remedies(context, absent_names, libraries, stale_paths),
    )
    return [
        path_shadowing.add_shadowing_explanation(context, finding, [missing.soname for missing in libraries])
    ]


def _describe_missing(
    libraries: tuple[MissingLibrary, ...], absent_names: tuple[str, ...], stale_paths: tuple[str, ...]
) -> tuple[str, str]:
    """Return the title and the explanation of the finding.

    `absent_names` are the sonames of libraries that cannot be found. `stale_paths` are the paths of libraries
    that have the wrong version.
    """
    sonames = ", ".join(library.soname for library in libraries)
    verb, found_clause = ("needs", "is") if len(libraries) == 1 else ("need", "are")
    symbol = next((candidate for library in libraries if (candidate := _parse_undefined_symbol(library))), "")
    if stale_paths:
        names = ", ".join(path.rpartition("/")[2] for path in stale_paths)
        return (
            f"{sonames} {verb} a different {names} than the installed one",
            f"The function {symbol} is not in {', '.join(stale_paths)}: its version does not match its users.",
        )
    short_explanation = (
        f"{sonames} {found_clause} found. TensorFlow's log only names the library that it opened."
    )
    if any("version `" in library.resolution.error for library in libraries):
        return f"{sonames} {verb} a newer version of something than the installed one", short_explanation
    if absent_names:
        absent = ", ".join(absent_names)
        title = f"{sonames} {verb} {absent}, which the loader cannot find"
        return (
            title,
            f"{sonames} {found_clause} found, and not {absent}. TensorFlow's log only names the library that it opened.",
        )
    if symbol:
        symbol_explanation = (
            f"The function {symbol} is in none of the libraries that the loader gives. One of them does "
            f"not match the libraries that use "
            "it. TensorFlow's log only names the library that it opened."
        )
        return f"{sonames} {verb} a function that no library here has", symbol_explanation
    return (
        f"{sonames} cannot be used: {libraries[0].resolution.error or 'the loader refuses it'}",
        short_explanation,
    )


def _parse_undefined_symbol(library: MissingLibrary) -> str:
    """Return the undefined symbol in the loader's error; "" if the error is about something else."""
    return library.resolution.error.partition(UNDEFINED_SYMBOL_PREFIX)[2]


def _list_evidence(library: MissingLibrary) -> list[Evidence]:
    """Return the file of the library, the loader's error, and the files that the loader rejected."""
    resolution = library.resolution
    evidence = [Evidence(resolution.path or library.soname, f"is found as {library.soname}")]
    needed_by = (resolution.needed_by or "").rpartition("/")[2]
    evidence.append(
        Evidence("the loader", f"{resolution.error}{f' (needed by {needed_by})' if needed_by else ''}")
    )
    evidence += [Evidence(attempt.path, attempt.problem) for attempt in resolution.tried if attempt.problem]
    return evidence


def _find_stale_libraries(libraries: tuple[MissingLibrary, ...]) -> tuple[str, ...]:
    """Return the paths of the loaded libraries whose version lacks the undefined symbol.

    A library should have the symbol if the symbol begins with its name: cublasLtCreate is from libcublasLt.
    """
    paths: dict[str, None] = {}
    for library in libraries:
        symbol = _parse_undefined_symbol(library).lstrip("_").lower()
        for attempt in library.resolution.tried:
            name = attempt.path.rpartition("/")[2]
            stem = name.split(".so")[0].removeprefix("lib").lower()
            if symbol and not attempt.problem and stem and symbol.startswith(stem) and name != library.soname:
                paths.setdefault(posixpath.normpath(attempt.path))
    return tuple(paths)


def _build_remedies(
    context: RuleContext,
    absent_names: tuple[str, ...],
    libraries: tuple[MissingLibrary, ...],
    stale_paths: tuple[str, ...],
) -> list[Remedy]:
    """Return the remedies for the absent or stale libraries, or for a folder that hides the right file."""
    removal = _build_skip_folders_remedy(context, libraries)
    if removal is not None:
        return [removal]
    requirements = list_cuda_requirements(context.target, [path.rpartition("/")[2] for path in stale_paths])
    if requirements and all("/nvidia/" in path for path in stale_paths):
        requirements = exclude_installed_versions(context.target, requirements)
        command = format_pip_install(context.target, requirements)
        check_command = format_check_command(context.target)
        text = "Install it in the version that goes with the other libraries."
        return [Remedy(text, (command, check_command), steps=(Install(requirements),))]
    loader = context.loader
    if (
        loader is not None
        and loader.library_path
        and all(_parse_undefined_symbol(library) for library in libraries)
    ):
        return [
            Remedy(
                "A library in a folder on LD_LIBRARY_PATH may be found before the right one. Check "
                "without that variable before you reinstall anything; if that helps, remove the folder from "
                "it.",
                (f"env -u LD_LIBRARY_PATH {format_check_command(context.target)}",),
            )
        ]
    files = _find_copies(context, absent_names)
    if absent_names and len(files) == len(absent_names):
        folders = tuple(dict.fromkeys(file.path.rpartition("/")[0] for file in files))
        text = f"It is in {', '.join(folders)}: add the folder to the search path before Python starts."
        return [
            *_build_link_remedies(context, files, libraries),
            make_path_remedy(context.target, folders, text),
        ]
    if any("version `GLIBC_" in missing.resolution.error for missing in libraries):
        return [
            _build_reinstall_remedy(
                context,
                libraries,
                "The library is made for a newer system than this one. Install an older one: NVIDIA's wheels in the "
                "versions that this TensorFlow pins.",
            )
        ]
    build = context.build
    wheels = (
        [find_wheel(context.target, soname, build.cuda) for soname in absent_names]
        if build and build.cuda
        else []
    )
    requirements = list_cuda_requirements(context.target, absent_names)
    if requirements and wheels:
        steps, commands = make_install_steps(context.target, requirements)
        text = f"Install the package that provides {', '.join(absent_names)}."
        return [Remedy(text, (*commands, format_check_command(context.target)), steps=steps)]
    system_packages = {name: DEBIAN_PACKAGES.get(name) for name in absent_names}
    if absent_names and all(system_packages.values()) and get_package_manager(context.target) == APT:
        packages = " ".join(dict.fromkeys(str(package) for package in system_packages.values()))
        return [
            Remedy(
                f"Install the package that provides {', '.join(absent_names)}.",
                (
                    f"{get_sudo_prefix(context.target)}apt-get install {packages}",
                    format_check_command(context.target),
                ),
                changes_system=True,
            )
        ]
    return [
        _build_reinstall_remedy(context, libraries, "Reinstall the library with everything that it needs.")
    ]


def _build_skip_folders_remedy(context: RuleContext, libraries: tuple[MissingLibrary, ...]) -> Remedy | None:
    """Return the remedy to remove folders with unusable files from LD_LIBRARY_PATH.

    Return None if it is not certain that the loader then finds a usable copy. If the facts show which copy the
    loader finds, `add_shadowing_explanation` replaces this remedy.
    """
    loader = context.loader
    if loader is None or not loader.library_path:
        return None
    folders, copies = [], []
    for library in libraries:
        resolution = library.resolution
        # a version error begins with the path of the file that lacks the version
        error_path, separator, _ = resolution.error.partition(": version `")
        path = error_path if separator and error_path.startswith("/") else ""
        path = path or resolution.needed_by or resolution.path or ""
        folder, _, name = path.rpartition("/")
        # The system's own libraries are searched after every folder. For CUDA's, another copy must have been found.
        other_copies = [file for file in loader.found if file.name == name and file.path != path]
        if folder not in loader.library_path or not (name in DEBIAN_PACKAGES or other_copies):
            return None
        folders.append(folder)
        copies += other_copies[:1]
    resolved_names = {resolution.soname for resolution in loader.resolutions if resolution.ok}
    if any(
        resolved_names - {resolution.soname for resolution in removal_result.resolutions if resolution.ok}
        for removal_result in loader.without
    ):
        return None  # without the variables, a library would no longer be found
    return make_folder_removal_remedy(
        context.target, tuple(dict.fromkeys(folders)), copies if loader.without else ()
    )


def _find_copies(context: RuleContext, absent_names: tuple[str, ...]) -> list[FoundElsewhere]:
    """Return one file for each absent library that exists elsewhere on this machine."""
    files = context.loader.found if context.loader is not None else ()
    copies = (next((file for file in files if file.name == name), None) for name in absent_names)
    return [copy for copy in copies if copy is not None]


def _build_link_remedies(
    context: RuleContext, files: list[FoundElsewhere], libraries: tuple[MissingLibrary, ...]
) -> list[Remedy]:
    """Return the remedy to link the library next to the one that needs it.

    Return an empty list if several libraries are affected, or if one of the files is not in site-packages.
    """
    site_packages = get_site_packages(context.target)
    needed_by = libraries[0].resolution.needed_by or libraries[0].resolution.path or ""
    folder = posixpath.dirname(needed_by)
    if (
        not site_packages
        or len(libraries) > 1
        or not all(path.startswith(f"{site_packages}/") for path in (folder, *(file.path for file in files)))
    ):
        return []
    steps = [make_file_link(file.path, folder) for file in files]
    return [
        Remedy(
            f"Link it next to {posixpath.basename(needed_by)}, which needs it.",
            (*format_link_commands(steps), format_check_command(context.target)),
            steps=tuple(steps),
        )
    ]


def _build_reinstall_remedy(context: RuleContext, libraries: tuple[MissingLibrary, ...], text: str) -> Remedy:
    """Return the remedy to reinstall these libraries' wheels; it has no commands if no wheel has them."""
    requirements = list_cuda_requirements(context.target, [library.soname for library in libraries])
    if not requirements:
        return Remedy(text)
    command = format_pip_install(context.target, requirements, options="--force-reinstall")
    return Remedy(
        text,
        (command, format_check_command(context.target)),
        steps=(Install(requirements, force_reinstall=True),),
    )


RULE = Rule(
    "TFD204",
    "libs-transitive",
    "A CUDA library lacks something that it needs",
    (Cause.LIBS_TRANSITIVE,),
    check,
    short_title="a library lacks what it needs",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    area=LOADER,
    fix_order=54,
)
