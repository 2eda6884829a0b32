"""Data classes for a parsed Dockerfile: stages, and the steps in them that are relevant to tfdoctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from tfdoctor.images.read.shell import Command

__all__ = ["BuildStage", "Copy", "Dockerfile", "Setting", "ShellCommand", "SourceLine", "Step"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A text with the number of the line that it comes from."""

    text: str
    line: int
    source: str = ""
    """The name of the file. Empty for the Dockerfile."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command of a RUN instruction."""

    command: Command
    folder: str | None
    """The working directory. None if unknown."""
    has_cuda_override: bool = False
    """Whether the instruction sets CONDA_OVERRIDE_CUDA, with which conda assumes a GPU."""
    python_code: str = ""
    """The code that Python reads from the instruction's heredoc. Empty if there is none."""

    @property
    def line(self) -> int:
        return self.command.line


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY or ADD instruction, or a bind mount of a RUN."""

    sources: tuple[str, ...]
    """The paths with their variables expanded. Paths that are not known are omitted."""
    target: str | None
    """The absolute path in the image. None if unknown."""
    source_stage: str | None
    """The value of `--from`: the name or number of a stage, or an image. None for the build context."""
    line: int
    content: str | None = None
    """The text of a heredoc. None if files are copied."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable of the image."""

    name: str
    value: str | None
    """The value with its variables expanded. None if unknown."""
    line: int
    text: str
    """The value as written."""


Step = Union[ShellCommand, Copy, Setting]  # noqa: UP007 - Python 3.10 evaluates it


@dataclass(frozen=True, slots=True)
class BuildStage:
    """A build stage: a FROM instruction and all instructions up to the next one."""

    index: int
    name: str
    """The name in lower case. Empty if the stage has none."""
    base: str | None
    """The base image. None if it is another stage, or if its name is unknown."""
    parent_index: int | None
    """The index of the stage that this one builds on. None if it builds on an image."""
    written_base: str
    """The image as written in FROM, without expanding variables."""
    line: int
    platform: str | None
    """The value of `--platform`. None if it is missing or unknown."""
    steps: tuple[Step, ...]
    """Commands, copies and environment variables, in order."""


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A parsed Dockerfile."""

    stages: tuple[BuildStage, ...]
    is_truncated: bool = False
    """Whether the file is so long that its end was not read."""

    @property
    def stage_chain(self) -> tuple[BuildStage, ...]:
        """The last stage and the stages that it builds on, in build order."""
        if not self.stages:
            return ()
        stages = [self.stages[-1]]
        while (parent := stages[-1].parent_index) is not None:
            stages.append(self.stages[parent])
        return tuple(reversed(stages))

    def find_stage(self, name: str, before: int) -> BuildStage | None:
        """Return the stage that `COPY --from=NAME` refers to, or None if it refers to an image.

        `before` is the index of the stage with the COPY, which can only refer to earlier stages.
        """
        for stage in reversed(self.stages[:before]):
            if stage.name and stage.name == name.lower():
                return stage
        if name.isdigit() and len(name) < 6 and int(name) < before:
            return self.stages[int(name)]
        return None
