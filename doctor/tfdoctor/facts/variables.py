"""List the variables that TensorFlow, CUDA and their libraries read, and find misspelt names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

KNOWN_VARIABLES = (
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_CACHE_PATH",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_HOME",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_VISIBLE_DEVICES",
    "CUDNN_PATH",
    "KERAS_BACKEND",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LMOD_CMD",
    "LOADEDMODULES",
    "MODULESHOME",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
    "PYTHONHOME",
    "PYTHONOPTIMIZE",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "SETUPTOOLS_USE_DISTUTILS",
    "TF_CPP_MAX_VLOG_LEVEL",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_CPP_VMODULE",
    "TF_CUDA_COMPUTE_CAPABILITIES",
    "TF_ENABLE_GPU_GARBAGE_COLLECTION",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_MODE",
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "VIRTUAL_ENV",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)
CHECKED_VARIABLES = tuple(
    name for name in KNOWN_VARIABLES if len(name) >= 8 and name not in {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"}
)
"""Names whose misspellings are reported. Short names are similar to too many other names."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,60}\Z")
"""A name that is compared. Shorter and much longer names cannot be misspellings."""


def find_misspelt_variables(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (name that is set, known name) for each name that looks like a misspelling.

    A misspelling differs from a known name by one or two edits, or only in case.
    """
    misspellings: list[tuple[str, str]] = []
    for name in sorted(names):
        if name in KNOWN_VARIABLES or not _NAME.match(name):
            continue
        upper_name = name.upper()
        if upper_name in CHECKED_VARIABLES:
            misspellings.append((name, upper_name))
            continue
        if not any(_may_be_misspelling(upper_name, candidate) for candidate in CHECKED_VARIABLES):
            continue
        import difflib  # deferred because it is rarely needed

        close_matches = difflib.get_close_matches(upper_name, CHECKED_VARIABLES, n=1, cutoff=0.9)
        if (
            close_matches
            and count_edits(upper_name, close_matches[0]) <= 2
            and not _is_other_name(upper_name, close_matches[0])
        ):
            misspellings.append((name, close_matches[0]))
    return tuple(misspellings)


def _may_be_misspelling(name: str, candidate: str) -> bool:
    """Return whether two names can be at most two edits apart, without counting the edits, which is slow.

    An edit changes the length by at most one, and the set of letters by at most two.
    """
    return abs(len(name) - len(candidate)) <= 2 and len(set(name) ^ set(candidate)) <= 4


def _is_other_name(name: str, candidate: str) -> bool:
    """Return whether a name differs from a known name by a whole word (`…_V2`) and is not misspelt."""
    return set(name.split("_")) ^ set(candidate.split("_")) in ({"S"}, {"V2"}) or name.startswith(
        f"{candidate}_"
    )


def count_edits(left: str, right: str) -> int:
    """Return the Damerau-Levenshtein distance: swapping two adjacent letters is one edit."""
    previous: list[int] = []
    current = list(range(len(right) + 1))
    for left_index, left_char in enumerate(left, 1):
        second_last, previous, current = previous, current, [left_index]
        for right_index, right_char in enumerate(right, 1):
            min_edits = min(
                previous[right_index] + 1,
                current[right_index - 1] + 1,
                previous[right_index - 1] + (left_char != right_char),
            )
            if (
                left_index > 1
                and right_index > 1
                and left_char == right[right_index - 2]
                and left[left_index - 2] == right_char
            ):
                min_edits = min(min_edits, second_last[right_index - 2] + 1)
            current.append(min_edits)
    return current[-1]
