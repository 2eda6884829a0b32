"""What registries tell of images: compat/manifests.json, written by scripts/update_images.py."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from tfdoctor.compat.decode import Converted, Evidence, Sources, read
from tfdoctor.records import dataclass

__all__ = ["Manifest", "Manifests", "load_manifests"]


def _digest(text: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        msg = "is `sha256:` and 64 hexadecimal digits"
        raise ValueError(msg)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One image for linux/amd64; what is not known is None or empty."""

    NAMED: ClassVar = ("image",)
    image: str
    """`"nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04"`."""
    digest: Annotated[str | None, Converted(str, _digest)] = None
    """Of the tag: of its list of platforms, where it has one."""
    read: str
    """The day."""
    evidence: Evidence
    """measured: a registry said so; inferred: others' files do."""
    download: int | None = None
    """Bytes of all layers, as they are fetched."""
    unpacked: int | None = None
    """Bytes on the engine's disk, as `docker images` shows them."""
    layers: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    sources: Sources


@dataclass(frozen=True, slots=True)
class Manifests:
    """The whole table."""

    as_of: str
    images: tuple[Manifest, ...] = field(metadata={"noun": "image"})
    """By name."""

    def get_manifest(self, image: str) -> Manifest | None:
        """Return what is known of an image (`NAME:TAG`), or None."""
        return next((row for row in self.images if row.image == image), None)


def load_manifests(folder: Path) -> Manifests:
    """Load compat/manifests.json. Raises DataError."""
    return read(Manifests, folder / "manifests.json")
