"""What TensorFlow will do on this machine, judged from facts alone, gate by gate. Pure: no I/O."""

from __future__ import annotations

from tfdoctor.predict.build import (
    DEFAULT_FLOOR,
    Build,
    build_of,
    builds_installed,
    dlopen_caller,
    opened_sonames,
    registered_without_files,
)
from tfdoctor.predict.driver import (
    INIT_CAUSES,
    NVML_ERROR_UNKNOWN,
    container_lost_nvml,
    driver_gate,
    driver_missing_cause,
    foreign_to_wsl,
    has_gpu_nodes,
    hidden_by_environment,
    host_has_gpu,
    init_cause,
    is_compat,
    is_stub,
    kernel_mismatch,
    no_device_cause,
    own_driver_files,
)
from tfdoctor.predict.gates import (
    DEFAULT_MIN_MULTIPROCESSORS,
    NVML_VERSION_MISMATCH,
    disabled_device_types,
    predict,
    registered_devices,
)
from tfdoctor.predict.imports import (
    foreign_libstdcxx,
    import_failure,
    is_damaged,
    lacks_avx,
)
from tfdoctor.predict.libraries import (
    MissingLibrary,
    explain_missing,
    installation_of,
    libraries_cause,
    missing_libraries,
    other_installations,
)
from tfdoctor.predict.shadows import folder_of, without_first

__all__ = [
    "DEFAULT_FLOOR",
    "DEFAULT_MIN_MULTIPROCESSORS",
    "INIT_CAUSES",
    "NVML_ERROR_UNKNOWN",
    "NVML_VERSION_MISMATCH",
    "Build",
    "MissingLibrary",
    "build_of",
    "builds_installed",
    "container_lost_nvml",
    "disabled_device_types",
    "dlopen_caller",
    "driver_gate",
    "driver_missing_cause",
    "explain_missing",
    "folder_of",
    "foreign_libstdcxx",
    "foreign_to_wsl",
    "has_gpu_nodes",
    "hidden_by_environment",
    "host_has_gpu",
    "import_failure",
    "init_cause",
    "installation_of",
    "is_compat",
    "is_damaged",
    "is_stub",
    "kernel_mismatch",
    "lacks_avx",
    "libraries_cause",
    "missing_libraries",
    "no_device_cause",
    "opened_sonames",
    "other_installations",
    "own_driver_files",
    "predict",
    "registered_devices",
    "registered_without_files",
    "without_first",
]
