"""The known names of environment variables, options and functions, and corrections for misspelt names."""

from __future__ import annotations

import functools

from tfdoctor.core.facts.variables import count_edits

__all__ = [
    "OPTIONS_BY_OWNER",
    "guess_function",
    "guess_option",
]

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
