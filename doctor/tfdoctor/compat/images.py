"""Container images and their contents: compat/images.toml.

An image that is not in the table may nevertheless exist. Only `[[deleted]]` lists images that no longer exist.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

from tfdoctor.compat.decode import ReleaseSet, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = [
    "CudaImages",
    "DeletedImages",
    "Flavour",
    "ImageTag",
    "Images",
    "NgcImage",
    "OfficialImage",
    "OfficialImages",
    "PythonImage",
    "ToolImage",
    "load_images",
]

Flavour = Literal["base", "runtime", "devel"]
Status = Literal["supported", "unsupported", "listed"]
ImageEvidence = Literal["documented", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaImages:
    """A release of nvidia/cuda (`[[cuda]]`)."""

    NAMED: ClassVar = ("version",)
    version: str
    status: Status
    """supported: in NVIDIA's list of tags; unsupported: no longer updated; listed: only in the registry's list."""
    systems: tuple[str, ...]
    """Ubuntu releases with images, such as `"22.04"`."""
    flavours: tuple[Flavour, ...]
    cudnn_tag: str | None = None
    """The part of the tags that stands for cuDNN: `"cudnn8"` or `"cudnn"`. None if no image has cuDNN."""
    cudnn_systems: tuple[str, ...] = ()
    cudnn_flavours: tuple[Flavour, ...] = ()
    cudnn_by_system: Mapping[str, str] = field(default_factory=dict, metadata={"key": "cudnn"})
    """cuDNN version by Ubuntu release, if known."""
    note: str = ""
    sources: Sources

    def __post_init__(self) -> None:
        for system in (*self.cudnn_systems, *self.cudnn_by_system):
            if system not in self.systems:
                msg = f"`{system}` has cuDNN and is not among `systems`"
                raise ValueError(msg)
        if (self.cudnn_tag is None) == bool(self.cudnn_systems):
            msg = "`cudnn_tag` and `cudnn_systems` go together"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedImages:
    """Releases of nvidia/cuda whose tags were all deleted (`[[deleted]]`)."""

    NAMED: ClassVar = ("versions",)
    versions: ReleaseSet
    """Versions as a PEP 440 specifier set."""
    note: str
    sources: Sources


@dataclass(frozen=True, slots=True)
class ImageTag:
    """One tag of nvidia/cuda."""

    name: str
    """Full name, such as `"nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"`."""
    cuda: str
    system: str
    flavour: Flavour
    cudnn: str | None
    """cuDNN version; None if there is no cuDNN or its version is not known (see `has_cudnn`)."""
    has_cudnn: bool
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialImages:
    """Tags of tensorflow/tensorflow that were built in the same way (`[[official]]`)."""

    NAMED: ClassVar = ("versions",)
    versions: ReleaseSet
    """TensorFlow versions as a PEP 440 specifier set."""
    tags: tuple[str, ...]
    """Tags with `{version}` for the TensorFlow version."""
    base: str | None = None
    system: str
    python: str
    cuda: str
    cudnn: str | None = None
    has_working_libraries: bool = field(metadata={"key": "works"})
    """Whether TensorFlow finds its libraries in the image."""
    failure_reason: str = field(default="", metadata={"key": "why"})
    """The reason why TensorFlow does not find its libraries; empty if it finds them."""
    evidence: ImageEvidence
    sources: Sources

    def __post_init__(self) -> None:
        if self.has_working_libraries == bool(self.failure_reason):
            msg = "`why` says why it does not work, and only then"
            raise ValueError(msg)
        if not self.tags or any("{version}" not in tag for tag in self.tags):
            msg = "`tags` must have {version} in each"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class OfficialImage:
    """The official image of a release."""

    names: tuple[str, ...]
    """Full names, such as `("tensorflow/tensorflow:1.14.0-gpu-py3", "tensorflow/tensorflow:1.14.0-gpu")`.

    Names with the Python version of `recipe` come first.
    """
    recipe: OfficialImages


@dataclass(frozen=True, slots=True, kw_only=True)
class NgcImage:
    """An image of nvcr.io/nvidia/tensorflow (`[[ngc]]`)."""

    NAMED: ClassVar = ("tag",)
    tag: str
    tensorflow: str | None = None
    system: str | None = None
    python: str | None = None
    cuda: str
    cudnn: str | None = None
    driver: str | None = None
    """The driver branch that it was built for."""
    compat_drivers: tuple[str, ...] = ()
    """Older drivers, one for each branch, from which it works on data-centre GPUs; empty if not known."""
    min_capability: str | None = field(default=None, metadata={"key": "lowest"})
    """Lowest compute capability that it supports; None if not known."""
    note: str = ""
    evidence: ImageEvidence
    sources: Sources

    @property
    def name(self) -> str:
        """Full name, such as `"nvcr.io/nvidia/tensorflow:25.02-tf2-py3"`."""
        return f"nvcr.io/nvidia/tensorflow:{self.tag}"

    def find_compat_driver(self, driver: str) -> str | None:
        """Return the entry of `compat_drivers` for the branch of a driver; None if there is none."""
        return next(
            (entry for entry in self.compat_drivers if versions.major(entry) == versions.major(driver)), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonImage:
    """A slim image of the `python` repository (`[[python]]`)."""

    NAMED: ClassVar = ("tag",)
    tag: str
    python: str
    system: str
    """Distribution, such as "debian 12"."""
    glibc: str
    digest: str | None = None
    """`"sha256:…"`, or None if not known."""
    evidence: ImageEvidence
    sources: Sources

    @property
    def name(self) -> str:
        """Full name, such as `"python:3.11-slim-bookworm"`."""
        return f"python:{self.tag}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolImage:
    """An image from which Dockerfiles copy a program (`[[tool]]`)."""

    NAMED: ClassVar = ("program",)
    program: str
    """Name of the program, such as `"micromamba"`."""
    image: str
    evidence: ImageEvidence
    sources: Sources


@dataclass(frozen=True, slots=True)
class Images:
    """The container images in the file."""

    as_of: str
    cuda_images: tuple[CudaImages, ...] = field(metadata={"key": "cuda"})
    """Oldest first."""
    deleted_images: tuple[DeletedImages, ...] = field(metadata={"key": "deleted"})
    official_recipes: tuple[OfficialImages, ...] = field(metadata={"key": "official"})
    ngc_images: tuple[NgcImage, ...] = field(metadata={"key": "ngc"})
    python_images: tuple[PythonImage, ...] = field(metadata={"key": "python"})
    """The preferred image comes first."""
    tool_images: tuple[ToolImage, ...] = field(metadata={"key": "tool"})

    def find_tool(self, program: str) -> ToolImage | None:
        """Return the image that contains a program; None if there is none."""
        return next((image for image in self.tool_images if image.program == program), None)

    def find_python(self, python: str) -> PythonImage | None:
        """Return the slim image of a Python version (`"3.9"`); None if there is none."""
        return next((image for image in self.python_images if image.python == python), None)

    def list_tags(
        self,
        cuda: str | None = None,
        *,
        cudnn_major: int | None = None,
        flavour: Flavour | None = None,
        system: str | None = None,
    ) -> tuple[ImageTag, ...]:
        """Return the known tags of nvidia/cuda, the newest CUDA and the newest system first.

        `cuda` is a version prefix (`"12"`, `"11.2"`, `"11.8.0"`). `cudnn_major` selects the tags with this cuDNN, or those
        without cuDNN if it is None.
        """
        tags = []
        for release in reversed(self.cuda_images):
            if cuda is not None and not versions.has_prefix(release.version, cuda):
                continue
            systems = release.systems if cudnn_major is None else release.cudnn_systems
            flavours = release.flavours if cudnn_major is None else release.cudnn_flavours
            for tag_system in reversed(systems):
                if system is not None and tag_system != system:
                    continue
                cudnn = None if cudnn_major is None else release.cudnn_by_system.get(tag_system)
                if cudnn_major is not None and _get_cudnn_major(release, tag_system) != cudnn_major:
                    continue
                tags += [
                    _make_tag(release, tag_system, tag_flavour, cudnn, with_cudnn=cudnn_major is not None)
                    for tag_flavour in flavours
                    if flavour in (None, tag_flavour)
                ]
        return tuple(tags)

    def find_deleted(self, cuda: str) -> DeletedImages | None:
        """Return the entry for the deleted tags of a CUDA release (`"10.0"`, `"11.4.0"`).

        The result is None if nvidia/cuda still has tags of the release, or if the release is not known.
        """
        if any(versions.has_prefix(entry.version, cuda) for entry in self.cuda_images):
            return None
        return next(
            (entry for entry in self.deleted_images if versions.satisfies(cuda, entry.versions)), None
        )

    def find_official(self, version: str) -> OfficialImage | None:
        """Return the official GPU image of a TensorFlow release; None if it is not known."""
        for recipe in self.official_recipes:
            if versions.satisfies(version, recipe.versions):
                names = tuple(f"tensorflow/tensorflow:{tag.format(version=version)}" for tag in recipe.tags)
                return OfficialImage(names, recipe)
        return None

    def find_min_capability(self, image: NgcImage) -> str | None:
        """Return the lowest compute capability that one of NVIDIA's images supports.

        If it is not known for this image, return the lowest of all other images; None if that is not known either.
        """
        if image.min_capability is not None:
            return image.min_capability
        capabilities = [
            known_image.min_capability
            for known_image in self.ngc_images
            if known_image.min_capability is not None
        ]
        return min(capabilities, key=versions.parse_capability, default=None)

    def list_ngc(self, tensorflow: str | None = None, *, cuda: str | None = None) -> tuple[NgcImage, ...]:
        """Return NVIDIA's TensorFlow images, newest first.

        `tensorflow` and `cuda` are version prefixes; None selects all. An image whose TensorFlow version is unknown matches
        only a major version that is in its tag.
        """
        return tuple(
            image
            for image in reversed(self.ngc_images)
            if (tensorflow is None or _has_tensorflow(image, tensorflow))
            and (cuda is None or versions.has_prefix(image.cuda, cuda))
        )


def _make_tag(
    release: CudaImages, system: str, flavour: str, cudnn: str | None, *, with_cudnn: bool
) -> ImageTag:
    """Return the tag for one combination of system, flavour and cuDNN."""
    cudnn_part = f"{release.cudnn_tag}-" if with_cudnn else ""
    name = f"nvidia/cuda:{release.version}-{cudnn_part}{flavour}-ubuntu{system}"
    # Spelled out, so that type checkers know that it is a Flavour.
    kind: Flavour = "base" if flavour == "base" else "runtime" if flavour == "runtime" else "devel"
    return ImageTag(name, release.version, system, kind, cudnn, with_cudnn, release.status)


def _get_cudnn_major(release: CudaImages, system: str) -> int | None:
    """Return the cuDNN major version from the tag (`cudnn8`), else from `CudaImages.cudnn`, or None."""
    if release.cudnn_tag is not None and release.cudnn_tag != "cudnn":
        return int(release.cudnn_tag.removeprefix("cudnn"))
    cudnn = release.cudnn_by_system.get(system)
    return None if cudnn is None else versions.major(cudnn)


def _has_tensorflow(image: NgcImage, version: str) -> bool:
    """Return whether an image has a TensorFlow version with this prefix."""
    if image.tensorflow is not None:
        return versions.has_prefix(image.tensorflow, version)
    return "." not in version and f"-tf{version}-" in f"{image.tag}-"


def load_images(folder: Path) -> Images:
    """Load compat/images.toml. Raise DataError if it is invalid."""
    return read_table(Images, folder / "images.toml")
