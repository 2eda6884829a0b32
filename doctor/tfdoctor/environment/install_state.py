"""The state of an installation: its lock, its finished steps, and the block until it is complete.

`<folder>/.tfdoctor` contains a lock, which one process at a time holds, and `install.json`, which records the plan and
the steps that are done. While the environment is unfinished, its Python exits with a message at every start (by a
`.pth` file in site-packages, which runs before everything else), and its activate scripts print the same message.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.environment.folder import STATE_FOLDER, UNFINISHED_SUFFIX, lock, remove, write
from tfdoctor.errors import Error, UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["INSTALLING", "LockedFolder", "LockedFolderError", "Record", "check_free", "read_record"]

RECORD, LOCK, SAVED_SCRIPTS, TEMPORARY = "install.json", "install.lock", "activate", "tmp"
INSTALLING = "TFDOCTOR_INSTALLING"
"""A variable of the installing processes: the environment's Python runs only for them until it is finished."""
GUARD = "_tfdoctor_unfinished.pth"
"""The name sorts before `distutils-precedence.pth`, because site runs these files in the order of their names."""
MARK = "tfdoctor: this environment is unfinished"
_FORBIDDEN_FOLDERS = frozenset(
    {"/", "/bin", "/boot", "/etc", "/home", "/lib", "/opt", "/sbin", "/srv", "/usr", "/usr/local"}
)
_MAX_RECORD_BYTES = 1_000_000
_BLOCKED_MESSAGE = f"{MARK}; run the same `tfdoctor install` again to finish it, or remove its folder."


class LockedFolderError(Error):
    """The folder cannot be used."""

    kind = "install"


@dataclass(frozen=True, slots=True)
class Record:
    """The content of `install.json`."""

    plan: Mapping[str, Any]
    """The values that distinguish plans: the release, the Python, the locks, the requirements."""
    state: str
    """`"unfinished"` or `"finished"`."""
    steps: tuple[str, ...]
    """The names of the finished steps, in order."""

    @property
    def finished(self) -> bool:
        """Whether the environment is complete."""
        return self.state == "finished"

    @property
    def text(self) -> str:
        """The text of install.json."""
        fields = {
            "schema_version": 1,
            "state": self.state,
            "plan": dict(self.plan),
            "steps": list(self.steps),
        }
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"


def read_record(folder: Path) -> Record | None:
    """Return the record of an environment; None if there is none that can be read."""
    try:
        with (folder / STATE_FOLDER / RECORD).open("rb") as stream:
            fields = json.loads(stream.read(_MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(fields, dict) or fields.get("schema_version") != 1:
        return None
    plan, state, steps = fields.get("plan"), fields.get("state"), fields.get("steps")
    if not isinstance(plan, dict) or state not in ("finished", "unfinished") or not isinstance(steps, list):
        return None
    return Record(plan, state, tuple(step for step in steps if isinstance(step, str)))


def check_free(folder: Path) -> None:
    """Raise UsageError unless an environment can be created in the folder, or one of ours finished there."""
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
    """Return whether a folder is empty, except for what an installation leaves before its first record."""
    if any(name != STATE_FOLDER for name in os.listdir(folder)):  # noqa: PTH208
        return False
    own_folder = folder / STATE_FOLDER
    return not own_folder.exists() or all(
        name.startswith((LOCK, f"{RECORD}."))
        for name in os.listdir(own_folder)  # noqa: PTH208
    )


class LockedFolder:
    """A folder that is locked for one installation."""

    def __init__(self, folder: Path, minor: str, descriptor: int, *, made: bool) -> None:
        self.folder = folder
        self._minor = minor
        self._lock = descriptor
        self._is_new = made

    # ------------------------------------------------------------ lock

    @classmethod
    def acquire(cls, folder: Path, minor: str, *, on_wait: Callable[[], None]) -> LockedFolder:
        """Lock the folder, which is created if it is missing.

        `on_wait` is called once if another process holds it. `minor` is the version of Python, as `"3.11"`. Raise
        UsageError, WorkplaceError.
        """
        made = True

        def make() -> None:
            nonlocal made
            check_free(folder)
            made = not folder.exists()
            (folder / STATE_FOLDER).mkdir(parents=True, exist_ok=True)

        try:
            descriptor = lock(f"{folder}/{STATE_FOLDER}/{LOCK}", make, lambda _: on_wait())
        except OSError as error:
            msg = f"{clean_line(str(folder))} cannot be made: {error.strerror or error}."
            raise LockedFolderError(msg, hint="Name another folder with --into DIR.") from error
        return cls(folder, minor, descriptor, made=made)

    @property
    def descriptor(self) -> int:
        """The lock's file descriptor: child processes that keep it open keep the folder locked until they end."""
        return self._lock

    def release(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    # ------------------------------------------------------------ record

    def record(self) -> Record | None:
        """Return the record; None if there is none that can be read."""
        return read_record(self.folder)

    def write(self, record: Record) -> None:
        """Replace the record atomically."""
        write(self.folder / STATE_FOLDER / RECORD, record.text.encode())

    def write_file(self, name: str, text: str) -> None:
        """Write a file next to the record, atomically, for a later run."""
        write(self.folder / STATE_FOLDER / name, text.encode())

    # ------------------------------------------------------------ paths

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """The environment's site-packages folder."""
        return self.folder / "lib" / f"python{self._minor}" / "site-packages"

    @property
    def temporary_folder(self) -> Path:
        """The folder for temporary files of the installation: on the same disk, and deleted at the end."""
        return self.folder / STATE_FOLDER / TEMPORARY

    # ------------------------------------------------------------ blocking

    def block(self) -> None:
        """Block the environment: only the installing processes can start its Python. May be called again."""
        self.site_packages.mkdir(parents=True, exist_ok=True)
        guard = self.site_packages / GUARD
        if not guard.exists():
            # site runs a line that starts with "import" before anything else; `-I` does not hide a variable.
            exit_call = f"os.write(2, {(_BLOCKED_MESSAGE + chr(10)).encode()!r}), os._exit(3)"
            write(guard, f"import os; os.environ.get({INSTALLING!r}) or ({exit_call})\n".encode())
        for script in self._list_activate_scripts():
            text = _make_refusal_script(script.name)
            if text is None or MARK in script.read_text(encoding="utf-8", errors="replace"):
                continue
            originals = self.folder / STATE_FOLDER / SAVED_SCRIPTS
            originals.mkdir(exist_ok=True)
            # Both names must be on the disk before the script in bin is replaced.
            write(originals / script.name, script.read_bytes())
            write(script, text.encode())

    @property
    def is_blocked(self) -> bool:
        """Whether the environment is blocked, or temporary files of the installation are left."""
        return any(
            path.exists()
            for path in (
                self.site_packages / GUARD,
                self.folder / STATE_FOLDER / SAVED_SCRIPTS,
                self.temporary_folder,
            )
        )

    def finish(self, record: Record) -> None:
        """Unblock the environment: restore the scripts, record it as finished, then let its Python start.

        May be called again.
        """
        originals = self.folder / STATE_FOLDER / SAVED_SCRIPTS
        saved = sorted(originals.iterdir()) if originals.is_dir() else []
        for script in saved:
            if not script.name.endswith(UNFINISHED_SUFFIX):
                write(self.folder / "bin" / script.name, script.read_bytes())
        self.write(Record(record.plan, "finished", record.steps))
        remove(self.site_packages / GUARD)
        for path in (originals, self.temporary_folder):
            with contextlib.suppress(OSError):
                remove(path)

    def _list_activate_scripts(self) -> list[Path]:
        try:
            names = sorted(os.listdir(self.folder / "bin"))  # noqa: PTH208
        except OSError:
            return []
        return [self.folder / "bin" / name for name in names if name.lower().startswith("activate")]

    # ------------------------------------------------------------ removal

    def clear(self) -> None:
        """Remove everything but the record and the lock, first the bin folder."""
        paths = [self.folder / name for name in sorted(os.listdir(self.folder)) if name != STATE_FOLDER]  # noqa: PTH208
        paths.sort(key=lambda path: path.name != "bin")
        for path in [
            *paths,
            self.folder / STATE_FOLDER / SAVED_SCRIPTS,
            self.folder / STATE_FOLDER / TEMPORARY,
        ]:
            remove(path)

    def abandon(self) -> None:
        """Remove everything, including the folder itself if it was created for this installation."""
        self.clear()
        own_folder = self.folder / STATE_FOLDER
        resolution_files = [
            name
            for name in os.listdir(own_folder)  # noqa: PTH208
            if name.endswith((".txt", f".txt{UNFINISHED_SUFFIX}"))
        ]
        for name in [*resolution_files, RECORD]:  # the record goes last, because it marks the folder as ours
            remove(own_folder / name)
        for name in os.listdir(own_folder):  # noqa: PTH208
            if name.startswith((LOCK, RECORD)):
                remove(own_folder / name)
        with contextlib.suppress(OSError):
            own_folder.rmdir()
            if self._is_new:
                self.folder.rmdir()


def _make_refusal_script(name: str) -> str | None:
    """Return the text of a blocked activate script; None if its shell is not known."""
    message = _BLOCKED_MESSAGE.replace("`", "'")
    suffix = name.lower().partition(".")[2]
    sh_command = f'echo "{message}" >&2\n'
    return {
        "": f"{sh_command}return 1 2>/dev/null || exit 1\n",
        "csh": f"sh -c 'echo \"{message.replace(chr(39), '')}\" >&2; exit 1'\n",
        "fish": f"{sh_command}return 1\n",
        "nu": f'error make {{msg: "{message}"}}\n',
        "xsh": f'raise RuntimeError("{message}")\n',
        "ps1": f'throw "{message}"\n',
    }.get(suffix, f'raise SystemExit("{message}")\n' if name.lower().endswith("_this.py") else None)
