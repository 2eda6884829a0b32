"""What a Dockerfile says, as frozen dataclasses: stages, and in each the steps that matter here, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from tfdoctor.dockerfile.read.shell import Command

__all__ = ["BuildStage", "Copy", "Dockerfile", "Setting", "ShellCommand", "SourceLine", "Step"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Something in the Dockerfile and where."""

    text: str
    line: int
    source: str = ""
    """The file's name where it is not the Dockerfile."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command of a RUN instruction."""

    command: Command
    folder: str | None
    """The working directory; None: not known."""
    variables: tuple[str, ...] = ()
    """Names set for this command that matter (`VIRTUAL_ENV`)."""

    @property
    def line(self) -> int:
        return self.command.line


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY or ADD, or a bind mount of a RUN."""

    sources: tuple[str, ...]
    target: str | None
    """Absolute; None: not known."""
    origin: str | None
    """What `--from` names: a stage's name or number, or an image; None: the build context."""
    line: int
    content: str | None = None
    """Of a heredoc."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable of the image."""

    name: str
    value: str | None
    """None: not known."""
    line: int
    text: str
    """As written."""


Step = Union[ShellCommand, Copy, Setting]  # noqa: UP007 - Python 3.10 evaluates it


@dataclass(frozen=True, slots=True)
class BuildStage:
    """From one FROM to the next."""

    index: int
    name: str
    """In lower case; empty: it has none."""
    base: str | None
    """The image; None where it is another stage, or not known."""
    parent: int | None
    """The stage that it builds on."""
    written: str
    """What FROM says, variables not put in."""
    line: int
    platform: str | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The whole file."""

    stages: tuple[BuildStage, ...]
    cut: bool = False
    """Whether it is so long that its end was not read."""

    @property
    def chain(self) -> tuple[BuildStage, ...]:
        """The last stage and those that it builds on, the first first: they make the image."""
        if not self.stages:
            return ()
        found = [self.stages[-1]]
        while (parent := found[-1].parent) is not None:
            found.append(self.stages[parent])
        return tuple(reversed(found))

    def stage(self, name: str, before: int) -> BuildStage | None:
        """Return the stage that `COPY --from=NAME` of stage `before` means, or None: it is an image."""
        for stage in reversed(self.stages[:before]):
            if stage.name and stage.name == name.lower():
                return stage
        if name.isdigit() and len(name) < 6 and int(name) < before:
            return self.stages[int(name)]
        return None
