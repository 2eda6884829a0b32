"""Turn facts into named values for comparison, leaving out values that change all the time."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts import Absent, Known, SmiFacts, SmiFailure, Unknown, value_of
from tfdoctor.core.findings import Cause
from tfdoctor.prediction.library_versions import find_library_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.core.facts import Facts, LoaderFacts, PythonFacts, Resolution

AREAS = (
    "driver",
    "kernel",
    "cards",
    "TensorFlow",
    "Python",
    "CUDA libraries",
    "packages",
    "variables",
    "paths",
    "system",
    "container engine",
)
"""The areas, in the order of their importance for TensorFlow on a GPU."""

# The sets below are the causes of findings that a change of such a value can explain.
_DRIVER_CAUSES = frozenset(
    {
        Cause.NO_DRIVER,
        Cause.NO_DEVICE,
        Cause.DRIVER_TOO_OLD,
        Cause.DRIVER_LIB_MISMATCH,
        Cause.DRIVER_INIT_UNKNOWN,
        Cause.COMPAT_NOT_SUPPORTED,
        Cause.STUB_LIBCUDA,
        Cause.WSL_LIBCUDA,
        Cause.NVML_MISSING,
        Cause.CONTAINER_NVML_LOST,
        Cause.CONTAINER_NO_GPU,
    }
)
_KERNEL_CAUSES = frozenset(
    {
        Cause.NO_DRIVER,
        Cause.NO_DEVICE,
        Cause.DRIVER_LIB_MISMATCH,
        Cause.DRIVER_INIT_UNKNOWN,
        Cause.NVML_MISSING,
    }
)
_GPU_CAUSES = frozenset({Cause.NO_DEVICE, Cause.GPU_TOO_OLD, Cause.GPU_TOO_NEW, Cause.CONTAINER_NO_GPU})
_LIBRARY_CAUSES = frozenset(
    {
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_NOT_ON_PATH,
        Cause.LIBS_TRANSITIVE,
        Cause.LIBS_WRONG_VERSION,
        Cause.CUDNN_MISSING,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.LIBDEVICE_OR_PTXAS_MISSING,
        Cause.IMPORT_MISSING_CUDA_LIB,
        Cause.DAMAGED_FILE,
        Cause.PACKAGE_CONFLICT,
    }
)
_TENSORFLOW_CAUSES = _LIBRARY_CAUSES | {
    Cause.CPU_ONLY_BUILD,
    Cause.BOTH_PACKAGES,
    Cause.DRIVER_TOO_OLD,
    Cause.GPU_TOO_OLD,
    Cause.GPU_TOO_NEW,
    Cause.NUMPY_ABI,
    Cause.PROTOBUF_CONFLICT,
    Cause.TENSORFLOW_MISSING,
    Cause.GLIBC_TOO_OLD,
    Cause.LIBSTDCXX_TOO_OLD,
    Cause.ILLEGAL_INSTRUCTION_AVX,
    Cause.WINDOWS_NATIVE_UNSUPPORTED,
    Cause.NVML_MISSING,
    Cause.SHADOWED_MODULE,
}
_PACKAGE_CAUSES = _TENSORFLOW_CAUSES | {Cause.PACKAGE_CONFLICT, Cause.NO_MATCHING_WHEEL, Cause.INCONCLUSIVE}
"""The change of a package explains a finding with one of these causes only if the finding names the package."""
_ENGINE_CAUSES = frozenset(
    {
        Cause.NO_NVIDIA_RUNTIME,
        Cause.CONTAINER_NO_GPU,
        Cause.CONTAINER_DRIVER_LIBS,
        Cause.CONTAINER_NVML_LOST,
        Cause.CONTAINER_CUDA_REQUIREMENT,
    }
)
_PYTHON_CAUSES = frozenset(
    {
        Cause.NO_MATCHING_WHEEL,
        Cause.TENSORFLOW_MISSING,
        Cause.PYTHON_UNUSABLE,
        Cause.NUMPY_ABI,
        Cause.GLIBC_TOO_OLD,
        Cause.SHADOWED_MODULE,
    }
)
_CAUSES_BY_VARIABLE = {
    "CUDA_VISIBLE_DEVICES": frozenset({Cause.HIDDEN_BY_ENV}),
    "NVIDIA_VISIBLE_DEVICES": frozenset({Cause.HIDDEN_BY_ENV, Cause.CONTAINER_NO_GPU}),
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT": frozenset({Cause.HIDDEN_BY_ENV}),
    "LD_LIBRARY_PATH": _LIBRARY_CAUSES
    | {Cause.STUB_LIBCUDA, Cause.COMPAT_NOT_SUPPORTED, Cause.LIBSTDCXX_TOO_OLD},
    "LD_PRELOAD": _LIBRARY_CAUSES | {Cause.STUB_LIBCUDA},
    "PYTHONPATH": _PYTHON_CAUSES | {Cause.CPU_ONLY_BUILD},
    "PYTHONHOME": _PYTHON_CAUSES,
    "VIRTUAL_ENV": _PYTHON_CAUSES,
    "CONDA_PREFIX": _PYTHON_CAUSES,
}
_MINOR_PACKAGES = re.compile(
    r"(setuptools|tensorboard|pandas|scipy|tensorflow-(?!cpu\Z|gpu\Z|intel\Z|macos\Z|rocm\Z))"
)
"""Matches packages whose version seldom matters, such as tensorflow-datasets, but no build of TensorFlow itself."""
_IGNORED_VARIABLES = frozenset({"LMOD_CMD", "MODULESHOME", "CONDA_DEFAULT_ENV"})
"""Variables that are not compared."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A named value of a machine, such as the driver version."""

    area: str
    name: str
    value: str | None
    """The value as text; None if it is missing."""
    causes: frozenset[Cause] = frozenset()
    """The causes of findings that a change of the value can explain."""
    is_minor: bool = False
    """Whether a change of the value seldom matters."""
    unknown_reason: str = ""
    """The reason why the value could not be read; empty if it was read."""
    aliases: tuple[str, ...] = ()
    """Other names by which the text of a finding can mention the value."""
    needs_name: bool = False
    """Whether the value explains only findings that name it."""
    missing_value: str = ""
    """The text for a missing value; if empty, the text for its area is used."""
    list_items: tuple[str, ...] = ()
    """The items if the value is a list, else empty."""


Snapshot = dict[tuple[str, str], Entry]
"""The entries of a machine by (area, name)."""


def make_snapshot(facts: Facts) -> Snapshot:
    """Return the entries by (area, name), in the order of the areas."""
    normalizer = _PathNormalizer(facts)
    entries = [
        *_iter_driver_entries(facts, normalizer),
        *_iter_kernel_entries(facts),
        *_iter_gpu_entries(facts),
        *_iter_tensorflow_entries(facts, normalizer),
        *_iter_python_entries(facts, normalizer),
        *_iter_library_entries(facts, normalizer),
        *_iter_package_entries(facts),
        *_iter_variable_entries(facts, normalizer),
        *_iter_folder_entries(facts, normalizer),
        *_iter_system_entries(facts),
        *_iter_engine_entries(facts),
    ]
    entries.sort(key=lambda entry: AREAS.index(entry.area))
    return {(entry.area, entry.name): entry for entry in entries}


class _PathNormalizer:
    """A callable that makes paths comparable by replacing the prefix of the environment and the Python version."""

    def __init__(self, facts: Facts) -> None:
        python = value_of(facts.python)
        prefixes: list[tuple[str, str]] = []
        if python is not None:
            prefixes.append((posixpath.normpath(python.prefix), "<environment>"))
            if python.base_prefix not in ("/usr", "/", python.prefix):
                prefixes.append((posixpath.normpath(python.base_prefix), "<base Python>"))
        self._prefixes = sorted(prefixes, key=lambda pair: -len(pair[0]))

    def __call__(self, path: str) -> str:
        path = posixpath.normpath(path) if path.startswith("/") else path
        for prefix, name in self._prefixes:
            if prefix not in ("/", "/usr") and (path == prefix or path.startswith(f"{prefix}/")):
                path = name + path[len(prefix) :]
                break
        return re.sub(r"/python3\.\d{1,2}/", "/python3/", path)

    def normalize_each(self, text: str) -> str:
        """Return the value of a variable, such as PATH, with each of its folders normalized."""
        return ":".join(self(part) for part in text.split(":"))


def _make_entry(
    fact: Any, area: str, name: str, format_value: Any, causes: frozenset[Cause], **options: Any
) -> Entry:
    """Return the entry for a fact.

    `format_value` turns a known value into text. `options` are other fields of the entry.
    """
    if isinstance(fact, Unknown):
        return Entry(
            area, name, None, causes, unknown_reason=fact.why or "it could not be looked at", **options
        )
    value = format_value(fact.value) if isinstance(fact, Known) else None
    return Entry(area, name, value, causes, **options)


def _join_names(names: Iterable[str]) -> str | None:
    return ", ".join(names) or None


# ---------------------------------------------------------------- the machine


def _iter_driver_entries(facts: Facts, normalizer: _PathNormalizer) -> Iterator[Entry]:
    driver, area = facts.driver, "driver"
    nvml, module, smi = value_of(driver.nvml), value_of(driver.kernel_module), value_of(driver.smi)
    version = (
        (nvml.driver_version if nvml is not None else None)
        or (module.version if module is not None else None)
        or (smi.driver_version if isinstance(smi, SmiFacts) else None)
    )
    yield Entry(area, "NVIDIA driver", version, _DRIVER_CAUSES)
    yield _make_entry(
        driver.kernel_module,
        area,
        "kernel module",
        lambda module_facts: f"{module_facts.version}{' (open)' if module_facts.open_kernel else ''}",
        _DRIVER_CAUSES,
    )
    yield _make_entry(
        driver.cuda,
        area,
        "libcuda.so.1",
        lambda cuda: (
            f"cannot be opened: {cuda.load_error}"
            if not cuda.loaded
            else _strip_driver_version(normalizer(cuda.path or "is opened"))
        ),
        _DRIVER_CAUSES,
    )
    yield _make_entry(
        driver.cuda,
        area,
        "cuInit",
        lambda cuda: f"crashes ({cuda.crashed})" if cuda.crashed else (cuda.init_name or None),
        _DRIVER_CAUSES,
    )
    yield _make_entry(driver.cuda, area, "CUDA of the driver", lambda cuda: cuda.version, _DRIVER_CAUSES)
    yield _make_entry(driver.nvml, area, "NVML", _describe_nvml, _DRIVER_CAUSES)
    yield Entry(  # only files with the driver version in their names, such as libcuda.so.535.183.01
        area,
        "driver's libraries",
        _join_names(
            sorted({posixpath.basename(path) for path in driver.driver_files if path.count(".") > 2})
        ),
        _DRIVER_CAUSES,
    )
    yield _make_entry(
        driver.nodes, area, "device nodes", lambda nodes: _join_names(sorted(nodes.names)), _DRIVER_CAUSES
    )
    yield _make_entry(
        driver.modules, area, "kernel modules", lambda names: _join_names(sorted(names)), _DRIVER_CAUSES
    )
    yield _make_entry(
        driver.smi,
        area,
        "nvidia-smi",
        lambda smi_result: f"fails: {smi_result.kind}" if isinstance(smi_result, SmiFailure) else "answers",
        _DRIVER_CAUSES | {Cause.INCONCLUSIVE},
        needs_name=True,
    )
    yield _make_entry(
        facts.kernel.packages,
        area,
        "driver packages",
        lambda packages: _join_names(sorted(f"{package.name} {package.version}" for package in packages)),
        _DRIVER_CAUSES,
        is_minor=True,
    )
    yield _make_entry(facts.kernel.runfile, area, "NVIDIA's own installer", str, _DRIVER_CAUSES)


def _strip_driver_version(path: str) -> str:
    """Return the path without a driver version at its end, such as ".535.183.01", which has an entry of its own."""
    return re.sub(r"\.\d{3}\.[\d.]+\Z", "", path)


def _describe_nvml(nvml: Any) -> str:
    if not nvml.loaded:
        return f"cannot be opened: {nvml.load_error}"
    return "answers" if nvml.init == 0 else f"fails: {nvml.init_error or nvml.init}"


def _iter_kernel_entries(facts: Facts) -> Iterator[Entry]:
    kernel, area = facts.kernel, "kernel"
    yield Entry(area, "kernel", facts.machine.kernel or None, _KERNEL_CAUSES)
    yield _make_entry(
        kernel.secure_boot, area, "Secure Boot", lambda on: "on" if on else "off", _KERNEL_CAUSES
    )
    yield _make_entry(kernel.prime, area, "PRIME", str, _KERNEL_CAUSES)
    yield Entry(area, "cards off the bus", _join_names(kernel.lost_cards), _GPU_CAUSES | _KERNEL_CAUSES)
    yield _make_entry(
        kernel.log,
        area,
        "faults in the kernel's log",
        lambda events: _join_names(
            sorted({f"Xid {event.xid}" if event.xid is not None else event.kind for event in events})
        ),
        _KERNEL_CAUSES | {Cause.INCONCLUSIVE},
        aliases=("Xid",),
    )


def _iter_gpu_entries(facts: Facts) -> Iterator[Entry]:
    """Yield the entries for the GPUs, as the PCI bus, the driver and nvidia-smi report them."""
    area, driver = "cards", facts.driver
    yield _make_entry(
        driver.cuda,
        area,
        "cards that the driver shows",
        lambda cuda_facts: str(cuda_facts.count or 0),
        _GPU_CAUSES | _DRIVER_CAUSES,
    )
    for card in value_of(driver.pci) or ():
        binding = f", bound to {card.driver}" if card.driver else ", bound to no driver"
        yield Entry(
            area, f"card at {card.address}", f"10de:{card.device_id}{binding}", _GPU_CAUSES | _KERNEL_CAUSES
        )
    cuda, smi = value_of(driver.cuda), value_of(driver.smi)
    for device in cuda.devices if cuda is not None else ():
        text = f"{device.name or 'a card'}, compute capability {device.compute_capability or 'not known'}"
        yield Entry(area, f"GPU {device.ordinal}", text, _GPU_CAUSES)
    for gpu in smi.gpus if isinstance(smi, SmiFacts) else ():
        label = f"{gpu.name or 'card'} {gpu.index if gpu.index is not None else gpu.pci_bus_id or ''}".strip()
        causes = _GPU_CAUSES | {Cause.GPU_BUSY_OTHER_PROCESS}
        if gpu.compute_mode:
            yield Entry(area, f"{label}: compute mode", gpu.compute_mode, causes, aliases=("compute mode",))
        if gpu.mig is not None:
            mig_text = f"on, {gpu.mig_instances} instances" if gpu.mig else "off"
            yield Entry(area, f"{label}: MIG", mig_text, causes, aliases=("MIG",))
        if gpu.memory_total_mib:
            yield Entry(area, f"{label}: memory", f"{round(gpu.memory_total_mib / 1024)} GiB", _GPU_CAUSES)
        health = gpu.health
        if health is None:
            continue
        states = (  # (whether it is reported, name, text)
            (health.ecc is not None, "ECC", "on" if health.ecc else "off"),
            (health.uncorrected, "uncorrected memory errors", "counted since the driver was loaded"),
            (health.link_width, "lanes of PCI Express", str(health.link_width)),
            (health.clock_most, "highest clock", f"{health.clock_most} MHz"),
            (health.power_limit, "power limit", f"{health.power_limit:g} W" if health.power_limit else ""),
            (health.recovery, "the driver asks for", health.recovery or ""),
            (health.remap_failure, "remapping of memory", "failed"),
            (
                health.retirement_pending or health.remap_pending,
                "memory to be retired",
                "at the next restart",
            ),
            (health.licence, "licence", (health.licence or "").partition(" (")[0]),
        )
        for is_reported, name, text in states:
            if is_reported:
                yield Entry(area, f"{label}: {name}", text, causes | {Cause.INCONCLUSIVE}, aliases=(name,))


def _iter_system_entries(facts: Facts) -> Iterator[Entry]:
    machine, area = facts.machine, "system"
    yield Entry(area, "distribution", machine.distribution, frozenset({Cause.GLIBC_TOO_OLD}))
    yield Entry(area, "processor", machine.machine)
    yield Entry(
        area,
        "AVX",
        _join_names(sorted(flag for flag in machine.cpu_flags if flag.startswith("avx"))),
        frozenset({Cause.ILLEGAL_INSTRUCTION_AVX}),
        is_minor=True,
    )
    container_causes = frozenset({Cause.CONTAINER_NO_GPU, Cause.NO_DRIVER})
    yield Entry(area, "container", machine.container, container_causes)
    yield Entry(area, "WSL", str(machine.wsl) if machine.wsl else None, container_causes)
    yield Entry(area, "scheduler", facts.environment.scheduler, frozenset({Cause.HIDDEN_BY_ENV}))
    if machine.root is not None:
        yield Entry(area, "user", "root" if machine.root else "not root", frozenset({Cause.NOT_PERMITTED}))


# ---------------------------------------------------------------- the Python and its TensorFlow


def _iter_tensorflow_entries(facts: Facts, normalizer: _PathNormalizer) -> Iterator[Entry]:
    area, fact = "TensorFlow", facts.tensorflow
    yield _make_entry(
        fact,
        area,
        "TensorFlow",
        lambda tensorflow: tensorflow.version or "of unknown version",
        _TENSORFLOW_CAUSES,
    )
    yield _make_entry(
        fact, area, "its package", lambda tensorflow: tensorflow.distribution, _TENSORFLOW_CAUSES
    )
    yield _make_entry(
        fact, area, "its folder", lambda tensorflow: normalizer(tensorflow.package_dir), _TENSORFLOW_CAUSES
    )
    yield _make_entry(
        fact,
        area,
        "missing files",
        lambda tensorflow: _join_names(tensorflow.missing_files),
        _TENSORFLOW_CAUSES,
    )
    yield _make_entry(
        fact,
        area,
        "hidden by",
        lambda tensorflow: tensorflow.shadowed_by and normalizer(tensorflow.shadowed_by),
        frozenset({Cause.SHADOWED_MODULE, Cause.INCONCLUSIVE}),
        needs_name=True,
        aliases=("hides TensorFlow",),
    )
    for name, key in (("built for CUDA", "CUDA"), ("built with cuDNN", "CUDNN")):
        yield _make_entry(
            fact,
            area,
            name,
            lambda tensorflow, key=key: (
                tensorflow.cuda_config.get(f"TF_{key}_VERSION")
                or tensorflow.build_info.get(f"{key.lower()}_version")
            ),
            _TENSORFLOW_CAUSES,
        )


def _iter_python_entries(facts: Facts, normalizer: _PathNormalizer) -> Iterator[Entry]:
    area, fact = "Python", facts.python
    yield _make_entry(
        fact, area, "Python", lambda python: python.version, _PYTHON_CAUSES | {Cause.PACKAGE_CONFLICT}
    )
    yield _make_entry(fact, area, "its kind", _describe_kind, _PYTHON_CAUSES, is_minor=True)
    yield _make_entry(
        fact,
        area,
        "C library",
        lambda python: python.glibc and f"glibc {python.glibc}",
        frozenset({Cause.GLIBC_TOO_OLD}),
    )
    yield _make_entry(
        fact,
        area,
        "loaded before TensorFlow",
        lambda python: _join_names(
            sorted(normalizer(path) for path in python.mapped if "/site-packages/" in path)
        ),
        _LIBRARY_CAUSES,
        is_minor=True,
    )


def _describe_kind(python: PythonFacts) -> str:
    environment = (
        "a conda environment"
        if python.conda_prefix
        else "a virtual environment"
        if python.virtual
        else "no environment"
    )
    return f"{python.implementation}, {environment}"


def _iter_engine_entries(facts: Facts) -> Iterator[Entry]:
    """Yield an entry for each known value of the container engines."""
    containers = value_of(facts.containers)
    for name, value in _flatten(containers, "") if containers is not None else ():
        yield Entry("container engine", name, value, _ENGINE_CAUSES, is_minor=True)


def _flatten(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for each non-empty value in a nested structure. `name` is a prefix of the names."""
    if isinstance(value, (Known, Absent, Unknown)):
        child = value_of(value)
        if child is not None:
            yield from _flatten(child, name)
    elif is_dataclass(value):
        for item in fields(value):
            yield from _flatten(getattr(value, item.name), f"{name} {item.name.replace('_', ' ')}".strip())
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _flatten(child, f"{name} {key}")
    elif isinstance(value, (tuple, list, frozenset)) and any(is_dataclass(child) for child in value):
        for index, child in enumerate(value):
            label = getattr(child, "name", None) or getattr(child, "path", None) or index + 1
            yield from _flatten(child, f"{name} {label}")
    elif isinstance(value, (tuple, list, frozenset)):
        text = _join_names(sorted(map(str, value)))
        if text:
            yield name, text
    elif value not in (None, "", False):
        yield name, "yes" if value is True else str(value)


def _iter_library_entries(facts: Facts, normalizer: _PathNormalizer) -> Iterator[Entry]:
    """Yield an entry for each library that TensorFlow opens, and one for a failed import."""
    loader = value_of(facts.loader)
    for resolution in _list_resolutions(loader):
        yield Entry(
            "CUDA libraries",
            resolution.soname,
            _describe_resolution(facts, resolution, normalizer),
            _LIBRARY_CAUSES,
        )
    for failed_import in loader.import_needs if loader is not None else ():
        yield Entry(
            "CUDA libraries",
            "import tensorflow",
            f"fails: {normalizer(failed_import.error)}",
            _TENSORFLOW_CAUSES,
        )


def _list_resolutions(loader: LoaderFacts | None) -> tuple[Resolution, ...]:
    return loader.resolutions if loader is not None else ()


def _describe_resolution(facts: Facts, resolution: Resolution, normalizer: _PathNormalizer) -> str:
    if not resolution.ok or resolution.path is None:
        return f"cannot be opened: {normalizer(resolution.error)}"
    if resolution.soname.startswith(("libcuda.", "libnvidia-ml.")):  # its version is that of the driver
        return posixpath.dirname(normalizer(resolution.path))
    version_info = find_library_version(facts, resolution)
    folder = posixpath.dirname(normalizer(resolution.path))
    return f"{version_info.version} in {folder}" if version_info is not None else folder


def _iter_package_entries(facts: Facts) -> Iterator[Entry]:
    """Yield the entries for installed and missing packages, files with several owners, and damaged files."""
    python = value_of(facts.python)
    if python is None:
        return
    area = "packages"
    versions_by_name: dict[str, list[str]] = {}
    for distribution in python.distributions:
        versions_by_name.setdefault(distribution.name, []).append(distribution.version)
    for name, versions in versions_by_name.items():
        is_minor = _MINOR_PACKAGES.match(name) is not None
        yield Entry(area, name, ", ".join(dict.fromkeys(versions)), _PACKAGE_CAUSES, is_minor=is_minor)
    for package in python.conda_packages:
        yield Entry(
            area,
            f"{package.name} (conda)",
            f"{package.version} {package.build}",
            _LIBRARY_CAUSES,
            aliases=(package.name,),
        )
    for name in python.absent:
        yield Entry(area, f"{name} (required)", "is not installed", _TENSORFLOW_CAUSES, aliases=(name,))
    for shared_file in python.shared:
        owners = ", ".join(name for name, _ in shared_file.owners)
        name = f"{posixpath.basename(shared_file.path)}: owners"
        yield Entry(
            area,
            name,
            owners,
            _LIBRARY_CAUSES,
            aliases=(posixpath.basename(shared_file.path),),
            missing_value="one package",
        )
    for distribution in python.distributions:
        damaged_files = [(path, "is gone") for path in distribution.lost]
        damaged_files += [
            (change.path, "is truncated" if change.cut else "is another file")
            for change in distribution.changed
        ]
        for path, state in damaged_files:
            file_name = posixpath.basename(path)
            yield Entry(
                area,
                f"{distribution.name}: {file_name}",
                state,
                _LIBRARY_CAUSES,
                aliases=(file_name,),
                missing_value="as the wheel brought it",
            )


def _iter_variable_entries(facts: Facts, normalizer: _PathNormalizer) -> Iterator[Entry]:
    for name, value in sorted(facts.environment.variables.items()):
        if name in _IGNORED_VARIABLES:
            continue
        is_minor = name.startswith(("TF_CPP_", "CONDA_", "VIRTUAL_ENV")) or name in (
            "LOADEDMODULES",
            "NVIDIA_DISABLE_REQUIRE",
        )
        causes = _CAUSES_BY_VARIABLE.get(name, frozenset())
        normalized = normalizer.normalize_each(value)
        parts = tuple(filter(None, normalized.split(":"))) if name.endswith("PATH") else ()
        yield Entry("variables", name, normalized or "(empty)", causes, is_minor=is_minor, list_items=parts)
    for misspelt_name, correct_name in facts.environment.misspelt:
        yield Entry(
            "variables",
            misspelt_name,
            f"set, and {correct_name} is meant",
            frozenset(),
            aliases=(correct_name,),
        )


def _iter_folder_entries(facts: Facts, normalizer: _PathNormalizer) -> Iterator[Entry]:
    area, loader, python = "paths", value_of(facts.loader), value_of(facts.python)
    if loader is not None:
        folders = [normalizer(folder) for folder in loader.runpath_folders]
        yield Entry(
            area,
            "where TensorFlow looks for CUDA",
            _join_names(sorted(folders)),
            _LIBRARY_CAUSES,
            aliases=("RUNPATH",),
            list_items=tuple(sorted(folders)),
        )
        yield Entry(
            area,
            "preloaded",
            _join_names(map(normalizer, loader.preload)),
            _LIBRARY_CAUSES,
            aliases=("LD_PRELOAD",),
        )
    if python is not None:
        folders_on_path = [normalizer(folder) for folder in python.sys_path if folder]
        causes = _PYTHON_CAUSES | {Cause.CPU_ONLY_BUILD}
        yield Entry(
            area,
            "sys.path",
            _join_names(folders_on_path),
            causes,
            is_minor=True,
            list_items=tuple(folders_on_path),
        )
    for toolkit in facts.toolkits:
        yield Entry(
            area,
            f"CUDA toolkit {normalizer(toolkit.path)}",
            toolkit.version or "of unknown version",
            is_minor=True,
        )
    if not isinstance(facts.nvcc, Absent):
        yield _make_entry(facts.nvcc, area, "nvcc", str, frozenset(), is_minor=True)
