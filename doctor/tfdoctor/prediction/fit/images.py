"""Find the nvidia/cuda images that contain the libraries of a release."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor.compat import split_soname
from tfdoctor.core import versions

if TYPE_CHECKING:
    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.images import ImageTag


def list_fitting_tags(compat: Compat, release: Release, python: str | None = None) -> list[ImageTag]:
    """Return the runtime tags with all libraries of a release, the tag with the nearest CUDA first.

    If `python` is given, tags whose system has this Python come first. Tags with another Python that the release has a
    wheel for come next. The list is empty if the CUDA or cuDNN version of the release is not known.
    """
    if release.cuda is None or release.cudnn is None:
        return []
    return list(
        _select_fitting_tags(
            compat,
            release.cuda,
            release.cudnn,
            tuple(release.required_libraries),
            tuple(release.linux_pythons),
            python,
        )
    )


@lru_cache(maxsize=512)
def _select_fitting_tags(
    compat: Compat,
    cuda: str,
    min_cudnn: str,
    required_libraries: tuple[str, ...],
    pythons: tuple[str, ...],
    python: str | None,
) -> tuple[ImageTag, ...]:
    """Return the result of `list_fitting_tags`, cached by the relevant values of a release."""
    split_names = [split_soname(name) for name in required_libraries]
    soname_by_stem = {
        parts[0]: name
        for parts, name in zip(split_names, required_libraries, strict=True)
        if parts is not None and parts[0] != "cudnn"
    }
    cudnn_soname_version = next(
        (parts[1] for parts in split_names if parts is not None and parts[0] == "cudnn"), None
    )
    if cudnn_soname_version is None:
        return ()
    tags = []
    for tag in compat.images.list_tags(
        str(versions.major(cuda)), cudnn_major=int(cudnn_soname_version.split(".")[0]), flavour="runtime"
    ):
        if tag.cudnn is None or not versions.is_at_least(tag.cudnn, min_cudnn):
            continue
        if all(compat.find_soname(stem, tag.cuda) == name for stem, name in soname_by_stem.items()):
            tags.append(tag)
    release_cuda = versions.parse_numbers(cuda)[:2]

    def make_sort_key(tag: ImageTag) -> tuple[object, ...]:
        """Return the sort key of a tag: by Python, by CUDA minor, by CUDA patch, by system.

        The CUDA minor of the release comes first, then the next newer ones, then the next older ones. The newest patch
        and the newest system come first.
        """
        system = compat.pythons.find_system(tag.system) if python is not None else None
        default_python = system.default_python if system is not None else ""
        tag_cuda = (*versions.parse_numbers(tag.cuda), 0)[
            :3
        ]  # parse_numbers returns two numbers for "12.6.0"
        is_older = tag_cuda[:2] < release_cuda
        cuda_order = _negate_numbers(tag_cuda[:2]) if is_older else tag_cuda[:2]
        python_order = (
            python is not None and default_python != python,
            python is not None and default_python not in pythons,
        )
        return (
            *python_order,
            is_older,
            cuda_order,
            _negate_numbers(tag_cuda),
            _negate_numbers(versions.parse_numbers(tag.system)),
        )

    return tuple(sorted(tags, key=make_sort_key))


def _negate_numbers(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Negate the numbers, so that the largest come first when sorting."""
    return tuple(-number for number in numbers)
