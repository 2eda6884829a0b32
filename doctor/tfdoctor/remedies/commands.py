"""Adapt remedies to what this user can do, and combine them so that the first one covers all errors.

A rule makes a remedy for one finding, as the owner of the environment would apply it. This module adapts it:

* If the environment belongs to another user or to the system, packages go into a separate folder, which is
  added to the search path before Python starts.
* If there is no sudo, the text asks the administrator.
* The remedy of the root finding also fixes the other errors, so that one round of commands is enough.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import (
    STEP_ORDER,
    Install,
    LinkMatchingFiles,
    MakeLink,
    PrependEntries,
    RemoveEntries,
    RemovePath,
    Uninstall,
    VariableStep,
)
from tfdoctor.core.facts import TENSORFLOW_DISTRIBUTIONS
from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.core.text import split_path_list
from tfdoctor.remedies import user_permissions
from tfdoctor.remedies.kernel import adapt_to_kernel
from tfdoctor.remedies.pip import format_check_command, format_pip_install, format_pip_uninstall
from tfdoctor.remedies.releases import (
    can_install_extra,
    find_best_release,
    list_gpu_requirements,
    make_release_remedy,
)
from tfdoctor.remedies.search_path import format_export, make_persist_commands
from tfdoctor.remedies.user_permissions import InstallFolder
from tfdoctor.remedies.wheels import get_site_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Release
    from tfdoctor.core.causes.steps import Step
    from tfdoctor.core.findings import Finding
    from tfdoctor.remedies.target import Target

SEPARATE_WHEELS_FOLDER = "$HOME/for-tensorflow"
"""The folder for wheels that cannot be installed into a Python."""
REASON_BY_FOLDER = {
    InstallFolder.UNWRITABLE: "You have no permission to write to this environment, which belongs to {owner}.",
    InstallFolder.MANAGED: "The system manages this Python, and refuses pip (PEP 668).",
    InstallFolder.ELSEWHERE: "TensorFlow lies outside the folder that pip installs into.",
}
"""The reason why a remedy cannot be applied unchanged, by the kind of folder that pip would install into."""
OWNER_TEXT_BY_FOLDER = {
    InstallFolder.UNWRITABLE: "Or ask {owner}, whose environment it is, to type this: {text}",
    InstallFolder.MANAGED: "Or, against the rule of this system (PEP 668): {text}",
}
"""The text of a remedy that only the owner can apply, or that overrides PEP 668, by the kind of folder."""
COMMON_DEPENDENCIES = frozenset({"cublas", "nvjitlink"})
"""Short names of wheels of which nearly every other wheel needs one. They are also installed if they are missing."""
DEPENDENCY_WHEELS = COMMON_DEPENDENCIES | {"cusparse", "cuda-nvrtc"}
"""Short names of all wheels that other wheels need."""


def adapt_findings(
    target: Target, root: Finding | None, findings: Sequence[Finding], excluded_codes: Iterable[str] = ()
) -> dict[int, Finding]:
    """Map the `id` of each finding to the same finding with remedies that this user can apply.

    Findings with one of the `excluded_codes` are not combined with the root finding, because they do not
    affect this Python.
    """
    excluded_code_set = frozenset(excluded_codes)
    adapted_by_id = {}
    for finding in findings:
        if finding is root:
            others = [
                other for other in findings if other is not root and other.code not in excluded_code_set
            ]
            # The other findings are about the TensorFlow that this fix replaces.
            if root.cause is Cause.SHADOWED_MODULE and _switches_tensorflow(target):
                others = [other for other in others if other.cause is Cause.SHADOWED_MODULE]
            adapted = _add_manual_steps(target, root, others, _adapt_root(target, root, others))
        else:
            adapted = [
                adapted_remedy
                for remedy in finding.remedies
                for adapted_remedy in _adapt_remedy(target, remedy)
            ]
        adapted_by_id[id(finding)] = replace(finding, remedies=tuple(_deduplicate_remedies(adapted)))
    return adapted_by_id


def _deduplicate_remedies(remedies: Sequence[Remedy]) -> list[Remedy]:
    """Return the remedies without duplicates.

    Two remedies are equal if they have the same commands or, if they have none, the same text.
    """
    unique: dict[object, Remedy] = {}
    for remedy in remedies:
        unique.setdefault(remedy.commands or remedy.text, remedy)
    return list(unique.values())


# ---------------------------------------------------------------- combined remedies


def _adapt_root(target: Target, root: Finding, others: Sequence[Finding]) -> list[Remedy]:
    """Return the root finding's adapted remedies. The first remedy also fixes the other errors."""
    if not root.remedies:
        return []
    first_remedy, other_remedies = (
        root.remedies[0],
        [adapted_remedy for remedy in root.remedies[1:] for adapted_remedy in _adapt_remedy(target, remedy)],
    )
    combined = combine_remedies(target, root, others)
    if combined is None:
        return [*_adapt_remedy(target, first_remedy), *other_remedies]
    # `fix` applies the remedy of each finding separately, so the result keeps the steps of the first remedy only.
    adapted = [
        adapt_to_kernel(
            target,
            replace(adapted_remedy, steps=first_remedy.steps)
            if adapted_remedy.steps == combined.steps
            else adapted_remedy,
        )
        for adapted_remedy in _adapt_to_permissions(target, combined)
    ]
    if first_remedy.steps:
        return [*adapted, *other_remedies]
    adapted_first = _adapt_remedy(target, first_remedy)[0]
    if (
        adapted_first.text != first_remedy.text
    ):  # another user must apply this remedy, but not the combined ones
        return [adapted_first, *adapted, *other_remedies]
    return [
        *(
            replace(
                _chain_remedies([adapted_first], adapted_remedy),
                changes_system=adapted_first.changes_system or adapted_remedy.changes_system,
                steps=adapted_first.steps,
                replaces=adapted_first.replaces,
            )
            for adapted_remedy in adapted
        ),
        *other_remedies,
    ]


def _add_manual_steps(
    target: Target, root: Finding, others: Sequence[Finding], remedies: list[Remedy]
) -> list[Remedy]:
    """Return the root finding's remedies, with the manual commands for other errors added to the first."""
    if not remedies or not _can_join(target, root):
        return remedies
    first_remedies = [
        finding.remedies[0] for finding in others if finding.severity is Severity.ERROR and finding.remedies
    ]
    manual_remedies = [
        remedy
        for remedy in first_remedies
        if not remedy.steps
        and not remedy.changes_system
        and _ends_with_same_check(target, remedy)
        and remedy != root.remedies[0]
    ]
    combined = _chain_remedies(manual_remedies, remedies[0])
    return [combined, *remedies[1:]] if combined.commands != remedies[0].commands else remedies


def _chain_remedies(earlier: Sequence[Remedy], last: Remedy) -> Remedy:
    """Return `last` with the commands of the earlier remedies before its own.

    The last command of each earlier remedy is the check; it is left out, so that the check runs only once.
    """
    lines = dict.fromkeys(
        line for remedy in earlier for line in remedy.commands[:-1] if line not in last.commands
    )
    commands = (*lines, *last.commands)
    if lines and last.steps:
        return replace(last, by_hand=_join_texts(earlier), commands=commands)
    return replace(last, text=_join_texts([*earlier, last]), commands=commands)


def _join_texts(remedies: Sequence[Remedy]) -> str:
    """Return the texts of the remedies joined in order, without duplicates."""
    return " Then: ".join(dict.fromkeys(remedy.text for remedy in remedies))


def _can_join(target: Target, root: Finding) -> bool:
    """Return whether the remedies of other errors can be combined with that of the root finding."""
    first_remedy = root.remedies[0]
    if root.severity is not Severity.ERROR:
        return False
    return bool(first_remedy.steps) or _ends_with_same_check(target, first_remedy)


def combine_remedies(target: Target, root: Finding, others: Sequence[Finding]) -> Remedy | None:
    """Return one remedy with the steps for the root finding and those that the other errors need as well.

    Return None if the other errors need no further steps, or if their remedies cannot be combined with the root
    finding's.
    """
    first_remedy = root.remedies[0]
    if not _can_join(target, root):
        return None
    steps = list(first_remedy.steps)
    combined_remedies = [first_remedy] if first_remedy.steps else []
    for finding in others:
        if finding.severity is not Severity.ERROR or not finding.remedies or not finding.remedies[0].steps:
            continue
        missing_steps = _list_missing_steps(finding.remedies[0].steps, steps)
        if missing_steps:
            steps += missing_steps
            combined_remedies.append(finding.remedies[0])
    if len(steps) == len(first_remedy.steps):
        return None
    steps = _arrange_steps(steps)
    commands = (*format_steps(target, steps), format_check_command(target))
    return Remedy(
        text=_join_texts(combined_remedies),
        commands=commands,
        changes_system=first_remedy.changes_system and bool(first_remedy.steps),
        steps=tuple(steps),
    )


def combine_steps(remedies: Iterable[Remedy]) -> tuple[Step, ...]:
    """Return the steps of several remedies in the order in which they are applied, each only once."""
    steps: list[Step] = []
    for remedy in remedies:
        steps += _list_missing_steps(remedy.steps, steps)
    return tuple(_arrange_steps(steps))


def _arrange_steps(steps: Iterable[Step]) -> list[Step]:
    """Return the steps in `STEP_ORDER`. An installer resolves the requirements that it may as one set."""
    arranged: list[Step] = []
    for step in sorted(steps, key=lambda step: STEP_ORDER.index(type(step))):
        last = arranged[-1] if arranged else None
        if (
            isinstance(step, Install)
            and isinstance(last, Install)
            and step.lock_id is None
            and last == replace(step, requirements=last.requirements)
        ):
            arranged[-1] = replace(last, requirements=(*last.requirements, *step.requirements))
        else:
            arranged.append(step)
    return arranged


def _ends_with_same_check(target: Target, remedy: Remedy) -> bool:
    """Return whether the remedy ends with a check of the same TensorFlow.

    If so, the other problems of that TensorFlow must still be fixed.
    """
    is_same_tensorflow = target.tensorflow is not None and not remedy.replaces
    return is_same_tensorflow and remedy.commands[-1:] == (format_check_command(target),)


def _switches_tensorflow(target: Target) -> bool:
    """Return whether the fix uncovers another TensorFlow, which the examined one hides."""
    return target.tensorflow is not None and target.tensorflow.behind is not None


def _list_missing_steps(steps: Iterable[Step], present_steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not in `present_steps`.

    Requirements of projects that `present_steps` already installs are left out. Steps that create or remove paths
    are left out if `present_steps` already changes these paths.
    """
    projects = {
        versions.parse_project_name(requirement)
        for step in present_steps
        if isinstance(step, Install)
        for requirement in step.requirements
    }
    paths = {step.path for step in present_steps if isinstance(step, (MakeLink, RemovePath))}
    missing_steps: list[Step] = []
    for step in steps:
        if isinstance(step, Install):
            remaining = tuple(
                requirement
                for requirement in step.requirements
                if versions.parse_project_name(requirement) not in projects
            )
            if remaining:
                missing_steps.append(
                    replace(
                        step,
                        requirements=remaining,
                        lock_id=step.lock_id if remaining == step.requirements else None,
                    )
                )
        elif step not in present_steps and not (
            isinstance(step, (MakeLink, RemovePath)) and step.path in paths
        ):
            missing_steps.append(step)
    return missing_steps


def format_steps(target: Target, steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the commands that do the same as the steps, for the owner of the environment.

    The commands that set a variable for later shells come last.
    """
    lines: list[str] = []
    persist_commands: list[str] = []
    for step in steps:
        if isinstance(step, Install):
            lines.append(_format_install(target, step))
        elif isinstance(step, Uninstall):
            lines.append(format_pip_uninstall(target, step.names))
        elif isinstance(step, PrependEntries):
            line = format_export(step.folders, step.name)
            lines.append(line)
            _note, commands = make_persist_commands(target, line)
            persist_commands += commands
        elif isinstance(step, VariableStep):
            lines.append(step.format_command(target.variables))
        else:
            lines += step.format_commands()
    return (*lines, *persist_commands)


def _format_install(target: Target, step: Install) -> str:
    """Return the command of an install step."""
    requirements = list_step_requirements(target, step)
    options = ("--force-reinstall " if step.force_reinstall else "") + (
        "" if step.install_dependencies else "--no-deps"
    )
    return format_pip_install(
        target, requirements, options=options.strip() if requirements == step.requirements else ""
    )


def list_step_requirements(target: Target, step: Install) -> tuple[str, ...]:
    """Return a step's requirements, or TensorFlow with its CUDA extra if that installs the same wheels."""
    build = target.build
    release = build.release if build is not None and build.is_exact_release else None
    if step.lock_id is not None and release is not None and can_install_extra(target, release):
        return list_gpu_requirements(target, release)
    return step.requirements


# ---------------------------------------------------------------- users who do not own the environment


def _adapt_remedy(target: Target, remedy: Remedy) -> list[Remedy]:
    """Return the remedy adapted to this user's permissions and to a Jupyter kernel."""
    return [
        adapt_to_kernel(target, adapted_remedy) for adapted_remedy in _adapt_to_permissions(target, remedy)
    ]


def _adapt_to_permissions(target: Target, remedy: Remedy) -> list[Remedy]:
    """Return equivalent remedies that this user can apply with the programs available.

    If the user may not write to the environment, the remedies install into a separate folder or a new environment,
    and the last remedy asks the owner. A remedy that needs no change is returned alone.
    """
    remedy = _use_conda(target, _drop_sudo(target, remedy))
    folder = user_permissions.classify_install_folder(target)
    if folder is InstallFolder.ELSEWHERE and _changes_tensorflow(remedy):
        removal = _make_pythonpath_remedy(target)
        return [removal if removal is not None else remedy]
    if folder in (InstallFolder.WRITABLE, InstallFolder.USER_SITE) or not remedy.steps:
        return [remedy]
    if all(isinstance(step, VariableStep) for step in remedy.steps):
        return [replace(remedy, steps=()) if folder is InstallFolder.UNWRITABLE else remedy]
    if folder is InstallFolder.ELSEWHERE and not any(isinstance(step, Install) for step in remedy.steps):
        return [remedy]
    remedies, reason = [], REASON_BY_FOLDER[folder].format(owner=_get_owner(target))
    commands = _make_separate_commands(target, remedy.steps)
    if commands:
        text = f"{reason} Put it into your own folder, and add it to the search path before Python starts."
        if not any(isinstance(step, Install) for step in remedy.steps):  # it is there
            text = "Add its folder to the search path before Python starts."
        remedies.append(Remedy(text, commands))
    release = _find_same_release(target)
    if not commands and folder in OWNER_TEXT_BY_FOLDER and release is not None:
        text = f"Make your own environment with TensorFlow {release.version}."
        remedies.append(make_release_remedy(target, release, f"{reason} {text}"))
    if folder in OWNER_TEXT_BY_FOLDER:
        # `fix` runs as this user and would fail half way, so a remedy that others must apply has no steps.
        text = OWNER_TEXT_BY_FOLDER[folder].format(owner=_get_owner(target), text=remedy.text)
        remedies.append(replace(remedy, text=text, steps=()))
    return remedies or [remedy]


def _find_same_release(target: Target) -> Release | None:
    """Return the installed release, or the best release if the installed one is unknown or has no GPU code.

    Return None if no release fits either.
    """
    build = target.build
    installed = build.release if build is not None and build.is_exact_release else None
    return installed if installed is not None and installed.gpu else find_best_release(target)


def _get_owner(target: Target) -> str:
    return user_permissions.get_folder_owner(target) or "its owner"


def _drop_sudo(target: Target, remedy: Remedy) -> Remedy:
    """Return the remedy without sudo if the user is root or has no sudo.

    Without sudo, its text asks the administrator to run the commands.
    """
    if not any("sudo " in command for command in remedy.commands):
        return remedy
    is_root = target.is_root
    if is_root is not True and not user_permissions.lacks_sudo(target):
        return remedy
    commands = tuple(command.replace("sudo ", "") for command in remedy.commands)
    text = (
        remedy.text
        if is_root
        else f"Ask the administrator (there is no sudo here) to type this as root: {remedy.text}"
    )
    return replace(remedy, text=text, commands=commands)


def _use_conda(target: Target, remedy: Remedy) -> Remedy:
    """Return the remedy with mamba or micromamba in place of conda if only one of these is installed."""
    program = user_permissions.choose_conda(target)
    if program == "conda":
        return remedy
    commands = (
        f"{program}{line.removeprefix('conda')}" if line.startswith("conda ") else line
        for line in remedy.commands
    )
    return replace(remedy, commands=tuple(commands))


def _changes_tensorflow(remedy: Remedy) -> bool:
    """Return whether the remedy installs a TensorFlow distribution."""
    requirements = [
        requirement for step in remedy.steps if isinstance(step, Install) for requirement in step.requirements
    ]
    return any(
        versions.parse_project_name(requirement) in TENSORFLOW_DISTRIBUTIONS for requirement in requirements
    )


def _make_pythonpath_remedy(target: Target) -> Remedy | None:
    """Return the remedy that removes the folder of another TensorFlow from PYTHONPATH.

    Return None if that folder is not on PYTHONPATH, or if this Python has no TensorFlow of its own.
    """
    python, entries = target.python, split_path_list("PYTHONPATH", target.variables.get("PYTHONPATH", ""))
    folder = get_site_packages(target)
    if python is None or folder not in [posixpath.normpath(entry) for entry in entries]:
        return None
    installed = [
        distribution
        for distribution in python.distributions
        if distribution.name in TENSORFLOW_DISTRIBUTIONS and distribution.location in python.site_packages
    ]
    if not installed:
        return None
    step = RemoveEntries(
        "PYTHONPATH", tuple(entry for entry in entries if posixpath.normpath(entry) == folder)
    )
    return Remedy(
        f"Remove {folder} from PYTHONPATH: this Python has its own {installed[0].name}, {installed[0].version}.",
        (step.format_command(target.variables), format_check_command(target)),
        steps=(step,),
    )


def _make_separate_commands(target: Target, steps: Iterable[Step]) -> tuple[str, ...]:
    """Return commands that have the same effect as the steps but do not write to TensorFlow's folder.

    Return an empty tuple if a step removes something or installs TensorFlow itself.
    """
    wheels: list[str] = []
    other_requirements: list[str] = []
    folders: list[str] = []
    lines: list[str] = []
    for step in steps:
        if isinstance(step, Install):
            for requirement in step.requirements:
                is_wheel = versions.parse_project_name(requirement).startswith("nvidia-")
                (wheels if is_wheel else other_requirements).append(requirement)
        elif isinstance(step, MakeLink):
            target_path = posixpath.join(posixpath.dirname(step.path), step.target)
            folders.append(posixpath.dirname(posixpath.normpath(target_path)))
        elif isinstance(step, LinkMatchingFiles):
            folders.append(step.source_folder)
        elif isinstance(step, PrependEntries):
            folders += step.folders if step.name == "LD_LIBRARY_PATH" else ()
        elif isinstance(step, (Uninstall, RemovePath)):
            return ()
        else:
            lines += format_steps(target, (step,))
    if any(
        versions.parse_project_name(requirement) in TENSORFLOW_DISTRIBUTIONS
        for requirement in other_requirements
    ):
        return ()
    if wheels:
        command, folders = _make_wheel_install(target, wheels, folders)
        lines.append(command)
    exports = [format_export(dict.fromkeys(folders))] if folders else []
    if other_requirements:
        separate_folder = _choose_folder(other_requirements)
        lines.append(
            user_permissions.format_folder_install_command(target, separate_folder, other_requirements)
        )
        exports.append(format_export([separate_folder], "PYTHONPATH"))
    persist_commands: list[str] = []
    for export in exports:
        _note, commands = make_persist_commands(target, export)
        persist_commands += commands
    return (*lines, *exports, format_check_command(target), *persist_commands)


def _make_wheel_install(target: Target, wheels: list[str], folders: list[str]) -> tuple[str, list[str]]:
    """Return (command that installs NVIDIA's wheels into a separate folder, folders for LD_LIBRARY_PATH).

    A library searches for its dependencies relative to its own folder. Therefore common dependencies that are not
    installed are added to the command, and the folders of installed dependencies are added to the search path.
    """
    folder_by_project, site = _map_wheel_folders(target), get_site_packages(target)
    projects = {versions.parse_project_name(requirement) for requirement in wheels}
    python = target.python
    present_names = (
        {distribution.name for distribution in python.distributions if distribution.location == site}
        if python is not None
        else set()
    )
    dependency_projects = {
        project for project in folder_by_project if _get_library_name(project) in DEPENDENCY_WHEELS
    }
    added_projects = [
        project
        for project in folder_by_project
        if project in dependency_projects - present_names - projects
        and _get_library_name(project) in COMMON_DEPENDENCIES
    ]
    separate_folder = _choose_folder(wheels)
    projects |= set(added_projects)
    replaced_folders = {
        f"{site}/{folder_by_project[project]}" for project in projects if project in folder_by_project
    }
    return user_permissions.format_folder_install_command(
        target, separate_folder, [*wheels, *added_projects]
    ), [
        *(
            f"{separate_folder}/{subfolder}"
            for project, subfolder in folder_by_project.items()
            if project in projects
        ),
        *(folder for folder in folders if folder not in replaced_folders),
        *(
            f"{site}/{subfolder}"
            for project, subfolder in folder_by_project.items()
            if project in (dependency_projects & present_names) - projects
        ),
    ]


def _get_library_name(project: str) -> str:
    """Return the short name of a wheel: "cublas" for "nvidia-cublas-cu12"."""
    return re.sub(r"-cu\d+$", "", project.removeprefix("nvidia-"))


def _choose_folder(requirements: Sequence[str]) -> str:
    """Return the folder for a set of wheels.

    Each set has its own folder, because pip skips packages that a `--target` folder already contains.
    """
    names = [versions.parse_project_name(requirement).removeprefix("nvidia-") for requirement in requirements]
    return f"{SEPARATE_WHEELS_FOLDER}/{names[0]}{f'-and-{len(names) - 1}-more' if len(names) > 1 else ''}"


def _map_wheel_folders(target: Target) -> dict[str, str]:
    """Map the project of each NVIDIA wheel for this CUDA to its folder, relative to site-packages."""
    build = target.build
    if build is None or build.cuda is None:
        return {}
    major = versions.major(build.cuda)
    families = (family.wheels.get(major) for family in target.compat.libraries)
    return {wheel.project: wheel.folder for wheel in families if wheel is not None}
