"""Convert remedies for use with an image: to Dockerfile lines, a base image, or a build command.

Commands that run in a shell on the host or in a container do not change an image.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import (
    Install,
    LinkMatchingFiles,
    MakeLink,
    PrependEntries,
    SetVariable,
    UnsetVariable,
    VariableStep,
)
from tfdoctor.core.findings import Cause, Remedy
from tfdoctor.prediction.fit.images import list_fitting_tags
from tfdoctor.remedies.commands import combine_remedies, format_steps, list_step_requirements
from tfdoctor.remedies.engine import DEVICE_OPTION, GPUS_OPTION
from tfdoctor.remedies.pip import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.core.causes.steps import Step
    from tfdoctor.core.findings import Finding
    from tfdoctor.remedies.target import Target, TargetImage

BASE_IMAGE_CAUSES = frozenset(
    {
        Cause.CUDNN_MISSING,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.IMPORT_MISSING_CUDA_LIB,
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_WRONG_VERSION,
    }
)
"""Causes that a different base image can remove."""
HOST_CAUSES = frozenset(
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
"""Causes that lie outside an image: in the driver, or in the start of a container."""
RELEASE_CAUSES = frozenset({Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD})
"""Causes that only an image with another TensorFlow can remove."""
GENERIC_GPU_OPTIONS = (GPUS_OPTION, DEVICE_OPTION)
"""The options of `run` in the remedies that are written for every engine."""
_MAX_TAG_CHARS = 120
"""The number of characters of a tag that are kept in a new image's name. Docker limits a tag to 128 characters."""
_EXPORT = re.compile(r"export (?P<name>[A-Z][A-Z0-9_]{0,80})=(?P<value>.{1,4000})")
"""A command that sets a variable in a shell."""
_REFERENCE = re.compile(r"(?!sha256:|[0-9a-f]{12,64}$)[a-z0-9][\w./:-]{0,400}")
"""An image name, but not an image ID."""
_FILE_COMMAND = re.compile(r"(?:sudo )?(?:chmod|mv|rm) ")
"""A command that changes files; a Dockerfile can run it as root without sudo."""
_SHELL_NOTE = re.compile(
    r" ?The last (?:two lines|line) keeps? it for [^.]{1,60}\.|,? ?[Ff]or this shell(?: only)?(?::$)?"
)
"""Notes in the text of a remedy about shell commands, which do not apply to an image."""


def adapt_image_findings(
    target: Target, root: Finding | None, findings: Sequence[Finding], excluded_codes: Iterable[str] = ()
) -> dict[int, Finding]:
    """Map the `id` of each finding to the finding adapted for an image.

    The first remedy of the root finding also fixes the other errors.
    """
    excluded = frozenset(excluded_codes)
    adapted = {id(finding): adapt_image_finding(target, finding) for finding in findings}
    if root is not None and root.remedies:
        others = [finding for finding in findings if finding is not root and finding.code not in excluded]
        combined = combine_remedies(target, root, others)
        if combined is not None:
            adapted[id(root)] = adapt_image_finding(
                target, replace(root, remedies=(combined, *root.remedies[1:]))
            )
    return adapted


def adapt_image_finding(target: Target, finding: Finding) -> Finding:
    """Return the finding with remedies for an image (`Target.image`).

    A finding about the host keeps its remedies, except those that change a Python, files or variables.
    """
    if finding.cause in HOST_CAUSES:
        host_remedies = [
            host_remedy for remedy in finding.remedies for host_remedy in _adapt_host_remedy(target, remedy)
        ]
        return replace(finding, remedies=tuple(host_remedies))
    build = target.build
    release = build.release if build is not None and build.is_exact_release else None
    needs_base_image = finding.cause in BASE_IMAGE_CAUSES and release is not None
    candidates = [remedy for remedy in finding.remedies if not (needs_base_image and remedy.replaces)]
    remedies = [
        image_remedy
        for remedy in candidates
        for image_remedy in _convert_remedy(target, remedy, skip_partial_cuda=needs_base_image)
    ]
    if needs_base_image and release is not None:
        remedies += make_base_image_remedies(target.compat, release, _get_python(target))
    is_built = _is_built_with(target, release)
    if (
        finding.cause not in (Cause.HIDDEN_BY_ENV, Cause.INCONCLUSIVE)
        and not any(remedy.replaces for remedy in remedies)
        and not (is_built and finding.cause not in RELEASE_CAUSES)
    ):
        build_remedy = (
            _make_gpu_build_remedy(target) if finding.cause in RELEASE_CAUSES else make_build_remedy(release)
        )
        remedies.append(_rename_result(target, build_remedy))
    return replace(finding, remedies=tuple(remedies))


def _is_built_with(target: Target, release: Release | None) -> bool:
    """Return whether tfdoctor built the examined image with this release, so that another build changes nothing."""
    planned = target.image.planned_tensorflow if target.image is not None else ""
    return bool(planned) and release is not None and release.version == planned


def _adapt_host_remedy(target: Target, remedy: Remedy) -> list[Remedy]:
    """Return the remedies for a finding about the host.

    A remedy that changes a Python, files or variables is converted for the image. Any other remedy is kept.
    """
    if remedy.replaces:  # the remedy installs another TensorFlow
        return _convert_remedy(target, remedy, skip_partial_cuda=False)
    image, steps = target.image, remedy.steps or _list_exports(remedy)
    if image is not None and image.name and not remedy.steps and steps and all(map(_format_variable, steps)):
        # These variables select GPUs of this machine, so they are options of `run`, not part of the image.
        return [replace(remedy, commands=(format_start_command(image, *map(_format_variable, steps)),))]
    if steps or _list_file_commands(remedy):
        return _convert_remedy(target, replace(remedy, steps=steps), skip_partial_cuda=False)
    return [_end_with_check(target, remedy)]


def _list_exports(remedy: Remedy) -> tuple[Step, ...]:
    """Return the steps of a remedy whose commands only set shell variables.

    Return an empty tuple if a command does anything else, except run `tfdoctor check`.
    """
    steps: list[Step] = []
    for line in remedy.commands:
        match = _EXPORT.fullmatch(line)
        if match is None:
            if line.startswith("tfdoctor check"):
                continue
            return ()
        name = match["name"]
        # The command that prepends to a variable ends with its old value (see `search_path.format_export`).
        value = match["value"].removesuffix(f'"${{{name}:+:${name}}}"')
        values = shlex.split(value)
        if len(values) != 1 or "$" in value:
            return ()
        has_prepend = value != match["value"]
        steps.append(
            PrependEntries(name, tuple(values[0].split(":"))) if has_prepend else SetVariable(name, values[0])
        )
    return tuple(steps)


def make_base_image_remedies(compat: Compat, release: Release, python: str | None) -> list[Remedy]:
    """Return the remedy that uses the best nvidia/cuda image as the base; an empty list if no image fits."""
    text = f"Build on an image that has what TensorFlow {release.version} opens."
    return [Remedy(text, (f"FROM {tag.name}",)) for tag in list_fitting_tags(compat, release, python)[:1]]


def make_build_remedy(
    release: Release | None, text: str = "Build an image whose parts fit together."
) -> Remedy:
    """Return the remedy that runs `tfdoctor build`, for this release if there is one."""
    return Remedy(
        text, (f"tfdoctor build --tf {release.version}" if release is not None else "tfdoctor build",)
    )


def _make_gpu_build_remedy(target: Target) -> Remedy:
    """Return the remedy that builds an image for these GPUs, whose Python and TensorFlow may differ."""
    text = "Build an image of a TensorFlow that has code for this card."
    return Remedy(text, (" ".join(["tfdoctor build", *target.host.options]),))


def _get_python(target: Target) -> str | None:
    """Return the minor version of the examined Python; None if it is not known."""
    return versions.major_minor(target.python.version) if target.python is not None else None


def _get_image_name(target: Target) -> str:
    """Return the name of the examined image; "" if a Dockerfile will build it."""
    return target.image.name if target.image is not None else ""


def choose_image_name(image: str, *, is_rebuilt: bool = False) -> str:
    """Return a name for an image that is built from this image, so that it does not replace the original.

    If it is rebuilt with other contents, the tag of the original is left out, because it may name the contents. A name in
    the namespace of Docker's official images, or in that of tfdoctor, is put below `localhost/`.
    """
    if "@" in image or not _REFERENCE.fullmatch(image):
        return "localhost/fixed:1"
    folder, slash, name_and_tag = image.rpartition("/")
    name, _, tag = name_and_tag.partition(":")
    if folder in ("", "library", "docker.io/library") or folder.endswith("tfdoctor"):
        folder, slash = "localhost", "/"
    suffix = "fixed" if is_rebuilt else f"{(tag or 'latest')[:_MAX_TAG_CHARS]}-fixed"
    return f"{folder}{slash}{name}:{suffix}"


def format_start_command(image: TargetImage, *options: str) -> str:
    """Return the command that starts a container of the image with GPUs."""
    arguments = (image.engine_command, "run", "--rm", image.gpu_option, *options, quote(image.name))
    return " ".join(argument for argument in arguments if argument)


def _end_with_check(target: Target, remedy: Remedy) -> Remedy:
    """Return the remedy with commands that check this image and use its name and its engine."""
    name = _get_image_name(target)
    check_command = f"tfdoctor verify {quote(name)}" if name else "tfdoctor lint Dockerfile"
    lines = [check_command if line.startswith("tfdoctor check") else line for line in remedy.commands]
    if target.image is not None and name:
        lines = [_format_run_command(target.image, line) for line in lines]
    return replace(remedy, commands=tuple(lines))


def _format_run_command(image: TargetImage, line: str) -> str:
    """Return a command such as `docker run --gpus all IMAGE` for this image and its engine.

    Other commands are returned unchanged.
    """
    program, *arguments = line.split(" ")
    if program not in ("docker", "podman") or arguments[:1] != ["run"] or "IMAGE" not in arguments:
        return line
    arguments_text = " ".join(arguments)
    for option in GENERIC_GPU_OPTIONS:
        arguments_text = arguments_text.replace(option, image.gpu_option)
    quoted = (
        quote(image.name) if argument == "IMAGE" else argument
        for argument in arguments_text.split(" ")
        if argument
    )
    return " ".join((image.engine_command, *quoted))


def _rename_result(target: Target, remedy: Remedy) -> Remedy:
    """Return a build remedy that gives the new image its own name and verifies it.

    Any other remedy is returned unchanged.
    """
    name = _get_image_name(target)
    if not name or len(remedy.commands) != 1 or not remedy.commands[0].startswith("tfdoctor build"):
        return remedy
    new_image = choose_image_name(name, is_rebuilt=True)
    return replace(
        remedy, commands=(f"{remedy.commands[0]} --tag {new_image}", f"tfdoctor verify {new_image}")
    )


def _convert_remedy(target: Target, remedy: Remedy, *, skip_partial_cuda: bool) -> list[Remedy]:
    """Return the remedies that do the same in an image; an empty list if there are none.

    `skip_partial_cuda` is explained at `_make_dockerfile_remedies`.
    """
    if remedy.commands and all(
        line.startswith(("tfdoctor build", "tfdoctor recommend")) for line in remedy.commands
    ):
        return [_rename_result(target, _end_with_check(target, remedy))]
    image, run_lines = target.image, _list_file_commands(remedy)
    if image is not None and image.name and remedy.commands:
        prefix = "tfdoctor check --python "
        if all(line.startswith(f"{prefix}/") for line in remedy.commands):
            pythons = [line.removeprefix(prefix) for line in remedy.commands]
            return _make_python_remedies(target, image, remedy, pythons)
    if not remedy.steps and not (image is not None and image.name and run_lines):
        return [] if remedy.commands else [remedy]
    if image is None or not image.name:
        return _make_dockerfile_remedies(target, remedy, skip_partial_cuda=skip_partial_cuda)
    return _make_image_remedies(target, image, remedy, run_lines)


def _make_python_remedies(
    target: Target, image: TargetImage, remedy: Remedy, pythons: Sequence[str]
) -> list[Remedy]:
    """Return the remedies that use another Python of the image. `pythons` are the quoted paths."""
    folder = shlex.split(pythons[0])[0].rpartition("/")[0]
    first_on_path = Remedy(
        f"{folder} has a Python with TensorFlow: put it first on PATH.",
        steps=(PrependEntries("PATH", (folder,)),),
    )
    commands = tuple(f"tfdoctor verify {quote(image.name)} --python {python}" for python in pythons)
    return [*_make_image_remedies(target, image, first_on_path, ()), replace(remedy, commands=commands)]


def _list_file_commands(remedy: Remedy) -> tuple[str, ...]:
    """Return the RUN lines for a remedy that only changes files; an empty tuple if it does more."""
    changes = [line for line in remedy.commands if not line.startswith(("tfdoctor check", "cat "))]
    if remedy.steps or not all(_FILE_COMMAND.match(line) for line in changes):
        return ()
    return tuple(f"RUN {line.removeprefix('sudo ')}" for line in changes)


def _make_image_remedies(
    target: Target, image: TargetImage, remedy: Remedy, run_lines: tuple[str, ...]
) -> list[Remedy]:
    """Return the remedies for an existing image.

    The first remedy contains lines for the image's Dockerfile, or for a new Dockerfile that builds on the image.
    If the remedy only sets variables, another one contains options of `run`. Unsetting variables is a separate remedy.
    """
    remedies = []
    text = _SHELL_NOTE.sub("", remedy.text)
    lines = (*run_lines, *(line for step in remedy.steps for line in _convert_step(target, step)))
    if lines:
        runs_as_root = image.user.partition(":")[0] in ("", "0", "root")
        user = "" if runs_as_root or all(line.startswith("ENV ") for line in lines) else image.user
        if user:
            lines = ("USER root", *lines, f"USER {user}")
        remedies.append(make_dockerfile_remedy(image, text, lines))
    options = [_format_variable(step) for step in remedy.steps]
    if options and all(options):
        remedies.append(Remedy("For one container this does.", (format_start_command(image, *options),)))
    unset_names = [step.name for step in remedy.steps if isinstance(step, UnsetVariable)]
    if unset_names:
        prefix = "" if lines else f"{text} "
        option = "--unsetenv" if image.engine_command == "podman" else "-e"
        arguments = " ".join(f"{option} {name}" for name in unset_names)
        # `-e NAME` passes the variable of this shell. If the variable is not set there, the image's own value is
        # removed, so the command unsets it with `env -u`.
        env_command = "" if image.engine_command == "podman" else f"env -u {' -u '.join(unset_names)} "
        text = (
            f"{prefix}Remove the line `ENV {unset_names[0]}` from its Dockerfile: no later line can remove a "
            f"variable. For a single container, use this "
            "command."
        )
        remedies.append(Remedy(text, (f"{env_command}{format_start_command(image, arguments)}",)))
    return remedies


def make_dockerfile_remedy(image: TargetImage, text: str, lines: Sequence[str]) -> Remedy:
    """Return the remedy to add lines to an image's Dockerfile."""
    new_image = choose_image_name(image.name)
    return Remedy(
        f"{text} Write this at the end of the image's Dockerfile, or into one that begins with `FROM {image.name}`; "
        "build it, and verify what was built.",
        (*lines, f"{image.engine_command} build -t {new_image} .", f"tfdoctor verify {new_image}"),
    )


def _format_variable(step: Step) -> str:
    """Return the option of `run` that sets a variable; "" for other steps."""
    return f"-e {step.name}={quote(step.value)}" if isinstance(step, SetVariable) else ""


def _convert_step(target: Target, step: Step) -> list[str]:
    """Return the Dockerfile lines for a step; an empty list if the user must remove a line instead."""
    if isinstance(step, UnsetVariable):
        return []
    if isinstance(step, PrependEntries):
        # An empty entry would mean the working folder.
        return [f"ENV {step.name}={quote(':'.join(step.folders))}${{{step.name}:+:${step.name}}}"]
    if isinstance(step, VariableStep):
        variables = step.apply(target.variables)
        return [f"ENV {step.names[-1]}={quote(variables.get(step.names[-1], ''))}"]
    return [f"RUN {line}" for line in format_steps(target, (step,))]


def _make_dockerfile_remedies(target: Target, remedy: Remedy, *, skip_partial_cuda: bool) -> list[Remedy]:
    """Return the remedies for an image that is not built yet, so that its file paths are not known.

    With `skip_partial_cuda`, a remedy that installs only part of CUDA with pip is left out, because NVIDIA's
    wheels do not work with libraries of another CUDA.
    """
    steps = remedy.steps
    install_steps = [step for step in steps if isinstance(step, Install)]
    uses_search_path = any(isinstance(step, (MakeLink, LinkMatchingFiles, PrependEntries)) for step in steps)
    if (skip_partial_cuda and (uses_search_path or not all(step.lock_id for step in install_steps))) or (
        uses_search_path and not install_steps
    ):
        return []
    lines = [f"ENV {step.name}={quote(step.value)}" for step in steps if isinstance(step, SetVariable)]
    if install_steps:
        requirements = [
            requirement for step in install_steps for requirement in list_step_requirements(target, step)
        ]
        # wheels that the loader finds only on a search path are left out; another base image provides them
        packages = [
            quote(requirement)
            for requirement in requirements
            if not (uses_search_path and requirement.startswith("nvidia-"))
        ]
        if not packages:
            return []
        lines.insert(0, f"RUN pip install {' '.join(packages)}")
    return [replace(remedy, commands=tuple(lines), steps=())]
