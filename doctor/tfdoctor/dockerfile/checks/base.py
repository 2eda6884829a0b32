"""What a check of a Dockerfile is given, and what several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tfdoctor.advice.image import make_build_remedy
from tfdoctor.dockerfile.read.libraries import Library, libraries_of
from tfdoctor.dockerfile.read.tensorflow import TensorFlow, tensorflow_of
from tfdoctor.findings import Check, Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.dockerfile.read.compose import Start
    from tfdoctor.dockerfile.read.image_model import Subject
    from tfdoctor.dockerfile.read.models import SourceLine
    from tfdoctor.findings import Cause, Finding, Remedy

__all__ = ["CheckContext", "DockerfileRule", "Foresee", "IndexAnswer"]


class IndexAnswer(Protocol):
    """What the index says of requirements; nothing in either: they go together."""

    @property
    def conflict(self) -> str:
        """Why they do not."""

    @property
    def unknown(self) -> str:
        """Why it could not be asked."""


class Foresee(Protocol):
    """Whether requirement lines, constraint lines and a Python ("3.11") go together."""

    def __call__(self, wanted: Sequence[str], limits: Sequence[str], python: str) -> IndexAnswer: ...


@dataclass(frozen=True)
class CheckContext:
    """What a check may look at. Nothing here does I/O."""

    subject: Subject
    compat: Compat
    file: str
    """The Dockerfile's name, for evidence."""
    start: Start | None = None
    """How its containers are started, where a compose file or a dev container says so."""
    foresee: Foresee | None = None
    """Asks the package index; None: nobody does."""

    @cached_property
    def tensorflow(self) -> TensorFlow:
        return tensorflow_of(self.subject, self.compat)

    @cached_property
    def libraries(self) -> tuple[Library, ...]:
        return libraries_of(self.subject, self.tensorflow, self.compat)

    def make_evidence(self, line: int, text: str, source: str = "") -> Evidence:
        """Return evidence in the Dockerfile, or in a file that it copies."""
        return Evidence(source or self.file, text, line)

    def cite(self, seen: SourceLine) -> Evidence:
        return self.make_evidence(seen.line, seen.text, seen.source)

    @cached_property
    def cite_base(self) -> Evidence:
        return self.cite(self.subject.base.seen)

    @cached_property
    def cite_tensorflow(self) -> Evidence:
        one = self.tensorflow
        return (
            self.make_evidence(one.line, one.text, one.source)
            if one.installed is not None
            else self.cite_base
        )

    def build(self, text: str = "Build an image whose parts fit together.") -> Remedy:
        """Return `tfdoctor build`, for the release that is meant."""
        return make_build_remedy(self.tensorflow.release, text)


@dataclass(frozen=True, slots=True)
class DockerfileRule(Check):
    """One check of a Dockerfile. Its module's docstring is its documentation, as with the rules of `check`."""

    code: str
    name: str
    title: str
    causes: tuple[Cause, ...]
    check: Callable[[CheckContext], Sequence[Finding]]
    first: bool = False
    """It is about the base image: without that nothing else matters."""
