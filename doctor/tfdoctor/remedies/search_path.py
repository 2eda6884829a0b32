"""Remedies that add folders to the loader's search path, remove them, or link libraries into it."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import LinkMatchingFiles, PrependEntries, RemoveEntries
from tfdoctor.core.findings import Remedy
from tfdoctor.core.text import split_path_list
from tfdoctor.remedies import user_permissions
from tfdoctor.remedies.links import choose_runpath_folder, format_link_commands, make_library_link
from tfdoctor.remedies.pip import format_check_command, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.core.causes.steps import Step
    from tfdoctor.core.facts import FoundElsewhere, LoadAttempt
    from tfdoctor.remedies.target import Target


def format_export(folders: Iterable[str], name: str = "LD_LIBRARY_PATH") -> str:
    """Return the shell command that puts folders at the front of a search path.

    Folders may begin with "$HOME/" or "$PWD/".
    """
    paths = list(folders)
    old_value = f"${{{name}:+:${name}}}"  # a colon and the old value; empty if the variable is unset or empty
    has_variables = [path.startswith(("$HOME/", "$PWD/")) for path in paths]
    if all(has_variables):
        return f'export {name}="{":".join(paths)}{old_value}"'
    if not any(has_variables):
        return f'export {name}={quote(":".join(paths))}"{old_value}"'
    quoted_paths = (
        f'"{path}"' if has_variable else quote(path)
        for path, has_variable in zip(paths, has_variables, strict=True)
    )
    return f'export {name}={":".join(quoted_paths)}"{old_value}"'


def format_export_lines(folder: str, name: str) -> tuple[str, str]:
    """Return two shell commands that put one folder at the front of LD_LIBRARY_PATH.

    The first command sets the variable `name` to the folder, so that the lines stay short.
    """
    old_value = "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    return f"{name}={quote(folder)}", f'export LD_LIBRARY_PATH="${name}{old_value}"'


def make_path_remedy(
    target: Target,
    folders: Iterable[str],
    text: str,
    *,
    first_commands: Sequence[str] = (),
    steps: Sequence[Step] | None = (),
) -> Remedy:
    """Return the remedy that adds folders to LD_LIBRARY_PATH, now and for later shells.

    `first_commands` and `steps` come before this change. If `steps` is None, the result has no steps, and `fix`
    cannot apply it.
    """
    paths = tuple(folders)
    line = format_export(paths)
    note, commands = make_persist_commands(target, line)
    all_steps = (*steps, PrependEntries("LD_LIBRARY_PATH", paths)) if steps is not None else ()
    return Remedy(
        f"{text} {note}", (*first_commands, line, format_check_command(target), *commands), steps=all_steps
    )


def make_persist_commands(target: Target, line: str) -> tuple[str, tuple[str, ...]]:
    """Return a sentence and the commands that make later shells run the shell command `line` too.

    The commands write it into conda's activate.d, the activate script of a virtual environment, or ~/.profile.
    """
    python = target.python
    if user_permissions.classify_install_folder(target) is user_permissions.InstallFolder.UNWRITABLE:
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


def make_file_removal_remedy(
    target: Target, files: Sequence[LoadAttempt], libraries_to_link: Sequence[FoundElsewhere] = ()
) -> Remedy | None:
    """Return the remedy that removes the folders of these files from LD_LIBRARY_PATH.

    Return None if there are no files, or if a file was not found through that variable.
    `libraries_to_link` is explained at `make_folder_removal_remedy`.
    """
    if not files or not all(attempt.via.startswith("LD_LIBRARY_PATH") for attempt in files):
        return None
    return make_folder_removal_remedy(
        target, tuple(dict.fromkeys(posixpath.dirname(attempt.path) for attempt in files)), libraries_to_link
    )


def make_folder_removal_remedy(
    target: Target, folders: Sequence[str], libraries_to_link: Sequence[FoundElsewhere] = ()
) -> Remedy | None:
    """Return the remedy that removes these folders and empty entries from LD_LIBRARY_PATH.

    Return None if no folder is on LD_LIBRARY_PATH. `libraries_to_link` are libraries outside the search path. The
    remedy also links them into a folder that TensorFlow searches, if there is such a folder.
    """
    removal = _make_removal_remedy(target, folders)
    link = make_runpath_link_remedy(target, libraries_to_link)
    if removal is None or link is None:
        return removal
    text = f"{removal.text} Then: {link.text}"
    return Remedy(text, (*removal.commands[:-1], *link.commands), steps=(*removal.steps, *link.steps))


def _make_removal_remedy(target: Target, folders: Sequence[str]) -> Remedy | None:
    """Return the remedy that removes these folders from LD_LIBRARY_PATH; None if no folder is on it."""
    entries = _list_entries(target) or list(target.library_path)
    text = f"Remove {', '.join(folders)} from LD_LIBRARY_PATH where TensorFlow runs."
    return _make_entry_removal_remedy(
        target, entries, [entry for entry in entries if (entry.rstrip("/") or "/") in folders], text
    )


def make_matching_removal_remedy(target: Target, path_part: str, text: str) -> Remedy | None:
    """Return the remedy that removes folders with `path_part` in their path from LD_LIBRARY_PATH.

    Return None if no folder on it matches.
    """
    entries = _list_entries(target)
    return _make_entry_removal_remedy(
        target, entries, [entry for entry in entries if path_part in f"{entry}/"], text
    )


def _list_entries(target: Target) -> list[str]:
    """Return the entries of LD_LIBRARY_PATH that are not empty."""
    return split_path_list("LD_LIBRARY_PATH", target.variables.get("LD_LIBRARY_PATH", ""))


def _make_entry_removal_remedy(
    target: Target, entries: Sequence[str], unwanted: Sequence[str], text: str
) -> Remedy | None:
    """Return the remedy that sets LD_LIBRARY_PATH without the unwanted entries; None if no entry is unwanted."""
    if not unwanted:
        return None
    remaining = [entry for entry in entries if entry not in unwanted]
    command = f"export LD_LIBRARY_PATH={quote(':'.join(remaining))}" if remaining else "unset LD_LIBRARY_PATH"
    steps = (RemoveEntries("LD_LIBRARY_PATH", tuple(dict.fromkeys(unwanted))),)
    return Remedy(text, (command, format_check_command(target)), steps=steps)


def make_ldconfig_remedy(target: Target, folders: Sequence[str]) -> Remedy:
    """Return the remedy that adds folders to the loader's configuration for all programs."""
    sudo_prefix = user_permissions.get_sudo_prefix(target)
    lines = " ".join(quote(folder) for folder in folders)
    return Remedy(
        "Add it to the loader's search path for every program.",
        (
            f"printf '%s\\n' {lines} | {sudo_prefix}tee /etc/ld.so.conf.d/tensorflow-cuda.conf",
            f"{sudo_prefix}ldconfig",
        ),
        changes_system=True,
    )


def make_runpath_link_remedy(target: Target, libraries: Sequence[FoundElsewhere]) -> Remedy | None:
    """Return the remedy that links libraries of NVIDIA's wheels into a folder on TensorFlow's RUNPATH.

    The remedy sets no variable and changes nothing outside the environment. Return None if there are no libraries,
    if a library is not from a wheel, or if the RUNPATH contains no folder in the same site-packages.
    """
    if not libraries:
        return None
    steps: dict[Step, None] = {}  # an ordered set
    for library in libraries:
        site, separator, _ = library.path.partition("/nvidia/")
        library_folder = posixpath.dirname(library.path)
        wheel_folders = [
            folder_path for folder_path in target.runpath_folders if folder_path.startswith(f"{site}/nvidia/")
        ]
        folder = choose_runpath_folder(
            wheel_folders
            or [folder_path for folder_path in target.runpath_folders if folder_path.startswith(f"{site}/")]
        )
        if not separator or folder is None:
            return None
        steps[
            make_library_link(library.name, library_folder, folder)
            if wheel_folders
            else LinkMatchingFiles(library_folder, "*.so*", folder)
        ] = None
    return Remedy(
        "Link the libraries into a folder where TensorFlow looks (the links can simply be deleted again).",
        (*format_link_commands(steps), format_check_command(target)),
        steps=tuple(steps),
    )
