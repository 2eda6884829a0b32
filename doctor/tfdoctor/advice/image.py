"""Remedies for who makes an image: lines of its Dockerfile, another base, or an image that tfdoctor builds. Pure.

What is typed into a shell of the host, or of a container, changes no image.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice.commands import typed, wanted_of, with_others
from tfdoctor.advice.pip import quote
from tfdoctor.causes.steps import (
    Drop,
    Export,
    Install,
    Link,
    LinkParts,
    Prepend,
    Rename,
    Unset,
    without_entries,
)
from tfdoctor.findings import Cause, Remedy
from tfdoctor.fit.images import fitting_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.advice.target import Target
    from tfdoctor.causes.steps import Step
    from tfdoctor.compat import Compat, Release
    from tfdoctor.findings import Finding

OF_BASE = frozenset(
    {
        Cause.CUDNN_MISSING,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.IMPORT_MISSING_CUDA_LIB,
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_WRONG_VERSION,
    }
)
"""What another base image cures."""
OF_HOST = frozenset(
    {
        Cause.COMPAT_NOT_SUPPORTED,
        Cause.CONTAINER_CUDA_REQUIREMENT,
        Cause.CONTAINER_DRIVER_LIBS,
        Cause.CONTAINER_NO_GPU,
        Cause.CONTAINER_NVML_LOST,
        Cause.DRIVER_INIT_UNKNOWN,
        Cause.DRIVER_LIB_MISMATCH,
        Cause.DRIVER_TOO_OLD,
        Cause.GPU_BUSY_OTHER_PROCESS,
        Cause.NO_DEVICE,
        Cause.NO_DRIVER,
        Cause.NO_NVIDIA_RUNTIME,
        Cause.NVML_MISSING,
        Cause.WSL_LIBCUDA,
    }
)
"""What is in no image: the driver, and how a container is started."""


def for_images(
    target: Target, root: Finding | None, findings: Sequence[Finding], beside: Iterable[str] = ()
) -> dict[int, Finding]:
    """As `for_person`, for an image: the finding that leads says what the other errors need, too."""
    skipped = frozenset(beside)
    told = {id(finding): for_image(target, finding) for finding in findings}
    if root is not None and root.remedies:
        others = [finding for finding in findings if finding is not root and finding.code not in skipped]
        joined = with_others(target, root, others)
        if joined is not None:
            told[id(root)] = for_image(target, replace(root, remedies=(joined, *root.remedies[1:])))
    return told


def for_image(target: Target, finding: Finding) -> Finding:
    """The finding with the remedies that an image has (`Target.image`); the host's are left as they are."""
    if finding.cause in OF_HOST:
        kept = [
            new
            for one in finding.remedies
            for new in (_lines(target, one, whole=False) if one.steps else [_again(target, one)])
        ]
        return replace(finding, remedies=tuple(kept))
    build = target.build
    release = build.release if build is not None and build.exact else None
    of_base = finding.cause in OF_BASE and release is not None
    own = [one for one in finding.remedies if not (of_base and one.replaces)]
    remedies = [new for one in own for new in _lines(target, one, whole=of_base)]
    if of_base and release is not None:
        remedies += on_another_base(target.compat, release, _python(target))
    if finding.cause is not Cause.HIDDEN_BY_ENV and not any(one.replaces for one in remedies):
        remedies.append(built(release))
    return replace(finding, remedies=tuple(remedies))


def on_another_base(compat: Compat, release: Release, python: str | None) -> list[Remedy]:
    """The image of nvidia/cuda to build on, where there is one."""
    text = f"Build on an image that has what TensorFlow {release.version} opens."
    return [Remedy(text, (f"FROM {tag.name}",)) for tag in fitting_tags(compat, release, python)[:1]]


def built(release: Release | None, text: str = "Have an image built that fits together.") -> Remedy:
    """`tfdoctor build`, for the release that is meant."""
    return Remedy(
        text, (f"tfdoctor build --tf {release.version}" if release is not None else "tfdoctor build",)
    )


def _python(target: Target) -> str | None:
    return versions.major_minor(target.python.version) if target.python is not None else None


def _again(target: Target, remedy: Remedy) -> Remedy:
    """It ends with looking again: at an image, that is another command."""
    again = f"tfdoctor verify {target.image}" if target.image else "tfdoctor build --check Dockerfile"
    lines = (again if line.startswith("tfdoctor check") else line for line in remedy.commands)
    return replace(remedy, commands=tuple(lines))


def _lines(target: Target, remedy: Remedy, *, whole: bool) -> list[Remedy]:
    """A remedy as lines of a Dockerfile; nothing where it is not one for an image."""
    if remedy.commands and all(
        line.startswith(("tfdoctor build", "tfdoctor recommend")) for line in remedy.commands
    ):
        return [_again(target, remedy)]
    if not remedy.steps:
        return [] if remedy.commands else [remedy]
    return _of_dockerfile(target, remedy, whole=whole) if not target.image else _of_image(target, remedy)


def _of_image(target: Target, remedy: Remedy) -> list[Remedy]:
    """Of an image that is there: lines for the Dockerfile that made it, and variables for `docker run`."""
    image = target.image or ""
    name = "IMAGE" if "@" in image or image.startswith("sha256:") else image
    found = []
    lines = tuple(line for step in remedy.steps for line in _line(target, step))
    if lines:
        before = "" if target.root is not False else ", before its USER line"
        text = f"{remedy.text} Write this into the Dockerfile{before}, and build it again."
        found.append(Remedy(text, (*lines, f"docker build -t {name} .", f"tfdoctor verify {name}")))
    lost = [f"-e {step.name}" for step in remedy.steps if isinstance(step, Unset)]
    if lost:
        what = "" if lines else f"{remedy.text} "
        text = f"{what}Take its ENV line out of the Dockerfile; for one container this does (Podman: `--unsetenv`)."
        found.append(Remedy(text, (f"docker run --gpus all {' '.join(lost)} {image}",)))
    return found


def _line(target: Target, step: Step) -> list[str]:
    """A step as lines of a Dockerfile; none where a line of it has to go."""
    if isinstance(step, Unset):
        return []
    if isinstance(step, Export):
        return [f"ENV {step.name}={quote(step.value)}"]
    if isinstance(step, Prepend):
        return [f"ENV {step.name}={quote(':'.join(step.folders))}:${step.name}"]
    if isinstance(step, Rename):
        return [f"ENV {step.right}={quote(target.variables.get(step.wrong, ''))}"]
    if isinstance(step, Drop):
        kept = without_entries(step, target.variables.get(step.name, ""))
        return [f"ENV {step.name}={quote(':'.join(kept))}"]
    return [f"RUN {line}" for line in typed(target, (step,))]


def _of_dockerfile(target: Target, remedy: Remedy, *, whole: bool) -> list[Remedy]:
    """Of an image that is still to be made: its own lines are changed, and where things will lie is not known.

    `whole`: CUDA comes with TensorFlow, or not from pip: its wheels do not go with libraries of another CUDA.
    """
    steps = remedy.steps
    installs = [step for step in steps if isinstance(step, Install)]
    linked = any(isinstance(step, (Link, LinkParts, Prepend)) for step in steps)
    if (whole and (linked or not all(step.lock for step in installs))) or (linked and not installs):
        return []
    lines = [f"ENV {step.name}={quote(step.value)}" for step in steps if isinstance(step, Export)]
    if installs:
        wanted = [one for step in installs for one in wanted_of(target, step)]
        # where the loader has to be told of them, another base has them in their place
        kept = [quote(one) for one in wanted if not (linked and one.startswith("nvidia-"))]
        if not kept:
            return []
        lines.insert(0, f"RUN pip install {' '.join(kept)}")
    return [replace(remedy, commands=tuple(lines), steps=())]
