"""Kernel log, nvidia-smi and /proc: parsers on real lines, probes on small simulated machines."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.core.facts import NOTEBOOK_COMMAND, Absent, Known, MachineFacts, PciGpu, SmiProcess, Unknown
from tfdoctor.probes import kernel
from tfdoctor.probes.parsers.kernel_log import EVENT_PATTERNS, parse_kernel_log
from tfdoctor.probes.parsers.smi_health import parse_smi_health
from tfdoctor.probes.processes import identify_processes
from tfdoctor.system import LiveSystem, RecordedSystem

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = MachineFacts(
    "Linux", "x86_64", "6.1.0-18-amd64", None, "debian", (), "12", frozenset(), None, None, False
)
GPU = PciGpu("0000:01:00.0", "2684", None)


def make_machine(folder: Path, **host: Any) -> RecordedSystem:
    """Return a recorded machine with these facts."""
    (folder / "host.json").write_text(json.dumps({"schema_version": 1, **host}), encoding="utf-8")
    return RecordedSystem(folder)


# ---------------------------------------------------------------- the kernel's log

# Lines that users posted from dmesg, the journal and syslog, with host names and identifiers replaced.
EVENT_LINES = (
    ("[    8.8] NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.", "xid", 79, "0000:2b:00.0"),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid", 14, "0000:03:00.0"),
    (
        ("Jun 11 09:44:44 box kernel: NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to "
        "0x2 (OS Reboot)"),
        "xid", 154, "0000:01:00.0",
    ),
    ("[1231741.378609] NVRM: Xid (PCI:0009:01:00): 43, pid=3188489, name=trigger_xid, channel 0x0b00000a",
     "xid", 43, "0009:01:00.0"),
    ("[ 1505.802779] NVRM: RmInitAdapter failed! (0x30:0xffffffff:899)", "init-failed", None, None),
    ("[   18.0] NVRM: GPU 0000:01:00.0 is already bound to vfio-pci.", "taken", None, "0000:01:00.0"),
    (
        ("[Mon May 25 05:20:57 2026] NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:20b0)\n"
        "                           NVRM: installed in this system is not supported by the\n"
        "                           NVRM: NVIDIA 580.126.09 driver release."),
        "not-supported", None, "0000:05:00.0",
    ),
    (
        ("[    9.424670] NVRM: API mismatch: the client 'kwin_wayland' (pid 1005)\n"
        "               NVRM: has the version 595.84, but this kernel module has\n"
        "               NVRM: the version 595.80.  Please make sure that this"),
        "api-mismatch", None, None,
    ),
    (
        ("Jun 30 11:07:05 gpu-0 kernel: NVRM: API mismatch: the client has the version 535.54.03, but\n"
        "                              NVRM: this kernel module has the version 530.30.02.  Please"),
        "api-mismatch", None, None,
    ),
    ("[    9.3] Lockdown: systemd-modules: unsigned module loading is restricted", "unsigned", None, None),
    ("[    7.1] Loading of module with unavailable key is rejected", "unsigned", None, None),
    (
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
        "NVRM: BAR1 is 0M @ 0x00000000 (PCI:0001:00.0)"),
        "bad-bar", None, None,
    ),
    (("NVRM: The NVIDIA GeForce 210 GPU installed in this system is\nNVRM:  supported through the NVIDIA 340.xx Legacy "
     "drivers. Please"), "legacy", None, None),
    ("[   19.5] NVRM: GPU 0000:01:00.0: this card requires use of the NVIDIA open kernel modules.",
     "needs-open", None, "0000:01:00.0"),
    ("[   19.5] nvidia 0000:01:00.0: Direct firmware load for nvidia/550.54.14/gsp_ga10x.bin failed with error -2",
     "firmware-missing", None, "0000:01:00.0"),
    ("[   19.5] nvidia: disagrees about version of symbol module_layout", "wrong-kernel", None, None),
    ("[   19.5] nvidia: probe of 0000:82:00.0 failed with error -1", "probe-failed", None, "0000:82:00.0"),
    ("[   19.5] NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "bus-lost", None, "0000:01:00.0"),
)  # fmt: skip
ORDINARY_LINES = (
    "[    7.1] nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "[    7.1] nvidia: module license 'NVIDIA' taints kernel.",
    "[    7.1] nvidia-nvlink: Nvlink Core is being initialized, major device number 508",
    "[    7.2] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024",
    "[    7.3] nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  550.54.14",
    "[    7.4] NVRM: GPU at PCI:0000:01:00: GPU-1f2e3d4c-5b6a-4788-9000-000000000000",
    "[    7.5] vboxdrv: module verification failed: signature and/or required key missing",
    "[    7.6] usb 1-1: device descriptor read/64, failed with error -110",
)


@pytest.mark.parametrize(("text", "kind", "xid", "address"), EVENT_LINES)
def test_log_line_is_recognised(text: str, kind: str, xid: int | None, address: str | None) -> None:
    (event,) = parse_kernel_log(text)
    assert (event.kind, event.xid, event.pci_bus_id, event.count) == (kind, xid, address, 1)


def test_every_event_kind_has_a_real_line() -> None:
    assert {kind for _, kind, _, _ in EVENT_LINES} == {"xid", *(kind for kind, _ in EVENT_PATTERNS)}


@pytest.mark.parametrize("line", ORDINARY_LINES)
def test_ordinary_line_is_no_event(line: str) -> None:
    assert parse_kernel_log(line) == ()


def test_repeated_events_are_counted() -> None:
    line = "[ 1.0] NVRM: Xid (PCI:0000:01:00): 31, pid={}, name=python3, Ch 00000008\n"
    (event,) = parse_kernel_log("".join(line.format(pid) for pid in range(5)))
    assert (event.count, event.process) == (5, "python3 (4)")


def test_only_events_since_the_last_boot_count() -> None:
    event = "[ 8.0] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n"
    boot = "[ 0.0] Linux version 6.1.0-18-amd64 (debian)\n"
    assert parse_kernel_log(event + boot) == ()
    assert len(parse_kernel_log(boot + event)) == 1


def test_successful_load_clears_earlier_load_failures() -> None:
    text = "[ 1.0] NVRM: Xid (PCI:0000:01:00): 48, pid=1, name=x, DBE\n[ 2.0] NVRM: RmInitAdapter failed! (0x1:0x2:3)\n"
    loaded = "[ 3.0] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n"
    assert [event.kind for event in parse_kernel_log(text + loaded)] == ["xid"]


def test_flooded_log_is_parsed_quickly() -> None:
    line = "[ 1.0] NVRM: nvAssertFailedNoLog: Assertion failed: Reset required " + "x " * 150 + "\n"
    began = time.process_time()
    parse_kernel_log(line * 20_000)
    assert time.process_time() - began < 5


@settings(max_examples=60, deadline=None)
@given(text=st.lists(st.sampled_from([*(line for line, *_ in EVENT_LINES), *ORDINARY_LINES, "", "\x1b[1m", "NVRM: "]),
                     max_size=12).map("\n".join) | st.text(max_size=300))  # fmt: skip
def test_any_text_is_parsed(text: str) -> None:
    for event in parse_kernel_log(text):
        assert event.text
        assert "\x1b" not in event.text
    assert isinstance(parse_smi_health(text), tuple)


REFUSED_DMESG = {"returncode": 1, "stderr": "dmesg: read kernel buffer failed: Operation not permitted\n"}
XID_LINE = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ({"which": {"dmesg": "/usr/bin/dmesg"}, "commands": {"dmesg": {"stdout": XID_LINE}}}, "dmesg"),
        (
            {
                "which": {"dmesg": "/usr/bin/dmesg", "tail": "/usr/bin/tail"},
                "commands": {
                    "dmesg": REFUSED_DMESG,
                    "tail -c 1048576 /var/log/kern.log": {"stdout": XID_LINE},
                },
                "files": {"/var/log/kern.log": ""},
            },
            "tail -c 1048576 /var/log/kern.log",
        ),
    ],
)
def test_log_is_read_from_the_first_readable_source(
    tmp_path: Path, host: dict[str, Any], source: str
) -> None:
    fact = kernel.probe_log(make_machine(tmp_path, **host), MACHINE, timeout=1)
    assert isinstance(fact, Known)
    assert fact.source == source
    assert [event.xid for event in fact.value] == [79]


def test_forbidden_log_is_unknown_and_missing_log_absent(tmp_path: Path) -> None:
    system = make_machine(tmp_path, which={"dmesg": "/usr/bin/dmesg"}, commands={"dmesg": REFUSED_DMESG})
    fact = kernel.probe_log(system, MACHINE, timeout=1)
    assert isinstance(fact, Unknown)
    assert "Operation not permitted" in fact.why
    assert isinstance(kernel.probe_log(make_machine(tmp_path), MACHINE, timeout=1), Absent)


# ---------------------------------------------------------------- the module on the disk


@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("updates/dkms/nvidia.ko.zst: kernel/drivers/acpi/video.ko.zst", True),
        ("kernel/drivers/video/nvidia.ko:", True),
        ("kernel/nvidia-550/nvidia.ko: kernel/drivers/i2c/i2c-core.ko", True),
        ("updates/dkms/nvidia-current.ko.xz:", True),
        ("extra/nvidia/nvidia.ko.xz:", True),
        ("updates/dkms/nvidia_367.ko:", True),
        ("/lib/modules/5.14.0/weak-updates/nvidia/nvidia.ko:", True),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:", False),
        ("updates/dkms/nvidia-fs.ko:", False),
        ("updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko", False),
        ("kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko:", False),
    ],
)
def test_module_file_names_of_distributions(line: str, there: bool) -> None:
    assert bool(kernel.MODULE_FILE.search(f"kernel/net/a.ko:\n{line}\nkernel/net/b.ko:\n")) is there


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("blacklist nvidia\n", "blacklist nvidia"),
        ("# x\n  blacklist   nvidia  # off\n", "blacklist nvidia"),
        ("alias nvidia off\n", "alias nvidia off"),
        ("install nvidia /bin/false\n", "install nvidia /bin/false"),
        ("blacklist nvidiafb\nblacklist nvidia-drm\n", None),
        ("#blacklist nvidia\n", None),
        ("install nvidia /sbin/modprobe --ignore-install nvidia-current $CMDLINE_OPTS\n", None),
        ("options nvidia NVreg_OpenRmEnableUnsupportedGpus=1\n", None),
    ],
)
def test_modprobe_lines_that_block_the_module(text: str, line: str | None) -> None:
    match = kernel.BLOCKING_LINE.search(text)
    assert (" ".join(match[1].split()) if match else None) == line


def test_module_files_are_skipped_if_it_is_loaded(tmp_path: Path) -> None:
    loaded = make_machine(tmp_path, files={kernel.MODULE_VERSION_FILE: "NVRM version: …\n"})
    assert isinstance(kernel.probe_module_files(loaded, MACHINE, timeout=1, signature=False), Absent)
    empty = make_machine(tmp_path)
    assert isinstance(kernel.probe_module_files(empty, MACHINE, timeout=1, signature=False), Unknown)


def test_dkms_name_matches_drivers_only() -> None:
    assert all(
        kernel.DKMS_NAME.match(name)
        for name in ("nvidia", "nvidia-current", "nvidia-open", "nvidia-367", "nvidia-srv")
    )
    assert not any(
        kernel.DKMS_NAME.match(name) for name in ("nvidia-fs", "nvidia-peermem", "virtualbox", "nvidiafb")
    )


@pytest.mark.parametrize(
    ("raw", "on"), [(b"\x06\x00\x00\x00\x01", True), (b"\x06\x00\x00\x00\x00", False), (b"\x06\x00", None)]
)
def test_secure_boot_is_read_from_the_fifth_byte(tmp_path: Path, raw: bytes, on: bool | None) -> None:
    path = tmp_path / kernel.SECURE_BOOT_FILE.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    fact = kernel.probe_secure_boot(LiveSystem(str(tmp_path)), MACHINE)
    assert (fact.value if isinstance(fact, Known) else None) is on


def test_secure_boot_without_firmware_variables(tmp_path: Path) -> None:
    assert isinstance(kernel.probe_secure_boot(LiveSystem(str(tmp_path)), MACHINE), Absent)
    (tmp_path / "sys/firmware/efi").mkdir(parents=True)
    assert isinstance(kernel.probe_secure_boot(LiveSystem(str(tmp_path)), MACHINE), Unknown)


def test_lost_gpu_is_found_and_suspended_gpu_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices" / GPU.address
    (folder / "power").mkdir(parents=True)
    (folder / "config").write_bytes(b"\xff" * 64)
    system = LiveSystem(str(tmp_path))
    assert kernel.probe_unresponsive_gpus(system, (GPU,)) == (GPU.address,)
    (folder / "power" / "runtime_status").write_text("suspended\n")
    assert kernel.probe_unresponsive_gpus(system, (GPU,)) == ()
    (folder / "power" / "runtime_status").write_text("active\n")
    (folder / "config").write_bytes(bytes.fromhex("de108426") + b"\0" * 60)
    assert kernel.probe_unresponsive_gpus(system, (GPU,)) == ()


def test_no_command_is_run_without_nvidia_hardware(tmp_path: Path) -> None:
    class Silent(LiveSystem):
        def run(self, *_: Any, **__: Any) -> Any:
            pytest.fail("a command was run")

    facts = kernel.probe(Silent(str(tmp_path)), MACHINE, lambda: Absent("bus", "no card"), timeout=1)
    assert isinstance(facts.log, Absent)
    assert isinstance(facts.packages, Absent)
    unreadable = kernel.probe(Silent(str(tmp_path)), MACHINE, lambda: Unknown("no /sys", "bus"), timeout=1)
    assert isinstance(unreadable.log, Unknown)


# ---------------------------------------------------------------- packages


def test_rpm_and_pacman_packages_are_listed(tmp_path: Path) -> None:
    rpm = make_machine(
        tmp_path,
        which={"rpm": "/usr/bin/rpm"},
        commands={
            "rpm -q": {
                "returncode": 4,
                "stdout": "package nvidia-driver-cuda-libs is not installed\nxorg-x11-drv-nvidia-cuda-libs|550.54.14\n",
            }
        },
    )
    fact = kernel.probe_packages(rpm, timeout=1)
    assert isinstance(fact, Known)
    assert [(package.name, package.version) for package in fact.value] == [
        ("xorg-x11-drv-nvidia-cuda-libs", "550.54.14")
    ]
    arch = make_machine(
        tmp_path, directories={"/var/lib/pacman/local": ["nvidia-utils-550.54.14-2", "nvtop-3.0-1"]}
    )
    fact = kernel.probe_packages(arch, timeout=1)
    assert isinstance(fact, Known)
    assert [(package.name, package.version) for package in fact.value] == [("nvidia-utils", "550.54.14")]


def test_removed_dpkg_packages_do_not_count(
    tmp_path: Path,
) -> None:
    info = {"/var/lib/dpkg/info": ["libc6:amd64.list", "libnvidia-compute-535:amd64.list"]}
    removed = make_machine(
        tmp_path,
        directories=info,
        commands={"dpkg-query -W": {"stdout": "rc |libnvidia-compute-535|535.1\n"}},
    )
    assert isinstance(kernel.probe_packages(removed, timeout=1), Absent)
    other_packages = make_machine(tmp_path, directories={"/var/lib/dpkg/info": ["libc6:amd64.list"]})
    assert isinstance(kernel.probe_packages(other_packages, timeout=1), Absent)


# ---------------------------------------------------------------- processes


def test_processes_are_not_identified_in_a_container() -> None:
    processes = (SmiProcess(1, "python", 10),)
    assert identify_processes(LiveSystem(), processes, has_foreign_pids=True) == processes


def test_own_process_belongs_to_the_user() -> None:
    import os

    (process,) = identify_processes(LiveSystem(), (SmiProcess(os.getpid(), None, 10),))
    assert process.own is True
    assert process.name
    assert process.state is None


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("python3\0train.py\0--key=abc\0", "train.py"),
        ("python3\0-u\0/home/user/a/train.py\0", "train.py"),
        ("python3\0-m\0pkg.train\0--key=abc\0", "-m pkg.train"),
        ("python3\0-c\0import secrets\0", ""),
        ("python3\0-m\0ipykernel_launcher\0-f\0x.json\0", NOTEBOOK_COMMAND),
        ("/usr/lib/xorg/Xorg\0:0\0", ""),
        ("", ""),
    ],
)
def test_command_line_is_reduced_to_the_program(tmp_path: Path, words: str, command: str) -> None:
    status = "Name:\tpython3\nState:\tZ (zombie)\nUid:\t1001\t1001\t1001\t1001\n"
    files = {"/proc/1/status": status, "/proc/7/status": status, "/proc/7/cmdline": words}
    (process,) = identify_processes(
        make_machine(tmp_path, files=files, platform={"uid": "1000"}), (SmiProcess(7, None, 1),)
    )
    assert process.command == command
    assert (process.own, process.user, process.state) == (False, "1001", "zombie")


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{'ab' * 32}.scope", "docker abababababab"),
        (f"12:memory:/docker/{'cd' * 32}\n0::/system.slice", "docker cdcdcdcdcdcd"),
        (f"0::/machine.slice/libpod-{'01' * 32}.scope/container", "podman 010101010101"),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice/cri-containerd-{'ef' * 32}.scope",
            "containerd efefefefefef",
        ),
        (f"0::/kubepods/burstable/pod11-22/{'23' * 32}", "Kubernetes 232323232323"),
        ("0::/user.slice/user-1000.slice/session-2.scope", ""),
        (f"0::/docker-{'ab' * 40}.scope", ""),
        ("0::/docker-short.scope", ""),
    ],
)
def test_container_is_read_from_the_cgroup(tmp_path: Path, cgroup: str, container: str) -> None:
    status = "Name:\tpython3\nState:\tS\nUid:\t0\t0\t0\t0\n"
    files = {"/proc/1/status": status, "/proc/7/status": status, "/proc/7/cgroup": cgroup}
    (process,) = identify_processes(make_machine(tmp_path, files=files), (SmiProcess(7, None, 1),))
    assert process.container == container


def test_hidden_process_is_not_reported_as_gone(tmp_path: Path) -> None:
    (process,) = identify_processes(make_machine(tmp_path), (SmiProcess(7, "x", 1),))
    assert process.state is None
    (process,) = identify_processes(
        make_machine(tmp_path, files={"/proc/1/status": ""}), (SmiProcess(7, "x", 1),)
    )
    assert process.state == "gone"


# ---------------------------------------------------------------- one answer by itself

DENIED = ["read", 13, "Permission denied"]


@pytest.mark.parametrize(
    ("commands", "which", "files", "why"),
    [
        ({"dmesg": {"stdout": XID_LINE, "returncode": 1}}, ["dmesg"], {}, "dmesg: exited with status 1"),
        ({"dmesg": {"stdout": " \n"}}, ["dmesg"], {}, "dmesg: printed nothing"),
        (
            {"dmesg": REFUSED_DMESG},
            ["dmesg", "tail"],
            {},
            "dmesg: read kernel buffer failed: Operation not permitted",
        ),
        (
            {"dmesg": REFUSED_DMESG, "journalctl -k -b -q --no-pager -n 20000": {"stdout": ""}},
            ["dmesg", "journalctl"],
            {},
            "Operation not permitted; journalctl: printed nothing",
        ),
    ],
)
def test_log_that_cannot_be_read(
    tmp_path: Path, commands: dict[str, Any], which: list[str], files: dict[str, str], why: str
) -> None:
    host = {"commands": commands, "which": {name: f"/bin/{name}" for name in which}, "files": files}
    fact = kernel.probe_log(make_machine(tmp_path, **host), MACHINE, timeout=1)
    assert isinstance(fact, Unknown)
    assert why in fact.why


def test_parts_that_wsl_and_containers_do_not_have(tmp_path: Path) -> None:
    system = make_machine(tmp_path, exists={"/sys/firmware/efi": False})
    wsl, container = replace(MACHINE, wsl=2), replace(MACHINE, container="docker")
    assert isinstance(kernel.probe_log(system, wsl, timeout=1), Absent)
    assert isinstance(kernel.probe_module_files(system, wsl, timeout=1, signature=False), Absent)
    assert isinstance(kernel.probe_module_files(system, container, timeout=1, signature=False), Unknown)
    assert isinstance(
        kernel.probe_module_files(system, replace(MACHINE, kernel=""), timeout=1, signature=False), Unknown
    )
    assert isinstance(kernel.probe_secure_boot(system, wsl), Absent)
    assert isinstance(kernel.probe_secure_boot(system, container), Unknown)
    assert isinstance(kernel.probe_secure_boot(system, MACHINE), Absent)
    denied = make_machine(tmp_path, errors={kernel.SECURE_BOOT_FILE: DENIED})
    assert kernel.probe_secure_boot(denied, MACHINE) == Unknown(
        f"{kernel.SECURE_BOOT_FILE}: Permission denied", kernel.SECURE_BOOT_FILE
    )
    windows = kernel.probe(system, replace(MACHINE, system="Windows"), lambda: Absent("bus"), timeout=1)
    assert isinstance(windows.packages, Absent)
    assert windows.packages.source == "Windows"


MODULES = f"/lib/modules/{MACHINE.kernel}"


def test_module_files_of_the_running_and_other_kernels(tmp_path: Path) -> None:
    system = make_machine(
        tmp_path,
        files={
            f"{MODULES}/modules.dep": "updates/nvidia.ko: x.ko\n/abs/nvidia-open.ko.zst:\nother.ko:\n",
            f"{MODULES}/build/Makefile": "",
            "/lib/modules/5.1/modules.dep": "nvidia.ko:\n",
            "/lib/modules/5.2/modules.dep": "other.ko:\n",
            "/var/lib/dkms/nvidia/550.1/build/make.log": "",
            "/var/lib/dkms/nvidia/550.1/6.1.0/x": "",
            "/var/lib/dkms/nvidia/550.1/kernel-x/x": "",
            "/var/lib/dkms/nvidia/550.1/source/x": "",
            "/var/lib/dkms/nvidia/560.2/6.2.0/x": "",
            "/var/lib/dkms/nvidia/kernel-6/x": "",
            "/var/lib/dkms/nvidia/9file": "",
            "/var/lib/dkms/nvidia-fs/1.0/6.1.0/x": "",
            "/etc/modprobe.d/a.conf": "blacklist nvidia\n",
            "/etc/modprobe.d/b.txt": "blacklist nvidia\n",
            "/lib/modprobe.d/c.conf": "alias nvidia off\n",
            "/usr/lib/modprobe.d/d.conf": "blacklist nouveau\n",
            "/proc/cmdline": "quiet modprobe.blacklist=nouveau,nvidia splash\n",
        },
        links={"/run/modprobe.d": "/etc/modprobe.d"},
        which={"modinfo": "/sbin/modinfo"},
        commands={"modinfo -F signer": {"stdout": "DKMS key\n"}},
    )
    fact = kernel.probe_module_files(system, MACHINE, timeout=1, signature=True)
    assert isinstance(fact, Known)
    files = fact.value
    assert files.running == (f"{MODULES}/updates/nvidia.ko", "/abs/nvidia-open.ko.zst")
    assert (files.other_kernels, files.headers, files.signed) == (("5.1",), True, True)
    assert [(module.version, module.kernels, bool(module.failed)) for module in files.dkms] == [
        ("550.1", ("6.1.0",), True),
        ("560.2", ("6.2.0",), False),
    ]
    assert files.blocked == (
        ("/etc/modprobe.d/a.conf", "blacklist nvidia"),
        ("/lib/modprobe.d/c.conf", "alias nvidia off"),
        ("/proc/cmdline", "modprobe.blacklist=nouveau,nvidia"),
    )
    fact = kernel.probe_module_files(system, MACHINE, timeout=1, signature=False)
    assert isinstance(fact, Known)
    assert fact.value.signed is None


@pytest.mark.parametrize(
    ("host", "signed"),
    [
        ({}, None),
        ({"exists": {"/sbin/modinfo": True}, "commands": {"modinfo -F signer": {"stdout": "\n"}}}, False),
        (
            {
                "which": {"modinfo": "/x"},
                "commands": {"modinfo -F signer": {"stdout": "key", "returncode": 1}},
            },
            None,
        ),
    ],
)
def test_signature_of_a_module(tmp_path: Path, host: dict[str, Any], signed: bool | None) -> None:
    assert kernel._is_signed(make_machine(tmp_path, **host), "/x.ko", 1) is signed


def test_nothing_is_blocked_or_signed_without_module_files(tmp_path: Path) -> None:
    system = make_machine(
        tmp_path, files={f"{MODULES}/modules.dep": "", "/proc/cmdline": "modprobe.blacklist=nvidia"}
    )
    fact = kernel.probe_module_files(system, MACHINE, timeout=1, signature=True)
    assert isinstance(fact, Known)
    assert (fact.value.running, fact.value.blocked, fact.value.signed, fact.value.headers) == (
        (),
        (),
        None,
        False,
    )
    kernels = {f"/lib/modules/5.{number:02}/modules.dep": "nvidia.ko:\n" for number in range(12)}
    system = make_machine(tmp_path, files={f"{MODULES}/modules.dep": "", **kernels})
    fact = kernel.probe_module_files(system, MACHINE, timeout=1, signature=True)
    assert isinstance(fact, Known)
    assert fact.value.other_kernels == tuple(f"5.{number:02}" for number in range(4, 12))


@pytest.mark.parametrize(
    ("host", "gpus", "reads"),
    [
        ({}, Absent("bus"), False),
        ({}, Known((GPU,), "bus"), True),
        ({"files": {kernel.MODULE_VERSION_FILE: "x"}}, Absent("bus"), True),
        ({"files": {kernel.PRIME_FILE: "intel\n"}}, Absent("bus"), True),
    ],
)
def test_what_makes_the_kernel_worth_reading(
    tmp_path: Path, host: dict[str, Any], gpus: Any, reads: bool
) -> None:
    facts = kernel.probe(make_machine(tmp_path, **host), MACHINE, lambda: gpus, timeout=1)
    assert (facts.packages.source == "dpkg, pacman, rpm") is reads
    assert (facts.log.source == "/sys/bus/pci/devices") is not reads
    prime = make_machine(tmp_path, errors={kernel.PRIME_FILE: DENIED})
    assert isinstance(kernel.probe(prime, MACHINE, lambda: gpus, timeout=1).prime, Unknown)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"stdout": "ii |libcuda1|550\nrc |libcuda1|1\nii |bad\n"}, [("libcuda1", "550")]),
        ({"stdout": "ii |libcuda1|550\n", "returncode": 1}, [("libcuda1", "550")]),
        ({"stdout": "", "returncode": 1}, None),
        ({"stdout": ""}, []),
    ],
)
def test_dpkg_packages(
    tmp_path: Path, answer: dict[str, Any], expected: list[tuple[str, str]] | None
) -> None:
    info = {"/var/lib/dkpg": [], "/var/lib/dpkg/info": ["libcuda1:amd64.list", "libcuda1.list"]}
    fact = kernel.probe_packages(
        make_machine(tmp_path, directories=info, commands={"dpkg-query -W": answer}), timeout=1
    )
    if expected is None:
        assert isinstance(fact, Unknown)
    else:
        found = fact.value if isinstance(fact, Known) else ()
        assert [(package.name, package.version) for package in found] == expected


def test_package_managers_that_do_not_answer(tmp_path: Path) -> None:
    assert isinstance(kernel.probe_packages(make_machine(tmp_path), timeout=1), Absent)
    hung = make_machine(tmp_path, which={"rpm": "/bin/rpm"}, commands={"rpm -q": {"failure": "timeout"}})
    assert isinstance(kernel.probe_packages(hung, timeout=1), Unknown)


def test_installer_of_nvidia(tmp_path: Path) -> None:
    log = "nvidia-installer log file\ninstaller version: 550.54.14\n"
    for files, expected in (
        ({kernel.UNINSTALLER_PATH: "", kernel.INSTALLER_LOG: log}, "550.54.14"),
        ({kernel.UNINSTALLER_PATH: ""}, ""),
        ({kernel.INSTALLER_LOG: log}, None),
    ):
        fact = kernel.probe_runfile(make_machine(tmp_path, files=files))
        assert (fact.value if isinstance(fact, Known) else None) == expected


TOPO = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV4\tSYS\nGPU1\tNV4\tX\tSYS\nNIC0\tSYS\tSYS\tX\n"
NVIDIA = replace(GPU, driver="nvidia")


@pytest.mark.parametrize(
    ("gpus", "host", "expected"),
    [
        ((NVIDIA, NVIDIA), {"stdout": TOPO}, {"GPU0-GPU1": "NV4"}),
        ((NVIDIA, NVIDIA), {"stdout": TOPO, "returncode": 1}, Unknown),
        ((NVIDIA, NVIDIA), {"stdout": "?"}, Unknown),
        ((NVIDIA, GPU), {"stdout": TOPO}, Absent),
        ((NVIDIA, NVIDIA), None, Absent),
    ],
)
def test_links_between_gpus(
    tmp_path: Path, gpus: tuple[PciGpu, ...], host: dict[str, Any] | None, expected: Any
) -> None:
    which = {"nvidia-smi": "/bin/nvidia-smi"} if host is not None else {}
    system = make_machine(tmp_path, which=which, commands={"nvidia-smi topo -m": host or {}})
    fact = kernel.probe_links(system, Known(gpus, "bus"), timeout=1)
    assert fact.value == expected if isinstance(fact, Known) else isinstance(fact, expected)
    unknown = Unknown("x")
    assert kernel.probe_links(system, unknown, timeout=1) is unknown
    assert isinstance(kernel.probe_links(system, Absent("x"), timeout=1), Absent)
