"""The nvidia/cuda images that contain the libraries of a release. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat import split_soname

if TYPE_CHECKING:
    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.images import ImageTag


def list_fitting_tags(compat: Compat, release: Release, python: str | None = None) -> list[ImageTag]:
    """Return the runtime tags that have all libraries of a release, the one nearest to its own CUDA first.

    `python`: tags whose system has this Python come first, then those with another Python that the release
    has a wheel for.
    """
    if release.cuda is None or release.cudnn is None:
        return []
    return list(
        _list_fitting_tags(
            compat,
            release.cuda,
            release.cudnn,
            tuple(release.required_libraries),
            tuple(release.linux_pythons),
            python,
        )
    )


@lru_cache(maxsize=512)
def _list_fitting_tags(
    compat: Compat,
    cuda: str,
    min_cudnn: str,
    required: tuple[str, ...],
    pythons: tuple[str, ...],
    python: str | None,
) -> tuple[ImageTag, ...]:
    """Return the tags for the relevant values of a release, so that the result can be cached."""
    split_names = [split_soname(name) for name in required]
    sonames = {
        parts[0]: name
        for parts, name in zip(split_names, required, strict=True)
        if parts is not None and parts[0] != "cudnn"
    }
    cudnn = next((parts[1] for parts in split_names if parts is not None and parts[0] == "cudnn"), None)
    if cudnn is None:
        return ()
    tags = []
    for tag in compat.image_tags(str(versions.major(cuda)), int(cudnn.split(".")[0]), "runtime"):
        if tag.cudnn is None or not versions.is_at_least(tag.cudnn, min_cudnn):
            continue
        if all(compat.soname_for(stem, tag.cuda) == name for stem, name in sonames.items()):
            tags.append(tag)
    own_cuda = versions.numbers(cuda)[:2]

    def distance(tag: ImageTag) -> tuple[object, ...]:
        """Return the sort key of a tag: its Python, then the distance of its CUDA."""
        system = compat.pythons.system(tag.system) if python is not None else None
        default = system.default if system is not None else ""
        tag_cuda = (*versions.numbers(tag.cuda), 0)[:3]  # "12.6.0" has two numbers
        older = tag_cuda[:2] < own_cuda
        nearness = _negate_numbers(tag_cuda[:2]) if older else tag_cuda[:2]
        python_rank = (
            python is not None and default != python,
            python is not None and default not in pythons,
        )
        return (
            *python_rank,
            older,
            nearness,
            _negate_numbers(tag_cuda),
            _negate_numbers(versions.numbers(tag.system)),
        )

    return tuple(sorted(tags, key=distance))


def _negate_numbers(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return a sort key that puts the largest numbers first."""
    return tuple(-number for number in numbers)
