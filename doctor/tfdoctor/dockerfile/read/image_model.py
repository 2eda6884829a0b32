"""The image that a Dockerfile makes, as far as it can be known without building it: its base, its Python, its
packages, its CUDA and its variables. Pure; what could not be known is said in `unseen`.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

from tfdoctor.dockerfile.read.bases import BaseReference, base_of
from tfdoctor.dockerfile.read.installs import apt_call, conda_call, parse_wanted, pip_call, requirement_lines
from tfdoctor.dockerfile.read.models import Copy, Setting, ShellCommand, SourceLine
from tfdoctor.dockerfile.read.pythons import PythonTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdoctor.compat import Compat
    from tfdoctor.dockerfile.read.installs import PipCall, WantedDistribution
    from tfdoctor.dockerfile.read.models import BuildStage, Dockerfile, Step
    from tfdoctor.dockerfile.read.shell import Command

    Reader = Callable[[str], "str | None"]

__all__ = ["Call", "InstalledDistribution", "Subject", "subject_of"]

MAX_CALLS = 100
_ELSEWHERE = frozenset(
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
_INDEXES = frozenset(
    {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX"}
)
"""What leads pip to another index than the usual one."""
MAX_FILES = 50
"""Requirement files that are read."""
_ENVIRONMENT_FOLDERS = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|\.?venv|env|virtualenv|\.local|usr/local|opt|conda|mini(?:conda|forge)3?|"
    r"wheels|wheelhouse|dist|install|packages|root|home)(?:/|$)"
)
"""Folders whose copy brings the packages of another stage along."""
_LIBRARY_FOLDERS = re.compile(
    r"^/(?:usr/?|usr/local/?|opt/?)?$|(?:^|/)(?:lib(?:64|s|raries)?|x86_64-linux-gnu)/?$|\.so\b"
)
_CUDA_WORD = re.compile(r"cuda|cudnn|nvidia-|libnvinfer", re.IGNORECASE)
_APT_KNOWN = re.compile(
    r"(?:cuda|libcu|libnpp|libnccl|libnv|nsight|nvidia-)[a-z0-9-]*|tensorrt[a-z0-9-]*|libnvinfer[a-z0-9-]*"
)
_HARMLESS_CUDA = re.compile(r"cuda-keyring|3bf863cc|7fa2af80|sources\.list|apt-key|CUDA_VISIBLE|libcuda\.so")


@dataclass(frozen=True, slots=True)
class InstalledDistribution:
    """A distribution that pip is told to install."""

    want: WantedDistribution
    python: str | None
    """The Python that it is installed for, where that is known."""


@dataclass(frozen=True, slots=True)
class Call:
    """What one `pip install` is told: only what it is told at once does it have go together."""

    python: str | None
    wants: tuple[WantedDistribution, ...]
    limits: tuple[WantedDistribution, ...]
    """Of its constraints."""
    whole: bool
    """Whether all of it is known, and comes from the index that pip asks by itself."""


@dataclass(slots=True)
class Subject:
    """What is known of the image."""

    base: BaseReference
    packages: dict[str, InstalledDistribution] = field(default_factory=dict)
    """By normalised name; what came last counts."""
    both: list[InstalledDistribution] = field(default_factory=list)
    """Every TensorFlow that is installed and not taken away again, in order."""
    constraints: dict[str, list[WantedDistribution]] = field(default_factory=dict)
    others: int = 0
    """Projects installed by path or address, whose requirements are not known."""
    apt: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    """Package → (version, line)."""
    conda: dict[str, tuple[str, int]] = field(default_factory=dict)
    environment: dict[str, Setting] = field(default_factory=dict)
    unseen: list[SourceLine] = field(default_factory=list)
    """What would have to be known to be sure."""
    cuda_elsewhere: list[SourceLine] = field(default_factory=list)
    """Signs of a CUDA that comes in a way that is not read here: a runfile, a copy, a downloaded package."""
    loader: list[SourceLine] = field(default_factory=list)
    """Where the loader is told of folders: ld.so.conf.d, LD_LIBRARY_PATH in a command."""
    stub_links: list[SourceLine] = field(default_factory=list)
    apt_updates: list[tuple[SourceLine, bool]] = field(default_factory=list)
    """`apt-get update`, and whether NVIDIA's list was taken away or its key renewed before."""
    no_deps: bool = False
    calls: list[Call] = field(default_factory=list)
    refused: list[SourceLine] = field(default_factory=list)
    """Installs into a Python that its system manages: pip refuses them (PEP 668)."""

    def list_limits(self, name: str) -> tuple[str, ...]:
        """Return every limit on a package: of its own requirement and of the constraints."""
        own = [self.packages[name].want.specifier] if name in self.packages else []
        return tuple(
            text for text in (*own, *(one.specifier for one in self.constraints.get(name, ()))) if text
        )


def subject_of(file: Dockerfile, compat: Compat, read: Reader) -> Subject:
    """Return the image of the last stage.

    `read`: path in the build context → text, None if it cannot be seen.
    """
    chain = file.chain
    first = chain[0]
    subject = Subject(base_of(first.base, first.written, first.line, compat))
    work = _Work(file, subject, read, PythonTracker(subject.base, compat))
    for stage in chain:
        for step in stage.steps:
            work.take(step, stage)
    if file.cut:
        subject.unseen.append(SourceLine("the file is very long: its end was not read", first.line))
    return subject


class _Work:
    """Goes through the steps in order."""

    def __init__(self, file: Dockerfile, subject: Subject, read: Reader, pythons: PythonTracker) -> None:
        self.file = file
        self.subject = subject
        self.read = read
        self.pythons = pythons
        self.copies: list[Copy] = []
        self.files = 0
        self.list_gone = False
        self.taken: set[int] = set()
        self.wants: list[WantedDistribution] = []
        self.limits: list[WantedDistribution] = []

    def take(self, step: Step, stage: BuildStage) -> None:
        if isinstance(step, Setting):
            self.subject.environment[step.name] = step
            self.pythons.setting(step)
        elif isinstance(step, Copy):
            self._copy(step, stage)
        else:
            self._run(step)

    # --- files ---

    def _copy(self, step: Copy, stage: BuildStage) -> None:
        if step.origin is None:
            self.copies.append(step)
            return
        source = self.file.stage(step.origin, stage.index)
        if source is None:
            if any(_CUDA_WORD.search(text) for text in (step.origin, *step.sources)):
                self.subject.cuda_elsewhere.append(SourceLine(f"COPY --from={step.origin}", step.line))
            return
        named = any(_CUDA_WORD.search(path) for path in (*step.sources, step.target or ""))
        brings = any(_ENVIRONMENT_FOLDERS.search(path) for path in step.sources) or step.sources == ("/",)
        libraries = any(_LIBRARY_FOLDERS.search(path) for path in step.sources)
        if named or (libraries and self._has_cuda(source)) or (brings and self._has_conda_cuda(source)):
            self.subject.cuda_elsewhere.append(
                SourceLine(f"COPY --from={step.origin} {' '.join(step.sources)}", step.line)
            )
        if brings and source.index not in self.taken:
            self.taken.add(source.index)
            self._packages_of(source)

    def _chain(self, stage: BuildStage) -> list[BuildStage]:
        """Return a stage and those that it builds on, the first last."""
        stages = [stage]
        while (parent := stages[-1].parent) is not None:
            stages.append(self.file.stages[parent])
        return stages

    def _has_cuda(self, source: BuildStage) -> bool:
        """Return whether another stage has a CUDA that is not pip's: its image's, apt's, or conda's."""
        return bool(_CUDA_WORD.search(self._chain(source)[-1].base or "")) or any(
            pip_call(command) is None and _CUDA_WORD.search(command.text)
            for command in self._commands(source)
        )

    def _has_conda_cuda(self, source: BuildStage) -> bool:
        calls = (conda_call(command) for command in self._commands(source))
        return any(_CUDA_WORD.search(name) for call in calls if call is not None for name, _ in call.packages)

    def _commands(self, source: BuildStage) -> Iterator[Command]:
        for stage in self._chain(source):
            yield from (step.command for step in stage.steps if isinstance(step, ShellCommand))

    def _packages_of(self, source: BuildStage) -> None:
        """Those that pip installed in another stage and that a copy brings along."""
        stages = self._chain(source)
        base = stages[-1]
        mine, copies = self.pythons, self.copies
        other = base_of(base.base, base.written, base.line, mine.compat)
        self.pythons, self.copies = PythonTracker(other, mine.compat), []
        for stage in reversed(stages):
            for step in stage.steps:
                if isinstance(step, ShellCommand) and (call := pip_call(step.command)) is not None:
                    self._pip(call, step)
                elif isinstance(step, ShellCommand):
                    self.pythons.command(step.command)
                elif isinstance(step, Copy) and step.origin is None:
                    self.copies.append(step)
                elif isinstance(step, Setting):
                    self.pythons.setting(step)
        self.pythons, self.copies = mine, copies

    def _file(self, path: str, folder: str | None) -> tuple[str, str] | None:
        """(name, text) of a file in the image that was copied from the context."""
        if path.startswith(("http://", "https://")) or "$" in path:
            return None
        where = path if path.startswith("/") else None if folder is None else posixpath.join(folder, path)
        if where is None:
            return None
        where = posixpath.normpath(where)
        for copy in reversed(self.copies[-200:]):
            for candidate in _candidates(copy, where):
                if copy.content is not None:
                    return posixpath.basename(where), copy.content
                text = self.read(candidate)
                if text is not None:
                    return candidate, text
        return None

    # --- commands ---

    def _run(self, step: ShellCommand) -> None:
        command = step.command
        text = command.text
        subject = self.subject
        if (pip := pip_call(command)) is not None:
            self._pip(pip, step)
            return
        if (apt := apt_call(command)) is not None:
            if apt.action == "update":
                subject.apt_updates.append((SourceLine(text[:200], apt.line), self.list_gone))
            for name, version in apt.packages if apt.action in ("install", "satisfy", "reinstall") else ():
                subject.apt[name] = (version, apt.line)
            if apt.unknown and _CUDA_WORD.search(text):
                subject.cuda_elsewhere.append(SourceLine(text[:200], apt.line))
            self.pythons.apt(apt)
            return
        if (conda := conda_call(command)) is not None:
            for name, version in conda.packages:
                subject.conda[name] = (version, conda.line)
            for name in conda.files:
                subject.unseen.append(SourceLine(f"{name}: files of conda are not read", conda.line))
            self.pythons.conda(conda)
            return
        self.pythons.command(command)
        self._add_other(command.name, text, command.line, " ".join(one.target for one in command.redirects))

    def _add_other(self, name: str, text: str, line: int, targets: str) -> None:
        subject = self.subject
        if "sources.list.d" in text and name in ("rm", "mv", "sed", "find", "unlink"):
            self.list_gone = True
        if "3bf863cc" in text or "cuda-keyring" in text:
            self.list_gone = True
        if "ld.so.conf" in text or "ld.so.conf" in targets or "LD_LIBRARY_PATH" in text:
            subject.loader.append(SourceLine(text[:200], line))
        if "stubs/libcuda.so" in text and name in ("ln", "cp", "mv"):
            subject.stub_links.append(SourceLine(text[:200], line))
        elif name in ("sh", "bash", "dpkg", "gdebi", "tar", "cp", "unzip", "ln", "mv") or name.endswith(
            ".run"
        ):
            if _CUDA_WORD.search(text) and not _HARMLESS_CUDA.search(text) and name != "ln":
                subject.cuda_elsewhere.append(SourceLine(text[:200], line))
        elif name in ("poetry", "pipenv", "pdm", "pixi") or (
            name == "uv" and re.search(r"uv (?:sync|add)\b", text)
        ):
            subject.unseen.append(SourceLine(f"{text[:100]}: what it installs is not read", line))

    # --- pip ---

    def _pip(self, call: PipCall, step: ShellCommand) -> None:
        subject = self.subject
        python = call.python or self.pythons.find_python(call.program)
        if call.action == "uninstall":
            for one in call.packages:
                subject.packages.pop(one.name, None)
                subject.both = [other for other in subject.both if other.want.name != one.name]
            return
        if self.pythons.refuses(call, step.command) and call.action == "install":
            subject.refused.append(SourceLine(step.command.text[:200], call.line))
        self.wants, self.limits = [], []
        before = subject.others, len(subject.unseen)
        subject.others += call.others
        subject.no_deps = subject.no_deps or not call.dependencies
        for one in call.packages:
            self._want(one, python)
        for path in call.files:
            self._requirements(path, step, python, depth=0)
        for path in call.constraints:
            self._requirements(path, step, python, depth=0, constraint=True)
        if call.action == "install" and call.dependencies and len(subject.calls) < MAX_CALLS:
            own = {word.text.partition("=")[0] for word in step.command.words}
            usual = not own & _ELSEWHERE and not subject.environment.keys() & _INDEXES
            same = before == (subject.others, len(subject.unseen))
            whole = (
                usual
                and same
                and all(one.known and not one.cut and "@" not in one.text for one in self.wants)
            )
            subject.calls.append(Call(python, tuple(self.wants), tuple(self.limits), whole))

    def _requirements(
        self, path: str, step: ShellCommand, python: str | None, *, depth: int, constraint: bool = False
    ) -> None:
        self.files += 1
        found = self._file(path, step.folder) if self.files <= MAX_FILES and depth < 5 else None
        if found is None:
            what = "constraints" if constraint else "requirements"
            self.subject.unseen.append(SourceLine(f"{what} {path[:100]} could not be read", step.line))
            return
        name, text = found
        for number, written in requirement_lines(text):
            row = re.sub(r"\s--hash[= ]\S+", "", written).strip()
            option, _, value = row.partition("=") if row.startswith("--") else row.partition(" ")
            if option in ("-r", "--requirement", "-c", "--constraint"):
                value = value.strip() or row.split()[-1]
                inner = posixpath.join(posixpath.dirname(path), value)
                self._requirements(
                    inner,
                    step,
                    python,
                    depth=depth + 1,
                    constraint=constraint or option in ("-c", "--constraint"),
                )
            elif row.startswith("-r") and not row.startswith("--"):
                inner = posixpath.join(posixpath.dirname(path), row[2:].strip())
                self._requirements(inner, step, python, depth=depth + 1, constraint=constraint)
            elif not row.startswith("-") and (one := parse_wanted(row, number, name)) is not None:
                if constraint:
                    self.limits.append(one)
                    self.subject.constraints.setdefault(one.name, []).append(one)
                else:
                    self._want(one, python)
            elif not constraint:
                self.subject.others += 1

    def _want(self, one: WantedDistribution, python: str | None) -> None:
        if not _applies(one, python):
            return
        self.wants.append(one)
        installed = InstalledDistribution(one, python)
        known = self.subject.packages.get(one.name)
        if known is not None and not one.specifier and one.known and not one.extras - known.want.extras:
            return  # it is there already: pip leaves it
        self.subject.packages[one.name] = installed
        if _is_tensorflow(one.name):
            self.subject.both = [other for other in self.subject.both if other.want.name != one.name]
            self.subject.both.append(installed)


def _is_tensorflow(name: str) -> bool:
    return bool(
        re.fullmatch(
            r"tensorflow(?:-gpu|-cpu|-intel|-rocm|-cpu-aws|-aarch64)?|intel-tensorflow(?:-avx512)?", name
        )
        or re.fullmatch(r"tf-nightly(?:-gpu|-cpu)?|nvidia-tensorflow", name)
    )


def _applies(one: WantedDistribution, python: str | None) -> bool:
    """Return whether its marker lets it through on Linux; True where that is not known."""
    if not one.marker:
        return True
    environment = {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
    }
    if python is not None:
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    elif "python" in one.marker:
        return True
    try:
        return Marker(one.marker).evaluate(environment)
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def _candidates(copy: Copy, where: str) -> list[str]:
    """Return the paths in the context that a file of the image can come from."""
    target = copy.target
    if target is None:
        return []
    bare = target.rstrip("/") or "/"
    if copy.content is not None:
        return [where] if where == bare else []
    found = []
    for written in copy.sources[:50]:
        source = written.lstrip("/")
        name = posixpath.basename(source.rstrip("/"))
        if where == bare and len(copy.sources) == 1 and not target.endswith("/"):
            found.append(source)
        prefix = bare if bare.endswith("/") else bare + "/"
        if not where.startswith(prefix):
            continue
        rest = where[len(prefix) :]
        if len(name) < 200 and (
            rest == name or ("/" not in rest and name and fnmatch.fnmatchcase(rest, name))
        ):
            found.append(posixpath.normpath(posixpath.join(posixpath.dirname(source), rest)))
        found.append(posixpath.normpath(posixpath.join(source, rest)))
    return found
