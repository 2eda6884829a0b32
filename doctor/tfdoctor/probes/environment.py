"""Environment variables that decide whether TensorFlow sees a GPU, and their misspellings."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from tfdoctor.facts import EnvironmentFacts
from tfdoctor.redact import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.system import System

KNOWN = (
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
    "PYTHONPATH",
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
PREFIXES = ("TF_", "XLA_", "NVIDIA_", "CUDA_", "NCCL_")
GUARDED = tuple(
    name for name in KNOWN if len(name) >= 8 and name not in {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"}
)
"""Names whose misspelling is looked for; the short ones have too many innocent neighbours."""
SCHEDULERS = (
    ("SLURM_JOB_ID", "slurm"),
    ("LSB_JOBID", "lsf"),
    ("PBS_JOBID", "pbs"),
    ("RAY_RAYLET_PID", "ray"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
)
PROGRAMS = ("apt-get", "conda", "mamba", "micromamba", "pip", "pip3", "python3", "sh", "sudo", "uv")
"""Programs that advice may have somebody type. Every machine has `sh`: a recording without it never looked."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,60}\Z")


def probe(system: System) -> EnvironmentFacts:
    """What of the environment matters."""
    env = system.env
    programs = frozenset(name for name in PROGRAMS if _runs(system, name))
    return EnvironmentFacts(
        variables={
            name: clean(value)
            for name, value in sorted(env.items())
            if name in KNOWN or (name.startswith(PREFIXES) and _NAME.match(name))
        },
        misspelt=find_misspelt(env),
        scheduler=next((word for name, word in SCHEDULERS if name in env), None),
        programs=programs if "sh" in programs else None,
    )


def _runs(system: System, name: str) -> bool:
    """Whether a name on PATH is a program: pyenv and its like leave shims behind which there is none."""
    path = system.which(name)
    if path is None or "/shims/" not in path:
        return path is not None
    return system.run([path, "--version"], timeout=2.0).ok


def find_misspelt(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Pairs (as set, as meant) for names one or two letters off a known one, or in the wrong case."""
    pairs: list[tuple[str, str]] = []
    for name in sorted(env):
        if name in KNOWN or not _NAME.match(name):
            continue
        upper = name.upper()
        if upper in GUARDED:
            pairs.append((name, upper))
            continue
        close = difflib.get_close_matches(upper, GUARDED, n=1, cutoff=0.9)
        if close and _edits(upper, close[0]) <= 2 and not _is_other_name(upper, close[0]):
            pairs.append((name, close[0]))
    return tuple(pairs)


def _is_other_name(name: str, known: str) -> bool:
    """TF_CUDA_PATH beside CUDA_PATH, CUDNN_PATHS…: a whole word more or less is another name, not a slip."""
    return set(name.split("_")) ^ set(known.split("_")) in ({"S"}, {"V2"}) or name.startswith(f"{known}_")


def _edits(left: str, right: str) -> int:
    """Damerau-Levenshtein distance of two short words (adjacent letters swapped count once)."""
    previous: list[int] = []
    current = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, previous, current = previous, current, [i]
        for j, b in enumerate(right, 1):
            best = min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, before[j - 2] + 1)
            current.append(best)
    return current[-1]
