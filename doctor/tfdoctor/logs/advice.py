"""What to do about a cause that a log shows, with the versions of the release that wrote it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.causes import Cause, Do
from tfdoctor.causes.steps import Remedy
from tfdoctor.fit.serve import is_locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Release
    from tfdoctor.logs.case import Case

__all__ = ["CHECK", "remedies", "usually"]

CHECK = Remedy("Check the machine itself: it shows what a log cannot.", ("tfdoctor check",))
_SHARED: dict[Do, Remedy] = {
    Do.CHECK: CHECK,
    Do.RESTART: Remedy(
        "Restart the machine: the new kernel module is loaded then.", ("sudo reboot",), changes_system=True
    ),
    Do.GPUS: Remedy("Start the container with GPUs.", ("docker run --rm --gpus all IMAGE nvidia-smi",)),
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
    Do.NAME_LIBRARIES: Remedy(
        "Make TensorFlow name the libraries: run the program once more under tfdoctor.",
        ("tfdoctor run python3 -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\"",),
    ),
}


_CUPTI = Remedy(
    "Put the CUDA toolkit's extras/CUPTI/lib64 on LD_LIBRARY_PATH (here of the one in /usr/local/cuda), or do without "
    "the profiler.",
    ('export LD_LIBRARY_PATH="/usr/local/cuda/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',),
)
_COUNTERS = Remedy(
    "Start the container with --cap-add=SYS_ADMIN, or load the kernel module nvidia with "
    "NVreg_RestrictProfilingToAdminUsers=0, or do without the profiler.",
    ("grep RmProfilingAdminOnly /proc/driver/nvidia/params",),
)


def remedies(case: Case, cause: Cause) -> tuple[Remedy, ...]:
    """What to do about this cause, with the versions of the release that wrote the log where it is known."""
    found: list[Remedy] = []
    known = cause.row.remedies
    for one in (known,) if isinstance(known, Remedy) else known:
        found += [one] if isinstance(one, Remedy) else _asked(case, one)
    return tuple(found)


def _asked(case: Case, what: Do) -> Sequence[Remedy]:
    if what is Do.RELEASE:
        return (_another_release(case),)
    if what in (Do.LIBRARIES, Do.LIBRARY):
        ways = _libraries(case)
        return ways[1:2] or ways if what is Do.LIBRARY else ways
    if what is Do.PROFILER:
        return (_COUNTERS if case.log.has("cupti-not-permitted") else _CUPTI,)
    return (_SHARED[what],)


def usually(case: Case, cause: Cause) -> str:
    """Why it mostly happens, as a sentence; empty where nothing is known of that."""
    if cause not in (Cause.LIBS_UNLISTED, Cause.LIBS_NOT_INSTALLED, Cause.IMPORT_MISSING_CUDA_LIB):
        return ""
    release = _release(case)
    if release is not None and release.pip_extra is not None:
        return (
            f"Usually it was installed with plain `pip install {release.package}`, which does not include CUDA; "
            f"`{release.package}[{release.pip_extra}]` does."
        )
    return "Usually CUDA is missing or has a different version: `pip install` of this TensorFlow does not include it."


def _another_release(case: Case) -> Remedy:
    """Which release fits: for the cards that the log names, else for the machine that is asked."""
    return Remedy("See which TensorFlow fits, and how to install it.", (_recommend(case),))


def _recommend(case: Case) -> str:
    cards = "".join(f" --gpu {shlex.quote(name)}" for name in case.cards[:4] if case.compat.gpus_named(name))
    return f"tfdoctor recommend{cards}"


def _release(case: Case) -> Release | None:
    """The release that wrote the log, else the newest that may have."""
    if case.origin.release is not None:
        return case.origin.release
    newest = (case.origin.era or "").rstrip("+").rpartition("-")[2]
    if not newest or (case.origin.era or "").endswith("+"):
        return None
    rows = [row for row in case.compat.gpu_releases if row.minor == newest]
    return rows[-1] if rows else None


def _libraries(case: Case) -> tuple[Remedy, ...]:
    """The way to a working GPU on that machine, then from nothing, then what this release needs."""
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
        return (here, new, *_fitting(case), *_needs(case, None, None))
    exact = version if version and case.compat.release(version) else release.version
    wanted = shlex.quote(exact if version and version != release.minor else release.minor)
    ways = [here]
    if brings:
        text = f"Or make a new environment with TensorFlow {exact} and its CUDA {release.cuda}."
        ways.append(Remedy(text, (f"tfdoctor install --tf {wanted}",)))
    official = case.compat.official_image(exact)
    made = official is not None and _is_locked(case, exact, (official.recipe.python,))
    if brings or made or case.compat.ngc_images(exact) or _has_base(case, release):
        text = f"Or build a container image of TensorFlow {exact} in which it finds them.{_serves(case, release)}"
        ways.append(Remedy(text, (f"tfdoctor build --tf {wanted}",)))
    else:
        ways.append(Remedy("Or see which release comes nearest.", (f"tfdoctor recommend --tf {wanted}",)))
    return (*ways, *_fitting(case), *_needs(case, release, version))


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
    """Whether an image of NVIDIA's with its CUDA still exists, to build upon."""
    if release.cudnn is None or not _is_locked(case, release.version, release.pythons()):
        return False
    cuda, cudnn = versions.major_minor(release.cuda or ""), versions.major(release.cudnn)
    return bool(case.compat.image_tags(cuda, cudnn, "runtime"))


def _is_locked(case: Case, version: str, pythons: Iterable[str]) -> bool:
    """Whether some package of this version (tensorflow, tensorflow-gpu) is locked for one of these Pythons."""
    rows = [row for row in case.compat.releases if row.version == version and row.gpu]
    return any(is_locked(case.compat, row, python) for row in rows for python in pythons)


def _fitting(case: Case) -> tuple[Remedy, ...]:
    """Which release fits the cards that the log names."""
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
