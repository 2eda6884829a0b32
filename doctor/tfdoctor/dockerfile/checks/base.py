"""What a check of a Dockerfile is given, and what several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tfdoctor.dockerfile.read.libraries import Library, libraries_of
from tfdoctor.dockerfile.read.tensorflow import TensorFlow, tensorflow_of
from tfdoctor.findings import Cause, Check, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.dockerfile.read.subject import Subject

__all__ = ["Context", "DockerfileRule"]


@dataclass(frozen=True)
class Context:
    """What a check may look at. Nothing here does I/O."""

    subject: Subject
    compat: Compat
    file: str
    """The Dockerfile's name, for evidence."""

    @cached_property
    def tensorflow(self) -> TensorFlow:
        return tensorflow_of(self.subject, self.compat)

    @cached_property
    def libraries(self) -> tuple[Library, ...]:
        return libraries_of(self.subject, self.tensorflow, self.compat)

    def at(self, line: int, text: str, source: str = "") -> Evidence:
        """Evidence in the Dockerfile, or in a file that it copies."""
        return Evidence(source or self.file, text, line)

    @cached_property
    def about_base(self) -> Evidence:
        return self.at(self.subject.base.line, f"FROM {self.subject.base.reference}")

    @cached_property
    def about_tensorflow(self) -> Evidence:
        one = self.tensorflow
        return self.at(one.line, one.text, one.source) if one.installed is not None else self.about_base

    def build(self, text: str = "Have an image built that fits together.") -> Remedy:
        """`tfdoctor build`, for the release that is meant."""
        release = self.tensorflow.release
        version = release.version if release is not None else None
        return Remedy(text, (f"tfdoctor build --tf {version}" if version else "tfdoctor build",))


@dataclass(frozen=True, slots=True)
class DockerfileRule(Check):
    """One check of a Dockerfile. Its module's docstring is its documentation, as with the rules of `check`."""

    code: str
    name: str
    title: str
    causes: tuple[Cause, ...]
    check: Callable[[Context], Sequence[Finding]]
