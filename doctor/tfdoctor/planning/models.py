"""Define the dataclasses of the planner's requests and answers."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.compat import Release
    from tfdoctor.compat.arm64 import Arm64Source
    from tfdoctor.compat.wheels import CudaSet, CudaWheel
    from tfdoctor.core.findings import Remedy
    from tfdoctor.prediction.fit.models import Caveat, Host, Reason

__all__ = [
    "BaseContents",
    "BaseImage",
    "Component",
    "CondaCuda",
    "Conflict",
    "Method",
    "Option",
    "Recipe",
    "Recommendation",
    "Rejection",
    "Request",
    "Suggestion",
]


class Method(str, enum.Enum):
    """How TensorFlow is installed."""

    PIP = "pip"
    """In a virtual environment."""
    CONTAINER = "container"


class Recipe(str, enum.Enum):
    """How an environment or image is built."""

    VENV = "venv"
    """A virtual environment on this machine with CUDA from NVIDIA's wheels."""
    PIP_CUDA = "pip-cuda"
    """A slim Python image with the TensorFlow wheel and CUDA from NVIDIA's wheels."""
    CUDA_BASE = "cuda-base"
    """A runtime image of nvidia/cuda that includes cuDNN."""
    OFFICIAL = "official"
    """An image of tensorflow/tensorflow, with its faults fixed."""
    CONDA_CUDA = "conda-cuda"
    """A slim Python image with the TensorFlow wheel, and CUDA and cuDNN from conda-forge."""
    NGC = "ngc"
    """An image of nvcr.io/nvidia/tensorflow."""

    @property
    def method(self) -> Method:
        return Method.PIP if self is Recipe.VENV else Method.CONTAINER

    @property
    def needs_venv(self) -> bool:
        """Whether the image gets a virtual environment that tfdoctor makes."""
        return self in (Recipe.PIP_CUDA, Recipe.CUDA_BASE, Recipe.CONDA_CUDA)


@dataclass(frozen=True, slots=True)
class BaseContents:
    """What is known about an image that the user wants to build on."""

    system: str
    """The operating system, such as `"ubuntu 18.04"`; "" if unknown."""
    pythons: tuple[str, ...]
    """The Python versions that it has or can install."""
    has_python: bool
    """Whether it has a Python already, instead of packages that install one."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks the planner for. None in a field means any value."""

    tensorflow: str | None = None
    """A version specification that `versions.VersionSpec` accepts."""
    python: str | None = None
    """A Python minor version such as `"3.11"`."""
    method: Method | None = None
    recipe: Recipe | None = None
    base: str | None = None
    """An image to build on instead of the recipe's base image."""
    base_contents: BaseContents | None = None
    """What is in `base`; None if there is no such image, or if its Pythons are not known."""
    requirements: tuple[str, ...] = ()
    """Further requirements to install with TensorFlow."""


@dataclass(frozen=True, slots=True)
class Component:
    """A component of an image or environment, and its size."""

    name: str
    size_bytes: int | None
    """Unpacked size in bytes; None if unknown."""
    purpose: str
    """The purpose of the component."""
    download_bytes: int | None = None
    """Bytes to download; None if unknown, and for components that are not images."""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The image that a recipe builds on."""

    image: str
    system: str
    """The operating system, such as `"debian 12"`; "" if unknown."""
    python_command: str | None
    """The command of the image's Python, such as `"python3"`; None if Python must be installed."""
    python_packages: tuple[str, ...] = ()
    """System packages that install Python if the image has none."""
    digest: str | None = None

    @property
    def reference(self) -> str:
        """The image reference for FROM, with the digest if it is known."""
        return f"{self.image}@{self.digest}" if self.digest and "@" not in self.image else self.image


@dataclass(frozen=True, slots=True)
class CondaCuda:
    """CUDA from a conda channel, fetched with another image during the build."""

    image: str
    """An image that contains micromamba."""
    channel: str
    packages: tuple[str, ...]
    """Package specifications such as `"cudatoolkit=10.0"`."""


@dataclass(frozen=True, slots=True)
class Option:
    """An installation that works according to the tables."""

    recipe: Recipe
    release: Release
    tensorflow: str
    """The version as `tf.__version__` reports it."""
    python: str
    cuda: str
    """The version of the CUDA libraries that are installed."""
    cudnn: str | None
    """The cuDNN version; None if unknown."""
    base: BaseImage | None
    cuda_set: CudaSet | None
    """NVIDIA's wheels; None if the libraries do not come from wheels."""
    wheels_to_install: tuple[CudaWheel, ...]
    """NVIDIA's wheels to install: all of `cuda_set`, or those that the base image lacks."""
    components: tuple[Component, ...]
    commands: tuple[str, ...]
    reasons: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    conda_cuda: CondaCuda | None = None

    @property
    def method(self) -> Method:
        return self.recipe.method

    @property
    def pinned_requirements(self) -> tuple[str, ...]:
        """The pinned requirements: TensorFlow and NVIDIA's wheels."""
        return (
            f"{self.release.package}=={self.release.version}",
            *(wheel.pin for wheel in self.wheels_to_install),
        )

    @property
    def size_bytes(self) -> int | None:
        """The size in bytes; None if the size of a part is unknown."""
        total = 0
        for part in self.components:
            if part.size_bytes is None:
                return None
            total += part.size_bytes
        return total

    @property
    def serious_count(self) -> int:
        """The number of serious caveats."""
        return sum(caveat.is_serious for caveat in self.caveats)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A release that cannot be installed with a recipe, and the reasons."""

    recipe: Recipe
    tensorflow: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A similar request that has an option."""

    text: str
    option: Option
    keeps_gpus: bool = True
    """False if it is for other GPUs than those of the request."""
    keeps_driver: bool = True
    """False if it is for another driver than that of the request."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The result if no installation satisfies the request."""

    reasons: tuple[Reason, ...]
    """The most important first."""
    decisive_count: int = 0
    """The number of reasons, from the first on, that exclude every release by themselves."""
    suggestions: tuple[Suggestion, ...] = ()
    arm64_builds: tuple[Arm64Source, ...] = ()
    """NVIDIA's builds of TensorFlow for this machine, known from third-party reports. tfdoctor cannot install them."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The planner's answer: either options, best first, or a conflict."""

    request: Request
    host: Host
    options: tuple[Option, ...]
    rejections: tuple[Rejection, ...]
    conflict: Conflict | None
    cpu_remedy: Remedy | None = None
    """A remedy that installs TensorFlow for the CPU, if no GPU build fits the machine."""

    @property
    def has_other_builds(self) -> bool:
        """Whether tfdoctor cannot install anything, but NVIDIA's builds for the machine meet the request."""
        return (
            self.conflict is not None and bool(self.conflict.arm64_builds) and self.request.tensorflow is None
        )
