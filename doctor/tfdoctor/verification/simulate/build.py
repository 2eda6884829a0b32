"""Build the stand-in with an available compiler, and cache it in the user's cache folder.

Each build has a separate folder, whose name is a hash of the sources, the compiler and its options. It is built in a
temporary folder and then renamed, so that concurrent or killed processes leave no incomplete build.
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

from tfdoctor.core.errors import Error, make_install_command
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import clean_line
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.verification.simulate.compute_libraries import (
    COMMON_LIBRARIES,
    Compilers,
    build_compute_libraries,
)
from tfdoctor.verification.simulate.sources import COMPUTE_SOURCES, PTX_SOURCES, SOURCE_BY_SONAME, SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.system import CommandResult
    from tfdoctor.verification.simulate.compute_libraries import LibrarySet

__all__ = ["CompilerError", "build_software_gpu", "build_stand_in", "find_cache_folder"]

C_OPTIONS = ("-std=c99", "-O1", "-shared", "-fPIC", "-DSIMULATED")
COMPUTING_OPTIONS = ("-O2", "-DSIMULATED", "-s")
COMPILERS = (("cc", "c++"), ("gcc", "g++"), ("clang", "clang++"))
"""The C and C++ compilers that are tried after those in the variables CC and CXX."""
ZIG_TARGET = "x86_64-linux-gnu.2.17"
"""The target for zig. Its glibc 2.17 is older than that of every image whose TensorFlow has GPU code."""
DEFAULT_MAX_GLIBC = (2, 17)
"""The newest glibc that the libraries may require if the target machine's glibc is unknown."""
_GLIBC_SYMBOL = re.compile(rb"GLIBC_(\d{1,3})\.(\d{1,3})")
"""A symbol version in a library, which names the glibc that defines it."""
_C_TIMEOUT_S = 120.0
"""Time limit in seconds for a C file. At the first use, zig builds its C library."""
_CXX_TIMEOUT_S = 600.0
"""Time limit in seconds for a C++ file on a busy machine."""
_VERSION_TIMEOUT_S = 20.0
"""Time limit in seconds for a compiler to print its version."""


class CompilerError(Error):
    """The stand-in cannot be built on this machine."""

    kind = "no-compiler"


@dataclass(frozen=True, slots=True)
class _Product:
    """Libraries that are built together into one cache folder."""

    names: tuple[str, ...]
    """The file names of the libraries."""
    sources: tuple[Path, ...]
    """The sources, whose content determines the name of the cache folder."""
    key_parts: str
    """Everything else that determines the name of the cache folder, such as compiler options."""
    make: Callable[[LiveSystem, Compilers, Path], str | None]
    """A function that builds the libraries in a folder. It returns the reason why it failed, or None."""
    glibc: tuple[int, ...]
    """The newest glibc version that the libraries may require."""


def find_cache_folder(env: Mapping[str, str]) -> Path:
    """Return the folder in which stand-ins are cached. Raise Error if the user has no home folder."""
    cache_home = env.get("XDG_CACHE_HOME", "")
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - may not be a path at all
    cache_folder = Path(cache_home) if cache_home.startswith("/") else Path(home, ".cache")
    if not cache_folder.is_absolute():
        raise Error("--simulate: this user has no home to keep the stand-in in.", hint="Set XDG_CACHE_HOME.")
    return cache_folder / "tfdoctor" / "simulate"


def build_stand_in(env: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the stand-in. Build the stand-in if it is not cached.

    `env` contains the environment variables for finding and running a compiler; None means those of this process. Raise
    CompilerError if no compiler can build it, and Error if the cache folder cannot be written.
    """
    sources = tuple(SOURCES / name for name in SOURCE_BY_SONAME.values())
    return _build_cached(
        env,
        _Product(
            names=tuple(SOURCE_BY_SONAME),
            sources=sources,
            key_parts=" ".join(C_OPTIONS),
            make=_build_driver,
            glibc=DEFAULT_MAX_GLIBC,
        ),
    )


def build_software_gpu(
    libraries: LibrarySet,
    env: Mapping[str, str] | None = None,
    *,
    glibc: tuple[int, ...] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the folder of the software GPU. Build it in half a minute if it is not cached.

    `glibc` is the version on the target machine; None means the oldest supported one. `progress` shows a stage during
    the build. Raise CompilerError if no compiler can build it, and Error if the cache folder cannot be written.
    """

    def make(system: LiveSystem, compilers: Compilers, folder: Path) -> str | None:
        def run(command: Sequence[str]) -> str | None:
            result = system.run(command, timeout=_CXX_TIMEOUT_S)
            is_cxx = tuple(command[: len(compilers.cxx)]) == compilers.cxx
            return None if result.ok else _format_failure(compilers.cxx if is_cxx else compilers.c, result)

        if progress is not None:
            progress.begin_stage("building the software GPU, once: half a minute")
        return build_compute_libraries(run, compilers, folder, libraries, options=COMPUTING_OPTIONS)

    names = tuple(dict.fromkeys(("libcuda.so.1", *libraries.sonames, *COMMON_LIBRARIES)))
    sources = tuple(
        path
        for folder in (SOURCES, COMPUTE_SOURCES, PTX_SOURCES)
        for path in sorted(folder.iterdir())
        if path.is_file()
    )
    key_parts = f"{libraries.cuda} {libraries.cudnn} {' '.join((*names, *COMPUTING_OPTIONS))}"
    return _build_cached(
        env,
        _Product(
            names=names, sources=sources, key_parts=key_parts, make=make, glibc=glibc or DEFAULT_MAX_GLIBC
        ),
    )


def _build_cached(env: Mapping[str, str] | None, product: _Product) -> Path:
    """Return the folder of a product in the user's cache. Build the product if it is not there.

    Raise CompilerError if the machine is not x86-64 or no compiler can build the product. Raise Error if the cache
    folder cannot be written.
    """
    system = LiveSystem(env=env)
    if system.platform["machine"] not in ("x86_64", "AMD64", "amd64"):
        msg = f"--simulate is for x86-64, and this machine is {clean_line(system.platform['machine'])}."
        raise CompilerError(msg, hint="TensorFlow's wheels have GPU code for x86-64 alone.")
    cache = find_cache_folder(system.env)
    failures: list[str] = []
    with stop_on_signal(system):
        for compilers in _find_compilers(system):
            version_result = system.run([*compilers.c, "--version"], timeout=_VERSION_TIMEOUT_S)
            if not version_result.ok:
                failures.append(_format_failure(compilers.c, version_result))
                continue
            target = cache / _make_key(compilers, version_result.stdout, product)
            if _is_trusted(target, product.names):
                reason = _find_incompatibility(target, product)
                if reason is None:
                    return target
                failures.append(f"{_format_compiler(compilers.c)}: {reason}")
                continue
            reason = _build(system, compilers, target, product)
            if reason is None:
                return target
            failures.append(reason)
    raise _make_no_compiler_error(failures)


def _build_driver(system: LiveSystem, compilers: Compilers, folder: Path) -> str | None:
    """Build the stand-in driver and NVML, which compute nothing. Return why that failed, or None."""
    for soname, name in SOURCE_BY_SONAME.items():
        link = ["-Wl,-soname," + soname, "-o", str(folder / soname)]
        result = system.run([*compilers.c, *C_OPTIONS, *link, str(SOURCES / name)], timeout=_C_TIMEOUT_S)
        if not result.ok:
            return _format_failure(compilers.c, result)
    return None


def _find_compilers(system: LiveSystem) -> list[Compilers]:
    """Return the compilers to try: at most two of the system's, and zig if `ziglang` is installed."""
    compilers_by_path: dict[str, Compilers] = {}
    if system.platform["system"] == "Linux":
        cc, cxx = (system.env.get(name, "") for name in ("CC", "CXX"))
        # A name with spaces is a command with options, which is not supported.
        for c_name, cxx_name in ((cc, cxx or "c++"), *COMPILERS):
            path = system.which(c_name) if c_name and not re.search(r"\s", c_name) else None
            if path is not None:
                cxx_path = system.which(cxx_name) if not re.search(r"\s", cxx_name) else None
                compilers_by_path.setdefault(path, Compilers(c=(path,), cxx=(cxx_path or cxx_name,)))
    compilers = list(compilers_by_path.values())[:2]
    if importlib.util.find_spec("ziglang") is not None and system.own_python:
        zig = (system.own_python, "-m", "ziglang")
        target_options = ("-target", ZIG_TARGET)
        compilers.append(Compilers(c=(*zig, "cc", *target_options), cxx=(*zig, "c++", *target_options)))
    return compilers


def _make_key(compilers: Compilers, version: str, product: _Product) -> str:
    """Return the name of the cache folder. `version` is the text that the C compiler prints for --version."""
    digest = hashlib.sha256(
        "\0".join((*compilers.c, *compilers.cxx, version, product.key_parts)).encode("utf-8", "replace")
    )
    for path in product.sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def _is_trusted(folder: Path, names: Sequence[str]) -> bool:
    """Return whether a folder contains all libraries, and only this user or root could have written them."""
    try:
        for path in (folder, *(folder / name for name in names)):
            status = path.lstat()
            if (
                stat.S_ISLNK(status.st_mode)
                or status.st_mode & 0o022
                or status.st_uid not in (os.getuid(), 0)
            ):
                return False
    except OSError:
        return False
    return True


def _build(system: LiveSystem, compilers: Compilers, target: Path, product: _Product) -> str | None:
    """Build a product into the folder `target`. Return why these compilers cannot build it, or None.

    Raise Error if the cache folder cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary_folder = Path(tempfile.mkdtemp(prefix="building-", dir=target.parent))
    except OSError as error:
        msg = f"--simulate: {clean_line(str(target.parent))} cannot be written to: {error.strerror or error}"
        raise Error(msg, hint="Set XDG_CACHE_HOME to a folder of yours.") from error
    try:
        reason = product.make(system, compilers, temporary_folder)
        if reason is not None:
            return reason
        reason = _find_incompatibility(temporary_folder, product)
        if reason is not None:
            return f"{_format_compiler(compilers.c)}: {reason}"
        for path in temporary_folder.iterdir():
            if path.name in product.names:
                path.chmod(0o755)
            else:
                path.unlink()
        temporary_folder.chmod(0o755)
        _move(temporary_folder, target, product.names)
    except OSError as error:
        msg = (
            f"--simulate: the stand-in cannot be kept in {clean_line(str(target))}: {error.strerror or error}"
        )
        raise Error(msg, hint="Set XDG_CACHE_HOME to a folder of yours.") from error
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)
    return None


def _move(temporary_folder: Path, target: Path, names: Sequence[str]) -> None:
    """Rename a finished build to `target`, unless another process was faster. Raise OSError if that fails."""
    try:
        temporary_folder.rename(target)
    except OSError:
        if _is_trusted(target, names):
            return
        with contextlib.suppress(OSError):  # an incomplete or untrusted folder must not be loaded
            shutil.rmtree(target)
        temporary_folder.rename(target)


def _find_incompatibility(folder: Path, product: _Product) -> str | None:
    """Return why the target machine cannot load the libraries, or None.

    Raise OSError if a library cannot be read.
    """
    required_glibc = max(
        (
            (int(major), int(minor))
            for name in product.names
            for major, minor in _GLIBC_SYMBOL.findall((folder / name).read_bytes())
        ),
        default=(0, 0),
    )
    if required_glibc <= product.glibc:
        return None
    return f"what it builds needs glibc {required_glibc[0]}.{required_glibc[1]}, which old images do not have"


def _format_compiler(compiler: Sequence[str]) -> str:
    return "ziglang" if "ziglang" in compiler else clean_line(compiler[0])


def _format_failure(compiler: Sequence[str], result: CommandResult) -> str:
    message = clean_line(result.stderr, limit=300)
    return f"{_format_compiler(compiler)} {result.describe_outcome()}{f': {message}' if message else ''}"


def _make_no_compiler_error(failures: Sequence[str]) -> CompilerError:
    """Return the error for these failures of compilers. If there are none, there is no compiler."""
    if failures:
        msg = f"--simulate: the stand-in driver cannot be built: {'; '.join(failures)}"
    else:
        msg = "--simulate builds a stand-in driver from its C source, and there is no C compiler here."
    hint = f"{make_install_command('ziglang')} brings one; so does your system's package gcc."
    return CompilerError(msg, hint=hint)
