"""Add the digests and sizes that registries reported to the images of an option."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.manifests import Manifest
    from tfdoctor.plan.models import Option

__all__ = ["add_manifest"]


def add_manifest(compat: Compat, option: Option) -> Option:
    """Return the option with the known digests and sizes of its images.

    The FROM line gets a digest only if it was read from a registry. A digest from other projects' files is only
    displayed.
    """
    base, conda = option.base, option.conda
    if base is None:
        return option
    manifest = compat.manifests.get_manifest(base.image)
    if manifest is not None:
        parts = tuple(
            replace(
                part,
                bytes=part.bytes or manifest.unpacked,
                why=f"{part.why}; {_describe_manifest(manifest)}",
                download=manifest.download,
            )
            if part.name == base.image
            else part
            for part in option.parts
        )
        option = replace(
            option, base=replace(base, digest=base.digest or _get_measured_digest(manifest)), parts=parts
        )
    tool_manifest = compat.manifests.get_manifest(conda.image) if conda is not None else None
    if conda is not None and tool_manifest is not None and _get_measured_digest(tool_manifest) is not None:
        option = replace(option, conda=replace(conda, image=f"{conda.image}@{tool_manifest.digest}"))
    return option


def _get_measured_digest(manifest: Manifest) -> str | None:
    """Return the digest if it was read from the registry itself; otherwise None."""
    return manifest.digest if manifest.evidence == "measured" else None


def _describe_manifest(manifest: Manifest) -> str:
    """Return the digest, the sizes and their source as text."""
    parts = [manifest.digest] if manifest.digest is not None else []
    if manifest.download is not None:
        layers = f" in {manifest.layers} layers" if manifest.layers is not None else ""
        parts.append(f"{_format_size(manifest.download)} to download{layers}")
    if manifest.unpacked is not None:
        parts.append(f"{_format_size(manifest.unpacked)} on disk")
    source = (
        "as the registry said"
        if manifest.evidence == "measured"
        else "as other projects tell it; the registry was not asked"
    )
    return f"{', '.join(parts)} ({source}, {manifest.read})"


def _format_size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
