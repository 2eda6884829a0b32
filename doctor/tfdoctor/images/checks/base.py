"""The base types of Dockerfile checks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tfdoctor.core.findings import Evidence, RuleBase
from tfdoctor.images.read.libraries import RequiredLibrary, list_required_libraries
from tfdoctor.images.read.tensorflow import ImageTensorFlow, find_tensorflow
from tfdoctor.remedies.image import make_build_remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.findings import Cause, Finding, Remedy
    from tfdoctor.images.read.compose import ContainerStart
    from tfdoctor.images.read.image_model import ImageModel
    from tfdoctor.images.read.models import SourceLine

__all__ = ["CheckContext", "DockerfileRule", "IndexQuery", "IndexReply"]


class IndexReply(Protocol):
    """The reply of the package index. Both fields are empty if the requirements can be installed together."""

    @property
    def conflict_reason(self) -> str:
        """The reason why the requirements cannot be installed together, or an empty string."""

    @property
    def unknown_reason(self) -> str:
        """The reason why the index could not be queried, or an empty string."""


class IndexQuery(Protocol):
    """A function that asks the package index whether a Python (`3.11`) can install requirements together."""

    def __call__(
        self, requirements: Sequence[str], constraints: Sequence[str], python: str
    ) -> IndexReply: ...


@dataclass(frozen=True)
class CheckContext:
    """The input of a check. Only `query_index` uses files or the network."""

    image: ImageModel
    """The model of the image that is checked."""
    compat: Compat
    dockerfile_name: str
    """The name of the Dockerfile, which evidence cites."""
    container_start: ContainerStart | None = None
    """How a compose file or a dev container starts the container. None if there is no such file."""
    query_index: IndexQuery | None = None
    """The function that queries the package index. None if the index must not be queried."""

    @property
    def is_arm(self) -> bool:
        """Whether the image is for arm64, by `--platform` of FROM or the file that starts the container."""
        return "arm64" in self.image.platform or "aarch64" in self.image.platform

    @property
    def is_arm_wheel(self) -> bool:
        """Whether TensorFlow is a wheel of the package index for arm64, which has no GPU code (arm64.toml)."""
        return self.tensorflow.installed is not None and self.is_arm

    @cached_property
    def tensorflow(self) -> ImageTensorFlow:
        return find_tensorflow(self.image, self.compat)

    @cached_property
    def libraries(self) -> tuple[RequiredLibrary, ...]:
        return list_required_libraries(self.image, self.tensorflow, self.compat)

    def make_evidence(self, line: int, text: str, source: str = "") -> Evidence:
        """Return a line as evidence. It is in the file `source`, or in the Dockerfile if `source` is empty."""
        return Evidence(source or self.dockerfile_name, text, line)

    def cite(self, source_line: SourceLine) -> Evidence:
        """Return a source line as evidence."""
        return self.make_evidence(source_line.line, source_line.text, source_line.source)

    @cached_property
    def base_evidence(self) -> Evidence:
        """The FROM line of the base image, as evidence."""
        return self.cite(self.image.base.source_line)

    @cached_property
    def tensorflow_evidence(self) -> Evidence:
        """The line that installs TensorFlow, or the FROM line if TensorFlow comes with the base image."""
        tensorflow = self.tensorflow
        return (
            self.make_evidence(tensorflow.line, tensorflow.written_name, tensorflow.source)
            if tensorflow.installed is not None
            else self.base_evidence
        )

    def make_build_remedy(self, text: str = "Build an image whose parts fit together.") -> Remedy:
        """Return the remedy to run `tfdoctor build` for the release in the Dockerfile."""
        return make_build_remedy(self.tensorflow.release, text)


@dataclass(frozen=True, slots=True)
class DockerfileRule(RuleBase):
    """A Dockerfile check. As for the `check` rules, the docstring of its module is its documentation."""

    code: str
    name: str
    title: str
    causes: tuple[Cause, ...]
    check: Callable[[CheckContext], Sequence[Finding]]
    is_about_base: bool = False
    """Whether the check is about the base image. Findings of such checks are reported first."""
