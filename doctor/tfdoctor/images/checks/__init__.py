"""The Dockerfile checks, one module each. Findings are reported in the order of this list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.images.checks import (
    build_stops,
    conda_cpu_build,
    copied_packages,
    devel_image,
    driver_in_image,
    gpu_not_given,
    gpu_while_building,
    image_deleted,
    image_not_known,
    no_such_release,
    not_seen,
    official_image_broken,
    pip_refused,
    python_does_not_fit,
    requirements_conflict,
    retired_apt_key,
    stubs_on_path,
    tensorflow_not_pinned,
    wheels_not_found,
)

if TYPE_CHECKING:
    from tfdoctor.images.checks.base import DockerfileRule

DOCKERFILE_RULES: tuple[DockerfileRule, ...] = (
    image_deleted.RULE,
    image_not_known.RULE,
    official_image_broken.RULE,
    python_does_not_fit.RULE,
    no_such_release.RULE,
    tensorflow_not_pinned.RULE,
    wheels_not_found.RULE,
    retired_apt_key.RULE,
    gpu_not_given.RULE,
    stubs_on_path.RULE,
    devel_image.RULE,
    not_seen.RULE,
    requirements_conflict.RULE,
    pip_refused.RULE,
    copied_packages.RULE,
    driver_in_image.RULE,
    conda_cpu_build.RULE,
    gpu_while_building.RULE,
    build_stops.RULE,
)
