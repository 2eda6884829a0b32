"""Dataclasses for the facts about a machine. They name their sources and draw no conclusions.

A fact is `Known` (searched and found), `Absent` (searched and not found) or `Unknown` (could not be examined). A rule
must distinguish all three: for an `Unknown` it reports that the check could not run.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Generic, TypeVar, Union

from tfdoctor.core.facts import loading as _loading
from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.core.facts.containers import ContainerFacts
    from tfdoctor.core.facts.files import ChangedFile, SharedFile
    from tfdoctor.core.facts.imports import FileDifference, RehearsalFacts, Shadow
    from tfdoctor.core.facts.python import DeniedPath, PythonChoice

T = TypeVar("T")
PERMISSION_DENIED = "Permission denied"
"""`LoadAttempt.problem` of a file that this user may not read: the loader continues as if it did not exist."""
FOLDER_DENIED = "Permission denied: this user may not look into the folder"
"""`LoadAttempt.problem` of a file in a folder that this user may not search; the file may or may not exist."""
NOEXEC_ERROR = "failed to map segment from shared object"
"""The loader's message for a library on a file system that is mounted noexec."""
NOTEBOOK_COMMAND = "a notebook's kernel"
"""The `command` of a process that is a Jupyter notebook's kernel."""
TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-gpu",
    "tensorflow-cpu",
    "tf-nightly",
    "tf-nightly-gpu",
    "tf-nightly-cpu",
    "intel-tensorflow",
    "tensorflow-intel",
    "tensorflow-rocm",
    "tensorflow-macos",
    "tensorflow-aarch64",
    "tensorflow-directml",
    "nvidia-tensorflow",
)
"""Distributions that install a `tensorflow` package."""
MODULE_DISTRIBUTIONS = {
    "google.protobuf": "protobuf",
    "absl": "absl-py",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "IPython": "ipython",
    "googleapiclient": "google-api-python-client",
    "pasta": "google-pasta",
    "yaml": "pyyaml",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
}
"""The distributions whose names differ from those of their modules, by module."""
NO_REHEARSAL_REASON = "files and requirements give no reason to try the import"
"""The usual reason why the import is not rehearsed."""

# These names are defined in `loading`, and other modules import them from here.
LIST_VARIABLES = _loading.LIST_VARIABLES
MODULE_PATH = _loading.MODULE_PATH
EnvironmentFacts = _loading.EnvironmentFacts
FoundElsewhere = _loading.FoundElsewhere
ReplacedLibrary = _loading.ReplacedLibrary
LoaderFacts = _loading.LoaderFacts
Origin = _loading.Origin
Resolution = _loading.Resolution
LoadAttempt = _loading.LoadAttempt
RemovedEntriesResult = _loading.RemovedEntriesResult


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A fact that was observed, with its value."""

    value: T
    source: str
    """The command line or path with which the user can repeat the observation."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A fact that was searched for in `source` and does not exist."""

    source: str
    why: str = ""
    """An explanation for the user; empty if none is needed."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be determined."""

    why: str
    """The reason, as text for the user."""
    source: str = ""


Fact = Union[Known[T], Absent, Unknown]  # noqa: UP007 - a generic alias needs Union on Python 3.10


def value_of(fact: Fact[T]) -> T | None:
    """Return the value of a known fact; None if it is `Absent` or `Unknown`."""
    return fact.value if isinstance(fact, Known) else None


# ---------------------------------------------------------------- machine


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The operating system and the processor, as probes/machine.py finds them."""

    system: str
    """The operating system: "Linux", "Windows" or "Darwin"."""
    machine: str
    """The processor architecture, such as "x86_64" or "aarch64"."""
    kernel: str
    """The release of the running kernel, as `uname -r` prints it."""
    distribution: str | None
    """PRETTY_NAME in os-release; None if there is none. The next three are from the same file."""
    distribution_id: str | None
    """ID: "debian", "ubuntu", "fedora"."""
    distribution_like: tuple[str, ...]
    """ID_LIKE, the IDs of related distributions."""
    distribution_version: str | None
    """VERSION_ID."""
    cpu_flags: frozenset[str]
    """The flags and the vendor_id in /proc/cpuinfo; empty if it could not be read."""
    container: str | None
    """The kind of container: "docker", "podman", "kubernetes", "lxc", "container"; None on a host."""
    wsl: int | None
    """The version of the Windows Subsystem for Linux, 1 or 2; None outside of it."""
    root: bool | None
    """Whether this process runs as root; None if that is not known."""
    address_limit: int | None = None
    """The limit of a process's address space in bytes (`ulimit -v`); None if there is none or it is not known."""
    can_raise_limit: bool = True
    """Whether this user may raise that limit: the hard limit is higher, or the user is root."""
    memory_limit: int | None = None
    """The limit of the memory of this process's cgroups in bytes; None if there is none or it is not known."""
    jetson: bool = False
    """Whether the machine is an NVIDIA Jetson, whose GPU is not on the PCI bus."""


@dataclass(frozen=True, slots=True)
class PciGpu:
    """An NVIDIA display or 3D controller on the PCI bus."""

    address: str
    """The PCI bus ID, such as "0000:01:00.0"."""
    device_id: str
    """The PCI device ID: four hexadecimal digits."""
    driver: str | None
    """The kernel driver that is bound to the GPU: "nvidia", "nouveau", "vfio-pci"; None if there is none."""
    subsystem: str | None = None


@dataclass(frozen=True, slots=True)
class KernelModule:
    """The loaded NVIDIA kernel module, as /proc/driver/nvidia/version describes it."""

    version: str
    open_kernel: bool
    """Whether it is NVIDIA's open kernel module."""


@dataclass(frozen=True, slots=True)
class DeviceNodes:
    """NVIDIA's device nodes in /dev."""

    names: tuple[str, ...]
    """The paths, such as "/dev/nvidia0"."""


@dataclass(frozen=True, slots=True)
class SmiProcess:
    """A process on a GPU, from nvidia-smi and /proc."""

    pid: int | None
    name: str | None
    used_mib: int | None
    """The GPU memory that it uses, in MiB."""
    kind: str | None = None
    """What it does on the GPU: "C" (computes), "G" (draws) or "C+G"."""
    user: str | None = None
    """The name of its user; the user ID if the ID has no name on this machine."""
    own: bool | None = None
    """Whether it belongs to the user who runs tfdoctor; None if that is not known."""
    state: str | None = None
    """"zombie", or "gone" if this machine has no such process, because it has just ended or is in another container."""
    command: str = ""
    """Its command line; empty if this user may not read it."""
    container: str = ""
    """The container that it runs in, as its cgroup names it on the host: "docker 0123456789ab"."""


@dataclass(frozen=True, slots=True)
class GpuCondition:
    """The condition of a GPU according to nvidia-smi. Values that it does not show are None or empty."""

    persistence: bool | None = None
    """Whether persistence mode is on."""
    ecc: bool | None = None
    """Whether error correction (ECC) is on."""
    uncorrected: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    uncorrected_ever: int | None = None
    """Uncorrectable memory errors in the GPU's lifetime."""
    retirement_pending: bool | None = None
    """Whether a reset or restart is needed to retire memory pages."""
    remap_pending: bool | None = None
    """Whether a reset or restart is needed to remap memory rows."""
    remap_failure: bool | None = None
    """Whether memory rows could not be remapped."""
    recovery: str | None = None
    """The recovery action that the driver requires: "Reset", "Reboot", "Drain and Reset"; None if none is required."""
    slowdowns: tuple[str, ...] = ()
    """Active reasons for low clocks: "hw_thermal_slowdown", "sw_power_cap", …"""
    temperature: int | None = None
    """The temperature, in degrees Celsius."""
    power_limit: float | None = None
    """The power limit that is set, in watts."""
    power_default: float | None = None
    """The default power limit, in watts."""
    virtualization: str | None = None
    """The virtualization mode of a virtual machine's GPU: "VGPU" or "Pass-Through"."""
    licence: str | None = None
    """The licence status of a virtual GPU: "Licensed (Expiry: …)", "Unlicensed"."""
    display: bool | None = None
    """Whether a screen is attached to it or a desktop uses it."""
    link_width: int | None = None
    """The number of PCI Express lanes in use."""
    link_width_most: int | None = None
    """The number of lanes that both the GPU and the slot support."""
    link_generation: int | None = None
    """The PCI Express generation in use; an idle GPU may fall back to 1."""
    link_generation_most: int | None = None
    """The PCI Express generation that both the GPU and the slot support."""
    clock_most: int | None = None
    """The highest clock of its multiprocessors, in MHz."""


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """A GPU as nvidia-smi shows it. A value that nvidia-smi does not show is None."""

    index: int | None
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    compute_mode: str | None
    mig: bool | None
    """Whether MIG mode is on."""
    mig_instances: int = 0
    """The number of MIG instances."""
    processes: tuple[SmiProcess, ...] = ()
    lists_processes: bool = False
    """Whether nvidia-smi can list its processes, even if it has none."""
    health: GpuCondition | None = None
    """Its condition; None if nvidia-smi does not show it."""


@dataclass(frozen=True, slots=True)
class SmiFacts:
    """The output of nvidia-smi."""

    driver_version: str | None
    cuda_version: str | None
    """The newest CUDA version that this driver supports. It need not be installed."""
    gpus: tuple[SmiGpu, ...]


@dataclass(frozen=True, slots=True)
class SmiFailure:
    """A call of nvidia-smi that failed or printed something unexpected."""

    kind: str
    """A kind defined in parse/smi_failure.py, or "timeout", "garbage", "other"."""
    text: str
    returncode: int | None


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A GPU as the driver's API shows it."""

    ordinal: int
    """The index, which is also TensorFlow's index for it."""
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    compute_capability: str | None
    memory_mib: int | None
    multiprocessors: int | None
    attribute_error: int | None = None
    """The result of cuDeviceGetAttribute if it failed after cuInit succeeded."""
    clock_mhz: int | None = None
    """The highest clock of its multiprocessors, in MHz."""


@dataclass(frozen=True, slots=True)
class CudaDriver:
    """The results of calling libcuda.so.1 in a child process."""

    loaded: bool
    load_error: str
    """The loader's message if the library could not be loaded, else empty."""
    path: str | None
    """The file that the loader mapped."""
    init: int | None
    """The result of cuInit; None if it was not called."""
    init_name: str
    """The name of that result, such as "CUDA_ERROR_NO_DEVICE"."""
    version: str | None
    """The CUDA version of the driver: "12.8"."""
    count: int | None
    """The number of devices; None if it is not known."""
    devices: tuple[CudaDevice, ...]
    crashed: str = ""
    """How the child process ended if it returned no results, such as "signal 11"; else empty."""
    closed_nodes: tuple[str, ...] = ()
    """Device nodes /dev/nvidia… that this user may not open for reading and writing."""
    refused_nodes: tuple[str, ...] = ()
    """Device nodes that a cgroup rule forbids to open (EPERM), although their mode allows it."""
    stand_in: bool = False
    """Whether the library identifies itself as tfdoctor's stand-in driver (`--simulate`)."""
    software: bool = False
    """Whether the library identifies itself as tfdoctor's software GPU, which computes on the processor."""


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    """A GPU as NVML shows it."""

    index: int
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None


@dataclass(frozen=True, slots=True)
class Nvml:
    """The results of calling libnvidia-ml.so.1 in a child process."""

    loaded: bool
    load_error: str
    """The loader's message if the library could not be loaded, else empty."""
    path: str | None
    """The file that the loader mapped."""
    init: int | None
    """The result of nvmlInit; None if it was not called."""
    init_error: str
    """NVML's text for that result."""
    driver_version: str | None
    count: int | None
    """The number of GPUs; None if it is not known."""
    devices: tuple[NvmlDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The GPUs and their driver."""

    pci: Fact[tuple[PciGpu, ...]]
    """NVIDIA's GPUs on the PCI bus."""
    kernel_module: Fact[KernelModule]
    modules: Fact[tuple[str, ...]]
    """The relevant names in /proc/modules: nvidia, nvidia_uvm, nouveau, …"""
    nodes: Fact[DeviceNodes]
    smi: Fact[SmiFacts | SmiFailure]
    cuda: Fact[CudaDriver]
    """The driver's results with the environment unchanged."""
    cuda_unhidden: Fact[CudaDriver] | None
    """The driver's results without CUDA_VISIBLE_DEVICES; None if that variable is not set."""
    nvml: Fact[Nvml]
    dxcore: bool = False
    """Whether WSL's /dev/dxg exists."""
    driver_files: tuple[str, ...] = ()
    """All libcuda.so* files in the usual folders, whether or not the loader searches them."""


# ---------------------------------------------------------------- kernel


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """An event about a GPU or its driver in the kernel log since the last boot."""

    kind: str
    """A kind defined in parse/kernel_log.py: "xid", "api-mismatch", "init-failed", "unsigned", …"""
    text: str
    """One line of the event: the last line of an Xid, else the first line."""
    xid: int | None = None
    pci_bus_id: str | None = None
    process: str = ""
    """The process, such as "python3 (1234)"; empty if the line names none."""
    count: int = 1
    """How often the event occurred."""


@dataclass(frozen=True, slots=True)
class DkmsModule:
    """Driver sources that DKMS manages, and the kernels for which it has built modules."""

    name: str
    version: str
    kernels: tuple[str, ...]
    failed: str = ""
    """The path of the log of a failed build; empty if there is none."""


@dataclass(frozen=True, slots=True)
class ModuleFiles:
    """The files of NVIDIA's kernel module on the disk. They are searched only if the module is not loaded."""

    running: tuple[str, ...]
    """The files for the running kernel."""
    other_kernels: tuple[str, ...]
    """The other installed kernels that have the module."""
    headers: bool
    """Whether the headers of the running kernel are installed, which are needed to build the module."""
    dkms: tuple[DkmsModule, ...] = ()
    signed: bool | None = None
    """Whether the file for the running kernel is signed; None if that was not examined."""
    blocked: tuple[tuple[str, str], ...] = ()
    """The modprobe settings that keep the module from being loaded, as (file, line)."""


@dataclass(frozen=True, slots=True)
class DriverPackage:
    """An installed package that contains libcuda or NVIDIA's kernel module."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The parts of the operating system that the driver depends on, as probes/kernel.py finds them."""

    log: Fact[tuple[KernelEvent, ...]] = Unknown("not looked at")
    modules: Fact[ModuleFiles] = Unknown("not looked at")
    secure_boot: Fact[bool] = Unknown("not looked at")
    packages: Fact[tuple[DriverPackage, ...]] = Unknown("not looked at")
    runfile: Fact[str] = Unknown("not looked at")
    """The driver version that NVIDIA's own installer (the .run file) installed."""
    prime: Fact[str] = Unknown("not looked at")
    """The GPU mode of a laptop, set with Ubuntu's prime-select: "on", "on-demand", "off"."""
    lost_cards: tuple[str, ...] = ()
    """PCI addresses of GPUs whose registers read as all ones: they are switched off, or have fallen off the bus."""
    links: Fact[dict[str, str]] = Unknown("not looked at")
    """The connection of each pair of GPUs, such as {"GPU0-GPU1": "NV12"}; other values are "PHB" and "SYS"."""


# ---------------------------------------------------------------- examined Python


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed Python distribution, from its dist-info or egg-info folder."""

    name: str
    """The normalised name, in lower case and with hyphens."""
    version: str
    location: str
    """The folder that contains its packages."""
    installer: str | None = None
    """The program that installed it, as its INSTALLER file says: "pip", "uv", "conda"."""
    requires: tuple[str, ...] = ()
    """Its Requires-Dist lines, only for TensorFlow and its direct and indirect requirements."""
    lost: tuple[str, ...] = ()
    """Shared objects in its RECORD that are missing, relative to `location`. Only for NVIDIA's and TensorFlow's wheels."""
    changed: tuple[ChangedFile, ...] = ()
    """Files whose size differs from that in its RECORD."""
    files: tuple[str, ...] = ()
    """The shared objects in its RECORD, relative to `location`. Only for NVIDIA's wheels."""
    pins: tuple[str, ...] = ()
    """The Requires-Dist lines for NVIDIA's wheels, in distributions other than TensorFlow: torch, jax, …"""
    real_location: str = ""
    """`location` with symbolic links resolved."""
    differs: tuple[FileDifference, ...] = ()
    """Modules that differ from its RECORD, only for TensorFlow and its direct and indirect requirements."""


@dataclass(frozen=True, slots=True)
class CondaPackage:
    """A package that conda installed."""

    name: str
    version: str
    build: str


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """The examined interpreter and its packages."""

    requested: str
    """How it was requested or found: a path, or "python3 on PATH"."""
    executable: str
    real_executable: str
    version: str
    implementation: str
    bits: int
    """The word size, 32 or 64."""
    machine: str
    glibc: str | None
    """The glibc version; None if the Python uses another C library."""
    prefix: str
    base_prefix: str
    abi_flags: str
    platform: str
    """sysconfig's platform: "linux-x86_64", "win-amd64"."""
    virtual: bool
    """Whether the interpreter is in a virtual environment."""
    conda_prefix: str | None
    """The folder of its conda environment; None if it is not in one."""
    externally_managed: bool
    """Whether the system does not allow pip to change it (PEP 668)."""
    sys_path: tuple[str, ...]
    site_packages: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    conda_packages: tuple[CondaPackage, ...]
    tag: str = ""
    """The CPython part of its wheel tag: "cp311"."""
    mapped: tuple[str, ...] = ()
    """Shared objects in the process before anything is imported, including preloaded objects."""
    modules: tuple[str, ...] = ()
    """Requirements of TensorFlow that can be imported: "six", "google.protobuf"."""
    pip: bool | None = None
    """Whether pip is installed in it; None if that was not examined."""
    ensurepip: bool | None = None
    """Whether its standard library can install pip (on Debian only with python3-venv)."""
    user_site: str | None = None
    """The folder that `pip install --user` uses, existing or not; None if Python ignores it."""
    unwritable: tuple[tuple[str, str], ...] = ()
    """The package folders that this user may not write to, as (folder, name of the owner)."""
    absent: tuple[str, ...] = ()
    """Distributions that TensorFlow's metadata requires (also for an extra) and that are not installed."""
    shadows: tuple[Shadow, ...] = ()
    """Modules that exist twice on sys.path. The working folder counts as its first entry."""
    carried: tuple[str, ...] = ()
    """System libraries (libz, libstdc++, …) for which LD_LIBRARY_PATH or LD_PRELOAD provides other files."""
    lacks: tuple[str, ...] = ()
    """Modules of the standard library without their compiled part: "ctypes", "lzma"."""
    shared: tuple[SharedFile, ...] = ()
    """Libraries and tools that belong to two or more of the distributions."""
    closed: tuple[DeniedPath, ...] = ()
    """Files and folders of its packages that this user may not read or list."""
    noexec: tuple[tuple[str, str], ...] = ()
    """The folders on a noexec mount, from which no library can be loaded, as (folder, mount point)."""

    def list_installed_versions(self) -> dict[str, str]:
        """Return the versions of the distributions by name; "" for a module without a distribution.

        If a distribution is installed twice, the first on the path counts.
        """
        version_by_name = {
            MODULE_DISTRIBUTIONS.get(name, name.replace("_", "-")): "" for name in self.modules
        }
        return version_by_name | {
            distribution.name: distribution.version for distribution in reversed(self.distributions)
        }

    def find_distribution(self, name: str) -> Distribution | None:
        """Return the first distribution with this name; None if there is none."""
        return next((d for d in self.distributions if d.name == name), None)


@dataclass(frozen=True, slots=True)
class TensorFlowFacts:
    """The TensorFlow in the examined Python, as its files describe it, without importing it."""

    package_dir: str
    """The folder of the `tensorflow` package."""
    core_dir: str
    """The folder of its code: `tensorflow_core` in 1.15 and 2.0, else the package itself."""
    version: str | None
    distribution: str | None
    """The name of the distribution: "tensorflow", "tensorflow-gpu", "tf-nightly", "tensorflow-cpu", …"""
    framework: str | None
    """The path of libtensorflow_framework.so.N; None if it does not exist."""
    pywrap: str | None
    """The path of _pywrap_tensorflow_internal.so; None if it does not exist."""
    missing_files: tuple[str, ...]
    """Files that are missing, although every TensorFlow has them."""
    build_info: dict[str, str]
    """Values of build_info.py as text: "cuda_version", "cudnn_version", "is_cuda_build", "is_rocm_build"."""
    cuda_config: dict[str, str]
    """TF_* values of cuda_config.h: {"TF_CUDA_VERSION": "12.5.1"}."""
    shadowed_by: str | None = None
    """A tensorflow.py or tensorflow/ in the working directory, or in an archive that comes first on Python's path."""
    archive: str | None = None
    """The archive (ZIP, wheel) that contains the package; None if it is in a folder."""
    plugins: tuple[str, ...] = ()
    """Shared objects in tensorflow-plugins/, which every import of TensorFlow loads."""
    conda_build: str | None = None
    """The build string of the conda package: "mkl_py310h…", "cuda112py39h…"."""
    behind: TensorFlowFacts | None = None
    """The TensorFlow that Python would import if the sys.path entry with this one were removed."""


# ---------------------------------------------------------------- all facts


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """A CUDA toolkit folder such as /usr/local/cuda-12.4."""

    path: str
    version: str | None
    libdevice: bool
    """Whether it contains the file libdevice.10.bc."""
    ptxas: bool
    """Whether it contains the program ptxas."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about a machine and a Python."""

    machine: MachineFacts
    environment: EnvironmentFacts
    driver: DriverFacts
    python: Fact[PythonFacts]
    tensorflow: Fact[TensorFlowFacts]
    loader: Fact[LoaderFacts]
    toolkits: tuple[CudaToolkit, ...]
    nvcc: Fact[str]
    """The release that `nvcc --version` prints."""
    containers: Fact[ContainerFacts] = Absent("container engines", "nobody looked for them")
    seconds: dict[str, float] = field(default_factory=dict)
    """The run time of each probe, in seconds."""
    kernel: KernelFacts = field(default_factory=KernelFacts)
    rehearsal: Fact[RehearsalFacts] = Absent("the packages that TensorFlow imports", NO_REHEARSAL_REASON)
    loader_behind: Fact[LoaderFacts] = Absent("the loader", "there is no other TensorFlow behind this one")
    """The loader's results for `TensorFlowFacts.behind`."""
    choice: PythonChoice | None = None
    """The Python that is examined, and the reason for the choice."""
