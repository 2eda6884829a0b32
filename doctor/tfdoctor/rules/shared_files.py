"""Two packages own the same library files.

What it means
-------------
NVIDIA's wheels for CUDA 11, 12 and 13 put some libraries into the same folders under the same names: cuDNN and
NCCL above all (nvidia-cudnn-cu12 beside nvidia-cudnn-cu13, which a newer torch brings). The one installed last
overwrites the other's files. It mostly works, until one of the two is removed or upgraded: that takes the files of
both away, and pip still lists the other one as installed.

How it is seen
--------------
The files that the installed wheels list as theirs (RECORD) are compared. Whose file is there now is told by its
size, its hash, or by which wheel was installed last.

What to do
----------
Keep the packages for the CUDA that this TensorFlow was built with, and give what needs the other ones its own
environment.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.causes.steps import Install, Uninstall
from tfdoctor.facts import TENSORFLOW_DISTRIBUTIONS
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.rules.base import Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts.files import SharedFile

Owner = tuple[str, str]
CUDA_MAJOR = re.compile(r"-cu(\d{2})\Z")
MAX_NAMED_FILES = 4


def check(context: RuleContext) -> Result:
    groups: dict[tuple[Owner, ...], list[SharedFile]] = {}
    for one in context.python.shared if context.python is not None else ():
        if not all(name in TENSORFLOW_DISTRIBUTIONS for name, _ in one.owners):  # those are TFD304's
            groups.setdefault(one.owners, []).append(one)
    return [_finding(context, owners, files) for owners, files in groups.items()]


def _finding(context: RuleContext, owners: tuple[Owner, ...], files: list[SharedFile]) -> Finding:
    names = [posixpath.basename(one.path) for one in files]
    named = ", ".join(names[:MAX_NAMED_FILES]) + (
        f" and {len(names) - MAX_NAMED_FILES} more" if len(names) > MAX_NAMED_FILES else ""
    )
    there = {one.now for one in files}
    known = next(iter(there)) if len(there) == 1 else None
    if known is not None:
        now = f"What is there now came with {_label(known)}."
    elif len(there) > 1 and None not in there:
        now = f"What is there now is a mixture: {'; '.join(_format_owners(files))}."
    else:
        now = "Whose files are there now could not be told."
    same = len({name for name, _ in owners}) == 1
    title = (
        f"{owners[0][0]} is registered in {len(owners)} versions: {', '.join(version for _, version in owners)}"
        if same
        else f"{len(owners)} packages own the same files: {', '.join(map(_label, owners))}"
    )
    return RULE.finding(
        Cause.PACKAGE_CONFLICT,
        Severity.WARNING,
        f"{' and '.join(map(_label, owners))} both brought {named}. The one installed last won; removing or upgrading "
        f"either takes the files of both away. {now}{_describe_other_cuda(context, known)}",
        title=title,
        evidence=[
            Evidence(
                f"{one.location}/{one.path}",
                f"is listed by {', '.join(map(_label, one.owners))}; there now: "
                f"{_label(one.now) if one.now is not None else 'not known'}",
            )
            for one in files[:10]
        ],
        remedies=_remedies(context, owners, same=same),
    )


def _label(owner: Owner) -> str:
    return f"{owner[0]} {owner[1]}"


def _format_owners(files: list[SharedFile]) -> list[str]:
    by: dict[Owner, list[str]] = {}
    for one in files:
        if one.now is not None:
            by.setdefault(one.now, []).append(posixpath.basename(one.path))
    return [f"{', '.join(names[:MAX_NAMED_FILES])} of {_label(owner)}" for owner, names in by.items()]


def _matches_cuda(context: RuleContext, project: str) -> bool:
    """Return whether a project's wheels are for the CUDA that this TensorFlow was built with."""
    match, build = CUDA_MAJOR.search(project), context.build
    if match is None or build is None or build.cuda is None:
        return False
    return int(match[1]) == versions.major(build.cuda)


def _describe_other_cuda(context: RuleContext, now: Owner | None) -> str:
    match = CUDA_MAJOR.search(now[0]) if now is not None else None
    build = context.build
    if match is None or build is None or build.cuda is None or int(match[1]) == versions.major(build.cuda):
        return ""
    return (
        f" It was built for CUDA {match[1]}, TensorFlow {build.version} for CUDA "
        f"{versions.major(build.cuda)}: it still "
        "opens, and whether all of it then works is not known."
    )


def _remedies(context: RuleContext, owners: tuple[Owner, ...], *, same: bool) -> list[Remedy]:
    own = [owner for owner in owners if _matches_cuda(context, owner[0])]
    if same:
        own = [max(owners, key=lambda owner: versions.numbers(owner[1]))]
    if len(own) != 1:
        return [Remedy("Keep one of them: remove all, then install the one that is needed.")]
    foreign = [owner for owner in owners if owner[0] != own[0][0]]
    needed_by = _list_dependents(context, {name for name, _ in foreign})
    pin = f"{own[0][0]}=={own[0][1]}"
    again = advice.pip_install(context.target, (pin,), options="--force-reinstall --no-deps")
    removal = (advice.pip_uninstall(context.target, [name for name, _ in foreign]),) if foreign else ()
    commands = (*removal, again, advice.check_again(context.target))
    if not needed_by:
        steps = (
            *((Uninstall(tuple(name for name, _ in foreign)),) if foreign else ()),
            Install((pin,), again=True, dependencies=False),
        )
        text = (
            f"Remove {', '.join(name for name, _ in foreign)}, which nothing installed asks for, and bring back the "
            f"files of {own[0][0]}."
            if foreign
            else f"Install {pin} once more."
        )
        return [Remedy(text, commands, steps=steps)]
    who = ", ".join(needed_by)
    return [
        Remedy(
            f"Leave {who}, which requires it, in place, and give TensorFlow its own environment.",
            advice.venv_with(context.target, _list_requirements(context), advice.interpreter(context.target)),
        ),
        Remedy(
            f"Keep TensorFlow's alone, where a build of {who} for the same CUDA takes the place of this one: without "
            "it the command breaks it.",
            commands,
        ),
    ]


def _list_dependents(context: RuleContext, projects: set[str]) -> list[str]:
    python = context.python
    return [
        f"{one.name} {one.version}"
        for one in (python.distributions if python is not None else ())
        if any(versions.project_of(pin) in projects and "extra" not in pin for pin in one.pins)
    ]


def _list_requirements(context: RuleContext) -> tuple[str, ...]:
    build = context.build
    if build is not None and build.release is not None and build.exact:
        return advice.gpu_requirement(context.target, build.release)
    return ("tensorflow",)


RULE = Rule(
    "TFD211",
    "shared-files",
    "Two packages own the same library files",
    (Cause.PACKAGE_CONFLICT,),
    check,
    row="two packages own the same files",
    needs=(prerequisites.require_tensorflow, prerequisites.require_python),
    first=43,
)
