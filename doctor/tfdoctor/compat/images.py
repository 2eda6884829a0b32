"""Container images that exist, and what is in them: compat/images.toml, read strictly, and asked.

Nothing is guessed: an image that is not in the table is unknown, not missing; only `deleted` says that
something is gone.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import ReleaseSet, Sources, read
from tfdoctor.records import dataclass

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
Known = Literal["documented", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaImages:
    """One release of nvidia/cuda (`[[cuda]]`)."""

    NAMED: ClassVar = ("version",)
    version: str
    status: Status
    """On NVIDIA's list of supported tags; still there without fixes; only seen in a list of the registry."""
    systems: tuple[str, ...]
    """Ubuntu releases."""
    flavours: tuple[Flavour, ...]
    cudnn_tag: str | None = None
    """How the tags with cuDNN say so: `"cudnn8"`, `"cudnn"`; None: there are none."""
    cudnn_systems: tuple[str, ...] = ()
    cudnn_flavours: tuple[Flavour, ...] = ()
    cudnn: Mapping[str, str] = field(default_factory=dict)
    """Ubuntu release → cuDNN inside, where known."""
    note: str = ""
    sources: Sources

    def __post_init__(self) -> None:
        for system in (*self.cudnn_systems, *self.cudnn):
            if system not in self.systems:
                msg = f"`{system}` has cuDNN and is not among `systems`"
                raise ValueError(msg)
        if (self.cudnn_tag is None) == bool(self.cudnn_systems):
            msg = "`cudnn_tag` and `cudnn_systems` go together"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedImages:
    """Releases of nvidia/cuda of which no tag exists any more (`[[deleted]]`)."""

    NAMED: ClassVar = ("versions",)
    versions: ReleaseSet
    """A PEP 440 set."""
    note: str
    sources: Sources


@dataclass(frozen=True, slots=True)
class ImageTag:
    """One tag of nvidia/cuda."""

    name: str
    """`"nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"`."""
    cuda: str
    system: str
    flavour: Flavour
    cudnn: str | None
    """None: without cuDNN, or its version is not known (see `has_cudnn`)."""
    has_cudnn: bool
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialImages:
    """Tags of tensorflow/tensorflow made by one recipe (`[[official]]`)."""

    NAMED: ClassVar = ("versions",)
    versions: ReleaseSet
    """A PEP 440 set of TensorFlow versions."""
    tags: tuple[str, ...]
    """With `{version}` for the release's own number."""
    base: str | None = None
    system: str
    python: str
    cuda: str
    cudnn: str | None = None
    works: bool
    """Whether TensorFlow finds its libraries inside."""
    why: str = ""
    """Where it does not."""
    evidence: Known
    sources: Sources

    def __post_init__(self) -> None:
        if self.works == bool(self.why):
            msg = "`why` says why it does not work, and only then"
            raise ValueError(msg)
        if not self.tags or any("{version}" not in tag for tag in self.tags):
            msg = "`tags` must have {version} in each"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class OfficialImage:
    """The official image of one release."""

    names: tuple[str, ...]
    """`("tensorflow/tensorflow:1.14.0-gpu-py3", "tensorflow/tensorflow:1.14.0-gpu")`; of the first ones the
    Python is that of `recipe`."""
    recipe: OfficialImages


@dataclass(frozen=True, slots=True, kw_only=True)
class NgcImage:
    """One image of nvcr.io/nvidia/tensorflow (`[[ngc]]`)."""

    NAMED: ClassVar = ("tag",)
    tag: str
    tensorflow: str | None = None
    system: str | None = None
    python: str | None = None
    cuda: str
    cudnn: str | None = None
    driver: str | None = None
    """The driver branch it was made for."""
    lowest: str | None = None
    """The lowest compute capability it supports."""
    note: str = ""
    evidence: Known
    sources: Sources

    @property
    def name(self) -> str:
        """`"nvcr.io/nvidia/tensorflow:25.02-tf2-py3"`."""
        return f"nvcr.io/nvidia/tensorflow:{self.tag}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonImage:
    """One slim image of the `python` repository (`[[python]]`)."""

    NAMED: ClassVar = ("tag",)
    tag: str
    python: str
    system: str
    """"debian 12"."""
    glibc: str
    digest: str | None = None
    """`"sha256:…"`, where one is known."""
    evidence: Known
    sources: Sources

    @property
    def name(self) -> str:
        """`"python:3.11-slim-bookworm"`."""
        return f"python:{self.tag}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolImage:
    """An image with a program that builds take out of it (`[[tool]]`)."""

    NAMED: ClassVar = ("program",)
    program: str
    """`"micromamba"`."""
    image: str
    evidence: Known
    sources: Sources


@dataclass(frozen=True, slots=True)
class Images:
    """The whole table."""

    as_of: str
    cuda: tuple[CudaImages, ...]
    """Oldest first."""
    gone: tuple[DeletedImages, ...] = field(metadata={"key": "deleted"})
    official: tuple[OfficialImages, ...]
    ngc: tuple[NgcImage, ...]
    python: tuple[PythonImage, ...]
    """The one to take first comes first."""
    tool: tuple[ToolImage, ...]

    def find_tool(self, program: str) -> ToolImage | None:
        """Return the image that has a program, or None."""
        return next((row for row in self.tool if row.program == program), None)

    def find_python(self, python: str) -> PythonImage | None:
        """Return the slim image of a Python (`"3.9"`), or None."""
        return next((row for row in self.python if row.python == python), None)

    def tags(
        self,
        cuda: str | None = None,
        *,
        cudnn_major: int | None = None,
        flavour: Flavour | None = None,
        system: str | None = None,
    ) -> tuple[ImageTag, ...]:
        """Return tags of nvidia/cuda that are known to exist, newest CUDA and newest system first.

        `cuda`: a prefix (`"12"`, `"11.2"`, `"11.8.0"`); `cudnn_major`: with this cuDNN, None: without any.
        """
        found = []
        for row in reversed(self.cuda):
            if cuda is not None and not versions.has_prefix(row.version, cuda):
                continue
            systems = row.systems if cudnn_major is None else row.cudnn_systems
            flavours = row.flavours if cudnn_major is None else row.cudnn_flavours
            for name in reversed(systems):
                if system is not None and name != system:
                    continue
                inside = None if cudnn_major is None else row.cudnn.get(name)
                if cudnn_major is not None and _cudnn_major(row, name) != cudnn_major:
                    continue
                found += [
                    _tag(row, name, kind, inside, with_cudnn=cudnn_major is not None)
                    for kind in flavours
                    if flavour in (None, kind)
                ]
        return tuple(found)

    def find_deleted(self, cuda: str) -> DeletedImages | None:
        """Return why nvidia/cuda has no tags of this CUDA release (`"10.0"`, `"11.4.0"`) any more.

        None: it has some, or nothing is known.
        """
        if any(versions.has_prefix(row.version, cuda) for row in self.cuda):
            return None
        return next((row for row in self.gone if versions.satisfies(cuda, row.versions)), None)

    def find_official(self, version: str) -> OfficialImage | None:
        """Return the official GPU image of a TensorFlow release, or None if none is known."""
        for row in self.official:
            if versions.satisfies(version, row.versions):
                names = tuple(f"tensorflow/tensorflow:{tag.format(version=version)}" for tag in row.tags)
                return OfficialImage(names, row)
        return None

    def lowest_of(self, image: NgcImage) -> str | None:
        """Return the compute capability at which one of NVIDIA's images begins.

        Where no page of it was read, at which the others do.
        """
        if image.lowest is not None:
            return image.lowest
        told = [row.lowest for row in self.ngc if row.lowest is not None]
        return min(told, key=versions.parse_capability, default=None)

    def list_ngc(self, tensorflow: str | None = None, *, cuda: str | None = None) -> tuple[NgcImage, ...]:
        """Return NVIDIA's images, newest first: of a TensorFlow (prefix), of a CUDA (prefix).

        Those whose TensorFlow is not known are left out where one is asked for, but a first number that the tag
        itself says counts.
        """
        return tuple(
            row
            for row in reversed(self.ngc)
            if (tensorflow is None or _is_tensorflow(row, tensorflow))
            and (cuda is None or versions.has_prefix(row.cuda, cuda))
        )


def _tag(row: CudaImages, system: str, flavour: str, cudnn: str | None, *, with_cudnn: bool) -> ImageTag:
    middle = f"{row.cudnn_tag}-" if with_cudnn else ""
    name = f"nvidia/cuda:{row.version}-{middle}{flavour}-ubuntu{system}"
    kind: Flavour = "base" if flavour == "base" else "runtime" if flavour == "runtime" else "devel"
    return ImageTag(name, row.version, system, kind, cudnn, with_cudnn, row.status)


def _cudnn_major(row: CudaImages, system: str) -> int | None:
    """From the tag (`cudnn8`), else from what is inside; None: not known."""
    if row.cudnn_tag is not None and row.cudnn_tag != "cudnn":
        return int(row.cudnn_tag.removeprefix("cudnn"))
    inside = row.cudnn.get(system)
    return None if inside is None else versions.major(inside)


def _is_tensorflow(row: NgcImage, wanted: str) -> bool:
    if row.tensorflow is not None:
        return versions.has_prefix(row.tensorflow, wanted)
    return "." not in wanted and f"-tf{wanted}-" in f"{row.tag}-"


def load_images(folder: Path) -> Images:
    """Load compat/images.toml. Raises DataError."""
    return read(Images, folder / "images.toml")
