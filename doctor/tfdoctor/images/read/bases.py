"""Describe the base image of a Dockerfile by its name and the tables in compat/images.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from tfdoctor.core import versions
from tfdoctor.images.read.models import SourceLine
from tfdoctor.planning.models import BaseContents

if TYPE_CHECKING:
    from tfdoctor.compat import Compat

__all__ = ["BaseReference", "describe_base", "explain_deleted_tag", "find_base_contents", "is_known_tag"]

BaseKind = Literal["cuda", "official", "ngc", "python", "plain", "unknown"]
_CUDA_TAG = re.compile(
    r"(?P<cuda>\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)(?:-(?P<cudnn>cudnn\d*))?(?:-(?P<flavour>base|runtime|devel))?"
    r"(?:-(?P<system>[a-z]+)(?P<number>[0-9.]*))?"
)
"""Such as 12.5.1-cudnn-runtime-ubuntu22.04, 11.2-base or 10.0-cudnn7-devel."""
_OFFICIAL_TAG = re.compile(
    r"(?P<version>\d{1,2}\.\d{1,3}(?:\.\d{1,3})?(?:rc\d{1,2}|-rc\d{1,2}|\.post\d{1,2})?|latest|nightly)?"
    r"(?P<rest>(?:-?(?:gpu|py3|jupyter|devel|custom-op|ubuntu\d{1,4}|lite))*)"
)
"""Such as 2.15.0-gpu-jupyter, 1.14.0-gpu-py3 or latest-gpu."""
_PYTHON_TAG = re.compile(r"(\d\.\d{1,2})(?:\.\d{1,2}|-rc|rc\d)?(?:-(.*))?")
"""Such as 3.11, 3.11.7-slim-bookworm or 3.12-rc."""
_CONDA_NAMESPACES = ("continuumio/", "condaforge/", "mambaorg/")
_DEV_CONTAINER_HOST = "mcr.microsoft.com"
_DEV_CONTAINER_PATH = re.compile(r"(?:vscode/)?devcontainers/(python|base|anaconda|miniconda)")
"""The path of a dev container image that is built on an image of Docker Hub with the same Python."""
_DEV_CONTAINER_VERSION = re.compile(r"(?:dev|\d{1,2}(?:\.\d{1,3}){0,2})-(?=\d\.\d|[a-z]{3,20}(?:-\d|$))")
"""The version of a dev container image before the tag of its base, as in 1-3.11-bookworm and 1.0-ubuntu-22.04."""


@dataclass(frozen=True, slots=True)
class BaseReference:
    """The base image of a Dockerfile's last stage, and the known facts about its content."""

    kind: BaseKind
    image_name: str
    """The name in FROM with its variables expanded, or as written if a variable is unknown."""
    line: int
    """The line of the FROM instruction."""
    tag: str = ""
    is_mirror: bool = False
    """Whether it comes from another registry than the images in the table."""
    is_pinned: bool = False
    """Whether it is pinned by digest."""
    cuda: str | None = None
    """The CUDA version in the image. None if there is none, or if it is unknown."""
    flavour: str | None = None
    """The flavour of a CUDA image: `base`, `runtime` or `devel`. None for other images, or if unknown."""
    cudnn: str | None = None
    """The cuDNN version in the image, complete (`8.1.1.33`) or its major number (`8`). None if unknown."""
    has_cudnn: bool = False
    """Whether the image has cuDNN, possibly in an unknown version."""
    ubuntu_release: str | None = None
    """The Ubuntu release, such as `20.04`. None for other systems."""
    python: str | None = None
    """The Python version that `python3` runs, such as `3.10`. None if unknown."""
    has_musl: bool = False
    """Whether the image is Alpine, which has musl instead of glibc."""
    is_python_managed: bool = False
    """Whether pip refuses to install into the system's Python (PEP 668)."""
    tensorflow_version: str | None = None
    """The TensorFlow release in the image. None if there is none, or if it is unknown."""
    tensorflow_package: str = "tensorflow"
    """The package that contains this release."""
    is_for_gpu: bool | None = None
    """Whether an official or NGC image is for GPUs. None for other images."""
    unknown_reason: str = ""
    """The reason why the content is unknown; empty unless `kind` is "unknown"."""

    @property
    def source_line(self) -> SourceLine:
        return SourceLine(f"FROM {self.image_name}", self.line)


def describe_base(reference: str | None, written: str, line: int, compat: Compat) -> BaseReference:
    """Describe an image by its name.

    `reference` is its name with variables expanded, or None if that is unknown. `written` is the name as written.
    """
    if reference is None:
        return BaseReference(
            "unknown", written, line, unknown_reason=f"`{written}` depends on what the build is given"
        )
    name, _, digest = reference.partition("@")
    first_part, slash, remainder = name.partition("/")
    has_host = bool(slash) and ("." in first_part or ":" in first_part or first_part == "localhost")
    host, path = (first_part, remainder) if has_host else ("", name)
    path, colon, tag = path.rpartition(":")
    if not colon:
        path, tag = tag, "latest"
    parts = {"host": host, "path": path, "tag": tag, "digest": digest}
    base = _recognize_base(reference, line, compat, **parts)
    return base or BaseReference(
        "unknown", reference, line, tag, unknown_reason=f"what is in {reference} is not known to tfdoctor"
    )


def find_base_contents(reference: str, compat: Compat) -> BaseContents | None:
    """Return what is known about an image to build on; None if its Pythons are not known, or if it has TensorFlow."""
    base = describe_base(reference, reference, 0, compat)
    if base.python is None or base.kind not in ("plain", "python", "cuda"):
        return None
    has_python = base.kind == "python"
    if base.ubuntu_release is not None:
        system, release = "ubuntu", base.ubuntu_release
    else:
        system, release = "debian", base.tag.partition("-")[0].split(".")[0]
    pythons = (base.python,) if has_python else compat.pythons.list_pythons(system, release)
    return BaseContents("" if has_python else f"{system} {release}", pythons, has_python) if pythons else None


def _recognize_base(
    reference: str, line: int, compat: Compat, *, host: str, path: str, tag: str, digest: str
) -> BaseReference | None:
    """Describe an image by the parts of its name. Return None if tfdoctor does not know the image."""
    is_hub = host in ("", "docker.io", "index.docker.io", "registry-1.docker.io")
    is_pinned = bool(digest)
    if path == "nvidia/cuda" or path.endswith("/nvidia/cuda"):
        return _describe_cuda_image(
            reference,
            line,
            tag,
            compat,
            is_mirror=not (is_hub and path == "nvidia/cuda"),
            is_pinned=is_pinned,
        )
    if path == "tensorflow/tensorflow" or path.endswith("/tensorflow/tensorflow"):
        return _describe_official_image(
            reference, line, tag, compat, is_mirror=not is_hub, is_pinned=is_pinned
        )
    if path.endswith("nvidia/tensorflow") and host:
        return _describe_ngc_image(
            reference, line, tag, compat, is_mirror=host != "nvcr.io", is_pinned=is_pinned
        )
    if host == _DEV_CONTAINER_HOST and (match := _DEV_CONTAINER_PATH.fullmatch(path)):
        name = match[1]
        version = _DEV_CONTAINER_VERSION.match(tag)
        if version is not None and not (name == "python" and tag[version.end()].isalpha()):
            tag = tag[version.end() :]
        if name == "base":  # devcontainers/base:ubuntu-22.04 or :jammy
            family, dash, release = tag.partition("-")
            is_ubuntu = family == "ubuntu" or compat.pythons.find_system(family) is not None
            name = "alpine" if family == "alpine" else "ubuntu" if is_ubuntu else "debian"
            tag = release if dash else tag
        path, is_hub = f"continuumio/{name}" if name.endswith("conda") else name, True
    # Docker Hub's official images are in the namespace `library`, which the name may omit. Mirrors may have it, too.
    library_name = path.removeprefix("library/").rpartition("library/")[2]
    is_library = is_hub or "library/" in path
    if not is_library:
        return None
    if library_name == "python":
        return _describe_python_image(reference, line, tag, is_mirror=not is_hub, is_pinned=is_pinned)
    make_plain_base = partial(BaseReference, "plain", reference, line, tag, is_pinned=is_pinned)
    if library_name == "ubuntu":
        system = compat.pythons.find_system(tag.partition("-")[0])
        return make_plain_base(
            ubuntu_release=system.name if system is not None else None,
            python=system.default_python if system is not None else None,
            is_python_managed=system is not None and system.is_managed,
        )
    if library_name == "debian":
        release = tag.partition("-")[0].split(".")[0]
        return make_plain_base(
            python=compat.pythons.get_default_python("debian", release),
            is_python_managed=compat.pythons.is_managed("debian", release),
        )
    if library_name == "alpine":
        return make_plain_base(has_musl=True)
    if is_hub and path.startswith(_CONDA_NAMESPACES):
        return make_plain_base()
    return None


def _describe_cuda_image(
    reference: str, line: int, tag: str, compat: Compat, *, is_mirror: bool, is_pinned: bool
) -> BaseReference:
    """Describe an nvidia/cuda image by its tag."""
    match = _CUDA_TAG.fullmatch(tag)
    if match is None:
        return BaseReference("cuda", reference, line, tag, is_mirror=is_mirror, is_pinned=is_pinned)
    system = match["number"] if match["system"] == "ubuntu" else None
    image = next((image for image in compat.images.cuda_images if image.version == match["cuda"]), None)
    cudnn = None
    if match["cudnn"]:
        installed_cudnn = image.cudnn_by_system.get(system or "") if image is not None else None
        cudnn_number = match["cudnn"].removeprefix("cudnn")
        cudnn = (
            installed_cudnn
            if installed_cudnn and installed_cudnn.startswith(f"{cudnn_number}." if cudnn_number else "")
            else cudnn_number or None
        )
    ubuntu = compat.pythons.find_system(system) if system else None
    return BaseReference(
        "cuda",
        reference,
        line,
        tag,
        is_mirror=is_mirror,
        is_pinned=is_pinned,
        cuda=match["cuda"],
        flavour=match["flavour"],
        cudnn=cudnn,
        has_cudnn=bool(match["cudnn"]),
        ubuntu_release=system,
        python=ubuntu.default_python if ubuntu is not None else None,
        is_python_managed=ubuntu is not None and ubuntu.is_managed,
    )


def _describe_official_image(
    reference: str, line: int, tag: str, compat: Compat, *, is_mirror: bool, is_pinned: bool
) -> BaseReference:
    """Describe a tensorflow/tensorflow image by its tag and the table of recipes."""
    match = _OFFICIAL_TAG.fullmatch(tag)
    if (
        match is None
        or "devel" in match["rest"]
        or "custom-op" in match["rest"]
        or match["version"] == "nightly"
    ):
        return BaseReference(
            "official",
            reference,
            line,
            tag,
            is_mirror=is_mirror,
            is_pinned=is_pinned,
            is_for_gpu="gpu" in tag,
        )
    version = match["version"] or "latest"
    version = (
        compat.newest.version if version == "latest" else str(versions.parse(version.replace("-rc", "rc")))
    )
    gpu = "gpu" in match["rest"]
    image = compat.images.find_official(version)
    recipe = image.recipe if image is not None else None
    python = recipe.python if recipe is not None else None
    is_old = compat.has_trait(version, "images-of-two-pythons")
    if (
        is_old and "py3" not in match["rest"]
    ):  # these releases had one image for Python 2 and one for Python 3
        python = "2.7"
    return BaseReference(
        "official",
        reference,
        line,
        tag,
        is_mirror=is_mirror,
        is_pinned=is_pinned,
        cuda=recipe.cuda if recipe is not None and gpu else None,
        flavour="runtime" if gpu else None,
        cudnn=recipe.cudnn if recipe is not None and gpu else None,
        has_cudnn=gpu and recipe is not None,
        ubuntu_release=recipe.system if recipe is not None else None,
        python=python,
        tensorflow_version=version,
        tensorflow_package="tensorflow-gpu" if gpu and is_old else "tensorflow",
        is_for_gpu=gpu,
    )


def _describe_ngc_image(
    reference: str, line: int, tag: str, compat: Compat, *, is_mirror: bool, is_pinned: bool
) -> BaseReference:
    """Describe one of NVIDIA's TensorFlow images. Its content is unknown if the tag is not in the table."""
    image = next((image for image in compat.images.ngc_images if image.tag == tag), None)
    if image is None:
        return BaseReference(
            "ngc", reference, line, tag, is_mirror=is_mirror, is_pinned=is_pinned, is_for_gpu=True
        )
    return BaseReference(
        "ngc",
        reference,
        line,
        tag,
        is_mirror=is_mirror,
        is_pinned=is_pinned,
        cuda=image.cuda,
        flavour="devel",
        cudnn=image.cudnn,
        has_cudnn=True,
        ubuntu_release=image.system,
        python=image.python,
        tensorflow_version=image.tensorflow,
        is_for_gpu=True,
    )


def _describe_python_image(
    reference: str, line: int, tag: str, *, is_mirror: bool, is_pinned: bool
) -> BaseReference:
    """Describe a `python` image by its tag."""
    match = _PYTHON_TAG.fullmatch(tag)
    return BaseReference(
        "python",
        reference,
        line,
        tag,
        is_mirror=is_mirror,
        is_pinned=is_pinned,
        python=match[1] if match is not None else None,
        has_musl="alpine" in tag,
    )


# ---------------------------------------------------------------- nvidia/cuda tags


def explain_deleted_tag(compat: Compat, base: BaseReference) -> str | None:
    """Return the reason why every tag of this CUDA version is deleted, or None if there are tags.

    The tags of `11.0` are deleted, for example, while those of `11.0.3` exist.
    """
    if base.kind != "cuda" or base.cuda is None:
        return None
    deleted = compat.images.find_deleted(base.cuda)
    if deleted is None and base.cuda.count(".") == 1:
        deleted = next(
            (
                entry
                for entry in compat.images.deleted_images
                if versions.satisfies(base.cuda, entry.versions)
            ),
            None,
        )
    return deleted.note if deleted is not None else None


def is_known_tag(compat: Compat, base: BaseReference) -> bool | None:
    """Return whether an nvidia/cuda tag is in the table.

    Return None if the table does not cover such tags, as for other systems than Ubuntu.
    """
    image = next((image for image in compat.images.cuda_images if image.version == base.cuda), None)
    match = _CUDA_TAG.fullmatch(base.tag)
    if image is None or match is None or (match["system"] not in ("ubuntu", None)):
        return None
    if image.status == "listed":
        return None
    if base.ubuntu_release is None or base.flavour is None:
        return False
    if not base.has_cudnn:
        return base.ubuntu_release in image.systems and base.flavour in image.flavours
    return (
        match["cudnn"] == image.cudnn_tag
        and base.ubuntu_release in image.cudnn_systems
        and base.flavour in image.cudnn_flavours
    )
