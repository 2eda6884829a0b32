"""Run the steps of a remedy in one environment. The journal (history/journal.py) undoes them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.core.causes.steps import (
    CommentOutLine,
    Install,
    LinkMatchingFiles,
    MakeLink,
    RemoveEntries,
    RemovePath,
    Uninstall,
    UnsetVariable,
    VariableStep,
)
from tfdoctor.core.errors import Error
from tfdoctor.core.text import clean_line
from tfdoctor.environments.activation import (
    NO_OP_PREFIX,
    edit_script,
    list_activate_scripts,
    list_editable_scripts,
    read_activated_variables,
    update_block,
)
from tfdoctor.environments.candidates import changes_packages
from tfdoctor.environments.folder import get_unfinished_path, remove_path, write_atomically
from tfdoctor.environments.installers import Installer, find_installer, run_installer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfdoctor.core.causes.steps import Step
    from tfdoctor.environments.models import Environment
    from tfdoctor.system import System

__all__ = ["ActionError", "StepRunner", "format_steps", "list_changed_paths", "make_link"]


class ActionError(Error):
    """A step failed."""

    kind = "fix"


@dataclass(slots=True)
class StepRunner:
    """Runs the steps of remedies in one environment."""

    environment: Environment
    make_system: Callable[[], System]
    """A function that returns the machine, with the variables that tfdoctor was started with."""
    installer_env: Mapping[str, str]
    """The environment variables for installers, without those that steps removed, which could break an installer."""
    preferred_installer: str | None
    """"uv", "pip", or None for whichever is found."""
    on_line: Callable[[str], None] | None = None
    """A function that receives each output line of an installer."""
    inherits_stderr: bool = False
    """Whether an installer writes directly to standard error."""
    pass_fds: Sequence[int] = ()
    """File descriptors that installers inherit: the journal's lock."""

    def get_installer(self) -> Installer:
        """Return the installer. Raise InstallFailedError if there is none."""
        return find_installer(
            self.environment.interpreter_path, prefer=self.preferred_installer, env=self.installer_env
        )

    def run(self, steps: Sequence[Step]) -> None:
        """Run the steps in order. Those that change variables run together at the end.

        Raise Error if a step fails.
        """
        self.installer_env = _remove_variables(self.installer_env, steps)
        installer = self.get_installer() if changes_packages(steps) else None
        if installer is not None and installer.setup_command:
            self._run_installer(installer.setup_command)
        for step in steps:
            if isinstance(step, (Install, Uninstall)):
                assert installer is not None  # noqa: S101 - changes_packages returned True
                self._run_installer(_make_command(installer, step))
            elif isinstance(step, MakeLink):
                make_link(step)
            elif isinstance(step, LinkMatchingFiles):
                for link in _iter_links(step):
                    make_link(link)
            elif isinstance(step, RemovePath):
                for path in _find_matching_paths(step.path):
                    _remove_path(path)
            elif isinstance(step, CommentOutLine):
                _comment_out(step)
        shell_steps = [step for step in steps if isinstance(step, VariableStep)]
        if shell_steps:
            self._run_shell_steps(shell_steps)

    def _run_installer(self, command: Sequence[str]) -> None:
        run_installer(
            command,
            env=self.installer_env,
            on_line=self.on_line,
            inherits_stderr=self.inherits_stderr,
            pass_fds=self.pass_fds,
        )

    def _run_shell_steps(self, steps: Sequence[VariableStep]) -> None:
        """Change the variables that activation sets.

        Harmful lines in the scripts are edited. If the variables are still wrong after that, tfdoctor adds lines.
        """
        prefix = self.environment.prefix
        old_texts = {script: _load_text(script) for script in list_activate_scripts(prefix)}
        new_texts = {script: edit_script(text, script.name, steps) for script, text in old_texts.items()}
        new_texts = {
            script: new_text for script, new_text in new_texts.items() if new_text != old_texts[script]
        }
        for script, new_text in new_texts.items():
            _write_text(script, new_text)
        variables = read_activated_variables(self.make_system(), prefix)
        if variables is None and new_texts:  # a script fails after the edit: restore all and only add lines
            for script in new_texts:
                _write_text(script, old_texts[script])
            variables = read_activated_variables(self.make_system(), prefix)
        remaining = [step for step in steps if variables is None or not step.is_satisfied(variables)]
        if not remaining:
            return
        for script in list_editable_scripts(prefix):
            script.parent.mkdir(parents=True, exist_ok=True)
            _write_text(
                script, update_block(_load_text(script) if script.exists() else "", script.name, remaining)
            )


def _remove_variables(env: Mapping[str, str], steps: Sequence[Step]) -> dict[str, str]:
    """Return the environment variables as they are after the Unset and RemoveEntries steps."""
    remaining = dict(env)
    for step in steps:
        if isinstance(step, (UnsetVariable, RemoveEntries)):
            remaining = step.apply(remaining)
    return remaining


def list_changed_paths(steps: Sequence[Step], environment: Environment) -> tuple[Path, ...] | None:
    """Return the paths that the steps may change; None if any path may change."""
    if changes_packages(steps):
        return None
    paths: dict[Path, None] = {}  # an ordered set
    for step in steps:
        if isinstance(step, VariableStep):
            scripts = (*list_activate_scripts(environment.prefix), *list_editable_scripts(environment.prefix))
            paths |= dict.fromkeys(scripts)
        elif isinstance(step, LinkMatchingFiles):
            paths |= dict.fromkeys(Path(link.path) for link in _iter_links(step))
        elif isinstance(step, RemovePath):
            for path in _find_matching_paths(step.path):
                if path.is_dir() and not path.is_symlink():
                    return None
                paths[path] = None
        elif not isinstance(step, (Install, Uninstall)):
            paths[Path(step.path)] = None
    # An unfinished file is left behind if the process is killed.
    return (*paths, *(Path(get_unfinished_path(path)) for path in paths))


def format_steps(
    steps: Sequence[Step], environment: Environment, installer: Installer | None
) -> tuple[str, ...]:
    """Return the steps as lines of text: commands that a user would type, or changed lines of scripts.

    Changed lines start with "-" or "+", as in a diff. Without an installer, pip commands are returned.
    """
    python = environment.interpreter_path
    installer = installer or Installer("pip", python, (python, "-m", "pip"))
    lines = [shlex.join(installer.setup_command)] if installer.setup_command else []
    for step in steps:
        if isinstance(step, (Install, Uninstall)):
            lines.append(shlex.join(_make_command(installer, step)))
        elif isinstance(step, VariableStep):
            lines += _format_script_changes(step, environment.prefix)
        elif isinstance(step, CommentOutLine):
            lines.append(f"- {step.expected_text.strip()}  # in {step.path}, line {step.line_number}")
        else:
            lines += step.format_commands()
    return tuple(lines)


def _format_script_changes(step: VariableStep, prefix: str) -> list[str]:
    """Return the lines that a step changes in the sh scripts, as in a diff; if there are none, those that it adds."""
    lines = []
    for script in list_activate_scripts(prefix):
        text = _load_text(script)
        if script.suffix in (".fish", ".csh"):
            continue
        new_text = edit_script(text, script.name, (step,))
        for old_line, new_line in zip(text.split("\n"), new_text.split("\n"), strict=True):
            if old_line != new_line:
                lines.append(f"- {old_line.strip()}  # in {script}")
            if old_line != new_line and not new_line.lstrip().startswith(NO_OP_PREFIX):
                lines.append(f"+ {new_line.strip()}  # in {script}")
    if lines:
        return lines
    script_or_prefix = list_editable_scripts(prefix)[0] if list_editable_scripts(prefix) else prefix
    _begin, *added_lines, _end = update_block("", "sh", (step,)).splitlines()
    return [f"+ {line}  # in {script_or_prefix}" for line in added_lines]


def _make_command(installer: Installer, step: Install | Uninstall) -> tuple[str, ...]:
    """Return the installer's command for a step."""
    return (
        installer.make_install_command(_list_install_arguments(step))
        if isinstance(step, Install)
        else installer.make_uninstall_command(step.names)
    )


def _list_install_arguments(step: Install) -> tuple[str, ...]:
    """Return the options and requirements for the install command of a step."""
    if step.lock_id is not None:
        return ("--no-deps", "--require-hashes", "-r", str(Compat.load().locks.get_cuda_path(step.lock_id)))
    force_options = ("--force-reinstall",) if step.force_reinstall else ()
    return (*force_options, *(() if step.install_dependencies else ("--no-deps",)), *step.requirements)


# ---------------------------------------------------------------- files


def _iter_links(step: LinkMatchingFiles) -> Iterable[MakeLink]:
    """Yield the links that a step has to create or replace."""
    for source in sorted(Path(step.source_folder).glob(step.pattern)):
        link_path = Path(step.link_folder, source.name)
        if source.is_file() and (link_path.is_symlink() or not link_path.exists()):
            yield MakeLink(str(link_path), os.path.relpath(source, step.link_folder))


def _find_matching_paths(pattern: str) -> list[Path]:
    """Return the existing paths that match a pattern with "*" in the last component."""
    folder, _, name = pattern.rpartition("/")
    if "*" not in name:
        path = Path(pattern)
        return [path] if path.is_symlink() or path.exists() else []
    return sorted(Path(folder).glob(name))


def make_link(link: MakeLink) -> None:
    """Create a link atomically; replace an existing link.

    Raise ActionError if the path is not a link, if the target does not exist, or if writing fails.
    """
    link_path = Path(link.path)
    if not link_path.is_symlink() and link_path.exists():
        msg = f"{clean_line(link.path)} exists and is not a link: it is left unchanged."
        raise ActionError(msg)
    if not Path(os.path.dirname(link.path), link.target).exists():  # noqa: PTH120 - not resolved
        msg = f"{clean_line(link.path)} would lead nowhere: there is no {clean_line(link.target)} beside it."
        raise ActionError(msg)
    temporary = Path(get_unfinished_path(link_path))
    try:
        remove_path(temporary)
        temporary.symlink_to(link.target)
        temporary.replace(link_path)
    except OSError as error:
        raise _make_error(link_path, error) from error


def _comment_out(step: CommentOutLine) -> None:
    """Comment out the line of a step. Raise ActionError if it has changed or cannot be written."""
    path = Path(step.path)
    if path.is_symlink() or not path.is_file():
        msg = f"{clean_line(step.path)} is not a separate file: it is left unchanged."
        raise ActionError(msg)
    new_text = step.edit(_load_text(path))
    if new_text is None:
        msg = f"{clean_line(step.path)} has changed in line {step.line_number}: it is left unchanged."
        raise ActionError(msg)
    _write_text(path, new_text)


def _remove_path(path: Path) -> None:
    """Remove a file, link or folder. Raise ActionError if that fails."""
    try:
        remove_path(path)
    except OSError as error:
        raise _make_error(path, error) from error


def _load_text(path: Path) -> str:
    """Return the text of a file, with invalid UTF-8 as surrogates. Raise ActionError if it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise _make_error(path, error) from error


def _write_text(path: Path, text: str) -> None:
    """Write a file atomically and keep its mode. Raise ActionError if that fails."""
    try:
        write_atomically(path, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise _make_error(path, error) from error


def _make_error(path: Path, error: OSError) -> ActionError:
    return ActionError(f"{clean_line(str(path))} cannot be changed: {error.strerror or error}.")
