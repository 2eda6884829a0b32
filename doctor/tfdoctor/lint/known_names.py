"""The known names of environment variables, options and functions, and corrections for misspelt names."""

from __future__ import annotations

import functools
import re

from tfdoctor.facts.variables import CHECKED_VARIABLES, KNOWN_VARIABLES, count_edits

__all__ = [
    "OPTIONS_BY_OWNER",
    "READ_AT_FIRST_USE",
    "READ_AT_IMPORT",
    "READ_AT_START",
    "READ_VARIABLES",
    "guess_function",
    "guess_option",
    "guess_variable",
    "is_relevant_variable",
]

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
            *CHECKED_VARIABLES,
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
_POSSIBLY_MISSPELT = re.compile(
    r"(?i)[A-Z]{0,3}_?(?:CUDA|CDUA|CUAD|UCDA|CUD|TF|FT|XLA|XAL|LXA|NCCL|NCLL|NCC|NCL|CNCL|NVIDIA|NVIDA|NVDIA|NIVIDIA|INVIDIA|LD|DL|TENSORFLOW)"
    r"[A-Z0-9]{0,2}[_\- ]|(?i:.*VISI?BL?E|VISB|TENSORFLOW|.*GROW|.*LIBR?A?R?Y_PATH|.*LOG_LEVEL|.*ONEDNN|KERAS_|.*DEVI)"
)
"""Names that may be misspellings of a suggested variable. All others are skipped quickly."""
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

_GPU_OPTIONS_FIELDS = [
    "per_process_gpu_memory_fraction",
    "allow_growth",
    "allocator_type",
    "deferred_deletion_bytes",
    "visible_device_list",
    "polling_active_delay_usecs",
    "polling_inactive_delay_msecs",
    "force_gpu_compatible",
    "experimental",
]
_CONFIG_PROTO_FIELDS = [
    "device_count",
    "intra_op_parallelism_threads",
    "inter_op_parallelism_threads",
    "use_per_session_threads",
    "session_inter_op_thread_pool",
    "placement_period",
    "device_filters",
    "gpu_options",
    "pluggable_device_options",
    "allow_soft_placement",
    "log_device_placement",
    "graph_options",
    "operation_timeout_in_ms",
    "rpc_options",
    "cluster_def",
    "isolate_session_state",
    "share_cluster_devices_in_session",
    "experimental",
]
OPTIONS_BY_OWNER = {
    "ConfigProto": tuple(_CONFIG_PROTO_FIELDS),
    "GPUOptions": tuple(_GPU_OPTIONS_FIELDS),
    "Session": ("target", "graph", "config"),
    "InteractiveSession": ("target", "graph", "config"),
    "config.LogicalDeviceConfiguration": (
        "memory_limit",
        "experimental_priority",
        "experimental_device_ordinal",
    ),
    "config.experimental.VirtualDeviceConfiguration": ("memory_limit", "experimental_priority"),
    "distribute.MirroredStrategy": ("devices", "cross_device_ops"),
    "distribute.OneDeviceStrategy": ("device",),
    "distribute.MultiWorkerMirroredStrategy": ("cluster_resolver", "communication_options"),
    "train.Server": ("server_or_cluster_def", "job_name", "task_index", "protocol", "config", "start"),
    "distribute.Server": ("server_or_cluster_def", "job_name", "task_index", "protocol", "config", "start"),
    "config.experimental.set_memory_growth": ("device", "enable"),
    "config.set_visible_devices": ("devices", "device_type"),
    "config.list_physical_devices": ("device_type",),
    "config.list_logical_devices": ("device_type",),
    "config.set_logical_device_configuration": ("device", "logical_devices"),
}
"""The keyword arguments of each function, or fields of each class, by its name without "tf."."""
_EXPERIMENTAL_FUNCTIONS = [
    "cluster_has_one_worker_of_each",
    "VirtualDeviceConfiguration",
    "set_memory_growth",
    "get_memory_growth",
    "set_virtual_device_configuration",
    "get_virtual_device_configuration",
    "list_physical_devices",
    "list_logical_devices",
    "set_visible_devices",
    "get_visible_devices",
    "get_memory_info",
    "get_memory_usage",
    "reset_memory_stats",
    "get_device_details",
    "set_device_policy",
    "get_device_policy",
    "set_synchronous_execution",
    "get_synchronous_execution",
    "enable_mlir_bridge",
    "disable_mlir_bridge",
    "enable_mlir_graph_optimization",
    "disable_mlir_graph_optimization",
    "enable_op_determinism",
    "enable_tensor_float_32_execution",
    "tensor_float_32_execution_enabled",
    "ClusterDeviceFilters",
    "VirtualDevice",
]
_NAMES_BY_MODULE = {
    "config": (
        "LogicalDevice",
        "LogicalDeviceConfiguration",
        "PhysicalDevice",
        "experimental",
        "experimental_connect_to_cluster",
        "experimental_connect_to_host",
        "experimental_functions_run_eagerly",
        "experimental_run_functions_eagerly",
        "functions_run_eagerly",
        "run_functions_eagerly",
        "get_logical_device_configuration",
        "set_logical_device_configuration",
        "get_soft_device_placement",
        "set_soft_device_placement",
        "get_visible_devices",
        "set_visible_devices",
        "list_logical_devices",
        "list_physical_devices",
        "optimizer",
        "threading",
        "experimental_list_devices",
    ),
    "config.experimental": tuple(_EXPERIMENTAL_FUNCTIONS),
    "config.threading": tuple(
        f"{verb}_{scope}_op_parallelism_threads" for verb in ("get", "set") for scope in ("inter", "intra")
    ),
    "distribute": (
        "MirroredStrategy",
        "MultiWorkerMirroredStrategy",
        "ParameterServerStrategy",
        "CentralStorageStrategy",
        "OneDeviceStrategy",
        "TPUStrategy",
        "Strategy",
        "StrategyExtended",
        "Server",
        "HierarchicalCopyAllReduce",
        "NcclAllReduce",
        "ReductionToOneDevice",
        "ReplicaContext",
        "ReduceOp",
        "InputContext",
        "InputOptions",
        "RunOptions",
        "CrossDeviceOps",
        "cluster_resolver",
        "experimental",
        "coordinator",
        "experimental_set_strategy",
        "get_replica_context",
        "get_strategy",
        "has_strategy",
        "in_cross_replica_context",
        "DistributedValues",
        "DistributedDataset",
        "DistributedIterator",
        "InputReplicationMode",
        "get_loss_reduction",
    ),
    "debugging": ("set_log_device_placement", "get_log_device_placement"),
}
"""The names in each module of TensorFlow, without "tf."."""


# ---------------------------------------------------------------- variables


def is_relevant_variable(name: str) -> bool:
    """Return whether TensorFlow, CUDA or NCCL may read an environment variable of this name."""
    return name in READ_VARIABLES or name.startswith(("NCCL_", "TF_", "XLA_", "CUDA_", "NVIDIA_"))


@functools.lru_cache(maxsize=4096)
def guess_variable(name: str) -> str | None:
    """Return the environment variable that a misspelt name stands for, or None if it is not recognized.

    One or two wrong letters, words in another order and one missing word are recognized.
    """
    if not 5 <= len(name) <= 60 or name in READ_VARIABLES or not _POSSIBLY_MISSPELT.match(name):
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


# ---------------------------------------------------------------- options


def _find_closest(name: str, candidates: tuple[str, ...]) -> str | None:
    """Return the candidate that is closest to a misspelt name, or None if none is close enough."""
    if name in candidates or len(name) < 6:
        return None
    lower_name = name.lower()
    best: tuple[int, str] | None = None
    for candidate in candidates:
        if abs(len(candidate) - len(name)) > 3 or len(candidate) < 6:
            continue
        # the longer a name is, the more wrong letters still leave it recognizable
        distance = count_edits(lower_name, candidate.lower())
        if distance <= (3 if len(candidate) >= 20 else 2 if len(candidate) >= 9 else 1) and (
            best is None or distance < best[0]
        ):
            best = distance, candidate
    return best[1] if best is not None else None


@functools.lru_cache(maxsize=4096)
def guess_option(owner: str, name: str) -> str | None:
    """Return the field of `owner` that a misspelt name stands for, or None if there is none.

    `owner` is a key of `OPTIONS_BY_OWNER`.
    """
    fields = OPTIONS_BY_OWNER.get(owner, ())
    match = _find_closest(name, fields)
    if match is None and name not in fields and owner in ("ConfigProto", "GPUOptions"):
        normalized = name.lower().replace("_", "")
        match = next(
            (
                field
                for field in fields
                if field.replace("_", "") == normalized or sorted(field.split("_")) == sorted(name.split("_"))
            ),
            None,
        )
    if match is None and name not in fields and owner == "GPUOptions":
        match = {
            "gpu_memory_fraction": "per_process_gpu_memory_fraction",
            "memory_fraction": "per_process_gpu_memory_fraction",
            "per_process_memory_fraction": "per_process_gpu_memory_fraction",
            "allow_memory_growth": "allow_growth",
            "per_gpu_memory_fraction": "per_process_gpu_memory_fraction",
        }.get(name)
    return match


@functools.lru_cache(maxsize=4096)
def guess_function(path: str) -> str | None:
    """Return the name of the function that a misspelt path such as "config.list_devices" stands for.

    Only the last part of the path is returned. Return None if the path is not recognized.
    """
    module, _, name = path.rpartition(".")
    names = _NAMES_BY_MODULE.get(module)
    if names is None or (module == "debugging" and "placement" not in name):
        return None
    return _find_closest(name, names)
