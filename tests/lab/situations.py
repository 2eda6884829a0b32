"""The situations of the lab: what can be right or wrong with a driver, libraries and TensorFlow.

A `Target` is one TensorFlow environment. `situations(target)` lists what to try with it. Each
`Situation.prepare` sets up a `Bench`: a temporary tree, the environment variables, the current
directory and the interpreter. The callers (record_truth.py, the tests) then query real TensorFlow or
tfdoctor's prediction there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import standins
from .truth import NEEDED_STEMS, observe, stem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# The folder of each library in NVIDIA's wheels, below site-packages/nvidia.
WHEEL_FOLDERS = {
    "cudart": "cuda_runtime",
    "cublas": "cublas",
    "cublasLt": "cublas",
    "cufft": "cufft",
    "curand": "curand",
    "cusolver": "cusolver",
    "cusparse": "cusparse",
    "cudnn": "cudnn",
}
UUIDS = tuple(
    "GPU-{0}{0}{0}{0}-{0}{0}-{0}{0}-{0}{0}-{0}{0}{0}{0}{0}{0}".format(f"{i + 1:02x}") for i in range(4)
)


@dataclass(frozen=True, slots=True)
class Target:
    """An environment with TensorFlow."""

    python: Path
    """Its interpreter, `ENV/bin/python`."""
    site: Path
    """Its site-packages."""
    version: tuple[int, ...]
    """The numeric parts of the version: (2, 21, 0)."""
    hard_linked: bool
    """Whether CUDA is in DT_NEEDED, so that a missing library fails the import (1.13 and older)."""
    required: tuple[str, ...]
    """The sonames of the CUDA libraries that it opens, sorted, without libcuda and NVML.

    If one of them is missing, no GPU is registered, except in 1.0, which needs only libcudart.
    """
    objects: tuple[Path, ...]
    """TensorFlow's objects with CUDA in DT_NEEDED; empty unless hard-linked."""
    symbols: Mapping[str, frozenset[str]]
    """The symbols that those objects import from each library, by stem ("libcublas")."""
    own_wheels: bool
    """Whether the environment contains nvidia/* wheels."""

    @property
    def root(self) -> Path:
        """The environment's folder."""
        return self.python.parent.parent

    def soname(self, name: str) -> str:
        """Return "libcublas.so.12" for "cublas". Raise KeyError if this TensorFlow does not open it."""
        for soname in self.required:
            if stem(soname) == name:
                return soname
        raise KeyError(name)

    def opens(self, name: str) -> bool:
        """Return whether this TensorFlow opens the library with that stem."""
        return any(stem(soname) == name for soname in self.required)


def clean_environment(home: Path) -> dict[str, str]:
    """Return environment variables without any of CUDA or TensorFlow."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def inspect_target(python: Path, cache: Path) -> Target:
    """Inspect an environment, and run its TensorFlow once (not before 1.14).

    Args:
        python: its interpreter. It is not resolved, because that would leave the environment.
        cache: folder for compiled stand-ins.
    """
    python = Path(os.path.abspath(python))  # noqa: PTH100 - resolve() would leave the environment
    site = next(iter(sorted(python.parent.parent.glob("lib/python*/site-packages"))))
    infos = sorted(site.glob("tensorflow*-*.dist-info"))
    versions = [
        match[1]
        for path in infos
        if (match := re.fullmatch(r"tensorflow(?:_gpu|_cpu)?-([\d.]+)\S*\.dist-info", path.name))
    ]
    if not versions:
        message = f"no tensorflow in {site}"
        raise FileNotFoundError(message)
    version = tuple(int(number) for number in versions[0].strip(".").split("."))
    objects, needed = _find_hard_linked(site / "tensorflow") if version < (1, 14) else ((), set())
    symbols = standins.find_imported_symbols(objects)
    if not any(stem(name) == "cublas" for name in needed):
        drivers = standins.write_driver(cache / "driver", cache)
        for name in needed:
            standins.write_library(
                cache / "asked" / python.parent.parent.name / name,
                cache,
                symbols=symbols.get("lib" + stem(name), ()),
            )
        path = f"{drivers}:{cache / 'asked' / python.parent.parent.name}"
        truth = observe(python, {**clean_environment(cache), "LD_LIBRARY_PATH": path}, quick=True)
        needed |= {
            Path(name).name for name in (*truth.opened, *(failure.opened for failure in truth.failures))
        }
        needed = {name for name in needed if stem(name) in NEEDED_STEMS}
    return Target(
        python=python,
        site=site,
        version=version,
        hard_linked=bool(objects),
        required=tuple(sorted(name for name in needed if stem(name) not in {"cuda", "nvidia-ml"})),
        objects=objects,
        symbols={name: frozenset(imports) for name, imports in symbols.items()},
        own_wheels=(site / "nvidia").is_dir(),
    )


def _find_hard_linked(package: Path) -> tuple[tuple[Path, ...], set[str]]:
    """Return TensorFlow's core objects with CUDA in DT_NEEDED, and the sonames in it."""
    objects: list[Path] = []
    needed: set[str] = set()
    candidates = [
        *package.glob("libtensorflow_framework.so*"),
        package / "python/_pywrap_tensorflow_internal.so",
        package / "python/_pywrap_tensorflow.so",
    ]
    for path in candidates:
        if not path.exists():
            continue
        dynamic = subprocess.run(
            [standins.find_tool("readelf"), "-dW", str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        names = re.findall(r"\(NEEDED\).*\[(lib(?:cu|nvrtc)[^\]]*)\]", dynamic)
        if names:
            objects.append(path)
            needed.update(names)
    return tuple(objects), needed


_LIBPYTHON_CODE = "from sysconfig import get_config_var as v; print(v('LIBDIR'), v('INSTSONAME'))"
# Every Python 3 has Py_Main and Py_DecodeLocale, and they need no header.
_PROGRAM = r"""
#include <stddef.h>
extern wchar_t *Py_DecodeLocale(const char *, size_t *);
extern int Py_Main(int, wchar_t **);
int main(int argc, char **argv) {
    static wchar_t *wide[256];
    for (int i = 0; i < argc && i < 255; i++) wide[i] = Py_DecodeLocale(argv[i], NULL);
    return Py_Main(argc, wide);
}
"""


@dataclass(slots=True)
class Bench:
    """The temporary machine that a situation sets up."""

    target: Target
    root: Path
    """A temporary folder, empty at first."""
    cache: Path
    env: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    """Entries of LD_LIBRARY_PATH; the variable is not set if there are none."""
    raw_path: str | None = None
    """The whole value of LD_LIBRARY_PATH, which replaces `path`."""
    cwd: Path | None = None
    python: Path | None = None
    """An interpreter that replaces the target's (of a changed copy of the environment)."""
    prefix: list[str] = field(default_factory=list)
    """A command under which everything runs (`unshare …`), to change what the loader sees."""

    def environment(self) -> dict[str, str]:
        """Return the complete environment variables of the child."""
        env = clean_environment(self.root)
        devices = Path("/sys/bus/pci/devices")
        if self.target.version < (1, 13) and devices.is_dir():
            # 1.12 exhausts the memory if /sys has no NUMA node for a GPU, so use PCI devices that exist.
            env["STANDIN_PCI"] = ",".join(sorted(path.name for path in devices.iterdir())[:4])
        if self.raw_path is not None:
            env["LD_LIBRARY_PATH"] = self.raw_path
        elif self.path:
            env["LD_LIBRARY_PATH"] = ":".join(self.path)
        return {**env, **self.env}

    @property
    def interpreter(self) -> Path:
        """The interpreter to run."""
        return self.python or self.target.python

    def add_driver(self, *, cuda: bool = True, nvml: bool = True) -> Path:
        """Put the stand-in driver on LD_LIBRARY_PATH and return its folder."""
        folder = standins.write_driver(self.root / "driver", self.cache, cuda=cuda, nvml=nvml)
        self.path.append(str(folder))
        return folder

    def add_library(self, folder: Path, name: str, /, **options: Any) -> Path:
        """Create a stand-in of one library with the symbols that this TensorFlow imports."""
        symbols = set(self.target.symbols.get("lib" + stem(name), frozenset()))
        return standins.write_library(folder / name, self.cache, symbols=symbols, **options)

    def add_libraries(self, folder: Path | None = None, *, without: Iterable[str] = ()) -> Path:
        """Create stand-ins of all libraries except those stems, in a folder that is *not* put on a path."""
        folder = folder or self.root / "cuda"
        folder.mkdir(parents=True, exist_ok=True)
        left_out = set(without)
        for soname in self.target.required:
            if stem(soname) not in left_out:
                self.add_library(folder, soname)
        return folder

    def add_everything(self, *, without: Iterable[str] = ()) -> Path:
        """Put the driver and all libraries except those stems on LD_LIBRARY_PATH.

        Return the libraries' folder.
        """
        self.add_driver()
        folder = self.add_libraries(without=without)
        self.path.append(str(folder))
        return folder

    def copy_environment(self) -> Path:
        """Copy the environment so that it can be changed, and return the copy's site-packages.

        TensorFlow is hard-linked and the rest symlinked. With a symlink to TensorFlow, `$ORIGIN/../../nvidia` would
        lead out of the copy.
        """
        target = self.target
        copy = self.root / "env"
        site = copy / target.site.relative_to(target.root)
        site.mkdir(parents=True)
        (copy / "bin").mkdir()
        for path in (target.root / "bin").iterdir():
            if path.name.startswith("python"):
                (copy / "bin" / path.name).symlink_to(path.readlink() if path.is_symlink() else path)
        if (target.root / "pyvenv.cfg").exists():
            shutil.copyfile(target.root / "pyvenv.cfg", copy / "pyvenv.cfg")
        for path in target.site.iterdir():
            if path.name in {"tensorflow", "tensorflow_core", "nvidia"}:
                shutil.copytree(path, site / path.name, symlinks=True, copy_function=_link)
            else:
                (site / path.name).symlink_to(path)
        self.python = copy / "bin" / target.python.name
        return site

    def add_wheels(self, site: Path, *, without: Iterable[str] = ()) -> None:
        """Create stand-ins of all libraries except those stems, laid out like NVIDIA's wheels."""
        left_out = set(without)
        for soname in self.target.required:
            name = stem(soname)
            if name not in left_out:
                self.add_library(site / "nvidia" / WHEEL_FOLDERS.get(name, name) / "lib", soname)

    def program(self, *, rpath: str | None = None, runpath: str | None = None) -> Path:
        """Copy the environment with a python that has this DT_RPATH or DT_RUNPATH, and return the copy's folder.

        conda's pythons have RPATH `$ORIGIN/../lib`. Requires a shared libpython.
        """
        site = self.copy_environment()
        completed = subprocess.run(
            [str(self.target.python), "-c", _LIBPYTHON_CODE],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        folder, name = completed.stdout.split()
        python = self.root / "env" / "bin" / self.target.python.name
        flags = [f"{folder}/{name}", f"-Wl,-rpath,{rpath or runpath}:{folder}"]
        flags.append("-Wl,--disable-new-dtags" if rpath else "-Wl,--enable-new-dtags")
        (self.root / "program.c").write_text(_PROGRAM, encoding="utf-8")
        python.unlink()
        command = [standins.find_tool("cc"), "-o", str(python), str(self.root / "program.c"), *flags]
        subprocess.run(command, check=True, timeout=60)
        self.python = python
        return site.parents[2]

    def private_mounts(self, *lines: str) -> None:
        """Run everything in a separate mount namespace, after these shell lines (root only)."""
        script = self.root / "mounts.sh"
        script.write_text("set -e\n" + "\n".join(lines) + '\nexec "$@"\n', encoding="utf-8")
        self.prefix = ["unshare", "-m", "sh", str(script)]


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)


@dataclass(frozen=True, slots=True)
class Situation:
    """One thing to try."""

    name: str
    group: str
    about: str
    prepare: Callable[[Bench], None]
    core: bool = False
    """Whether it is in the short list that every TensorFlow version gets."""


def can_mount() -> bool:
    """Return whether this machine allows private mount namespaces."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        return False
    return (
        subprocess.run([unshare, "-m", "true"], capture_output=True, check=False, timeout=20).returncode == 0
    )


# -- The list --------------------------------------------------------------------------------------


def situations(target: Target) -> list[Situation]:
    """Return all situations for this TensorFlow, in a fixed order and with unique names."""
    listed = [
        *_list_presence(target),
        *_list_transitive(target),
        *_list_broken(target),
        *_list_driver(),
        *_list_devices(),
        *_list_search_path(target),
        *_list_preloaded(target),
        *_list_switches(),
    ]
    if can_mount():
        listed += _list_system_wide(target)
    names = [situation.name for situation in listed]
    if len(set(names)) != len(names):
        raise AssertionError(sorted(name for name in names if names.count(name) > 1))
    return listed


def _list_presence(target: Target) -> list[Situation]:
    listed = [
        Situation(
            "all-present",
            "presence",
            "everything on LD_LIBRARY_PATH",
            lambda b: discard(b.add_everything()),
            True,
        ),
        Situation(
            "all-missing", "presence", "a driver and no library", lambda b: discard(b.add_driver()), True
        ),
        Situation("off-path", "presence", "the libraries exist where nobody looks", _put_off_path, True),
        Situation("wheels", "presence", "everything in site-packages/nvidia/*/lib", _add_wheels(()), True),
        Situation(
            "wheels-on-path", "presence", "the same, and each folder on LD_LIBRARY_PATH", _put_wheels_on_path
        ),
        Situation("wheels-no-cudnn", "presence", "wheels without cuDNN's", _add_wheels(("cudnn",))),
        Situation("wheels-no-cudart", "presence", "wheels without the runtime's", _add_wheels(("cudart",))),
        Situation("wheels-cusolver-linked", "presence", "cusolver symlinked beside cusparse", _link_cusolver),
        Situation("unversioned", "presence", "only libX.so, no libX.so.N", _remove_versions),
        Situation("older-major", "presence", "another major version of everything", _use_older_major),
    ]
    for soname in target.required:
        name = stem(soname)
        listed.append(Situation(f"without-{name}", "presence", f"all but {soname}", _leave_out(name), True))
    return listed


def discard(_value: object) -> None:
    """Discard a value, because `prepare` returns nothing."""


def _put_off_path(b: Bench) -> None:
    b.add_driver()
    b.add_libraries()


def _leave_out(name: str) -> Callable[[Bench], None]:
    return lambda b: discard(b.add_everything(without=[name]))


def _add_wheels(without: tuple[str, ...]) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_driver()
        b.add_wheels(b.copy_environment(), without=without)
        for soname in b.target.required:
            if stem(soname) in without:
                for real in b.root.glob(f"env/lib/python*/site-packages/nvidia/*/lib/{soname}"):
                    real.unlink()

    return prepare


def _put_wheels_on_path(b: Bench) -> None:
    b.add_driver()
    site = b.copy_environment()
    b.add_wheels(site)
    b.path += sorted(str(folder) for folder in site.glob("nvidia/*/lib"))


def _link_cusolver(b: Bench) -> None:
    b.add_driver()
    site = b.copy_environment()
    b.add_wheels(site)
    if b.target.opens("cusolver") and b.target.opens("cusparse"):
        soname = b.target.soname("cusolver")
        (site / "nvidia/cusparse/lib" / soname).symlink_to(f"../../cusolver/lib/{soname}")


def _remove_versions(b: Bench) -> None:
    b.add_driver()
    folder = b.add_libraries()
    for path in list(folder.iterdir()):
        path.rename(folder / (path.name.partition(".so")[0] + ".so"))
    b.path.append(str(folder))


def _use_older_major(b: Bench) -> None:
    b.add_driver()
    folder = b.root / "cuda"
    for soname in b.target.required:
        standins.write_library(folder / (soname.partition(".so")[0] + ".so.5.5"), b.cache)
    b.path.append(str(folder))


# -- Dependencies of libraries ------------------------------------------------------------------


def _list_transitive(target: Target) -> list[Situation]:
    listed = [
        Situation(
            "cudnn-needs-foo",
            "transitive",
            "libcudnn needs a libfoo.so.1 that is nowhere",
            _make_cudnn_need(None),
            True,
        ),
        Situation(
            "cudnn-needs-foo-beside",
            "transitive",
            "libfoo lies beside it, and it has no RUNPATH",
            _put_foo_beside(None, None),
        ),
        Situation(
            "cudnn-needs-foo-runpath",
            "transitive",
            "…and RUNPATH $ORIGIN/more finds it",
            _put_foo_beside("runpath", "$ORIGIN/more"),
        ),
        Situation(
            "cudnn-needs-foo-rpath",
            "transitive",
            "…and RPATH ${ORIGIN}/more finds it",
            _put_foo_beside("rpath", "${ORIGIN}/more"),
        ),
        Situation(
            "cudnn-needs-foo-wrong-runpath",
            "transitive",
            "…and its RUNPATH leads elsewhere",
            _put_foo_beside("runpath", "$ORIGIN/less"),
        ),
        Situation(
            "cudnn-needs-foo-empty", "transitive", "libfoo.so.1 is an empty file", _make_cudnn_need("empty")
        ),
        Situation(
            "cudnn-needs-bar-by-foo",
            "transitive",
            "two steps away: libfoo needs libbar",
            _make_two_steps("none"),
        ),
        Situation(
            "cudnn-needs-bar-rpath-of-cudnn",
            "transitive",
            "cudnn's RPATH serves libfoo's needs",
            _make_two_steps("rpath"),
        ),
        Situation(
            "cudnn-needs-bar-runpath-of-cudnn",
            "transitive",
            "cudnn's RUNPATH does not",
            _make_two_steps("runpath"),
        ),
        Situation(
            "cudnn-needs-bar-already-loaded",
            "transitive",
            "libbar came with cudnn itself",
            _make_two_steps("loaded"),
        ),
        Situation(
            "cudnn-undefined-symbol",
            "transitive",
            "libcudnn wants a function nobody has",
            _make_undefined_symbol,
        ),
        Situation("cudnn-needs-newer-glibc", "transitive", "libcudnn wants GLIBC_2.99", _require_newer_glibc),
        Situation("cudnn-needs-slash", "transitive", "DT_NEEDED holds a path", _require_path),
    ]
    if target.opens("cublas"):
        listed += [
            Situation(
                "cublas-needs-lt",
                "transitive",
                "libcublas needs its libcublasLt, which is not there",
                _make_cublas_need_lt("gone"),
                True,
            ),
            Situation(
                "cublas-needs-lt-runpath",
                "transitive",
                "libcublasLt only where libcublas's RUNPATH leads",
                _make_cublas_need_lt("runpath"),
            ),
            Situation(
                "cublas-needs-lt-present",
                "transitive",
                "both are on the path",
                _make_cublas_need_lt("present"),
            ),
        ]
    if target.opens("cusolver") and target.opens("cublas"):
        listed.append(
            Situation(
                "cusolver-needs-absent-cublas",
                "transitive",
                "one missing library fails two",
                _make_cusolver_need_cublas,
            )
        )
    return listed


def _make_cudnn_need(foo: str | None) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        folder = b.add_everything(without=["cudnn"])
        b.add_library(folder, b.target.soname("cudnn"), needs=["libfoo.so.1"])
        if foo == "empty":
            standins.write_empty(folder / "libfoo.so.1")

    return prepare


def _put_foo_beside(tag: str | None, value: str | None) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        folder = b.add_everything(without=["cudnn"])
        options: dict[str, Any] = {"needs": ["libfoo.so.1"]}
        if tag:
            options[tag] = value
        b.add_library(folder, b.target.soname("cudnn"), **options)
        standins.write_library(folder / "more" / "libfoo.so.1", b.cache)

    return prepare


def _make_two_steps(how: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        folder = b.add_everything(without=["cudnn"])
        more = folder / "more"
        options: dict[str, Any] = {"needs": ["libfoo.so.1"]}
        if how in {"rpath", "runpath"}:
            options[how] = "$ORIGIN/more"
        if how == "loaded":
            options = {"needs": ["libbar.so.1", "libfoo.so.1"], "runpath": "$ORIGIN/more"}
        b.add_library(folder, b.target.soname("cudnn"), **options)
        standins.write_library(
            (folder if how == "none" else more) / "libfoo.so.1", b.cache, needs=["libbar.so.1"]
        )
        if how != "none":
            standins.write_library(more / "libbar.so.1", b.cache)

    return prepare


def _make_undefined_symbol(b: Bench) -> None:
    folder = b.add_everything(without=["cudnn"])
    b.add_library(folder, b.target.soname("cudnn"), imports=["nobody_has_this"])


def _require_newer_glibc(b: Bench) -> None:
    folder = b.add_everything(without=["cudnn"])
    b.add_library(
        folder, b.target.soname("cudnn"), needs=["libc.so.6"], imports=["from_the_future@GLIBC_2.99"]
    )


def _require_path(b: Bench) -> None:
    folder = b.add_everything(without=["cudnn"])
    real = standins.write_library(folder / "more" / "libfoo.so.1", b.cache)
    b.add_library(folder, b.target.soname("cudnn"), needs=[str(real)])


def _lt_soname(target: Target) -> str:
    if target.opens("cublasLt"):
        return target.soname("cublasLt")
    return target.soname("cublas").replace("libcublas", "libcublasLt")


def _make_cublas_need_lt(how: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        lt = _lt_soname(b.target)
        folder = b.add_everything(without=["cublas", "cublasLt"])
        options: dict[str, Any] = {"runpath": "$ORIGIN/lt"} if how == "runpath" else {}
        b.add_library(folder, b.target.soname("cublas"), needs=[lt], **options)
        if how != "gone":
            b.add_library(folder / "lt" if how == "runpath" else folder, lt)

    return prepare


def _make_cusolver_need_cublas(b: Bench) -> None:
    folder = b.add_everything(without=["cublas", "cusolver"])
    b.add_library(folder, b.target.soname("cusolver"), needs=[b.target.soname("cublas")])


# -- Damaged files --------------------------------------------------------------------------------


def _write_damaged(kind: str, path: Path, good: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "empty":
        standins.write_empty(path)
    elif kind == "wrong-class":
        standins.write_wrong_class(path)
    elif kind == "wrong-machine":
        standins.write_wrong_machine(path)
    elif kind == "text":
        standins.write_linker_script(path)
    elif kind == "short":
        standins.write_truncated(path, good, 40)
    elif kind == "header-only":
        standins.write_truncated(path, good, 64)
    elif kind == "first-kilobyte":
        standins.write_truncated(path, good, 1024)
    elif kind == "half":
        standins.write_truncated(path, good, good.stat().st_size // 2)
    elif kind == "directory":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere.so")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "folder-is-a-file":
        path.parent.rmdir()
        path.parent.write_text("", encoding="utf-8")
    elif kind == "not-executable":
        shutil.copyfile(good, path)
        path.chmod(0o444)
    elif kind == "zeros":
        path.write_bytes(bytes(4096))
    else:
        raise ValueError(kind)


DAMAGES = (
    "empty",
    "wrong-class",
    "wrong-machine",
    "text",
    "short",
    "header-only",
    "first-kilobyte",
    "half",
    "directory",
    "dangling",
    "loop",
    "folder-is-a-file",
    "not-executable",
    "zeros",
)


def _list_broken(target: Target) -> list[Situation]:
    victim = "cudnn" if target.opens("cudnn") else stem(target.required[0])
    core = {"empty", "wrong-class", "text"}
    listed = []
    for kind in DAMAGES:
        listed.append(
            Situation(
                f"{victim}-{kind}-first",
                "broken",
                "a bad file on the path before the good one",
                _put_damaged_first(victim, kind, alone=False),
                kind in core,
            )
        )
        if kind not in {"folder-is-a-file"}:
            listed.append(
                Situation(
                    f"{victim}-{kind}",
                    "broken",
                    "only the bad file",
                    _put_damaged_first(victim, kind, alone=True),
                    kind in core,
                )
            )
    listed += [
        Situation(
            f"{victim}-empty-last", "broken", "the good file before the bad one", _put_damaged_last(victim)
        ),
        Situation(
            "cudart-empty-first",
            "broken",
            "the library that is opened at import, too",
            _put_damaged_first("cudart", "empty", alone=False),
        ),
        Situation(
            f"{victim}-no-soname", "broken", "a library without DT_SONAME", _use_odd_soname(victim, "")
        ),
        Situation(
            f"{victim}-other-soname",
            "broken",
            "a library with another DT_SONAME",
            _use_odd_soname(victim, "libother.so.1"),
        ),
        Situation(
            f"{victim}-symlink", "broken", "libX.so.N -> libX.so.N.1.2, as installed", _use_symlink(victim)
        ),
    ]
    return listed


def _put_damaged_first(name: str, kind: str, *, alone: bool) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        soname = b.target.soname(name)
        good = b.add_library(b.root / "aside", soname)
        _write_damaged(kind, b.root / "bad" / soname, good)
        b.path.append(str(b.root / "bad"))
        b.add_everything(without=[name] if alone else [])

    return prepare


def _put_damaged_last(name: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_everything()
        standins.write_empty(b.root / "bad" / b.target.soname(name))
        b.path.append(str(b.root / "bad"))

    return prepare


def _use_odd_soname(name: str, soname: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        folder = b.add_everything(without=[name])
        b.add_library(folder, b.target.soname(name), soname=soname)

    return prepare


def _use_symlink(name: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        folder = b.add_everything(without=[name])
        soname = b.target.soname(name)
        built = b.add_library(b.root / "store", soname, needs=["libfoo.so.1"], runpath="$ORIGIN")
        built.rename(built.with_name(soname + ".1.2"))
        (folder / soname).symlink_to(f"../store/{soname}.1.2")
        standins.write_library(folder / "more" / "libfoo.so.1", b.cache)
        standins.write_library(b.root / "store" / "libfoo.so.1", b.cache)

    return prepare


# -- The driver ------------------------------------------------------------------------------------

INIT_ERRORS = (3, 34, 35, 36, 46, 100, 101, 802, 803, 804, 999)


def _list_driver() -> list[Situation]:
    listed = [
        Situation(
            "no-driver", "driver", "neither libcuda nor NVML; all the libraries", _leave_out_driver, True
        ),
        Situation("no-driver-no-libraries", "driver", "nothing at all", discard, True),
        Situation("no-libcuda", "driver", "NVML without libcuda", _choose_drivers(cuda=False, nvml=True)),
        Situation("no-nvml", "driver", "libcuda without NVML", _choose_drivers(cuda=True, nvml=False), True),
        Situation("libcuda-empty", "driver", "an empty libcuda.so.1", _use_bad_driver("empty"), True),
        Situation(
            "libcuda-wrong-class-first",
            "driver",
            "a 32-bit libcuda.so.1, then the good one",
            _use_bad_driver("wrong-class", good=True),
        ),
        Situation(
            "libcuda-dangling", "driver", "libcuda.so.1 is a dangling symlink", _use_bad_driver("dangling")
        ),
        Situation(
            "libcuda-dangling-first",
            "driver",
            "…and then the good one",
            _use_bad_driver("dangling", good=True),
        ),
        Situation(
            "libcuda-unversioned", "driver", "libcuda.so without libcuda.so.1", _use_unversioned_libcuda
        ),
        Situation(
            "stub-first",
            "driver",
            "the toolkit's stub as libcuda.so.1 before the driver",
            _use_stub("first"),
            True,
        ),
        Situation("stub-last", "driver", "the stub after the driver", _use_stub("last")),
        Situation("stub-alone", "driver", "the stub and no driver", _use_stub("alone")),
        Situation(
            "stub-unversioned",
            "driver",
            "lib64/stubs/libcuda.so as installed, no driver",
            _use_stub("unversioned"),
        ),
        Situation("nvml-empty", "driver", "an empty libnvidia-ml.so.1", _use_bad_nvml),
        Situation(
            "nvml-init-9", "driver", "nvmlInit: driver not loaded", _set_variables({"STANDIN_NVML_INIT": "9"})
        ),
        Situation(
            "nvml-init-18",
            "driver",
            "nvmlInit: driver/library mismatch",
            _set_variables({"STANDIN_NVML_INIT": "18"}),
        ),
        Situation(
            "nvml-init-999", "driver", "nvmlInit: unknown error", _set_variables({"STANDIN_NVML_INIT": "999"})
        ),
        Situation(
            "driver-cuda-9", "driver", "a driver for CUDA 9.0", _set_variables({"STANDIN_CUDA": "9000"})
        ),
        Situation(
            "driver-cuda-0",
            "driver",
            "a driver that says it is for CUDA 0",
            _set_variables({"STANDIN_CUDA": "0"}),
        ),
        Situation(
            "attributes-fail-999",
            "driver",
            "cuDeviceGetAttribute fails",
            _set_variables({"STANDIN_ATTRIBUTE": "999"}),
        ),
        Situation(
            "context-fails-2", "driver", "no context: out of memory", _set_variables({"STANDIN_CTX": "2"})
        ),
        Situation(
            "context-fails-46",
            "driver",
            "no context: device unavailable",
            _set_variables({"STANDIN_CTX": "46"}),
        ),
    ]
    listed += [
        Situation(
            f"init-{code}",
            "driver",
            f"cuInit returns {code}",
            _set_variables({"STANDIN_INIT": str(code)}),
            code in {100, 803, 804, 999},
        )
        for code in INIT_ERRORS
    ]
    return listed


def _set_variables(env: Mapping[str, str]) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_everything()
        b.env.update(env)

    return prepare


def _leave_out_driver(b: Bench) -> None:
    b.path.append(str(b.add_libraries()))


def _choose_drivers(*, cuda: bool, nvml: bool) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_driver(cuda=cuda, nvml=nvml)
        b.path.append(str(b.add_libraries()))

    return prepare


def _use_bad_driver(kind: str, *, good: bool = False) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        intact = standins.write_driver(b.root / "aside", b.cache) / standins.CUDA
        _write_damaged(kind, b.root / "bad" / standins.CUDA, intact)
        b.path.append(str(b.root / "bad"))
        b.add_driver(cuda=good)
        b.path.append(str(b.add_libraries()))

    return prepare


def _use_bad_nvml(b: Bench) -> None:
    standins.write_empty(b.root / "bad" / standins.NVML)
    b.path.append(str(b.root / "bad"))
    b.add_everything()


def _use_unversioned_libcuda(b: Bench) -> None:
    folder = b.add_driver()
    (folder / standins.CUDA).rename(folder / "libcuda.so")
    b.path.append(str(b.add_libraries()))


def _use_stub(how: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        stubs = b.root / "lib64" / "stubs"
        standins.write_stub_driver(stubs / "libcuda.so", b.cache)
        if how != "unversioned":
            (stubs / standins.CUDA).symlink_to("libcuda.so")
        if how != "last":
            b.path.append(str(stubs))
        b.add_driver(cuda=how in {"first", "last"})
        if how == "last":
            b.path.append(str(stubs))
        b.path.append(str(b.add_libraries()))

    return prepare


# -- Devices ---------------------------------------------------------------------------------------

VISIBLE = {
    "empty": "",
    "minus-one": "-1",
    "0-7-1": "0,7,1",
    "1-0": "1,0",
    "1": "1",
    "abc": "abc",
    "uuid": UUIDS[1],
    "uuid-prefix": "GPU-02",
    "uuid-ambiguous": "GPU-",
    "uuid-unknown": "GPU-ff",
    "uuids": f"{UUIDS[1]},{UUIDS[0]}",
    "uuid-then-index": f"{UUIDS[0]},1",
    "index-then-uuid": f"0,{UUIDS[1]}",
    "space-0": " 0",
    "0-space-1": "0 ,1",
    "0-comma-space-1": "0, 1",
    "no-dev-files": "NoDevFiles",
    "0-0": "0,0",
    "0-minus-1-1": "0,-1,1",
    "trailing-comma": "0,",
    "leading-comma": ",0",
    "0gpu": "0gpu",
    "0-abc": "0,abc",
    "all": "all",
    "none": "none",
    "void": "void",
    "7": "7",
    "quoted": '"0"',
    "plus-1": "+1",
    "hex": "0x1",
    "space": " ",
    "semicolon": "0;1",
    "lower-uuid": UUIDS[0].lower(),
}


def _list_devices() -> list[Situation]:
    core_visible = {"empty", "minus-one", "0-7-1", "1-0", "abc", "uuid"}
    listed = [
        Situation(
            f"gpus-{count}", "devices", f"{count} GPUs", _set_variables({"STANDIN_GPUS": str(count)}), True
        )
        for count in (0, 1, 2, 4)
    ]
    two = {"STANDIN_GPUS": "2", "STANDIN_NAME": "First;Second"}
    listed += [
        Situation(
            f"visible-{name}",
            "devices",
            f"2 GPUs, CUDA_VISIBLE_DEVICES={value!r}",
            _set_variables({**two, "CUDA_VISIBLE_DEVICES": value}),
            name in core_visible,
        )
        for name, value in VISIBLE.items()
    ]
    cards = {
        "cc-30": ("1", "30", "132", True),
        "cc-35": ("1", "35", "132", False),
        "cc-37": ("1", "37", "132", False),
        "cc-50": ("1", "50", "132", False),
        "cc-52": ("1", "52", "132", False),
        "cc-60": ("1", "60", "132", False),
        "cc-120": ("1", "120", "132", False),
        "cc-80-30": ("2", "80,30", "132", True),
        "cc-30-80": ("2", "30,80", "132", False),
        "cc-20": ("1", "20", "132", False),
        "mp-132-2": ("2", "80", "132,2", False),
        "mp-2-132": ("2", "80", "2,132", False),
        "mp-2": ("1", "80", "2", False),
        "mp-8-7": ("2", "80", "8,7", False),
        "mp-7-7": ("2", "80", "7,7", False),
        "mp-132-8": ("2", "80", "132,8", False),
        "mp-132-7": ("2", "80", "132,7", False),
    }
    listed += [
        Situation(
            name,
            "devices",
            f"{gpus} GPUs, compute capability {cc}, {mp} multiprocessors",
            _set_variables({"STANDIN_GPUS": gpus, "STANDIN_CC": cc, "STANDIN_MP": mp}),
            core,
        )
        for name, (gpus, cc, mp, core) in cards.items()
    ]
    listed.append(
        Situation("tiny-memory", "devices", "a GPU with 64 MiB", _set_variables({"STANDIN_MEM_MIB": "64"}))
    )
    return listed


# -- Forms of LD_LIBRARY_PATH ---------------------------------------------------------------------


def _list_search_path(target: Target) -> list[Situation]:
    forms: dict[str, tuple[str, str]] = {
        # name: (LD_LIBRARY_PATH, description); {d} is the driver, {c} the libraries, {x} a missing folder
        "path-empty-entry": ("{d}::{x}", "an empty entry is the current directory, which has the libraries"),
        "path-leading-colon": (":{d}", "a leading colon likewise"),
        "path-trailing-colon": ("{d}:", "a trailing colon likewise"),
        "path-dot": ("{d}:.", "a dot"),
        "path-semicolon": ("{d};{c}", "semicolons separate too"),
        "path-trailing-slash": ("{d}/:{c}///", "slashes at the end"),
        "path-nonexistent": ("{x}:{d}:{x}/y:{c}", "folders that are not there"),
        "path-origin": (
            "{d}:$ORIGIN/{up}/cuda",
            "$ORIGIN, which for LD_LIBRARY_PATH is the program's folder",
        ),
        "path-origin-braces": ("{d}:${{ORIGIN}}/{up}/cuda", "${ORIGIN}"),
        "path-lib-token": ("{d}:{r}/token/$LIB", "$LIB"),
        "path-tilde": ("{d}:~/cuda", "a tilde is not expanded by the loader"),
        "path-space": ("{d}: {c}", "a space before a folder belongs to its name"),
        "path-with-space": ("{d}:{r}/with space", "a folder with a space in it"),
        "path-is-file": ("{d}:{d}/libcuda.so.1:{c}", "an entry that is a file"),
        "path-long": ("{d}:" + "/nowhere" * 200 + ":{c}", "an entry longer than any path"),
        "path-dotdot": ("{d}:{c}/../cuda", "dots inside"),
        "path-symlink": ("{d}:{r}/link", "a folder reached through a symlink"),
    }
    listed = [Situation(name, "path", about, _set_search_path(form)) for name, (form, about) in forms.items()]
    listed += [
        Situation(
            "path-relative",
            "path",
            "a folder relative to the current directory",
            _set_search_path("{d}:cuda", at_root=True),
        ),
        Situation(
            "program-rpath",
            "path",
            "conda: the libraries where python's own RPATH leads",
            _use_program("rpath"),
        ),
        Situation("program-runpath", "path", "a python with RUNPATH instead", _use_program("runpath")),
        Situation(
            "hwcaps-only",
            "path",
            "libcudnn only in glibc-hwcaps/x86-64-v2",
            _use_hwcaps("glibc-hwcaps/x86-64-v2", "only"),
        ),
        Situation(
            "hwcaps-broken",
            "path",
            "a broken one in glibc-hwcaps/x86-64-v2",
            _use_hwcaps("glibc-hwcaps/x86-64-v2", "broken"),
        ),
        Situation(
            "hwcaps-v4-broken",
            "path",
            "a broken one in glibc-hwcaps/x86-64-v4",
            _use_hwcaps("glibc-hwcaps/x86-64-v4", "broken"),
        ),
        Situation(
            "hwcaps-unknown",
            "path",
            "libcudnn only in glibc-hwcaps/z99",
            _use_hwcaps("glibc-hwcaps/z99", "only"),
        ),
        Situation("legacy-tls", "path", "libcudnn only in tls/", _use_hwcaps("tls", "only")),
        Situation("legacy-haswell", "path", "libcudnn only in haswell/", _use_hwcaps("haswell", "only")),
        Situation("legacy-x86_64", "path", "libcudnn only in x86_64/", _use_hwcaps("x86_64", "only")),
    ]
    return listed


def _set_search_path(form: str, *, at_root: bool = False) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        folder = b.add_everything()
        b.cwd = b.root if at_root else folder
        (b.root / "with space").symlink_to(folder)
        (b.root / "link").symlink_to(folder)
        token = b.root / "token"
        for name in ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"):
            (token / name).mkdir(parents=True)
            for path in folder.iterdir():
                shutil.copyfile(path, token / name / path.name)
        program = Path(os.path.realpath(b.interpreter)).parent
        up = os.path.relpath(b.root, program)
        b.raw_path = form.format(d=b.root / "driver", c=folder, x=b.root / "nowhere", r=b.root, up=up)

    return prepare


def _use_program(tag: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_driver()
        environment = b.program(**{tag: "$ORIGIN/../lib"})
        b.add_libraries(environment / "lib")

    return prepare


def _use_hwcaps(sub: str, how: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        soname = b.target.soname("cudnn")
        folder = b.add_everything(without=["cudnn"] if how == "only" else [])
        if how == "only":
            b.add_library(folder / sub, soname)
        else:
            standins.write_empty(folder / sub / soname)

    return prepare


# -- Preloaded libraries -----------------------------------------------------------------------


def _list_preloaded(target: Target) -> list[Situation]:
    return [
        Situation("preload-all", "preloaded", "LD_PRELOAD of every library by its path", _use_preload("all")),
        Situation(
            "preload-by-soname",
            "preloaded",
            "LD_PRELOAD of a file with another name and the right soname",
            _use_preload("renamed"),
        ),
        Situation(
            "preload-no-soname",
            "preloaded",
            "LD_PRELOAD of the right name without a soname",
            _use_preload("no-soname"),
        ),
        Situation(
            "preload-missing",
            "preloaded",
            "LD_PRELOAD of something that is not there",
            _use_preload("missing"),
        ),
        Situation(
            "preload-wrong-order",
            "preloaded",
            "LD_PRELOAD of a good one, an empty one on the path",
            _use_preload("guards"),
        ),
        Situation(
            "sitecustomize-cdll",
            "preloaded",
            "sitecustomize opens every library with ctypes",
            _use_sitecustomize,
        ),
    ]


def _use_preload(how: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_driver()
        if how == "missing":
            b.path.append(str(b.add_libraries()))
            b.env["LD_PRELOAD"] = str(b.root / "nowhere.so")
            return
        if how == "all":
            folder = b.add_libraries()
            b.env["LD_PRELOAD"] = ":".join(str(folder / name) for name in b.target.required)
            return
        soname = b.target.soname("cudnn")
        b.path.append(str(b.add_libraries(without=["cudnn"])))
        if how == "guards":
            standins.write_empty(b.root / "bad" / soname)
            b.path.insert(0, str(b.root / "bad"))
        aside = b.root / "aside"
        built = b.add_library(aside, soname, soname="" if how == "no-soname" else soname)
        if how == "renamed":
            built = built.rename(aside / "anything.so")
        b.env["LD_PRELOAD"] = str(built)

    return prepare


def _use_sitecustomize(b: Bench) -> None:
    b.add_driver()
    folder = b.add_libraries()
    code = "import ctypes\n" + "".join(f"ctypes.CDLL({str(folder / name)!r})\n" for name in b.target.required)
    (b.root / "custom").mkdir()
    (b.root / "custom" / "sitecustomize.py").write_text(code, encoding="utf-8")
    b.env["PYTHONPATH"] = str(b.root / "custom")


# -- TensorFlow's variables--------------------------------------------------------------------------


def _list_switches() -> list[Situation]:
    mixed = {"STANDIN_GPUS": "2", "STANDIN_MP": "132,2"}
    switches = {
        "min-mp-1": {**mixed, "TF_MIN_GPU_MULTIPROCESSOR_COUNT": "1"},
        "min-mp-2": {**mixed, "TF_MIN_GPU_MULTIPROCESSOR_COUNT": "2"},
        "min-mp-200": {**mixed, "TF_MIN_GPU_MULTIPROCESSOR_COUNT": "200"},
        "min-mp-200-one-gpu": {"TF_MIN_GPU_MULTIPROCESSOR_COUNT": "200"},
        "min-mp-abc": {**mixed, "TF_MIN_GPU_MULTIPROCESSOR_COUNT": "abc"},
        "min-mp-empty": {**mixed, "TF_MIN_GPU_MULTIPROCESSOR_COUNT": ""},
        "min-mp-0": {**mixed, "TF_MIN_GPU_MULTIPROCESSOR_COUNT": "0"},
        "allow-growth": {"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
        "device-order-pci": {"STANDIN_GPUS": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        "device-order-nonsense": {"STANDIN_GPUS": "2", "CUDA_DEVICE_ORDER": "NONSENSE"},
        "xla-devices": {"TF_XLA_FLAGS": "--tf_xla_enable_xla_devices"},
        "xla-flags-unknown": {"XLA_FLAGS": "--no_such_flag"},
        "per-process-memory": {"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
        "misspelt-visible": {"CUDA_VISIBLE_DEVIES": "-1"},
        "nvidia-visible": {"NVIDIA_VISIBLE_DEVICES": "void"},
        "hip-visible": {"HIP_VISIBLE_DEVICES": "-1"},
        "rocr-visible": {"ROCR_VISIBLE_DEVICES": "-1"},
        "virtual-device-list": {"TF_GPU_VISIBLE_DEVICE_LIST": "-1", "VISIBLE_DEVICE_LIST": "-1"},
        "device-schedule-nonsense": {"TF_CUDA_PLATFORM_GPU_DEVICE_SCHEDULE": "nonsense"},
        "device-types-cpu": {"TF_ENABLED_DEVICE_TYPES": "CPU"},
        "device-types-gpu": {"TF_ENABLED_DEVICE_TYPES": "GPU"},
        "device-types-cpu-gpu": {"TF_ENABLED_DEVICE_TYPES": "CPU,GPU"},
        "device-types-lower": {"TF_ENABLED_DEVICE_TYPES": "cpu,gpu"},
        "device-types-spaces": {"TF_ENABLED_DEVICE_TYPES": "CPU, GPU"},
        "device-types-empty": {"TF_ENABLED_DEVICE_TYPES": ""},
        "device-types-xla": {"TF_ENABLED_DEVICE_TYPES": "XLA_GPU"},
        "mps-pipe": {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"},
        "bind-now": {"LD_BIND_NOW": "1"},
    }
    return [
        Situation(
            f"switch-{name}", "switches", " ".join(f"{k}={v}" for k, v in env.items()), _set_variables(env)
        )
        for name, env in switches.items()
    ]


# -- System-wide changes, in a separate mount namespace -----------------------------------------


def _list_system_wide(target: Target) -> list[Situation]:
    return [
        Situation(
            "cache-all", "system", "every library and the driver in /etc/ld.so.cache alone", _use_cache("all")
        ),
        Situation(
            "cache-libraries",
            "system",
            "the driver on the path, the libraries in the cache",
            _use_cache("libraries"),
        ),
        Situation("cache-stale", "system", "the cache names files that are gone", _use_cache("stale")),
        Situation(
            "cache-path-empty-file",
            "system",
            "in the cache; an empty file on LD_LIBRARY_PATH",
            _use_cache("empty-on-path"),
        ),
        Situation(
            "cache-path-wrong-class",
            "system",
            "in the cache; a 32-bit file on LD_LIBRARY_PATH",
            _use_cache("class-on-path"),
        ),
        Situation(
            "cache-broken", "system", "libcudnn in the cache became an empty file", _use_cache("became-empty")
        ),
        Situation(
            "conf-without-cache",
            "system",
            "ld.so.conf names the folder, nobody ran ldconfig",
            _use_cache("not-run"),
        ),
        Situation(
            "cache-gone", "system", "no cache, the libraries on LD_LIBRARY_PATH", _use_cache("no-cache")
        ),
        Situation("default-folder", "system", "the libraries in /usr/lib", _use_default_folder),
    ]


def _use_cache(how: str) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        soname = b.target.soname("cudnn")
        folder = b.add_libraries()
        if how == "all":
            standins.write_driver(folder, b.cache)
        else:
            b.add_driver()
        conf, cache = b.root / "ld.so.conf", b.root / "ld.so.cache"
        listed = "" if how in {"not-run", "no-cache"} else f"{folder}\n"
        conf.write_text(f"{listed}include /etc/ld.so.conf.d/*.conf\n", encoding="utf-8")
        subprocess.run(["/sbin/ldconfig", "-X", "-f", str(conf), "-C", str(cache)], check=True, timeout=60)
        lines = [f"mount --bind {cache} /etc/ld.so.cache"]
        if how == "not-run":
            conf.write_text(f"{folder}\ninclude /etc/ld.so.conf.d/*.conf\n", encoding="utf-8")
        if how != "no-cache":
            lines.append(f"mount --bind {conf} /etc/ld.so.conf")
        else:
            lines = ["mount --bind /dev/null /etc/ld.so.cache"]
            b.path.append(str(folder))
        if how == "stale":
            shutil.rmtree(folder)
        if how == "became-empty":
            standins.write_empty(folder / soname)
        if how == "empty-on-path":
            standins.write_empty(b.root / "bad" / soname)
            b.path.insert(0, str(b.root / "bad"))
        if how == "class-on-path":
            standins.write_wrong_class(b.root / "bad" / soname)
            b.path.insert(0, str(b.root / "bad"))
        b.private_mounts(*lines)

    return prepare


def _use_default_folder(b: Bench) -> None:
    b.add_driver()
    folder = b.add_libraries()
    b.private_mounts(
        f"mkdir -p {b.root}/over {b.root}/layers",
        f"mount -t tmpfs none {b.root}/layers && mkdir {b.root}/layers/up {b.root}/layers/work",
        f"cp -a {folder}/. {b.root}/layers/up/",
        f"cd {b.root}/layers",
        "mount -t overlay overlay -o lowerdir=/usr/lib,upperdir=up,workdir=work /usr/lib",
    )
