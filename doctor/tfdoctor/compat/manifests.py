"""Manifests of container images: compat/manifests.json, which scripts/update_images.py writes."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from tfdoctor.compat.decode import Converted, Evidence, Sources, read_table
from tfdoctor.core.records import dataclass

__all__ = ["Manifest", "Manifests", "load_manifests"]


def _validate_digest(text: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        msg = "is `sha256:` and 64 hexadecimal digits"
        raise ValueError(msg)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An image for linux/amd64. Unknown values are None or empty."""

    NAMED: ClassVar = ("image",)
    image: str
    """Full name, such as `"nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04"`."""
    digest: Annotated[str | None, Converted(str, _validate_digest)] = None
    """Digest of the tag. For a tag with several platforms, it is the digest of the image index."""
    read_date: str = field(metadata={"key": "read"})
    """Date of the measurement."""
    evidence: Evidence
    """measured: reported by a registry; inferred: taken from files that others published."""
    download_bytes: int | None = field(default=None, metadata={"key": "download"})
    """Size of all layers to download, in bytes."""
    unpacked_bytes: int | None = field(default=None, metadata={"key": "unpacked"})
    """Size on the engine's disk in bytes, as in `docker images`."""
    layers: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict, metadata={"key": "env"})
    labels: Mapping[str, str] = field(default_factory=dict)
    sources: Sources


@dataclass(frozen=True, slots=True)
class Manifests:
    """The known manifests."""

    as_of: str
    images: tuple[Manifest, ...] = field(metadata={"noun": "image"})
    """Sorted by name."""

    def get_manifest(self, image: str) -> Manifest | None:
        """Return the manifest of an image (`NAME:TAG`); None if it is not in the table."""
        return next((manifest for manifest in self.images if manifest.image == image), None)


def load_manifests(folder: Path) -> Manifests:
    """Load compat/manifests.json. Raise DataError if it is invalid."""
    return read_table(Manifests, folder / "manifests.json")
