"""What was seen of a machine: frozen, without judgement, each part with the source it came from.

`Known` was looked at and is there; `Absent` was looked at and is not there; `Unknown` could not be looked at.
The three are never confused: a rule that meets an `Unknown` ends in "could not check".
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Generic, TypeVar, Union

from tfdoctor.facts import loading as _loading
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.facts.containers import ContainerFacts
    from tfdoctor.facts.files import ChangedFile, SharedFile
    from tfdoctor.facts.imports import FileDifference, RehearsalFacts, Shadow
    from tfdoctor.facts.python import Choice, Denied

T = TypeVar("T")
DENIED = "Permission denied"
"""`Tried.problem` of a file that is there and may not be read: the loader goes on as if it were not."""
CLOSED = "Permission denied: this user may not look into the folder"
"""The same of a file that may be there: its folder is closed to this user."""
NOEXEC = "failed to map segment from shared object"
"""The loader's words for a library on a file system that is mounted noexec."""

# In a module of their own, with this one as the door to them.
PATHS = _loading.PATHS
MODULE_PATH = _loading.MODULE_PATH
EnvironmentFacts = _loading.EnvironmentFacts
FoundElsewhere = _loading.FoundElsewhere
Instead = _loading.Instead
LoaderFacts = _loading.LoaderFacts
Origin = _loading.Origin
Resolution = _loading.Resolution
Tried = _loading.Tried
Without = _loading.Without


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """It is there, and this is it."""

    value: T
    source: str
    """What the reader can repeat: a command line or a path."""


@dataclass(frozen=True, slots=True)
class Absent:
    """It was looked for, here, and is not there."""

    source: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It could not be looked at, for this reason."""

    why: str
    source: str = ""


Fact = Union[Known[T], Absent, Unknown]  # noqa: UP007 - a generic alias needs Union on Python 3.10


def value_of(fact: Fact[T]) -> T | None:
    """Return the value if it is known; None for both other cases, which the caller must not confuse."""
    return fact.value if isinstance(fact, Known) else None


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The operating system, as probes/machine.py saw it."""

    system: str
    """"Linux", "Windows", "Darwin"."""
    machine: str
    """"x86_64", "aarch64"."""
    kernel: str
    distribution: str | None
    """PRETTY_NAME of os-release."""
    distribution_id: str | None
    """ID of os-release: "debian", "ubuntu", "fedora"."""
    distribution_like: tuple[str, ...]
    distribution_version: str | None
    cpu_flags: frozenset[str]
    """/proc/cpuinfo's flags and vendor_id; empty where it could not be read."""
    container: str | None
    """"docker", "podman", "kubernetes", "lxc", "container"; None on a host."""
    wsl: int | None
    """1 or 2 under the Windows Subsystem for Linux."""
    root: bool | None
    jetson: bool = False


@dataclass(frozen=True, slots=True)
class PciGpu:
    """An NVIDIA display or 3D controller on the PCI bus."""

    address: str
    """"0000:01:00.0"."""
    device_id: str
    """Four hexadecimal digits."""
    driver: str | None
    """The kernel driver bound to it: "nvidia", "nouveau", "vfio-pci"."""
    subsystem: str | None = None


@dataclass(frozen=True, slots=True)
class KernelModule:
    """/proc/driver/nvidia/version."""

    version: str
    open_kernel: bool


@dataclass(frozen=True, slots=True)
class DeviceNodes:
    """What of /dev is NVIDIA's."""

    names: tuple[str, ...]


NOTEBOOK = "a notebook's kernel"
"""The `command` of a Jupyter notebook's kernel."""


@dataclass(frozen=True, slots=True)
class SmiProcess:
    """A process on a card, as nvidia-smi lists it; who it is, as /proc says."""

    pid: int | None
    name: str | None
    used_mib: int | None
    kind: str | None = None
    """"C" (computes), "G" (draws), "C+G"."""
    user: str | None = None
    """Whose it is; the number where it has no name here."""
    own: bool | None = None
    """Whether it is this user's."""
    state: str | None = None
    """"gone": no such process here (another container's, or the driver has not noticed yet); "zombie"."""
    command: str = ""
    """Its command line, where this user may read it."""
    container: str = ""
    """The container that it runs in, seen from the host: "docker 0123456789ab", as its cgroup names it."""


@dataclass(frozen=True, slots=True)
class CardHealth:
    """What nvidia-smi says of a card's condition. None and empty: not shown, or not supported by it."""

    persistence: bool | None = None
    ecc: bool | None = None
    uncorrected: int | None = None
    """Memory errors that could not be corrected, since the driver was loaded."""
    uncorrected_ever: int | None = None
    retirement_pending: bool | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    recovery: str | None = None
    """What the driver asks for: "Reset", "Reboot", "Drain and Reset"; None where nothing."""
    slowdowns: tuple[str, ...] = ()
    """Active reasons for low clocks: "hw_thermal_slowdown", "sw_power_cap", …"""
    temperature: int | None = None
    """In degrees Celsius."""
    power_limit: float | None = None
    """The limit that is set, in watts."""
    power_default: float | None = None
    virtualization: str | None = None
    """"VGPU", "Pass-Through"."""
    licence: str | None = None
    """A virtual GPU's: "Licensed (Expiry: …)", "Unlicensed"."""
    display: bool | None = None
    """Whether a screen hangs on it or a desktop uses it."""
    link_width: int | None = None
    """Lanes of PCI Express in use."""
    link_width_most: int | None = None
    """Lanes that card and slot could have."""
    link_generation: int | None = None
    """Of PCI Express, in use: an idle card may fall back to 1."""
    link_generation_most: int | None = None
    """That card and slot could have."""
    clock_most: int | None = None
    """The multiprocessors' highest clock, in MHz."""


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """A card as nvidia-smi shows it. None: not shown."""

    index: int | None
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    compute_mode: str | None
    mig: bool | None
    mig_instances: int = 0
    processes: tuple[SmiProcess, ...] = ()
    lists_processes: bool = False
    """Whether nvidia-smi lists the processes on it, even if there are none."""
    health: CardHealth | None = None


@dataclass(frozen=True, slots=True)
class SmiFacts:
    """What nvidia-smi printed."""

    driver_version: str | None
    cuda_version: str | None
    """The newest CUDA that this driver speaks, not what is installed."""
    gpus: tuple[SmiGpu, ...]


@dataclass(frozen=True, slots=True)
class SmiFailure:
    """nvidia-smi is there and did not answer as it should."""

    kind: str
    """A kind of parse/smi_failure.py, or "timeout", "garbage", "other"."""
    text: str
    returncode: int | None


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A device as the driver's API shows it. `ordinal` is TensorFlow's index."""

    ordinal: int
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    compute_capability: str | None
    memory_mib: int | None
    multiprocessors: int | None
    attribute_error: int | None = None
    """The result of cuDeviceGetAttribute where it fails although cuInit did not."""
    clock_mhz: int | None = None
    """The highest clock of its multiprocessors."""


@dataclass(frozen=True, slots=True)
class CudaDriver:
    """What libcuda.so.1 answered in a child process."""

    loaded: bool
    load_error: str
    path: str | None
    """The file that the loader mapped."""
    init: int | None
    """cuInit's result; None where it was not reached."""
    init_name: str
    version: str | None
    """The CUDA version of the driver: "12.8"."""
    count: int | None
    devices: tuple[CudaDevice, ...]
    crashed: str = ""
    """How the child ended where it did not answer: "signal 11"."""
    closed_nodes: tuple[str, ...] = ()
    """Device nodes /dev/nvidia… that this user may not open for reading and writing."""
    refused_nodes: tuple[str, ...] = ()
    """Nodes whose mode lets this user in, and which the kernel refuses all the same (EPERM): a cgroup's rule."""
    stand_in: bool = False
    """It says of itself that it is tfdoctor's stand-in (`--simulate`)."""
    software: bool = False
    """It says of itself that it is tfdoctor's software GPU: what it computes, it computes on the processor."""


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    index: int
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None


@dataclass(frozen=True, slots=True)
class Nvml:
    """What libnvidia-ml.so.1 answered in a child process."""

    loaded: bool
    load_error: str
    path: str | None
    init: int | None
    init_error: str
    driver_version: str | None
    count: int | None
    devices: tuple[NvmlDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Everything about cards and their driver."""

    pci: Fact[tuple[PciGpu, ...]]
    kernel_module: Fact[KernelModule]
    modules: Fact[tuple[str, ...]]
    """Names in /proc/modules that matter: nvidia, nvidia_uvm, nouveau, …"""
    nodes: Fact[DeviceNodes]
    smi: Fact[SmiFacts | SmiFailure]
    cuda: Fact[CudaDriver]
    """In the environment as it is."""
    cuda_unhidden: Fact[CudaDriver] | None
    """Without CUDA_VISIBLE_DEVICES; None where that is not set."""
    nvml: Fact[Nvml]
    dxcore: bool = False
    """WSL's /dev/dxg is there."""
    driver_files: tuple[str, ...] = ()
    """Every libcuda.so* found in the usual folders, wherever the loader looks."""


# ---------------------------------------------------------------- the kernel around the driver


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """Something that the kernel's log says, since the last start, of a card or its driver."""

    kind: str
    """A kind of parse/kernel_log.py: "xid", "api-mismatch", "init-failed", "unsigned", …"""
    text: str
    """A line of it: an Xid's last one, else the first."""
    xid: int | None = None
    pci_bus_id: str | None = None
    process: str = ""
    """"python3 (1234)", where the line names it."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class DkmsModule:
    """A driver's sources that DKMS has, and the kernels that it has built them for."""

    name: str
    version: str
    kernels: tuple[str, ...]
    failed: str = ""
    """The log of a build that did not end."""


@dataclass(frozen=True, slots=True)
class ModuleFiles:
    """NVIDIA's kernel module on the disk, looked for where it is not loaded."""

    running: tuple[str, ...]
    """The files for the kernel that runs."""
    other_kernels: tuple[str, ...]
    """The other installed kernels that have one."""
    headers: bool
    """Whether the running kernel's headers are there to build against."""
    dkms: tuple[DkmsModule, ...] = ()
    signed: bool | None = None
    """Whether the file for the running kernel carries a signature; None where it was not looked at."""
    blocked: tuple[tuple[str, str], ...] = ()
    """(file, line) of modprobe's configuration that keeps the module from being loaded."""


@dataclass(frozen=True, slots=True)
class DriverPackage:
    """An installed package that brings libcuda or NVIDIA's kernel module."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The operating system around the driver, as probes/kernel.py saw it."""

    log: Fact[tuple[KernelEvent, ...]] = Unknown("not looked at")
    modules: Fact[ModuleFiles] = Unknown("not looked at")
    secure_boot: Fact[bool] = Unknown("not looked at")
    packages: Fact[tuple[DriverPackage, ...]] = Unknown("not looked at")
    runfile: Fact[str] = Unknown("not looked at")
    """The version that NVIDIA's own installer (the .run file) left here."""
    prime: Fact[str] = Unknown("not looked at")
    """Ubuntu's choice of a laptop's card: "on", "on-demand", "off"."""
    lost_cards: tuple[str, ...] = ()
    """PCI addresses of cards that answer with all ones: switched off, or fallen off the bus."""
    links: Fact[dict[str, str]] = Unknown("not looked at")
    """How each pair of cards is joined, where there are several: "GPU0-GPU1" → "NV12", "PHB", "SYS"."""


# ---------------------------------------------------------------- the target Python


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
"""Distributions that put a `tensorflow` package into site-packages."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed Python distribution, from its dist-info or egg-info folder."""

    name: str
    """Normalised: lower case, hyphens."""
    version: str
    location: str
    installer: str | None = None
    requires: tuple[str, ...] = ()
    """Requires-Dist as written; of TensorFlow and of what it requires, and so on."""
    lost: tuple[str, ...] = ()
    """Shared objects that its RECORD lists and that are not there, below `location`; of NVIDIA's and TensorFlow's."""
    changed: tuple[ChangedFile, ...] = ()
    """Those whose size is not the one that its RECORD says."""
    files: tuple[str, ...] = ()
    """The shared objects that its RECORD lists, below `location`; only for NVIDIA's wheels."""
    pins: tuple[str, ...] = ()
    """Requires-Dist lines about NVIDIA's wheels, of whatever is no TensorFlow: torch, jax, …"""
    real_location: str = ""
    """`location` with links resolved."""
    differs: tuple[FileDifference, ...] = ()
    """Modules that are not as its RECORD lists them; of TensorFlow and of what it requires, and so on."""


@dataclass(frozen=True, slots=True)
class CondaPackage:
    name: str
    version: str
    build: str


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
"""Modules whose distribution has another name."""


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """The interpreter that is examined."""

    requested: str
    """How it was asked for or found: a path, or "python3 on PATH"."""
    executable: str
    real_executable: str
    version: str
    implementation: str
    bits: int
    machine: str
    glibc: str | None
    prefix: str
    base_prefix: str
    abi_flags: str
    platform: str
    """sysconfig's platform: "linux-x86_64", "win-amd64"."""
    virtual: bool
    conda_prefix: str | None
    externally_managed: bool
    sys_path: tuple[str, ...]
    site_packages: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    conda_packages: tuple[CondaPackage, ...]
    tag: str = ""
    """The CPython part of its wheel tag: "cp311"."""
    mapped: tuple[str, ...] = ()
    """Shared objects that are in the process before any import of the user's: preloaded ones among them."""

    modules: tuple[str, ...] = ()
    """TensorFlow's companions that are there as modules: "six", "google.protobuf"."""
    pip: bool | None = None
    """Whether it has a pip of its own; None where nobody looked."""
    ensurepip: bool | None = None
    """Whether its standard library can make a pip (Debian leaves that to python3-venv)."""
    user_site: str | None = None
    """Where `pip install --user` puts things, whether or not that folder exists; None where Python ignores it."""
    unwritable: tuple[tuple[str, str], ...] = ()
    """(folder, its owner's name) of the folders for packages in which this user may not write."""
    absent: tuple[str, ...] = ()
    """Distributions that TensorFlow's own metadata requires, whatever the extra, and that are not registered."""
    shadows: tuple[Shadow, ...] = ()
    """Modules that are found twice on this path, the working folder before it."""
    carried: tuple[str, ...] = ()
    """Libraries of the system that LD_LIBRARY_PATH and LD_PRELOAD put before the system's own: libz, libstdc++, …"""
    shared: tuple[SharedFile, ...] = ()
    """Libraries and tools that two of the distributions own."""
    closed: tuple[Denied, ...] = ()
    """What of its packages this user may not read or list."""
    noexec: tuple[tuple[str, str], ...] = ()
    """(folder, mount point): libraries below the folder cannot be loaded, its file system is mounted noexec."""

    def versions_installed(self) -> dict[str, str]:
        """Return distribution → version; "" if only its module exists. The first on the path wins."""
        there = {MODULE_DISTRIBUTIONS.get(name, name.replace("_", "-")): "" for name in self.modules}
        return there | {d.name: d.version for d in reversed(self.distributions)}

    def distribution(self, name: str) -> Distribution | None:
        return next((d for d in self.distributions if d.name == name), None)


@dataclass(frozen=True, slots=True)
class TensorFlowFacts:
    """TensorFlow's files in the target Python; nothing of it was imported."""

    package_dir: str
    core_dir: str
    """Where its code is: `tensorflow_core` in 1.15 and 2.0, else the package itself."""
    version: str | None
    distribution: str | None
    """"tensorflow", "tensorflow-gpu", "tf-nightly", "tensorflow-cpu", …"""
    framework: str | None
    """libtensorflow_framework.so.N."""
    pywrap: str | None
    """_pywrap_tensorflow_internal.so."""
    missing_files: tuple[str, ...]
    """What every installation of it has and this one lacks."""
    build_info: dict[str, str]
    """From build_info.py, as text: "cuda_version", "cudnn_version", "is_cuda_build", "is_rocm_build"."""
    cuda_config: dict[str, str]
    """TF_* of cuda_config.h: "TF_CUDA_VERSION": "12.5.1"."""
    shadowed_by: str | None = None
    """A tensorflow.py or tensorflow/ in the working directory."""
    plugins: tuple[str, ...] = ()
    """Shared objects in tensorflow-plugins/, which every import of TensorFlow loads."""
    conda_build: str | None = None
    """conda's build string: "mkl_py310h…", "cuda112py39h…"."""
    behind: TensorFlowFacts | None = None
    """The one that Python would take without the folder on its path in which it finds this one."""


# ---------------------------------------------------------------- all of it


NOT_REHEARSED = "nothing here is unlike what the import is known to work with"
"""Why there is no rehearsal."""


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """A CUDA toolkit folder such as /usr/local/cuda-12.4."""

    path: str
    version: str | None
    libdevice: bool
    ptxas: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was seen of one machine and one Python."""

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
    """How long each probe took."""
    kernel: KernelFacts = field(default_factory=KernelFacts)
    rehearsal: Fact[RehearsalFacts] = Absent("the packages that TensorFlow imports", NOT_REHEARSED)
    loader_behind: Fact[LoaderFacts] = Absent("the loader", "there is no other TensorFlow behind this one")
    """The loader's answers for the TensorFlow behind this one."""
    choice: Choice | None = None
    """Which Python is examined, and why."""
