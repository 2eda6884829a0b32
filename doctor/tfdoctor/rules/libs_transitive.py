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

from tfdoctor import advice
from tfdoctor.advice import link_commands, link_to
from tfdoctor.causes.steps import Install
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import LOADER, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import FoundElsewhere
    from tfdoctor.predict import MissingLibrary


def check(context: RuleContext) -> Result:
    libraries = context.select_missing(Cause.LIBS_TRANSITIVE)
    if not libraries:
        return ()
    stale = _list_stale_libraries(libraries)
    absent: tuple[str, ...] = ()
    if not stale:
        absent = tuple(
            dict.fromkeys(
                soname
                for library in libraries
                for soname in library.resolution.really_missing
                if soname != library.soname
            )
        )
    title, explanation = _describe_missing(libraries, absent, stale)
    finding = RULE.finding(
        Cause.LIBS_TRANSITIVE,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=[line for missing in libraries for line in _evidence(missing)],
        remedies=_remedies(context, absent, libraries, stale),
    )
    return [path_shadowing.with_shadowing(context, finding, [missing.soname for missing in libraries])]


def _describe_missing(
    libraries: tuple[MissingLibrary, ...], absent: tuple[str, ...], stale: tuple[str, ...]
) -> tuple[str, str]:
    """Return the title and the explanation."""
    opened = ", ".join(missing.soname for missing in libraries)
    verb, found_clause = ("needs", "it is") if len(libraries) == 1 else ("need", "they are")
    symbol = next((candidate for missing in libraries if (candidate := _parse_undefined_symbol(missing))), "")
    if stale:
        names = ", ".join(path.rpartition("/")[2] for path in stale)
        return (
            f"{opened} {verb} a different {names} than the installed one",
            f"The function {symbol} is not in {', '.join(stale)}: its version does not match its users.",
        )
    short_explanation = (
        f"{opened} {found_clause} found. TensorFlow's log only names the library that it opened."
    )
    if any("version `" in missing.resolution.error for missing in libraries):
        return f"{opened} {verb} a newer version of something than the installed one", short_explanation
    if absent:
        listed = ", ".join(absent)
        title = f"{opened} {verb} {listed}, which the loader cannot give {'it' if len(libraries) == 1 else 'them'}"
        return (
            title,
            f"{opened} {found_clause} found, and not {listed}. TensorFlow's log only names the library that it opened.",
        )
    if symbol:
        symbol_explanation = (
            f"The function {symbol} is in none of the libraries that the loader gives. One of them does "
            f"not match the libraries that use "
            "it. TensorFlow's log only names the library that it opened."
        )
        return f"{opened} {verb} a function that no library here has", symbol_explanation
    return (
        f"{opened} cannot be used: {libraries[0].resolution.error or 'the loader refuses it'}",
        short_explanation,
    )


def _parse_undefined_symbol(missing: MissingLibrary) -> str:
    """Return the undefined symbol in the loader's error; empty if the error is about something else."""
    return missing.resolution.error.partition(UNDEFINED_SYMBOL)[2]


def _evidence(missing: MissingLibrary) -> list[Evidence]:
    """Return the found file, the loader's error, and the files that the loader rejected."""
    resolution = missing.resolution
    lines = [Evidence(resolution.path or missing.soname, f"is found as {missing.soname}")]
    user = (resolution.needed_by or "").rpartition("/")[2]
    lines.append(Evidence("the loader", f"{resolution.error}{f' (needed by {user})' if user else ''}"))
    lines += [Evidence(tried.path, tried.problem) for tried in resolution.tried if tried.problem]
    return lines


def _list_stale_libraries(libraries: tuple[MissingLibrary, ...]) -> tuple[str, ...]:
    """List the loaded libraries that lack the undefined symbol although its name begins with theirs.

    They have another version than the libraries that use them.
    """
    paths: dict[str, None] = {}
    for missing in libraries:
        symbol = _parse_undefined_symbol(missing).lstrip("_").lower()
        for tried in missing.resolution.tried:
            name = tried.path.rpartition("/")[2]
            stem = name.split(".so")[0].removeprefix("lib").lower()
            if symbol and not tried.problem and stem and symbol.startswith(stem) and name != missing.soname:
                paths.setdefault(posixpath.normpath(tried.path))
    return tuple(paths)


def _remedies(
    context: RuleContext,
    absent: tuple[str, ...],
    libraries: tuple[MissingLibrary, ...],
    stale: tuple[str, ...],
) -> list[Remedy]:
    """Return the remedies for absent libraries, for stale ones, or for a folder that hides the right file."""
    removal = _skip_folders_remedy(context, libraries)
    if removal is not None:
        return [removal]
    wheels = advice.cuda_requirements(context.target, [path.rpartition("/")[2] for path in stale])
    if wheels and all("/nvidia/" in path for path in stale):
        wheels = advice.strip_versions(context.target, wheels)
        command = advice.pip_install(context.target, wheels)
        check_command = advice.check_again(context.target)
        text = "Install it in the version that goes with the other libraries."
        return [Remedy(text, (command, check_command), steps=(Install(wheels),))]
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
                (f"env -u LD_LIBRARY_PATH {advice.check_again(context.target)}",),
            )
        ]
    files = _find_copies(context, absent)
    if absent and len(files) == len(absent):
        folders = tuple(dict.fromkeys(file.path.rpartition("/")[0] for file in files))
        text = f"It is in {', '.join(folders)}: add the folder to the search path before Python starts."
        return [
            *_link_remedies(context, files, libraries),
            advice.make_path_remedy(context.target, folders, text),
        ]
    if any("version `GLIBC_" in missing.resolution.error for missing in libraries):
        return [
            _reinstall_remedy(
                context,
                libraries,
                "The library is made for a newer system than this one. Install an older one: NVIDIA's wheels in the "
                "versions that this TensorFlow pins.",
            )
        ]
    build = context.build
    projects = (
        [advice.wheel_project(context.target, soname, build.cuda) for soname in absent]
        if build and build.cuda
        else []
    )
    wheels = advice.cuda_requirements(context.target, absent)
    if wheels and projects:
        steps, commands = advice.make_install_steps(context.target, wheels)
        text = f"Install the package that provides {', '.join(absent)}."
        return [Remedy(text, (*commands, advice.check_again(context.target)), steps=steps)]
    system_packages = {name: SYSTEM_PACKAGES.get(name) for name in absent}
    if absent and all(system_packages.values()) and advice.package_manager(context.target) == advice.APT:
        packages = " ".join(dict.fromkeys(str(package) for package in system_packages.values()))
        return [
            Remedy(
                f"Install the package that provides {', '.join(absent)}.",
                (
                    f"{advice.sudo_prefix(context.target)}apt-get install {packages}",
                    advice.check_again(context.target),
                ),
                changes_system=True,
            )
        ]
    return [_reinstall_remedy(context, libraries, "Reinstall the library with everything that it needs.")]


UNDEFINED_SYMBOL = "undefined symbol: "
SYSTEM_PACKAGES = {"libz.so.1": "zlib1g", "libgomp.so.1": "libgomp1", "libstdc++.so.6": "libstdc++6"}
"""Debian and Ubuntu packages of the system libraries that cuDNN and CUDA need."""


def _skip_folders_remedy(context: RuleContext, libraries: tuple[MissingLibrary, ...]) -> Remedy | None:
    """Return the remedy to remove folders from LD_LIBRARY_PATH that put an unusable file before another copy.

    None if it is not certain to help. If the loader would find the other copy by itself, `with_shadowing`
    replaces this remedy.
    """
    loader = context.loader
    if loader is None or not loader.library_path:
        return None
    folders, copies = [], []
    for missing in libraries:
        resolution = missing.resolution
        version_error = resolution.error.partition(": version `")
        path = version_error[0] if version_error[1] and version_error[0].startswith("/") else ""
        path = path or resolution.needed_by or resolution.path or ""
        folder, _, name = path.rpartition("/")
        # The system's own libraries are searched after every folder. For CUDA's, another copy must have been found.
        other_copies = [file for file in loader.found if file.name == name and file.path != path]
        if folder not in loader.library_path or not (name in SYSTEM_PACKAGES or other_copies):
            return None
        folders.append(folder)
        copies += other_copies[:1]
    resolved = {item.soname for item in loader.resolutions if item.ok}
    if any(resolved - {item.soname for item in variant.resolutions if item.ok} for variant in loader.without):
        return None  # a library that is found now would not be found
    return advice.remove_folders(
        context.target, tuple(dict.fromkeys(folders)), copies if loader.without else ()
    )


def _find_copies(context: RuleContext, absent: tuple[str, ...]) -> list[FoundElsewhere]:
    """Return a file on this machine for each of the absent libraries that has one."""
    files = context.loader.found if context.loader is not None else ()
    copies = (next((file for file in files if file.name == name), None) for name in absent)
    return [copy for copy in copies if copy is not None]


def _link_remedies(
    context: RuleContext, files: list[FoundElsewhere], libraries: tuple[MissingLibrary, ...]
) -> list[Remedy]:
    """Return the remedy to link the library next to the one that needs it.

    Empty unless both are in the environment's own wheels and only one library is affected.
    """
    site = advice.get_site_packages(context.target)
    user = libraries[0].resolution.needed_by or libraries[0].resolution.path or ""
    folder = posixpath.dirname(user)
    if (
        not site
        or len(libraries) > 1
        or not all(path.startswith(f"{site}/") for path in (folder, *(item.path for item in files)))
    ):
        return []
    steps = [link_to(file.path, folder) for file in files]
    return [
        Remedy(
            f"Link it next to {posixpath.basename(user)}, which needs it.",
            (*link_commands(steps), advice.check_again(context.target)),
            steps=tuple(steps),
        )
    ]


def _reinstall_remedy(context: RuleContext, libraries: tuple[MissingLibrary, ...], text: str) -> Remedy:
    """Return the remedy to reinstall these libraries' wheels; only its text if no wheel has them."""
    wheels = advice.cuda_requirements(context.target, [missing.soname for missing in libraries])
    if not wheels:
        return Remedy(text)
    command = advice.pip_install(context.target, wheels, options="--force-reinstall")
    return Remedy(
        text, (command, advice.check_again(context.target)), steps=(Install(wheels, reinstall=True),)
    )


RULE = Rule(
    "TFD204",
    "libs-transitive",
    "A CUDA library lacks something that it needs",
    (Cause.LIBS_TRANSITIVE,),
    check,
    short_title="a library lacks what it needs",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_late_opening),
    area=LOADER,
    fix_order=54,
)
