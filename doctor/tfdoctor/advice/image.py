"""Remedies for who makes an image: lines of its Dockerfile, another base, or an image that tfdoctor builds. Pure.

What is typed into a shell of the host, or of a container, changes no image.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice.commands import format_steps, list_wanted, with_others
from tfdoctor.advice.engine import DEVICE, GPUS
from tfdoctor.advice.pip import quote
from tfdoctor.causes.steps import (
    Drop,
    Export,
    Install,
    LinkParts,
    MakeLink,
    Prepend,
    Rename,
    Unset,
    remove_entries,
)
from tfdoctor.findings import Cause, Remedy
from tfdoctor.fit.images import list_fitting_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.advice.target import InImage, Target
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
OF_RELEASE = frozenset({Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD})
"""What no image of the same TensorFlow cures."""
ANY_GPU = (GPUS, DEVICE)
"""The options of `run` that remedies for any engine name."""


def adapt_image_findings(
    target: Target, root: Finding | None, findings: Sequence[Finding], beside: Iterable[str] = ()
) -> dict[int, Finding]:
    """Adapt the findings for an image: the leading finding also says what the other errors need."""
    skipped = frozenset(beside)
    told = {id(finding): adapt_image_finding(target, finding) for finding in findings}
    if root is not None and root.remedies:
        others = [finding for finding in findings if finding is not root and finding.code not in skipped]
        joined = with_others(target, root, others)
        if joined is not None:
            told[id(root)] = adapt_image_finding(target, replace(root, remedies=(joined, *root.remedies[1:])))
    return told


def adapt_image_finding(target: Target, finding: Finding) -> Finding:
    """Return the finding with the remedies that an image has (`Target.image`).

    The host's are left as they are.
    """
    if finding.cause in OF_HOST:
        kept = [new for one in finding.remedies for new in _adapt_host_remedy(target, one)]
        return replace(finding, remedies=tuple(kept))
    build = target.build
    release = build.release if build is not None and build.exact else None
    of_base = finding.cause in OF_BASE and release is not None
    own = [one for one in finding.remedies if not (of_base and one.replaces)]
    remedies = [new for one in own for new in _lines(target, one, whole=of_base)]
    if of_base and release is not None:
        remedies += on_another_base(target.compat, release, _python(target))
    if finding.cause is not Cause.HIDDEN_BY_ENV and not any(one.replaces for one in remedies):
        whole = _make_card_build_remedy(target) if finding.cause in OF_RELEASE else make_build_remedy(release)
        remedies.append(_rename_result(target, whole))
    return replace(finding, remedies=tuple(remedies))


def _adapt_host_remedy(target: Target, remedy: Remedy) -> list[Remedy]:
    """Return a remedy of what is the host's: as it is, but for what it does to a Python, to files or to variables."""
    if remedy.replaces:  # another TensorFlow
        return _lines(target, remedy, whole=False)
    image, steps = target.image, remedy.steps or _list_exports(remedy)
    if image is not None and image.name and not remedy.steps and steps and all(map(_format_variable, steps)):
        # A card of this machine, or how it is shared, is nothing for an image.
        return [replace(remedy, commands=(start_of(image, *map(_format_variable, steps)),))]
    if steps or _on_files(remedy):
        return _lines(target, replace(remedy, steps=steps), whole=False)
    return [_end_with_check(target, remedy)]


_EXPORT = re.compile(r"export (?P<name>[A-Z][A-Z0-9_]{0,80})=(?P<value>.{1,4000})")


def _list_exports(remedy: Remedy) -> tuple[Step, ...]:
    """Return the steps of a remedy whose commands only set variables of a shell.

    None if they do anything else.
    """
    found: list[Step] = []
    for line in remedy.commands:
        match = _EXPORT.fullmatch(line)
        if match is None:
            if line.startswith("tfdoctor check"):
                continue
            return ()
        name = match["name"]
        value = match["value"].removesuffix(f'"${{{name}:+:${name}}}"')
        plain = shlex.split(value)
        if len(plain) != 1 or "$" in value:
            return ()
        ahead = value != match["value"]
        found.append(Prepend(name, tuple(plain[0].split(":"))) if ahead else Export(name, plain[0]))
    return tuple(found)


def on_another_base(compat: Compat, release: Release, python: str | None) -> list[Remedy]:
    """Return the image of nvidia/cuda to build on, where there is one."""
    text = f"Build on an image that has what TensorFlow {release.version} opens."
    return [Remedy(text, (f"FROM {tag.name}",)) for tag in list_fitting_tags(compat, release, python)[:1]]


def make_build_remedy(
    release: Release | None, text: str = "Build an image whose parts fit together."
) -> Remedy:
    """Return `tfdoctor build`, for the release that is meant."""
    return Remedy(
        text, (f"tfdoctor build --tf {release.version}" if release is not None else "tfdoctor build",)
    )


def _make_card_build_remedy(target: Target) -> Remedy:
    """Return `tfdoctor build` for the release that serves these cards best: an image may have another Python."""
    text = "Build an image of a TensorFlow that has code for this card."
    return Remedy(text, (" ".join(["tfdoctor build", *target.host.options]),))


def _python(target: Target) -> str | None:
    return versions.major_minor(target.python.version) if target.python is not None else None


def _name(target: Target) -> str:
    """Of the image that is looked at; empty where a Dockerfile will make it."""
    return target.image.name if target.image is not None else ""


def new_name(image: str) -> str:
    """Return what an image made anew from this one is called: nothing is written over what is there."""
    if "@" in image or not _REFERENCE.fullmatch(image):
        return "fixed:1"
    folder, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{folder}{slash}{name}:{(tag or 'latest')[:120]}-fixed"


_REFERENCE = re.compile(r"(?!sha256:|[0-9a-f]{12,64}$)[a-z0-9][\w./:-]{0,400}")
"""A name, not an identity."""


def start_of(image: InImage, *options: str) -> str:
    """Return how a container of it is started with the GPUs, as it is typed."""
    words = (image.program, "run", "--rm", image.access, *options, quote(image.name))
    return " ".join(word for word in words if word)


def _end_with_check(target: Target, remedy: Remedy) -> Remedy:
    """It ends with looking again: at an image, that is another command; and what is said of any image is said of it."""
    name = _name(target)
    again = f"tfdoctor verify {quote(name)}" if name else "tfdoctor build --check Dockerfile"
    lines = [again if line.startswith("tfdoctor check") else line for line in remedy.commands]
    if target.image is not None and name:
        lines = [_format_run_command(target.image, line) for line in lines]
    return replace(remedy, commands=tuple(lines))


def _format_run_command(image: InImage, line: str) -> str:
    """Return `docker run --gpus all IMAGE` as it is typed for this image, in its engine's words.

    Other lines as they are.
    """
    program, *words = line.split(" ")
    if program not in ("docker", "podman") or words[:1] != ["run"] or "IMAGE" not in words:
        return line
    rest = " ".join(words)
    for general in ANY_GPU:
        rest = rest.replace(general, image.access)
    told = (quote(image.name) if word == "IMAGE" else word for word in rest.split(" ") if word)
    return " ".join((image.program, *told))


def _rename_result(target: Target, remedy: Remedy) -> Remedy:
    """Return what is built in place of an image gets a name of its own, and is verified under that."""
    name = _name(target)
    if not name or len(remedy.commands) != 1 or not remedy.commands[0].startswith("tfdoctor build"):
        return remedy
    again = new_name(name)
    return replace(remedy, commands=(f"{remedy.commands[0]} --tag {again}", f"tfdoctor verify {again}"))


def _lines(target: Target, remedy: Remedy, *, whole: bool) -> list[Remedy]:
    """Return a remedy as lines of a Dockerfile; nothing if it is not one for an image."""
    if remedy.commands and all(
        line.startswith(("tfdoctor build", "tfdoctor recommend")) for line in remedy.commands
    ):
        return [_rename_result(target, _end_with_check(target, remedy))]
    image, files = target.image, _on_files(remedy)
    if not remedy.steps and not (image is not None and image.name and files):
        return [] if remedy.commands else [remedy]
    if image is None or not image.name:
        return _make_dockerfile_remedies(target, remedy, whole=whole)
    return _make_image_remedies(target, image, remedy, files)


_FILES = re.compile(r"(?:sudo )?(?:chmod|mv|rm) ")


def _on_files(remedy: Remedy) -> tuple[str, ...]:
    """Return lines for what is done to files alone, which in an image are its own.

    None if anything else is done.
    """
    done = [line for line in remedy.commands if not line.startswith(("tfdoctor check", "cat "))]
    if remedy.steps or not all(_FILES.match(line) for line in done):
        return ()
    return tuple(f"RUN {line.removeprefix('sudo ')}" for line in done)


def _make_image_remedies(
    target: Target, image: InImage, remedy: Remedy, files: tuple[str, ...]
) -> list[Remedy]:
    """Of an image that is there: lines for the Dockerfile that made it, or for one that goes on from it; variables
    that are to go, for `run`."""
    found = []
    text = _KEPT.sub("", remedy.text)
    lines = (*files, *(line for step in remedy.steps for line in _line(target, step)))
    if lines:
        alone = image.user.partition(":")[0] in ("", "0", "root")
        other = "" if alone or all(line.startswith("ENV ") for line in lines) else image.user
        again = new_name(image.name)
        found.append(
            Remedy(
                f"{text} Write this at the end of the image's Dockerfile, or into one that begins with "
                f"`FROM {image.name}`; build it, and verify what was built.",
                (
                    *(("USER root",) if other else ()),
                    *lines,
                    *((f"USER {other}",) if other else ()),
                    f"{image.program} build -t {again} .",
                    f"tfdoctor verify {again}",
                ),
            )
        )
    given = [_format_variable(step) for step in remedy.steps]
    if given and all(given):
        found.append(Remedy("For one container this does.", (start_of(image, *given),)))
    lost = [step.name for step in remedy.steps if isinstance(step, Unset)]
    if lost:
        what = "" if lines else f"{text} "
        option = "--unsetenv" if image.program == "podman" else "-e"
        words = " ".join(f"{option} {name}" for name in lost)
        # `-e NAME` hands on what this shell has; without it there, the image's own value is taken out.
        shell = "" if image.program == "podman" else f"env -u {' -u '.join(lost)} "
        text = (
            f"{what}Remove the line `ENV {lost[0]}` from its Dockerfile: no later line can remove a "
            f"variable. For a single container, use this "
            "command."
        )
        found.append(Remedy(text, (f"{shell}{start_of(image, words)}",)))
    return found


def _format_variable(step: Step) -> str:
    """Return a variable as `run` gives it to one container."""
    return f"-e {step.name}={quote(step.value)}" if isinstance(step, Export) else ""


_KEPT = re.compile(
    r" ?The last (?:two lines|line) keeps? it for [^.]{1,60}\.|,? ?[Ff]or this shell(?: only)?(?::$)?"
)
"""What is said of a shell's line, which no image has."""


def _line(target: Target, step: Step) -> list[str]:
    """Return a step as lines of a Dockerfile; none if a line of it has to go."""
    if isinstance(step, Unset):
        return []
    if isinstance(step, Export):
        return [f"ENV {step.name}={quote(step.value)}"]
    if isinstance(step, Prepend):
        # An empty entry would be the working folder.
        return [f"ENV {step.name}={quote(':'.join(step.folders))}${{{step.name}:+:${step.name}}}"]
    if isinstance(step, Rename):
        return [f"ENV {step.right}={quote(target.variables.get(step.wrong, ''))}"]
    if isinstance(step, Drop):
        kept = remove_entries(step, target.variables.get(step.name, ""))
        return [f"ENV {step.name}={quote(':'.join(kept))}"]
    return [f"RUN {line}" for line in format_steps(target, (step,))]


def _make_dockerfile_remedies(target: Target, remedy: Remedy, *, whole: bool) -> list[Remedy]:
    """Of an image that is still to be made: its own lines are changed, and where things will lie is not known.

    `whole`: CUDA comes with TensorFlow, or not from pip: its wheels do not go with libraries of another CUDA.
    """
    steps = remedy.steps
    installs = [step for step in steps if isinstance(step, Install)]
    linked = any(isinstance(step, (MakeLink, LinkParts, Prepend)) for step in steps)
    if (whole and (linked or not all(step.lock for step in installs))) or (linked and not installs):
        return []
    lines = [f"ENV {step.name}={quote(step.value)}" for step in steps if isinstance(step, Export)]
    if installs:
        wanted = [one for step in installs for one in list_wanted(target, step)]
        # where the loader has to be told of them, another base has them in their place
        kept = [quote(one) for one in wanted if not (linked and one.startswith("nvidia-"))]
        if not kept:
            return []
        lines.insert(0, f"RUN pip install {' '.join(kept)}")
    return [replace(remedy, commands=tuple(lines), steps=())]
