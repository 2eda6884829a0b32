"""The software GPU's interpreter, built with the C++ compiler, and kernels that it runs for the tests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tfdoctor.compat.tables import Compat
from tfdoctor.simulate.compute_libraries import Compilers, LibrarySet, build_computing, make_defines
from tfdoctor.simulate.sources import COMPUTE, PTX, SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STRICT = ("-Wall", "-Wextra", "-Werror")
FLAGS = ("-std=c++17", "-O1", "-frounding-math", "-ffp-contract=off", *STRICT)
C_FLAGS = ("-std=gnu11", *STRICT)
SANITIZED = ("-g1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
_HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"
_SIZES = {"pred": 1, "8": 1, "16": 2, "32": 4, "64": 8, "6x2": 4, "3x2": 2, "2x2": 2}


def size_of(kind: str) -> int:
    """How many bytes a value of a PTX type ("f32") has."""
    return next(size for end, size in _SIZES.items() if kind.endswith(end))


def build(cache: Path, flags: Sequence[str] = ()) -> Path:
    """`ptx-run`, compiled once for what its sources and flags are; its path comes back."""
    compiler = os.environ.get("CXX") or "c++"
    sources = sorted(PTX.glob("*.cc"))
    told = hashlib.sha256("\0".join((compiler, *FLAGS, *flags)).encode())
    for path in sorted(PTX.iterdir()):
        told.update(path.read_bytes())
    program = cache / f"ptx-run-{told.hexdigest()[:24]}"
    if program.exists():
        return program
    work = cache / f"{program.name}.{os.getpid()}"
    work.mkdir(parents=True)

    def compiled(source: Path) -> Path:
        out = work / f"{source.stem}.o"
        _checked([compiler, *FLAGS, *flags, "-c", str(source), "-o", str(out)])
        return out

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    _checked([compiler, *flags, "-o", f"{work}/ptx-run", *map(str, objects)])
    (work / "ptx-run").replace(program)
    for path in objects:
        path.unlink()
    work.rmdir()
    return program


def libraries(
    folder: Path, tensorflow: str, flags: Sequence[str] = ("-O2",), *, cudnn: str | None = None
) -> Path:
    """The software GPU's libraries under the names that a release of TensorFlow opens; the folder comes back.

    It goes onto LD_LIBRARY_PATH, and onto PATH for `ptxas`, which XLA starts. `tensorflow`: "2.15.1"; `cudnn`: what
    cuDNN says it is ("8.9"; by default what the release was built with). LookupError where no such release with GPUs is
    known. What each release computes with them: docs/verified.md. cuFFT, cuSPARSE, cuSOLVER and cuRAND are empty:
    TensorFlow finds them, and says what it does not find in them.
    """
    release = Compat.load().release(tensorflow)
    if release is None or not release.required_libraries or release.cuda is None or release.cudnn is None:
        message = f"TensorFlow {tensorflow} opens no CUDA libraries that are known"
        raise LookupError(message)
    folder.mkdir(parents=True, exist_ok=True)
    compilers = Compilers((os.environ.get("CC") or "cc",), (os.environ.get("CXX") or "c++",))
    wanted = LibrarySet(release.required_libraries, release.cuda, cudnn or release.cudnn)
    why = build_computing(_wrong, compilers, folder, wanted, options=flags, of_c=C_FLAGS[1:], of_cxx=STRICT)
    if why is not None:
        raise RuntimeError(why)
    shutil.copy2(COMPUTE / "ptxas", folder / "ptxas")
    return folder


def warnings_of(cuda: str, cudnn: str) -> str:
    """What the C compiler says against the libraries for such versions ("12.2", "8.9"): empty where nothing."""
    flags = [flag for flag in C_FLAGS if flag != "-Werror"]
    told = make_defines(LibrarySet((), cuda, cudnn))
    options = [*flags, "-O1", "-DCOMPUTES", *told, "-fPIC", "-c", "-o", os.devnull]

    def said(source: Path) -> str:
        command = [os.environ.get("CC") or "cc", *options, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        return done.stderr or ("" if done.returncode == 0 else f"{source}: exit status {done.returncode}")

    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(said, (*COMPUTE.glob("*.c"), SOURCES / "libcuda.c")))


def _wrong(command: Sequence[str]) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return f"{' '.join(command)}: {done.stderr}" if done.returncode else None


def _checked(command: Sequence[str]) -> None:
    why = _wrong(command)
    if why is not None:
        raise RuntimeError(why)


class RefusedError(Exception):
    """The interpreter did not run a kernel; its message is the driver's code and the reason."""


class Interpreter:
    """Runs kernels of PTX text."""

    def __init__(self, program: Path, folder: Path) -> None:
        """`folder`: where the texts are put."""
        self._program = program
        self._folder = folder

    def kernel(
        self,
        text: str,
        *arguments: int | bytes,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        shared: int = 0,
        name: str = "k",
    ) -> list[bytes]:
        """Run kernel `name` of a module; what its memory arguments hold at the end. Raises RefusedError."""
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.ptx"
        path.write_text(text if ".version" in text else _HEAD + text)
        shape = [",".join(map(str, one)) for one in (grid, block)]
        given = [one.hex() if isinstance(one, bytes) else f"u64:{one}" for one in arguments]
        command = [str(self._program), str(path), name, *shape, str(shared), *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise RefusedError(done.stderr.strip())
        return [bytes.fromhex(line) for line in done.stdout.split("\n")[:-1]]

    def lanes(
        self,
        body: str,
        result: str,
        columns: Mapping[str, tuple[str, Sequence[int]]],
        *,
        declare: str = "",
        block: int | None = None,
    ) -> list[int]:
        """A thread for each row of `columns` (name: type, the values' bits); the bits of `%d`, of type `result`.

        `body` finds its values in registers of the columns' names and leaves its result in `%d`; its thread is `%t`.
        """
        rows = len(next(iter(columns.values()))[1]) if columns else block or 32
        params, loads = [".param .u64 p_out"], []
        data: list[int | bytes] = [bytes(rows * max(size_of(result), 1))]
        for name, (kind, values) in columns.items():
            assert len(values) == rows
            size = size_of(kind)
            stored = kind if size != 1 else "u8"
            register = "b16" if size == 1 else f"b{8 * size}"
            params.append(f".param .u64 p_{name}")
            loads.append(
                f".reg .{register} %{name}; ld.param.u64 %base, [p_{name}];"
                f" mad.wide.u32 %base, %t, {size}, %base;"
                f" ld.global.{'u8' if stored == 'u8' else f'b{8 * size}'} %{name}, [%base];"
            )
            data.append(b"".join((value % (1 << 8 * size)).to_bytes(size, "little") for value in values))
        size = size_of(result)
        register = "pred" if result == "pred" else f"b{max(16, 8 * size)}"
        keep = ".reg .b16 %d8; selp.u16 %d8, 1, 0, %d; st.global.u8 [%base], %d8;"
        if result != "pred":
            keep = f"st.global.b{8 * size} [%base], %d;"
        text = (
            f".visible .entry k({', '.join(params)}) {{\n"
            f".reg .u64 %base; .reg .u32 %t; .reg .u32 %n; .reg .{register} %d; {declare}\n"
            "mov.u32 %t, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %t, %t, %n, %tid.x;\n"
            f"setp.ge.u32 %out, %t, {rows}; @%out exit;\n" + "\n".join(loads) + f"\n{body}\n"
            f"ld.param.u64 %base, [p_out]; mad.wide.u32 %base, %t, {size}, %base; {keep}\nret;\n}}\n"
        ).replace(".reg .u64 %base;", ".reg .u64 %base; .reg .pred %out;", 1)
        threads = min(block or 256, 1024)
        out = self.kernel(
            text, *data, grid=((rows + threads - 1) // threads, 1, 1), block=(min(threads, rows), 1, 1)
        )[0]
        return [int.from_bytes(out[at : at + size], "little") for at in range(0, len(out), size)]
