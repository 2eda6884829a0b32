"""An environment that is being made: whose folder it is, how far it is, and that nobody uses it before it is whole.

In `<folder>/.tfdoctor` lie a lock, which one maker at a time holds, and `install.json`, which says what is being made
and which steps are done. As long as it is unfinished every start of its Python ends with a sentence (a `.pth` file in
site-packages, which Python runs first of all), and its activate scripts say the same.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.environment.folder import OWN, UNWRITTEN, lock, remove, write
from tfdoctor.errors import Error, UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["INSTALLING", "Record", "Workplace", "WorkplaceError", "is_free", "read_record"]

RECORD, LOCK, ASIDE, SPACE = "install.json", "install.lock", "activate", "tmp"
INSTALLING = "TFDOCTOR_INSTALLING"
"""Set in the programs that make the environment: its Python runs for them alone until it is finished."""
GUARD = "_tfdoctor_unfinished.pth"
"""Before `distutils-precedence.pth`: site runs these files by name."""
MARK = "tfdoctor: this environment is unfinished"
_NOT_OURS = frozenset(
    {"/", "/bin", "/boot", "/etc", "/home", "/lib", "/opt", "/sbin", "/srv", "/usr", "/usr/local"}
)
_MAX_RECORD_BYTES = 1_000_000
_SENTENCE = f"{MARK}; run the same `tfdoctor install` again to finish it, or remove its folder."


class WorkplaceError(Error):
    """The folder cannot be used."""

    kind = "install"


@dataclass(frozen=True, slots=True)
class Record:
    """What `install.json` says."""

    plan: Mapping[str, Any]
    """What tells one plan from another: the release, the Python, the locks, the requirements."""
    state: str
    """`"unfinished"` or `"finished"`."""
    steps: tuple[str, ...]
    """The names of those that are done, in order."""

    @property
    def finished(self) -> bool:
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
    """Return what is recorded of an environment; None if nothing is, or nothing that can be read."""
    try:
        with (folder / OWN / RECORD).open("rb") as stream:
            said = json.loads(stream.read(_MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict) or said.get("schema_version") != 1:
        return None
    plan, state, steps = said.get("plan"), said.get("state"), said.get("steps")
    if not isinstance(plan, dict) or state not in ("finished", "unfinished") or not isinstance(steps, list):
        return None
    return Record(plan, state, tuple(step for step in steps if isinstance(step, str)))


def is_free(folder: Path) -> None:
    """Whether an environment may be made there, or one of ours finished. Raises UsageError."""
    shown = clean_line(str(folder))
    if ":" in str(folder) or not str(folder).isprintable():
        msg = f"--into: {shown} cannot be on PATH: it has a colon or a control character in its name."
        raise UsageError(msg, hint="Name another folder.")
    if str(folder) in _NOT_OURS or folder == Path.home():
        msg = f"--into: {shown} cannot be an environment's folder."
        raise UsageError(msg, hint=f"Name one in it: --into {shown.rstrip('/')}/tensorflow-env")
    if os.path.islink(folder) and not folder.exists():  # noqa: PTH114 - never raises
        msg = f"--into: {shown} is a link to nothing."
        raise UsageError(msg, hint="Name another folder.")
    if not folder.exists():
        return
    if not folder.is_dir():
        msg = f"--into: {shown} is a file."
        raise UsageError(msg, hint="Name another folder.")
    if read_record(folder) is None and not _is_empty(folder):
        what = (
            "an environment that tfdoctor did not make" if (folder / "pyvenv.cfg").exists() else "not empty"
        )
        msg = f"--into: {shown} already exists and is {what}; it is left unchanged."
        raise UsageError(msg, hint="Name another folder with --into DIR, or remove this one.")


def _is_empty(folder: Path) -> bool:
    """Nothing is in it but what a maker leaves that was ended before it wrote anything down."""
    if any(name != OWN for name in os.listdir(folder)):  # noqa: PTH208
        return False
    own = folder / OWN
    return not own.exists() or all(name.startswith((LOCK, f"{RECORD}.")) for name in os.listdir(own))  # noqa: PTH208


class Workplace:
    """A folder that is locked for one maker."""

    def __init__(self, folder: Path, minor: str, descriptor: int, *, made: bool) -> None:
        self.folder = folder
        self._minor = minor
        self._lock = descriptor
        self._made = made

    # ------------------------------------------------------------ the lock

    @classmethod
    def take(cls, folder: Path, minor: str, *, on_wait: Callable[[], None]) -> Workplace:
        """Lock the folder, which is made where it is not there. `on_wait` is called once if somebody else has it.

        minor: the Python that it is for, `"3.11"`. Raises UsageError, WorkplaceError.
        """
        made = True

        def make() -> None:
            nonlocal made
            is_free(folder)
            made = not folder.exists()
            (folder / OWN).mkdir(parents=True, exist_ok=True)

        try:
            descriptor = lock(f"{folder}/{OWN}/{LOCK}", make, lambda _: on_wait())
        except OSError as error:
            msg = f"{clean_line(str(folder))} cannot be made: {error.strerror or error}."
            raise WorkplaceError(msg, hint="Name another folder with --into DIR.") from error
        return cls(folder, minor, descriptor, made=made)

    @property
    def descriptor(self) -> int:
        """The lock's file descriptor: programs that keep it open keep the folder locked until they end."""
        return self._lock

    def release(self) -> None:
        """Let others in."""
        os.close(self._lock)

    # ------------------------------------------------------------ the record

    def record(self) -> Record | None:
        """Return what is recorded."""
        return read_record(self.folder)

    def write(self, record: Record) -> None:
        """Replace the record in one step."""
        write(self.folder / OWN / RECORD, record.text.encode())

    def write_beside(self, name: str, text: str) -> None:
        """Write a file beside the record, in one step: what a run that goes on has to know."""
        write(self.folder / OWN / name, text.encode())

    # ------------------------------------------------------------ where things are

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return self.folder / "lib" / f"python{self._minor}" / "site-packages"

    @property
    def space(self) -> Path:
        """For the temporary files of the programs that make it: on the disk that it will be on, gone with it."""
        return self.folder / OWN / SPACE

    # ------------------------------------------------------------ never looking whole

    def block(self) -> None:
        """From now on only the programs that make it can start its Python; activating it fails. May be done again."""
        self.site.mkdir(parents=True, exist_ok=True)
        guard = self.site / GUARD
        if not guard.exists():
            # One line that starts with "import" is run by site, before anything else; a variable survives `-I`.
            words = f"os.write(2, {(_SENTENCE + chr(10)).encode()!r}), os._exit(3)"
            write(guard, f"import os; os.environ.get({INSTALLING!r}) or ({words})\n".encode())
        for script in self._scripts():
            text = _refusal(script.name)
            if text is None or MARK in script.read_text(encoding="utf-8", errors="replace"):
                continue
            aside = self.folder / OWN / ASIDE
            aside.mkdir(exist_ok=True)
            # Its contents are on disk under both names before the one in bin is replaced.
            write(aside / script.name, script.read_bytes())
            write(script, text.encode())

    @property
    def blocked(self) -> bool:
        """Whether it cannot be used yet, or something is left of making it."""
        return any(path.exists() for path in (self.site / GUARD, self.folder / OWN / ASIDE, self.space))

    def finish(self, record: Record) -> None:
        """Let everybody use it: its scripts come back, then the record says so, then its Python starts.

        May be done again.
        """
        aside = self.folder / OWN / ASIDE
        kept = sorted(aside.iterdir()) if aside.is_dir() else []
        for script in kept:
            if not script.name.endswith(UNWRITTEN):
                write(self.folder / "bin" / script.name, script.read_bytes())
        self.write(Record(record.plan, "finished", record.steps))
        remove(self.site / GUARD)
        for place in (aside, self.space):
            with contextlib.suppress(OSError):
                remove(place)

    def _scripts(self) -> list[Path]:
        try:
            names = sorted(os.listdir(self.folder / "bin"))  # noqa: PTH208
        except OSError:
            return []
        return [self.folder / "bin" / name for name in names if name.lower().startswith("activate")]

    # ------------------------------------------------------------ taking away

    def clear(self) -> None:
        """Remove everything that was made, but the record and the lock: first what could be started."""
        inside = [self.folder / name for name in sorted(os.listdir(self.folder)) if name != OWN]  # noqa: PTH208
        inside.sort(key=lambda path: path.name != "bin")
        for path in [*inside, self.folder / OWN / ASIDE, self.folder / OWN / SPACE]:
            remove(path)

    def abandon(self) -> None:
        """Remove everything, the folder too where it was made for this."""
        self.clear()
        own = self.folder / OWN
        kept = [name for name in os.listdir(own) if name.endswith((".txt", f".txt{UNWRITTEN}"))]  # noqa: PTH208
        for name in [*kept, RECORD]:  # with a record the folder is known as ours
            remove(own / name)
        for name in os.listdir(own):  # noqa: PTH208
            if name.startswith((LOCK, RECORD)):
                remove(own / name)
        with contextlib.suppress(OSError):
            own.rmdir()
            if self._made:
                self.folder.rmdir()


def _refusal(name: str) -> str | None:
    """Return what an activate script says in place of its own text; None if nobody would run it here."""
    sentence = _SENTENCE.replace("`", "'")
    suffix = name.lower().partition(".")[2]
    shell = f'echo "{sentence}" >&2\n'
    return {
        "": f"{shell}return 1 2>/dev/null || exit 1\n",
        "csh": f"sh -c 'echo \"{sentence.replace(chr(39), '')}\" >&2; exit 1'\n",
        "fish": f"{shell}return 1\n",
        "nu": f'error make {{msg: "{sentence}"}}\n',
        "xsh": f'raise RuntimeError("{sentence}")\n',
        "ps1": f'throw "{sentence}"\n',
    }.get(suffix, f'raise SystemExit("{sentence}")\n' if name.lower().endswith("_this.py") else None)
