"""LD_LIBRARY_PATH and the loader: folders named, taken off, linked into where TensorFlow looks. Pure."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.advice import user_permissions
from tfdoctor.advice.links import link_commands, links_of, runpath_target
from tfdoctor.advice.pip import check_again, quote
from tfdoctor.causes.steps import Drop, LinkParts, Prepend
from tfdoctor.findings import Remedy
from tfdoctor.text import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.advice.target import Target
    from tfdoctor.causes.steps import Step
    from tfdoctor.facts import FoundElsewhere, Tried


def export_path(folders: Iterable[str], name: str = "LD_LIBRARY_PATH") -> str:
    """Return the line that puts folders on a search path, before what is on it.

    They may begin with "$HOME/" or "$PWD/".
    """
    parts, rest = list(folders), f"${{{name}:+:${name}}}"
    of_shell = [part.startswith(("$HOME/", "$PWD/")) for part in parts]
    if all(of_shell):
        return f'export {name}="{":".join(parts)}{rest}"'
    if not any(of_shell):
        return f'export {name}={quote(":".join(parts))}"{rest}"'
    words = (f'"{part}"' if shell else quote(part) for part, shell in zip(parts, of_shell, strict=True))
    return f'export {name}={":".join(words)}"{rest}"'


def export_lines(folder: str, name: str) -> tuple[str, str]:
    """Return the same for one folder in two commands, which have room in a terminal. name: of the variable that holds
    it.
    """
    rest = "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    return f"{name}={quote(folder)}", f'export LD_LIBRARY_PATH="${name}{rest}"'


def name_folders(
    target: Target,
    folders: Iterable[str],
    text: str,
    *,
    first: Sequence[str] = (),
    steps: Sequence[Step] | None = (),
) -> Remedy:
    """Return LD_LIBRARY_PATH for this shell, and the line that keeps it for this environment.

    `first` and `steps`: what comes before it; None: that can only be done by hand.
    """
    named = tuple(folders)
    line = export_path(named)
    where, commands = keep_line(target, line)
    done = (*steps, Prepend("LD_LIBRARY_PATH", named)) if steps is not None else ()
    return Remedy(f"{text} {where}", (*first, line, check_again(target), *commands), steps=done)


def keep_line(target: Target, line: str) -> tuple[str, tuple[str, ...]]:
    """Return how a line of the shell is kept: conda's activate.d, a virtual environment's activate, ~/.profile."""
    python = target.python
    if user_permissions.place(target) is user_permissions.InstallFolder.CLOSED:
        python = None
    if python is not None and python.conda_prefix is not None:
        folder = f"{python.conda_prefix}/etc/conda/activate.d"
        script = quote(f"{folder}/tensorflow-cuda.sh")
        return (
            "The last two lines keep it for this conda environment.",
            (f"mkdir -p {quote(folder)}", f"echo {quote(line)} >> {script}"),
        )
    if python is not None and python.virtual:
        return (
            "The last line keeps it for this virtual environment.",
            (f"echo {quote(line)} >> {quote(f'{python.prefix}/bin/activate')}",),
        )
    return "The last line keeps it for each login.", (f"echo {quote(line)} >> ~/.profile",)


def drop_folders(
    target: Target, bad: Sequence[Tried], behind: Sequence[FoundElsewhere] = ()
) -> Remedy | None:
    """LD_LIBRARY_PATH without the folders through which these files are reached; None where that is not the way."""
    if not bad or not all(tried.via.startswith("LD_LIBRARY_PATH") for tried in bad):
        return None
    return drop_from_path(
        target, tuple(dict.fromkeys(posixpath.dirname(tried.path) for tried in bad)), behind
    )


def drop_from_path(
    target: Target, folders: Sequence[str], behind: Sequence[FoundElsewhere] = ()
) -> Remedy | None:
    """Return LD_LIBRARY_PATH without these folders, nor entries that are empty.

    None if they are not on it.

    `behind`: the libraries that are to be found then, and would not be: they are linked where TensorFlow looks.
    """
    off = _make_drop(target, folders)
    link = link_into_runpath(target, behind)
    if off is None or link is None:
        return off
    text = f"{off.text} Then: {link.text}"
    return Remedy(text, (*off.commands[:-1], *link.commands), steps=(*off.steps, *link.steps))


def _make_drop(target: Target, folders: Sequence[str]) -> Remedy | None:
    entries = _entries(target) or list(target.library_path)
    text = f"Remove {', '.join(folders)} from LD_LIBRARY_PATH where TensorFlow runs."
    return _drop_entries(target, entries, [e for e in entries if (e.rstrip("/") or "/") in folders], text)


def drop_folders_named(target: Target, word: str, text: str) -> Remedy | None:
    """LD_LIBRARY_PATH without the folders whose path has `word` in it; None without any."""
    entries = _entries(target)
    return _drop_entries(target, entries, [entry for entry in entries if word in f"{entry}/"], text)


def _entries(target: Target) -> list[str]:
    """Return what is on LD_LIBRARY_PATH, empty entries left out."""
    return entries_of("LD_LIBRARY_PATH", target.variables.get("LD_LIBRARY_PATH", ""))


def _drop_entries(target: Target, entries: Sequence[str], wrong: Sequence[str], text: str) -> Remedy | None:
    if not wrong:
        return None
    kept = [entry for entry in entries if entry not in wrong]
    command = f"export LD_LIBRARY_PATH={quote(':'.join(kept))}" if kept else "unset LD_LIBRARY_PATH"
    steps = (Drop("LD_LIBRARY_PATH", tuple(dict.fromkeys(wrong))),)
    return Remedy(text, (command, check_again(target)), steps=steps)


def ldconfig(target: Target, folders: Sequence[str]) -> Remedy:
    """Return how the loader is told of folders for every program."""
    root = user_permissions.sudo(target)
    lines = " ".join(quote(folder) for folder in folders)
    return Remedy(
        "Add it to the loader's search path for every program.",
        (
            f"printf '%s\\n' {lines} | {root}tee /etc/ld.so.conf.d/tensorflow-cuda.conf",
            f"{root}ldconfig",
        ),
        changes_system=True,
    )


def link_into_runpath(target: Target, found: Sequence[FoundElsewhere]) -> Remedy | None:
    """Return relative links that put libraries of NVIDIA's wheels where TensorFlow's own RUNPATH looks.

    The least intrusive cure: nothing to set, nothing outside the environment is touched. None if TensorFlow looks in
    no folder beside them, or they are not from wheels.
    """
    if not found:
        return None
    steps: dict[Step, None] = {}
    for library in found:
        site, inside, _ = library.path.partition("/nvidia/")
        own = posixpath.dirname(library.path)
        wheels = [f for f in target.runpath_folders if f.startswith(f"{site}/nvidia/")]
        folder = runpath_target(wheels or [f for f in target.runpath_folders if f.startswith(f"{site}/")])
        if not inside or folder is None:
            return None
        steps[links_of(library.name, own, folder) if wheels else LinkParts(own, "*.so*", folder)] = None
    return Remedy(
        "Link the libraries into a folder where TensorFlow looks (the links can simply be deleted again).",
        (*link_commands(steps), check_again(target)),
        steps=tuple(steps),
    )
