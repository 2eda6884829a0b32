"""What to do about a cause that a log shows, with the versions of the release that wrote it."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice.search_path import export_lines
from tfdoctor.causes import Cause, Do
from tfdoctor.causes.steps import Remedy
from tfdoctor.fit.compatibility import find_card_reasons, is_locked
from tfdoctor.fit.models import Card, Host
from tfdoctor.logs.libraries import search_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Release
    from tfdoctor.logs.log_context import Case

__all__ = ["CHECK", "describe_usual_reason", "remedies"]

CHECK = Remedy("Check the machine itself: it shows what a log cannot.", ("tfdoctor check",))
_SHARED: dict[Do, Remedy] = {
    Do.CHECK: CHECK,
    Do.RESTART: Remedy(
        "Restart the machine: the new kernel module is loaded then.", ("sudo reboot",), changes_system=True
    ),
    Do.GPUS: Remedy("Start the container with GPUs.", ("docker run --rm --gpus all IMAGE nvidia-smi",)),
    Do.UTILITIES: Remedy(
        "In a container, start it with the driver's utilities.",
        ("docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi",),
    ),
    Do.TOOLKIT: Remedy(
        "Install the NVIDIA Container Toolkit on the host and register it with the engine.",
        (
            "sudo apt-get install nvidia-container-toolkit",
            "sudo nvidia-ctk runtime configure",
            "sudo systemctl restart docker",
        ),
        changes_system=True,
    ),
    Do.MEMORY: Remedy(
        "Let TensorFlow allocate memory as needed, and see which other processes hold some.",
        ("export TF_FORCE_GPU_ALLOW_GROWTH=true", "nvidia-smi"),
    ),
    Do.RUN: Remedy(
        "Or run the program once more under tfdoctor: TensorFlow then logs more.",
        ("tfdoctor run python3 train.py",),
    ),
    Do.NAME_LIBRARIES: Remedy(
        "Make TensorFlow name the libraries: run the program once more under tfdoctor.",
        ("tfdoctor run python3 -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\"",),
    ),
}


_TOOLKIT = re.compile(r"^(/[\w./-]{0,80}/cuda(-\d{1,2}\.\d)?)/(?:targets/[\w-]{1,40}/)?lib(?:64)?/?$")
"""A folder of a CUDA toolkit's libraries: the toolkit's own folder, and its version where the name has it."""
_COUNTERS = Remedy(
    "Start the container with --cap-add=SYS_ADMIN, or load the kernel module nvidia with "
    "NVreg_RestrictProfilingToAdminUsers=0, or do without the profiler.",
    ("grep RmProfilingAdminOnly /proc/driver/nvidia/params",),
)


def remedies(case: Case, cause: Cause) -> tuple[Remedy, ...]:
    """Return what to do about this cause, with the versions of the release that wrote the log where it is known."""
    found: list[Remedy] = []
    known = cause.row.remedies
    for one in (known,) if isinstance(known, Remedy) else known:
        found += [one] if isinstance(one, Remedy) else _make_requested(case, one)
    return tuple(found)


def _make_requested(case: Case, what: Do) -> Sequence[Remedy]:
    if what is Do.RELEASE:
        return (_suggest_release(case),)
    if what in (Do.LIBRARIES, Do.LIBRARY):
        ways = _libraries(case)
        return ways[1:2] or ways if what is Do.LIBRARY else ways
    if what is Do.PROFILER:
        return (_COUNTERS if case.log.has("cupti-not-permitted") else _cupti(case),)
    if what is Do.DRIVER:
        return _newer_driver(case)
    if what is Do.HOST_DRIVER:
        text = "On the host: see which image its driver can run."
        return (Remedy(text, (f"tfdoctor recommend --method container{_driver(case)}",)),)
    if what is Do.STUB:
        return (_drop_stubs(case),)
    return (_SHARED[what],)


def _folders(case: Case) -> list[str]:
    """Return what was on LD_LIBRARY_PATH, as far as the log tells it."""
    return [one.strip().rstrip("/") for one in (search_path(case.missing) or "").split(":") if one.strip()]


def _cupti(case: Case) -> Remedy:
    """Return the folder beside the toolkit that the log names, else the usual one."""
    toolkits = [found[1] for one in _folders(case) if (found := _TOOLKIT.match(one))]
    toolkit = toolkits[0] if toolkits else "/usr/local/cuda"
    whose = "that the log names" if toolkits else "in /usr/local/cuda"
    return Remedy(
        f"Put the CUDA toolkit's extras/CUPTI/lib64 on LD_LIBRARY_PATH (here of the one {whose}), or do without "
        "the profiler.",
        export_lines(f"{toolkit}/extras/CUPTI/lib64", "CUPTI"),
    )


def _newer_driver(case: Case) -> tuple[Remedy, ...]:
    """Return what this release wants of a driver, and what runs on the one that is there."""
    exact = case.origin.version or (case.origin.release.minor if case.origin.release is not None else "")
    wanted = shlex.quote(exact) if exact else "latest"
    of = f"TensorFlow {exact}" if exact else "a release"
    newer = Remedy(
        f"Install a newer NVIDIA driver; this shows which one {of} needs.",
        (f"tfdoctor matrix --tf {wanted}",),
        True,
    )
    if not _driver(case):
        return (newer,)
    text = f"Or take a TensorFlow that runs on driver {case.driver}, without root."
    return (newer, Remedy(text, (_recommend(case),)))


def _drop_stubs(case: Case) -> Remedy:
    """Return LD_LIBRARY_PATH without its stubs, where the log tells what was on it."""
    text = "Remove the folder `stubs` from LD_LIBRARY_PATH; in a container, start it with GPUs."
    folders = _folders(case)
    kept = [one for one in folders if not one.endswith("/stubs")]
    if kept == folders:
        return Remedy(text)
    command = f"export LD_LIBRARY_PATH={shlex.quote(':'.join(kept))}" if kept else "unset LD_LIBRARY_PATH"
    return Remedy(text, (command,))


def _add_wanted_folder(case: Case) -> tuple[Remedy, ...]:
    """Return the wanted CUDA's folder beside the one that was searched, where the log tells both."""
    if case.other_cuda is None or "." not in (wanted := case.other_cuda[1]):
        return ()
    for one in _folders(case):
        found = _TOOLKIT.match(one)
        if found is not None and found[2]:
            there = one.replace(found[2], f"-{wanted}", 1)
            text = f"Or search CUDA {wanted}'s folder first, where that is installed beside it ({there})."
            return (Remedy(text, (f"ls {shlex.quote(there)}", *export_lines(there, "CUDA"))),)
    return ()


def describe_usual_reason(case: Case, cause: Cause) -> str:
    """Return why it mostly happens, as a sentence; empty if nothing is known of that."""
    if cause not in (Cause.LIBS_UNLISTED, Cause.LIBS_NOT_INSTALLED, Cause.IMPORT_MISSING_CUDA_LIB):
        return ""
    release = _release(case)
    if release is not None and release.pip_extra is not None:
        return (
            f"Usually it was installed with plain `pip install {release.package}`, which does not include CUDA; "
            f"`{release.package}[{release.pip_extra}]` does."
        )
    return "Usually CUDA is missing or has a different version: `pip install` of this TensorFlow does not include it."


def _suggest_release(case: Case) -> Remedy:
    """Return which release fits: for the cards that the log names, else for the machine that is asked."""
    return Remedy("See which TensorFlow fits, and how to install it.", (_recommend(case),))


def _recommend(case: Case) -> str:
    return f"tfdoctor recommend{_list_machine_options(case)}"


def _list_machine_options(case: Case) -> str:
    """Return the options that name the cards and the driver of the log."""
    cards = "".join(f" --gpu {shlex.quote(name)}" for name in case.cards[:4] if case.compat.gpus_named(name))
    return f"{cards}{_driver(case)}"


def _driver(case: Case) -> str:
    return f" --driver {shlex.quote(case.driver)}" if case.driver is not None else ""


def _release(case: Case) -> Release | None:
    """Return the release that wrote the log, else the newest that may have."""
    if case.origin.release is not None:
        return case.origin.release
    newest = (case.origin.era or "").rstrip("+").rpartition("-")[2]
    if not newest or (case.origin.era or "").endswith("+"):
        return None
    rows = [row for row in case.compat.gpu_releases if row.minor == newest]
    return rows[-1] if rows else None


def _libraries(case: Case) -> tuple[Remedy, ...]:
    """Return the way to a working GPU on that machine, then from nothing, then what this release needs."""
    release, version = _release(case), case.origin.version
    if case.origin.release is None and version is not None and not case.windows:
        other = (
            f"This TensorFlow {version} was built for other libraries; the one from the package index, "
            f"in a container image, finds its "
            "own."
        )
        return (Remedy(other, (f"tfdoctor build --tf {shlex.quote(version)}",)),)
    if case.windows:
        wsl = Remedy(
            "Use WSL 2: there this makes an environment in which TensorFlow finds them.",
            ("tfdoctor install",),
        )
        return (wsl, *_needs(case, release, version))
    brings = release is not None and case.compat.cuda_set(release.version) is not None
    here = Remedy("On that machine: see what is wrong, and what to type.", ("tfdoctor check",))
    if brings:
        here = Remedy(
            "On that machine: see what is wrong, and have it fixed.", ("tfdoctor check", "tfdoctor fix")
        )
    if release is None or not release.gpu:
        new = Remedy("Or make a new environment in which TensorFlow finds them.", ("tfdoctor install",))
        return (here, new, *_suggest_fitting_release(case), *_needs(case, None, None))
    exact = version if version and case.compat.release(version) else release.version
    wanted = shlex.quote(exact if version and version != release.minor else release.minor)
    ways = [here, *_add_wanted_folder(case)]
    if not _is_served(case, release):
        text = f"Or see what there is of TensorFlow {exact} for the card and the driver in this log."
        return (*ways, Remedy(text, (f"{_recommend(case)} --tf {wanted}",)), *_needs(case, release, version))
    where = _list_machine_options(case)
    if brings:
        text = f"Or make a new environment with TensorFlow {exact} and its CUDA {release.cuda}."
        ways.append(Remedy(text, (f"tfdoctor install --tf {wanted}{where}",)))
    official = case.compat.official_image(exact)
    made = official is not None and _is_locked(case, exact, (official.recipe.python,))
    if brings or made or case.compat.ngc_images(exact) or _has_base(case, release):
        text = f"Or build a container image of TensorFlow {exact} in which it finds them.{_serves(case, release)}"
        ways.append(Remedy(text, (f"tfdoctor build --tf {wanted}{where}",)))
    else:
        ways.append(
            Remedy("Or see which release comes nearest.", (f"tfdoctor recommend --tf {wanted}{where}",))
        )
    return (*ways, *_suggest_fitting_release(case), *_needs(case, release, version))


def _is_served(case: Case, release: Release) -> bool:
    """Return whether the release runs on the cards and the driver that the log names.

    With none named, it may.
    """
    matches = [match for name in case.cards[:4] if (match := case.compat.gpus_named(name)) is not None]
    cards = tuple(Card(match.query, match.capabilities[0], match.capabilities[1:]) for match in matches)
    return not find_card_reasons(case.compat, release, Host(cards=cards, driver=case.driver))


def _serves(case: Case, release: Release) -> str:
    """For which cards that the log names the release has code, as a sentence; empty where that is not so of each."""
    cards = case.cards[:4]
    for name in cards:
        found = case.compat.gpus_named(name)
        codes = (
            {case.compat.code_for(release, one) for one in found.capabilities} if found is not None else set()
        )
        if not codes or not codes <= {"native", "jit"}:
            return ""
    return f" It has code for {' and '.join(cards)}." if cards else ""


def _has_base(case: Case, release: Release) -> bool:
    """Return whether an image of NVIDIA's with its CUDA still exists, to build upon."""
    if release.cudnn is None or not _is_locked(case, release.version, release.pythons()):
        return False
    cuda, cudnn = versions.major_minor(release.cuda or ""), versions.major(release.cudnn)
    return bool(case.compat.image_tags(cuda, cudnn, "runtime"))


def _is_locked(case: Case, version: str, pythons: Iterable[str]) -> bool:
    """Return whether some package of this version (tensorflow, tensorflow-gpu) is locked for one of these Pythons."""
    rows = [row for row in case.compat.releases if row.version == version and row.gpu]
    return any(is_locked(case.compat, row, python) for row in rows for python in pythons)


def _suggest_fitting_release(case: Case) -> tuple[Remedy, ...]:
    """Return which release fits the cards that the log names."""
    names = [name for name in case.cards if case.compat.gpus_named(name)]
    if not names:
        return ()
    return (Remedy(f"Or see which TensorFlow fits a {names[0]}.", (_recommend(case),)),)


def _needs(case: Case, release: Release | None, version: str | None) -> tuple[Remedy, ...]:
    if release is None or not release.gpu:
        return (Remedy("See what each release needs.", ("tfdoctor matrix",)),)
    exact = version or release.minor
    cudnn = f" and cuDNN {release.cudnn}" if release.cudnn else ""
    by = "lines of its source" if case.origin.by == "lines" else "names of the libraries"
    about = "" if version else f" (the release was deduced from the {by})"
    text = f"TensorFlow {exact} needs CUDA {release.cuda}{cudnn}{about}."
    return (Remedy(text, (f"tfdoctor matrix --tf {shlex.quote(exact)}",)),)
