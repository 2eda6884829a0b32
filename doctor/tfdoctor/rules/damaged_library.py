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

from tfdoctor import advice
from tfdoctor.causes.steps import Install, Remove
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import is_in_wheels, list_unusable_files
from tfdoctor.rules.base import LOADER, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import Tried
    from tfdoctor.predict import MissingLibrary


def check(context: RuleContext) -> Result:
    libraries = [
        library
        for library in context.select_missing(Cause.LIBS_NOT_INSTALLED, Cause.DAMAGED_FILE)
        if library.damaged
    ]
    if not libraries:
        return ()
    rejected = [_first_rejected_file(missing) for missing in libraries]
    names = ", ".join(missing.soname for missing in libraries)
    evidence = []
    for missing, tried in zip(libraries, rejected, strict=True):
        evidence.append(Evidence(tried.path, f"{tried.problem} (reached through {tried.via})"))
        evidence.append(Evidence("the loader", missing.resolution.error))
        evidence += [Evidence(copy.path, "is there, and never reached") for copy in missing.elsewhere]
    crash = any(missing.resolution.crash for missing in libraries)
    files = dict.fromkeys(tried.path.rpartition("/")[2] for tried in rejected)
    explanation = (
        f"The loader stops at {', '.join(files)} when TensorFlow asks for {names}: it takes no other file."
    )
    if crash:
        explanation += " The file is truncated in a way that kills Python with a bus error (SIGBUS)."
    title = f"{rejected[0].path} {_describe_file(rejected[0].problem)}: {rejected[0].problem}"
    finding = RULE.finding(
        libraries[0].cause,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=evidence,
        remedies=_remedies(context, libraries, rejected),
    )
    return [
        path_shadowing.with_shadowing(
            context, finding, [missing.soname for missing in libraries], title=title
        )
    ]


def _describe_file(problem: str) -> str:
    """Return the predicate of the title for a loader's problem with a file."""
    return "is no library" if problem.startswith(("is a ", "a named pipe")) else "is damaged"


def _first_rejected_file(missing: MissingLibrary) -> Tried:
    """Return the first file that the loader rejected for this library."""
    return list_unusable_files(missing.resolution)[0]


def _remedies(context: RuleContext, libraries: list[MissingLibrary], rejected: list[Tried]) -> list[Remedy]:
    """Return the remedies to skip the damaged files, to reinstall their wheels, or to rename them."""
    paths = [tried.path for tried in rejected]
    measured = (
        context.loader is not None and context.loader.without
    )  # results without the variables are needed to find what hides the copies
    copies = [copy for missing in libraries for copy in missing.elsewhere[:1]] if measured else []
    removal = advice.remove_folders_of_files(context.target, rejected, copies)
    if removal is not None and all(missing.elsewhere for missing in libraries):
        return [removal]
    wheels = [path for path in paths if _is_wheel_file(context, path)]
    names = [
        tried.path.rpartition("/")[2] if missing.resolution.path else missing.soname
        for missing, tried in zip(libraries, rejected, strict=True)
    ]
    requirements = advice.cuda_requirements(context.target, names)
    if len(wheels) == len(paths) and requirements:
        pins = tuple(
            advice.find_registered_wheel(context.target, requirement) or requirement
            for requirement in requirements
        )
        command = advice.pip_install(context.target, pins, options="--force-reinstall --no-deps")
        return [
            Remedy(
                "Reinstall the wheel that it belongs to.",
                (command, advice.check_again(context.target)),
                steps=(Install(pins, reinstall=True, dependencies=False),),
            )
        ]
    rename_commands = tuple(
        f"{_sudo_for(context, path)}mv {advice.quote(path)} {advice.quote(path)}.damaged" for path in paths
    )
    remedies = [
        Remedy(
            "Rename the damaged file.",
            (*rename_commands, advice.check_again(context.target)),
            changes_system=any(path.startswith(("/usr/", "/lib", "/opt/")) for path in paths),
            steps=tuple(Remove(path) for path in paths) if _are_in_environment(context, paths) else (),
        )
    ]
    without_copy = [name for name, missing in zip(names, libraries, strict=True) if not missing.elsewhere]
    if without_copy:
        remedies += advice.make_library_remedies(context.target, without_copy)
    return remedies


def _is_wheel_file(context: RuleContext, path: str) -> bool:
    """Return whether the file is from one of NVIDIA's wheels, or may be a link to such a file.

    In the second case the wheel's own file is damaged as well.
    """
    if context.python is None:
        return False
    name = posixpath.basename(path)
    damaged = (
        damaged_path.path
        for distribution in context.python.distributions
        for damaged_path in distribution.changed
    )
    return is_in_wheels(context.python, path) or any(
        posixpath.basename(damaged_path) == name for damaged_path in damaged
    )


def _are_in_environment(context: RuleContext, paths: list[str]) -> bool:
    """Return whether all paths are in this environment."""
    prefix = context.python.prefix if context.python is not None else ""
    return bool(prefix) and all(path.startswith(f"{prefix}/") for path in paths)


def _sudo_for(context: RuleContext, path: str) -> str:
    """Return the sudo prefix for a command if the path belongs to the system; else empty."""
    return advice.sudo_prefix(context.target) if path.startswith(("/usr/", "/lib", "/opt/")) else ""


RULE = Rule(
    "TFD209",
    "damaged-library",
    "The loader stops at a damaged library",
    (Cause.DAMAGED_FILE, Cause.LIBS_NOT_INSTALLED),
    check,
    short_title="a damaged library",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_late_opening),
    area=LOADER,
    fix_order=40,
)
