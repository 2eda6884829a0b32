"""The state of an installation: its lock, its finished steps, and the block while it is incomplete.

The folder `.tfdoctor` in the environment contains a lock file, and `install.json`, which records the plan and the
finished steps. While the environment is unfinished, a `.pth` file in site-packages makes its Python print a message and
exit. Its activate scripts print the same message.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.facts.python import INSTALL_GUARD_FILE
from tfdoctor.core.text import clean_line
from tfdoctor.environments.folder import (
    STATE_FOLDER,
    UNFINISHED_SUFFIX,
    acquire_lock,
    remove_path,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "INSTALLING_VARIABLE",
    "InstallRecord",
    "LockedFolder",
    "LockedFolderError",
    "read_record",
    "require_usable_folder",
]

RECORD_FILE, LOCK_FILE, SAVED_SCRIPTS_FOLDER, TEMPORARY_FOLDER = (
    "install.json",
    "install.lock",
    "activate",
    "tmp",
)
"""The names of the files and folders in `.tfdoctor`."""
INSTALLING_VARIABLE = "TFDOCTOR_INSTALLING"
"""The variable that is set for installers: with it, the Python of an unfinished environment starts."""
UNFINISHED_MARK = "tfdoctor: this environment is unfinished"
"""The text that identifies a blocked activate script."""
# System folders that must not become an environment.
_FORBIDDEN_FOLDERS = frozenset(
    {"/", "/bin", "/boot", "/etc", "/home", "/lib", "/opt", "/sbin", "/srv", "/usr", "/usr/local"}
)
_MAX_RECORD_BYTES = 1_000_000
_BLOCKED_MESSAGE = (
    f"{UNFINISHED_MARK}; run the same `tfdoctor install` again to finish it, or remove its folder."
)


class LockedFolderError(Error):
    """The folder of an environment cannot be created or locked."""

    kind = "install"


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """The content of `install.json`."""

    plan_key: Mapping[str, Any]
    """The values that identify the plan: the release, the Python, the locks, and the requirements."""
    state: str
    """`"unfinished"` or `"finished"`."""
    finished_steps: tuple[str, ...]
    """The names of the finished steps, in order."""

    @property
    def is_finished(self) -> bool:
        """Whether the environment is complete."""
        return self.state == "finished"

    @property
    def json_text(self) -> str:
        """The JSON text of install.json."""
        fields = {
            "schema_version": 1,
            "state": self.state,
            "plan": dict(self.plan_key),
            "steps": list(self.finished_steps),
        }
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"


def read_record(folder: Path) -> InstallRecord | None:
    """Return the record in the folder of an environment; None if it is missing or not valid."""
    try:
        with (folder / STATE_FOLDER / RECORD_FILE).open("rb") as stream:
            fields = json.loads(stream.read(_MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(fields, dict) or fields.get("schema_version") != 1:
        return None
    plan, state, steps = fields.get("plan"), fields.get("state"), fields.get("steps")
    if not isinstance(plan, dict) or state not in ("finished", "unfinished") or not isinstance(steps, list):
        return None
    return InstallRecord(
        plan_key=plan, state=state, finished_steps=tuple(step for step in steps if isinstance(step, str))
    )


def require_usable_folder(folder: Path) -> None:
    """Raise UsageError if the folder cannot be used for an installation.

    It can be used if it does not exist, is empty, or contains the record of an earlier installation.
    """
    folder_text = clean_line(str(folder))
    if ":" in str(folder) or not str(folder).isprintable():
        msg = f"--into: {folder_text} cannot be on PATH: it has a colon or a control character in its name."
        raise UsageError(msg, hint="Name another folder.")
    if str(folder) in _FORBIDDEN_FOLDERS or folder == Path.home():
        msg = f"--into: {folder_text} cannot be an environment's folder."
        raise UsageError(msg, hint=f"Name one in it: --into {folder_text.rstrip('/')}/tensorflow-env")
    if os.path.islink(folder) and not folder.exists():  # noqa: PTH114 - never raises
        msg = f"--into: {folder_text} is a link to nothing."
        raise UsageError(msg, hint="Name another folder.")
    if not folder.exists():
        return
    if not folder.is_dir():
        msg = f"--into: {folder_text} is a file."
        raise UsageError(msg, hint="Name another folder.")
    if read_record(folder) is None and not _is_empty(folder):
        description = (
            "an environment that tfdoctor did not make" if (folder / "pyvenv.cfg").exists() else "not empty"
        )
        msg = f"--into: {folder_text} already exists and is {description}; it is left unchanged."
        raise UsageError(msg, hint="Name another folder with --into DIR, or remove this one.")


def _is_empty(folder: Path) -> bool:
    """Return whether a folder contains only files that are created before the first record."""
    if any(name != STATE_FOLDER for name in os.listdir(folder)):  # noqa: PTH208
        return False
    state_folder = folder / STATE_FOLDER
    return not state_folder.exists() or all(
        name.startswith((LOCK_FILE, f"{RECORD_FILE}."))
        for name in os.listdir(state_folder)  # noqa: PTH208
    )


class LockedFolder:
    """A folder that is locked for one installation."""

    def __init__(self, folder: Path, minor: str, descriptor: int, *, is_new: bool) -> None:
        """Use `LockedFolder.acquire` instead."""
        self.folder = folder
        self._minor = minor
        self._lock = descriptor
        self._is_new = is_new

    # ------------------------------------------------------------ lock

    @classmethod
    def acquire(cls, folder: Path, python_version: str, *, on_wait: Callable[[], None]) -> LockedFolder:
        """Lock the folder, and create it if it does not exist.

        `python_version` is the Python version, such as `"3.11"`. `on_wait` is called once if another process holds the lock.
        Raise UsageError if the folder cannot be used, or LockedFolderError if it cannot be created.
        """
        is_new = True

        def make_folder() -> None:
            nonlocal is_new
            require_usable_folder(folder)
            is_new = not folder.exists()
            (folder / STATE_FOLDER).mkdir(parents=True, exist_ok=True)

        try:
            descriptor = acquire_lock(
                f"{folder}/{STATE_FOLDER}/{LOCK_FILE}", make_folder, lambda _: on_wait()
            )
        except OSError as error:
            msg = f"{clean_line(str(folder))} cannot be made: {error.strerror or error}."
            raise LockedFolderError(msg, hint="Name another folder with --into DIR.") from error
        return cls(folder, python_version, descriptor, is_new=is_new)

    @property
    def descriptor(self) -> int:
        """The file descriptor of the lock. Child processes that inherit it keep the lock until they end."""
        return self._lock

    def release(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    # ------------------------------------------------------------ record

    def read_record(self) -> InstallRecord | None:
        """Return the record; None if it is missing or not valid."""
        return read_record(self.folder)

    def write_record(self, record: InstallRecord) -> None:
        """Replace the record atomically."""
        write_atomically(self.folder / STATE_FOLDER / RECORD_FILE, record.json_text.encode())

    def write_file(self, name: str, text: str) -> None:
        """Write a file to `.tfdoctor` atomically."""
        write_atomically(self.folder / STATE_FOLDER / name, text.encode())

    # ------------------------------------------------------------ paths

    @property
    def interpreter_path(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """The environment's site-packages folder."""
        return self.folder / "lib" / f"python{self._minor}" / "site-packages"

    @property
    def temporary_folder(self) -> Path:
        """The folder for temporary files, which is deleted at the end of the installation."""
        return self.folder / STATE_FOLDER / TEMPORARY_FOLDER

    # ------------------------------------------------------------ blocking

    def block(self) -> None:
        """Block the environment, so that only the installers can start its Python.

        Call it again after creating the virtual environment, to block the new activate scripts.
        """
        self.site_packages.mkdir(parents=True, exist_ok=True)
        guard = self.site_packages / INSTALL_GUARD_FILE
        if not guard.exists():
            # Python runs a line of a .pth file if it starts with "import". The line can read os.environ even with `-I`.
            exit_call = f"os.write(2, {(_BLOCKED_MESSAGE + chr(10)).encode()!r}), os._exit(3)"
            write_atomically(
                guard, f"import os; os.environ.get({INSTALLING_VARIABLE!r}) or ({exit_call})\n".encode()
            )
        for script in self._list_activate_scripts():
            text = _make_refusal_script(script.name)
            if text is None or UNFINISHED_MARK in script.read_text(encoding="utf-8", errors="replace"):
                continue
            saved_folder = self.folder / STATE_FOLDER / SAVED_SCRIPTS_FOLDER
            saved_folder.mkdir(exist_ok=True)
            # The copy must be on the disk before the script in bin is replaced.
            write_atomically(saved_folder / script.name, script.read_bytes())
            write_atomically(script, text.encode())

    @property
    def is_blocked(self) -> bool:
        """Whether the environment is blocked, or still has temporary files of the installation."""
        return any(
            path.exists()
            for path in (
                self.site_packages / INSTALL_GUARD_FILE,
                self.folder / STATE_FOLDER / SAVED_SCRIPTS_FOLDER,
                self.temporary_folder,
            )
        )

    def finish(self, record: InstallRecord) -> None:
        """Unblock the environment and record it as finished.

        The activate scripts are restored first, and the `.pth` file is removed after the record is written. So another
        run can finish this if the process is killed.
        """
        saved_folder = self.folder / STATE_FOLDER / SAVED_SCRIPTS_FOLDER
        saved_scripts = sorted(saved_folder.iterdir()) if saved_folder.is_dir() else []
        for script in saved_scripts:
            if not script.name.endswith(UNFINISHED_SUFFIX):
                write_atomically(self.folder / "bin" / script.name, script.read_bytes())
        self.write_record(
            InstallRecord(plan_key=record.plan_key, state="finished", finished_steps=record.finished_steps)
        )
        remove_path(self.site_packages / INSTALL_GUARD_FILE)
        for path in (saved_folder, self.temporary_folder):
            with contextlib.suppress(OSError):
                remove_path(path)

    def _list_activate_scripts(self) -> list[Path]:
        """Return the activate scripts of all shells; empty if there is no bin folder."""
        try:
            names = sorted(os.listdir(self.folder / "bin"))  # noqa: PTH208
        except OSError:
            return []
        return [self.folder / "bin" / name for name in names if name.lower().startswith("activate")]

    # ------------------------------------------------------------ removal

    def clear(self) -> None:
        """Remove everything but the record, the resolution and the lock, beginning with the bin folder."""
        paths = [self.folder / name for name in sorted(os.listdir(self.folder)) if name != STATE_FOLDER]  # noqa: PTH208
        paths.sort(key=lambda path: path.name != "bin")  # False sorts first
        for path in [
            *paths,
            self.folder / STATE_FOLDER / SAVED_SCRIPTS_FOLDER,
            self.folder / STATE_FOLDER / TEMPORARY_FOLDER,
        ]:
            remove_path(path)

    def abandon(self) -> None:
        """Remove everything, including the folder itself if it was created for this installation."""
        self.clear()
        state_folder = self.folder / STATE_FOLDER
        resolution_files = [
            name
            for name in os.listdir(state_folder)  # noqa: PTH208
            if name.endswith((".txt", f".txt{UNFINISHED_SUFFIX}"))
        ]
        # The record is removed last, because it identifies the folder as an installation.
        for name in [*resolution_files, RECORD_FILE]:
            remove_path(state_folder / name)
        for name in os.listdir(state_folder):  # noqa: PTH208
            if name.startswith((LOCK_FILE, RECORD_FILE)):
                remove_path(state_folder / name)
        with contextlib.suppress(OSError):
            state_folder.rmdir()
            if self._is_new:
                self.folder.rmdir()


def _make_refusal_script(name: str) -> str | None:
    """Return the text that replaces an activate script; None if the shell of the script is not known."""
    message = _BLOCKED_MESSAGE.replace("`", "'")
    suffix = name.lower().partition(".")[2]
    sh_command = f'echo "{message}" >&2\n'
    return {
        "": f"{sh_command}return 1 2>/dev/null || exit 1\n",
        # The message is inside single quotes here, so it must not contain any.
        "csh": f"sh -c 'echo \"{message.replace(chr(39), '')}\" >&2; exit 1'\n",
        "fish": f"{sh_command}return 1\n",
        "nu": f'error make {{msg: "{message}"}}\n',
        "xsh": f'raise RuntimeError("{message}")\n',
        "ps1": f'throw "{message}"\n',
    }.get(suffix, f'raise SystemExit("{message}")\n' if name.lower().endswith("_this.py") else None)
