"""What is known of the image that a Dockerfile builds on: from its name alone, and from compat/images.toml. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.dockerfile.read.models import SourceLine

if TYPE_CHECKING:
    from tfdoctor.compat import Compat

__all__ = ["BaseReference", "base_of", "explain_deleted_tag", "is_known_tag"]

Kind = Literal["cuda", "official", "ngc", "python", "plain", "unknown"]
_CUDA_TAG = re.compile(
    r"(?P<cuda>\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)(?:-(?P<cudnn>cudnn\d*))?(?:-(?P<flavour>base|runtime|devel))?"
    r"(?:-(?P<system>[a-z]+)(?P<number>[0-9.]*))?"
)
_OFFICIAL_TAG = re.compile(
    r"(?P<version>\d{1,2}\.\d{1,3}(?:\.\d{1,3})?(?:rc\d{1,2}|-rc\d{1,2}|\.post\d{1,2})?|latest|nightly)?"
    r"(?P<rest>(?:-?(?:gpu|py3|jupyter|devel|custom-op|ubuntu\d{1,4}|lite))*)"
)
_PYTHON_TAG = re.compile(r"(\d\.\d{1,2})(?:\.\d{1,2}|-rc|rc\d)?(?:-(.*))?")
_CONDA = ("continuumio/", "condaforge/", "mambaorg/")


@dataclass(frozen=True, slots=True)
class BaseReference:
    """The image behind the first FROM of the chain."""

    kind: Kind
    reference: str
    """As FROM names it, variables put in; where they are not known, as written."""
    line: int
    tag: str = ""
    mirror: bool = False
    """From another registry than the one that the table is about."""
    pinned: bool = False
    """By digest."""
    cuda: str | None = None
    flavour: str | None = None
    cudnn: str | None = None
    """The version inside, as far as it is known: `"8.1.1.33"`, `"8"`."""
    has_cudnn: bool = False
    system: str | None = None
    """An Ubuntu release: `"20.04"`."""
    python: str | None = None
    """Its `python3`; of the image `python` its `python`."""
    musl: bool = False
    """Alpine: no glibc."""
    managed: bool = False
    """pip refuses to install into its system's Python (PEP 668)."""
    tensorflow: str | None = None
    """The release that is in it."""
    package: str = "tensorflow"
    gpu: bool | None = None
    """Of official images: whether it is one for GPUs."""
    why_unknown: str = ""

    @property
    def seen(self) -> SourceLine:
        return SourceLine(f"FROM {self.reference}", self.line)


def base_of(reference: str | None, written: str, line: int, compat: Compat) -> BaseReference:
    """Return what is known of an image. Never raises."""
    if reference is None:
        return BaseReference(
            "unknown", written, line, why_unknown=f"`{written}` depends on what the build is given"
        )
    name, _, digest = reference.partition("@")
    first, slash, rest = name.partition("/")
    hosted = bool(slash) and ("." in first or ":" in first or first == "localhost")
    host, path = (first, rest) if hosted else ("", name)
    path, colon, tag = path.rpartition(":")
    if not colon:
        path, tag = tag, "latest"
    known = {"host": host, "path": path, "tag": tag, "digest": digest}
    found = _recognize_base(reference, line, compat, **known)
    return found or BaseReference(
        "unknown", reference, line, tag, why_unknown=f"what is in {reference} is not known to tfdoctor"
    )


def _recognize_base(
    reference: str, line: int, compat: Compat, *, host: str, path: str, tag: str, digest: str
) -> BaseReference | None:
    hub = host in ("", "docker.io", "index.docker.io", "registry-1.docker.io")
    pinned = bool(digest)
    if path == "nvidia/cuda" or path.endswith("/nvidia/cuda"):
        return _cuda(reference, line, tag, compat, mirror=not (hub and path == "nvidia/cuda"), pinned=pinned)
    if path == "tensorflow/tensorflow" or path.endswith("/tensorflow/tensorflow"):
        return _official(reference, line, tag, compat, mirror=not hub, pinned=pinned)
    if path.endswith("nvidia/tensorflow") and host:
        return _ngc(reference, line, tag, compat, mirror=host != "nvcr.io", pinned=pinned)
    short = path.removeprefix("library/").rpartition("library/")[2]
    official = hub or "library/" in path
    if not official:
        return None
    if short == "python":
        return _python(reference, line, tag, mirror=not hub, pinned=pinned)
    plain = partial(BaseReference, "plain", reference, line, tag, pinned=pinned)
    if short == "ubuntu":
        system = compat.pythons.system(tag.partition("-")[0])
        return plain(
            system=system.name if system is not None else None,
            python=system.default if system is not None else None,
            managed=system is not None and system.managed,
        )
    if short == "debian":
        release = tag.partition("-")[0].split(".")[0]
        return plain(
            python=compat.pythons.default_of("debian", release),
            managed=compat.pythons.is_managed("debian", release),
        )
    if short == "alpine":
        return plain(musl=True)
    if hub and path.startswith(_CONDA):
        return plain()
    return None


def _cuda(
    reference: str, line: int, tag: str, compat: Compat, *, mirror: bool, pinned: bool
) -> BaseReference:
    match = _CUDA_TAG.fullmatch(tag)
    if match is None:
        return BaseReference("cuda", reference, line, tag, mirror, pinned)
    system = match["number"] if match["system"] == "ubuntu" else None
    row = next((row for row in compat.images.cuda if row.version == match["cuda"]), None)
    cudnn = None
    if match["cudnn"]:
        inside = row.cudnn.get(system or "") if row is not None else None
        number = match["cudnn"].removeprefix("cudnn")
        cudnn = inside if inside and inside.startswith(f"{number}." if number else "") else number or None
    found = compat.pythons.system(system) if system else None
    return BaseReference(
        "cuda",
        reference,
        line,
        tag,
        mirror,
        pinned,
        cuda=match["cuda"],
        flavour=match["flavour"],
        cudnn=cudnn,
        has_cudnn=bool(match["cudnn"]),
        system=system,
        python=found.default if found is not None else None,
        managed=found is not None and found.managed,
    )


def _official(
    reference: str, line: int, tag: str, compat: Compat, *, mirror: bool, pinned: bool
) -> BaseReference:
    match = _OFFICIAL_TAG.fullmatch(tag)
    if (
        match is None
        or "devel" in match["rest"]
        or "custom-op" in match["rest"]
        or match["version"] == "nightly"
    ):
        return BaseReference("official", reference, line, tag, mirror, pinned, gpu="gpu" in tag)
    version = match["version"] or "latest"
    version = (
        compat.newest.version if version == "latest" else str(versions.parse(version.replace("-rc", "rc")))
    )
    gpu = "gpu" in match["rest"]
    found = compat.images.find_official(version)
    recipe = found.recipe if found is not None else None
    python = recipe.python if recipe is not None else None
    old = compat.has(version, "images-of-two-pythons")
    if old and "py3" not in match["rest"]:
        python = "2.7"
    return BaseReference(
        "official",
        reference,
        line,
        tag,
        mirror,
        pinned,
        cuda=recipe.cuda if recipe is not None and gpu else None,
        flavour="runtime" if gpu else None,
        cudnn=recipe.cudnn if recipe is not None and gpu else None,
        has_cudnn=gpu and recipe is not None,
        system=recipe.system if recipe is not None else None,
        python=python,
        tensorflow=version,
        package="tensorflow-gpu" if gpu and old else "tensorflow",
        gpu=gpu,
    )


def _ngc(reference: str, line: int, tag: str, compat: Compat, *, mirror: bool, pinned: bool) -> BaseReference:
    row = next((row for row in compat.images.ngc if row.tag == tag), None)
    if row is None:
        return BaseReference("ngc", reference, line, tag, mirror, pinned, gpu=True)
    return BaseReference(
        "ngc",
        reference,
        line,
        tag,
        mirror,
        pinned,
        cuda=row.cuda,
        flavour="devel",
        cudnn=row.cudnn,
        has_cudnn=True,
        system=row.system,
        python=row.python,
        tensorflow=row.tensorflow,
        gpu=True,
    )


def _python(reference: str, line: int, tag: str, *, mirror: bool, pinned: bool) -> BaseReference:
    match = _PYTHON_TAG.fullmatch(tag)
    return BaseReference(
        "python",
        reference,
        line,
        tag,
        mirror,
        pinned,
        python=match[1] if match is not None else None,
        musl="alpine" in tag,
    )


# ---------------------------------------------------------------- tags of nvidia/cuda


def explain_deleted_tag(compat: Compat, base: BaseReference) -> str | None:
    """Return why no tag of this CUDA is left, or None. `11.0-…` is gone where 11.0.3 is still there."""
    if base.kind != "cuda" or base.cuda is None:
        return None
    row = compat.images.find_deleted(base.cuda)
    if row is None and base.cuda.count(".") == 1:
        row = next((row for row in compat.images.gone if versions.satisfies(base.cuda, row.versions)), None)
    return row.note if row is not None else None


def is_known_tag(compat: Compat, base: BaseReference) -> bool | None:
    """Return whether a tag of nvidia/cuda is in the table.

    None: the table does not say (a system it is not about).
    """
    row = next((row for row in compat.images.cuda if row.version == base.cuda), None)
    match = _CUDA_TAG.fullmatch(base.tag)
    if row is None or match is None or (match["system"] not in ("ubuntu", None)):
        return None
    if row.status == "listed":
        return None
    if base.system is None or base.flavour is None:
        return False
    if not base.has_cudnn:
        return base.system in row.systems and base.flavour in row.flavours
    return (
        match["cudnn"] == row.cudnn_tag
        and base.system in row.cudnn_systems
        and base.flavour in row.cudnn_flavours
    )
