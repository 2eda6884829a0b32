"""Stand-ins for the NVIDIA driver and for CUDA libraries, made with the C compiler.

Everything compiled is kept in a cache folder under the hash of what it was made from, so a library
costs its 50 ms once; placing one is a copy. Nothing here is NVIDIA's.
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

from tfdoctor.simulate.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CUDA = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
_NOTHING = "static int nothing __attribute__((unused));\n"

# Whose an undefined symbol is, where it carries no version. The order matters: cu[A-Z] is the driver's.
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

# Functions that must answer something: Eigen, inside TF up to 1.13, allocates as many as it is told.
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
    # cuDNN 9.3.0, whatever its name says.
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
"""The functions of each library that TF from 1.14 on calls to make a device: enough of it to name the device."""


def tool(name: str) -> str:
    """Where one of binutils' programs is."""
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not installed (package binutils)"
        raise FileNotFoundError(message)
    return found


def _compile(
    cache: Path,
    source: str,
    flags: Sequence[str],
    *,
    needs: Sequence[str] = (),
    script: str = "",
    imports: Sequence[str] = (),
) -> Path:
    """Compile C into a shared object in the cache, once, and return where it is."""
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
                code, versions = _defining(versioned)
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


def _defining(symbols: Iterable[str]) -> tuple[str, str]:
    """C that defines "name" and "name@version" as functions, and the linker's version script for it."""
    versions: dict[str, list[str]] = {}
    for symbol in sorted(set(symbols)):
        name, _, version = symbol.partition("@")
        versions.setdefault(version, []).append(name)
    names = sorted({name for group in versions.values() for name in group})
    source = (
        "".join(_BODIES.get(name, f"int {name}(void) {{ return 0; }}") + "\n" for name in names) or _NOTHING
    )
    script = "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in group)} }};\n"
        for version, group in sorted(versions.items())
        if version
    )
    return source, script


def _place(built: Path, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    shutil.copyfile(built, path)
    path.chmod(0o755)
    return path


def driver(
    folder: Path, cache: Path, *, cuda: bool = True, nvml: bool = True, gpus: int = 1, init: int = 0
) -> Path:
    """Put the stand-in driver (libcuda.so.1, libnvidia-ml.so.1) into a folder; the folder comes back.

    `gpus`: how many devices it has where STANDIN_GPUS does not say; `init`: what cuInit gives where STANDIN_INIT does
    not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for wanted, soname, name in ((cuda, CUDA, "libcuda.c"), (nvml, NVML, "libnvidia-ml.c")):
        if wanted:
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
            _place(_compile(cache, source, flags), folder / soname)
    return folder


def stub_driver(path: Path, cache: Path) -> Path:
    """Make what the toolkit keeps in lib64/stubs: soname libcuda.so.1, every function there, none works."""
    with tempfile.TemporaryDirectory() as folder:
        names = defined_symbols(driver(Path(folder), cache, nvml=False) / CUDA)
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
    return _place(_compile(cache, source, ["-std=c99", "-nostdlib", f"-Wl,-soname,{CUDA}"]), path)


def library(
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
    """Make a stand-in of a shared library; its path comes back.

    Args:
        path: where it goes; its name is its soname unless `soname` says otherwise ("" for none).
        cache: the folder for what is compiled.
        soname: see `path`.
        needs: sonames for its DT_NEEDED, none of which has to exist.
        rpath: its DT_RPATH, which may hold `$ORIGIN`.
        runpath: its DT_RUNPATH, likewise.
        symbols: functions that it defines, each "name" or "name@version"; they return 0.
        imports: functions that it leaves undefined, so that loading fails where nobody has them;
            "name@version" asks the first of `needs` for that version.
        flags: more for the compiler.
    """
    named = path.name if soname is None else soname
    options = ["-nostdlib", *flags]
    if named:
        options.append(f"-Wl,-soname,{named}")
    if rpath is not None:
        options += [f"-Wl,-rpath,{rpath}", "-Wl,--disable-new-dtags"]
    if runpath is not None:
        options += [f"-Wl,-rpath,{runpath}", "-Wl,--enable-new-dtags"]
    source, script = _defining(symbols)
    for symbol in imports:
        name = symbol.partition("@")[0]
        source += f"extern int {name}(void);\nint (*use_{name})(void) = {name};\n"
    return _place(_compile(cache, source, options, needs=needs, script=script, imports=imports), path)


def wanted_symbols(objects: Iterable[Path]) -> dict[str, set[str]]:
    """The CUDA functions that these ELF objects leave undefined, by the stem of their library.

    {"libcublas": {"cublasSgemm_v2@libcublas.so.10.0", ...}, "libcuda": {"cuInit", ...}, ...}
    """
    found: dict[str, set[str]] = {}
    for path in objects:
        done = subprocess.run(
            [tool("nm"), "-D", "--undefined-only", str(path)],
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
                    found.setdefault(version.partition(".so")[0] or stem, set()).add(symbol)
                    break
    return found


def defined_symbols(path: Path) -> set[str]:
    """The dynamic symbols that an ELF object defines, without versions."""
    done = subprocess.run(
        [tool("nm"), "-D", "--defined-only", str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


def lacking_in_driver(objects: Iterable[Path], cache: Path) -> set[str]:
    """Driver functions that these objects link against and the stand-in lacks: there should be none."""
    with tempfile.TemporaryDirectory() as folder:
        known = defined_symbols(driver(Path(folder), cache, nvml=False) / CUDA)
    return wanted_symbols(objects).get("libcuda", set()) - known


# -- Things that are not libraries ----------------------------------------------------------------


def wrong_class(path: Path) -> Path:
    """A 32-bit x86 shared object, as far as its header goes."""
    header = b"\x7fELF" + bytes([1, 1, 1]) + bytes(9)
    header += struct.pack("<HHIIIIIHHHHHH", 3, 3, 1, 0, 52, 0, 0, 52, 32, 0, 40, 0, 0)
    return _write(path, header.ljust(4096, b"\0"))


def wrong_machine(path: Path) -> Path:
    """A 64-bit shared object for a processor that this one is not (AArch64 here, x86-64 there)."""
    machine = 62 if os.uname().machine == "aarch64" else 183
    header = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)
    return _write(path, header.ljust(4096, b"\0"))


def empty(path: Path) -> Path:
    """No bytes at all: what a full disk or an interrupted copy leaves."""
    return _write(path, b"")


def truncated(path: Path, whole: Path, keep: int) -> Path:
    """The first bytes of a good library."""
    return _write(path, whole.read_bytes()[:keep])


def linker_script(path: Path) -> Path:
    """A text file in the place of a library, as -dev packages have them."""
    return _write(
        path,
        b"/* GNU ld script */\nOUTPUT_FORMAT(elf64-x86-64)\nINPUT ( /nowhere/" + path.name.encode() + b" )\n",
    )


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path
