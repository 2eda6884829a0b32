"""The modules of the rules about CUDA libraries."""

from __future__ import annotations

from tfdoctor.rules import (
    cudnn_missing,
    cudnn_version_mismatch,
    damaged_library,
    libs_not_installed,
    libs_not_on_path,
    libs_transitive,
    libs_wrong_version,
)

ABOUT_LIBRARIES = (
    libs_not_installed,
    libs_wrong_version,
    libs_not_on_path,
    libs_transitive,
    cudnn_missing,
    cudnn_version_mismatch,
    damaged_library,
)
