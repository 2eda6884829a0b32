"""A real environment to be broken, the machine that it is on, and the shell of its user.

A base is an environment with a real TensorFlow. It is created once with uv, whose hard links make it cheap,
or pip.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import standins
from .environments import find_python
from .situations import can_mount

LOCKS = Path(__file__).resolve().parents[2] / "compat" / "locks"
GPUS = 2
"""Number of GPUs of the stand-in driver."""
_REMOVED_PREFIXES = (
    *(
        "LD_",
        "CUDA",
        "TF_",
        "PYTHON",
        "NVIDIA",
        "STANDIN",
        "VIRTUAL_ENV",
        "CONDA",
        "XLA_",
        "PROTOCOL_BUFFERS",
    ),
    *("TFDOCTOR", "PIP_", "COLUMNS"),
)
"""Prefixes of the variables of this process that the simulated user does not have.

The network settings are kept.
"""


@dataclass(frozen=True, slots=True)
class Base:
    """The environment from which a broken one starts."""

    name: str
    python: str
    requirements: tuple[str, ...]
    """The arguments of `pip install`."""


def _locked(*names: str) -> tuple[str, ...]:
    return ("--no-deps", *(argument for name in names for argument in ("-r", str(LOCKS / name))))


BASES = {
    base.name: base
    for base in (
        Base("2.21", "3.11", ("tensorflow[and-cuda]==2.21.0",)),
        Base("2.20", "3.11", ("tensorflow[and-cuda]==2.20.0",)),
        Base("2.15", "3.11", ("tensorflow[and-cuda]==2.15.1",)),
        Base("2.10", "3.10", _locked("tensorflow-2.10.1-cp310.txt", "cuda/cu11.8-cudnn8.6.txt")),
        Base("2.4", "3.8", _locked("tensorflow-2.4.4-cp38.txt")),
    )
}


class Unavailable(Exception):  # noqa: N818 - it is not an error
    """This machine cannot provide the base; the message says why."""


def make_base(base: Base, root: Path) -> None:
    """Create the environment of a base, including pip. Raise Unavailable or CalledProcessError."""
    python = find_python(base.python)
    if python is None:
        message = f"no Python {base.python} here"
        raise Unavailable(message)
    uv = shutil.which("uv")
    interpreter = str(root / "bin" / "python")
    if uv is not None:
        commands = [
            [uv, "venv", "-q", "--seed", "-p", python, str(root)],
            [uv, "pip", "install", "-q", "--python", interpreter, *base.requirements],
        ]
    else:
        commands = [
            [python, "-m", "venv", str(root)],
            [interpreter, "-m", "pip", "install", "-q", "--no-cache-dir", *base.requirements],
        ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, timeout=900, env=inherit_variables())


def inherit_variables() -> dict[str, str]:
    """Return the variables of this process without those about CUDA, Python or the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_REMOVED_PREFIXES)}


@dataclass(slots=True)
class Env:
    """An environment that is being broken, and the shell of its user."""

    base: Base
    root: Path
    work: Path
    """A folder outside the environment, empty at first."""
    cache: Path
    """The folder for compiled stand-ins."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables of the caller's shell."""
    shell: str = "plain"
    """How the environment is used: "plain" (its python by its path), "activated", or "conda"."""
    driver: bool = True
    interpreter: Path | None = None
    """The interpreter, if it is not the environment's own."""
    user: int | None = None
    """The user id that uses it; None for the user who runs the lab."""
    path: str | None = None
    """PATH of the caller's shell; None to leave it unchanged."""
    protected: tuple[Path, ...] = ()
    """Folders that are mounted read-only."""
    administrator: bool = False
    """Whether commands for the whole machine may be run, because it is in a separate root."""

    @property
    def python(self) -> Path:
        """The interpreter to use."""
        return self.interpreter or self.root / "bin" / "python"

    @property
    def named(self) -> str:
        """The value for `--python`."""
        return str(self.interpreter or self.root)

    @property
    def site(self) -> Path:
        """The site-packages folder."""
        return next(iter(sorted(self.root.glob("lib/python*/site-packages"))))

    # -- Changes

    def install(self, *arguments: str) -> None:
        """Install packages as a careless user does."""
        self._pip("install", *arguments)

    def uninstall(self, *names: str) -> None:
        """Uninstall distributions."""
        self._pip("uninstall", *names)

    def _pip(self, verb: str, *arguments: str) -> None:
        uv = shutil.which("uv")
        if uv is not None:
            command = [uv, "pip", verb, "-q", "--python", str(self.root / "bin/python"), *arguments]
        else:
            yes = ["-y"] if verb == "uninstall" else []
            command = [str(self.root / "bin/python"), "-m", "pip", verb, "-q", *yes, *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=600, env=inherit_variables())

    def cuda_wheels(self) -> list[str]:
        """Return the names of the installed NVIDIA distributions."""
        return sorted(path.name.partition("-")[0] for path in self.site.glob("nvidia_*.dist-info"))

    def library(self, pattern: str) -> Path:
        """Return the one path that matches the pattern below site-packages/nvidia."""
        (path,) = self.site.glob(f"nvidia/{pattern}")
        return path

    def folder(self, name: str) -> Path:
        """Create a folder outside the environment and return it."""
        path = self.work / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def append_to_activate(self, *lines: str) -> None:
        """Append lines to bin/activate; from then on the environment is used through it."""
        self.append(self.root / "bin" / "activate", *lines)
        self.shell = "activated"

    def append(self, path: Path, *lines: str) -> None:
        """Append lines to a text file.

        The file is written anew, because its hard links may be shared.
        """
        text = path.read_text(encoding="utf-8") + "".join(f"{line}\n" for line in lines)
        mode = path.stat().st_mode
        path.unlink()
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def create_stand_ins(self, *sonames: str, folder: str) -> Path:
        """Create stand-ins of libraries in a folder outside the environment, and return the folder."""
        path = self.folder(folder)
        for soname in sonames:
            standins.write_library(path / soname, self.cache)
        return path

    # -- Use

    def environment(self) -> dict[str, str]:
        """Return the caller's variables."""
        env = {
            **inherit_variables(),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "STANDIN_GPUS": str(GPUS),
        }
        if self.driver and not can_mount():
            env["LD_LIBRARY_PATH"] = str(self._make_driver())
        if self.path is not None:
            env["PATH"] = self.path
        variables = dict(self.variables)
        if "LD_LIBRARY_PATH" in variables and "LD_LIBRARY_PATH" in env:
            variables["LD_LIBRARY_PATH"] += f":{env['LD_LIBRARY_PATH']}"
        return {**env, **variables}

    def prefix(self) -> list[str]:
        """Return the command prefix of the caller: the machine's driver, then the shell's activation.

        If private mounts are possible, the driver is in the loader's cache as on a real machine, and the machine has
        no toolkit.
        """
        prefix: list[str] = []
        if self.driver and can_mount():
            prefix += self._make_mount_prefix()
        if self.user is not None:
            prefix += ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        if self.shell == "activated":
            prefix += ["bash", "-c", '. "$0/bin/activate" && exec "$@"', str(self.root)]
        if self.shell == "conda":
            script = (
                'export CONDA_PREFIX="$0" PATH="$0/bin:$PATH"; '
                'for one in "$0"/etc/conda/activate.d/*.sh; do [ -e "$one" ] && . "$one"; done; exec "$@"'
            )
            prefix += ["bash", "-c", script, str(self.root)]
        return prefix

    def _make_driver(self) -> Path:
        folder = self.cache / "driver-of-two"
        if not (folder / standins.NVML).exists():
            standins.write_driver(folder, self.cache, gpus=GPUS)
        return folder

    def _make_mount_prefix(self) -> list[str]:
        conf, cache = self.cache / "ld.so.conf", self.cache / "ld.so.cache"
        if not cache.exists():
            conf.write_text(f"{self._make_driver()}\ninclude /etc/ld.so.conf.d/*.conf\n", encoding="utf-8")
            subprocess.run(
                ["/sbin/ldconfig", "-X", "-f", str(conf), "-C", str(cache)], check=True, timeout=60
            )
        protect_commands = "".join(
            f"mount --bind {path} {path} && mount -o remount,bind,ro {path} && "
            for path in (shlex.quote(str(folder)) for folder in self.protected)
        )
        script = (
            f"{protect_commands}mount --bind {shlex.quote(str(cache))} /etc/ld.so.cache && "
            f"mount --bind {shlex.quote(str(conf))} /etc/ld.so.conf && "
            'for one in /usr/local/cuda*; do if [ -d "$one" ]; then mount -t tmpfs none "$one"; fi; done && exec "$@"'
        )
        return ["unshare", "-m", "sh", "-c", script, "sh"]
