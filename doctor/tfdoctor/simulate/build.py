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

from tfdoctor.errors import Error, install_hint
from tfdoctor.records import dataclass
from tfdoctor.simulate.compute_libraries import ALWAYS, Compilers, build_computing
from tfdoctor.simulate.sources import COMPUTE, LIBRARIES, PTX, SOURCES
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdoctor.report.progress import Progress
    from tfdoctor.simulate.compute_libraries import LibrarySet
    from tfdoctor.system import CommandResult

__all__ = ["CompilerError", "build_software_gpu", "build_stand_in", "find_cache_folder"]

OPTIONS = ("-std=c99", "-O1", "-shared", "-fPIC", "-DSIMULATED")
COMPUTING_OPTIONS = ("-O2", "-DSIMULATED", "-s")
COMPILERS = (("cc", "c++"), ("gcc", "g++"), ("clang", "clang++"))
TARGET = "x86_64-linux-gnu.2.17"
"""As zig names it: glibc 2.17, below that of every image whose TensorFlow has GPU code."""
GLIBC = (2, 17)
_VERSION = re.compile(rb"GLIBC_(\d{1,3})\.(\d{1,3})")
_C_TIMEOUT_S = 120.0
"""Seconds; zig makes its own C library the first time."""
_CXX_TIMEOUT_S = 600.0
"""Seconds a file, on a machine that is busy."""
_VERSION_TIMEOUT_S = 20.0


class CompilerError(Error):
    """The stand-in cannot be built here."""

    kind = "no-compiler"


@dataclass(frozen=True, slots=True)
class _Product:
    """What is built, and kept under its key."""

    names: tuple[str, ...]
    """The files that it is."""
    sources: tuple[Path, ...]
    told: str
    """What else it depends on."""
    make: Callable[[LiveSystem, Compilers, Path], str | None]
    """Makes them in a folder with these compilers; the reason why they cannot."""
    glibc: tuple[int, ...]
    """The newest that its libraries may ask for."""


def find_cache_folder(env: Mapping[str, str]) -> Path:
    """Return the folder in which stand-ins are kept. Raises Error if this user has no home."""
    given = env.get("XDG_CACHE_HOME", "")
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - may not be a path at all
    base = Path(given) if given.startswith("/") else Path(home, ".cache")
    if not base.is_absolute():
        raise Error("--simulate: this user has no home to keep the stand-in in.", hint="Set XDG_CACHE_HOME.")
    return base / "tfdoctor" / "simulate"


def build_stand_in(env: Mapping[str, str] | None = None) -> Path:
    """Return the folder with the stand-in's libraries, built if it does not exist. Raises CompilerError, Error.

    `env`: the variables that a compiler is looked for and started with.
    """
    sources = tuple(SOURCES / name for name in LIBRARIES.values())
    return _build_cached(env, _Product(tuple(LIBRARIES), sources, " ".join(OPTIONS), _build_driver, GLIBC))


def build_software_gpu(
    wanted: LibrarySet,
    env: Mapping[str, str] | None = None,
    *,
    glibc: tuple[int, ...] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the folder with the libraries of the software GPU, built if it does not exist: half a minute.

    `glibc`: that of where they are loaded; None: as old as any. `progress` is told where they have to be built.
    Raises
    CompilerError, Error.
    """

    def make(system: LiveSystem, compilers: Compilers, folder: Path) -> str | None:
        def run(command: Sequence[str]) -> str | None:
            done = system.run(command, timeout=_CXX_TIMEOUT_S)
            cxx = tuple(command[: len(compilers.cxx)]) == compilers.cxx
            return None if done.ok else _failure(compilers.cxx if cxx else compilers.c, done)

        if progress is not None:
            progress.stage("building the software GPU, once: half a minute")
        return build_computing(run, compilers, folder, wanted, options=COMPUTING_OPTIONS)

    names = tuple(dict.fromkeys(("libcuda.so.1", *wanted.sonames, *ALWAYS)))
    sources = tuple(
        path for folder in (SOURCES, COMPUTE, PTX) for path in sorted(folder.iterdir()) if path.is_file()
    )
    told = f"{wanted.cuda} {wanted.cudnn} {' '.join((*names, *COMPUTING_OPTIONS))}"
    return _build_cached(env, _Product(names, sources, told, make, glibc or GLIBC))


def _build_cached(env: Mapping[str, str] | None, product: _Product) -> Path:
    """Return the folder of this product in the user's cache. Raises CompilerError, Error."""
    system = LiveSystem(env=env)
    if system.platform["machine"] not in ("x86_64", "AMD64", "amd64"):
        msg = f"--simulate is for x86-64, and this machine is {clean_line(system.platform['machine'])}."
        raise CompilerError(msg, hint="TensorFlow's wheels have GPU code for x86-64 alone.")
    cache = find_cache_folder(system.env)
    failed: list[str] = []
    with stop_on_signal(system):
        for compilers in _find_compilers(system):
            version = system.run([*compilers.c, "--version"], timeout=_VERSION_TIMEOUT_S)
            if not version.ok:
                failed.append(_failure(compilers.c, version))
                continue
            place = cache / _make_key(compilers, version.stdout, product)
            if _is_trusted(place, product.names):
                why = _find_incompatibility(place, product)
                if why is None:
                    return place
                failed.append(f"{_format_compiler(compilers.c)}: {why}")
                continue
            why = _build(system, compilers, place, product)
            if why is None:
                return place
            failed.append(why)
    raise _make_no_compiler_error(failed)


def _build_driver(system: LiveSystem, compilers: Compilers, folder: Path) -> str | None:
    """Build the driver and NVML, which compute nothing."""
    for soname, name in LIBRARIES.items():
        link = ["-Wl,-soname," + soname, "-o", str(folder / soname)]
        done = system.run([*compilers.c, *OPTIONS, *link, str(SOURCES / name)], timeout=_C_TIMEOUT_S)
        if not done.ok:
            return _failure(compilers.c, done)
    return None


def _find_compilers(system: LiveSystem) -> list[Compilers]:
    """Return the commands that compile here, the machine's own first; zig if `ziglang` is installed."""
    found: dict[str, Compilers] = {}
    if system.platform["system"] == "Linux":
        named = tuple(system.env.get(name, "") for name in ("CC", "CXX"))
        for c, cxx in ((named[0], named[1] or "c++"), *COMPILERS):
            place = system.which(c) if c and not re.search(r"\s", c) else None
            if place is not None:
                beside = system.which(cxx) if not re.search(r"\s", cxx) else None
                found.setdefault(place, Compilers((place,), (beside or cxx,)))
    all_found = list(found.values())[:2]
    if importlib.util.find_spec("ziglang") is not None and system.own_python:
        zig = (system.own_python, "-m", "ziglang")
        all_found.append(Compilers((*zig, "cc", "-target", TARGET), (*zig, "c++", "-target", TARGET)))
    return all_found


def _make_key(compilers: Compilers, version: str, product: _Product) -> str:
    """Return the folder's name."""
    told = hashlib.sha256(
        "\0".join((*compilers.c, *compilers.cxx, version, product.told)).encode("utf-8", "replace")
    )
    for path in product.sources:
        told.update(path.name.encode() + b"\0" + path.read_bytes())
    return told.hexdigest()[:24]


def _is_trusted(place: Path, names: Sequence[str]) -> bool:
    """Return whether a stand-in exists that nobody but this user (or root) could have put there."""
    try:
        for path in (place, *(place / name for name in names)):
            seen = path.lstat()
            if stat.S_ISLNK(seen.st_mode) or seen.st_mode & 0o022 or seen.st_uid not in (os.getuid(), 0):
                return False
    except OSError:
        return False
    return True


def _build(system: LiveSystem, compilers: Compilers, place: Path, product: _Product) -> str | None:
    """Build it into `place`. The reason where these compilers cannot. Raises Error where nothing can be kept."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="building-", dir=place.parent))
    except OSError as error:
        msg = f"--simulate: {clean_line(str(place.parent))} cannot be written to: {error.strerror or error}"
        raise Error(msg, hint="Set XDG_CACHE_HOME to a folder of yours.") from error
    try:
        why = product.make(system, compilers, work)
        if why is not None:
            return why
        why = _find_incompatibility(work, product)
        if why is not None:
            return f"{_format_compiler(compilers.c)}: {why}"
        for path in work.iterdir():
            if path.name in product.names:
                path.chmod(0o755)
            else:
                path.unlink()
        work.chmod(0o755)
        _move(work, place, product.names)
    except OSError as error:
        msg = (
            f"--simulate: the stand-in cannot be kept in {clean_line(str(place))}: {error.strerror or error}"
        )
        raise Error(msg, hint="Set XDG_CACHE_HOME to a folder of yours.") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return None


def _move(work: Path, place: Path, names: Sequence[str]) -> None:
    """Put the folder in its place; where another of us was faster, theirs stays. Raises OSError."""
    try:
        work.rename(place)
    except OSError:
        if _is_trusted(place, names):
            return
        with contextlib.suppress(OSError):  # cut off, or somebody else's: not to be loaded
            shutil.rmtree(place)
        work.rename(place)


def _find_incompatibility(folder: Path, product: _Product) -> str | None:
    """Return why it could not be loaded where it is needed. Raises OSError."""
    needed = max(
        (
            (int(major), int(minor))
            for name in product.names
            for major, minor in _VERSION.findall((folder / name).read_bytes())
        ),
        default=(0, 0),
    )
    if needed <= product.glibc:
        return None
    return f"what it builds needs glibc {needed[0]}.{needed[1]}, which old images do not have"


def _format_compiler(compiler: Sequence[str]) -> str:
    return "ziglang" if "ziglang" in compiler else clean_line(compiler[0])


def _failure(compiler: Sequence[str], done: CommandResult) -> str:
    said = clean_line(done.stderr, limit=300)
    return f"{_format_compiler(compiler)} {done.describe_end()}{f': {said}' if said else ''}"


def _make_no_compiler_error(failed: Sequence[str]) -> CompilerError:
    if failed:
        msg = f"--simulate: the stand-in driver cannot be built: {'; '.join(failed)}"
    else:
        msg = "--simulate builds a stand-in driver from its C source, and there is no C compiler here."
    hint = f"{install_hint('ziglang')} brings one; so does your system's package gcc."
    return CompilerError(msg, hint=hint)
