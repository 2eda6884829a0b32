"""The loader stops at a damaged library.

What it means
-------------
A file with the right name is in a folder that the loader searches, but is not a library: it is empty, truncated (a
full disk, an interrupted copy), or a text file. The loader does not continue to the next folder, so that it never
reaches a good library there. A truncated file can even kill Python with a bus error.

How it is seen
--------------
The check reads each file that the loader would open as the loader does: its header, its segments, its size.

What to do
----------
Remove the damaged file, or reinstall the package that it belongs to.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install, RemovePath
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.libraries import list_unusable_files
from tfdoctor.prediction.library_versions import is_in_nvidia_wheel
from tfdoctor.remedies.libraries import make_library_remedies
from tfdoctor.remedies.pip import format_check_command, format_pip_install, quote
from tfdoctor.remedies.search_path import make_file_removal_remedy
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.remedies.wheels import find_registered_pin, list_cuda_requirements
from tfdoctor.rules.base import LOADER, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import LoadAttempt
    from tfdoctor.prediction.libraries import MissingLibrary

SYSTEM_PREFIXES = ("/usr/", "/lib", "/opt/")
"""The beginnings of paths that belong to the system; "/lib" includes /lib64."""


def check(context: RuleContext) -> Result:
    libraries = [
        library
        for library in context.select_missing_libraries(Cause.LIBS_NOT_INSTALLED, Cause.DAMAGED_FILE)
        if library.file_problem
    ]
    if not libraries:
        return ()
    rejected_files = [list_unusable_files(library.resolution)[0] for library in libraries]
    names = ", ".join(library.soname for library in libraries)
    evidence = []
    for library, attempt in zip(libraries, rejected_files, strict=True):
        evidence.append(Evidence(attempt.path, f"{attempt.problem} (reached through {attempt.via})"))
        evidence.append(Evidence("the loader", library.resolution.error))
        evidence += [Evidence(copy.path, "is there, and never reached") for copy in library.usable_files]
    causes_crash = any(library.resolution.crash for library in libraries)
    file_names = dict.fromkeys(attempt.path.rpartition("/")[2] for attempt in rejected_files)
    explanation = f"The loader stops at {', '.join(file_names)} when TensorFlow asks for {names}: it takes no other file."
    if causes_crash:
        explanation += " The file is truncated in a way that kills Python with a bus error (SIGBUS)."
    title = f"{rejected_files[0].path} {_describe_rejection(rejected_files[0].problem)}: {rejected_files[0].problem}"
    finding = RULE.make_finding(
        libraries[0].cause,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=evidence,
        remedies=_build_remedies(context, libraries, rejected_files),
    )
    return [
        path_shadowing.add_shadowing_explanation(
            context, finding, [library.soname for library in libraries], title=title
        )
    ]


def _describe_rejection(problem: str) -> str:
    """Return the predicate of the title for a file that the loader rejects because of `problem`."""
    # the loader's probe uses these words for folders, programs and named pipes
    return "is no library" if problem.startswith(("is a ", "a named pipe")) else "is damaged"


def _build_remedies(
    context: RuleContext, libraries: list[MissingLibrary], rejected_files: list[LoadAttempt]
) -> list[Remedy]:
    """Return the remedies: bypass the damaged files, reinstall their wheels, or rename them."""
    paths = [attempt.path for attempt in rejected_files]
    # a copy is of use only if the loader's results without the variables show what hides it
    has_measured_results = context.loader is not None and context.loader.without
    copies = (
        [copy for library in libraries for copy in library.usable_files[:1]] if has_measured_results else []
    )
    removal = make_file_removal_remedy(context.target, rejected_files, copies)
    if removal is not None and all(library.usable_files for library in libraries):
        return [removal]
    wheel_paths = [path for path in paths if _is_wheel_file(context, path)]
    names = [
        attempt.path.rpartition("/")[2] if library.resolution.path else library.soname
        for library, attempt in zip(libraries, rejected_files, strict=True)
    ]
    requirements = list_cuda_requirements(context.target, names)
    if len(wheel_paths) == len(paths) and requirements:
        pins = tuple(
            find_registered_pin(context.target, requirement) or requirement for requirement in requirements
        )
        command = format_pip_install(context.target, pins, options="--force-reinstall --no-deps")
        return [
            Remedy(
                "Reinstall the wheel that it belongs to.",
                (command, format_check_command(context.target)),
                steps=(Install(pins, force_reinstall=True, install_dependencies=False),),
            )
        ]
    rename_commands = tuple(
        f"{_get_sudo_prefix(context, path)}mv {quote(path)} {quote(path)}.damaged" for path in paths
    )
    remedies = [
        Remedy(
            "Rename the damaged file.",
            (*rename_commands, format_check_command(context.target)),
            changes_system=any(path.startswith(SYSTEM_PREFIXES) for path in paths),
            steps=tuple(RemovePath(path) for path in paths) if _are_in_environment(context, paths) else (),
        )
    ]
    names_without_copy = [
        name for name, library in zip(names, libraries, strict=True) if not library.usable_files
    ]
    if names_without_copy:
        remedies += make_library_remedies(context.target, names_without_copy)
    return remedies


def _is_wheel_file(context: RuleContext, path: str) -> bool:
    """Return whether the file is from one of NVIDIA's wheels.

    A file outside the wheels counts if a damaged file of a wheel has the same name: it can be a link to that file.
    """
    if context.python is None:
        return False
    name = posixpath.basename(path)
    changed_paths = (
        damaged_path.path
        for distribution in context.python.distributions
        for damaged_path in distribution.changed
    )
    return is_in_nvidia_wheel(context.python, path) or any(
        posixpath.basename(damaged_path) == name for damaged_path in changed_paths
    )


def _are_in_environment(context: RuleContext, paths: list[str]) -> bool:
    """Return whether all paths are in this environment."""
    prefix = context.python.prefix if context.python is not None else ""
    return bool(prefix) and all(path.startswith(f"{prefix}/") for path in paths)


def _get_sudo_prefix(context: RuleContext, path: str) -> str:
    """Return the sudo prefix if the path belongs to the system, else ""."""
    return get_sudo_prefix(context.target) if path.startswith(SYSTEM_PREFIXES) else ""


RULE = Rule(
    "TFD209",
    "damaged-library",
    "The loader stops at a damaged library",
    (Cause.DAMAGED_FILE, Cause.LIBS_NOT_INSTALLED),
    check,
    short_title="a damaged library",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    area=LOADER,
    fix_order=40,
)
