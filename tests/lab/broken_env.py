"""A real environment that is to be broken, the machine it stands on, and the shell of whoever owns it.

A base is an environment with a real TensorFlow, made once with uv (whose hard links make it cheap) or pip.
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
"""How many the stand-in driver has."""
_FORGOTTEN = (
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
"""What of the tests' own variables the machine of the user does not have; the network's it has."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a broken environment starts from."""

    name: str
    python: str
    requirements: tuple[str, ...]
    """pip's words."""


def _locked(*names: str) -> tuple[str, ...]:
    return ("--no-deps", *(word for name in names for word in ("-r", str(LOCKS / name))))


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
    """This machine cannot have that base; why."""


def make_base(base: Base, root: Path) -> None:
    """Make the environment of a base, with a pip in it. Raises Unavailable, or CalledProcessError."""
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
        subprocess.run(command, check=True, capture_output=True, timeout=900, env=inherited())


def inherited() -> dict[str, str]:
    """This process's variables without what has to do with CUDA, Python or the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FORGOTTEN)}


@dataclass(slots=True)
class Env:
    """An environment that is being broken, and the shell of whoever owns it."""

    base: Base
    root: Path
    work: Path
    """A folder outside of it, empty at first."""
    cache: Path
    """For compiled stand-ins."""
    variables: dict[str, str] = field(default_factory=dict)
    """Of the caller's shell."""
    shell: str = "plain"
    """How the environment is used: "plain" (its python by its path), "activated", or "conda"."""
    driver: bool = True
    interpreter: Path | None = None
    """Where another one than the environment's own is used."""
    user: int | None = None
    """Who uses it, by number; None: who runs the lab."""
    path: str | None = None
    """PATH of the caller's shell; None: as it is."""
    protected: tuple[Path, ...] = ()
    """Folders that nobody may write into."""
    administrator: bool = False
    """Whether commands for the whole machine may be typed: in a root of its own."""

    @property
    def python(self) -> Path:
        """The interpreter that is used."""
        return self.interpreter or self.root / "bin" / "python"

    @property
    def named(self) -> str:
        """What `--python` is given."""
        return str(self.interpreter or self.root)

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return next(iter(sorted(self.root.glob("lib/python*/site-packages"))))

    # -- What breaks

    def install(self, *words: str) -> None:
        """Install as a user does who looks at nothing."""
        self._pip("install", *words)

    def uninstall(self, *names: str) -> None:
        """Remove distributions."""
        self._pip("uninstall", *names)

    def _pip(self, verb: str, *words: str) -> None:
        uv = shutil.which("uv")
        if uv is not None:
            command = [uv, "pip", verb, "-q", "--python", str(self.root / "bin/python"), *words]
        else:
            yes = ["-y"] if verb == "uninstall" else []
            command = [str(self.root / "bin/python"), "-m", "pip", verb, "-q", *yes, *words]
        subprocess.run(command, check=True, capture_output=True, timeout=600, env=inherited())

    def cuda_wheels(self) -> list[str]:
        """The names of the NVIDIA distributions that are installed."""
        return sorted(path.name.partition("-")[0] for path in self.site.glob("nvidia_*.dist-info"))

    def library(self, pattern: str) -> Path:
        """The one library of NVIDIA's wheels whose path below site-packages/nvidia matches."""
        (found,) = self.site.glob(f"nvidia/{pattern}")
        return found

    def folder(self, name: str) -> Path:
        """A folder outside of the environment."""
        made = self.work / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def activates(self, *lines: str) -> None:
        """Lines at the end of bin/activate; from then on the environment is used through it."""
        self.append(self.root / "bin" / "activate", *lines)
        self.shell = "activated"

    def append(self, path: Path, *lines: str) -> None:
        """Lines at the end of a text file, in a new file: the old one is what it was made from, too."""
        text = path.read_text(encoding="utf-8") + "".join(f"{line}\n" for line in lines)
        mode = path.stat().st_mode
        path.unlink()
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def stands_in(self, *sonames: str, folder: str) -> Path:
        """Stand-ins of libraries in a folder outside of the environment."""
        place = self.folder(folder)
        for soname in sonames:
            standins.library(place / soname, self.cache)
        return place

    # -- How it is used

    def environment(self) -> dict[str, str]:
        """The caller's variables."""
        env = {**inherited(), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "STANDIN_GPUS": str(GPUS)}
        if self.driver and not can_mount():
            env["LD_LIBRARY_PATH"] = str(self._driver())
        if self.path is not None:
            env["PATH"] = self.path
        own = dict(self.variables)
        if "LD_LIBRARY_PATH" in own and "LD_LIBRARY_PATH" in env:
            own["LD_LIBRARY_PATH"] += f":{env['LD_LIBRARY_PATH']}"
        return {**env, **own}

    def prefix(self) -> list[str]:
        """Words that a command of the caller is run behind: the machine's driver, then the shell's activation.

        Wherever private mounts are to be had, the driver is where a driver is, in the loader's cache, and the machine
        has no toolkit.
        """
        words: list[str] = []
        if self.driver and can_mount():
            words += self._mounts()
        if self.user is not None:
            words += ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        if self.shell == "activated":
            words += ["bash", "-c", '. "$0/bin/activate" && exec "$@"', str(self.root)]
        if self.shell == "conda":
            script = (
                'export CONDA_PREFIX="$0" PATH="$0/bin:$PATH"; '
                'for one in "$0"/etc/conda/activate.d/*.sh; do [ -e "$one" ] && . "$one"; done; exec "$@"'
            )
            words += ["bash", "-c", script, str(self.root)]
        return words

    def _driver(self) -> Path:
        folder = self.cache / "driver-of-two"
        if not (folder / standins.NVML).exists():
            standins.driver(folder, self.cache, gpus=GPUS)
        return folder

    def _mounts(self) -> list[str]:
        conf, cache = self.cache / "ld.so.conf", self.cache / "ld.so.cache"
        if not cache.exists():
            conf.write_text(f"{self._driver()}\ninclude /etc/ld.so.conf.d/*.conf\n", encoding="utf-8")
            subprocess.run(
                ["/sbin/ldconfig", "-X", "-f", str(conf), "-C", str(cache)], check=True, timeout=60
            )
        closed = "".join(
            f"mount --bind {one} {one} && mount -o remount,bind,ro {one} && "
            for one in (shlex.quote(str(folder)) for folder in self.protected)
        )
        script = (
            f"{closed}mount --bind {shlex.quote(str(cache))} /etc/ld.so.cache && "
            f"mount --bind {shlex.quote(str(conf))} /etc/ld.so.conf && "
            'for one in /usr/local/cuda*; do if [ -d "$one" ]; then mount -t tmpfs none "$one"; fi; done && exec "$@"'
        )
        return ["unshare", "-m", "sh", "-c", script, "sh"]
