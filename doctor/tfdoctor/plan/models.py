"""What is asked of the planner and what it answers, as frozen dataclasses."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.compat import Release
    from tfdoctor.compat.arm64 import Arm64Way
    from tfdoctor.compat.wheels import CudaSet, CudaWheel
    from tfdoctor.findings import Remedy
    from tfdoctor.fit import Caveat, Host, Reason

__all__ = [
    "Base",
    "CondaCuda",
    "Conflict",
    "Method",
    "Option",
    "Part",
    "Recipe",
    "Recommendation",
    "Rejected",
    "Request",
    "Suggestion",
]


class Method(str, enum.Enum):
    """How TensorFlow is brought to the user."""

    PIP = "pip"
    """Into a virtual environment."""
    CONTAINER = "container"


class Recipe(str, enum.Enum):
    """How an environment or image is put together."""

    VENV = "venv"
    """A virtual environment on this machine, CUDA from NVIDIA's wheels."""
    PIP_CUDA = "pip-cuda"
    """A slim Python image, the TensorFlow wheel, CUDA from NVIDIA's wheels."""
    CUDA_BASE = "cuda-base"
    """A runtime image of nvidia/cuda with its own cuDNN."""
    OFFICIAL = "official"
    """An image of tensorflow/tensorflow, with its faults fixed."""
    CONDA_CUDA = "conda-cuda"
    """A slim Python image, the TensorFlow wheel, CUDA and cuDNN from conda-forge."""
    NGC = "ngc"
    """An image of nvcr.io/nvidia/tensorflow."""

    @property
    def method(self) -> Method:
        return Method.PIP if self is Recipe.VENV else Method.CONTAINER

    @property
    def own_venv(self) -> bool:
        """Whether the image has a virtual environment of ours."""
        return self in (Recipe.PIP_CUDA, Recipe.CUDA_BASE, Recipe.CONDA_CUDA)


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants. None: anything."""

    tensorflow: str | None = None
    """A specification as versions.Spec takes it."""
    python: str | None = None
    """`"3.11"`."""
    method: Method | None = None
    recipe: Recipe | None = None
    base: str | None = None
    """An image to build on instead of the recipe's own."""
    requirements: tuple[str, ...] = ()
    """What has to be installed besides TensorFlow."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an image or environment and what it costs."""

    name: str
    bytes: int | None
    """Unpacked; None: not known."""
    why: str
    download: int | None = None
    """Bytes that are fetched, of an image of which that is known."""


@dataclass(frozen=True, slots=True)
class Base:
    """The image that a recipe starts from."""

    image: str
    system: str
    """`"debian 12"`, `"ubuntu 20.04"`; empty: not known."""
    python: str | None
    """The command of the Python in it that is used: `"python3"`; None: it has to be installed."""
    install: tuple[str, ...] = ()
    """Packages of the system that bring the Python where the image has none."""
    digest: str | None = None

    @property
    def reference(self) -> str:
        """What FROM is given."""
        return f"{self.image}@{self.digest}" if self.digest and "@" not in self.image else self.image


@dataclass(frozen=True, slots=True)
class CondaCuda:
    """CUDA from a conda channel, fetched by another image while the image is built."""

    image: str
    """It has micromamba."""
    channel: str
    packages: tuple[str, ...]
    """`"cudatoolkit=10.0"`."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way that works, as far as is known."""

    recipe: Recipe
    release: Release
    tensorflow: str
    """What its `tf.__version__` says."""
    python: str
    cuda: str
    """Of the libraries that it brings."""
    cudnn: str | None
    base: Base | None
    cuda_set: CudaSet | None
    """NVIDIA's wheels; None where the base has the libraries."""
    wheels: tuple[CudaWheel, ...]
    """NVIDIA's wheels that are installed: all of `cuda_set`, or those that its base lacks."""
    parts: tuple[Part, ...]
    commands: tuple[str, ...]
    reasons: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    conda: CondaCuda | None = None

    @property
    def method(self) -> Method:
        return self.recipe.method

    @property
    def packages(self) -> tuple[str, ...]:
        """What is installed by name: TensorFlow, and NVIDIA's wheels."""
        return (f"{self.release.package}=={self.release.version}", *(wheel.pin for wheel in self.wheels))

    @property
    def size(self) -> int | None:
        """Bytes it takes; None where a part is not known."""
        total = 0
        for part in self.parts:
            if part.bytes is None:
                return None
            total += part.bytes
        return total

    @property
    def serious(self) -> int:
        """How many caveats speak against it."""
        return sum(caveat.serious for caveat in self.caveats)


@dataclass(frozen=True, slots=True)
class Rejected:
    """One way that does not work, and why."""

    recipe: Recipe
    tensorflow: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The nearest request that would work."""

    text: str
    option: Option
    here: bool = True
    """For the machine that was asked about; False: for another card or driver."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing fulfils the request."""

    reasons: tuple[Reason, ...]
    nearest: tuple[Suggestion, ...] = ()
    elsewhere: tuple[Arm64Way, ...] = ()
    """TensorFlow for this machine that tfdoctor neither plans nor builds: NVIDIA's own, as others tell."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The planner's answer: options, best first, or a conflict; never both, never neither."""

    request: Request
    host: Host
    options: tuple[Option, ...]
    rejected: tuple[Rejected, ...]
    conflict: Conflict | None
    without_gpu: Remedy | None = None
    """TensorFlow on the processor alone, where the machine has no card or no GPU code is made for it."""
