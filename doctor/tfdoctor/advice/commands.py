"""Remedies as this person can type them, the first one with all that is needed. Pure.

Rules write remedies for the owner of an environment, each for its own finding. Here they are told to who reads them:
where the environment is somebody else's or the system's, what is missing goes into a folder of your own that is named
before Python starts; where there is no sudo, the administrator is asked. And the finding that leads says at once what
the errors beside it need, too: nobody wants to type in rounds.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice import user_permissions
from tfdoctor.advice.kernel import adapt_to_kernel
from tfdoctor.advice.links import link_commands
from tfdoctor.advice.pip import check_again, pip_install, pip_uninstall, quote
from tfdoctor.advice.releases import best_release, extra_installs, gpu_requirement, install_release
from tfdoctor.advice.search_path import export_path, keep_line
from tfdoctor.advice.user_permissions import InstallFolder
from tfdoctor.advice.wheels import site_packages
from tfdoctor.causes.steps import (
    SHELL_STEPS,
    Drop,
    Export,
    Install,
    LinkParts,
    MakeLink,
    Prepend,
    Remove,
    Rename,
    TakeOut,
    Uninstall,
    Unset,
    remove_entries,
)
from tfdoctor.facts import TENSORFLOW_DISTRIBUTIONS
from tfdoctor.findings import Cause, Remedy, Severity
from tfdoctor.text import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.advice.target import Target
    from tfdoctor.causes.steps import Step
    from tfdoctor.compat import Release
    from tfdoctor.findings import Finding

FOLDER = "$HOME/for-tensorflow"
"""Where wheels go that can go into no Python."""
ORDER = (TakeOut, Drop, Unset, Export, Rename, Remove, Uninstall, Install, MakeLink, LinkParts, Prepend)
"""How steps follow each other where several remedies are made one."""


def adapt_findings(
    target: Target, root: Finding | None, findings: Sequence[Finding], beside: Iterable[str] = ()
) -> dict[int, Finding]:
    """Return `id` of a finding → the finding with the remedies that this person can type.

    `beside`: codes of findings that are never the reason of what this Python meets.
    """
    skipped = frozenset(beside)
    told = {}
    for finding in findings:
        if finding is root:
            others = [f for f in findings if f is not root and f.code not in skipped]
            if root.cause is Cause.SHADOWED_MODULE and _is_other_tensorflow(target):
                others = [f for f in others if f.cause is Cause.SHADOWED_MODULE]
            adapted = _add_manual_steps(target, root, others, _adapt_root(target, root, others))
        else:
            adapted = [new for remedy in finding.remedies for new in _adapt_remedy(target, remedy)]
        told[id(finding)] = replace(finding, remedies=tuple(_deduplicate_remedies(adapted)))
    return told


def _deduplicate_remedies(remedies: Sequence[Remedy]) -> list[Remedy]:
    """Return what this person can do himself comes first; the same commands stand there once."""
    kept: dict[object, Remedy] = {}
    for remedy in remedies:
        kept.setdefault(remedy.commands or remedy.text, remedy)
    return list(kept.values())


# ---------------------------------------------------------------- all at once


def _adapt_root(target: Target, root: Finding, others: Sequence[Finding]) -> list[Remedy]:
    """Return the adapted remedies of the finding that leads, the first one with what the other errors need besides."""
    if not root.remedies:
        return []
    first, rest = root.remedies[0], [new for one in root.remedies[1:] for new in _adapt_remedy(target, one)]
    joined = with_others(target, root, others)
    if joined is None:
        return [*_adapt_remedy(target, first), *rest]
    # `fix` takes one finding after the other by itself, and may have been asked for one alone.
    adapted = [
        adapt_to_kernel(target, replace(new, steps=first.steps) if new.steps == joined.steps else new)
        for new in _place_remedy(target, joined)
    ]
    if first.steps:
        return [*adapted, *rest]
    own = _adapt_remedy(target, first)[0]
    if own.text != first.text:  # it is left to somebody else, and the rest is not
        return [own, *adapted, *rest]
    return [
        *(
            replace(
                _chain_remedies([own], new),
                changes_system=own.changes_system or new.changes_system,
                steps=own.steps,
                replaces=own.replaces,
            )
            for new in adapted
        ),
        *rest,
    ]


def _add_manual_steps(
    target: Target, root: Finding, others: Sequence[Finding], remedies: list[Remedy]
) -> list[Remedy]:
    """Return the remedies of the finding that leads, the first one after what other errors have this person do by
    hand.
    """
    if not remedies or not _joins(target, root):
        return remedies
    firsts = [one.remedies[0] for one in others if one.severity is Severity.ERROR and one.remedies]
    own = [
        one
        for one in firsts
        if not one.steps and not one.changes_system and _is_manual(target, one) and one != root.remedies[0]
    ]
    joined = _chain_remedies(own, remedies[0])
    return [joined, *remedies[1:]] if joined.commands != remedies[0].commands else remedies


def _chain_remedies(earlier: Sequence[Remedy], last: Remedy) -> Remedy:
    """Return `last` after the commands of the others; TensorFlow is looked at again once, at the end."""
    lines = dict.fromkeys(line for one in earlier for line in one.commands[:-1] if line not in last.commands)
    commands = (*lines, *last.commands)
    if lines and last.steps:
        return replace(last, by_hand=_join_texts(earlier), commands=commands)
    return replace(last, text=_join_texts([*earlier, last]), commands=commands)


def _join_texts(remedies: Sequence[Remedy]) -> str:
    """Return what they say, one after the other, each once."""
    return " Then: ".join(dict.fromkeys(one.text for one in remedies))


def _joins(target: Target, root: Finding) -> bool:
    """Return whether what other errors need is to be thought of together with the finding that leads."""
    first = root.remedies[0]
    if root.severity is not Severity.ERROR:
        return False
    return bool(first.steps) or _is_manual(target, first)


def with_others(target: Target, root: Finding, others: Sequence[Finding]) -> Remedy | None:
    """Return the steps of the first remedy of the finding that leads and of those that the other errors need besides;
    None where these need none, or where they are not to be thought of before that finding is gone.
    """
    first = root.remedies[0]
    if not _joins(target, root):
        return None
    steps, parts = list(first.steps), [first] if first.steps else []
    for finding in others:
        if finding.severity is not Severity.ERROR or not finding.remedies or not finding.remedies[0].steps:
            continue
        more = _list_missing_steps(finding.remedies[0].steps, steps)
        if more:
            steps += more
            parts.append(finding.remedies[0])
    if len(steps) == len(first.steps):
        return None
    steps.sort(key=lambda step: ORDER.index(type(step)))
    commands = (*format_steps(target, steps), check_again(target))
    return Remedy(_join_texts(parts), commands, first.changes_system and bool(first.steps), tuple(steps))


def _is_manual(target: Target, remedy: Remedy) -> bool:
    """Return whether its commands are no steps of `fix`, and after them the same TensorFlow is looked at again: what
    else it lacks is still to be done.
    """
    alike = target.tensorflow is not None and not remedy.replaces
    return alike and remedy.commands[-1:] == (check_again(target),)


def _is_other_tensorflow(target: Target) -> bool:
    """Return whether what was found is wrong with another TensorFlow than the one that will be taken."""
    return target.tensorflow is not None and target.tensorflow.behind is not None


def _list_missing_steps(steps: Iterable[Step], there: Sequence[Step]) -> list[Step]:
    """Return what of `steps` is not among those that are there: a project that is installed anyway is not installed
    twice.
    """
    projects = {
        versions.project_of(one) for step in there if isinstance(step, Install) for one in step.requirements
    }
    paths = {step.path for step in there if isinstance(step, (MakeLink, Remove))}
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Install):
            rest = tuple(one for one in step.requirements if versions.project_of(one) not in projects)
            if rest:
                found.append(
                    replace(step, requirements=rest, lock=step.lock if rest == step.requirements else None)
                )
        elif step not in there and not (isinstance(step, (MakeLink, Remove)) and step.path in paths):
            found.append(step)
    return found


def format_steps(target: Target, steps: Iterable[Step]) -> tuple[str, ...]:
    """Return steps as the owner of the environment types them, each in its place, the lines that keep a variable
    last.
    """
    lines: list[str] = []
    keep: list[str] = []
    for step in steps:
        if isinstance(step, Install):
            lines.append(_install(target, step))
        elif isinstance(step, Uninstall):
            lines.append(pip_uninstall(target, step.names))
        elif isinstance(step, (MakeLink, LinkParts)):
            lines += link_commands((step,))
        elif isinstance(step, Remove):
            folder, _, name = step.path.rpartition("/")
            lines.append(f"rm -rf {quote(folder)}/{name if '*' in name else quote(name)}")
        elif isinstance(step, Prepend):
            line = export_path(step.folders, step.name)
            lines.append(line)
            keep += keep_line(target, line)[1]
        else:
            lines.append(_line(target, step))
    return (*lines, *keep)


def _install(target: Target, step: Install) -> str:
    wanted = list_wanted(target, step)
    options = ("--force-reinstall " if step.again else "") + ("" if step.dependencies else "--no-deps")
    return pip_install(target, wanted, options=options.strip() if wanted == step.requirements else "")


def list_wanted(target: Target, step: Install) -> tuple[str, ...]:
    """Return what a step has pip install: its requirements, or the extra where that is the same."""
    build = target.build
    release = build.release if build is not None and build.exact else None
    if step.lock is not None and release is not None and extra_installs(target, release):
        return gpu_requirement(target, release)
    return step.requirements


def _line(target: Target, step: Drop | Unset | Export | Rename | TakeOut) -> str:
    """Return what a variable becomes in this shell; or the line that sets it, in a file that Python reads."""
    if isinstance(step, TakeOut):
        mark = "pass  # " if step.path.endswith(".py") else "# "
        return f"sed -i '{step.line}s/[^ \\t]/{mark}&/' {quote(step.path)}"
    if isinstance(step, Unset):
        return f"unset {step.name}"
    if isinstance(step, Export):
        return f"export {step.name}={quote(step.value)}"
    if isinstance(step, Rename):
        return f'export {step.right}="${step.wrong}"; unset {step.wrong}'
    kept = remove_entries(step, target.variables.get(step.name, ""))
    return f"export {step.name}={quote(':'.join(kept))}" if kept else f"unset {step.name}"


# ---------------------------------------------------------------- for who is not the owner


def _adapt_remedy(target: Target, remedy: Remedy) -> list[Remedy]:
    return [adapt_to_kernel(target, new) for new in _place_remedy(target, remedy)]


def _place_remedy(target: Target, remedy: Remedy) -> list[Remedy]:
    """Return where this person may change things, and with the programs that are there."""
    remedy = _use_conda(target, _drop_sudo(target, remedy))
    where = user_permissions.place(target)
    if where is InstallFolder.ELSEWHERE and _changes_tensorflow(remedy):
        off = _leave_pythonpath(target)
        return [off if off is not None else remedy]
    if where in (InstallFolder.OWN, InstallFolder.USER) or not remedy.steps:
        return [remedy]
    if all(isinstance(step, SHELL_STEPS) for step in remedy.steps):
        return [replace(remedy, steps=()) if where is InstallFolder.CLOSED else remedy]
    if where is InstallFolder.ELSEWHERE and not any(isinstance(step, Install) for step in remedy.steps):
        return [remedy]
    found, why = [], WHY[where].format(owner=_owner(target))
    apart = _make_separate_commands(target, remedy.steps)
    if apart:
        text = "Put it into your own folder, and add it to the search path before Python starts."
        found.append(Remedy(f"{why} {text}", apart))
    release = _find_same_release(target)
    if not apart and where in OTHERS and release is not None:
        text = f"Make your own environment with TensorFlow {release.version}."
        found.append(install_release(target, release, f"{why} {text}"))
    if where in OTHERS:
        # `fix` is run by this person, too, and would fail half way: what is left to others is no step of its own.
        text = OTHERS[where].format(owner=_owner(target), text=remedy.text)
        found.append(replace(remedy, text=text, steps=()))
    return found or [remedy]


def _find_same_release(target: Target) -> Release | None:
    """Return the installed release, or the best one where that is not known or is of no use on a GPU."""
    build = target.build
    own = build.release if build is not None and build.exact else None
    return own if own is not None and own.gpu else best_release(target)


WHY = {
    InstallFolder.CLOSED: "You have no permission to write to this environment, which belongs to {owner}.",
    InstallFolder.MANAGED: "The system manages this Python, and refuses pip (PEP 668).",
    InstallFolder.ELSEWHERE: "TensorFlow lies outside the folder that pip installs into.",
}


OTHERS = {
    InstallFolder.CLOSED: "Or ask {owner}, whose environment it is, to type this: {text}",
    InstallFolder.MANAGED: "Or, against the rule of this system (PEP 668): {text}",
}


def _owner(target: Target) -> str:
    return user_permissions.owner(target) or "its owner"


def _drop_sudo(target: Target, remedy: Remedy) -> Remedy:
    """Without sudo where there is none: root needs none, and who cannot become root asks."""
    if not any("sudo " in command for command in remedy.commands):
        return remedy
    root = target.root
    if root is not True and not user_permissions.lacks_sudo(target):
        return remedy
    commands = tuple(command.replace("sudo ", "") for command in remedy.commands)
    text = (
        remedy.text
        if root
        else f"Ask the administrator (there is no sudo here) to type this as root: {remedy.text}"
    )
    return replace(remedy, text=text, commands=commands)


def _use_conda(target: Target, remedy: Remedy) -> Remedy:
    word = user_permissions.conda(target)
    if word == "conda":
        return remedy
    commands = (f"{word}{line[5:]}" if line.startswith("conda ") else line for line in remedy.commands)
    return replace(remedy, commands=tuple(commands))


def _changes_tensorflow(remedy: Remedy) -> bool:
    wanted = [one for step in remedy.steps if isinstance(step, Install) for one in step.requirements]
    return any(versions.project_of(one) in TENSORFLOW_DISTRIBUTIONS for one in wanted)


def _leave_pythonpath(target: Target) -> Remedy | None:
    """Return where PYTHONPATH leads to another TensorFlow than this Python's own: its own is good, and is not
    replaced.
    """
    python, entries = target.python, entries_of("PYTHONPATH", target.variables.get("PYTHONPATH", ""))
    folder = site_packages(target)
    if python is None or folder not in [posixpath.normpath(entry) for entry in entries]:
        return None
    own = [
        d
        for d in python.distributions
        if d.name in TENSORFLOW_DISTRIBUTIONS and d.location in python.site_packages
    ]
    if not own:
        return None
    step = Drop("PYTHONPATH", tuple(entry for entry in entries if posixpath.normpath(entry) == folder))
    return Remedy(
        f"Remove {folder} from PYTHONPATH: this Python has {own[0].name} {own[0].version} of its own.",
        (_line(target, step), check_again(target)),
        steps=(step,),
    )


def _make_separate_commands(target: Target, steps: Iterable[Step]) -> tuple[str, ...]:
    """Return what brings the same to a TensorFlow whose folder cannot be written to.

    Empty if that is not the way.
    """
    wheels: list[str] = []
    modules: list[str] = []
    folders: list[str] = []
    lines: list[str] = []
    for step in steps:
        if isinstance(step, Install):
            for one in step.requirements:
                (wheels if versions.project_of(one).startswith("nvidia-") else modules).append(one)
        elif isinstance(step, MakeLink):
            real = posixpath.join(posixpath.dirname(step.path), step.target)
            folders.append(posixpath.dirname(posixpath.normpath(real)))
        elif isinstance(step, LinkParts):
            folders.append(step.source)
        elif isinstance(step, Prepend):
            folders += step.folders if step.name == "LD_LIBRARY_PATH" else ()
        elif isinstance(step, (Uninstall, Remove)):
            return ()
        else:
            lines.append(_line(target, step))
    if any(versions.project_of(one) in TENSORFLOW_DISTRIBUTIONS for one in modules):
        return ()
    if wheels:
        command, folders = _wheels_apart(target, wheels, folders)
        lines.append(command)
    exports = [export_path(dict.fromkeys(folders))] if folders else []
    if modules:
        own = _folder(modules)
        lines.append(user_permissions.install_to(target, own, modules))
        exports.append(export_path([own], "PYTHONPATH"))
    kept = [line for one in exports for line in keep_line(target, one)[1]]
    return (*lines, *exports, check_again(target), *kept)


def _wheels_apart(target: Target, wheels: list[str], folders: list[str]) -> tuple[str, list[str]]:
    """Return (the command that puts NVIDIA's wheels into a folder of their own, all folders that must be named then).

    A library looks for what it needs beside itself: that is installed with it where it is nowhere, and named where it
    lies with TensorFlow.
    """
    places, site = _places(target), site_packages(target)
    named = {versions.project_of(one) for one in wheels}
    python = target.python
    there = {d.name for d in python.distributions if d.location == site} if python is not None else set()
    partners = {project for project in places if _part(project) in PARTNERS}
    more = [project for project in places if project in partners - there - named and _part(project) in NEEDED]
    own = _folder(wheels)
    named |= set(more)
    replaced = {f"{site}/{places[project]}" for project in named if project in places}
    return user_permissions.install_to(target, own, [*wheels, *more]), [
        *(f"{own}/{place}" for project, place in places.items() if project in named),
        *(folder for folder in folders if folder not in replaced),
        *(f"{site}/{place}" for project, place in places.items() if project in (partners & there) - named),
    ]


NEEDED = frozenset({"cublas", "nvjitlink"})
PARTNERS = NEEDED | {"cusparse", "cuda-nvrtc"}
"""Wheels whose libraries those of the others need; all but a few need one of the first two."""


def _part(project: str) -> str:
    """Return "nvidia-cublas-cu12" → "cublas"."""
    return re.sub(r"-cu\d+$", "", project.removeprefix("nvidia-"))


def _folder(requirements: Sequence[str]) -> str:
    """Return a folder of its own for each set: pip leaves alone what is in a `--target` already."""
    names = [versions.project_of(one).removeprefix("nvidia-") for one in requirements]
    return f"{FOLDER}/{names[0]}{f'-and-{len(names) - 1}-more' if len(names) > 1 else ''}"


def _places(target: Target) -> dict[str, str]:
    """Return project of each of NVIDIA's wheels for this CUDA → its folder below site-packages."""
    build = target.build
    if build is None or build.cuda is None:
        return {}
    major = versions.major(build.cuda)
    families = (family.wheels.get(major) for family in target.compat.libraries)
    return {wheel.project: wheel.folder for wheel in families if wheel is not None}
