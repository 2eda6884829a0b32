"""Environments that a script breaks as users break them, so that `check` can name the problem and `fix` repair it.

Each starts from a base (broken_env.py), is broken, repaired, and restored from a snapshot that is independent of
tfdoctor (restoring.py). mending.py runs these steps.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import standins
from .hiding import (
    add_foreign_startup_file,
    add_startup_file,
    leave_half_removed_cuda,
    make_conda_like,
    preload_stub,
    put_on_path,
    shadow_tensorflow,
    use_foreign_libstdcxx,
    use_text_libstdcxx,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .broken_env import Env


@dataclass(frozen=True, slots=True)
class Broken:
    """One way to break an environment."""

    name: str
    base: str
    description: str
    break_it: Callable[[Env], None]
    codes: tuple[str, ...]
    """Codes that `check` must report, perhaps among others."""
    cause: str | None = None
    """The cause in the verdict before `fix`; None if it is not checked (a warning)."""
    mendable: bool = True
    """Whether `fix` can repair it."""
    why_not: str = ""
    """The reason if it is not mendable."""
    confirm: str = "registers"
    """What real TensorFlow must do after the repair.

    "registers": register all GPUs; "with-driver": register them once there is a driver.
    """
    works_before: bool = False
    """Whether TensorFlow registers the GPUs although the environment is broken (something fails later)."""
    capability: str = "8.0"
    cheap: bool = False
    """Whether it is part of the short list."""
    informs: tuple[str, ...] = ()
    """The `codes` that are only informative and may remain after the repair."""
    whole: bool = False
    """Whether only a whole `import tensorflow` shows the problem; otherwise the native code is enough."""


# -- Breakages ---------------------------------------------------------------------------------------


def leave_unchanged(_env: Env) -> None:
    """Leave the environment as pip installs it, which is broken already."""


def _each(*steps: Callable[[Env], None]) -> Callable[[Env], None]:
    def break_it(env: Env) -> None:
        for step in steps:
            step(env)

    return break_it


def delete_library(pattern: str) -> Callable[[Env], None]:
    """Return a function that deletes a library's file and keeps its distribution."""
    return lambda env: env.library(pattern).unlink()


def install_over(*arguments: str) -> Callable[[Env], None]:
    """Return a function that installs packages over the present ones."""
    return lambda env: env.install(*arguments)


def uninstall_packages(*names: str) -> Callable[[Env], None]:
    """Return a function that uninstalls packages."""
    return lambda env: env.uninstall(*names)


def truncate_library(pattern: str) -> Callable[[Env], None]:
    """Return a function that cuts off the second half of a library."""

    def break_it(env: Env) -> None:
        path = env.library(pattern)
        content = path.read_bytes()
        path.unlink()  # never in place, because uv's cache shares the file
        path.write_bytes(content[: len(content) // 2])

    return break_it


def replace_library(pattern: str, content: bytes) -> Callable[[Env], None]:
    """Return a function that replaces a library with other content."""

    def break_it(env: Env) -> None:
        path = env.library(pattern)
        path.unlink()
        path.write_bytes(content)

    return break_it


def remove_cuda_wheels(env: Env) -> None:
    """Remove the CUDA wheels, as after `pip install tensorflow` without the extra."""
    env.uninstall(*env.cuda_wheels())


def create_dangling_symlink(env: Env) -> None:
    """Create the symlink that web pages recommend for 2.21, with a target that no longer exists."""
    link = env.library("cusparse/lib") / "libcusolver.so.11"
    link.symlink_to("../../cusolver-old/lib/libcusolver.so.11")


def interrupt_uninstall(env: Env) -> None:
    """Leave the state of an interrupted `pip uninstall`: renamed folders and missing files."""
    site = env.site
    (site / "~ensorflow").mkdir()
    for name in ("core", "libtensorflow_cc.so.2"):
        (site / "tensorflow" / name).rename(site / "~ensorflow" / name)


def install_cpu_over_gpu(version: str) -> Callable[[Env], None]:
    """Return a function that installs tensorflow-cpu over tensorflow; the files of the last one count."""
    return install_over("--no-deps", f"tensorflow-cpu=={version}")


def install_cpu_package_only(env: Env) -> None:
    """Install tensorflow-cpu instead of tensorflow."""
    env.uninstall("tensorflow")
    env.install("--no-deps", "tensorflow-cpu==2.20.0")


def install_and_remove_cpu_package(env: Env) -> None:
    """Install tensorflow-cpu over tensorflow and uninstall it, which removes most files."""
    env.install("--no-deps", "tensorflow-cpu==2.20.0")
    env.uninstall("tensorflow-cpu")


def install_other_cuda(major: str, cudnn: str) -> Callable[[Env], None]:
    """Return a function that installs the CUDA wheels of another major version."""

    def break_it(env: Env) -> None:
        env.uninstall(*env.cuda_wheels())
        parts = ("cuda-runtime", "cublas", "cufft", "curand", "cusolver", "cusparse")
        env.install(*(f"nvidia-{part}-{major}" for part in parts), f"nvidia-cudnn-{major}=={cudnn}")

    return break_it


def shadow_library(name: str, *, by: str) -> Callable[[Env], None]:
    """Return a function that shadows a library with an empty file in a folder on LD_LIBRARY_PATH.

    by: who sets the variable, "activate", "conda" or "caller".
    """

    def break_it(env: Env) -> None:
        folder = env.folder("old-cuda/lib64")
        standins.write_empty(folder / name)
        put_on_path(env, folder, by)

    return break_it


def put_older_cuda_first(env: Env) -> None:
    """Put an older cuFFT, in the layout of the CUDA toolkit, first on the search path in bin/activate."""
    folder = env.folder("cuda-12.0/lib64")
    standins.write_library(folder / "libcufft.so.11.0.0.21", env.cache, soname="libcufft.so.11")
    (folder / "libcufft.so.11").symlink_to("libcufft.so.11.0.0.21")
    put_on_path(env, folder, "activate")


def put_stubs_first(*, by: str) -> Callable[[Env], None]:
    """Return a function that puts the toolkit's stubs on LD_LIBRARY_PATH.

    A symlink makes the stub libcuda.so.1. by: who sets the variable, as in `shadow_library`.
    """

    def break_it(env: Env) -> None:
        folder = env.folder("cuda/lib64/stubs")
        standins.write_stub_driver(folder / "libcuda.so", env.cache)
        (folder / standins.CUDA).symlink_to("libcuda.so")
        put_on_path(env, folder, by)

    return break_it


def hide_gpus_in_conda(env: Env) -> None:
    """Hide the GPUs in an activation script of conda, among other lines."""
    make_conda_like(env)
    script = env.root / "etc/conda/activate.d/gpu.sh"
    script.write_text("#!/bin/sh\nexport MY_PROJECT=1\nexport CUDA_VISIBLE_DEVICES=-1\n", encoding="utf-8")


def append_to_activate(*lines: str) -> Callable[[Env], None]:
    """Return a function that appends lines to bin/activate."""
    return lambda env: env.append_to_activate(*lines)


def hide_gpus_in_sourced_file(env: Env) -> None:
    """Hide the GPUs in a file outside the environment that bin/activate sources."""
    script = env.folder("dot files") / "gpu.sh"
    script.write_text("export CUDA_VISIBLE_DEVICES=\n", encoding="utf-8")
    env.append_to_activate(f". {shlex.quote(str(script))}")


def shadow_in_two_lines(env: Env) -> None:
    """Set LD_LIBRARY_PATH in one line and export it in another, with a good folder in it, too."""
    bad, good = env.folder("old-cuda/lib64"), env.folder("my libs")
    standins.write_empty(bad / "libcufft.so.11")
    env.append_to_activate(f'LD_LIBRARY_PATH="{good}:{bad}"', "export LD_LIBRARY_PATH")


def misspell_variable(env: Env) -> None:
    """Set the misspelt LD_LIBARY_PATH to the right folders."""
    folders = ":".join(sorted(str(path) for path in env.site.glob("nvidia/*/lib")))
    env.append_to_activate(f'export LD_LIBARY_PATH={shlex.quote(folders)}:"$LD_LIBARY_PATH"')


CUDA_11_0 = (
    *("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10", "libcurand.so.10"),
    *("libcusolver.so.10", "libcusparse.so.11", "libcudnn.so.8"),
)
"""The libraries that TensorFlow 2.4 opens; no wheel contains them."""


def use_toolkit(env: Env) -> None:
    """Put a toolkit outside the environment on the caller's LD_LIBRARY_PATH."""
    env.variables["LD_LIBRARY_PATH"] = str(env.create_stand_ins(*CUDA_11_0, folder="cuda-11.0/lib64"))


def use_cuda_11_2(env: Env) -> None:
    """Put CUDA 11.2, whose cuSOLVER has another soname than in 11.0, on the caller's LD_LIBRARY_PATH."""
    names = (name for name in CUDA_11_0 if not name.startswith("libcusolver"))
    env.variables["LD_LIBRARY_PATH"] = str(
        env.create_stand_ins(*names, "libcusolver.so.11", folder="cuda-11.2/lib64")
    )


def remove_driver(env: Env) -> None:
    """Remove the driver of the machine."""
    env.driver = False


def set_variables(**variables: str) -> Callable[[Env], None]:
    """Return a function that sets variables of the caller's shell, which the stand-in driver reads, too."""
    return lambda env: env.variables.update(variables)


_TOO_NEW_CUDNN = "nvidia-cudnn-cu12==9.11.0.98"

BROKEN: tuple[Broken, ...] = (
    # -- 2.21, which pip leaves broken
    Broken(
        "221-as-pip-leaves-it", "2.21", "cuSOLVER is not on the RUNPATH of what opens it", leave_unchanged,
        ("TFD203",), "libs-not-on-path", cheap=True,
    ),
    Broken(
        "221-dangling-cure", "2.21", "a link of an old cure that leads nowhere", create_dangling_symlink,
        ("TFD203",), "libs-not-on-path",
    ),
    Broken(
        "221-cublas-file-gone", "2.21", "two faults: as pip leaves it, and a library's file deleted",
        delete_library("cublas/lib/libcublas.so.12"), ("TFD201",),
    ),
    Broken("221-no-cuda", "2.21", "plain tensorflow", remove_cuda_wheels, ("TFD201",), "libs-not-installed"),
    # -- 2.20: libraries
    Broken(
        "cublas-file-gone", "2.20", "a library's file deleted, its distribution there",
        delete_library("cublas/lib/libcublas.so.12"), ("TFD201",), "libs-not-installed",
    ),
    Broken(
        "cufft-wheel-gone", "2.20", "a CUDA wheel uninstalled", uninstall_packages("nvidia-cufft-cu12"),
        ("TFD201",), "libs-not-installed", cheap=True,
    ),
    Broken("no-cuda", "2.20", "plain tensorflow", remove_cuda_wheels, ("TFD201",), "libs-not-installed"),
    Broken(
        "cudnn-8", "2.20", "cuDNN of another major", install_over("--no-deps", "nvidia-cudnn-cu12==8.9.7.29"),
        ("TFD206",), "cudnn-version-mismatch",
    ),
    Broken(
        "cudnn-gone", "2.20", "cuDNN uninstalled", uninstall_packages("nvidia-cudnn-cu12"),
        ("TFD205",), "cudnn-missing",
    ),
    Broken(
        "cudnn-too-new-for-pascal", "2.20", "cuDNN 9.11 has no code for compute capability 6.1",
        install_over("--no-deps", _TOO_NEW_CUDNN), ("TFD110",), None, works_before=True, capability="6.1",
    ),
    Broken(
        "cu11-wheels", "2.20", "CUDA 11 wheels for a CUDA 12 TensorFlow", install_other_cuda("cu11", "8.9.6.50"),
        ("TFD202",), "libs-wrong-version",
    ),
    Broken(
        "nvjitlink-file-gone", "2.20", "what cuSOLVER and cuSPARSE need themselves is deleted",
        delete_library("nvjitlink/lib/libnvJitLink.so.12"), ("TFD204",), "libs-transitive",
    ),
    Broken(
        "nvjitlink-wheel-gone", "2.20", "…and its wheel uninstalled", uninstall_packages("nvidia-nvjitlink-cu12"),
        ("TFD204",), "libs-transitive",
    ),
    Broken(
        "cufft-truncated", "2.20", "half a library", truncate_library("cufft/lib/libcufft.so.11"), ("TFD209",),
        "damaged-file",
    ),
    Broken(
        "cusparse-is-text", "2.20", "a linker script in place of a library",
        replace_library("cusparse/lib/libcusparse.so.12", b"/* GNU ld script */\nINPUT ( /nowhere )\n"),
        ("TFD209",),
    ),
    Broken(
        "cudnn-empty", "2.20", "an empty file, which a full disk leaves",
        replace_library("cudnn/lib/libcudnn.so.9", b""), ("TFD209",),
    ),
    Broken(
        "cudnn-part-gone", "2.20", "one of the libraries that cuDNN opens itself is deleted",
        delete_library("cudnn/lib/libcudnn_ops.so.9"), ("TFD205",), "cudnn-missing", works_before=True,
    ),
    Broken(
        "nccl-gone", "2.20", "NCCL uninstalled, which registration does not ask for",
        uninstall_packages("nvidia-nccl-cu12"), (), "healthy", works_before=True, whole=True,
    ),
    Broken(
        "nvcc-gone", "2.20", "the wheel with ptxas and libdevice uninstalled",
        uninstall_packages("nvidia-cuda-nvcc-cu12"), ("TFD208",), None, works_before=True,
    ),
    # -- 2.20: packages
    Broken(
        "cpu-over-gpu", "2.20", "tensorflow-cpu over tensorflow", install_cpu_over_gpu("2.20.0"),
        ("TFD304",), "both-packages",
    ),
    Broken(
        "cpu-over-gpu-removed", "2.20", "…and removed again", install_and_remove_cpu_package, ("TFD311",), whole=True,
    ),
    Broken("cpu-alone", "2.20", "tensorflow-cpu alone", install_cpu_package_only, ("TFD303",), "cpu-only-build"),
    Broken("half-deleted", "2.20", "an interrupted pip uninstall", interrupt_uninstall, ("TFD312",), whole=True),
    Broken(
        "protobuf-4", "2.20", "protobuf older than the code in TensorFlow",
        install_over("--no-deps", "protobuf==4.25.3"), ("TFD307",), "protobuf-conflict", whole=True, cheap=True,
    ),
    Broken(
        "wrapt-gone", "2.20", "a package that TensorFlow needs uninstalled", uninstall_packages("wrapt"),
        ("TFD312",), whole=True,
    ),
    Broken(
        "two-faults", "2.20", "an import that fails, and behind it a library that is gone",
        _each(delete_library("cublas/lib/libcublas.so.12"), install_over("--no-deps", "protobuf==4.25.3")),
        ("TFD307", "TFD201"), "protobuf-conflict", whole=True,
    ),
    # -- 2.20: variables
    Broken(
        "shadowed-by-activate", "2.20", "bin/activate names a folder with a broken cuDNN first",
        shadow_library("libcudnn.so.9", by="activate"), ("TFD209",),
    ),
    Broken(
        "shadowed-by-caller", "2.20", "the caller's shell does", shadow_library("libcudnn.so.9", by="caller"),
        ("TFD209",),
    ),
    Broken(
        "shadowed-by-conda", "2.20", "a script in etc/conda/activate.d does",
        shadow_library("libcublas.so.12", by="conda"), ("TFD209",),
    ),
    Broken(
        "shadowed-in-two-lines", "2.20", "bin/activate sets it anew, and exports it in a line of its own",
        shadow_in_two_lines, ("TFD209",),
    ),
    Broken(
        "older-by-activate", "2.20", "bin/activate names an older CUDA first, which opens", put_older_cuda_first,
        ("TFD210",), None, works_before=True,
    ),
    Broken(
        "stubs-by-activate", "2.20", "bin/activate names the stubs first", put_stubs_first(by="activate"),
        ("TFD107",), "stub-libcuda",
    ),
    Broken(
        "stubs-by-caller", "2.20", "the caller's shell does", put_stubs_first(by="caller"),
        ("TFD107",), "stub-libcuda",
    ),
    Broken(
        "hidden-by-activate", "2.20", "CUDA_VISIBLE_DEVICES=-1 in bin/activate",
        append_to_activate("export CUDA_VISIBLE_DEVICES=-1"), ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-alone-in-an-if", "2.20", "…as the only command of an `if`",
        append_to_activate("if true; then", "    export CUDA_VISIBLE_DEVICES=-1", "fi"), ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-among-others", "2.20", "…between other variables in one line",
        append_to_activate("export MY_A=1 CUDA_VISIBLE_DEVICES='-1' MY_B=2; export MY_C=3"), ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-by-sourced-file", "2.20", "…empty, in a file that bin/activate reads", hide_gpus_in_sourced_file,
        ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-by-conda", "2.20", "…in a script of conda's activation", hide_gpus_in_conda,
        ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-by-sitecustomize", "2.20", "…in sitecustomize.py",
        add_startup_file("sitecustomize.py", "import os", "", 'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"'),
        ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-by-pth", "2.20", "…empty, in a .pth file",
        add_startup_file("gpus.pth", "import os; os.environ.setdefault('CUDA_VISIBLE_DEVICES','')"),
        ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-by-imported-module", "2.20", "…in a module that a .pth file imports, as all that an `if` has",
        _each(
            add_startup_file("company.pth", "import company_defaults"),
            add_startup_file(
                "company_defaults.py", "import os", "if os.name == 'posix':",
                "    os.environ['CUDA_VISIBLE_DEVICES'] = 'NoDevFiles'",
            ),
        ),
        ("TFD601",), "hidden-by-env",
    ),
    Broken(
        "hidden-by-foreign-sitecustomize", "2.20", "…in a sitecustomize.py outside the environment",
        add_foreign_startup_file, ("TFD601",), "hidden-by-env",
        mendable=False, why_not="the file is not the environment's own",
    ),
    Broken(
        "half-removed-cuda-by-activate", "2.20", "bin/activate names what is left of a CUDA 11.8",
        leave_half_removed_cuda(by="activate"), ("TFD204",), "libs-transitive",
    ),
    Broken(
        "half-removed-cuda-by-caller", "2.20", "the caller's shell does", leave_half_removed_cuda(by="caller"),
        ("TFD204",), "libs-transitive",
    ),
    Broken(
        "stub-preloaded", "2.20", "bin/activate preloads the stub", preload_stub,
        ("TFD107",), "stub-libcuda",
    ),
    Broken(
        "foreign-libstdcxx", "2.20", "bin/activate names a C++ library without symbols", use_foreign_libstdcxx,
        ("TFD309",), "libstdcxx-too-old", whole=True,
    ),
    Broken(
        "libstdcxx-is-text", "2.20", "…one that is a text file", use_text_libstdcxx,
        ("TFD312",), "damaged-file", whole=True,
    ),
    Broken(
        "other-tensorflow-by-activate", "2.20", "PYTHONPATH in bin/activate brings tensorflow-cpu",
        shadow_tensorflow(by="activate"), ("TFD703",), "shadowed-module", whole=True,
    ),
    Broken(
        "other-tensorflow-by-caller", "2.20", "PYTHONPATH in the caller's shell does",
        shadow_tensorflow(by="caller"), ("TFD703",), "shadowed-module", whole=True,
    ),
    Broken(
        "hidden-by-caller", "2.20", "…in the caller's shell", set_variables(CUDA_VISIBLE_DEVICES="-1"),
        ("TFD601",), "hidden-by-env",
        mendable=False, why_not="the caller's shell sets it",
    ),
    Broken(
        "hidden-by-scheduler", "2.20", "…empty, in a job of Slurm's that asked for no GPU",
        set_variables(CUDA_VISIBLE_DEVICES="", SLURM_JOB_ID="7"), ("TFD601",), "hidden-by-env",
        mendable=False, why_not="a scheduler gives the cards",
    ),
    # -- 2.15
    Broken(
        "215-cudnn-9", "2.15", "cuDNN 9, where 8 is opened", install_over("--no-deps", "nvidia-cudnn-cu12==9.3.0.75"),
        ("TFD206",), "cudnn-version-mismatch",
    ),
    Broken(
        "215-numpy-2", "2.15", "NumPy 2", install_over("--no-deps", "numpy==2.0.2"),
        ("TFD306",), "numpy-abi", whole=True,
    ),
    Broken(
        "215-cusolver-gone", "2.15", "cuSOLVER and what it needs uninstalled",
        uninstall_packages("nvidia-cusolver-cu12", "nvidia-nvjitlink-cu12"), ("TFD201",),
    ),
    # -- 2.10, whose wheels nothing connects
    Broken(
        "210-hidden-by-sitecustomize", "2.10", "sitecustomize.py hides the GPUs, and the wheels are not connected",
        add_startup_file("sitecustomize.py", "import os", "os.environ.update(CUDA_VISIBLE_DEVICES='-1')"),
        ("TFD203", "TFD601"), "hidden-by-env",
    ),
    Broken(
        "210-as-pip-leaves-it", "2.10", "wheels that the loader is not told of", leave_unchanged,
        ("TFD203",), "libs-not-on-path",
    ),
    Broken(
        "210-misspelt", "2.10", "LD_LIBARY_PATH in bin/activate", misspell_variable, ("TFD203", "TFD602"),
        "libs-not-on-path",
    ),
    Broken(
        "210-protobuf-5", "2.10", "today's protobuf, and the wheels not connected",
        install_over("--no-deps", "protobuf==5.29.5"), ("TFD307",), "protobuf-conflict", whole=True,
    ),
    Broken(
        "210-numpy-2", "2.10", "NumPy 2, and the wheels not connected", install_over("--no-deps", "numpy==2.0.2"),
        ("TFD306",), "numpy-abi", whole=True,
    ),
    Broken(
        "210-gpu-over", "2.10", "tensorflow-gpu over tensorflow", install_over("--no-deps", "tensorflow-gpu==2.10.1"),
        ("TFD203", "TFD304"), "libs-not-on-path", informs=("TFD304",),
    ),
    Broken(
        "210-absl-gone", "2.10", "absl-py uninstalled, and the wheels not connected", uninstall_packages("absl-py"),
        ("TFD312",), whole=True,
    ),
    Broken(
        "210-h5py-gone", "2.10", "h5py uninstalled, without which it can be imported", uninstall_packages("h5py"),
        ("TFD203",), "libs-not-on-path", whole=True,
    ),
    Broken(
        "210-cu12-wheels", "2.10", "CUDA 12 wheels for a CUDA 11 TensorFlow", install_other_cuda("cu12", "8.9.7.29"),
        ("TFD202",), "libs-wrong-version",
    ),
    # -- 2.4, for whose CUDA there are no wheels
    Broken(
        "24-protobuf-4", "2.4", "protobuf 4",
        _each(use_toolkit, install_over("--no-deps", "protobuf==4.25.3")),
        ("TFD307",), "protobuf-conflict", whole=True,
    ),
    Broken(
        "24-numpy-1.24", "2.4", "NumPy 1.24", _each(use_toolkit, install_over("--no-deps", "numpy==1.24.4")),
        ("TFD306",), "numpy-abi", whole=True,
    ),
    Broken(
        "24-six-gone", "2.4", "six uninstalled", _each(use_toolkit, uninstall_packages("six")),
        ("TFD312",), whole=True,
    ),
    Broken(
        "24-cuda-11.2", "2.4", "CUDA 11.2, for a TensorFlow of CUDA 11.0", use_cuda_11_2, ("TFD202",),
        "libs-wrong-version", mendable=False, why_not="there are no wheels of CUDA 11.0",
    ),
    Broken(
        "24-no-toolkit", "2.4", "CUDA 11.0 is nowhere, and in no wheel", leave_unchanged, ("TFD201",),
        "libs-not-installed", mendable=False, why_not="there are no wheels of CUDA 11.0",
    ),
    # -- Not mendable by software
    Broken(
        "no-driver", "2.20", "no driver", remove_driver, ("TFD101",), "no-driver",
        mendable=False, why_not="a driver is installed by root",
    ),
    Broken(
        "driver-too-old", "2.20", "a driver for CUDA 11.4", set_variables(STANDIN_CUDA="11040"), ("TFD103",),
        None, mendable=False, why_not="a driver is installed by root", works_before=True,
    ),
    Broken(
        "gpu-too-old", "2.20", "compute capability 3.0", leave_unchanged, ("TFD110",), "gpu-too-old",
        mendable=False, why_not="no TensorFlow of this Python has code for the card", capability="3.0",
    ),
    Broken(
        "221-no-driver", "2.21", "no driver, and as pip leaves it", remove_driver, ("TFD101", "TFD203"), "no-driver",
        confirm="with-driver",
    ),
)  # fmt: skip
