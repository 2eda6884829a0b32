"""Stand-ins for the NVIDIA driver and for CUDA libraries, compiled with the C compiler.

Everything compiled is kept in a cache folder under the hash of its source, so that a library is compiled only once
(50 ms) and later copied. Nothing here is NVIDIA's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.verification.simulate.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CUDA = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
_EMPTY_SOURCE = "static int nothing __attribute__((unused));\n"

# The library of an undefined symbol without a version. The order matters, because cu[A-Z] matches more names.
_OWNERS = (
    ("libcudnn", re.compile(r"cudnn")),
    ("libcublas", re.compile(r"cublas")),
    ("libcufft", re.compile(r"cufft")),
    ("libcurand", re.compile(r"curand")),
    ("libcusolver", re.compile(r"cusolver")),
    ("libcusparse", re.compile(r"cusparse")),
    ("libcupti", re.compile(r"cupti")),
    ("libcudart", re.compile(r"(__)?cuda[A-Z]")),
    ("libcuda", re.compile(r"cu[A-Z]")),
)

# Functions that must return valid data: Eigen in TensorFlow up to 1.13 allocates for the returned device count.
# STANDIN_RUNTIME is what the first call of a program that needs a device returns (35: the driver is too old).
_BODIES = {
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *count) { *count = 32; return 0; }",
    "cudaGetDevice": """
extern char *getenv(const char *);
extern int atoi(const char *);
int cudaGetDevice(int *device) {
    const char *result = getenv("STANDIN_RUNTIME");
    *device = 0;
    return result ? atoi(result) : 0;
}""",
    "cudaRuntimeGetVersion": "int cudaRuntimeGetVersion(int *version) { *version = 12050; return 0; }",
    "cudaDriverGetVersion": "int cudaDriverGetVersion(int *version) { *version = 12080; return 0; }",
    "cudaGetErrorString": """
const char *cudaGetErrorString(int error) {
    switch (error) {
    case 0: return "no error";
    case 35: return "CUDA driver version is insufficient for CUDA runtime version";
    case 46: return "all CUDA-capable devices are busy or unavailable";
    case 100: return "no CUDA-capable device is detected";
    default: return "unknown error";
    }
}""",
    "cudaGetErrorName": """
const char *cudaGetErrorName(int error) { return error ? "cudaErrorUnknown" : "cudaSuccess"; }""",
    # Always cuDNN 9.3.0, whatever the soname.
    "cudnnGetProperty": """
int cudnnGetProperty(int which, int *value) { *value = which == 0 ? 9 : which == 1 ? 3 : 0; return 0; }""",
    "cudnnGetVersion": "unsigned long cudnnGetVersion(void) { return 90300; }",
}
RUNTIME: Mapping[str, frozenset[str]] = {
    "libcudart": frozenset(
        {
            *("cudaGetDevice", "cudaSetDevice", "cudaGetDeviceCount", "cudaGetDeviceProperties"),
            *("cudaGetDeviceProperties_v2", "cudaDeviceGetAttribute", "cudaRuntimeGetVersion"),
            *("cudaDriverGetVersion", "cudaGetErrorString", "cudaGetErrorName", "cudaGetLastError"),
            *("cudaPeekAtLastError", "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaFree"),
            *("cudaSetDeviceFlags", "cudaGetDeviceFlags", "cudaFuncGetAttributes"),
        }
    ),
    "libcudnn": frozenset({"cudnnGetProperty", "cudnnGetVersion"}),
}
"""The functions of each library that TensorFlow from 1.14 on calls to create a device and name it."""


def find_tool(name: str) -> str:
    """Return the path of a program of binutils. Raise FileNotFoundError if it is not installed."""
    path = shutil.which(name)
    if path is None:
        message = f"{name} is not installed (package binutils)"
        raise FileNotFoundError(message)
    return path


def _compile(
    cache: Path,
    source: str,
    flags: Sequence[str],
    *,
    needs: Sequence[str] = (),
    script: str = "",
    imports: Sequence[str] = (),
) -> Path:
    """Compile C into a shared object in the cache, once, and return its path."""
    compiler = os.environ.get("CC") or "cc"
    parts = (compiler, source, script, *flags, "needs", *needs, "imports", *imports)
    built = cache / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}.so"
    if built.exists():
        return built
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        work = Path(folder)
        (work / "source.c").write_text(source, encoding="utf-8")
        (work / "versions").write_text(script, encoding="utf-8")
        command = [compiler, "-shared", "-fPIC", "-o", f"{work}/out.so", f"{work}/source.c", *flags]
        if script:
            command.append(f"-Wl,--version-script={work}/versions")
        if needs:
            for index, need in enumerate(needs):
                versioned = [name for name in imports if "@" in name and not index]
                code, versions = _define_functions(versioned)
                built_need = _compile(cache, code, ["-nostdlib", f"-Wl,-soname,{need}"], script=versions)
                shutil.copyfile(built_need, work / f"need{index}.so")
            linked = [f"-l:need{index}.so" for index in range(len(needs))]
            command += ["-Wl,--no-as-needed", f"-L{work}", *linked]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            message = f"{' '.join(command)}: {done.stderr}"
            raise RuntimeError(message)
        (work / "out.so").replace(built)
    return built


def _define_functions(symbols: Iterable[str]) -> tuple[str, str]:
    """Return C code that defines "name" and "name@version" as functions, and the linker's version script."""
    versions: dict[str, list[str]] = {}
    for symbol in sorted(set(symbols)):
        name, _, version = symbol.partition("@")
        versions.setdefault(version, []).append(name)
    names = sorted({name for group in versions.values() for name in group})
    source = (
        "".join(_BODIES.get(name, f"int {name}(void) {{ return 0; }}") + "\n" for name in names)
        or _EMPTY_SOURCE
    )
    script = "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in group)} }};\n"
        for version, group in sorted(versions.items())
        if version
    )
    return source, script


def _copy_library(built: Path, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    shutil.copyfile(built, path)
    path.chmod(0o755)
    return path


def write_driver(
    folder: Path, cache: Path, *, cuda: bool = True, nvml: bool = True, gpus: int = 1, init: int = 0
) -> Path:
    """Write the stand-in driver (libcuda.so.1, libnvidia-ml.so.1) into a folder, and return the folder.

    gpus: the number of devices if STANDIN_GPUS is not set. init: the result of cuInit if STANDIN_INIT is not
    set.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for is_included, soname, name in ((cuda, CUDA, "libcuda.c"), (nvml, NVML, "libnvidia-ml.c")):
        if is_included:
            source = (SOURCES / name).read_text(encoding="utf-8")
            flags = [
                "-std=c99",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                f"-DGPUS={gpus}",
                f"-DINIT={init}",
                f"-Wl,-soname,{soname}",
            ]
            _copy_library(_compile(cache, source, flags), folder / soname)
    return folder


def write_stub_driver(path: Path, cache: Path) -> Path:
    """Write the toolkit's stub: soname libcuda.so.1, with all functions, none of which works."""
    with tempfile.TemporaryDirectory() as folder:
        names = find_defined_symbols(write_driver(Path(folder), cache, nvml=False) / CUDA)
    source = "".join(
        f"int {name}(void) {{ return 34; }}\n"
        for name in sorted(names)
        if name.startswith("cu") and not name.startswith("cuGetError")
    )
    source += (
        'int cuGetErrorName(int e, const char **n) { (void)e; *n = "CUDA_ERROR_STUB_LIBRARY"; return 0; }\n'
        "int cuGetErrorString(int e, const char **s) "
        '{ (void)e; *s = "CUDA driver is a stub library"; return 0; }\n'
    )
    return _copy_library(_compile(cache, source, ["-std=c99", "-nostdlib", f"-Wl,-soname,{CUDA}"]), path)


def write_library(
    path: Path,
    cache: Path,
    *,
    soname: str | None = None,
    needs: Sequence[str] = (),
    rpath: str | None = None,
    runpath: str | None = None,
    symbols: Iterable[str] = (),
    imports: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Write a stand-in of a shared library and return its path.

    Args:
        path: its path; the file name is the soname unless `soname` is given ("" for none).
        cache: the folder for compiled files.
        soname: see `path`.
        needs: sonames for its DT_NEEDED, none of which has to exist.
        rpath: its DT_RPATH, which may contain `$ORIGIN`.
        runpath: its DT_RUNPATH, likewise.
        symbols: functions that it defines, each "name" or "name@version"; they return 0.
        imports: functions that it leaves undefined, so that loading fails if no library defines them;
            "name@version" requires that version of the first of `needs`.
        flags: additional compiler flags.
    """
    effective_soname = path.name if soname is None else soname
    options = ["-nostdlib", *flags]
    if effective_soname:
        options.append(f"-Wl,-soname,{effective_soname}")
    if rpath is not None:
        options += [f"-Wl,-rpath,{rpath}", "-Wl,--disable-new-dtags"]
    if runpath is not None:
        options += [f"-Wl,-rpath,{runpath}", "-Wl,--enable-new-dtags"]
    source, script = _define_functions(symbols)
    for symbol in imports:
        name = symbol.partition("@")[0]
        source += f"extern int {name}(void);\nint (*use_{name})(void) = {name};\n"
    return _copy_library(_compile(cache, source, options, needs=needs, script=script, imports=imports), path)


def find_imported_symbols(objects: Iterable[Path]) -> dict[str, set[str]]:
    """Return the CUDA functions that these ELF objects leave undefined, by the stem of their library.

    {"libcublas": {"cublasSgemm_v2@libcublas.so.10.0", ...}, "libcuda": {"cuInit", ...}, ...}
    """
    symbols: dict[str, set[str]] = {}
    for path in objects:
        done = subprocess.run(
            [find_tool("nm"), "-D", "--undefined-only", str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        for line in done.stdout.splitlines():
            symbol = line.split()[-1].replace("@@", "@")
            for stem, pattern in _OWNERS:
                if pattern.match(symbol):
                    version = symbol.partition("@")[2]
                    symbols.setdefault(version.partition(".so")[0] or stem, set()).add(symbol)
                    break
    return symbols


def find_defined_symbols(path: Path) -> set[str]:
    """Return the dynamic symbols that an ELF object defines, without versions."""
    done = subprocess.run(
        [find_tool("nm"), "-D", "--defined-only", str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


def find_missing_driver_symbols(objects: Iterable[Path], cache: Path) -> set[str]:
    """Return the driver functions that these objects import and the stand-in lacks; should be empty."""
    with tempfile.TemporaryDirectory() as folder:
        defined = find_defined_symbols(write_driver(Path(folder), cache, nvml=False) / CUDA)
    return find_imported_symbols(objects).get("libcuda", set()) - defined


# -- Damaged files ---------------------------------------------------------------------------------


def write_wrong_class(path: Path) -> Path:
    """Write the header of a 32-bit x86 shared object."""
    header = b"\x7fELF" + bytes([1, 1, 1]) + bytes(9)
    header += struct.pack("<HHIIIIIHHHHHH", 3, 3, 1, 0, 52, 0, 0, 52, 32, 0, 40, 0, 0)
    return _write_file(path, header.ljust(4096, b"\0"))


def write_wrong_machine(path: Path) -> Path:
    """Write the header of a 64-bit shared object for another processor (AArch64 on x86-64 and vice versa)."""
    machine = 62 if os.uname().machine == "aarch64" else 183
    header = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)
    return _write_file(path, header.ljust(4096, b"\0"))


def write_empty(path: Path) -> Path:
    """Write an empty file, as a full disk or an interrupted copy leaves it."""
    return _write_file(path, b"")


def write_truncated(path: Path, whole: Path, keep: int) -> Path:
    """Write the first `keep` bytes of a good library."""
    return _write_file(path, whole.read_bytes()[:keep])


def write_linker_script(path: Path) -> Path:
    """Write a text file instead of a library, as -dev packages have them."""
    return _write_file(
        path,
        b"/* GNU ld script */\nOUTPUT_FORMAT(elf64-x86-64)\nINPUT ( /nowhere/" + path.name.encode() + b" )\n",
    )


def _write_file(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path
