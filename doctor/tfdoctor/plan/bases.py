"""What is known of an option's base from a registry: its digest, its size. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.manifests import Manifest
    from tfdoctor.plan.models import Option

__all__ = ["with_manifest"]


def with_manifest(compat: Compat, option: Option) -> Option:
    """Return the option with what is known of its images.

    FROM gets a digest that a registry told, and none that only others' files tell: those are shown.
    """
    base, conda = option.base, option.conda
    if base is None:
        return option
    known = compat.manifests.get_manifest(base.image)
    if known is not None:
        parts = tuple(
            replace(
                part,
                bytes=part.bytes or known.unpacked,
                why=f"{part.why}; {_describe_known(known)}",
                download=known.download,
            )
            if part.name == base.image
            else part
            for part in option.parts
        )
        option = replace(option, base=replace(base, digest=base.digest or _sure(known)), parts=parts)
    tool = compat.manifests.get_manifest(conda.image) if conda is not None else None
    if conda is not None and tool is not None and _sure(tool) is not None:
        option = replace(option, conda=replace(conda, image=f"{conda.image}@{tool.digest}"))
    return option


def _sure(known: Manifest) -> str | None:
    return known.digest if known.evidence == "measured" else None


def _describe_known(known: Manifest) -> str:
    parts = [known.digest] if known.digest is not None else []
    if known.download is not None:
        layers = f" in {known.layers} layers" if known.layers is not None else ""
        parts.append(f"{_size(known.download)} to download{layers}")
    if known.unpacked is not None:
        parts.append(f"{_size(known.unpacked)} on disk")
    by = (
        "as the registry said"
        if known.evidence == "measured"
        else "as other projects tell it; the registry was not asked"
    )
    return f"{', '.join(parts)} ({by}, {known.read})"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
