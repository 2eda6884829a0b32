"""The software GPU: which of its sources make which library, and how. What runs the compilers is given.

It is a driver that interprets the PTX of TensorFlow's own kernels, and CUDA's libraries beside it, under the names that
a TensorFlow opens. Nothing in it is NVIDIA's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tfdoctor import versions
from tfdoctor.records import dataclass
from tfdoctor.simulate.sources import COMPUTE, PTX, SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

__all__ = ["Compilers", "LibrarySet", "build_computing", "make_defines"]

C, CXX = "-std=gnu11", ("-std=c++17", "-frounding-math", "-ffp-contract=off")
ALWAYS = ("libnccl.so.2", "libnvidia-ml.so.1")
"""Libraries that are made for every TensorFlow."""
DRIVER = ("memory", "streams", "modules", "tables")
EXPORTED = "{ global: cu*; standin_*; tfdoctor_*; ptx_*; local: *; };\n"
"""What others find in the driver: nothing of C++, for TensorFlow's may be another one."""
TWO = 2
"""Compilers at once."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Compilers:
    """The commands that compile."""

    c: tuple[str, ...]
    cxx: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibrarySet:
    """CUDA's libraries that a TensorFlow opens, and the versions that they say they are."""

    sonames: tuple[str, ...]
    cuda: str
    """`"12.5.1"`"""
    cudnn: str
    """`"9.3"`"""


def make_defines(wanted: LibrarySet) -> list[str]:
    """Return CUDART_VERSION and CUDNN_VERSION: from cuDNN 9 on, its major number counts ten times as much."""
    cuda, cudnn = (
        [*versions.numbers(versions.major_minor(text)), 0][:2] for text in (wanted.cuda, wanted.cudnn)
    )
    told = cudnn[0] * (10000 if cudnn[0] >= 9 else 1000) + cudnn[1] * 100
    return [f"-DCUDART={cuda[0] * 1000 + cuda[1] * 10}", f"-DCUDNN={told}"]


def build_computing(
    run: Callable[[Sequence[str]], str | None],
    compilers: Compilers,
    folder: Path,
    wanted: LibrarySet,
    *,
    options: Sequence[str] = ("-O2",),
    of_c: Sequence[str] = (),
    of_cxx: Sequence[str] = (),
) -> str | None:
    """Make the libraries in `folder`, which is there. The reason where they cannot be made.

    `run`: runs a command; what is wrong with it comes back. `options`: of all compilers. Raises OSError.
    """
    sources = [
        *sorted(path for path in PTX.glob("*.cc") if path.name != "run.cc"),
        *(COMPUTE / f"{name}.c" for name in DRIVER),
        SOURCES / "libcuda.c",
    ]
    made = [folder / f"{path.parent.name}-{path.stem}.o" for path in sources]

    def compile_source(source: Path, to: Path) -> str | None:
        if source.suffix == ".cc":
            command = [*compilers.cxx, *CXX, *of_cxx]
        elif source.name == "libcuda.c":
            command = [*compilers.c, "-std=gnu99", "-DCOMPUTES"]
        else:
            command = [*compilers.c, C, *of_c]
        return run([*command, *options, "-fPIC", "-c", str(source), "-o", str(to)])

    why = _first(lambda n: compile_source(sources[n], made[n]), range(len(sources)))
    if why is None:
        why = run(_link_driver(compilers, folder, made, options))
    for one in made:
        one.unlink(missing_ok=True)
    if why is not None:
        return why
    names = dict.fromkeys((*wanted.sonames, *ALWAYS))
    return _first(lambda soname: run(_make_library(compilers, folder, soname, wanted, options, of_c)), names)


def _first(work: Callable[[_T], str | None], each: Iterable[_T]) -> str | None:
    """Do it for each, a few at once; the first reason why one could not be done."""
    with ThreadPoolExecutor(TWO) as pool:
        return next((why for why in pool.map(work, each) if why is not None), None)


def _link_driver(
    compilers: Compilers, folder: Path, objects: Sequence[Path], options: Sequence[str]
) -> list[str]:
    """Return the link command of the driver.

    The runtime of C++ is inside, for TensorFlow's may be older; sanitizers want to see it.
    """
    script = folder / "libcuda.versions"
    script.write_text(EXPORTED, encoding="ascii")
    inside = ["-static-libstdc++", "-static-libgcc", "-Wl,-Bsymbolic", f"-Wl,--version-script={script}"]
    static = [] if any("sanitize" in option for option in options) else inside
    named = ["-Wl,-soname,libcuda.so.1", "-o", f"{folder}/libcuda.so.1"]
    return [*compilers.cxx, "-shared", *options, *static, *named, *map(str, objects), "-ldl", "-lpthread"]


def _make_library(
    compilers: Compilers,
    folder: Path,
    soname: str,
    wanted: LibrarySet,
    options: Sequence[str],
    of_c: Sequence[str],
) -> list[str]:
    """Build one of CUDA's libraries; an empty one if there is no source of it, so that TensorFlow finds it."""
    stem = soname.partition(".so.")[0]
    nvml = stem == "libnvidia-ml"
    source = SOURCES / f"{stem}.c" if nvml else COMPUTE / f"{stem}.c"
    script = folder / f"{stem}.versions"
    # NVIDIA's toolkit names the version of each function as the library
    script.write_text(f"{'' if nvml else soname} {{ global: *; }};\n", encoding="ascii")
    given = [str(source)] if source.exists() else ["-x", "c", "/dev/null"]
    return [
        *compilers.c,
        C,
        *(() if nvml else of_c),
        "-fPIC",
        "-shared",
        "-DCOMPUTES",
        *make_defines(wanted),
        f"-Wl,--version-script={script}",
        f"-Wl,-soname,{soname}",
        "-o",
        f"{folder}/{soname}",
        *options,
        *given,
        "-x",
        "none",
        *([f"-L{folder}", "-l:libcuda.so.1"] if stem == "libcudart" else []),
        "-lm",
        "-lpthread",
    ]
