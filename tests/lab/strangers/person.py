"""Whose environment it is: their shell, their user, their working folder, what their machine lets them do.

Everything that such a person runs sees a machine on which nothing but the folder of the bases can be written to.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lab import standins
from lab.broken import conda_like
from lab.broken_env import Env, inherited
from lab.strangers.grammar import Story  # noqa: TC001 - a field
from lab.strangers.ground import TOOLKITS

NOBODY = 65534
UNREADY = "unready"
"""The kind of a change that leaves a base as pip leaves it."""
_PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(slots=True)
class Person(Env):
    """An environment, and the one who uses it."""

    story: Story = field(kw_only=True)
    bases: Path = field(kw_only=True)
    """The folder that alone may be written into."""
    tool: Path = field(kw_only=True)
    """The interpreter whose tfdoctor is tried."""
    user: int = 0
    noexec: bool = False
    nvml: bool = True
    shown: Path | None = None
    """The folder by which the environment is known to this person, where that is another than `root`."""
    gpus: int = 1
    capability: str = "8.0"
    moves: list[tuple[Path, Path]] = field(default_factory=list)
    """(from, to), as they were renamed."""

    @property
    def here(self) -> Path:
        """The working folder."""
        return self.folder("project")

    @property
    def home(self) -> Path:
        """The home folder."""
        return self.folder("home")

    @property
    def place(self) -> Path:
        """The environment's folder, as this person calls it."""
        return self.shown or self.root

    @property
    def asked(self) -> str:
        """The Python that this person starts."""
        return str(self.place / "bin" / "python") if self.story.way == "path" else "python"

    # -- Doors

    def opens(self, door: str, name: str, value: str, *, front: bool = False) -> None:
        """Set a variable through one of DOORS; `front`: put it before what is there, as paths are."""
        quoted = shlex.quote(value)
        line = f'export {name}={quoted}"${{{name}:+:${name}}}"' if front else f"export {name}={quoted}"
        code = f"import os\nos.environ[{name!r}] = {value!r}\n"
        if door == "shell":
            before = self.variables.get(name)
            self.variables[name] = f"{value}:{before}" if front and before else value
        elif door == "activate":
            self.append(self.root / "bin" / "activate", "", line)
        elif door == "conda":
            folder = self.root / "etc/conda/activate.d"
            folder.mkdir(parents=True, exist_ok=True)
            script = folder / f"{name.lower()}_{len(list(folder.iterdir()))}.sh"  # never over another one
            script.write_text(line + "\n", encoding="utf-8")
        elif door == "pth":
            text = code.replace("\n", "; ").rstrip("; ") + "\n"
            (self.site / f"zz_{name.lower()}.pth").write_text(text, encoding="utf-8")
        else:
            path = self.site / f"{door}.py"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            path.unlink(missing_ok=True)
            path.write_text(text + code, encoding="utf-8")

    def changed(self, relative: str) -> Path:
        """A file of site-packages that may be written into: what it shares with others is copied first."""
        path = self.site / relative
        if path.stat().st_nlink > 1:
            spare = path.with_name(path.name + ".copy")
            shutil.copy2(path, spare)
            spare.replace(path)
        return path

    # -- How the base becomes whole

    def prepare(self) -> None:
        """What the owner did before anything broke: made it conda-like, made CUDA known."""
        story = self.story
        self.gpus, self.capability = story.gpus, story.capability
        self.shell = "plain" if story.way == "path" else story.way
        if self.shell == "conda":
            conda_like(self)
        if story.base in TOOLKITS:
            folder = self.stands_in(*TOOLKITS[story.base], folder="cuda/lib64")
            folders = [folder]
        else:
            folders = sorted(self.site.glob("nvidia/*/lib"))
        if any(one.kind == UNREADY for one in story.changes):
            return
        if story.ready == "link":
            link = self.site / "nvidia/cusparse/lib/libcusolver.so.11"
            link.symlink_to("../../cusolver/lib/libcusolver.so.11")
        elif story.ready in ("shell", "activate"):
            door = "conda" if (story.ready, self.shell) == ("activate", "conda") else story.ready
            self.opens(door, "LD_LIBRARY_PATH", ":".join(map(str, folders)))

    # -- How it is used

    def environment(self) -> dict[str, str]:
        """The variables that the shell starts with."""
        env = {
            **inherited(),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": self._path(),
            "HOME": str(self.home),
            "TMPDIR": str(self.folder("tmp")),
            "UV_CACHE_DIR": str(self.bases / "uv-cache"),
            "PIP_CACHE_DIR": str(self.bases / "pip-cache"),
            "UV_LINK_MODE": "hardlink",
            "STANDIN_GPUS": str(self.gpus),
            "STANDIN_CC": self.capability.replace(".", ""),
            "COLUMNS": "120",
        }
        for name in ("PYENV_ROOT", "PWD", "OLDPWD", "SHLVL", "_"):
            env.pop(name, None)
        return {**env, **self.variables}

    def _path(self) -> str:
        uv = shutil.which("uv")
        if not self.story.uv or uv is None:
            return _PLAIN_PATH
        place = self.folder("tools")
        if not (place / "uv").exists():
            (place / "uv").symlink_to(uv)
        return f"{place}:{_PLAIN_PATH}"

    def prefix(self) -> list[str]:
        """Words that a command of this person is run behind."""
        words = self._mounts() if self.driver else ["unshare", "-m"]
        bases, root = shlex.quote(str(self.bases)), shlex.quote(str(self.place.resolve()))
        script = [f"mount --bind {bases} {bases}"]
        if self.noexec:
            script += [f"mount --bind {root} {root}", f"mount -o remount,bind,noexec {root}"]
        if self.user:
            script += self._opened_home()
        # Only then: a folder that was entered before is still that of the mount below.
        script += ["mount -o remount,bind,ro /", f"cd {shlex.quote(str(self.here))}"]
        words += ["sh", "-c", " && ".join(script) + ' && exec "$@"', "sh"]
        if self.user:
            ids = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            words += ["setpriv", *ids]
        shell = {
            "activated": '. "$0/bin/activate" && exec "$@"',
            "conda": (
                'export CONDA_PREFIX="$0" PATH="$0/bin:$PATH"; '
                'for one in "$0"/etc/conda/activate.d/*.sh; do [ -e "$one" ] && . "$one"; done; exec "$@"'
            ),
        }.get(self.shell)
        return [*words, "bash", "-c", shell, str(self.place)] if shell else words

    def _opened_home(self) -> list[str]:
        """Where the Pythons lie in a home that others may not enter: a window to them, in this namespace alone."""
        home = Path.home()
        needed = {
            Path(one).resolve().parents[1]
            for one in (self.root / "bin" / "python", self.tool, sys.executable)
        }
        inside = sorted(one for one in needed if home in one.parents)
        if not inside or home.stat().st_mode & 0o001:
            return []
        lines, windows = [], []
        for number, one in enumerate(inside):
            window = self.folder(f"windows/{number}")
            lines.append(f"mount --bind {shlex.quote(str(one))} {shlex.quote(str(window))}")
            back = shlex.quote(str(one))
            windows += [f"mkdir -p {back}", f"mount --bind {shlex.quote(str(window))} {back}"]
        return [*lines, f"mount -t tmpfs -o mode=755 none {shlex.quote(str(home))}", *windows]

    def hand_over(self) -> None:
        """What lies outside of the environment is this person's own."""
        if self.user:
            for name in ("project", "home", "tmp", "answers"):
                shutil.chown(self.folder(name), self.user, self.user)
                for path in self.folder(name).rglob("*"):
                    shutil.chown(path, self.user, self.user)
            self.work.chmod(0o755)

    def _driver(self) -> Path:
        if self.nvml:
            return Env._driver(self)
        folder = self.cache / "driver-of-two"
        if not (folder / standins.CUDA).exists():
            standins.driver(folder, self.cache, gpus=2, nvml=False)
        return folder

    def _mounts(self) -> list[str]:
        if self.nvml:
            return Env._mounts(self)
        usual = self.cache
        self.cache = usual / "without-nvml"
        self.cache.mkdir(exist_ok=True)
        try:
            return Env._mounts(self)
        finally:
            self.cache = usual

    def come_back(self) -> None:
        """Undo renames."""
        for before, after in reversed(self.moves):
            after.rename(before)
            self.root = before
        self.moves.clear()
