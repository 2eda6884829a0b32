"""What to do about a cause that a log shows, with the versions of the release that wrote it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.causes import Do
from tfdoctor.causes.steps import Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.causes import Cause
    from tfdoctor.logs.case import Case

__all__ = ["CHECK", "remedies"]

CHECK = Remedy("Look at the machine itself: it tells what a log cannot.", ("tfdoctor check",))
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
        "Let TensorFlow take memory as it needs it, and look who else holds some.",
        ("export TF_FORCE_GPU_ALLOW_GROWTH=true", "nvidia-smi"),
    ),
    Do.NAME_LIBRARIES: Remedy(
        "Let TensorFlow name the libraries: run the program once more under tfdoctor, which has them named.",
        ("tfdoctor run python3 -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\"",),
    ),
}


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
        return ways[:1] if what is Do.LIBRARY else ways
    return (_SHARED[what],)


def _another_release(case: Case) -> Remedy:
    """Which release fits: for the cards that the log names, else for the machine that is asked."""
    names = dict.fromkeys(device.name for device in case.devices if device.name)
    cards = "".join(f" --gpu {shlex.quote(name)}" for name in list(names)[:4])
    return Remedy("See which TensorFlow fits, and how to get it.", (f"tfdoctor recommend{cards}",))


def _libraries(case: Case) -> tuple[Remedy, ...]:
    """What this release needs, and the shortest way to have it."""
    release, version = case.origin.release, case.origin.version
    if release is None and version is not None and not case.windows:
        other = (
            f"Somebody built this TensorFlow {version} for other libraries; that of the package index, in a container "
            "image, finds its own."
        )
        return (Remedy(other, (f"tfdoctor build --tf {shlex.quote(version)}",)),)
    if release is None or not release.gpu:
        return (Remedy("See what each release needs.", ("tfdoctor matrix",)),)
    exact = version or release.minor
    cudnn = f" and cuDNN {release.cudnn}" if release.cudnn else ""
    by = "lines of its source" if case.origin.by == "lines" else "names of the libraries"
    about = "" if version else f" (the release was deduced from the {by})"
    command = f"tfdoctor matrix --tf {shlex.quote(exact)}"
    needs = Remedy(f"TensorFlow {exact} needs CUDA {release.cuda}{cudnn}{about}.", (command,))
    if case.windows:
        return (needs,)
    built = exact if version is None or versions.is_version(version) else release.version
    image = Remedy(
        "Or build a container image in which it finds them.", (f"tfdoctor build --tf {shlex.quote(built)}",)
    )
    if release.pip_extra is None or not case.compat.has(release.version, "wheels-on-runpath"):
        return (needs, image)
    wanted = shlex.quote(f"{release.package}[{release.pip_extra}]=={release.version}")
    install = Remedy("Install it with its CUDA libraries.", (f"python3 -m pip install {wanted}",))
    return (install, needs, image)
