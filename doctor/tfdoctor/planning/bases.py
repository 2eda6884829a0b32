"""Add digests and sizes, as registries reported them, to the images of an option."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.manifests import Manifest
    from tfdoctor.planning.models import Option

__all__ = ["add_image_sizes"]


def add_image_sizes(compat: Compat, option: Option) -> Option:
    """Return the option with the known digests and sizes of its images.

    The FROM line gets a digest only if it was read from a registry. A digest from other projects' files is only
    displayed.
    """
    base, conda = option.base, option.conda_cuda
    if base is None:
        return option
    manifest = compat.manifests.get_manifest(base.image)
    if manifest is not None:
        parts = tuple(
            replace(
                part,
                size_bytes=part.size_bytes or manifest.unpacked_bytes,
                purpose=f"{part.purpose}; {_describe_manifest(manifest)}",
                download_bytes=manifest.download_bytes,
            )
            if part.name == base.image
            else part
            for part in option.components
        )
        option = replace(
            option, base=replace(base, digest=base.digest or _get_measured_digest(manifest)), components=parts
        )
    conda_manifest = compat.manifests.get_manifest(conda.image) if conda is not None else None
    if conda is not None and conda_manifest is not None and _get_measured_digest(conda_manifest) is not None:
        option = replace(option, conda_cuda=replace(conda, image=f"{conda.image}@{conda_manifest.digest}"))
    return option


def _get_measured_digest(manifest: Manifest) -> str | None:
    """Return the digest if it was read from the registry itself; otherwise None."""
    return manifest.digest if manifest.evidence == "measured" else None


def _describe_manifest(manifest: Manifest) -> str:
    """Return the digest, the sizes and their source as text."""
    details = [manifest.digest] if manifest.digest is not None else []
    if manifest.download_bytes is not None:
        layers = f" in {manifest.layers} layers" if manifest.layers is not None else ""
        details.append(f"{_format_size(manifest.download_bytes)} to download{layers}")
    if manifest.unpacked_bytes is not None:
        details.append(f"{_format_size(manifest.unpacked_bytes)} on disk")
    source = (
        "as the registry said"
        if manifest.evidence == "measured"
        else "as other projects tell it; the registry was not asked"
    )
    return f"{', '.join(details)} ({source}, {manifest.read_date})"


def _format_size(byte_count: int) -> str:
    return f"{byte_count / 1e9:.1f} GB" if byte_count >= 1e9 else f"{byte_count / 1e6:.0f} MB"
