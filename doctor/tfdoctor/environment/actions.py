"""Carrying out steps in one environment. The journal (journal.py) makes each of them revocable; nothing here undoes."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.advice import link_commands
from tfdoctor.causes.steps import (
    SHELL_STEPS,
    Drop,
    Install,
    LinkParts,
    MakeLink,
    Remove,
    TakeOut,
    Uninstall,
    Unset,
    comment_out_line,
    remove_entries,
)
from tfdoctor.compat import Compat
from tfdoctor.environment.activation import (
    NOTHING,
    activate,
    edit_script,
    needs_block,
    new_scripts,
    scripts_of,
    with_block,
)
from tfdoctor.environment.candidates import changes_packages
from tfdoctor.environment.folder import remove, unwritten, write
from tfdoctor.environment.installers import find_installer, run_installer
from tfdoctor.errors import Error
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfdoctor.causes.steps import ShellStep, Step
    from tfdoctor.environment.installers import Installer
    from tfdoctor.environment.models import Environment
    from tfdoctor.system import System

__all__ = ["ActionError", "StepRunner", "format_steps", "list_touched", "make_link"]


class ActionError(Error):
    """A step could not be carried out."""

    kind = "fix"


@dataclass(slots=True)
class StepRunner:
    """What steps are carried out with."""

    environment: Environment
    system: Callable[[], System]
    """The machine, with the variables that tfdoctor itself was started with."""
    env: Mapping[str, str]
    """The variables that installers run with: without what steps have taken away, a broken library among it."""
    prefer: str | None
    """"uv", "pip", or None: whichever is there."""
    on_line: Callable[[str], None] | None = None
    inherit: bool = False
    held: Sequence[int] = ()
    """File descriptors that an installer keeps open: the journal's lock."""

    def installer(self) -> Installer:
        """Raises InstallFailedError."""
        return find_installer(self.environment.python, prefer=self.prefer, env=self.env)

    def run(self, steps: Sequence[Step]) -> None:
        """All steps, in their order; those about variables together, at the end. Raises Error."""
        self.env = _less(self.env, steps)
        installer = self.installer() if changes_packages(steps) else None
        if installer is not None and installer.before:
            run_installer(
                installer.before, env=self.env, on_line=self.on_line, inherit=self.inherit, pass_fds=self.held
            )
        for step in steps:
            if isinstance(step, (Install, Uninstall)):
                assert installer is not None  # noqa: S101 - changes_packages said so
                command = _command(installer, step)
                run_installer(
                    command, env=self.env, on_line=self.on_line, inherit=self.inherit, pass_fds=self.held
                )
            elif isinstance(step, MakeLink):
                make_link(step)
            elif isinstance(step, LinkParts):
                for link in _parts(step):
                    make_link(link)
            elif isinstance(step, Remove):
                for path in _find_matching(step.path):
                    _remove(path)
            elif isinstance(step, TakeOut):
                _take_out(step)
        shell = [step for step in steps if isinstance(step, SHELL_STEPS)]
        if shell:
            self._shell(shell)

    def _shell(self, steps: Sequence[ShellStep]) -> None:
        """First the lines of the environment's own scripts that do the harm; what is left gets lines of its own."""
        prefix = self.environment.prefix
        before = {script: _read_text(script) for script in scripts_of(prefix)}
        changed = {script: edit_script(text, script.name, steps) for script, text in before.items()}
        changed = {script: new for script, new in changed.items() if new != before[script]}
        for script, new in changed.items():
            _write(script, new)
        now = activate(self.system(), prefix)
        if now is None and changed:  # a script that no longer runs: only lines of our own, then
            for script in changed:
                _write(script, before[script])
            now = activate(self.system(), prefix)
        rest = needs_block(steps, now) if now is not None else tuple(steps)
        if not rest:
            return
        for script in new_scripts(prefix):
            script.parent.mkdir(parents=True, exist_ok=True)
            _write(script, with_block(_read_text(script) if script.exists() else "", script.name, rest))


def _less(env: Mapping[str, str], steps: Sequence[Step]) -> dict[str, str]:
    """Return variables without those, and those entries of lists, that steps take away."""
    left = dict(env)
    for step in steps:
        if isinstance(step, Unset):
            left.pop(step.name, None)
        elif isinstance(step, Drop) and step.name in left:
            left[step.name] = ":".join(remove_entries(step, left[step.name]))
    return left


def list_touched(steps: Sequence[Step], environment: Environment) -> tuple[Path, ...] | None:
    """Return the paths that the steps may change; None if an installer may change anything."""
    if changes_packages(steps):
        return None
    paths: dict[Path, None] = {}
    for step in steps:
        if isinstance(step, MakeLink):
            paths[Path(step.path)] = None
        elif isinstance(step, LinkParts):
            paths |= dict.fromkeys(Path(link.path) for link in _parts(step))
        elif isinstance(step, Remove):
            for path in _find_matching(step.path):
                if path.is_dir() and not path.is_symlink():
                    return None
                paths[path] = None
        elif isinstance(step, TakeOut):
            paths[Path(step.path)] = None
        else:
            paths |= dict.fromkeys((*scripts_of(environment.prefix), *new_scripts(environment.prefix)))
    return (*paths, *(Path(unwritten(path)) for path in paths))  # which a kill may leave


def format_steps(
    steps: Sequence[Step], environment: Environment, installer: Installer | None
) -> tuple[str, ...]:
    """Return what the steps are as a person would type it, or would see it in a script."""
    lines = [shlex.join(installer.before)] if installer is not None and installer.before else []
    for step in steps:
        if isinstance(step, (Install, Uninstall)):
            command = _command(installer, step) if installer is not None else _plain(step, environment)
            lines.append(shlex.join(command))
        elif isinstance(step, (MakeLink, LinkParts)):
            lines += link_commands((step,))
        elif isinstance(step, Remove):
            lines.append(f"rm -r {step.path if '*' in step.path else shlex.quote(step.path)}")
        elif isinstance(step, TakeOut):
            lines.append(f"- {step.text.strip()}  # in {step.path}, line {step.line}")
        else:
            lines += _format_lines(step, environment.prefix)
    return tuple(lines)


def _format_lines(step: ShellStep, prefix: str) -> list[str]:
    """Return what becomes of the scripts for sh: the lines that go or change, else those that are added."""
    lines = []
    for script in scripts_of(prefix):
        text = _read_text(script)
        if script.suffix in (".fish", ".csh"):
            continue
        for old, new in zip(
            text.split("\n"), edit_script(text, script.name, (step,)).split("\n"), strict=True
        ):
            if old != new:
                lines.append(f"- {old.strip()}  # in {script}")
            if old != new and not new.lstrip().startswith(NOTHING):
                lines.append(f"+ {new.strip()}  # in {script}")
    if lines:
        return lines
    where = new_scripts(prefix)[0] if new_scripts(prefix) else prefix
    return [f"+ {line}  # in {where}" for line in with_block("", "sh", (step,)).splitlines()[1:-1]]


def _plain(step: Install | Uninstall, environment: Environment) -> tuple[str, ...]:
    verb = ("install", *_words(step)) if isinstance(step, Install) else ("uninstall", "-y", *step.names)
    return (environment.python, "-m", "pip", *verb)


def _command(installer: Installer, step: Install | Uninstall) -> tuple[str, ...]:
    return installer.install(_words(step)) if isinstance(step, Install) else installer.uninstall(step.names)


def _words(step: Install) -> tuple[str, ...]:
    if step.lock is not None:
        return ("--no-deps", "--require-hashes", "-r", str(Compat.load().locks.cuda_path(step.lock)))
    again = ("--force-reinstall",) if step.again else ()
    return (*again, *(() if step.dependencies else ("--no-deps",)), *step.requirements)


# ---------------------------------------------------------------- files


def _parts(step: LinkParts) -> Iterable[MakeLink]:
    for path in sorted(Path(step.source).glob(step.pattern)):
        place = Path(step.folder, path.name)
        if path.is_file() and (place.is_symlink() or not place.exists()):
            yield MakeLink(str(place), os.path.relpath(path, step.folder))


def _find_matching(pattern: str) -> list[Path]:
    folder, _, name = pattern.rpartition("/")
    if "*" not in name:
        path = Path(pattern)
        return [path] if path.is_symlink() or path.exists() else []
    return sorted(Path(folder).glob(name))


def make_link(link: MakeLink) -> None:
    """Made beside its place and moved there: never half, and never over a file that is no link."""
    place = Path(link.path)
    if not place.is_symlink() and place.exists():
        msg = f"{clean_line(link.path)} exists and is not a link: it is left unchanged."
        raise ActionError(msg)
    if not Path(os.path.dirname(link.path), link.target).exists():  # noqa: PTH120 - not resolved
        msg = f"{clean_line(link.path)} would lead nowhere: there is no {clean_line(link.target)} beside it."
        raise ActionError(msg)
    spare = Path(unwritten(place))
    try:
        remove(spare)
        spare.symlink_to(link.target)
        spare.replace(place)
    except OSError as error:
        raise _make_refusal(place, error) from error


def _take_out(step: TakeOut) -> None:
    path = Path(step.path)
    if path.is_symlink() or not path.is_file():
        msg = f"{clean_line(step.path)} is not a separate file: it is left unchanged."
        raise ActionError(msg)
    changed = comment_out_line(step, _read_text(path))
    if changed is None:
        msg = f"{clean_line(step.path)} has changed in line {step.line}: it is left unchanged."
        raise ActionError(msg)
    _write(path, changed)


def _remove(path: Path) -> None:
    try:
        remove(path)
    except OSError as error:
        raise _make_refusal(path, error) from error


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise _make_refusal(path, error) from error


def _write(path: Path, text: str) -> None:
    """The whole text or nothing, with the mode that it had."""
    try:
        write(path, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise _make_refusal(path, error) from error


def _make_refusal(path: Path, error: OSError) -> ActionError:
    return ActionError(f"{clean_line(str(path))} cannot be changed: {error.strerror or error}.")
