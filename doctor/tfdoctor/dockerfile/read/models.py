"""The content of a Dockerfile: its stages, and the steps of each that matter to tfdoctor, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from tfdoctor.dockerfile.read.shell import Command

__all__ = ["BuildStage", "Copy", "Dockerfile", "Setting", "ShellCommand", "SourceLine", "Step"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A text with the line that it comes from."""

    text: str
    line: int
    source: str = ""
    """File name; empty for the Dockerfile."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command of a RUN instruction."""

    command: Command
    folder: str | None
    """The working directory; None if unknown."""
    variables: tuple[str, ...] = ()
    """Names of variables set for this command, such as VIRTUAL_ENV."""

    @property
    def line(self) -> int:
        return self.command.line


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY or ADD instruction, or a bind mount of a RUN."""

    sources: tuple[str, ...]
    target: str | None
    """Absolute path; None if unknown."""
    origin: str | None
    """The value of `--from`: a stage's name or number, or an image. None for the build context."""
    line: int
    content: str | None = None
    """The text of a heredoc; None for files."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable of the image."""

    name: str
    value: str | None
    """None if unknown."""
    line: int
    text: str
    """The value as written, variables not expanded."""


Step = Union[ShellCommand, Copy, Setting]  # noqa: UP007 - Python 3.10 evaluates it


@dataclass(frozen=True, slots=True)
class BuildStage:
    """A build stage: one FROM, up to the next."""

    index: int
    name: str
    """In lower case; empty if the stage has none."""
    base: str | None
    """The base image; None if it is another stage, or unknown."""
    parent: int | None
    """The index of the stage that this one builds on; None if it builds on an image."""
    written_base: str
    """The image as FROM names it, variables not expanded."""
    line: int
    platform: str | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A parsed Dockerfile."""

    stages: tuple[BuildStage, ...]
    is_cut: bool = False
    """Whether the file is too long and its end was not read."""

    @property
    def chain(self) -> tuple[BuildStage, ...]:
        """The stages that make the image: the last stage and those that it builds on, in build order."""
        if not self.stages:
            return ()
        stages = [self.stages[-1]]
        while (parent := stages[-1].parent) is not None:
            stages.append(self.stages[parent])
        return tuple(reversed(stages))

    def stage(self, name: str, before: int) -> BuildStage | None:
        """Return the stage that `COPY --from=NAME` in stage `before` refers to; None if it is an image."""
        for stage in reversed(self.stages[:before]):
            if stage.name and stage.name == name.lower():
                return stage
        if name.isdigit() and len(name) < 6 and int(name) < before:
            return self.stages[int(name)]
        return None
