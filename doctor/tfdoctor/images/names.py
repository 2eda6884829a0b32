"""What images are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions

if TYPE_CHECKING:
    from tfdoctor.plan import Option

__all__ = ["default_tag"]


def default_tag(option: Option) -> str:
    """`"tfdoctor/tensorflow:1.14.0-cuda10.0-py3.6"`."""
    return (
        f"tfdoctor/tensorflow:{option.tensorflow}-cuda{versions.major_minor(option.cuda)}-py{option.python}"
    )
