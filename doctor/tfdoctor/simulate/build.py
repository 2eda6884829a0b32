"""The stand-in, built with the compiler that is there and kept in the user's cache folder.

A folder of its own for each content: its name is the hash of the sources, the compiler and its options. It is made
beside its place and moved there whole, so that two of us at once, or one that is killed, leave nothing half.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.errors import Error
from tfdoctor.simulate.sources import LIBRARIES, SOURCES
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stopping
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.system import CommandResult

__all__ = ["CompilerError", "built", "cache_folder"]

OPTIONS = ("-std=c99", "-O1", "-shared", "-fPIC", "-DSIMULATED")
COMPILERS = ("cc", "gcc", "clang")
TARGET = "x86_64-linux-gnu.2.17"
"""As zig names it: glibc 2.17, below that of every image whose TensorFlow has GPU code."""
GLIBC = (2, 17)
_VERSION = re.compile(rb"GLIBC_(\d{1,3})\.(\d{1,3})")
_COMPILING = 120.0
"""Seconds; zig makes its own C library the first time."""
_ASKING = 20.0


class CompilerError(Error):
    """The stand-in cannot be built here."""

    kind = "no-compiler"


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where stand-ins are kept. Raises Error where this user has no home."""
    given = env.get("XDG_CACHE_HOME", "")
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - may not be a path at all
    base = Path(given) if given.startswith("/") else Path(home, ".cache")
    if not base.is_absolute():
        raise Error("--simulate: this user has no home to keep the stand-in in.", hint="Set XDG_CACHE_HOME.")
    return base / "tfdoctor" / "simulate"


def built(env: Mapping[str, str] | None = None) -> Path:
    """The folder with the stand-in's libraries, built where it is not there yet. Raises CompilerError, Error.

    `env`: the variables that a compiler is looked for and started with.
    """
    system = LiveSystem(env=env)
    if system.platform["machine"] not in ("x86_64", "AMD64", "amd64"):
        msg = f"--simulate is for x86-64, and this machine is {clean_line(system.platform['machine'])}."
        raise CompilerError(msg, hint="TensorFlow's wheels have GPU code for x86-64 alone.")
    cache = cache_folder(system.env)
    failed: list[str] = []
    with stopping(system):
        for compiler in _compilers(system):
            version = system.run([*compiler, "--version"], timeout=_ASKING)
            if not version.ok:
                failed.append(_failure(compiler, version))
                continue
            place = cache / _key(compiler, version.stdout)
            if _whole(place):
                return place
            why = _build(system, compiler, place)
            if why is None:
                return place
            failed.append(why)
    raise _none(failed)


def _compilers(system: LiveSystem) -> list[tuple[str, ...]]:
    """The commands that compile C here, the machine's own first; zig where the package `ziglang` is beside tfdoctor."""
    found: list[tuple[str, ...]] = []
    if system.platform["system"] == "Linux":
        named = system.env.get("CC", "")
        names = (named, *COMPILERS) if named and not re.search(r"\s", named) else COMPILERS
        places = (system.which(name) for name in names)
        found += [(place,) for place in dict.fromkeys(places) if place is not None][:2]
    if importlib.util.find_spec("ziglang") is not None and system.own_python:
        found.append((system.own_python, "-m", "ziglang", "cc", "-target", TARGET))
    return found


def _key(compiler: Sequence[str], version: str) -> str:
    """The folder's name."""
    told = hashlib.sha256("\0".join((*compiler, version, *OPTIONS)).encode("utf-8", "replace"))
    for soname, name in LIBRARIES.items():
        told.update(soname.encode() + b"\0" + (SOURCES / name).read_bytes())
    return told.hexdigest()[:24]


def _whole(place: Path) -> bool:
    """Whether a stand-in is there that nobody but this user (or root) could have put there."""
    try:
        for path in (place, *(place / soname for soname in LIBRARIES)):
            seen = path.lstat()
            if stat.S_ISLNK(seen.st_mode) or seen.st_mode & 0o022 or seen.st_uid not in (os.getuid(), 0):
                return False
    except OSError:
        return False
    return True


def _build(system: LiveSystem, compiler: Sequence[str], place: Path) -> str | None:
    """Build the libraries into `place`. The reason where this compiler cannot. Raises Error where nothing is kept."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="building-", dir=place.parent))
    except OSError as error:
        msg = f"--simulate: {clean_line(str(place.parent))} cannot be written to: {error.strerror or error}"
        raise Error(msg, hint="Set XDG_CACHE_HOME to a folder of yours.") from error
    try:
        for soname, name in LIBRARIES.items():
            source, target = str(SOURCES / name), work / soname
            link = f"-Wl,-soname,{soname}"
            done = system.run([*compiler, *OPTIONS, link, "-o", str(target), source], timeout=_COMPILING)
            if not done.ok:
                return _failure(compiler, done)
            why = _too_new(target)
            if why is not None:
                return f"{_shown(compiler)}: {why}"
            target.chmod(0o755)
        work.chmod(0o755)
        _move(work, place)
    except OSError as error:
        msg = (
            f"--simulate: the stand-in cannot be kept in {clean_line(str(place))}: {error.strerror or error}"
        )
        raise Error(msg, hint="Set XDG_CACHE_HOME to a folder of yours.") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return None


def _move(work: Path, place: Path) -> None:
    """Put the folder in its place; where another of us was faster, theirs stays. Raises OSError."""
    try:
        work.rename(place)
    except OSError:
        if _whole(place):
            return
        with contextlib.suppress(OSError):  # cut off, or somebody else's: not to be loaded
            shutil.rmtree(place)
        work.rename(place)


def _too_new(library: Path) -> str | None:
    """Why an old image could not load it."""
    needed = max(
        ((int(major), int(minor)) for major, minor in _VERSION.findall(library.read_bytes())), default=(0, 0)
    )
    if needed <= GLIBC:
        return None
    return f"what it builds needs glibc {needed[0]}.{needed[1]}, which old images do not have"


def _shown(compiler: Sequence[str]) -> str:
    return "ziglang" if "ziglang" in compiler else clean_line(compiler[0])


def _failure(compiler: Sequence[str], done: CommandResult) -> str:
    said = clean_line(done.stderr, limit=300)
    return f"{_shown(compiler)} {done.why()}{f': {said}' if said else ''}"


def _none(failed: Sequence[str]) -> CompilerError:
    if failed:
        msg = f"--simulate: the stand-in driver cannot be built: {'; '.join(failed)}"
    else:
        msg = "--simulate builds a stand-in driver from its C source, and there is no C compiler here."
    hint = "pip install 'tfdoctor[simulate]' brings one (the package ziglang); so does your system's package gcc."
    return CompilerError(msg, hint=hint)
