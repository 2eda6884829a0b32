"""Write the recorded hosts of this folder: each is a healthy machine with a few changes.

    python tests/hosts/make.py            write them
    python tests/hosts/make.py --check    report which ones would change

A host is a function with `@host` that takes a healthy machine and changes it; the decorator states the expected
result. A recording of a real machine needs no function: a folder with host.json and expect.json is enough, if its
name is not one of these. All identifiers are invented.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
MARKER = "tfdoctor-payload:"
ENV = "/srv/tf"
SITE = f"{ENV}/lib/python3.11/site-packages"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
DRIVER = "550.54.14"


@dataclass(frozen=True)
class Card:
    """A GPU as all tools show it."""

    name: str
    device_id: str
    capability: str
    memory: int
    multiprocessors: int
    address: str = "0000:01:00.0"
    number: int = 0
    """Index of the GPU; the last part of its UUID."""

    @property
    def uuid(self) -> str:
        return f"GPU-1f2e3d4c-5b6a-4788-9{self.number}00-00000000{self.number:04d}"

    def at(self, address: str, number: int) -> Card:
        return Card(
            self.name, self.device_id, self.capability, self.memory, self.multiprocessors, address, number
        )


RTX_4090 = Card("NVIDIA GeForce RTX 4090", "2684", "8.9", 24564, 128)
RTX_3090 = Card("NVIDIA GeForce RTX 3090", "2204", "8.6", 24576, 82)
RTX_5090 = Card("NVIDIA GeForce RTX 5090", "2b85", "12.0", 32607, 170)
GTX_1080_TI = Card("NVIDIA GeForce GTX 1080 Ti", "1b06", "6.1", 11264, 28)
TESLA_K40 = Card("Tesla K40m", "1023", "3.5", 11441, 15)
QUADRO_K2000 = Card("Quadro K2000", "0ffe", "3.0", 1999, 2)
GT_1030 = Card("NVIDIA GeForce GT 1030", "1d01", "6.1", 2000, 3)
H100 = Card("NVIDIA H100 80GB HBM3", "2330", "9.0", 81559, 132)
A100 = Card("NVIDIA A100-SXM4-80GB", "20b2", "8.0", 81920, 108)

WHEELS = {
    "cublas": ("nvidia-cublas-cu12", "12.5.3.2", ("libcublas.so.12", "libcublasLt.so.12")),
    "cuda_cupti": ("nvidia-cuda-cupti-cu12", "12.5.82", ("libcupti.so.12",)),
    "cuda_nvcc": ("nvidia-cuda-nvcc-cu12", "12.5.82", ()),
    "cuda_nvrtc": ("nvidia-cuda-nvrtc-cu12", "12.5.82", ("libnvrtc.so.12",)),
    "cuda_runtime": ("nvidia-cuda-runtime-cu12", "12.5.82", ("libcudart.so.12",)),
    "cudnn": ("nvidia-cudnn-cu12", "9.3.0.75", ("libcudnn.so.9",)),
    "cufft": ("nvidia-cufft-cu12", "11.2.3.61", ("libcufft.so.11",)),
    "curand": ("nvidia-curand-cu12", "10.3.6.82", ("libcurand.so.10",)),
    "cusolver": ("nvidia-cusolver-cu12", "11.6.3.83", ("libcusolver.so.11",)),
    "cusparse": ("nvidia-cusparse-cu12", "12.5.1.3", ("libcusparse.so.12",)),
    "nccl": ("nvidia-nccl-cu12", "2.21.5", ("libnccl.so.2",)),
    "nvjitlink": ("nvidia-nvjitlink-cu12", "12.5.82", ("libnvJitLink.so.12",)),
}
NEEDS = {
    "libcublas.so.12": ("libcublasLt.so.12",),
    "libcusolver.so.11": ("libcublas.so.12", "libcublasLt.so.12", "libcusparse.so.12", "libnvJitLink.so.12"),
    "libcusparse.so.12": ("libnvJitLink.so.12",),
}
RUNPATH = "$ORIGIN:$ORIGIN/../../cublas/lib:$ORIGIN/../../cusparse/lib:$ORIGIN/../../nvjitlink/lib"
SYSTEM_LIBRARIES = (
    "libc.so.6",
    "libm.so.6",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
)
FRAMEWORK_RUNPATHS = {
    "2.18.1": ("cublas", "cuda_runtime", "cudnn", "cufft", "cusolver", "cusparse"),
    "2.21.0": ("cublas", "cuda_cupti", "cuda_runtime", "cudnn", "cufft", "cusparse", "nccl", "nvshmem"),
}
CUDA_CONFIG = "".join(
    f'#define TF_{name}_VERSION "{value}"\n'
    for name, value in (
        ("CUDA", "12.5.1"), ("CUDART", "12"), ("CUPTI", "12"), ("CUBLAS", "12"), ("CUSOLVER", "11"),
        ("CURAND", "10"), ("CUFFT", "11"), ("CUSPARSE", "12"), ("CUDNN", "9"),
    )
)  # fmt: skip
BUILD_INFO = (
    "import collections\n\nbuild_info = collections.OrderedDict([('cpu_compiler', "
    "'/usr/lib/llvm-18/bin/clang'), ('cuda_compute_capabilities', ['sm_60', 'sm_70', 'sm_80', 'sm_89', "
    "'compute_90']), ('cuda_version', '12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True), "
    "('is_rocm_build', False), ('is_tensorrt_build', False)])\n"
)
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n'
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n'
FLAGS = "fpu sse sse2 ssse3 sse4_1 sse4_2 avx avx2 fma f16c bmi1 bmi2 abm movbe xsave cx16 lahf_lm popcnt"


@dataclass
class Machine:
    """A recording in the making; `recording` returns the content of host.json."""

    cards: list[Card]
    driver: str = DRIVER
    cuda: str = "12.4"
    """Newest CUDA version that the driver supports."""
    host: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    elf: dict[str, Any] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    directories: dict[str, list[str]] = field(default_factory=dict)
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    which: dict[str, str] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    libcuda: dict[str, Any] = field(default_factory=dict)
    nvml: dict[str, Any] = field(default_factory=dict)
    unhidden: dict[str, Any] | None = None

    # ------------------------------------------------------------ changes

    def no_kernel_module(self) -> None:
        self.files.pop("/proc/driver/nvidia/version", None)
        self.files["/proc/modules"] = "ext4 1024000 2 - Live 0x0000000000000000\n"
        self.directories["/dev"] = ["null"]
        for card in self.cards:
            self.links.pop(f"/sys/bus/pci/devices/{card.address}/driver", None)

    def no_libcuda(self) -> None:
        for name in [path for path in (*self.elf, *self.links) if "/libcuda.so" in path]:
            self.elf.pop(name, None)
            self.links.pop(name, None)
        self.libcuda = {"loaded": False, "error": f"libcuda.so.1: {NOT_FOUND}", "devices": []}

    def no_nvml(self) -> None:
        for name in [path for path in (*self.elf, *self.links) if "/libnvidia-ml.so" in path]:
            self.elf.pop(name, None)
            self.links.pop(name, None)
        self.nvml = {"loaded": False, "error": f"libnvidia-ml.so.1: {NOT_FOUND}", "devices": []}

    def no_smi(self) -> None:
        self.which.pop("nvidia-smi", None)
        self.commands.pop("nvidia-smi -q -x", None)

    def no_driver(self) -> None:
        self.no_kernel_module()
        self.no_libcuda()
        self.no_nvml()
        self.no_smi()

    def no_cards(self) -> None:
        for name in [
            path for path in (*self.files, *self.links) if path.startswith("/sys/bus/pci/devices/0000:")
        ]:
            self.files.pop(name, None)
            self.links.pop(name, None)
        self.directories["/sys/bus/pci/devices"] = []

    def bind(self, card: Card, driver: str) -> None:
        self.links[f"/sys/bus/pci/devices/{card.address}/driver"] = f"/sys/bus/pci/drivers/{driver}"

    def modules(self, *names: str) -> None:
        self.files["/proc/modules"] = "".join(
            f"{name} 1024000 0 - Live 0x0000000000000000\n" for name in names
        )

    def container(self) -> None:
        self.files["/.dockerenv"] = ""

    def init(self, number: int, name: str) -> None:
        """Make cuInit fail, with and without CUDA_VISIBLE_DEVICES."""
        self.libcuda = {
            "loaded": True, "error": "", "path": self.libcuda.get("path"), "init": number, "init_name": name,
            "version": cuda_number(self.cuda), "devices": [],
        }  # fmt: skip

    def smi_says(self, text: str, status: int) -> None:
        self.commands["nvidia-smi -q -x"] = {"returncode": status, "stdout": text}

    def hide(self, value: str, visible: list[int]) -> None:
        """Set CUDA_VISIBLE_DEVICES; `visible` lists the GPUs that the driver then shows, in order."""
        self.env["CUDA_VISIBLE_DEVICES"] = value
        self.unhidden = dict(self.libcuda)
        if visible:
            devices = [
                dict(self.libcuda["devices"][index], ordinal=ordinal) for ordinal, index in enumerate(visible)
            ]
            self.libcuda = dict(self.libcuda, count=len(visible), devices=devices)
        else:
            self.init(100, "CUDA_ERROR_NO_DEVICE")

    def libcuda_from(self, folder: str, version: str) -> None:
        """Add another libcuda that the loader finds first, through LD_LIBRARY_PATH."""
        self.elf[f"{folder}/libcuda.so.{version}"] = library("libcuda.so.1")
        self.links[f"{folder}/libcuda.so.1"] = f"{folder}/libcuda.so.{version}"
        self.env["LD_LIBRARY_PATH"] = folder
        self.libcuda["path"] = f"{folder}/libcuda.so.{version}"

    def wheel(self, name: str, version: str) -> None:
        """Set the version of an installed distribution."""
        for distribution in self.target["distributions"]:
            if distribution["name"] == name:
                distribution["version"] = version

    def installed(self, name: str, version: str, **fields: Any) -> None:
        """Replace or add a distribution; `fields` adds more of its data."""
        others = [old for old in self.target["distributions"] if old["name"] != name]
        added = {
            "name": name,
            "version": version,
            "location": SITE,
            "installer": "pip",
            "requires": [],
            **fields,
        }
        self.target["distributions"] = [*others, added]

    # ------------------------------------------------------------ recording

    def recording(self) -> dict[str, Any]:
        commands = dict(self.commands)
        commands.setdefault("payload:target", {"stdout": MARKER + json.dumps(self.target) + "\n"})
        answers = [{"cuda": self.libcuda}, {"nvml": self.nvml}]
        commands.setdefault("payload:driver", {"stdout": said(*answers)})
        if self.unhidden is not None:
            commands["payload:driver:unhidden"] = {"stdout": said({"cuda": self.unhidden})}
        return {
            "schema_version": 1,
            "platform": {
                "system": "Linux",
                "machine": "x86_64",
                "release": "5.15.0-105-generic",
                "uid": "1000",
            },
            "cwd": "/srv/work",
            "env": self.env,
            "which": self.which,
            "commands": commands,
            "files": self.files,
            "links": self.links,
            "directories": self.directories,
            "elf": self.elf,
            **self.host,
        }


NOT_FOUND = "cannot open shared object file: No such file or directory"


def said(*parts: dict[str, Any]) -> str:
    """Return the payload's output for these parts."""
    return "".join(MARKER + json.dumps(part) + "\n" for part in parts)


def cuda_number(version: str) -> int:
    """Return the CUDA version as the driver's API encodes it."""
    major, minor = version.split(".")
    return int(major) * 1000 + int(minor) * 10


def library(soname: str, needed: tuple[str, ...] = (), runpath: str | None = None) -> dict[str, Any]:
    """Return the ELF data of a library."""
    entry: dict[str, Any] = {"soname": soname, "needed": [*needed, "libc.so.6"], "size": 4096}
    if runpath is not None:
        entry["runpath"] = runpath
    return entry


# ---------------------------------------------------------------- a healthy machine


def healthy(
    *cards: Card, tensorflow: str = "2.18.1", driver: str = DRIVER, cuda: str = "12.4", system: str = UBUNTU
) -> Machine:
    """Return a machine without problems."""
    machine = Machine(list(cards or (RTX_4090,)), driver, cuda)
    machine.env = {"VIRTUAL_ENV": ENV}
    machine.files |= {
        "/etc/os-release": system,
        "/proc/cpuinfo": f"processor\t: 0\nflags\t\t: {FLAGS}\n",
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  "
        "Thu Feb 22 01:44:30 UTC 2024\nGCC version:  gcc version 11.4.0\n",
    }
    machine.modules("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
    nodes = [f"nvidia{card.number}" for card in machine.cards]
    machine.directories["/dev"] = ["null", *nodes, "nvidia-modeset", "nvidia-uvm", "nvidiactl"]
    machine.links |= {"/lib": "/usr/lib", f"{ENV}/bin/python": "/usr/bin/python3.11"}
    machine.elf["/usr/bin/python3.11"] = {"needed": ["libm.so.6", "libc.so.6"], "size": 4096}
    for name in SYSTEM_LIBRARIES:
        machine.elf[f"{SYSTEM}/{name}"] = {"soname": name, "size": 4096}
    for stem in ("libcuda", "libnvidia-ml"):
        machine.elf[f"{SYSTEM}/{stem}.so.{driver}"] = library(f"{stem}.so.1")
        machine.links[f"{SYSTEM}/{stem}.so.1"] = f"{SYSTEM}/{stem}.so.{driver}"
    for card in machine.cards:
        folder = f"/sys/bus/pci/devices/{card.address}"
        machine.files |= {
            f"{folder}/vendor": "0x10de\n", f"{folder}/device": f"0x{card.device_id}\n",
            f"{folder}/class": "0x030000\n",
        }  # fmt: skip
        machine.bind(card, "nvidia")
    _add_python(machine, tensorflow)
    _add_driver_answers(machine)
    return machine


def _add_python(machine: Machine, version: str) -> None:
    """Add the Python with TensorFlow and NVIDIA's wheels, as the extra and-cuda installs them."""
    core = f"{SITE}/tensorflow"
    folders = FRAMEWORK_RUNPATHS[version]
    runpath = ":".join(f"$ORIGIN/../nvidia/{folder}/lib" for folder in folders)
    system = SYSTEM_LIBRARIES[1:4]
    pywrap = f"{core}/python/_pywrap_tensorflow_internal.so"
    machine.elf |= {
        f"{core}/libtensorflow_framework.so.2": library("libtensorflow_framework.so.2", system, runpath),
        f"{core}/libtensorflow_cc.so.2": library(
            "libtensorflow_cc.so.2", ("libtensorflow_framework.so.2", *system), "$ORIGIN"
        ),
        pywrap: library(
            "_pywrap_tensorflow_internal.so",
            ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2", *system),
            "$ORIGIN/..",
        ),
    }
    protobuf = "6.31.1" if version == "2.21.0" else "4.25.3"
    names = [("tensorflow", version), ("numpy", "1.26.4"), ("protobuf", protobuf), ("keras", "3.10.0")]
    for folder, (project, pinned, sonames) in WHEELS.items():
        names.append((project, pinned))
        for soname in sonames:
            path = f"{SITE}/nvidia/{folder}/lib/{soname}"
            machine.elf[path] = library(soname, NEEDS.get(soname, ()), RUNPATH)
    machine.files |= {
        f"{SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc": "",
        f"{SITE}/nvidia/cuda_nvcc/bin/ptxas": "",
    }
    if "cusolver" not in folders:  # the link that corrects the RUNPATH of 2.21
        library_path = f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11"
        machine.links[f"{SITE}/nvidia/cusparse/lib/libcusolver.so.11"] = library_path
    machine.target = {
        "version": "3.11.9", "implementation": "CPython", "executable": f"{ENV}/bin/python",
        "real_executable": "/usr/bin/python3.11", "bits": 64, "machine": "x86_64", "glibc": "2.35",
        "prefix": ENV, "base_prefix": "/usr", "abi_flags": "", "platform": "linux-x86_64",
        "externally_managed": False, "sys_path": ["/usr/lib/python3.11", SITE], "site_packages": [SITE],
        "distributions": [
            {"name": name, "version": number, "location": SITE, "installer": "pip", "requires": []}
            for name, number in names
        ],
        "conda": False, "conda_packages": [],
        "tensorflow": {
            "package_dir": core, "core_dir": core, "framework": f"{core}/libtensorflow_framework.so.2",
            "pywrap": pywrap, "missing": [], "build_info": BUILD_INFO, "cuda_config": CUDA_CONFIG,
        },
        "shadow": None,
        "modules": [
            "numpy", "google.protobuf", "absl", "wrapt", "six", "gast", "flatbuffers", "opt_einsum", "ml_dtypes",
        ],
    }  # fmt: skip


def _add_driver_answers(machine: Machine) -> None:
    """Add the answers of libcuda, NVML and nvidia-smi."""
    cards = machine.cards
    machine.libcuda = {
        "loaded": True, "error": "", "path": f"{SYSTEM}/libcuda.so.{machine.driver}", "init": 0,
        "version": cuda_number(machine.cuda), "count": len(cards), "closed_nodes": [],
        "devices": [
            {
                "ordinal": index, "name": card.name, "pci_bus_id": card.address, "uuid": card.uuid,
                "memory_mib": card.memory - 300, "compute_capability": card.capability,
                "multiprocessors": card.multiprocessors,
            }
            for index, card in enumerate(cards)
        ],
    }  # fmt: skip
    machine.nvml = {
        "loaded": True, "error": "", "path": f"{SYSTEM}/libnvidia-ml.so.{machine.driver}", "init": 0,
        "driver_version": machine.driver, "count": len(cards),
        "devices": [
            {
                "index": index, "name": card.name, "uuid": card.uuid, "pci_bus_id": card.address,
                "memory_total_mib": card.memory, "memory_used_mib": 312,
            }
            for index, card in enumerate(cards)
        ],
    }  # fmt: skip
    machine.which["nvidia-smi"] = "/usr/bin/nvidia-smi"
    if len(cards) == 2:
        machine.commands["nvidia-smi topo -m"] = {
            "stdout": "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-15\nGPU1\tPIX\t X \t0-15\n"
        }
    machine.commands["nvidia-smi -q -x"] = {"stdout": smi_xml(machine)}


def smi_xml(
    machine: Machine, *, used: int = 312, mode: str = "Default", mig: str = "N/A", instances: int = 0
) -> str:
    """Return the output of `nvidia-smi -q -x`, limited to what tfdoctor reads."""
    devices = "".join(f"<mig_device><index>{index}</index></mig_device>" for index in range(instances))
    gpus = "".join(
        f"""  <gpu id="0000{card.address.upper()}">
    <product_name>{card.name}</product_name>
    <mig_mode><current_mig>{mig}</current_mig></mig_mode>
    <mig_devices>{devices or "None"}</mig_devices>
    <uuid>{card.uuid}</uuid>
    <minor_number>{card.number}</minor_number>
    <fb_memory_usage><total>{card.memory} MiB</total><used>{used} MiB</used></fb_memory_usage>
    <compute_mode>{mode}</compute_mode>
  </gpu>
"""
        for card in machine.cards
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        "  <timestamp>Mon Mar  4 10:00:00 2024</timestamp>\n  "
        f"<driver_version>{machine.driver}</driver_version>\n  <cuda_version>{machine.cuda}</cuda_version>\n "
        f" <attached_gpus>{len(machine.cards)}</attached_gpus>\n{gpus}</nvidia_smi_log>\n"
    )


def two(card: Card = RTX_3090) -> tuple[Card, Card]:
    return card, card.at("0000:02:00.0", 1)


def wsl() -> Machine:
    """Return a machine with WSL 2 and the Windows driver."""
    machine = healthy(RTX_4090, driver="552.22", cuda="12.4")
    machine.no_kernel_module()
    machine.no_cards()
    machine.no_libcuda()
    machine.no_nvml()
    folder = "/usr/lib/wsl/lib"
    _add_driver_answers(machine)
    machine.host["platform"] = {
        "system": "Linux",
        "machine": "x86_64",
        "release": "5.15.146.1-microsoft-standard-WSL2",
        "uid": "1000",
    }
    machine.directories["/dev"] = ["dxg", "null"]
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        machine.elf[f"{folder}/{name}"] = library(name)
    machine.libcuda["path"] = f"{folder}/libcuda.so.1"
    machine.nvml["path"] = f"{folder}/libnvidia-ml.so.1"
    machine.env["LD_LIBRARY_PATH"] = folder
    machine.which["nvidia-smi"] = f"{folder}/nvidia-smi"
    return machine


# ---------------------------------------------------------------- hosts


@dataclass(frozen=True)
class Host:
    """A recorded host and its expected result."""

    slug: str
    about: str
    make: Callable[[], Machine]
    codes: tuple[str, ...]
    cause: str
    registered: bool | None


HOSTS: list[Host] = []


def host(
    *codes: str, cause: str = "healthy", registered: bool | None = True
) -> Callable[[Callable[[], Machine]], Callable[[], Machine]]:
    """Register a function as a host: its name is the slug, its docstring the description in expect.json."""

    def register(make: Callable[[], Machine]) -> Callable[[], Machine]:
        slug = make.__name__.strip("_").replace("_", "-")
        HOSTS.append(Host(slug, (make.__doc__ or "").strip(), make, tuple(sorted(codes)), cause, registered))
        return make

    return register


@host()
def healthy_one_gpu() -> Machine:
    """One card, everything right."""
    return healthy()


@host("TFD604")
def healthy_two_gpus() -> Machine:
    """Two equal cards; which one is which is worth a line."""
    return healthy(*two())


@host()
def healthy_tf221() -> Machine:
    """TensorFlow 2.21 with the link that its RUNPATH needs, and NVML."""
    return healthy(tensorflow="2.21.0")


@host()
def wsl2_healthy() -> Machine:
    """WSL 2, its library folder known to the loader."""
    return wsl()


@host()
def mig_instance() -> Machine:
    """A MIG parent with one instance, which CUDA shows."""
    machine = healthy(A100)
    machine.smi_says(smi_xml(machine, mig="Enabled", instances=1), 0)
    machine.libcuda["devices"][0] |= {"name": f"{A100.name} MIG 3g.40gb", "multiprocessors": 42}
    return machine


@host("TFD101", cause="no-driver", registered=False)
def no_card_no_driver() -> Machine:
    """No NVIDIA card, no driver."""
    machine = healthy()
    machine.no_driver()
    machine.no_cards()
    return machine


@host("TFD101", cause="no-driver", registered=False)
def nouveau() -> Machine:
    """The card runs on nouveau."""
    machine = healthy(RTX_3090, system=DEBIAN)
    machine.no_driver()
    machine.bind(RTX_3090, "nouveau")
    machine.modules("nouveau", "drm")
    return machine


@host("TFD101", cause="no-driver", registered=False)
def card_without_driver() -> Machine:
    """A card that no kernel driver holds."""
    machine = healthy()
    machine.no_driver()
    return machine


@host("TFD101", "TFD110", cause="no-driver", registered=False)
def old_card_without_driver() -> Machine:
    """A K40 without a driver: it is too old for this TensorFlow anyway."""
    machine = healthy(TESLA_K40)
    machine.no_driver()
    return machine


@host("TFD101", cause="no-driver", registered=False)
def libcuda_of_another_architecture() -> Machine:
    """Only the 32-bit driver library is installed."""
    machine = healthy()
    machine.no_libcuda()
    machine.elf[f"{SYSTEM}/libcuda.so.1"] = {"problem": "wrong ELF class", "detail": "ELFCLASS32"}
    return machine


@host("TFD101", cause="no-driver", registered=False)
def libcuda_where_nobody_looks() -> Machine:
    """The driver's library is in a folder that the loader does not know."""
    machine = healthy()
    machine.no_libcuda()
    machine.elf["/usr/local/nvidia/lib64/libcuda.so.1"] = library("libcuda.so.1")
    return machine


@host("TFD102", "TFD112", cause="no-device", registered=False)
def kernel_module_not_loaded() -> Machine:
    """The libraries are there; the kernel module was not built for this kernel."""
    machine = healthy()
    machine.no_kernel_module()
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    machine.smi_says(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
        "latest NVIDIA driver is installed and running.\n",
        9,
    )
    machine.nvml = {"loaded": True, "error": "", "init": 9, "init_error": "Driver Not Loaded", "devices": []}
    return machine


@host("TFD102", cause="no-device", registered=False)
def container_on_a_host_without_module() -> Machine:
    """A container with the libraries, on a host whose kernel module is not loaded."""
    machine = healthy()
    machine.no_kernel_module()
    machine.container()
    machine.no_smi()
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    return machine


@host("TFD105", cause="driver-init-unknown", registered=False)
def container_fails_for_no_reason() -> Machine:
    """CUDA_ERROR_UNKNOWN in a container where everything is there."""
    machine = healthy()
    machine.container()
    machine.init(999, "CUDA_ERROR_UNKNOWN")
    return machine


@host("TFD102", "TFD112", cause="no-device", registered=False)
def vfio() -> Machine:
    """The only card is reserved for a virtual machine."""
    machine = healthy()
    machine.bind(RTX_4090, "vfio-pci")
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    machine.smi_says("No devices were found\n", 6)
    machine.nvml |= {"count": 0, "devices": []}
    return machine


@host("TFD102", "TFD112", cause="no-device", registered=False)
def open_module_on_pascal() -> Machine:
    """The open kernel module does not drive a GTX 1080 Ti."""
    machine = healthy(GTX_1080_TI)
    machine.files["/proc/driver/nvidia/version"] = (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  "
        "(dvs-builder@U16)\n"
    )
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    machine.smi_says("No devices were found\n", 6)
    machine.nvml |= {"count": 0, "devices": []}
    return machine


@host("TFD102", cause="no-device", registered=False)
def mig_parent() -> Machine:
    """MIG is on and no instance was made."""
    machine = healthy(A100)
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    machine.smi_says(smi_xml(machine, mig="Enabled"), 0)
    return machine


@host("TFD103", cause="driver-too-old", registered=False)
def driver_too_old_for_libcuda() -> Machine:
    """cuInit itself says that the kernel's driver is too old (35)."""
    machine = healthy(A100, driver="450.80.02", cuda="11.0")
    machine.init(35, "CUDA_ERROR_INSUFFICIENT_DRIVER")
    return machine


@host("TFD103", cause="driver-too-old")
def driver_below_cuda_12() -> Machine:
    """Driver 470 lists the card; CUDA 12 refuses it."""
    return healthy(RTX_3090, driver="470.256.02", cuda="11.4")


@host()
def driver_of_cuda_12_0() -> Machine:
    """Older than the toolkit's own driver, new enough by minor-version compatibility."""
    return healthy(driver="525.60.13", cuda="12.0")


@host("TFD104", cause="driver-lib-mismatch", registered=False)
def updated_without_restart() -> Machine:
    """The libraries were updated, the kernel module was not loaded anew."""
    machine = healthy(driver="550.54.14")
    machine.files["/proc/driver/nvidia/version"] = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Fri Feb  2 05:40:00 UTC 2024\n"
    )
    machine.init(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")
    text = "Driver/library version mismatch"
    machine.nvml = {"loaded": True, "error": "", "init": 18, "init_error": text, "devices": []}
    machine.smi_says(f"Failed to initialize NVML: {text}\nNVML library version: 550.54\n", 18)
    return machine


@host("TFD104", cause="driver-lib-mismatch", registered=False)
def updated_without_restart_on_geforce() -> Machine:
    """The same, as a GeForce says it: 804, without any cuda-compat."""
    machine = updated_without_restart()
    machine.init(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE")
    return machine


@host("TFD105", cause="driver-init-unknown", registered=False)
def uvm_not_loaded() -> Machine:
    """CUDA_ERROR_UNKNOWN, and nvidia_uvm is not among the modules."""
    machine = healthy()
    machine.modules("nvidia_drm", "nvidia_modeset", "nvidia")
    machine.init(999, "CUDA_ERROR_UNKNOWN")
    return machine


@host("TFD105", cause="driver-init-unknown", registered=False)
def after_sleep() -> Machine:
    """CUDA_ERROR_UNKNOWN with everything loaded."""
    machine = healthy()
    machine.init(999, "CUDA_ERROR_UNKNOWN")
    return machine


@host("TFD105", cause="driver-init-unknown", registered=False)
def no_fabric_manager() -> Machine:
    """An NVSwitch machine without its Fabric Manager (802)."""
    machine = healthy(H100)
    machine.init(802, "CUDA_ERROR_SYSTEM_NOT_READY")
    return machine


@host("TFD105", cause="driver-init-unknown", registered=False)
def mps_of_somebody_else() -> Machine:
    """An MPS daemon that serves another user (800)."""
    machine = healthy()
    machine.env["CUDA_MPS_PIPE_DIRECTORY"] = "/tmp/nvidia-mps"
    machine.init(800, "CUDA_ERROR_NOT_PERMITTED")
    return machine


@host("TFD105", cause="driver-init-unknown", registered=False)
def libcuda_crashes() -> Machine:
    """The child that calls cuInit is killed by a signal."""
    machine = healthy()
    machine.commands["payload:driver"] = {"returncode": -11, "stdout": "", "stderr": ""}
    return machine


@host("TFD105", "TFD112", "TFD903", cause="driver-init-unknown", registered=None)
def driver_hangs() -> Machine:
    """Neither libcuda nor nvidia-smi answers."""
    machine = healthy()
    machine.commands["payload:driver"] = {"failure": "timeout"}
    machine.commands["nvidia-smi -q -x"] = {"failure": "timeout"}
    return machine


@host("TFD106", cause="compat-not-supported", registered=False)
def cuda_compat_on_geforce() -> Machine:
    """cuda-compat's libcuda on LD_LIBRARY_PATH."""
    machine = healthy(driver="535.161.08", cuda="12.2")
    machine.libcuda_from("/usr/local/cuda-12.5/compat", "555.42.06")
    machine.init(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE")
    return machine


@host("TFD107", cause="stub-libcuda", registered=False)
def stub_before_the_driver() -> Machine:
    """The toolkit's stubs folder on LD_LIBRARY_PATH, with the link that makes it libcuda.so.1."""
    machine = healthy()
    machine.libcuda_from("/usr/local/cuda-12.5/lib64/stubs", "12.5")
    machine.init(34, "CUDA_ERROR_STUB_LIBRARY")
    return machine


@host("TFD108", cause="wsl-libcuda", registered=False)
def wsl2_folder_unknown() -> Machine:
    """WSL's folder is not known to the loader."""
    machine = wsl()
    del machine.env["LD_LIBRARY_PATH"]
    machine.libcuda = {"loaded": False, "error": f"libcuda.so.1: {NOT_FOUND}", "devices": []}
    return machine


@host("TFD108", cause="wsl-libcuda", registered=False)
def wsl2_with_a_linux_driver() -> Machine:
    """A Linux driver's libcuda stands before WSL's."""
    machine = wsl()
    del machine.env["LD_LIBRARY_PATH"]
    machine.elf[f"{SYSTEM}/libcuda.so.550.54.14"] = library("libcuda.so.1")
    machine.links[f"{SYSTEM}/libcuda.so.1"] = f"{SYSTEM}/libcuda.so.550.54.14"
    machine.libcuda["path"] = f"{SYSTEM}/libcuda.so.550.54.14"
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    return machine


@host("TFD109", cause="nvml-missing", registered=False)
def docker_without_utility() -> Machine:
    """TensorFlow 2.21 in a container that was given `compute` alone."""
    machine = healthy(tensorflow="2.21.0")
    machine.container()
    machine.no_nvml()
    machine.no_smi()
    machine.env |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute"}
    return machine


@host("TFD109", cause="nvml-missing", registered=False)
def pod_without_utility() -> Machine:
    """The same in a pod."""
    machine = docker_without_utility()
    machine.env["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
    return machine


@host()
def nvml_missing_before_221() -> Machine:
    """TensorFlow 2.18 does not need NVML."""
    machine = healthy()
    machine.no_nvml()
    machine.no_smi()
    return machine


@host("TFD109", "TFD112", cause="nvml-missing", registered=False)
def nvml_fails() -> Machine:
    """NVML opens and does not start; libcuda works."""
    machine = healthy(tensorflow="2.21.0")
    machine.nvml = {"loaded": True, "error": "", "init": 999, "init_error": "Unknown Error", "devices": []}
    machine.smi_says("Failed to initialize NVML: Unknown Error\n", 255)
    return machine


@host("TFD110", cause="gpu-too-old")
def kepler_k40() -> Machine:
    """A K40 is registered (floor 3.5) and has neither code nor a driver for CUDA 12."""
    return healthy(TESLA_K40, driver="470.256.02", cuda="11.4")


@host("TFD110", cause="gpu-too-old", registered=False)
def kepler_below_the_floor() -> Machine:
    """Compute capability 3.0 is below TensorFlow's floor."""
    return healthy(QUADRO_K2000, driver="470.256.02", cuda="11.4")


@host("TFD110", cause="gpu-too-old")
def pascal_with_cudnn_9_11() -> Machine:
    """TensorFlow has code for a GTX 1080 Ti, its cuDNN has none."""
    machine = healthy(GTX_1080_TI)
    machine.wheel("nvidia-cudnn-cu12", "9.11.0.98")
    return machine


@host("TFD206", cause="cudnn-version-mismatch")
def cudnn_of_an_older_minor() -> Machine:
    """What an older torch pins: registration succeeds, the first convolution does not."""
    machine = healthy()
    machine.wheel("nvidia-cudnn-cu12", "9.1.0.70")
    return machine


@host("TFD211")
def cudnn_of_two_cudas() -> Machine:
    """A newer torch brought cuDNN and NCCL for CUDA 13 into the folders of those for CUDA 12."""
    machine = healthy()
    for stem, version in (("cudnn", "9.13.0.50"), ("nccl", "2.27.7")):
        path = f"nvidia/{stem}/lib/{WHEELS[stem][2][0]}"
        machine.installed(f"nvidia-{stem}-cu13", version, files=[path])
        machine.installed(f"nvidia-{stem}-cu12", WHEELS[stem][1], files=[path])
        owners = [[f"nvidia-{stem}-cu12", WHEELS[stem][1]], [f"nvidia-{stem}-cu13", version]]
        machine.target.setdefault("shared", []).append(
            {"path": path, "location": SITE, "owners": owners, "now": owners[1]}
        )
    machine.installed("torch", "2.9.0", pins=["nvidia-cudnn-cu13==9.13.0.50", "nvidia-nccl-cu13==2.27.7"])
    return machine


@host("TFD212", cause="damaged-file")
def part_of_cudnn_cut_short() -> Machine:
    """The disk was full: libcudnn opens, one of the parts that it opens when it is used ends too early."""
    machine = healthy()
    path = "nvidia/cudnn/lib/libcudnn_ops.so.9"
    changed = {"path": path, "recorded": 104664320, "size": 30000000, "cut": True}
    machine.installed("nvidia-cudnn-cu12", WHEELS["cudnn"][1], changed=[changed])
    return machine


@host("TFD213")
def torch_pins_another_cudnn() -> Machine:
    """TensorFlow's cuDNN was installed last: the next installation of torch takes it away."""
    machine = healthy()
    machine.installed("torch", "2.5.1", pins=['nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux"'])
    return machine


@host("TFD111", cause="gpu-too-new")
def blackwell_with_tf218() -> Machine:
    """PTX for sm_90a cannot be compiled for an RTX 5090."""
    return healthy(RTX_5090, driver="570.86.16", cuda="12.8")


@host("TFD111", "TFD313")
def blackwell_with_tf221() -> Machine:
    """2.21 runs on an RTX 5090 after a long first start."""
    return healthy(RTX_5090, tensorflow="2.21.0", driver="570.86.16", cuda="12.8")


@host("TFD112")
def smi_hangs() -> Machine:
    """nvidia-smi hangs; libcuda answers."""
    machine = healthy()
    machine.commands["nvidia-smi -q -x"] = {"failure": "timeout"}
    return machine


@host("TFD112")
def smi_prints_garbage() -> Machine:
    """Something else goes by the name of nvidia-smi."""
    machine = healthy()
    machine.commands["nvidia-smi -q -x"] = {"stdout": "\u0007%PDF-1.4 lorem ipsum\n"}
    machine.commands["nvidia-smi"] = {"stdout": "\u0007%PDF-1.4 lorem ipsum\n"}
    return machine


@host("TFD112")
def smi_exits_9() -> Machine:
    """nvidia-smi exits with status 9 and says nothing; libcuda answers."""
    machine = healthy()
    machine.smi_says("", 9)
    return machine


@host("TFD112", cause="container-nvml-lost", registered=False)
def container_cut_off() -> Machine:
    """A running container lost its devices."""
    machine = healthy()
    machine.container()
    machine.init(999, "CUDA_ERROR_UNKNOWN")
    machine.nvml = {"loaded": True, "error": "", "init": 999, "init_error": "Unknown Error", "devices": []}
    machine.smi_says("Failed to initialize NVML: Unknown Error\n", 255)
    return machine


@host("TFD112", cause="container-nvml-lost", registered=False)
def container_lost_nvml_alone() -> Machine:
    """The same where libcuda still answers, with TensorFlow 2.21, which asks NVML."""
    machine = healthy(tensorflow="2.21.0")
    machine.container()
    machine.no_smi()
    machine.nvml = {"loaded": True, "error": "", "init": 999, "init_error": "Unknown Error", "devices": []}
    return machine


@host("TFD113", cause="driver-init-unknown", registered=False)
def nodes_of_another_group() -> Machine:
    """The user may not open the card's nodes."""
    machine = healthy(system=DEBIAN)
    machine.init(999, "CUDA_ERROR_UNKNOWN")
    machine.libcuda["closed_nodes"] = ["/dev/nvidia0", "/dev/nvidiactl"]
    return machine


@host("TFD113", cause="no-device", registered=False)
def nodes_missing() -> Machine:
    """The module is loaded, and nobody made the nodes."""
    machine = healthy()
    machine.directories["/dev"] = ["null"]
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    return machine


@host("TFD114")
def small_card_beside_a_large_one() -> Machine:
    """A GT 1030 has too few multiprocessors beside an RTX 3090."""
    return healthy(RTX_3090, GT_1030.at("0000:02:00.0", 1))


@host("TFD401", cause="container-no-gpu", registered=False)
def container_without_gpu() -> Machine:
    """The host has a card; the container was started without it."""
    machine = healthy()
    machine.container()
    machine.no_libcuda()
    machine.no_nvml()
    machine.no_smi()
    machine.directories["/dev"] = ["null"]
    return machine


@host("TFD401", cause="container-no-gpu", registered=False)
def pod_without_gpu() -> Machine:
    """The same in a pod that asks for no GPU."""
    machine = container_without_gpu()
    machine.env["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
    return machine


@host("TFD401", cause="container-no-gpu", registered=False)
def cuda_image_without_gpu() -> Machine:
    """The same with an image that carries cuda-compat, which is no driver."""
    machine = container_without_gpu()
    machine.elf["/usr/local/cuda/compat/libcuda.so.1"] = library("libcuda.so.1")
    machine.env |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    return machine


@host("TFD202", cause="libs-wrong-version", registered=False)
def two_other_cudas() -> Machine:
    """CUDA 11.8 and 11.2 under /usr/local, none of 12, no wheels."""
    machine = healthy()
    for path in [p for p in machine.elf if "/site-packages/nvidia/" in p]:
        del machine.elf[path]
    machine.target["distributions"] = machine.target["distributions"][:4]
    for cuda in ("11.2", "11.8"):
        folder = f"/usr/local/cuda-{cuda}/lib64"
        for soname in ("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10",
                       "libcusolver.so.11", "libcusparse.so.11", "libcudnn.so.8"):  # fmt: skip
            machine.elf[f"{folder}/{soname}"] = library(soname)
    machine.env["LD_LIBRARY_PATH"] = "/usr/local/cuda-11.8/lib64"
    return machine


@host("TFD601", cause="hidden-by-env", registered=False)
def hidden_by_empty() -> Machine:
    """CUDA_VISIBLE_DEVICES is empty."""
    machine = healthy()
    machine.hide("", [])
    return machine


@host("TFD601", cause="hidden-by-env", registered=False)
def hidden_by_minus_one() -> Machine:
    """CUDA_VISIBLE_DEVICES is -1."""
    machine = healthy(*two())
    machine.hide("-1", [])
    return machine


@host("TFD601", cause="hidden-by-env", registered=False)
def hidden_by_slurm() -> Machine:
    """A Slurm job without a GPU."""
    machine = healthy()
    machine.env["SLURM_JOB_ID"] = "4711"
    machine.hide("NoDevFiles", [])
    return machine


@host("TFD604")
def zero_seven_one() -> Machine:
    """ "0,7,1" on two cards: the driver stops at 7."""
    machine = healthy(*two())
    machine.hide("0,7,1", [0])
    return machine


@host("TFD604")
def the_other_order() -> Machine:
    """ "1,0": both cards, the other way round."""
    machine = healthy(*two())
    machine.hide("1,0", [1, 0])
    return machine


@host("TFD602")
def misspelt() -> Machine:
    """A variable that nobody reads."""
    machine = healthy()
    machine.env["CUDA_VISIBLE_DEVIES"] = "0"
    return machine


@host("TFD603", cause="gpu-busy-other-process")
def memory_full() -> Machine:
    """Another process has left 200 MiB."""
    machine = healthy()
    machine.nvml["devices"][0]["memory_used_mib"] = RTX_4090.memory - 200
    return machine


@host("TFD603", "TFD604")
def one_of_two_busy() -> Machine:
    """One card is more than half full, the other is free."""
    machine = healthy(*two())
    machine.nvml["devices"][0]["memory_used_mib"] = 20000
    return machine


@host("TFD603", cause="gpu-busy-other-process")
def compute_prohibited() -> Machine:
    """The compute mode forbids every process."""
    machine = healthy()
    machine.smi_says(smi_xml(machine, mode="Prohibited"), 0)
    return machine


@host("TFD605")
def odd_library_path() -> Machine:
    """A tilde that the loader does not expand, and an empty entry."""
    machine = healthy()
    machine.env["LD_LIBRARY_PATH"] = "~/cuda/lib64:"
    return machine


@host("TFD605")
def odd_words() -> Machine:
    """Words that TensorFlow does not understand, and one that silences it."""
    machine = healthy()
    machine.env |= {"TF_FORCE_GPU_ALLOW_GROWTH": "True", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return machine


@host("TFD601", cause="hidden-by-env", registered=False)
def _no_such_uuid() -> Machine:
    """An identifier of a card that is not here."""
    machine = healthy()
    machine.hide("GPU-00000000-0000-4000-8000-000000000000", [])
    return machine


@host("TFD114", cause="hidden-by-env", registered=False)
def multiprocessor_count_too_high() -> Machine:
    """TF_MIN_GPU_MULTIPROCESSOR_COUNT leaves every card out."""
    machine = healthy()
    machine.env["TF_MIN_GPU_MULTIPROCESSOR_COUNT"] = "500"
    return machine


@host("TFD701", cause="shadowed-module", registered=False)
def shadowed() -> Machine:
    """A tensorflow.py in the working directory."""
    machine = healthy()
    machine.target["shadow"] = "/srv/project/tensorflow.py"
    return machine


def requiring(machine: Machine, *requirements: str) -> Machine:
    """Set the requirements in TensorFlow's metadata."""
    for distribution in machine.target["distributions"]:
        if distribution["name"] == "tensorflow":
            distribution["requires"] = list(requirements)
    return machine


def rehearsed(machine: Machine, *results: dict[str, Any], done: bool = True) -> Machine:
    """Add the answers of a child process that imported unusual modules; `done` adds its end marker."""
    parts = [{"at": "numpy"}, *({f"module:{number}": result} for number, result in enumerate(results))]
    machine.commands["payload:rehearse"] = {"stdout": said(*parts, *([{"done": True}] if done else []))}
    return machine


@host("TFD701", cause="shadowed-module", registered=False)
def shadowed_numpy() -> Machine:
    """A numpy.py in the working directory."""
    machine = healthy()
    machine.target["shadows"] = [["numpy", "/srv/project/numpy.py", SITE]]
    failed = {
        "name": "numpy", "type": "AttributeError", "error": "module 'numpy' has no attribute 'integer'",
        "attribute_error": True, "file": "/srv/project/numpy.py", "top": "/srv/project/numpy.py", "frames": [],
    }  # fmt: skip
    return rehearsed(machine, failed)


@host("TFD312", cause="package-conflict", registered=False)
def other_numpy() -> Machine:
    """h5py was compiled for another NumPy."""
    machine = requiring(healthy(), "h5py>=3.11.0", "numpy>=1.26.0,<2.1.0", "keras>=3.5.0")
    machine.target["distributions"].append(
        {
            "name": "h5py",
            "version": "3.10.0",
            "location": SITE,
            "installer": "pip",
            "requires": ["numpy>=1.17.3"],
        }
    )
    failed = {
        "name": "h5py", "type": "ValueError", "file": None, "top": f"{SITE}/h5py/__init__.py",
        "error": "numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
        "frames": [f"{SITE}/h5py/__init__.py", f"{SITE}/h5py/_errors.pyx"],
    }  # fmt: skip
    return rehearsed(machine, {"name": "numpy", "file": f"{SITE}/numpy/__init__.py"}, failed)


@host("TFD320", cause="damaged-file", registered=False)
def broken_plugin() -> Machine:
    """A plugin that was left behind, cut off."""
    machine = healthy()
    path = f"{SITE}/tensorflow-plugins/libitex_gpu.so"
    machine.target["tensorflow"]["plugins"] = [path]
    machine.elf[path] = {"problem": "file too short"}
    return machine


@host("TFD321")
def without_keras() -> Machine:
    """TensorFlow without Keras: it registers its GPU, and tf.keras fails."""
    machine = rehearsed(requiring(healthy(), "keras>=3.5.0"))
    machine.target["distributions"] = [d for d in machine.target["distributions"] if d["name"] != "keras"]
    return machine


@host("TFD322")
def requirement() -> Machine:
    """A protobuf that TensorFlow does not ask for, and works with."""
    machine = requiring(healthy(), "protobuf>=3.20.3,<6.0.0", "keras>=3.5.0")
    machine.wheel("protobuf", "6.33.0")
    return rehearsed(machine, {"name": "google.protobuf", "file": f"{SITE}/google/protobuf/__init__.py"})


@host("TFD703", cause="shadowed-module", registered=False)
def other_tensorflow() -> Machine:
    """PYTHONPATH puts a TensorFlow without GPU code before the environment's own."""
    machine = healthy()
    good = machine.target["tensorflow"]
    other = "/srv/team"
    info = BUILD_INFO.replace("('is_cuda_build', True)", "('is_cuda_build', False)")
    first = {
        **good, "package_dir": f"{other}/tensorflow", "core_dir": f"{other}/tensorflow", "build_info": info,
        "cuda_config": None, "framework": None, "pywrap": None, "missing": [],
    }  # fmt: skip
    machine.target |= {"tensorflow": first, "behind": good, "sys_path": [other, *machine.target["sys_path"]]}
    machine.target["distributions"].insert(
        0,
        {
            "name": "tensorflow-cpu",
            "version": "2.18.1",
            "location": other,
            "installer": "pip",
            "requires": [],
        },
    )
    machine.env["PYTHONPATH"] = other
    return machine


def _load_scenes() -> None:
    """Register the hosts of the other modules, which are grouped by topic."""
    sys.path.insert(0, str(HERE))
    import scenes_engine
    import scenes_kernel
    import scenes_python

    scenes_engine.register(host, healthy)
    scenes_kernel.register(SimpleNamespace(**globals()))
    scenes_python.register(SimpleNamespace(**globals()))


_load_scenes()


# ---------------------------------------------------------------- writing


def rendered() -> dict[str, str]:
    """Return the text of every generated file, by its path below this folder."""
    files = {}
    for entry in HOSTS:
        expect = {
            "about": entry.about,
            "codes": list(entry.codes),
            "cause": entry.cause,
            "gpu_registered": entry.registered,
        }
        recording = entry.make().recording()
        files[f"{entry.slug}/host.json"] = json.dumps(recording, indent=1, sort_keys=True) + "\n"
        files[f"{entry.slug}/expect.json"] = json.dumps(expect, indent=1) + "\n"
    return files


def main(arguments: list[str]) -> int:
    stale = []
    for name, text in rendered().items():
        path = HERE / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{name}\n" for name in stale))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
