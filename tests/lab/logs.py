"""Real logs: what TensorFlow prints in the situations of the lab, the truth, and what `diagnose` must report.

`LogRun` holds one run: the log as a user has it (default verbosity) or as `tfdoctor run` gets it (TensorFlow names
every library), and the truth that TensorFlow reported beside the log. `find_differences` compares; `expected` returns the
right causes. Nothing here derives the truth from a log.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.compat import Compat
from tfdoctor.logs.report import diagnose_log
from tfdoctor.render.log import make_log_json

from . import standins
from .situations import Bench, Situation, Target, can_mount, situations
from .truth import CHILD, Truth, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

KERNEL = "570.86.15"
"""Version of the kernel module and in the stand-in's file name, the same as on a healthy machine."""
NAMELESS = (2, 12)
"""First release that by default does not name the libraries it could not open."""
_LIBRARIES = frozenset({"libs-not-installed", "libs-wrong-version", "libs-not-on-path"})
"""Causes that a log can seldom tell apart.

`diagnose` names one and lists the others as not ruled out.
"""
_CREATED_DEVICE = re.compile(
    r"device: (?P<index>\d+), name: (?P<name>.*?), pci bus id: (?P<pci>[\w:.]+)"
    r"(?:, compute capability: (?P<cc>[\d.]+))?"
)

# The right causes if no GPU is registered, for each situation with a log of its own.
_CAUSES: Mapping[str, frozenset[str]] = {
    "all-present": frozenset(),
    "gpus-2": frozenset(),
    "cc-80-30": frozenset({"gpu-too-old"}),
    "cc-30": frozenset({"gpu-too-old"}),
    "cc-120": frozenset({"gpu-too-new"}),
    "mp-132-2": frozenset(),
    "visible-0-7-1": frozenset(),
    "switch-device-types-cpu": frozenset({"inconclusive"}),
    "visible-empty": frozenset({"hidden-by-env", "no-device"}),
    "visible-minus-one": frozenset({"hidden-by-env", "no-device"}),
    "visible-abc": frozenset({"hidden-by-env", "no-device"}),
    "gpus-0": frozenset({"no-device"}),
    "all-missing": frozenset({"libs-not-installed"}),
    "older-major": _LIBRARIES,
    "cudnn-needs-foo": frozenset({"libs-transitive"}),
    "cublas-needs-lt": frozenset({"libs-transitive"}),
    "cudnn-empty": frozenset({"damaged-file"}),
    "no-driver": frozenset({"no-driver"}),
    "no-driver-no-libraries": frozenset({"no-driver"}),
    "no-libcuda": frozenset({"no-driver"}),
    "no-nvml": frozenset({"nvml-missing", "inconclusive"}),
    "nvml-init-18": frozenset({"driver-lib-mismatch", "nvml-missing", "inconclusive"}),
    "libcuda-empty": frozenset({"container-no-gpu", "no-driver", "container-driver-libs"}),
    "stub-alone": frozenset({"stub-libcuda"}),
    "stub-unversioned": frozenset({"no-driver"}),
    "init-3": frozenset({"driver-init-unknown"}),
    "init-34": frozenset({"stub-libcuda"}),
    "init-35": frozenset({"driver-too-old"}),
    "init-36": frozenset({"driver-too-old"}),
    "init-46": frozenset({"gpu-busy-other-process"}),
    "init-100": frozenset({"no-device"}),
    "init-101": frozenset({"driver-init-unknown", "hidden-by-env", "no-device"}),
    "init-802": frozenset({"driver-init-unknown"}),
    "init-803": frozenset({"driver-lib-mismatch"}),
    "init-804": frozenset({"compat-not-supported"}),
    "init-999": frozenset({"driver-init-unknown"}),
    "attributes-fail-999": frozenset({"driver-init-unknown"}),
    "context-fails-2": frozenset({"gpu-busy-other-process", "oom"}),
    "context-fails-46": frozenset({"gpu-busy-other-process"}),
    # Situations that are defined below, for their logs only.
    "another-cuda": frozenset({"libs-wrong-version"}),
    "runtime-35": frozenset({"driver-too-old"}),
    "runtime-46": frozenset({"gpu-busy-other-process"}),
    "kernel-differs": frozenset({"driver-lib-mismatch"}),
    "kernel-missing": frozenset({"no-driver", "no-device"}),
}
_WITHOUT_MODULE = frozenset(
    {
        "no-driver",
        "no-driver-no-libraries",
        "no-libcuda",
        "libcuda-empty",
        "stub-unversioned",
        "kernel-missing",
    }
)
"""Situations in which no kernel module is loaded."""
_ABOUT_MODULE = (
    "init-",
    "kernel-",
    "stub-alone",
    "gpus-0",
    "visible-empty",
    "visible-minus-one",
    "visible-abc",
)
"""Situations in which TensorFlow's diagnostics look for the kernel module."""
_DRIVERLESS = frozenset(
    {"no-driver", "no-driver-no-libraries", "no-libcuda", "libcuda-empty", "stub-unversioned"}
)


@dataclass(frozen=True, slots=True)
class LogRun:
    """One run of TensorFlow: its log, and the truth about it."""

    situation: str
    tensorflow: str
    named: bool
    """Whether TensorFlow names the libraries that it could not open."""
    causes: frozenset[str]
    """Causes of which `diagnose` must name one."""
    registered: bool
    devices: tuple[tuple[int, str, str, str | None], ...] | None
    """(index, name, PCI id, compute capability) of each GPU that was created.

    None if creation failed.
    """
    missing: tuple[str, ...]
    """The libraries that the log must name as missing, sorted."""
    log: str
    error: str | None = None
    silent: bool = False
    """Whether the log may be silent, so that "inconclusive" is also right."""


def log_situations(target: Target) -> list[Situation]:
    """Return the situations with a log of their own, including those with one missing library."""
    by_name = {situation.name: situation for situation in situations(target)}
    extra = [
        Situation("another-cuda", "logs", "LD_LIBRARY_PATH names another CUDA", _with_another_cuda),
        Situation(
            "runtime-35", "logs", "the runtime says that the driver is too old", _with_runtime_error(35)
        ),
        Situation("runtime-46", "logs", "the runtime says that the card is taken", _with_runtime_error(46)),
        Situation("kernel-differs", "logs", "an update of the driver without a reboot", _with_other_kernel),
        Situation("kernel-missing", "logs", "libcuda without the kernel's module", _with_init(100)),
    ]
    by_name |= {situation.name: situation for situation in extra}
    if target.hard_linked:
        # The runtime is called too early there, and a real cuDNN does not need libfoo.
        for name in ("runtime-35", "runtime-46", "cudnn-needs-foo"):
            del by_name[name]
    if not can_mount():  # without a kernel module the log would be about that
        by_name = {
            name: situation for name, situation in by_name.items() if not name.startswith(_ABOUT_MODULE)
        }
    names = [name for name in _CAUSES if name in by_name]
    return [by_name[name] for name in (*names, *(key for key in by_name if key.startswith("without-")))]


def _with_another_cuda(b: Bench) -> None:
    b.add_driver()
    folder = b.root / "cuda-5.5" / "lib64"
    for soname in b.target.required:
        standins.write_library(folder / (soname.partition(".so")[0] + ".so.5.5"), b.cache)
    b.path.append(str(folder))


def _with_init(code: int) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_everything()
        b.env["STANDIN_INIT"] = str(code)

    return prepare


def _with_runtime_error(code: int) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.add_everything()
        b.env["STANDIN_RUNTIME"] = str(code)

    return prepare


def _with_other_kernel(b: Bench) -> None:
    _with_init(803)(b)
    _mount_machine(b, kernel="565.57.01")


def _mount_machine(b: Bench, kernel: str = KERNEL) -> None:
    """Provide a loaded kernel module and device nodes, which TensorFlow's diagnostics look for."""
    nvrm = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {kernel}  Thu Jan 23 03:13:01 UTC 2025"
    b.private_mounts(
        "mount -t tmpfs none /proc/driver",
        "mkdir /proc/driver/nvidia",
        f"printf '%s\\n' '{nvrm}' 'GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)' > /proc/driver/nvidia/version",
        f"mkdir {b.root}/dev && mount -t tmpfs none {b.root}/dev",
        f"cp -a /dev/null /dev/zero /dev/random /dev/urandom {b.root}/dev/",
        f"mkdir {b.root}/dev/shm && touch {b.root}/dev/nvidia0 {b.root}/dev/nvidiactl",
        f"mount --bind {b.root}/dev /dev",
    )


def _rename_driver(b: Bench) -> None:
    """Put the driver's version into its file name, from which TensorFlow reads it."""
    soname = b.root / "driver" / standins.CUDA
    if soname.exists() and not soname.is_symlink():
        soname.rename(soname.with_name(f"libcuda.so.{KERNEL}"))
        soname.symlink_to(f"libcuda.so.{KERNEL}")


def print_log(
    target: Target, situation: Situation, cache: Path, *, verbose: bool, quick: bool = True
) -> LogRun:
    """Set up a situation, run TensorFlow until it has created its devices, and return the result."""
    whole = target if target.hard_linked else replace(target, symbols=standins.RUNTIME)
    root = Path(tempfile.mkdtemp(prefix="lab-")).resolve()
    try:
        bench = Bench(whole, root, cache)
        situation.prepare(bench)
        _rename_driver(bench)
        if not bench.prefix and situation.name not in _WITHOUT_MODULE and can_mount():
            _mount_machine(bench)
        if target.version < (2, 4):  # a GPU that these releases have code for
            bench.env["STANDIN_CC"] = bench.env.get("STANDIN_CC", "70").replace("80", "70")
        truth = observe(
            bench.interpreter,
            bench.environment(),
            cwd=bench.cwd or root,
            session=target.hard_linked,
            quick=quick and not _needs_python_import(target, situation.name),
            prefix=bench.prefix,
            verbose=verbose,
            make=True,
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    log = truth.log + (truth.error or "")
    for old, new in ((str(root), "/opt/lab"), (str(target.root), "/opt/env")):
        log = log.replace(old, new)
    return make_expectation(target, situation.name, replace(truth, log=log), verbose=verbose)


def _needs_python_import(target: Target, situation: str) -> bool:
    """Return whether TensorFlow's messages come from its Python code, not from its native code.

    Without a driver, the native code of 2.12 and 2.13 reports only that there is no TensorRT.
    """
    if situation in _DRIVERLESS:
        return (2, 12) <= target.version < (2, 14)
    return situation == "attributes-fail-999"


def report_run(target: Target, situation: Situation, cache: Path) -> str:
    """Return the report of `tfdoctor run` on a program that lists its devices, without the program's output."""
    root = Path(tempfile.mkdtemp(prefix="lab-")).resolve()
    try:
        bench = Bench(target, root, cache)
        situation.prepare(bench)
        program = [str(bench.interpreter), "-c", CHILD, str(root / "answer.json")]
        if target.hard_linked:  # the child does not print the ImportError
            program = [str(bench.interpreter), "-c", "import tensorflow"]
        done = subprocess.run(
            [*bench.prefix, sys.executable, "-m", "tfdoctor", "run", "--", *program],
            env={**bench.environment(), "TFDOCTOR_LAB_QUICK": "1"},
            cwd=bench.cwd or root,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.stderr.partition("Diagnosis:")[2]
    finally:
        shutil.rmtree(root, ignore_errors=True)


def make_expectation(target: Target, situation: str, truth: Truth, *, verbose: bool) -> LogRun:
    """Return the truth about one run and what `diagnose` must report about its log."""
    named = verbose or target.version < NAMELESS
    silent = _is_silent(target, situation, truth, named=named)
    devices = None if truth.made is None else tuple(_parse_device(text) for text in truth.made)
    registered = bool(devices)
    return LogRun(
        situation=situation,
        tensorflow=".".join(map(str, target.version)),
        named=named,
        causes=expected(target, situation, registered=registered, named=named)
        | ({"inconclusive"} if silent and situation != "cc-30" else frozenset()),
        registered=registered,
        devices=devices,
        missing=tuple(_list_missing(target, situation)) if named and not silent else (),
        log=truth.log,
        error=truth.error or truth.crashed,
        silent=silent,
    )


def _is_silent(target: Target, situation: str, truth: Truth, *, named: bool) -> bool:
    """Return whether this TensorFlow prints nothing about the problem, so that "inconclusive" is also right.

    2.12 to 2.17 are silent without a driver, 2.21 without NVML. A process that crashes may not report the
    reason.
    """
    if situation in _DRIVERLESS and not named:
        return target.version < (2, 18)
    if situation in {"no-nvml", "nvml-init-18"}:
        return target.version >= (2, 21) and not (named and situation == "no-nvml")
    if situation == "switch-device-types-cpu":
        return not truth.made
    if situation == "cc-30":  # from 2.5 on it names the ignored GPU only
        return target.version >= (2, 5)
    if situation == "attributes-fail-999":  # 1.14 crashes; 2.2 and 2.3 raise a TypeError of their own
        return truth.crashed == "SIGSEGV" or (2, 2) <= target.version < (2, 4)
    return False


def _parse_device(text: str) -> tuple[int, str, str, str | None]:
    match = _CREATED_DEVICE.match(text)
    if match is None:
        raise ValueError(text)
    return int(match["index"]), match["name"], match["pci"], match["cc"]


def _list_missing(target: Target, situation: str) -> list[str]:
    """Return the libraries that the situation leaves out, known from its setup and not from a log."""
    required = list(target.required)
    if situation.startswith("without-"):
        return [target.soname(situation.removeprefix("without-"))]
    if situation in {"all-missing", "older-major", "another-cuda"}:
        return required
    if situation in {"no-driver", "no-libcuda", "libcuda-empty", "stub-unversioned"}:
        return [standins.CUDA]
    if situation == "no-driver-no-libraries":
        return [standins.CUDA, *required]
    if situation == "cudnn-empty":
        return [target.soname("cudnn")]
    if situation == "cudnn-needs-foo":
        return ["libfoo.so.1"]
    if situation == "cublas-needs-lt":
        opens_lt = target.opens("cublasLt")
        lt = target.soname("cublasLt") if opens_lt else target.soname("cublas").replace("cublas", "cublasLt")
        return [lt]
    if situation == "no-nvml" and target.version >= (2, 21):
        return [standins.NVML]
    return []


def expected(target: Target, situation: str, *, registered: bool, named: bool) -> frozenset[str]:
    """Return the causes of which `diagnose` must name one."""
    if registered:
        return frozenset({"healthy", "gpu-too-new"} if situation == "cc-120" else {"healthy"})
    if situation.startswith("without-"):
        causes = _LIBRARIES if situation != "without-cudnn" else frozenset({"cudnn-missing"})
    else:
        causes = _CAUSES[situation]
    if situation == "no-driver-no-libraries" and (target.hard_linked or not named):
        causes |= {"import-missing-cuda-lib"} if target.hard_linked else {"libs-unlisted"}
    is_about_libraries = bool(causes & (_LIBRARIES | {"cudnn-missing", "libs-transitive"}))
    if is_about_libraries and target.hard_linked:
        return frozenset({"import-missing-cuda-lib", *(causes & {"libs-transitive"})})
    if (is_about_libraries or "damaged-file" in causes) and not named:
        return frozenset({"libs-unlisted"})
    return causes


def find_differences(answer: Mapping[str, Any], printed: LogRun) -> list[str]:
    """Return how `diagnose --json` of the log differs from the truth."""
    differences = []
    cause, registered = answer["verdict"]["cause"], answer["gpu_registered"]
    if cause not in printed.causes:
        differences.append(f"cause: said {cause}, is {' or '.join(sorted(printed.causes))}")
    if registered is not printed.registered and not (registered is None and printed.silent):
        differences.append(f"gpu_registered: said {registered}, is {printed.registered}")
    reported = [
        (device["index"], device["name"], device["pci_bus_id"].lower()) for device in answer["devices"]
    ]
    # The index in the log is TensorFlow's own, from 0; that in the description is the driver's.
    created = [(index, name, pci.lower()) for index, (_, name, pci, _) in enumerate(printed.devices or ())]
    if reported != created and not (registered is None and printed.silent):
        differences.append(f"devices: said {reported}, are {created}")
    if not _has_missing(answer["missing_libraries"], printed):
        differences.append(f"missing: said {answer['missing_libraries']}, are {list(printed.missing)}")
    era = answer["era"]
    if era is not None and not _is_within(printed.tensorflow, era):
        differences.append(f"era: said {era}, is {printed.tensorflow}")
    return differences


def find_disagreements(printed: LogRun) -> list[str]:
    """Return the errors of `diagnose` about a log.

    If no GPU is registered, the same log is tried again with the program's own line that there is no GPU.
    """
    differences = find_differences(diagnose_text(printed.log), printed)
    if not printed.registered and printed.situation != "switch-device-types-cpu":
        answer = diagnose_text(printed.log + "\nNum GPUs Available:  0\n")
        right_causes = printed.causes | ({"no-driver", "inconclusive"} if printed.silent else set())
        if answer["verdict"]["cause"] not in right_causes or answer["gpu_registered"] is not False:
            differences.append(f"listed: said {answer['verdict']['cause']}, {answer['gpu_registered']}")
    return differences


def diagnose_text(log: str) -> dict[str, Any]:
    """Return the JSON answer of `diagnose` for a log."""
    return make_log_json(diagnose_log([log.encode()], Compat.load()))


def _has_missing(reported: Iterable[str], printed: LogRun) -> bool:
    reported = sorted(reported)
    if printed.silent and not reported:
        return True
    if reported == sorted(printed.missing):
        return True
    # An ImportError names only the first library; without a driver TensorFlow does not try to open all.
    first_only = "import-missing-cuda-lib" in printed.causes or printed.situation == "no-driver-no-libraries"
    return bool(reported) and first_only and set(reported) <= set(printed.missing)


def _is_within(version: str, era: str) -> bool:
    low, _, high = era.rstrip("+").partition("-")
    return minor(low) <= minor(version) and (era.endswith("+") or minor(version) <= minor(high or low))


def minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


_VERBOSE_SITUATIONS = frozenset(
    {
        "all-present",
        "all-missing",
        "older-major",
        "cudnn-needs-foo",
        "cublas-needs-lt",
        "cudnn-empty",
        "no-driver",
    }
    | {"no-nvml"}
)
"""Situations that are also run with TensorFlow told to name libraries, from 2.12 on."""


def print_all(target: Target, cache: Path, *, only: Iterable[str] = (), quick: bool = True) -> list[LogRun]:
    """Run every situation once, and return the results.

    If TensorFlow does not name libraries by default but the situation is about them, run it a second time
    with the names.
    """
    selected = set(only)
    jobs = []
    for situation in log_situations(target):
        if selected and situation.name not in selected:
            continue
        jobs.append((situation, False))
        if target.version >= NAMELESS and (
            situation.name in _VERBOSE_SITUATIONS or situation.name.startswith("without-")
        ):
            jobs.append((situation, True))
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda job: print_log(target, job[0], cache, verbose=job[1], quick=quick), jobs))
