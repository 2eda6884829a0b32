"""Build the libraries of the software GPU.

The software GPU consists of a driver that interprets the PTX of TensorFlow's kernels, and of replacements for the
CUDA libraries with the same sonames. It contains no code from NVIDIA.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tfdoctor.core import versions
from tfdoctor.core.records import dataclass
from tfdoctor.verification.simulate.sources import COMPUTE_SOURCES, PTX_SOURCES, SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

__all__ = ["Compilers", "LibrarySet", "build_compute_libraries", "make_defines"]

C_STANDARD_OPTION, CXX_STANDARD_OPTIONS = "-std=gnu11", ("-std=c++17", "-frounding-math", "-ffp-contract=off")
"""The options for C and for C++."""
COMMON_LIBRARIES = ("libnccl.so.2", "libnvidia-ml.so.1")
"""The libraries that are built for every TensorFlow."""
DRIVER_SOURCES = ("memory", "streams", "modules", "tables")
"""The names of the driver's C sources in COMPUTE_SOURCES."""
VERSION_SCRIPT = "{ global: cu*; standin_*; tfdoctor_*; ptx_*; local: *; };\n"
"""The version script with the symbols that the driver exports.

C++ symbols are not exported, because TensorFlow may use another C++ runtime.
"""
PARALLEL_JOBS = 2
"""The number of compilers that run at the same time."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Compilers:
    """The commands of a C and a C++ compiler."""

    c: tuple[str, ...]
    cxx: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibrarySet:
    """The CUDA libraries that a TensorFlow opens, and the versions that they report."""

    sonames: tuple[str, ...]
    cuda: str
    """The CUDA version, such as `"12.5.1"`."""
    cudnn: str
    """The cuDNN version, such as `"9.3"`."""


def make_defines(libraries: LibrarySet) -> list[str]:
    """Return the compiler options that define the CUDA and cuDNN version numbers.

    cuDNN 8.9 has the number 8900. From cuDNN 9 on, the major version counts ten times as much: 9.3 is 90300.
    """
    cuda_numbers, cudnn_numbers = (
        [*versions.parse_numbers(versions.major_minor(text)), 0][:2]
        for text in (libraries.cuda, libraries.cudnn)
    )
    cudnn_number = cudnn_numbers[0] * (10000 if cudnn_numbers[0] >= 9 else 1000) + cudnn_numbers[1] * 100
    return [f"-DCUDART={cuda_numbers[0] * 1000 + cuda_numbers[1] * 10}", f"-DCUDNN={cudnn_number}"]


def build_compute_libraries(
    run: Callable[[Sequence[str]], str | None],
    compilers: Compilers,
    folder: Path,
    libraries: LibrarySet,
    *,
    options: Sequence[str] = ("-O2",),
    c_options: Sequence[str] = (),
    cxx_options: Sequence[str] = (),
) -> str | None:
    """Build the libraries in the existing `folder`. Return the reason why they cannot be built, or None.

    * `run` runs a command, and returns the reason why it failed, or None.
    * `options` are passed to both compilers, `c_options` to the C compiler and `cxx_options` to the C++ compiler.

    Raise OSError if the folder cannot be written.
    """
    sources = [
        *sorted(path for path in PTX_SOURCES.glob("*.cc") if path.name != "run.cc"),
        *(COMPUTE_SOURCES / f"{name}.c" for name in DRIVER_SOURCES),
        SOURCES / "libcuda.c",
    ]
    objects = [folder / f"{path.parent.name}-{path.stem}.o" for path in sources]

    def compile_source(source: Path, target: Path) -> str | None:
        if source.suffix == ".cc":
            command = [*compilers.cxx, *CXX_STANDARD_OPTIONS, *cxx_options]
        elif source.name == "libcuda.c":
            command = [*compilers.c, "-std=gnu99", "-DCOMPUTES"]
        else:
            command = [*compilers.c, C_STANDARD_OPTION, *c_options]
        return run([*command, *options, "-fPIC", "-c", str(source), "-o", str(target)])

    reason = _find_failure(lambda index: compile_source(sources[index], objects[index]), range(len(sources)))
    if reason is None:
        reason = run(_make_link_command(compilers, folder, objects, options))
    for object_file in objects:
        object_file.unlink(missing_ok=True)
    if reason is not None:
        return reason
    names = dict.fromkeys((*libraries.sonames, *COMMON_LIBRARIES))
    return _find_failure(
        lambda soname: run(_make_library_command(compilers, folder, soname, libraries, options, c_options)),
        names,
    )


def _find_failure(build: Callable[[_T], str | None], items: Iterable[_T]) -> str | None:
    """Call `build` for each item, PARALLEL_JOBS at a time. Return the first reason for a failure, or None."""
    with ThreadPoolExecutor(PARALLEL_JOBS) as pool:
        return next((reason for reason in pool.map(build, items) if reason is not None), None)


def _make_link_command(
    compilers: Compilers, folder: Path, objects: Sequence[Path], options: Sequence[str]
) -> list[str]:
    """Return the command that links the driver, and write its version script.

    The C++ runtime is linked statically, because that of TensorFlow may be older. With sanitizers it is linked
    dynamically, because they must intercept it.
    """
    script = folder / "libcuda.versions"
    script.write_text(VERSION_SCRIPT, encoding="ascii")
    static_options = [
        "-static-libstdc++",
        "-static-libgcc",
        "-Wl,-Bsymbolic",
        f"-Wl,--version-script={script}",
    ]
    runtime_options = [] if any("sanitize" in option for option in options) else static_options
    output_options = ["-Wl,-soname,libcuda.so.1", "-o", f"{folder}/libcuda.so.1"]
    return [
        *compilers.cxx,
        "-shared",
        *options,
        *runtime_options,
        *output_options,
        *map(str, objects),
        "-ldl",
        "-lpthread",
    ]


def _make_library_command(
    compilers: Compilers,
    folder: Path,
    soname: str,
    libraries: LibrarySet,
    options: Sequence[str],
    c_options: Sequence[str],
) -> list[str]:
    """Return the command that builds a CUDA library or NVML, and write its version script.

    A library without a source is built empty, so that TensorFlow can open it.
    """
    stem = soname.partition(".so.")[0]
    is_nvml = stem == "libnvidia-ml"
    source = SOURCES / f"{stem}.c" if is_nvml else COMPUTE_SOURCES / f"{stem}.c"
    script = folder / f"{stem}.versions"
    # As in NVIDIA's libraries, the symbol version is the soname.
    script.write_text(f"{'' if is_nvml else soname} {{ global: *; }};\n", encoding="ascii")
    input_options = [str(source)] if source.exists() else ["-x", "c", "/dev/null"]
    return [
        *compilers.c,
        C_STANDARD_OPTION,
        *(() if is_nvml else c_options),
        "-fPIC",
        "-shared",
        "-DCOMPUTES",
        *make_defines(libraries),
        f"-Wl,--version-script={script}",
        f"-Wl,-soname,{soname}",
        "-o",
        f"{folder}/{soname}",
        *options,
        *input_options,
        "-x",  # `-x none` ends the effect of `-x c` above
        "none",
        *([f"-L{folder}", "-l:libcuda.so.1"] if stem == "libcudart" else []),
        "-lm",
        "-lpthread",
    ]
