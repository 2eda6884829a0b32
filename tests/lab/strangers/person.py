"""The user of an environment: shell, user id, working folder, and the restrictions of the machine.

All commands of the user see a machine on which only the folder of the bases is writable.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lab import standins
from lab.broken import make_conda_like
from lab.broken_env import Env, inherit_variables
from lab.strangers.grammar import Story  # noqa: TC001 - a field
from lab.strangers.ground import TOOLKITS

NOBODY = 65534
UNREADY = "unready"
"""The kind of a change that leaves a base as pip installs it."""
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""The memory controller of version 1 of cgroups."""
_PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(slots=True)
class User(Env):
    """An environment and its user."""

    story: Story = field(kw_only=True)
    bases: Path = field(kw_only=True)
    """The only writable folder."""
    tool: Path = field(kw_only=True)
    """The interpreter whose tfdoctor is tried."""
    user: int = 0
    noexec: bool = False
    nvml: bool = True
    address_kib: int | None = None
    """The limit of the address space of all commands (`ulimit -v`); None if there is none."""
    memory_mib: int | None = None
    """The limit of the memory of all commands (a cgroup); None if there is none."""
    alias: Path | None = None
    """The environment's folder as the user knows it, if it is not `root`."""
    gpus: int = 1
    capability: str = "8.0"
    moves: list[tuple[Path, Path]] = field(default_factory=list)
    """(from, to) of each rename, in order."""

    @property
    def here(self) -> Path:
        """The working folder."""
        return self.folder("project")

    @property
    def home(self) -> Path:
        """The home folder."""
        return self.folder("home")

    @property
    def visible_root(self) -> Path:
        """The environment's folder as the user knows it."""
        return self.alias or self.root

    @property
    def python_command(self) -> str:
        """The Python that the user starts."""
        return str(self.visible_root / "bin" / "python") if self.story.way == "path" else "python"

    # -- Variables

    def set_variable(self, door: str, name: str, value: str, *, front: bool = False) -> None:
        """Set a variable through one of DOORS; with `front`, put the value before the present one."""
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
            script = (
                folder / f"{name.lower()}_{len(list(folder.iterdir()))}.sh"
            )  # a new name, so that no script is overwritten
            script.write_text(line + "\n", encoding="utf-8")
        elif door == "pth":
            text = code.replace("\n", "; ").rstrip("; ") + "\n"
            (self.site / f"zz_{name.lower()}.pth").write_text(text, encoding="utf-8")
        else:
            path = self.site / f"{door}.py"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            path.unlink(missing_ok=True)
            path.write_text(text + code, encoding="utf-8")

    def make_writable_copy(self, relative: str) -> Path:
        """Return a file of site-packages that may be written into; copy it first if hard links share it."""
        path = self.site / relative
        if path.stat().st_nlink > 1:
            spare = path.with_name(path.name + ".copy")
            shutil.copy2(path, spare)
            spare.replace(path)
        return path

    # -- Preparation

    def prepare(self) -> None:
        """Set up the environment before it is broken: make it conda-like, make CUDA available."""
        story = self.story
        self.gpus, self.capability = story.gpus, story.capability
        self.shell = "plain" if story.way == "path" else story.way
        if self.shell == "conda":
            make_conda_like(self)
        if story.base in TOOLKITS:
            folder = self.create_stand_ins(*TOOLKITS[story.base], folder="cuda/lib64")
            folders = [folder]
        else:
            folders = sorted(self.site.glob("nvidia/*/lib"))
        if any(change.kind == UNREADY for change in story.changes):
            return
        if story.ready == "link":
            link = self.site / "nvidia/cusparse/lib/libcusolver.so.11"
            link.symlink_to("../../cusolver/lib/libcusolver.so.11")
        elif story.ready in ("shell", "activate"):
            door = "conda" if (story.ready, self.shell) == ("activate", "conda") else story.ready
            self.set_variable(door, "LD_LIBRARY_PATH", ":".join(map(str, folders)))

    # -- Use

    def environment(self) -> dict[str, str]:
        """Return the variables of the shell at its start."""
        env = {
            **inherit_variables(),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": self._make_path(),
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

    def _make_path(self) -> str:
        uv = shutil.which("uv")
        if not self.story.uv or uv is None:
            return _PLAIN_PATH
        tools = self.folder("tools")
        if not (tools / "uv").exists():
            (tools / "uv").symlink_to(uv)
        return f"{tools}:{_PLAIN_PATH}"

    def prefix(self) -> list[str]:
        """Return the prefix of the user's commands."""
        prefix = self._make_mount_prefix() if self.driver else ["unshare", "-m"]
        if self.memory_mib is not None:
            prefix = [*self._make_memory_prefix(self.memory_mib), *prefix]
        bases, root = shlex.quote(str(self.bases)), shlex.quote(str(self.visible_root.resolve()))
        script = [f"mount --bind {bases} {bases}"]
        if self.noexec:
            script += [f"mount --bind {root} {root}", f"mount -o remount,bind,noexec {root}"]
        if self.user:
            script += self._expose_pythons()
        # Enter the folder last; otherwise it would be the one below the mount.
        script += ["mount -o remount,bind,ro /", f"cd {shlex.quote(str(self.here))}"]
        script += [f"ulimit -v {self.address_kib}"] if self.address_kib is not None else []
        prefix += ["sh", "-c", " && ".join(script) + ' && exec "$@"', "sh"]
        if self.user:
            ids = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            prefix += ["setpriv", *ids]
        shell = {
            "activated": '. "$0/bin/activate" && exec "$@"',
            "conda": (
                'export CONDA_PREFIX="$0" PATH="$0/bin:$PATH"; '
                'for one in "$0"/etc/conda/activate.d/*.sh; do [ -e "$one" ] && . "$one"; done; exec "$@"'
            ),
        }.get(self.shell)
        return [*prefix, "bash", "-c", shell, str(self.visible_root)] if shell else prefix

    @staticmethod
    def _make_memory_prefix(mebibytes: int) -> list[str]:
        """Return the prefix that puts a command into a cgroup with this limit."""
        own = next(
            line.partition(":memory:")[2]
            for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
            if ":memory:" in line
        )
        group = MEMORY_GROUPS / own.lstrip("/") / f"strangers-{mebibytes}"
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(mebibytes << 20), encoding="utf-8")
        return ["sh", "-c", f'echo $$ > {shlex.quote(str(group / "cgroup.procs"))} && exec "$@"', "sh"]

    def _expose_pythons(self) -> list[str]:
        """Return shell lines that make the Pythons accessible if they are in a private home folder.

        They are mounted in this namespace only.
        """
        home = Path.home()
        needed = {
            Path(folder).resolve().parents[1]
            for folder in (self.root / "bin" / "python", self.tool, sys.executable)
        }
        inside = sorted(folder for folder in needed if home in folder.parents)
        if not inside or home.stat().st_mode & 0o001:
            return []
        lines, restore_lines = [], []
        for number, folder in enumerate(inside):
            mount_point = self.folder(f"windows/{number}")
            lines.append(f"mount --bind {shlex.quote(str(folder))} {shlex.quote(str(mount_point))}")
            original = shlex.quote(str(folder))
            restore_lines += [
                f"mkdir -p {original}",
                f"mount --bind {shlex.quote(str(mount_point))} {original}",
            ]
        return [*lines, f"mount -t tmpfs -o mode=755 none {shlex.quote(str(home))}", *restore_lines]

    def change_owner(self) -> None:
        """Make the user the owner of the folders outside the environment."""
        if self.user:
            for name in ("project", "home", "tmp", "answers"):
                shutil.chown(self.folder(name), self.user, self.user)
                for path in self.folder(name).rglob("*"):
                    shutil.chown(path, self.user, self.user)
            self.work.chmod(0o755)

    def _make_driver(self) -> Path:
        if self.nvml:
            return Env._make_driver(self)
        folder = self.cache / "driver-of-two"
        if not (folder / standins.CUDA).exists():
            standins.write_driver(folder, self.cache, gpus=2, nvml=False)
        return folder

    def _make_mount_prefix(self) -> list[str]:
        if self.nvml:
            return Env._make_mount_prefix(self)
        original_cache = self.cache
        self.cache = original_cache / "without-nvml"
        self.cache.mkdir(exist_ok=True)
        try:
            return Env._make_mount_prefix(self)
        finally:
            self.cache = original_cache

    def revert_moves(self) -> None:
        """Revert renames."""
        for before, after in reversed(self.moves):
            after.rename(before)
            self.root = before
        self.moves.clear()
