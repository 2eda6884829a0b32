"""Container images that exist, and what is in them: compat/images.toml, read strictly, and asked.

Nothing is guessed: an image that is not in the table is unknown, not missing; only `deleted` says that
something is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeVar

from tfdoctor import versions
from tfdoctor.compat.decode import Table, read_toml
from tfdoctor.data import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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
    "load_images",
]

Flavour = Literal["base", "runtime", "devel"]
Status = Literal["supported", "unsupported", "listed"]
Known = Literal["documented", "inferred"]
T = TypeVar("T")

_FLAVOURS = ("base", "runtime", "devel")
_STATUSES = ("supported", "unsupported", "listed")
_EVIDENCE = ("documented", "inferred")


@dataclass(frozen=True, slots=True)
class CudaImages:
    """One release of nvidia/cuda (`[[cuda]]`)."""

    version: str
    status: Status
    """On NVIDIA's list of supported tags; still there without fixes; only seen in a list of the registry."""
    systems: tuple[str, ...]
    """Ubuntu releases."""
    flavours: tuple[str, ...]
    cudnn_tag: str | None
    """How the tags with cuDNN say so: `"cudnn8"`, `"cudnn"`; None: there are none."""
    cudnn_systems: tuple[str, ...]
    cudnn_flavours: tuple[str, ...]
    cudnn: Mapping[str, str]
    """Ubuntu release → cuDNN inside, where known."""
    note: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedImages:
    """Releases of nvidia/cuda of which no tag exists any more (`[[deleted]]`)."""

    versions: str
    """A PEP 440 set."""
    note: str
    sources: tuple[str, ...]


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


@dataclass(frozen=True, slots=True)
class OfficialImages:
    """Tags of tensorflow/tensorflow made by one recipe (`[[official]]`)."""

    versions: str
    """A PEP 440 set of TensorFlow versions."""
    tags: tuple[str, ...]
    """With `{version}` for the release's own number."""
    base: str | None
    system: str
    python: str
    cuda: str
    cudnn: str | None
    works: bool
    """Whether TensorFlow finds its libraries inside."""
    why: str
    """Where it does not."""
    evidence: Known
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OfficialImage:
    """The official image of one release."""

    names: tuple[str, ...]
    """`("tensorflow/tensorflow:1.14.0-gpu-py3", "tensorflow/tensorflow:1.14.0-gpu")`; of the first ones the
    Python is that of `recipe`."""
    recipe: OfficialImages


@dataclass(frozen=True, slots=True)
class NgcImage:
    """One image of nvcr.io/nvidia/tensorflow (`[[ngc]]`)."""

    tag: str
    tensorflow: str | None
    system: str | None
    python: str | None
    cuda: str
    cudnn: str | None
    driver: str | None
    """The driver branch it was made for."""
    lowest: str | None
    """The lowest compute capability it supports."""
    note: str
    evidence: Known
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """`"nvcr.io/nvidia/tensorflow:25.02-tf2-py3"`."""
        return f"nvcr.io/nvidia/tensorflow:{self.tag}"


@dataclass(frozen=True, slots=True)
class PythonImage:
    """One slim image of the `python` repository (`[[python]]`)."""

    tag: str
    python: str
    system: str
    """"debian 12"."""
    glibc: str
    digest: str | None
    """`"sha256:…"`, where one is known."""
    evidence: Known
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """`"python:3.11-slim-bookworm"`."""
        return f"python:{self.tag}"


@dataclass(frozen=True, slots=True)
class Images:
    """The whole table."""

    as_of: str
    cuda: tuple[CudaImages, ...]
    """Oldest first."""
    gone: tuple[DeletedImages, ...]
    official: tuple[OfficialImages, ...]
    ngc: tuple[NgcImage, ...]
    python: tuple[PythonImage, ...] = ()
    """The one to take first comes first."""

    def of_python(self, python: str) -> PythonImage | None:
        """The slim image of a Python (`"3.9"`), or None."""
        return next((row for row in self.python if row.python == python), None)

    def tags(
        self,
        cuda: str | None = None,
        *,
        cudnn_major: int | None = None,
        flavour: Flavour | None = None,
        system: str | None = None,
    ) -> tuple[ImageTag, ...]:
        """Tags of nvidia/cuda that are known to exist, newest CUDA and newest system first.

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

    def deleted(self, cuda: str) -> DeletedImages | None:
        """Why nvidia/cuda has no tags of this CUDA release (`"10.0"`, `"11.4.0"`) any more; None: it has some,
        or nothing is known."""
        if any(versions.has_prefix(row.version, cuda) for row in self.cuda):
            return None
        return next((row for row in self.gone if versions.satisfies(cuda, row.versions)), None)

    def of_release(self, version: str) -> OfficialImage | None:
        """The official GPU image of a TensorFlow release, or None where none is known."""
        for row in self.official:
            if versions.satisfies(version, row.versions):
                names = tuple(f"tensorflow/tensorflow:{tag.format(version=version)}" for tag in row.tags)
                return OfficialImage(names, row)
        return None

    def of_ngc(self, tensorflow: str | None = None, *, cuda: str | None = None) -> tuple[NgcImage, ...]:
        """NVIDIA's images, newest first: of a TensorFlow (prefix), of a CUDA (prefix). Those whose TensorFlow
        is not known are left out where one is asked for, but a first number that the tag itself says counts.
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


# ---------------------------------------------------------------- reading


@lru_cache(maxsize=4)
def load_images(folder: Path | None = None) -> Images:
    """compat/images.toml, read once. Raises DataError."""
    top = read_toml((folder or data_dir("compat")) / "images.toml")
    if top.whole("schema_version") != 1:
        raise top.fail("schema_version must be 1")
    table = Images(
        as_of=top.text("as_of"),
        cuda=_all(top, "cuda", "version", _cuda),
        gone=_all(top, "deleted", "versions", _deleted),
        official=_all(top, "official", "versions", _official),
        ngc=_all(top, "ngc", "tag", _ngc),
        python=_all(top, "python", "tag", _python),
    )
    top.done()
    return table


def _all(top: Table, key: str, name: str, build: Callable[[Table], T]) -> tuple[T, ...]:
    rows: list[T] = []
    seen: set[str] = set()
    for index, raw in enumerate(top.tables(key)):
        label = str(raw.get(name, index + 1)) if isinstance(raw, dict) else str(index + 1)
        row = Table(raw, f"{top.where}: {key} {label}")
        rows.append(build(row))
        row.done()
        if label in seen:
            raise row.fail("it is there twice")
        seen.add(label)
    return tuple(rows)


def _words(row: Table, key: str, allowed: tuple[str, ...], *, optional: bool = False) -> tuple[str, ...]:
    found = row.texts(key, optional=optional)
    for word in found:
        if word not in allowed:
            msg = f"`{key}`: `{word}` is none of {', '.join(allowed)}"
            raise row.fail(msg)
    return found


def _sources(row: Table) -> tuple[str, ...]:
    found = row.texts("sources")
    if not found:
        raise row.fail("`sources` is empty: every row says where it is from")
    return found


def _set(row: Table) -> str:
    text = row.text("versions")
    try:
        versions.satisfies("1.0", text)
    except versions.VersionSyntaxError as error:
        raise row.fail(str(error)) from error
    return text


def _cuda(row: Table) -> CudaImages:
    result = CudaImages(
        version=row.text("version"),
        status=row.choice("status", _STATUSES),
        systems=row.texts("systems"),
        flavours=_words(row, "flavours", _FLAVOURS),
        cudnn_tag=row.opt_text("cudnn_tag"),
        cudnn_systems=row.texts("cudnn_systems", optional=True),
        cudnn_flavours=_words(row, "cudnn_flavours", _FLAVOURS, optional=True),
        cudnn=row.pairs("cudnn", optional=True),
        note=row.opt_text("note") or "",
        sources=_sources(row),
    )
    row.done()
    for system in (*result.cudnn_systems, *result.cudnn):
        if system not in result.systems:
            msg = f"`{system}` has cuDNN and is not among `systems`"
            raise row.fail(msg)
    if (result.cudnn_tag is None) == bool(result.cudnn_systems):
        raise row.fail("`cudnn_tag` and `cudnn_systems` go together")
    return result


def _deleted(row: Table) -> DeletedImages:
    return DeletedImages(versions=_set(row), note=row.text("note"), sources=_sources(row))


def _official(row: Table) -> OfficialImages:
    result = OfficialImages(
        versions=_set(row),
        tags=row.texts("tags"),
        base=row.opt_text("base"),
        system=row.text("system"),
        python=row.text("python"),
        cuda=row.text("cuda"),
        cudnn=row.opt_text("cudnn"),
        works=row.flag("works"),
        why=row.opt_text("why") or "",
        evidence=row.choice("evidence", _EVIDENCE),
        sources=_sources(row),
    )
    row.done()
    if result.works == bool(result.why):
        raise row.fail("`why` says why it does not work, and only then")
    if not result.tags or any("{version}" not in tag for tag in result.tags):
        raise row.fail("`tags` must have {version} in each")
    return result


def _ngc(row: Table) -> NgcImage:
    return NgcImage(
        tag=row.text("tag"),
        tensorflow=row.opt_text("tensorflow"),
        system=row.opt_text("system"),
        python=row.opt_text("python"),
        cuda=row.text("cuda"),
        cudnn=row.opt_text("cudnn"),
        driver=row.opt_text("driver"),
        lowest=row.opt_text("lowest"),
        note=row.opt_text("note") or "",
        evidence=row.choice("evidence", _EVIDENCE),
        sources=_sources(row),
    )


def _python(row: Table) -> PythonImage:
    return PythonImage(
        tag=row.text("tag"),
        python=row.text("python"),
        system=row.text("system"),
        glibc=row.text("glibc"),
        digest=row.opt_text("digest"),
        evidence=row.choice("evidence", _EVIDENCE),
        sources=_sources(row),
    )
