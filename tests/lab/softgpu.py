"""The interpreter of the software GPU, compiled for the tests, and a class that runs kernels on it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tfdoctor.compat.tables import Compat
from tfdoctor.verification.simulate.compute_libraries import (
    Compilers,
    LibrarySet,
    build_compute_libraries,
    make_defines,
)
from tfdoctor.verification.simulate.sources import COMPUTE_SOURCES, PTX_SOURCES, SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STRICT = ("-Wall", "-Wextra", "-Werror")
FLAGS = ("-std=c++17", "-O1", "-frounding-math", "-ffp-contract=off", *STRICT)
C_FLAGS = ("-std=gnu11", *STRICT)
SANITIZED = ("-g1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
_HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"
_SIZES = {"pred": 1, "8": 1, "16": 2, "32": 4, "64": 8, "6x2": 4, "3x2": 2, "2x2": 2}


def get_type_size(kind: str) -> int:
    """Return the number of bytes of a value of a PTX type ("f32")."""
    return next(size for suffix, size in _SIZES.items() if kind.endswith(suffix))


def build_interpreter(cache: Path, flags: Sequence[str] = ()) -> Path:
    """Compile `ptx-run` once for its sources and flags, and return its path."""
    compiler = os.environ.get("CXX") or "c++"
    sources = sorted(PTX_SOURCES.glob("*.cc"))
    digest = hashlib.sha256("\0".join((compiler, *FLAGS, *flags)).encode())
    for path in sorted(PTX_SOURCES.iterdir()):
        digest.update(path.read_bytes())
    program = cache / f"ptx-run-{digest.hexdigest()[:24]}"
    if program.exists():
        return program
    work = cache / f"{program.name}.{os.getpid()}"
    work.mkdir(parents=True)

    def compile_source(source: Path) -> Path:
        out = work / f"{source.stem}.o"
        _check_command([compiler, *FLAGS, *flags, "-c", str(source), "-o", str(out)])
        return out

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_source, sources))
    _check_command([compiler, *flags, "-o", f"{work}/ptx-run", *map(str, objects)])
    (work / "ptx-run").replace(program)
    for path in objects:
        path.unlink()
    work.rmdir()
    return program


def build_libraries(
    folder: Path, tensorflow: str, flags: Sequence[str] = ("-O2",), *, cudnn: str | None = None
) -> Path:
    """Build the software GPU's libraries under the names that a release of TensorFlow opens, and return the folder.

    The folder belongs on LD_LIBRARY_PATH, and on PATH for `ptxas`, which XLA starts. `tensorflow`: "2.15.1". `cudnn`:
    the version that cuDNN reports ("8.9"); None for the one that the release was built with. Raise LookupError if no
    such release with GPUs is known. cuFFT, cuSPARSE, cuSOLVER and cuRAND are empty: TensorFlow finds them and reports
    missing functions.
    """
    release = Compat.load().find_release(tensorflow)
    if release is None or not release.required_libraries or release.cuda is None or release.cudnn is None:
        message = f"TensorFlow {tensorflow} opens no CUDA libraries that are known"
        raise LookupError(message)
    folder.mkdir(parents=True, exist_ok=True)
    compilers = Compilers((os.environ.get("CC") or "cc",), (os.environ.get("CXX") or "c++",))
    library_set = LibrarySet(release.required_libraries, release.cuda, cudnn or release.cudnn)
    error = build_compute_libraries(
        _run_command, compilers, folder, library_set, options=flags, c_options=C_FLAGS[1:], cxx_options=STRICT
    )
    if error is not None:
        raise RuntimeError(error)
    shutil.copy2(COMPUTE_SOURCES / "ptxas", folder / "ptxas")
    return folder


def list_warnings(cuda: str, cudnn: str) -> str:
    """Return the C compiler's warnings about the libraries for such versions ("12.2", "8.9").

    Empty if there are none.
    """
    flags = [flag for flag in C_FLAGS if flag != "-Werror"]
    defines = make_defines(LibrarySet((), cuda, cudnn))
    options = [*flags, "-O1", "-DCOMPUTES", *defines, "-fPIC", "-c", "-o", os.devnull]

    def compile_file(source: Path) -> str:
        command = [os.environ.get("CC") or "cc", *options, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        return done.stderr or ("" if done.returncode == 0 else f"{source}: exit status {done.returncode}")

    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(compile_file, (*COMPUTE_SOURCES.glob("*.c"), SOURCES / "libcuda.c")))


def _run_command(command: Sequence[str]) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return f"{' '.join(command)}: {done.stderr}" if done.returncode else None


def _check_command(command: Sequence[str]) -> None:
    error = _run_command(command)
    if error is not None:
        raise RuntimeError(error)


class RefusedError(Exception):
    """The interpreter did not run a kernel; the message is the driver's code and the reason."""


class Interpreter:
    """Runs kernels given as PTX text."""

    def __init__(self, program: Path, folder: Path) -> None:
        """Use `folder` for the PTX files."""
        self._program = program
        self._folder = folder

    def run_kernel(
        self,
        text: str,
        *arguments: int | bytes,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        shared: int = 0,
        name: str = "k",
    ) -> list[bytes]:
        """Run the kernel `name` of a module and return the final content of its memory arguments.

        Raise RefusedError if it is not run.
        """
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.ptx"
        path.write_text(text if ".version" in text else _HEAD + text)
        shape = [",".join(map(str, item)) for item in (grid, block)]
        parameters = [item.hex() if isinstance(item, bytes) else f"u64:{item}" for item in arguments]
        command = [str(self._program), str(path), name, *shape, str(shared), *parameters]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise RefusedError(done.stderr.strip())
        return [bytes.fromhex(line) for line in done.stdout.split("\n")[:-1]]

    def run_lanes(
        self,
        body: str,
        result: str,
        columns: Mapping[str, tuple[str, Sequence[int]]],
        *,
        declare: str = "",
        block: int | None = None,
    ) -> list[int]:
        """Run one thread for each row of `columns` (name: type and bits of the values).

        Return the bits of `%d`, which has the type `result`. `body` finds its values in registers with the names of
        the columns and leaves its result in `%d`; the thread number is in `%t`.
        """
        rows = len(next(iter(columns.values()))[1]) if columns else block or 32
        params, loads = [".param .u64 p_out"], []
        data: list[int | bytes] = [bytes(rows * max(get_type_size(result), 1))]
        for name, (kind, values) in columns.items():
            assert len(values) == rows
            size = get_type_size(kind)
            stored = kind if size != 1 else "u8"
            register = "b16" if size == 1 else f"b{8 * size}"
            params.append(f".param .u64 p_{name}")
            loads.append(
                f".reg .{register} %{name}; ld.param.u64 %base, [p_{name}];"
                f" mad.wide.u32 %base, %t, {size}, %base;"
                f" ld.global.{'u8' if stored == 'u8' else f'b{8 * size}'} %{name}, [%base];"
            )
            data.append(b"".join((value % (1 << 8 * size)).to_bytes(size, "little") for value in values))
        size = get_type_size(result)
        register = "pred" if result == "pred" else f"b{max(16, 8 * size)}"
        store_code = ".reg .b16 %d8; selp.u16 %d8, 1, 0, %d; st.global.u8 [%base], %d8;"
        if result != "pred":
            store_code = f"st.global.b{8 * size} [%base], %d;"
        text = (
            f".visible .entry k({', '.join(params)}) {{\n"
            f".reg .u64 %base; .reg .u32 %t; .reg .u32 %n; .reg .{register} %d; {declare}\n"
            "mov.u32 %t, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %t, %t, %n, %tid.x;\n"
            f"setp.ge.u32 %out, %t, {rows}; @%out exit;\n" + "\n".join(loads) + f"\n{body}\n"
            f"ld.param.u64 %base, [p_out]; mad.wide.u32 %base, %t, {size}, %base; {store_code}\nret;\n}}\n"
        ).replace(".reg .u64 %base;", ".reg .u64 %base; .reg .pred %out;", 1)
        threads = min(block or 256, 1024)
        out = self.run_kernel(
            text, *data, grid=((rows + threads - 1) // threads, 1, 1), block=(min(threads, rows), 1, 1)
        )[0]
        return [int.from_bytes(out[start : start + size], "little") for start in range(0, len(out), size)]
