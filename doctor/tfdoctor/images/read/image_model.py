"""Model the image that a Dockerfile builds: its base, Python, packages, CUDA and variables.

Lines whose effect cannot be determined are listed in `ImageModel.unknown_lines`.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

from tfdoctor.core import versions
from tfdoctor.images.read.bases import BaseReference, describe_base
from tfdoctor.images.read.gpu_code import fails_without_gpu
from tfdoctor.images.read.installs import (
    iter_requirement_lines,
    parse_apt_call,
    parse_conda_call,
    parse_pip_call,
    parse_requirement,
)
from tfdoctor.images.read.models import Copy, Setting, ShellCommand, SourceLine
from tfdoctor.images.read.pythons import PythonTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdoctor.compat import Compat
    from tfdoctor.images.read.installs import PipCall, PipRequirement
    from tfdoctor.images.read.models import BuildStage, Dockerfile, Step
    from tfdoctor.images.read.shell import Command

    Reader = Callable[[str], "str | None"]

__all__ = ["ImageModel", "InstalledDistribution", "PipInstall", "parse_image"]

MAX_CALLS = 100
"""The largest number of pip commands that are stored for the conflict check."""
_INDEX_OPTIONS = frozenset(
    {
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "--index",
        "--default-index",
        "--no-index",
    }
)
"""pip options that select another package index than the default one."""
_INDEX_VARIABLES = frozenset(
    {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX"}
)
"""Environment variables that select another package index than the default one for pip or uv."""
MAX_FILES = 50
"""The largest number of requirements files that are read."""
_ENVIRONMENT_FOLDERS = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|\.?venv|env|virtualenv|\.local|usr/local|opt|conda|mini(?:conda|forge)3?|"
    r"wheels|wheelhouse|dist|install|packages|root|home)(?:/|$)"
)
"""Folders that may contain Python packages, which a copy from another stage brings along."""
_LIBRARY_FOLDERS = re.compile(
    r"^/(?:usr/?|usr/local/?|opt/?)?$|(?:^|/)(?:lib(?:64|s|raries)?|x86_64-linux-gnu)/?$|\.so\b"
)
"""Matches paths that may contain shared libraries."""
_CUDA_MENTION = re.compile(r"cuda|cudnn|nvidia-|libnvinfer", re.IGNORECASE)
"""Matches package names, paths and commands that mention CUDA."""
_DRIVER_PACKAGE = re.compile(
    r"(?:nvidia-(?:driver|utils|headless|dkms|kernel)(?:-\S{1,40})?|libnvidia-(?:compute|gl|ml|decode|encode)\S{0,40}|"
    r"libcuda1|cuda|cuda-drivers(?:-\d{1,4})?|xserver-xorg-video-nvidia\S{0,40})"
)
"""An apt package that contains a part of NVIDIA's driver, or requires one."""
_INTERPRETER_PATH = re.compile(
    r"^/(?:usr/?|usr/local/?|(?:usr/|usr/local/)?bin(?:/.*)?|opt/?)?$|conda|mamba|pyenv|(?<!/lib)/[^/]*python[\d.]*/?$|/uv(?:/|$)"
)
"""A path that contains a Python interpreter, if a copy from another stage names it."""
_DASH = re.compile("[\u2012-\u2015\u2212]")
"""A typographic dash, which editors and web pages put in place of a hyphen."""
_GPU_PROGRAM = re.compile(
    r"(?:nvidia-smi|deviceQuery)$|"
    r"python[\d.]* (?:-\w+ )*\S{0,100}(?:train|finetune|benchmark|gpu_?test|test_?gpu|check_?gpu)\w{0,40}\.py\b"
)
"""A command that needs a GPU, or very likely does."""
_FILE_MAKER = re.compile(
    r"\b(?:git|curl|wget|tar|unzip|echo|cat|printf|tee|cp|mv|poetry|uv|pip-compile|sed|touch)\b|>"
)
"""A command that may write a requirements file."""
_UPGRADE_OPTIONS = frozenset(
    {
        "-U",
        "--upgrade",
        "--force-reinstall",
        "-I",
        "--ignore-installed",
        "-t",
        "--target",
        "--prefix",
        "--root",
    }
)
"""pip options with which an installed version that meets the requirement is not left alone."""
_HARMLESS_MENTION = re.compile(
    r"cuda-keyring|3bf863cc|7fa2af80|sources\.list|apt-key|CUDA_VISIBLE|libcuda\.so"
)
"""Matches texts that mention CUDA but install no CUDA libraries."""


@dataclass(frozen=True, slots=True)
class InstalledDistribution:
    """A distribution that a pip command installs."""

    requirement: PipRequirement
    python: str | None
    """The version of the Python that it is installed for. None if unknown."""


@dataclass(frozen=True, slots=True)
class PipInstall:
    """A `pip install` command. pip checks only the requirements of one command against each other."""

    python: str | None
    """The version of the Python that it installs for. None if unknown."""
    requirements: tuple[PipRequirement, ...]
    """The requirements of the command and of its requirements files."""
    constraints: tuple[PipRequirement, ...]
    """The constraints in its constraints files."""
    is_complete: bool
    """Whether all of its requirements are known and are installed from the default index."""


@dataclass(slots=True)
class ImageModel:
    """The known contents of an image."""

    base: BaseReference
    platform: str = ""
    """The platform that FROM asks for, such as `linux/arm64`. Empty for that of the machine that builds."""
    packages: dict[str, InstalledDistribution] = field(default_factory=dict)
    """The installed packages, by normalised name. A later requirement replaces an earlier one."""
    tensorflow_installations: list[InstalledDistribution] = field(default_factory=list)
    """Every TensorFlow package that is installed and not uninstalled later, in order."""
    constraints: dict[str, list[PipRequirement]] = field(default_factory=dict)
    """The constraints of all pip commands, by normalised name."""
    unnamed_count: int = 0
    """Number of projects installed by path or URL, whose requirements are unknown."""
    apt_packages: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    """(version, line) of each apt package, by name. The version is None if none is given."""
    conda_packages: dict[str, tuple[str, int]] = field(default_factory=dict)
    """(version as written, line) of each conda package, by name."""
    environment: dict[str, Setting] = field(default_factory=dict)
    """The last setting of each environment variable, by name."""
    unknown_lines: list[SourceLine] = field(default_factory=list)
    """Lines whose effect could not be determined, although the result may depend on it."""
    cuda_from_other_sources: list[SourceLine] = field(default_factory=list)
    """Lines that may install CUDA from a source that is not read, such as a runfile or a copy."""
    loader_lines: list[SourceLine] = field(default_factory=list)
    """Lines that add folders to the loader's search path: ld.so.conf.d, or LD_LIBRARY_PATH in a command."""
    stub_links: list[SourceLine] = field(default_factory=list)
    """Commands that link, copy or move CUDA's stub of libcuda.so."""
    apt_updates: list[tuple[SourceLine, bool]] = field(default_factory=list)
    """Each `apt-get update`, and whether an earlier command removed NVIDIA's list or replaced its key."""
    skips_dependencies: bool = False
    """Whether a pip command has `--no-deps`."""
    pip_calls: list[PipInstall] = field(default_factory=list)
    foreign_copies: list[tuple[SourceLine, str, str]] = field(default_factory=list)
    """Copies of packages that were installed for another Python: (line, their Python, the Python here)."""
    driver_packages: list[SourceLine] = field(default_factory=list)
    """The apt commands that install a part of NVIDIA's driver."""
    cpu_conda_lines: list[SourceLine] = field(default_factory=list)
    """The conda commands that install the CPU build, because no GPU is visible in a build."""
    gpu_programs: list[SourceLine] = field(default_factory=list)
    """The commands that need a GPU while the image is built."""
    impossible_lines: list[tuple[SourceLine, str]] = field(default_factory=list)
    """Commands that certainly fail, and the reason."""
    refused_pip_lines: list[SourceLine] = field(default_factory=list)
    """Lines on which pip refuses to install, because the system manages its Python (PEP 668)."""

    def list_specifiers(self, name: str) -> tuple[str, ...]:
        """Return the specifiers for a package, from its own requirement and from constraints."""
        specifiers = [self.packages[name].requirement.specifier] if name in self.packages else []
        return tuple(
            text
            for text in (
                *specifiers,
                *(constraint.specifier for constraint in self.constraints.get(name, ())),
            )
            if text
        )


def parse_image(dockerfile: Dockerfile, compat: Compat, read_file: Reader) -> ImageModel:
    """Return the model of the image that the last stage builds.

    `read_file` returns the text of a path in the build context, or None if it cannot be read.
    """
    stages = dockerfile.stage_chain
    first_stage = stages[0]
    base = describe_base(first_stage.base, first_stage.written_base, first_stage.line, compat)
    model = ImageModel(base, first_stage.platform or "")
    reader = _ImageReader(dockerfile, model, read_file, PythonTracker(model.base, compat))
    for stage in stages:
        for step in stage.steps:
            reader.apply(step, stage)
    if dockerfile.is_truncated:
        model.unknown_lines.append(
            SourceLine("the file is very long: its end was not read", first_stage.line)
        )
    return model


class _ImageReader:
    """Applies the steps of the stages, in order, to an image model."""

    def __init__(self, file: Dockerfile, subject: ImageModel, read: Reader, pythons: PythonTracker) -> None:
        self.file = file
        self.subject = subject
        self.read = read
        self.pythons = pythons
        self.copies: list[Copy] = []
        """The copies from the build context so far."""
        self.file_count = 0
        """The number of requirements and constraints files that were read."""
        self.is_apt_list_fixed = False
        """Whether NVIDIA's apt list was removed or its key replaced so far."""
        self.copied_stages: set[int] = set()
        """Indexes of the stages whose packages were copied."""
        self.requirements: list[PipRequirement] = []
        """The requirements of the current pip command and its files."""
        self.limits: list[PipRequirement] = []
        """The constraints of the current pip command."""
        self.leaves_installed = False
        """Whether the current pip command leaves an installed version that meets its requirement."""
        self.satisfied: InstalledDistribution | None = None
        """A requirement of TensorFlow that the base image meets, so that pip leaves its TensorFlow alone."""
        self.has_copied_python = False
        """Whether a copy from another stage or image brings a Python interpreter."""
        self.may_have_files = False
        """Whether a copy or a command may have made files that are not known."""

    def apply(self, step: Step, stage: BuildStage) -> None:
        """Apply one step of a stage to the model."""
        if isinstance(step, Setting):
            self.subject.environment[step.name] = step
            self.pythons.apply_setting(step)
        elif isinstance(step, Copy):
            self._apply_copy(step, stage)
        else:
            self._apply_command(step)

    # --- files ---

    def _apply_copy(self, step: Copy, stage: BuildStage) -> None:
        """Record a copy from the build context, or the CUDA and packages that another stage may bring."""
        self.may_have_files = True
        if step.source_stage is not None and any(map(_INTERPRETER_PATH.search, step.sources)):
            self.has_copied_python = True
            self.subject.foreign_copies.clear()
        if step.source_stage is None:
            self.copies.append(step)
            return
        source_stage = self.file.find_stage(step.source_stage, stage.index)
        if source_stage is None:
            if any(_CUDA_MENTION.search(text) for text in (step.source_stage, *step.sources)):
                self.subject.cuda_from_other_sources.append(
                    SourceLine(f"COPY --from={step.source_stage}", step.line)
                )
            return
        names_cuda = any(_CUDA_MENTION.search(path) for path in (*step.sources, step.target or ""))
        has_packages = (
            any(_ENVIRONMENT_FOLDERS.search(path) for path in step.sources)
            or step.sources == ("/",)
            or self._names_pip_folder(step, source_stage)
        )
        has_libraries = any(_LIBRARY_FOLDERS.search(path) for path in step.sources)
        if (
            names_cuda
            or (has_libraries and self._has_cuda(source_stage))
            or (has_packages and self._has_conda_cuda(source_stage))
        ):
            self.subject.cuda_from_other_sources.append(
                SourceLine(f"COPY --from={step.source_stage} {' '.join(step.sources)}", step.line)
            )
        if has_packages and source_stage.index not in self.copied_stages:
            self.copied_stages.add(source_stage.index)
            self._add_stage_packages(source_stage)
            self._compare_pythons(step)

    def _names_pip_folder(self, step: Copy, stage: BuildStage) -> bool:
        """Return whether a copy names a folder into which pip of another stage installed, or a folder above it."""
        calls = (parse_pip_call(command) for command in self._iter_commands(stage))
        folders = [f"{call.folder.rstrip('/')}/" for call in calls if call is not None and call.folder]
        return any(folder.startswith(f"{path.rstrip('/')}/") for path in step.sources for folder in folders)

    def _compare_pythons(self, step: Copy) -> None:
        """Record a copy of packages that were installed for another Python, unless a copy brings that Python, too."""
        here = self.pythons.version_by_command.get("python3")
        installations = self.subject.tensorflow_installations
        other = installations[0].python if len(installations) == 1 else None
        if None in (here, other) or here == other or self.has_copied_python:
            return
        line = SourceLine(f"COPY --from={step.source_stage} {' '.join(step.sources)}", step.line)
        self.subject.foreign_copies.append((line, other or "", here or ""))

    def _list_ancestors(self, stage: BuildStage) -> list[BuildStage]:
        """Return a stage followed by the stages that it builds on."""
        stages = [stage]
        while (parent := stages[-1].parent_index) is not None:
            stages.append(self.file.stages[parent])
        return stages

    def _has_cuda(self, stage: BuildStage) -> bool:
        """Return whether a stage has CUDA from its base image or from a command other than pip."""
        return bool(_CUDA_MENTION.search(self._list_ancestors(stage)[-1].base or "")) or any(
            parse_pip_call(command) is None and _CUDA_MENTION.search(command.text)
            for command in self._iter_commands(stage)
        )

    def _has_conda_cuda(self, stage: BuildStage) -> bool:
        """Return whether a stage installs CUDA packages with conda."""
        calls = (parse_conda_call(command) for command in self._iter_commands(stage))
        return any(
            _CUDA_MENTION.search(name) for call in calls if call is not None for name, _ in call.packages
        )

    def _iter_commands(self, source: BuildStage) -> Iterator[Command]:
        """Yield the shell commands of a stage and of the stages that it builds on."""
        for stage in self._list_ancestors(source):
            yield from (step.command for step in stage.steps if isinstance(step, ShellCommand))

    def _add_stage_packages(self, source_stage: BuildStage) -> None:
        """Add the packages that a COPY brings from another stage, in which pip installed them."""
        stages = self._list_ancestors(source_stage)
        first_stage = stages[-1]
        pythons, copies = self.pythons, self.copies
        base_image = describe_base(
            first_stage.base, first_stage.written_base, first_stage.line, pythons.compat
        )
        # The other stage has its own Python versions and its own copies from the build context.
        self.pythons, self.copies = PythonTracker(base_image, pythons.compat), []
        for stage in reversed(stages):
            for step in stage.steps:
                if isinstance(step, ShellCommand) and (call := parse_pip_call(step.command)) is not None:
                    self._apply_pip_call(call, step)
                elif isinstance(step, ShellCommand):
                    self.pythons.apply_command(step.command)
                elif isinstance(step, Copy) and step.source_stage is None:
                    self.copies.append(step)
                elif isinstance(step, Setting):
                    self.pythons.apply_setting(step)
        self.pythons, self.copies = pythons, copies

    def _find_file(self, path: str, folder: str | None) -> tuple[str, str] | None:
        """Return (name, text) of a file that was copied from the build context into the image, or None."""
        if "$" in path:
            return None
        target = path if path.startswith("/") else None if folder is None else posixpath.join(folder, path)
        if target is None:
            return None
        target = posixpath.normpath(target)
        for copy in reversed(self.copies[-200:]):
            for source_path in _list_source_paths(copy, target):
                if copy.content is not None:
                    return posixpath.basename(target), copy.content
                text = self.read(source_path)
                if text is not None:
                    return source_path, text
        return None

    # --- commands ---

    def _apply_command(self, step: ShellCommand) -> None:
        """Apply a shell command."""
        command = step.command
        text = command.text
        subject = self.subject
        if not command.ignores_failure and (_needs_gpu(command) or fails_without_gpu(step.python_code)):
            subject.gpu_programs.append(SourceLine(" ".join(text.split())[:200], command.line))
        if (pip := parse_pip_call(command)) is not None:
            self._apply_pip_call(pip, step)
            return
        if (apt := parse_apt_call(command)) is not None:
            if apt.action == "update":
                subject.apt_updates.append((SourceLine(text[:200], apt.line), self.is_apt_list_fixed))
            for name, version in apt.packages if apt.action in ("install", "satisfy", "reinstall") else ():
                subject.apt_packages[name] = (version, apt.line)
                if _DRIVER_PACKAGE.fullmatch(name):
                    subject.driver_packages.append(SourceLine(name, apt.line))
            if apt.has_unknown_argument and _CUDA_MENTION.search(text):
                subject.cuda_from_other_sources.append(SourceLine(text[:200], apt.line))
            self.pythons.apply_apt(apt)
            return
        if (conda := parse_conda_call(command)) is not None:
            for name, version in conda.packages:
                subject.conda_packages[name] = (version, conda.line)
                is_chosen = "CONDA_OVERRIDE_CUDA" in subject.environment or re.search("cuda|gpu", version)
                if name == "tensorflow" and not is_chosen and not step.has_cuda_override:
                    subject.cpu_conda_lines.append(SourceLine(text[:200], conda.line))
            for name in conda.spec_files:
                subject.unknown_lines.append(SourceLine(f"{name}: files of conda are not read", conda.line))
            self.pythons.apply_conda(conda)
            return
        self.may_have_files = self.may_have_files or bool(_FILE_MAKER.search(text) or command.redirects)
        self.pythons.apply_command(command)
        self._record_other_command(
            command.name, text, command.line, " ".join(redirect.target for redirect in command.redirects)
        )

    def _record_other_command(self, name: str, text: str, line: int, targets: str) -> None:
        """Record the effect of a command that is not pip, apt or conda on the loader, apt or CUDA.

        `targets` are the files that its output is redirected to, separated by spaces.
        """
        subject = self.subject
        if "sources.list.d" in text and name in ("rm", "mv", "sed", "find", "unlink"):
            self.is_apt_list_fixed = True
        # 3bf863cc is the key that replaced the retired one, and the cuda-keyring package contains it.
        if "3bf863cc" in text.lower() or "cuda-keyring" in text:
            self.is_apt_list_fixed = True
        if "ld.so.conf" in text or "ld.so.conf" in targets or "LD_LIBRARY_PATH" in text:
            subject.loader_lines.append(SourceLine(text[:200], line))
        if "stubs/libcuda.so" in text and name in ("ln", "cp", "mv"):
            subject.stub_links.append(SourceLine(text[:200], line))
        elif name in ("sh", "bash", "dpkg", "gdebi", "tar", "cp", "unzip", "mv") or name.endswith(".run"):
            if _CUDA_MENTION.search(text) and not _HARMLESS_MENTION.search(text):
                subject.cuda_from_other_sources.append(SourceLine(text[:200], line))
        elif name in ("poetry", "pipenv", "pdm", "pixi") or (
            name == "uv" and re.search(r"uv (?:sync|add)\b", text)
        ):
            subject.unknown_lines.append(SourceLine(f"{text[:100]}: what it installs is not read", line))

    # --- pip ---

    def _apply_pip_call(self, call: PipCall, step: ShellCommand) -> None:
        """Apply a pip or uv command."""
        subject = self.subject
        python = call.python or self.pythons.find_python(call.program)
        if call.action == "uninstall":
            for requirement in call.packages:
                subject.packages.pop(requirement.name, None)
                subject.tensorflow_installations = [
                    other
                    for other in subject.tensorflow_installations
                    if other.requirement.name != requirement.name
                ]
            return
        if self.pythons.is_refused(call, step.command) and call.action == "install":
            subject.refused_pip_lines.append(SourceLine(step.command.text[:200], call.line))
        self.requirements, self.limits = [], []
        options = {argument.text.partition("=")[0] for argument in step.command.words}
        self.leaves_installed = not options & _UPGRADE_OPTIONS
        dashed = next((word.text for word in step.command.words if _DASH.match(word.text.lstrip("-"))), None)
        if dashed is not None:
            reason = f"{dashed[:40]} has a typographic dash where a hyphen belongs: it is no option of pip"
            subject.impossible_lines.append((SourceLine(step.command.text[:200], call.line), reason))
        unknown_counts_before = subject.unnamed_count, len(subject.unknown_lines)
        subject.unnamed_count += call.unnamed_count
        subject.skips_dependencies = subject.skips_dependencies or not call.installs_dependencies
        for requirement in call.packages:
            self._add_requirement(requirement, python)
        for path in call.requirements_files:
            self._apply_requirements_file(path, step, python, depth=0)
        for path in call.constraints_files:
            self._apply_requirements_file(path, step, python, depth=0, is_constraint=True)
        if call.action == "install" and call.installs_dependencies and len(subject.pip_calls) < MAX_CALLS:
            uses_default_index = (
                not options & _INDEX_OPTIONS and not subject.environment.keys() & _INDEX_VARIABLES
            )
            is_all_read = unknown_counts_before == (subject.unnamed_count, len(subject.unknown_lines))
            is_complete = (
                uses_default_index
                and is_all_read
                and all(
                    requirement.is_known and not requirement.redirected_part and "@" not in requirement.text
                    for requirement in self.requirements
                )
            )
            subject.pip_calls.append(
                PipInstall(python, tuple(self.requirements), tuple(self.limits), is_complete)
            )

    def _apply_requirements_file(
        self, path: str, step: ShellCommand, python: str | None, *, depth: int, is_constraint: bool = False
    ) -> None:
        """Apply a requirements or constraints file and the files that it includes."""
        self.file_count += 1
        requirements_file = (
            self._find_file(path, step.folder) if self.file_count <= MAX_FILES and depth < 5 else None
        )
        if requirements_file is None:
            kind = "constraints" if is_constraint else "requirements"
            self.subject.unknown_lines.append(SourceLine(f"{kind} {path[:100]} could not be read", step.line))
            is_named = depth == 0 and "$" not in path and "://" not in path
            if is_named and not self.may_have_files and self.subject.base.kind != "unknown":
                reason = f"no line before it brings {path[:100]} into the image"
                self.subject.impossible_lines.append((SourceLine(step.command.text[:200], step.line), reason))
            return
        name, text = requirements_file
        for number, file_line in iter_requirement_lines(text):
            line = re.sub(r"\s--hash[= ]\S+", "", file_line).strip()
            option, _, value = line.partition("=") if line.startswith("--") else line.partition(" ")
            if option in ("-r", "--requirement", "-c", "--constraint"):
                value = value.strip() or line.split()[-1]
                included_path = posixpath.join(posixpath.dirname(path), value)
                self._apply_requirements_file(
                    included_path,
                    step,
                    python,
                    depth=depth + 1,
                    is_constraint=is_constraint or option in ("-c", "--constraint"),
                )
            elif line.startswith("-r") and not line.startswith("--"):
                included_path = posixpath.join(posixpath.dirname(path), line[2:].strip())
                self._apply_requirements_file(
                    included_path, step, python, depth=depth + 1, is_constraint=is_constraint
                )
            elif (
                not line.startswith("-")
                and (requirement := parse_requirement(line, number, name)) is not None
            ):
                if is_constraint:
                    self.limits.append(requirement)
                    self.subject.constraints.setdefault(requirement.name, []).append(requirement)
                else:
                    self._add_requirement(requirement, python)
            elif not is_constraint:
                self.subject.unnamed_count += 1

    def _add_requirement(self, requirement: PipRequirement, python: str | None) -> None:
        """Record that pip installs a requirement, unless its marker excludes this Python."""
        if not _may_match(requirement, python):
            return
        self.requirements.append(requirement)
        installed = InstalledDistribution(requirement, python)
        previous = self.subject.packages.get(requirement.name)
        if (
            previous is not None
            and not requirement.specifier
            and requirement.is_known
            and not requirement.extras - previous.requirement.extras
        ):
            return  # already installed, so pip changes nothing
        self.subject.packages[requirement.name] = installed
        if _is_tensorflow(requirement.name):
            if self._has_in_base(requirement, python):
                self.satisfied = installed
                return
            if self.satisfied is not None and not self.subject.tensorflow_installations:
                self.subject.tensorflow_installations.append(self.satisfied)
            self.subject.tensorflow_installations = [
                other
                for other in self.subject.tensorflow_installations
                if other.requirement.name != requirement.name
            ]
            self.subject.tensorflow_installations.append(installed)

    def _has_in_base(self, requirement: PipRequirement, python: str | None) -> bool:
        """Return whether the base image has a TensorFlow with which pip counts this requirement as satisfied."""
        base = self.subject.base
        return (
            self.leaves_installed
            and not self.subject.tensorflow_installations
            and base.tensorflow_version is not None
            and base.kind == "official"
            and requirement.name == base.tensorflow_package
            and python == base.python
            and requirement.is_known
            and not requirement.extras
            and versions.satisfies(base.tensorflow_version, requirement.specifier)
        )


def _needs_gpu(command: Command) -> bool:
    """Return whether a command needs a GPU, or very likely does: by its name or by the code after `python -c`."""
    text = command.text
    if _GPU_PROGRAM.match(text.rpartition("/")[2] if command.name == "nvidia-smi" else text):
        return True
    words = command.words
    index = next((index for index, word in enumerate(words[1:-1], 1) if word.text == "-c"), 0)
    return (
        index > 0
        and re.fullmatch(r"python[\d.]*", command.name) is not None
        and all(word.text.startswith("-") for word in words[1:index])
        and words[index + 1].is_known
        and fails_without_gpu(words[index + 1].text)
    )


def _is_tensorflow(name: str) -> bool:
    """Return whether a normalised project name is that of a TensorFlow distribution."""
    return bool(
        re.fullmatch(
            r"tensorflow(?:-gpu|-cpu|-intel|-rocm|-cpu-aws|-aarch64)?|intel-tensorflow(?:-avx512)?", name
        )
        or re.fullmatch(r"tf-nightly(?:-gpu|-cpu)?|nvidia-tensorflow", name)
    )


def _may_match(requirement: PipRequirement, python: str | None) -> bool:
    """Return whether a requirement's marker matches Linux and this Python, or may match if unknown."""
    if not requirement.marker:
        return True
    if python is None and re.search("python|implementation", requirement.marker):
        return True
    try:
        # If the Python is unknown, the marker is about something else, so that any version will do.
        return Marker(requirement.marker).evaluate(versions.make_marker_environment(python or "3.12"))
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def _list_source_paths(copy: Copy, path: str) -> list[str]:
    """Return the paths in the build context from which a COPY may have made the file `path` of the image."""
    target = copy.target
    if target is None:
        return []
    target_path = target.rstrip("/") or "/"
    if copy.content is not None:
        return [path] if path == target_path else []
    paths = []
    for source_text in copy.sources[:50]:
        source = source_text.lstrip("/")
        name = posixpath.basename(source.rstrip("/"))
        if path == target_path and len(copy.sources) == 1 and not target.endswith("/"):
            paths.append(source)
        prefix = target_path if target_path.endswith("/") else target_path + "/"
        if not path.startswith(prefix):
            continue
        relative_path = path[len(prefix) :]
        if len(name) < 200 and (
            relative_path == name
            or ("/" not in relative_path and name and fnmatch.fnmatchcase(relative_path, name))
        ):
            paths.append(posixpath.normpath(posixpath.join(posixpath.dirname(source), relative_path)))
        paths.append(posixpath.normpath(posixpath.join(source, relative_path)))
    return paths
