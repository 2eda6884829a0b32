"""Real logs: what TensorFlow prints in the situations of the lab, what was true there, and what `diagnose` must say.

`Printed` holds one run: the log as a user has it (default verbosity) or as `tfdoctor run` makes it (TensorFlow names
every library), and the truth that TensorFlow told beside the log. `problems` compares; `expected` says which causes
are right. Nothing here reads a log to learn what is true.
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
from tfdoctor.render.log import log_json

from . import standins
from .situations import Bench, Situation, Target, can_mount, situations
from .truth import CHILD, Truth, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

KERNEL = "570.86.15"
"""The version of the kernel module and of the stand-in's file, as on a machine in order."""
NAMELESS = (2, 12)
"""From here on TensorFlow names no library that it could not open, unless it is told to."""
_LIBRARIES = frozenset({"libs-not-installed", "libs-wrong-version", "libs-not-on-path"})
"""A log seldom tells these three apart; `diagnose` names one and lists the others as not ruled out."""
_MADE = re.compile(
    r"device: (?P<index>\d+), name: (?P<name>.*?), pci bus id: (?P<pci>[\w:.]+)"
    r"(?:, compute capability: (?P<cc>[\d.]+))?"
)

# Situations of the lab that make a log of their own -> the causes that are right where no GPU is registered.
_HERE: Mapping[str, frozenset[str]] = {
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
    # Those that exist for their log alone, below.
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
"""Where no kernel module is loaded."""
_ABOUT_MODULE = (
    "init-",
    "kernel-",
    "stub-alone",
    "gpus-0",
    "visible-empty",
    "visible-minus-one",
    "visible-abc",
)
"""Where TensorFlow's diagnostics look for the module."""
_NO_DRIVER = frozenset(
    {"no-driver", "no-driver-no-libraries", "no-libcuda", "libcuda-empty", "stub-unversioned"}
)


@dataclass(frozen=True, slots=True)
class Printed:
    """One run of TensorFlow: its log, and what is true of it."""

    situation: str
    tensorflow: str
    named: bool
    """Whether TensorFlow names the libraries that it could not open."""
    causes: frozenset[str]
    """Those of which one must be named."""
    registered: bool
    devices: tuple[tuple[int, str, str, str | None], ...] | None
    """(index, name, PCI id, compute capability) of each GPU that was made; None where none could be made."""
    missing: tuple[str, ...]
    """What the log must name as missing; sorted."""
    log: str
    error: str | None = None
    silent: bool = False
    """Whether the log may say nothing, and "could not be known" is an answer as well."""


def log_situations(target: Target) -> list[Situation]:
    """The situations that make a log of their own, with those of one library missing."""
    listed = {one.name: one for one in situations(target)}
    extra = [
        Situation("another-cuda", "logs", "LD_LIBRARY_PATH names another CUDA", _another_cuda),
        Situation("runtime-35", "logs", "the runtime says that the driver is too old", _runtime(35)),
        Situation("runtime-46", "logs", "the runtime says that the card is taken", _runtime(46)),
        Situation("kernel-differs", "logs", "an update of the driver without a reboot", _kernel_differs),
        Situation("kernel-missing", "logs", "libcuda without the kernel's module", _with_init(100)),
    ]
    listed |= {one.name: one for one in extra}
    if target.hard_linked:
        # The runtime's answers come too early there; libfoo is no library that a real cuDNN needs.
        for name in ("runtime-35", "runtime-46", "cudnn-needs-foo"):
            del listed[name]
    if not can_mount():  # without a kernel module TensorFlow says so, and that is what the log is about then
        listed = {name: one for name, one in listed.items() if not name.startswith(_ABOUT_MODULE)}
    names = [name for name in _HERE if name in listed]
    return [listed[name] for name in (*names, *(n for n in listed if n.startswith("without-")))]


def _another_cuda(b: Bench) -> None:
    b.driver()
    folder = b.root / "cuda-5.5" / "lib64"
    for soname in b.target.required:
        standins.library(folder / (soname.partition(".so")[0] + ".so.5.5"), b.cache)
    b.path.append(str(folder))


def _with_init(code: int) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.everything()
        b.env["STANDIN_INIT"] = str(code)

    return prepare


def _runtime(code: int) -> Callable[[Bench], None]:
    def prepare(b: Bench) -> None:
        b.everything()
        b.env["STANDIN_RUNTIME"] = str(code)

    return prepare


def _kernel_differs(b: Bench) -> None:
    _with_init(803)(b)
    _machine(b, kernel="565.57.01")


def _machine(b: Bench, kernel: str = KERNEL) -> None:
    """Give the child a loaded kernel module and device nodes: TensorFlow's diagnostics look for both."""
    said = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {kernel}  Thu Jan 23 03:13:01 UTC 2025"
    b.private_mounts(
        "mount -t tmpfs none /proc/driver",
        "mkdir /proc/driver/nvidia",
        f"printf '%s\\n' '{said}' 'GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)' > /proc/driver/nvidia/version",
        f"mkdir {b.root}/dev && mount -t tmpfs none {b.root}/dev",
        f"cp -a /dev/null /dev/zero /dev/random /dev/urandom {b.root}/dev/",
        f"mkdir {b.root}/dev/shm && touch {b.root}/dev/nvidia0 {b.root}/dev/nvidiactl",
        f"mount --bind {b.root}/dev /dev",
    )


def _file_name(b: Bench) -> None:
    """The driver's file has its version in its name, which TensorFlow reads."""
    soname = b.root / "driver" / standins.CUDA
    if soname.exists() and not soname.is_symlink():
        soname.rename(soname.with_name(f"libcuda.so.{KERNEL}"))
        soname.symlink_to(f"libcuda.so.{KERNEL}")


def print_log(
    target: Target, situation: Situation, cache: Path, *, verbose: bool, quick: bool = True
) -> Printed:
    """Set a situation up, run TensorFlow until it has made its devices, and keep what it printed."""
    whole = target if target.hard_linked else replace(target, symbols=standins.RUNTIME)
    root = Path(tempfile.mkdtemp(prefix="lab-")).resolve()
    try:
        bench = Bench(whole, root, cache)
        situation.prepare(bench)
        _file_name(bench)
        if not bench.prefix and situation.name not in _WITHOUT_MODULE and can_mount():
            _machine(bench)
        if target.version < (2, 4):  # a card that these releases have code for
            bench.env["STANDIN_CC"] = bench.env.get("STANDIN_CC", "70").replace("80", "70")
        truth = observe(
            bench.interpreter,
            bench.environment(),
            cwd=bench.cwd or root,
            session=target.hard_linked,
            quick=quick and not _through_python(target, situation.name),
            prefix=bench.prefix,
            verbose=verbose,
            make=True,
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    log = truth.log + (truth.error or "")
    for old, new in ((str(root), "/opt/lab"), (str(target.root), "/opt/env")):
        log = log.replace(old, new)
    return judged(target, situation.name, replace(truth, log=log), verbose=verbose)


def _through_python(target: Target, situation: str) -> bool:
    """Whether what TensorFlow says of it comes from its Python, not from its native code.

    Without a driver 2.12 and 2.13 say nothing but that there is no TensorRT.
    """
    if situation in _NO_DRIVER:
        return (2, 12) <= target.version < (2, 14)
    return situation == "attributes-fail-999"


def run_says(target: Target, situation: Situation, cache: Path) -> str:
    """What `tfdoctor run` says of a program that lists its devices; without what the program itself printed."""
    root = Path(tempfile.mkdtemp(prefix="lab-")).resolve()
    try:
        bench = Bench(target, root, cache)
        situation.prepare(bench)
        program = [str(bench.interpreter), "-c", CHILD, str(root / "answer.json")]
        if target.hard_linked:  # the child would keep the ImportError for itself
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
        return done.stderr.partition("What its output meant:")[2]
    finally:
        shutil.rmtree(root, ignore_errors=True)


def judged(target: Target, situation: str, truth: Truth, *, verbose: bool) -> Printed:
    """What is true of one run, and what `diagnose` must make of its log."""
    named = verbose or target.version < NAMELESS
    silent = _says_nothing(target, situation, truth, named=named)
    made = None if truth.made is None else tuple(_device(text) for text in truth.made)
    registered = bool(made)
    return Printed(
        situation=situation,
        tensorflow=".".join(map(str, target.version)),
        named=named,
        causes=expected(target, situation, registered=registered, named=named)
        | ({"inconclusive"} if silent and situation != "cc-30" else frozenset()),
        registered=registered,
        devices=made,
        missing=tuple(_missing(target, situation)) if named and not silent else (),
        log=truth.log,
        error=truth.error or truth.crashed,
        silent=silent,
    )


def _says_nothing(target: Target, situation: str, truth: Truth, *, named: bool) -> bool:
    """Whether this TensorFlow prints nothing about the matter, so that "inconclusive" is the right answer, too.

    2.12 to 2.17 are silent without a driver, 2.21 without NVML; a process that crashes may not come to say why.
    """
    if situation in _NO_DRIVER and not named:
        return target.version < (2, 18)
    if situation in {"no-nvml", "nvml-init-18"}:
        return target.version >= (2, 21) and not (named and situation == "no-nvml")
    if situation == "switch-device-types-cpu":
        return not truth.made
    if situation == "cc-30":  # from 2.5 on it names the card that it leaves out, not those that are there
        return target.version >= (2, 5)
    if situation == "attributes-fail-999":  # 1.14 crashes; 2.2 and 2.3 raise a TypeError of their own
        return truth.crashed == "SIGSEGV" or (2, 2) <= target.version < (2, 4)
    return False


def _device(text: str) -> tuple[int, str, str, str | None]:
    found = _MADE.match(text)
    if found is None:
        raise ValueError(text)
    return int(found["index"]), found["name"], found["pci"], found["cc"]


def _missing(target: Target, situation: str) -> list[str]:
    """What this situation leaves out: known from how it is set up, not from a log."""
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
        asked = target.asks("cublasLt")
        lt = target.soname("cublasLt") if asked else target.soname("cublas").replace("cublas", "cublasLt")
        return [lt]
    if situation == "no-nvml" and target.version >= (2, 21):
        return [standins.NVML]
    return []


def expected(target: Target, situation: str, *, registered: bool, named: bool) -> frozenset[str]:
    """The causes of which `diagnose` must name one."""
    if registered:
        return frozenset({"healthy", "gpu-too-new"} if situation == "cc-120" else {"healthy"})
    if situation.startswith("without-"):
        causes = _LIBRARIES if situation != "without-cudnn" else frozenset({"cudnn-missing"})
    else:
        causes = _HERE[situation]
    if situation == "no-driver-no-libraries" and (target.hard_linked or not named):
        causes |= {"import-missing-cuda-lib"} if target.hard_linked else {"libs-unlisted"}
    about_libraries = bool(causes & (_LIBRARIES | {"cudnn-missing", "libs-transitive"}))
    if about_libraries and target.hard_linked:
        return frozenset({"import-missing-cuda-lib", *(causes & {"libs-transitive"})})
    if (about_libraries or "damaged-file" in causes) and not named:
        return frozenset({"libs-unlisted"})
    return causes


def problems(answer: Mapping[str, Any], printed: Printed) -> list[str]:
    """Where `diagnose --json` of the log is not what was true."""
    wrong = []
    cause, registered = answer["verdict"]["cause"], answer["gpu_registered"]
    if cause not in printed.causes:
        wrong.append(f"cause: said {cause}, is {' or '.join(sorted(printed.causes))}")
    if registered is not printed.registered and not (registered is None and printed.silent):
        wrong.append(f"gpu_registered: said {registered}, is {printed.registered}")
    said = [(d["index"], d["name"], d["pci_bus_id"].lower()) for d in answer["devices"]]
    # The index in the log is TensorFlow's own, counted from 0; in the description it is the driver's.
    made = [(i, name, pci.lower()) for i, (_, name, pci, _) in enumerate(printed.devices or ())]
    if said != made and not (registered is None and printed.silent):
        wrong.append(f"devices: said {said}, are {made}")
    if not _names(answer["missing_libraries"], printed):
        wrong.append(f"missing: said {answer['missing_libraries']}, are {list(printed.missing)}")
    era = answer["era"]
    if era is not None and not _within(printed.tensorflow, era):
        wrong.append(f"era: said {era}, is {printed.tensorflow}")
    return wrong


def disagreements(printed: Printed) -> list[str]:
    """What `diagnose` gets wrong of a log, and of the same log where the program prints that there is no GPU."""
    wrong = problems(diagnosed(printed.log), printed)
    if not printed.registered and printed.situation != "switch-device-types-cpu":
        answer = diagnosed(printed.log + "\nNum GPUs Available:  0\n")
        right = printed.causes | ({"no-driver", "inconclusive"} if printed.silent else set())
        if answer["verdict"]["cause"] not in right or answer["gpu_registered"] is not False:
            wrong.append(f"listed: said {answer['verdict']['cause']}, {answer['gpu_registered']}")
    return wrong


def diagnosed(log: str) -> dict[str, Any]:
    """`diagnose --json` of a log."""
    return log_json(diagnose_log([log.encode()], Compat.load()))


def _names(said: Iterable[str], printed: Printed) -> bool:
    said = sorted(said)
    if printed.silent and not said:
        return True
    if said == sorted(printed.missing):
        return True
    # An ImportError names the first library only; without a driver TensorFlow does not go on to ask for all.
    first_only = "import-missing-cuda-lib" in printed.causes or printed.situation == "no-driver-no-libraries"
    return bool(said) and first_only and set(said) <= set(printed.missing)


def _within(version: str, era: str) -> bool:
    low, _, high = era.rstrip("+").partition("-")
    return minor(low) <= minor(version) and (era.endswith("+") or minor(version) <= minor(high or low))


def minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


_NAMED = frozenset(
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
"""Situations that are run twice from 2.12 on: as a user does, and with TensorFlow told to name libraries."""


def print_all(target: Target, cache: Path, *, only: Iterable[str] = (), quick: bool = True) -> list[Printed]:
    """Every situation once, and where the names of libraries matter and are not given by themselves, once with them."""
    chosen = set(only)
    jobs = []
    for one in log_situations(target):
        if chosen and one.name not in chosen:
            continue
        jobs.append((one, False))
        if target.version >= NAMELESS and (one.name in _NAMED or one.name.startswith("without-")):
            jobs.append((one, True))
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda job: print_log(target, job[0], cache, verbose=job[1], quick=quick), jobs))
