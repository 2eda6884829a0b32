"""The environment variables that TensorFlow, CUDA and their libraries read, and detection of misspelt names."""

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
"""Names whose misspellings are reported; short names have too many legitimate neighbours."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,60}\Z")


def find_misspelt(env: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs (name that is set, known name) for names that look like misspellings.

    A misspelling differs from a known name by one or two letters, or only in case.
    """
    pairs: list[tuple[str, str]] = []
    for name in sorted(env):
        if name in KNOWN_VARIABLES or not _NAME.match(name):
            continue
        upper = name.upper()
        if upper in CHECKED_VARIABLES:
            pairs.append((name, upper))
            continue
        if not any(_may_be_meant(upper, candidate) for candidate in CHECKED_VARIABLES):
            continue
        import difflib  # deferred because it is rarely needed

        close = difflib.get_close_matches(upper, CHECKED_VARIABLES, n=1, cutoff=0.9)
        if close and count_edits(upper, close[0]) <= 2 and not _is_other_name(upper, close[0]):
            pairs.append((name, close[0]))
    return tuple(pairs)


def _may_be_meant(name: str, candidate: str) -> bool:
    """Return whether the two names can be at most two edits apart.

    Each edit changes the length by at most one, and adds or removes at most two letters.
    """
    return abs(len(name) - len(candidate)) <= 2 and len(set(name) ^ set(candidate)) <= 4


def _is_other_name(name: str, candidate: str) -> bool:
    """Return whether a name differs from a known one by a whole word, and so is no misspelling of it."""
    return set(name.split("_")) ^ set(candidate.split("_")) in ({"S"}, {"V2"}) or name.startswith(
        f"{candidate}_"
    )


def count_edits(left: str, right: str) -> int:
    """Return the Damerau-Levenshtein distance of two short words; swapping neighbouring letters is one edit."""
    previous: list[int] = []
    current = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        second_last, previous, current = previous, current, [i]
        for j, b in enumerate(right, 1):
            best = min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, second_last[j - 2] + 1)
            current.append(best)
    return current[-1]
