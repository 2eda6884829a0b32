"""List the variables that TensorFlow, CUDA and their libraries read, and find misspelt names."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

KNOWN_VARIABLES = (
    "COLAB_RELEASE_TAG",
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
    "KAGGLE_KERNEL_RUN_TYPE",
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
    "SM_NUM_GPUS",
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
READ_AT_START = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD"})
"""Environment variables that are read when a process starts."""
READ_AT_IMPORT = frozenset(
    [
        "TF_CPP_MIN_LOG_LEVEL",
        "TF_CPP_MAX_VLOG_LEVEL",
        "TF_CPP_MIN_VLOG_LEVEL",
        "TF_CPP_VMODULE",
        "TF_CPP_MAX_LOG_LEVEL",
        "TF_CPP_LOG_THREAD_ID",
        "TF_ENABLE_ONEDNN_OPTS",
        "TF_DISABLE_MKL",
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
    ]
)
"""Environment variables that are read during the import of tensorflow, or soon after.

This was observed with a getenv that logs its calls, for TensorFlow 2.20.0, 2.15.1, 2.10.1 and 1.15.5. TensorFlow
1.15 reads TF_CPP_MIN_LOG_LEVEL when it logs its first message.
"""
READ_AT_FIRST_USE = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_GPU_ALLOCATOR",
        "TF_GPU_THREAD_MODE",
        "TF_GPU_THREAD_COUNT",
        "TF_ENABLE_GPU_GARBAGE_COLLECTION",
        "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
        "TF_XLA_FLAGS",
        "XLA_FLAGS",
        "CUDA_CACHE_PATH",
        "CUDA_CACHE_MAXSIZE",
        "CUDA_CACHE_DISABLE",
        "TF_PER_DEVICE_MEMORY_LIMIT_MB",
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        "TF_CUDA_HOST_MEM_LIMIT_IN_MB",
        "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC",
        "NVIDIA_TF32_OVERRIDE",
        "CUDA_LAUNCH_BLOCKING",
    ]
)
"""Environment variables that are read at the first use of the GPUs.

The four releases above read TF_XLA_FLAGS already when devices are listed.
"""
READ_VARIABLES = frozenset(
    [
        *KNOWN_VARIABLES,
        *READ_AT_START,
        *READ_AT_IMPORT,
        *READ_AT_FIRST_USE,
        "TF_CONFIG",
        "TF2_BEHAVIOR",
        "TF_DETERMINISTIC_OPS",
        "TF_CUDNN_DETERMINISTIC",
        "TF_CUDNN_USE_AUTOTUNE",
        "TF_CUDNN_RESET_RND_GEN_STATE",
        "TF_ENABLE_AUTO_MIXED_PRECISION",
        "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_ALLOWLIST_ADD",
        "TF_NUM_INTEROP_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_SYNC_ON_FINISH",
        "TF_AUTOTUNE_THRESHOLD",
        "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT",
        "TF_ENABLE_WINOGRAD_NONFUSED",
        "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32",
        "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32",
        "TF_DISABLE_CUBLAS_TENSOR_OP_MATH",
        "TF_DISABLE_CUDNN_TENSOR_OP_MATH",
        "TF_DISABLE_CUDNN_RNN_TENSOR_OP_MATH",
        "TF_ALLOW_IOLIBS",
        "TFHUB_CACHE_DIR",
        "TFDS_DATA_DIR",
        "TF_KERAS",
        "TF_CUDA_VERSION",
        "TF_CUDNN_VERSION",
        "TF_CUDA_PATHS",
        "TF_NEED_CUDA",
        "TF_CUDA_CLANG",
        "TF_NCCL_VERSION",
        "TF_TENSORRT_VERSION",
        "TF_DISABLE_RZ_CHECK",
        "TF_GRPC_TIMEOUT_IN_MS",
        "TF_NEED_ROCM",
        "TF_ENABLE_GPU_GARBAGE_COLLECTION",
        "TF_CONV_ALGO",
        "TF_GPU_VMEM",
        "TF_GPU_THREAD_COUNT",
        "TF_XLA_MAX_CLUSTER_SIZE",
        "NCCL_DEBUG",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_DEBUG_FILE",
        "NCCL_SOCKET_IFNAME",
        "NCCL_SOCKET_FAMILY",
        "NCCL_SOCKET_NTHREADS",
        "NCCL_NSOCKS_PERTHREAD",
        "NCCL_IB_DISABLE",
        "NCCL_IB_HCA",
        "NCCL_IB_TIMEOUT",
        "NCCL_IB_RETRY_CNT",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_SL",
        "NCCL_IB_TC",
        "NCCL_IB_CUDA_SUPPORT",
        "NCCL_IB_AR_THRESHOLD",
        "NCCL_IB_QPS_PER_CONNECTION",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_P2P_DIRECT_DISABLE",
        "NCCL_SHM_DISABLE",
        "NCCL_NET",
        "NCCL_NET_PLUGIN",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_NET_GDR_READ",
        "NCCL_BUFFSIZE",
        "NCCL_NTHREADS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NRINGS",
        "NCCL_MIN_NRINGS",
        "NCCL_RINGS",
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_CHECKS_DISABLE",
        "NCCL_CHECK_POINTERS",
        "NCCL_LAUNCH_MODE",
        "NCCL_TOPO_FILE",
        "NCCL_TOPO_DUMP_FILE",
        "NCCL_GRAPH_FILE",
        "NCCL_GRAPH_DUMP_FILE",
        "NCCL_CUMEM_ENABLE",
        "NCCL_NVLS_ENABLE",
        "NCCL_CROSS_NIC",
        "NCCL_COLLNET_ENABLE",
        "NCCL_BLOCKING_WAIT",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_COMM_ID",
        "NCCL_DMABUF_ENABLE",
        "NCCL_IGNORE_CPU_AFFINITY",
        "NCCL_CONF_FILE",
        "NCCL_VERSION",
        "NCCL_HOME",
        "NCCL_ROOT",
        "NCCL_TESTS_SPLIT_MASK",
        "NCCL_SET_STACK_SIZE",
        "NCCL_TIMEOUT",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MODULE_LOADING",
        "CUDA_DEVICE_WAITS_ON_EXCEPTION",
        "CUDA_AUTO_BOOST",
        "CUDA_MPS_LOG_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_VERSION",
        "CUDA_TOOLKIT_ROOT_DIR",
        "CUDA_TOOLKIT_PATH",
        "CUDA_INC_PATH",
        "CUDA_LIB_PATH",
        "CUDA_BIN_PATH",
        "CUDA_INSTALL_PATH",
        "CUDA_ARCH",
        "CUDA_ARCHS",
        "CUDA_DIR",
        "CUDACXX",
        "CUDNN_VERSION",
        "CUDNN_HOME",
        "CUDNN_ROOT",
        "CUDNN_LIBRARY",
        "CUDNN_INCLUDE_DIR",
        "CUDNN_LOGINFO_DBG",
        "CUDNN_LOGDEST_DBG",
        "CUDA_PKG_VERSION",
        "NV_CUDNN_VERSION",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_REQUIRE_CUDA",
        "NVIDIA_REQUIRE_DRIVER",
        "NVIDIA_BUILD_ID",
        "NVIDIA_PRODUCT_NAME",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
        "GPU_VISIBLE_DEVICES",
        "DYLD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "LD_RUN_PATH",
        "ASCEND_VISIBLE_DEVICES",
        "HABANA_VISIBLE_DEVICES",
        "TPU_VISIBLE_DEVICES",
        "MLU_VISIBLE_DEVICES",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
        "XLA_PYTHON_CLIENT_ALLOCATOR",
        "XLA_USE_BF16",
        "TF_LOG_LEVEL",
        "TF_MIN_LOG_LEVEL",
    ]
)
"""Environment variables that some program reads. They never count as misspelt."""
_SUGGESTIONS = tuple(
    sorted(
        {
            *(
                name
                for name in KNOWN_VARIABLES
                if len(name) >= 8 and name not in {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"}
            ),
            *READ_AT_IMPORT,
            *READ_AT_FIRST_USE,
            *READ_AT_START,
            "TF_CONFIG",
            "XLA_FLAGS",
            "NCCL_DEBUG",
            "NCCL_SOCKET_IFNAME",
        }
        | {"NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL", "NCCL_DEBUG_SUBSYS"}
        | {
            "NCCL_DEBUG_FILE",
            "NCCL_LAUNCH_MODE",
            "NCCL_NET_GDR_LEVEL",
            "NCCL_ASYNC_ERROR_HANDLING",
            "NCCL_BUFFSIZE",
        }
        | {"NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_BLOCKING_WAIT", "NCCL_TOPO_FILE", "NCCL_CROSS_NIC"}
        | {"NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"}
        | {"TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "TF_CUDNN_USE_AUTOTUNE", "CUDA_MODULE_LOADING"}
        | {"CUDA_DEVICE_MAX_CONNECTIONS", "TF_ENABLE_AUTO_MIXED_PRECISION", "NVIDIA_VISIBLE_DEVICES"}
        | {"NVIDIA_DRIVER_CAPABILITIES", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"}
    )
)
"""Environment variables that are suggested as corrections."""
_DISTINCT_WORDS = {
    "MAX": "MIN",
    "MIN": "MAX",
    "IB": "P2P",
    "SHM": "P2P",
    "ENABLE": "DISABLE",
    "DISABLE": "ENABLE",
    "INTRAOP": "INTEROP",
    "INTEROP": "INTRAOP",
    "HOST": "MIN",
}
"""Pairs of words that are as similar as a word and its misspelling, but have different meanings."""


def find_misspelt_variables(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (name that is set, known name) for each name that looks like a misspelling, sorted."""
    guesses = ((name, guess_variable(name)) for name in sorted(names))
    return tuple((name, guess) for name, guess in guesses if guess is not None)


def is_relevant_variable(name: str) -> bool:
    """Return whether TensorFlow, CUDA or NCCL may read an environment variable of this name."""
    return name in READ_VARIABLES or name.startswith(("NCCL_", "TF_", "XLA_", "CUDA_", "NVIDIA_"))


@functools.lru_cache(maxsize=4096)
def guess_variable(name: str) -> str | None:
    """Return the environment variable that a misspelt name stands for, or None if it is not recognized.

    One or two wrong letters, words in another order and one missing word are recognized.
    """
    if not 5 <= len(name) <= 60 or name in READ_VARIABLES:
        return None
    if name.rstrip("0123456789_") in READ_VARIABLES:
        return None  # a variable of the user's own, such as TF_CONFIG2
    normalized = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
    if normalized in READ_VARIABLES:
        return normalized if normalized in _SUGGESTIONS and normalized != name else None
    name_words = normalized.split("_")
    best: tuple[int, str] | None = None
    for candidate in _SUGGESTIONS:
        candidate_words = candidate.split("_")
        if abs(len(candidate) - len(normalized)) <= 2 and len(set(candidate) ^ set(normalized)) <= 4:
            distance = count_edits(normalized, candidate)
            max_distance = 2 if len(candidate) >= 12 else 1
            if (
                distance <= max_distance
                and not _is_distinct_name(name_words, candidate_words)
                and (best is None or distance < best[0])
            ):
                best = distance, candidate
        # a missing or moved word counts as three wrong letters, so that a name with fewer is preferred
        if best is None and (
            (len(candidate_words) >= 3 and sorted(name_words) == sorted(candidate_words))
            or (
                len(candidate_words) >= 5
                and len(name_words) == len(candidate_words) - 1
                and _has_all_words(name_words, candidate_words)
            )
        ):
            best = 3, candidate
    return best[1] if best is not None else None


def _is_distinct_name(name_words: list[str], candidate_words: list[str]) -> bool:
    """Return whether a name differs from a candidate on purpose and is not a misspelling.

    Such a name has a number or a short word after the candidate (NCCL_DEBUG_2, TF_CONFIG_X), another number, or one of
    `_DISTINCT_WORDS` instead of its counterpart.
    """
    extra_words = (
        name_words[len(candidate_words) :] if name_words[: len(candidate_words)] == candidate_words else []
    )
    if extra_words and (extra_words[0].isdigit() or len(extra_words[0]) <= 2):
        return True
    changed_words = [pair for pair in zip(name_words, candidate_words, strict=False) if pair[0] != pair[1]]
    return len(name_words) == len(candidate_words) and any(
        _DISTINCT_WORDS.get(word) == expected or (word.isdigit() and expected.isdigit())
        for word, expected in changed_words
    )


def _has_all_words(name_words: list[str], candidate_words: list[str]) -> bool:
    """Return whether a candidate has all words of a name, each at least as often."""
    remaining = list(candidate_words)
    for word in name_words:
        if word not in remaining:
            return False
        remaining.remove(word)
    return True


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
