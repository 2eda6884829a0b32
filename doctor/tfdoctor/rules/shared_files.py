"""Two packages own the same library files.

What it means
-------------
NVIDIA's wheels for CUDA 11, 12 and 13 contain some libraries with the same names in the same folders,
above all cuDNN and NCCL (nvidia-cudnn-cu12 beside nvidia-cudnn-cu13, which a newer torch installs). The
one installed last overwrites the other's files. This usually works until one of them is removed or
upgraded: that deletes the files of both, and pip still lists the other one as installed.

How it is seen
--------------
The lists of files in the installed wheels (RECORD) are compared. The owner of the present file follows
from its size, its hash, or from which wheel was installed last.

What to do
----------
Keep the packages for the CUDA that this TensorFlow was built with, and give whatever needs the other ones
its own environment.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install, Uninstall
from tfdoctor.core.facts import TENSORFLOW_DISTRIBUTIONS
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import join_first
from tfdoctor.remedies.pip import (
    format_check_command,
    format_pip_install,
    format_pip_uninstall,
    get_interpreter,
    make_venv_commands,
)
from tfdoctor.remedies.releases import list_gpu_requirements
from tfdoctor.rules.base import Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts.files import SharedFile

Owner = tuple[str, str]
"""The name and version of a distribution that lists a file as its own."""
CUDA_SUFFIX_PATTERN = re.compile(r"-cu(\d{2})\Z")
"""The end of a wheel's project name, with the CUDA major version as its group."""
MAX_NAMED_FILES = 4
"""The maximum number of files that a text names."""


def check(context: RuleContext) -> Result:
    groups: dict[tuple[Owner, ...], list[SharedFile]] = {}
    for file in context.python.shared if context.python is not None else ():
        if not all(name in TENSORFLOW_DISTRIBUTIONS for name, _ in file.owners):  # TFD304 reports these
            groups.setdefault(file.owners, []).append(file)
    return [_build_finding(context, owners, files) for owners, files in groups.items()]


def _build_finding(context: RuleContext, owners: tuple[Owner, ...], files: list[SharedFile]) -> Finding:
    names = [posixpath.basename(file.path) for file in files]
    named_files = join_first(names, MAX_NAMED_FILES)
    current_owners = {file.now for file in files}
    owner = next(iter(current_owners)) if len(current_owners) == 1 else None
    if owner is not None:
        status = f"What is there now came with {_format_owner(owner)}."
    elif len(current_owners) > 1 and None not in current_owners:
        status = f"What is there now is a mixture: {'; '.join(_list_file_owners(files))}."
    else:
        status = "Whose files are there now could not be told."
    is_one_project = len({name for name, _ in owners}) == 1
    title = (
        f"{owners[0][0]} is registered in {len(owners)} versions: {', '.join(version for _, version in owners)}"
        if is_one_project
        else f"{len(owners)} packages own the same files: {', '.join(map(_format_owner, owners))}"
    )
    return RULE.make_finding(
        Cause.PACKAGE_CONFLICT,
        Severity.WARNING,
        f"{' and '.join(map(_format_owner, owners))} both brought {named_files}. The one installed last won; "
        f"removing or upgrading either takes the files of both away. {status}{_describe_other_cuda(context, owner)}",
        title=title,
        evidence=[
            Evidence(
                f"{file.location}/{file.path}",
                f"is listed by {', '.join(map(_format_owner, file.owners))}; there now: "
                f"{_format_owner(file.now) if file.now is not None else 'not known'}",
            )
            for file in files[:10]
        ],
        remedies=_list_remedies(context, owners, is_one_project=is_one_project),
    )


def _format_owner(owner: Owner) -> str:
    name, version = owner
    return f"{name} {version}"


def _list_file_owners(files: list[SharedFile]) -> list[str]:
    """Return one clause for each owner, with the names of the files that came with it."""
    names_by_owner: dict[Owner, list[str]] = {}
    for file in files:
        if file.now is not None:
            names_by_owner.setdefault(file.now, []).append(posixpath.basename(file.path))
    return [
        f"{', '.join(names[:MAX_NAMED_FILES])} of {_format_owner(owner)}"
        for owner, names in names_by_owner.items()
    ]


def _matches_cuda(context: RuleContext, project: str) -> bool:
    """Return whether a wheel is for the CUDA that this TensorFlow was built with."""
    match, build = CUDA_SUFFIX_PATTERN.search(project), context.build
    if match is None or build is None or build.cuda is None:
        return False
    return int(match[1]) == versions.major(build.cuda)


def _describe_other_cuda(context: RuleContext, owner: Owner | None) -> str:
    """Return a sentence about files for another CUDA than TensorFlow's; "" if there are none."""
    match = CUDA_SUFFIX_PATTERN.search(owner[0]) if owner is not None else None
    build = context.build
    if match is None or build is None or build.cuda is None or int(match[1]) == versions.major(build.cuda):
        return ""
    return (
        f" It was built for CUDA {match[1]}, TensorFlow {build.version} for CUDA "
        f"{versions.major(build.cuda)}: it still "
        "opens, and whether all of it then works is not known."
    )


def _list_remedies(context: RuleContext, owners: tuple[Owner, ...], *, is_one_project: bool) -> list[Remedy]:
    """Return the remedies: keep the owner for TensorFlow's CUDA, or the newest version of a single project."""
    owners_to_keep = [owner for owner in owners if _matches_cuda(context, owner[0])]
    if is_one_project:
        owners_to_keep = [max(owners, key=lambda owner: versions.parse_numbers(owner[1]))]
    if len(owners_to_keep) != 1:
        return [Remedy("Keep one of them: remove all, then install the one that is needed.")]
    kept_name, kept_version = owners_to_keep[0]
    pin = f"{kept_name}=={kept_version}"
    names_to_remove = [name for name, _ in owners if name != kept_name]
    dependents = _list_dependents(context, set(names_to_remove))
    reinstall_command = format_pip_install(context.target, (pin,), options="--force-reinstall --no-deps")
    removal_commands = (format_pip_uninstall(context.target, names_to_remove),) if names_to_remove else ()
    commands = (*removal_commands, reinstall_command, format_check_command(context.target))
    if not dependents:
        steps = (
            *((Uninstall(tuple(names_to_remove)),) if names_to_remove else ()),
            Install((pin,), force_reinstall=True, install_dependencies=False),
        )
        text = (
            f"Remove {', '.join(names_to_remove)}, which nothing installed asks for, and bring back the files of {kept_name}."
            if names_to_remove
            else f"Install {pin} once more."
        )
        return [Remedy(text, commands, steps=steps)]
    names = ", ".join(dependents)
    return [
        Remedy(
            f"Leave {names}, which requires it, in place, and give TensorFlow its own environment.",
            make_venv_commands(context.target, _list_requirements(context), get_interpreter(context.target)),
        ),
        Remedy(
            f"Keep TensorFlow's alone, where a build of {names} for the same CUDA takes the place of this one: without "
            "it the command breaks it.",
            commands,
        ),
    ]


def _list_dependents(context: RuleContext, projects: set[str]) -> list[str]:
    """Return the distributions that require one of the projects."""
    python = context.python
    return [
        f"{distribution.name} {distribution.version}"
        for distribution in (python.distributions if python is not None else ())
        if any(
            versions.parse_project_name(pin) in projects and "extra" not in pin for pin in distribution.pins
        )
    ]


def _list_requirements(context: RuleContext) -> tuple[str, ...]:
    """Return the requirements for the installed release with its CUDA libraries, or ("tensorflow",)."""
    build = context.build
    if build is not None and build.release is not None and build.is_exact_release:
        return list_gpu_requirements(context.target, build.release)
    return ("tensorflow",)


RULE = Rule(
    "TFD211",
    "shared-files",
    "Two packages own the same library files",
    (Cause.PACKAGE_CONFLICT,),
    check,
    short_title="two packages own the same files",
    needs=(prerequisites.require_tensorflow, prerequisites.require_python),
    fix_order=43,
)
