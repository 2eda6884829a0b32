"""The context and the type of a Dockerfile check."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tfdoctor.advice.image import make_build_remedy
from tfdoctor.dockerfile.read.libraries import Library, list_libraries
from tfdoctor.dockerfile.read.tensorflow import TensorFlow, tensorflow_of
from tfdoctor.findings import Check, Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.dockerfile.read.compose import ContainerStart
    from tfdoctor.dockerfile.read.image_model import ImageModel
    from tfdoctor.dockerfile.read.models import SourceLine
    from tfdoctor.findings import Cause, Finding, Remedy

__all__ = ["CheckContext", "DockerfileRule", "Foresee", "IndexAnswer"]


class IndexAnswer(Protocol):
    """The package index's answer about requirements; both fields are empty if they can be installed together."""

    @property
    def conflict(self) -> str:
        """Why the requirements cannot be installed together."""

    @property
    def unknown(self) -> str:
        """Why the index could not be asked."""


class Foresee(Protocol):
    """A function that asks whether requirements, constraints and a Python (`3.11`) go together."""

    def __call__(self, wanted: Sequence[str], limits: Sequence[str], python: str) -> IndexAnswer: ...


@dataclass(frozen=True)
class CheckContext:
    """The input of a check. No method reads files or the network, except through `foresee`."""

    subject: ImageModel
    compat: Compat
    file: str
    """The Dockerfile's name, for evidence."""
    start: ContainerStart | None = None
    """How its containers are started; None unless a compose file or a dev container says so."""
    foresee: Foresee | None = None
    """Asks the package index; None if it must not be asked."""

    @cached_property
    def tensorflow(self) -> TensorFlow:
        return tensorflow_of(self.subject, self.compat)

    @cached_property
    def libraries(self) -> tuple[Library, ...]:
        return list_libraries(self.subject, self.tensorflow, self.compat)

    def make_evidence(self, line: int, text: str, source: str = "") -> Evidence:
        """Return evidence in the Dockerfile, or in a file that it copies (`source`)."""
        return Evidence(source or self.file, text, line)

    def cite(self, seen: SourceLine) -> Evidence:
        """Return a source line as evidence."""
        return self.make_evidence(seen.line, seen.text, seen.source)

    @cached_property
    def base_evidence(self) -> Evidence:
        """The FROM line of the base image, as evidence."""
        return self.cite(self.subject.base.source_line)

    @cached_property
    def tensorflow_evidence(self) -> Evidence:
        """The line that installs TensorFlow, or the FROM line if it comes with the base image."""
        tensorflow = self.tensorflow
        return (
            self.make_evidence(tensorflow.line, tensorflow.text, tensorflow.source)
            if tensorflow.installed is not None
            else self.base_evidence
        )

    def build(self, text: str = "Build an image whose parts fit together.") -> Remedy:
        """Return the remedy `tfdoctor build` for the release in the Dockerfile."""
        return make_build_remedy(self.tensorflow.release, text)


@dataclass(frozen=True, slots=True)
class DockerfileRule(Check):
    """A check of a Dockerfile. The docstring of its module is its documentation, as for the rules of `check`."""

    code: str
    name: str
    title: str
    causes: tuple[Cause, ...]
    check: Callable[[CheckContext], Sequence[Finding]]
    about_base: bool = False
    """Whether it is about the base image: without that, nothing else matters."""
