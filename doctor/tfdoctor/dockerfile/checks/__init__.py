"""The checks of a Dockerfile, in the order of their codes. One file each, as with the rules of `check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.dockerfile.checks import (
    companion_breaks,
    cuda_does_not_fit,
    cuda_not_installed,
    cudnn_does_not_fit,
    devel_image,
    gpu_not_given,
    image_deleted,
    image_not_known,
    no_gpu_code,
    no_such_release,
    not_seen,
    official_image_broken,
    python_does_not_fit,
    retired_apt_key,
    stubs_on_path,
    tensorflow_not_pinned,
    two_packages,
    wheels_not_found,
)

if TYPE_CHECKING:
    from tfdoctor.dockerfile.checks.base import DockerfileRule

DOCKERFILE_RULES: tuple[DockerfileRule, ...] = (
    image_deleted.RULE,
    image_not_known.RULE,
    official_image_broken.RULE,
    cuda_does_not_fit.RULE,
    cuda_not_installed.RULE,
    cudnn_does_not_fit.RULE,
    python_does_not_fit.RULE,
    no_such_release.RULE,
    no_gpu_code.RULE,
    tensorflow_not_pinned.RULE,
    wheels_not_found.RULE,
    two_packages.RULE,
    retired_apt_key.RULE,
    companion_breaks.RULE,
    gpu_not_given.RULE,
    stubs_on_path.RULE,
    devel_image.RULE,
    not_seen.RULE,
)
