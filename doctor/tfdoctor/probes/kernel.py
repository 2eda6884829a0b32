"""Probe the system around the driver: the kernel log, module files, Secure Boot, and packages.

These facts explain why an installed driver does not work. If the machine has no NVIDIA GPU or driver, almost nothing
is read. Nothing is loaded, built or changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core.facts import (
    Absent,
    DkmsModule,
    DriverPackage,
    Fact,
    KernelEvent,
    KernelFacts,
    Known,
    ModuleFiles,
    Unknown,
)
from tfdoctor.core.text import clean_line, make_lazy_pattern
from tfdoctor.probes.files import list_names, load_text
from tfdoctor.probes.parsers.kernel_log import parse_kernel_log
from tfdoctor.probes.parsers.smi_topo import parse_smi_topo

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.core.facts import MachineFacts, PciGpu
    from tfdoctor.system import System

MODULE_VERSION_FILE = "/proc/driver/nvidia/version"
"""A file that exists if NVIDIA's kernel module is loaded."""
NO_NVIDIA_REASON = "nothing of NVIDIA's is on this machine"
"""Why almost nothing is read on a machine without NVIDIA's hardware or driver."""
LOG_FILES = ("/var/log/kern.log", "/var/log/messages")
LOG_TAIL_BYTES = "1048576"
"""The number of bytes that are read from the end of a log file, as an argument of `tail`."""
MODULE_FILE = make_lazy_pattern(
    r"^(\S*/)?nvidia(?:-current|-open|-legacy-[0-9]+xx|-tesla(?:-[0-9]+)?|_[0-9]{3})?(?:-open)?\.ko(?:\.\w+)?:",
    re.MULTILINE,
)
"""The start of a line of modules.dep with NVIDIA's main module, which Debian names nvidia-current."""
MODULES_DEP_LIMIT = 8 << 20
"""The maximum number of bytes that are read from modules.dep."""
DKMS_NAME = make_lazy_pattern(
    r"nvidia(?:-(?:current|open|srv|server|legacy-[0-9]+xx|tesla(?:-[0-9]+)?|[0-9]+))*\Z"
)
"""The names of the driver in DKMS. nvidia-fs and nvidia-peermem are not part of it."""
BLOCKING_LINE = make_lazy_pattern(
    r"^[ \t]*((?:blacklist[ \t]+nvidia|alias[ \t]+nvidia[ \t]+off|install[ \t]+nvidia[ \t]+\S*(?:false|true))"
    r"[ \t]*)(?:#[^\n]*)?$",
    re.MULTILINE,
)
"""A line of a modprobe configuration file that blocks the module."""
BLOCKING_PARAMETER = make_lazy_pattern(
    r"(?<!\S)(?:modprobe\.blacklist|module_blacklist|rd\.driver\.blacklist)=(?:[^\s,]{1,60},)*nvidia(?=[,\s]|\Z)"
)
"""A kernel parameter that blocks the module."""
MODPROBE_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
SECURE_BOOT_FILE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""The firmware variable: four bytes of attributes, then 1 if Secure Boot is on (UEFI specification)."""
SECURE_BOOT_ON = Known(True, SECURE_BOOT_FILE)
"""The fact that Secure Boot is on."""
DPKG_NAMES = make_lazy_pattern(r"(libnvidia-compute(?:-[0-9]+(?:-server)?)?|libcuda1|libnvidia-tesla(?:-[0-9]+)?-cuda1"
                        r"|libnvidia-legacy-[0-9]+xx-cuda1)(?::\w+)?\.list\Z")  # fmt: skip
"""The file list of a package that owns a libcuda, in dpkg's database."""
RPM_NAMES = (
    "nvidia-driver-cuda-libs",
    "xorg-x11-drv-nvidia-cuda-libs",
    "xorg-x11-drv-nvidia-470xx-cuda-libs",
    "nvidia-compute-G05",
    "nvidia-compute-G06",
)
"""The packages that own a libcuda on Fedora, Red Hat and SUSE systems."""
PACMAN_NAME = make_lazy_pattern(r"(nvidia(?:-[0-9]+xx)?-utils)-([0-9][0-9.]*)-[0-9.]+\Z")
"""The folder of a package that owns a libcuda, in pacman's database: name, version and release."""
UNINSTALLER_PATH, INSTALLER_LOG = "/usr/bin/nvidia-uninstall", "/var/log/nvidia-installer.log"
"""Files that NVIDIA's own installer (the .run file) leaves on the machine."""
PRIME_FILE = "/etc/prime-discrete"
"""The file with the mode that Ubuntu's prime-select has set."""


def probe(
    system: System,
    machine: MachineFacts,
    pci: Callable[[], Fact[tuple[PciGpu, ...]]],
    *,
    timeout: float,
) -> KernelFacts:
    """Return the facts about the kernel and the packages, but not `links` (see `probe_links`).

    `pci` waits for the GPUs on the PCI bus and returns them. `timeout` is the time limit in seconds for each command
    that reads the log; other commands have half of it.
    """
    if machine.system != "Linux":
        not_linux = Absent(machine.system, "this is not Linux")
        return KernelFacts(
            log=not_linux,
            modules=not_linux,
            secure_boot=not_linux,
            packages=not_linux,
            runfile=not_linux,
            prime=not_linux,
        )
    gpus = pci()
    prime = _load_fact(system, PRIME_FILE)
    is_loaded = system.exists(MODULE_VERSION_FILE)
    if not is_loaded and not isinstance(gpus, Known) and not machine.wsl and not isinstance(prime, Known):
        absent = Absent("/sys/bus/pci/devices", NO_NVIDIA_REASON) if isinstance(gpus, Absent) else gpus
        return KernelFacts(
            log=absent, modules=absent, secure_boot=absent, packages=absent, runfile=absent, prime=prime
        )
    secure_boot = probe_secure_boot(system, machine)
    return KernelFacts(
        log=probe_log(system, machine, timeout=timeout),
        modules=probe_module_files(
            system, machine, timeout=timeout / 2, signature=secure_boot == SECURE_BOOT_ON
        ),
        secure_boot=secure_boot,
        packages=probe_packages(system, timeout=timeout / 2),
        runfile=probe_runfile(system),
        prime=prime,
        lost_cards=probe_unresponsive_gpus(system, gpus.value if isinstance(gpus, Known) else ()),
    )


def _load_fact(system: System, path: str) -> Fact[str]:
    """Return the content of a small file as a fact."""
    try:
        return Known(clean_line(system.read_text(path, limit=256), limit=64), path)
    except FileNotFoundError:
        return Absent(path)
    except OSError as error:
        return Unknown(f"{path}: {error.strerror or error}", path)


# ---------------------------------------------------------------- kernel log


def probe_log(system: System, machine: MachineFacts, *, timeout: float) -> Fact[tuple[KernelEvent, ...]]:
    """Return the events in the kernel log since boot, from dmesg, the journal, or a log file."""
    if machine.wsl:
        return Absent("dmesg", "under WSL the driver is Windows' own and writes no log here")
    failures = []
    for argv in (
        ("dmesg",),
        ("journalctl", "-k", "-b", "-q", "--no-pager", "-n", "20000"),
        *(("tail", "-c", LOG_TAIL_BYTES, path) for path in LOG_FILES if system.exists(path)),
    ):
        if system.which(argv[0]) is None:
            continue
        result = system.run(argv, timeout=timeout, key=" ".join(argv))
        # journalctl succeeds with no output if this user may not read the system's journal.
        if result.ok and result.stdout.strip():
            return Known(parse_kernel_log(result.stdout), " ".join(argv))
        message = clean_line(result.stderr, limit=120) or (
            "printed nothing" if result.ok else result.describe_outcome()
        )
        failures.append(f"{argv[0]}: {message.removeprefix(f'{argv[0]}: ')}")
    if not failures:
        return Absent("dmesg", "this system has no kernel log that could be asked")
    return Unknown(f"the kernel's log cannot be read by this user ({'; '.join(failures)})", "dmesg")


# ---------------------------------------------------------------- module files


def probe_module_files(
    system: System, machine: MachineFacts, *, timeout: float, signature: bool
) -> Fact[ModuleFiles]:
    """Return the facts about the files of NVIDIA's kernel module, or Absent if the module is loaded.

    `signature` says whether to check if the module is signed.
    """
    if machine.wsl:
        return Absent("/lib/modules", "WSL has no NVIDIA kernel module")
    if machine.container:
        return Unknown("a container does not show its host's kernel modules", "/lib/modules")
    if system.exists(MODULE_VERSION_FILE):
        return Absent("/lib/modules", "NVIDIA's kernel module is loaded")
    if not machine.kernel:
        return Unknown("which kernel runs is not known", "/lib/modules")
    base = f"/lib/modules/{machine.kernel}"
    running_files = _find_module_files(system, base)
    if running_files is None:
        return Unknown(f"{base}/modules.dep cannot be read (`sudo depmod` rebuilds it)", base)
    other_kernels = [kernel for kernel in list_names(system, "/lib/modules") if kernel != machine.kernel]
    return Known(
        ModuleFiles(
            running=running_files,
            other_kernels=tuple(
                clean_line(kernel, limit=120)
                for kernel in other_kernels[-8:]
                if _find_module_files(system, f"/lib/modules/{kernel}")
            ),
            headers=system.exists(f"{base}/build"),
            dkms=_list_dkms(system),
            signed=_is_signed(system, running_files[0], timeout) if running_files and signature else None,
            blocked=_list_blocking_lines(system) if running_files else (),
        ),
        f"{base}/modules.dep",
    )


def _find_module_files(system: System, base: str) -> tuple[str, ...] | None:
    """Return the paths of NVIDIA's kernel module in modules.dep, or None if that cannot be read.

    `base` is the module folder of one kernel.
    """
    text = load_text(system, f"{base}/modules.dep", MODULES_DEP_LIMIT)
    if text is None:
        return None
    matches = (match[0].rstrip(":") for match in MODULE_FILE.finditer(text))
    return tuple(clean_line(name if name.startswith("/") else f"{base}/{name}") for name in matches)


def _list_dkms(system: System) -> tuple[DkmsModule, ...]:
    """Return the driver's versions in DKMS, with the kernels they are built for and a build log."""
    base = "/var/lib/dkms"
    modules = []
    for name in list_names(system, base):
        if not DKMS_NAME.match(name):
            continue
        for version in list_names(system, f"{base}/{name}"):
            folder = f"{base}/{name}/{version}"
            if not version[:1].isdigit() or not system.is_dir(folder):
                continue
            kernels = [
                entry
                for entry in list_names(system, folder)
                if entry not in ("build", "source") and entry[:1].isdigit()
            ]
            make_log = f"{folder}/build/make.log"
            modules.append(
                DkmsModule(
                    name=clean_line(name),
                    version=clean_line(version),
                    kernels=tuple(kernels),
                    failed=make_log if system.exists(make_log) else "",
                )
            )
    return tuple(modules)


def _is_signed(system: System, path: str, timeout: float) -> bool | None:
    """Return whether a module is signed, or None if modinfo is missing or fails."""
    command = system.which("modinfo") or ("/sbin/modinfo" if system.exists("/sbin/modinfo") else None)
    if command is None:
        return None
    result = system.run([command, "-F", "signer", path], timeout=timeout, key="modinfo -F signer")
    return bool(result.stdout.strip()) if result.ok else None


def _list_blocking_lines(system: System) -> tuple[tuple[str, str], ...]:
    """Return (path, line) of each modprobe setting and kernel parameter that blocks the module."""
    lines = []
    for folder in dict.fromkeys(system.realpath(folder) for folder in MODPROBE_FOLDERS):
        for name in list_names(system, folder):
            if name.endswith(".conf"):
                match = BLOCKING_LINE.search(load_text(system, f"{folder}/{name}") or "")
                if match is not None:
                    lines.append((clean_line(f"{folder}/{name}"), clean_line(match[1])))
    match = BLOCKING_PARAMETER.search(load_text(system, "/proc/cmdline", 4096) or "")
    if match is not None:
        lines.append(("/proc/cmdline", clean_line(match[0])))
    return tuple(lines)


def probe_secure_boot(system: System, machine: MachineFacts) -> Fact[bool]:
    """Return whether Secure Boot is on, according to the firmware's variable."""
    if machine.wsl:
        return Absent(SECURE_BOOT_FILE, "WSL has no firmware of its own")
    try:
        raw = system.read_bytes(SECURE_BOOT_FILE, limit=8)
    except FileNotFoundError:
        if machine.container or system.exists("/sys/firmware/efi"):
            return Unknown("the firmware's variables are not to be seen here", SECURE_BOOT_FILE)
        return Absent("/sys/firmware/efi", "the machine was not started by UEFI")
    except OSError as error:
        return Unknown(f"{SECURE_BOOT_FILE}: {error.strerror or error}", SECURE_BOOT_FILE)
    return (
        Known(raw[4:5] == b"\x01", SECURE_BOOT_FILE)
        if len(raw) >= 5
        else Unknown("cut off", SECURE_BOOT_FILE)
    )


# ---------------------------------------------------------------- packages


def probe_packages(system: System, *, timeout: float) -> Fact[tuple[DriverPackage, ...]]:
    """Return the installed packages that own a libcuda, from dpkg, pacman or rpm."""
    info = "/var/lib/dpkg/info"
    if system.exists(info):
        matches = (DPKG_NAMES.match(name) for name in list_names(system, info))
        names = list(dict.fromkeys(match[1] for match in matches if match is not None))
        if not names:
            return Absent("dpkg", "no package of NVIDIA's driver")
        argv = ("dpkg-query", "-W", "-f", "${db:Status-Abbrev}|${Package}|${Version}\\n", *names)
        result = system.run(argv, timeout=timeout, key="dpkg-query -W")
        rows = [line.split("|") for line in result.stdout.splitlines()]
        # "ii" means that the package is installed.
        installed = [
            (fields[1], fields[2]) for fields in rows if len(fields) == 3 and fields[0].startswith("ii")
        ]
        return (
            _make_packages_fact(installed, "dpkg -l")
            if result.ok or installed
            else Unknown(f"dpkg-query {result.describe_outcome()}")
        )
    pacman = "/var/lib/pacman/local"
    if system.exists(pacman):
        matches = (PACMAN_NAME.match(name) for name in list_names(system, pacman))
        return _make_packages_fact(
            [(match[1], match[2]) for match in matches if match is not None], "pacman -Q"
        )
    if system.which("rpm") is not None:
        argv = ("rpm", "-q", "--qf", "%{NAME}|%{VERSION}\\n", *RPM_NAMES)
        result = system.run(argv, timeout=timeout, key="rpm -q")
        rows = [line.split("|") for line in result.stdout.splitlines()]
        if result.failure is not None:
            return Unknown(f"rpm {result.describe_outcome()}", "rpm -q")
        return _make_packages_fact([(fields[0], fields[1]) for fields in rows if len(fields) == 2], "rpm -q")
    return Absent("dpkg, pacman, rpm", "none of these package managers is here")


def _make_packages_fact(
    installed_versions: list[tuple[str, str]], source: str
) -> Fact[tuple[DriverPackage, ...]]:
    """Return the fact about installed packages, from their (name, version) pairs."""
    if not installed_versions:
        return Absent(source, "no package of NVIDIA's driver")
    packages = {
        (clean_line(name, limit=80), clean_line(version, limit=80)) for name, version in installed_versions
    }
    return Known(tuple(DriverPackage(*package) for package in sorted(packages)), source)


def probe_runfile(system: System) -> Fact[str]:
    """Return the driver version that NVIDIA's own installer installed, or "" if it is not known.

    The installer counts as used if its uninstaller exists.
    """
    if not system.exists(UNINSTALLER_PATH):
        return Absent(UNINSTALLER_PATH, "NVIDIA's installer was not used")
    text = load_text(system, INSTALLER_LOG, 4096)
    match = re.search(r"^installer version: ([0-9][0-9.]{2,20})$", text or "", re.MULTILINE)
    return Known(match[1] if match is not None else "", UNINSTALLER_PATH)


# ---------------------------------------------------------------- GPUs


def probe_unresponsive_gpus(system: System, gpus: tuple[PciGpu, ...]) -> tuple[str, ...]:
    """Return the PCI addresses of GPUs that no longer respond: their configuration reads as all ones.

    A suspended GPU is skipped, because reading would wake it.
    """
    addresses = []
    for gpu in gpus:
        folder = f"/sys/bus/pci/devices/{gpu.address}"
        if (load_text(system, f"{folder}/power/runtime_status", 32) or "").strip() == "suspended":
            continue
        try:
            head = system.read_bytes(f"{folder}/config", limit=4)
        except OSError:
            continue
        if head == b"\xff\xff\xff\xff":
            addresses.append(gpu.address)
    return tuple(addresses)


def probe_links(system: System, gpus: Fact[tuple[PciGpu, ...]], *, timeout: float) -> Fact[dict[str, str]]:
    """Return the links between the GPUs, or Absent if NVIDIA's driver uses fewer than two."""
    if isinstance(gpus, Unknown):
        return gpus
    nvidia_gpus = [gpu for gpu in gpus.value if gpu.driver == "nvidia"] if isinstance(gpus, Known) else []
    if len(nvidia_gpus) < 2:
        return Absent("nvidia-smi topo -m", "there are not several cards")
    return query_links(system, timeout=timeout)


def query_links(
    system: System, *, timeout: float, options: tuple[str, ...] = ("-m",)
) -> Fact[dict[str, str]]:
    """Return the links ("NV4", "SYS", …) by pairs such as "GPU0-GPU1", as nvidia-smi numbers the GPUs.

    `options` are the options of `nvidia-smi topo` that select the matrix. `timeout` is in seconds.
    """
    label = f"nvidia-smi topo {' '.join(options)}"
    command = system.which("nvidia-smi")
    if command is None:
        return Absent(label, "no nvidia-smi on PATH")
    result = system.run([command, "topo", *options], timeout=timeout, key=label)
    matrix = parse_smi_topo(result.stdout).matrix if result.ok else {}
    gpus = [name for name in matrix if name.startswith("GPU")]
    pairs = {
        f"{gpu}-{peer}": matrix[gpu][peer]
        for number, gpu in enumerate(gpus)
        for peer in gpus[number + 1 :]
        if peer in matrix[gpu]
    }
    if not pairs:
        return Unknown(f"{label} {result.describe_outcome()}", label)
    return Known(pairs, label)
