"""Hosts with a remarkable kernel, GPU or driver installation, registered by `make.py`.

The lines of kernel logs, of `nvidia-smi -q -x` and of `nvidia-smi topo -m` are shortened from real ones that users
posted, with other numbers. `register` receives the names of make.py.
"""

from __future__ import annotations

from typing import Any

KERNEL = "5.15.0-105-generic"
OLDER = "5.15.0-102-generic"
MODULES = "/usr/lib/modules"
DEP = "kernel/drivers/net/dummy.ko:\n"
BUILT = "updates/dkms/nvidia-modeset.ko: updates/dkms/nvidia.ko\nupdates/dkms/nvidia.ko:\n"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
START = (
    "[    0.000000] Linux version 5.15.0-105-generic (buildd@lcy02-amd64-007) (gcc 11.4.0) #115-Ubuntu SMP\n"
)
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n"
)


def dmesg(machine: Any, text: str) -> None:
    """Add the kernel log as dmesg prints it to a user with permission to read it."""
    machine.which["dmesg"] = "/usr/bin/dmesg"
    machine.commands["dmesg"] = {"stdout": START + text}


def unloaded(machine: Any) -> None:
    """Unload the kernel module, but keep the libraries."""
    machine.no_kernel_module()
    machine.init(100, "CUDA_ERROR_NO_DEVICE")
    machine.smi_says(NO_DRIVER, 9)
    machine.nvml = {
        "loaded": True, "error": "", "init": 9, "init_error": "Driver Not Loaded", "devices": []
    }  # fmt: skip


def kernels(machine: Any, *built: str, headers: bool = True) -> None:
    """Add two installed kernels; `built` lists those with the module."""
    machine.directories[MODULES] = [OLDER, KERNEL]
    for kernel in (OLDER, KERNEL):
        machine.files[f"{MODULES}/{kernel}/modules.dep"] = DEP + (BUILT if kernel in built else "")
    if headers:
        machine.directories[f"{MODULES}/{KERNEL}/build"] = ["Makefile"]


def dkms(machine: Any, *built: str, failed: bool = False) -> None:
    """Add DKMS with the driver's sources."""
    base = "/var/lib/dkms/nvidia/550.54.14"
    folders = sorted([*built, "source", *(["build"] if failed else [])])
    machine.directories |= {
        "/var/lib/dkms": ["nvidia"], "/var/lib/dkms/nvidia": ["550.54.14"], base: folders,
    }  # fmt: skip
    if failed:
        machine.files[f"{base}/build/make.log"] = "make: *** [Makefile:82: modules] Error 2\n"


def packages(machine: Any, *entries: tuple[str, str]) -> None:
    """Add packages in dpkg's database."""
    machine.directories["/var/lib/dpkg/info"] = sorted(f"{name}:amd64.list" for name, _ in entries)
    machine.commands["dpkg-query -W"] = {
        "stdout": "".join(f"ii |{name}|{version}\n" for name, version in entries)
    }


def condition(report: str, *, extra: str = "", processes: str = "") -> str:
    """Return the output of `nvidia-smi -q -x` with more sections for each GPU."""
    listed = f"    <processes>{processes}</processes>\n" if processes else ""
    return report.replace("  </gpu>\n", f"{extra}{listed}  </gpu>\n")


def process(pid: int, name: str, used: int, kind: str = "C") -> str:
    """Return the entry of a process in the output of `nvidia-smi -q -x`."""
    return (
        f"<process_info><pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name>"
        f"<used_memory>{used} MiB</used_memory></process_info>"
    )


def status(name: str, uid: int, state: str = "S (sleeping)") -> str:
    """Return the content of /proc/PID/status."""
    return f"Name:\t{name}\nUmask:\t0022\nState:\t{state}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"


def register(make: Any) -> None:  # one host after the other
    """Register these hosts; `make` has the names of make.py."""
    host, healthy, smi_xml, two = make.host, make.healthy, make.smi_xml, make.two
    _register_log_hosts(host, healthy)
    _register_module_hosts(make)
    _register_installation_hosts(make)
    _register_condition_hosts(host, healthy, smi_xml, make)
    _register_other_hosts(host, healthy, smi_xml, two)


def _register_log_hosts(host: Any, healthy: Any) -> None:
    @host("TFD102", "TFD112", "TFD116", cause="no-device", registered=False)
    def fallen_off_the_bus() -> Any:
        """Xid 79 in the kernel's log, and no device left."""
        machine = healthy()
        machine.init(100, "CUDA_ERROR_NO_DEVICE")
        machine.smi_says("No devices were found\n", 6)
        machine.nvml |= {"count": 0, "devices": []}
        dmesg(
            machine,
            "[  812.101010] NVRM: GPU at PCI:0000:01:00: GPU-1f2e3d4c-5b6a-4788-9000-000000000000\n"
            "[  812.101012] NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
            "bus.\n[  812.101013] NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.\n"
            "[  812.101015] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node "
            "Reboot Required)\n",
        )
        return machine

    @host("TFD105", "TFD116", cause="driver-init-unknown", registered=False)
    def adapter_does_not_start() -> Any:
        """RmInitAdapter failed: the module runs and cannot bring the card up."""
        machine = healthy()
        machine.init(999, "CUDA_ERROR_UNKNOWN")
        dmesg(
            machine,
            "[   41.2] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2351)\n"
            "[   41.2] NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0\n",
        )
        return machine

    @host("TFD116")
    def memory_errors_in_the_log() -> Any:
        """The card works, and its memory had an error that could not be corrected."""
        machine = healthy()
        dmesg(
            machine,
            "[ 9001.1] NVRM: Xid (PCI:0000:01:00): 48, pid=4242, name=python3, An uncorrectable double bit error (DBE) "
            "has been detected on GPU in the framebuffer at partition 6, subpartition 0.\n"
            "[ 9001.2] NVRM: Xid (PCI:0000:01:00): 63, pid=4242, name=python3, Row Remapper: New row marked for "
            "remapping, reset gpu to activate.\n",
        )
        return machine

    @host("TFD116")
    def programs_errors_in_the_log() -> Any:
        """Only what a program did: Xid 31 and 43; read from the journal, since dmesg is for root."""
        machine = healthy()
        machine.which |= {"dmesg": "/usr/bin/dmesg", "journalctl": "/usr/bin/journalctl"}
        machine.commands["dmesg"] = {
            "returncode": 1, "stderr": "dmesg: read kernel buffer failed: Operation not permitted\n"
        }  # fmt: skip
        machine.commands["journalctl -k -b -q --no-pager -n 20000"] = {
            "stdout": "Mar 04 09:00:00 box kernel: Linux version 5.15.0-105-generic\n"
            "Mar 04 09:00:07 box kernel: nvidia: module verification failed: signature and/or required key missing - "
            "tainting kernel\n"
            "Mar 04 09:30:00 box kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=777, name=python3, Ch 00000008, intr "
            "00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_00000000.\n"
            "Mar 04 09:30:00 box kernel: NVRM: Xid (PCI:0000:01:00): 43, pid=777, name=python3, Ch 00000008\n"
        }
        return machine

    @host()
    def log_for_root_only() -> Any:
        """Neither dmesg nor the journal is for this user: a check that could not be made."""
        machine = healthy()
        machine.which |= {"dmesg": "/usr/bin/dmesg", "journalctl": "/usr/bin/journalctl"}
        machine.commands["dmesg"] = {
            "returncode": 1, "stderr": "dmesg: read kernel buffer failed: Operation not permitted\n"
        }  # fmt: skip
        machine.commands["journalctl -k -b -q --no-pager -n 20000"] = {
            "returncode": 1, "stderr": "No journal files were opened due to insufficient permissions.\n"
        }  # fmt: skip
        return machine

    @host()
    def log_of_a_mended_driver() -> Any:
        """What went wrong before the module was loaded well, and before the last start, is over."""
        machine = healthy()
        dmesg(machine, "")
        machine.commands["dmesg"]["stdout"] = (
            "[  812.1] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n" + START
            + "[   30.1] NVRM: API mismatch: the client has the version 550.54.14, but\n"
            "              NVRM: this kernel module has the version 535.161.08.  Please\n"
            "              NVRM: make sure that this kernel module and all NVIDIA driver\n"
            "              NVRM: components have the same version.\n"
            "[   95.4] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n"
        )  # fmt: skip
        return machine


def _register_module_hosts(make: Any) -> None:
    host, healthy = make.host, make.healthy

    @host("TFD112", "TFD117", cause="no-device", registered=False)
    def kernel_updated() -> Any:
        """DKMS built the module for the kernel before; the new one's headers are missing."""
        machine = healthy()
        unloaded(machine)
        kernels(machine, OLDER, headers=False)
        dkms(machine, OLDER)
        return machine

    @host("TFD112", "TFD117", cause="no-device", registered=False)
    def build_failed() -> Any:
        """DKMS tried and failed; no kernel has a module."""
        machine = healthy(system=make.DEBIAN)
        unloaded(machine)
        kernels(machine)
        dkms(machine, failed=True)
        return machine

    @host("TFD112", "TFD118", cause="no-device", registered=False)
    def secure_boot_refuses() -> Any:
        """Secure Boot is on and the module was built here, unsigned."""
        machine = healthy()
        unloaded(machine)
        kernels(machine, OLDER, KERNEL)
        machine.files[SECURE_BOOT] = "\x06\x00\x00\x00\x01"
        machine.which["modinfo"] = "/usr/sbin/modinfo"
        machine.commands["modinfo -F signer"] = {"stdout": ""}
        dmesg(
            machine,
            "[    8.1] Lockdown: systemd-udevd: unsigned module loading is restricted; see man kernel_lockdown.7\n",
        )
        return machine

    @host("TFD102", "TFD112", cause="no-device", registered=False)
    def secure_boot_with_a_signed_module() -> Any:
        """Secure Boot is on, the module is signed and not loaded, the log says nothing: the reason is not known."""
        machine = healthy()
        unloaded(machine)
        kernels(machine, KERNEL)
        machine.files[SECURE_BOOT] = "\x06\x00\x00\x00\x01"
        machine.which["modinfo"] = "/usr/sbin/modinfo"
        machine.commands["modinfo -F signer"] = {"stdout": "box Secure Boot Module Signature key\n"}
        dmesg(machine, "")
        return machine

    @host("TFD112", "TFD119", cause="no-device", registered=False)
    def prime_select_intel() -> Any:
        """A laptop whose NVIDIA card prime-select has taken off the bus."""
        machine = healthy()
        unloaded(machine)
        machine.no_cards()
        kernels(machine, KERNEL)
        machine.files["/etc/prime-discrete"] = "off\n"
        return machine

    @host("TFD112", "TFD119", cause="no-device", registered=False)
    def module_blacklisted() -> Any:
        """envycontrol has forbidden the module to modprobe."""
        machine = healthy()
        unloaded(machine)
        kernels(machine, KERNEL)
        machine.directories["/etc/modprobe.d"] = ["blacklist-nvidia.conf", "nvidia-graphics-drivers.conf"]
        machine.files |= {
            "/etc/modprobe.d/blacklist-nvidia.conf": "blacklist nouveau\nblacklist nvidia\nalias nvidia off\n",
            "/etc/modprobe.d/nvidia-graphics-drivers.conf": "blacklist nouveau\nblacklist lbm-nouveau\n",
        }
        return machine


def _register_installation_hosts(make: Any) -> None:
    host, healthy = make.host, make.healthy

    @host("TFD120")
    def runfile_over_packages() -> Any:
        """NVIDIA's installer and Ubuntu's packages, of two branches; it works, until one is updated."""
        machine = healthy()
        machine.files |= {
            "/usr/bin/nvidia-uninstall": "",
            "/var/log/nvidia-installer.log": "nvidia-installer log file '/var/log/nvidia-installer.log'\ncreation "
            "time: Mon Mar  4 09:00:00 2024\ninstaller version: 550.54.14\n",
        }
        packages(machine, ("libnvidia-compute-535", "535.161.07-0ubuntu0.22.04.1"))
        machine.directories["/usr/lib/x86_64-linux-gnu"] = [
            "libcuda.so", "libcuda.so.1", "libcuda.so.535.161.07", "libcuda.so.550.54.14"
        ]  # fmt: skip
        return machine

    @host()
    def one_package() -> Any:
        """The driver as one package: nothing to tell."""
        machine = healthy()
        packages(machine, ("libnvidia-compute-550", "550.54.14-0ubuntu0.22.04.1"))
        machine.directories["/usr/lib/x86_64-linux-gnu"] = ["libcuda.so.1", "libcuda.so.550.54.14"]
        return machine

    @host("TFD120")
    def wsl2_with_driver_packages() -> Any:
        """WSL's own libcuda comes first; a Linux driver is installed beside it."""
        machine = make.wsl()
        packages(machine, ("libnvidia-compute-550", "550.54.14-0ubuntu0.22.04.1"))
        return machine

    @host("TFD303", cause="cpu-only-build", registered=False)
    def jetson_with_a_desktop_wheel() -> Any:
        """The wheel from the package index on a Jetson: built for the CPU."""
        machine = healthy()
        machine.host["platform"] = {
            "system": "Linux", "machine": "aarch64", "release": "5.15.136-tegra", "uid": "1000"
        }  # fmt: skip
        machine.files["/etc/nv_tegra_release"] = (
            "# R36 (release), REVISION: 3.0, GCID: 36191598, BOARD: generic\n"
        )
        machine.target["machine"] = "aarch64"
        machine.target["platform"] = "linux-aarch64"
        machine.target["tensorflow"]["build_info"] = (
            "build_info = collections.OrderedDict([('is_cuda_build', False), ('is_rocm_build', False)])\n"
        )
        machine.target["tensorflow"]["cuda_config"] = ""

        def ported(path: str) -> str:
            return path.replace("x86_64-linux-gnu", "aarch64-linux-gnu")

        machine.elf = {ported(path): {**entry, "machine": 183} for path, entry in machine.elf.items()}
        machine.links = {ported(path): ported(target) for path, target in machine.links.items()}
        machine.libcuda["path"] = ported(machine.libcuda["path"])
        machine.nvml["path"] = ported(machine.nvml["path"])
        machine.no_smi()
        return machine


def _register_condition_hosts(host: Any, healthy: Any, smi_xml: Any, make: Any) -> None:
    clocks = (
        "    <clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>"
        "<clocks_event_reason_hw_slowdown>{0}</clocks_event_reason_hw_slowdown>"
        "<clocks_event_reason_hw_thermal_slowdown>{0}</clocks_event_reason_hw_thermal_slowdown>"
        "<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap></clocks_event_reasons>\n"
    )
    ecc = (
        "    <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode><ecc_errors><volatile><sram_correctable>0"
        "</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity><dram_uncorrectable>{errors}"
        "</dram_uncorrectable></volatile><aggregate><dram_uncorrectable>{errors}</dram_uncorrectable></aggregate>"
        "</ecc_errors><remapped_rows><remapped_row_pending>{pending}</remapped_row_pending><remapped_row_failure>{failure}"
        "</remapped_row_failure></remapped_rows>\n"
    )

    def with_report(card: Any, extra: str) -> Any:
        machine = healthy(card)
        machine.smi_says(condition(smi_xml(machine), extra=extra), 0)
        return machine

    @host("TFD121")
    def row_remap_failed() -> Any:
        """Uncorrected errors, and no spare rows left."""
        return with_report(make.A100, ecc.format(errors=3, pending="Yes", failure="Yes"))

    @host("TFD121")
    def row_remap_pending() -> Any:
        """A bad row waits for the next reset: worth a line, no more."""
        return with_report(make.A100, ecc.format(errors=0, pending="Yes", failure="No"))

    @host()
    def ecc_in_order() -> Any:
        """A server's card in order; at its power limit, as a card that computes is."""
        return with_report(
            make.A100, ecc.format(errors=0, pending="No", failure="No") + clocks.format("Not Active")
        )

    @host("TFD122")
    def too_hot() -> Any:
        """Hardware thermal slowdown is active."""
        return with_report(
            make.RTX_3090,
            clocks.format("Active") + "    <temperature><gpu_temp>96 C</gpu_temp></temperature>\n",
        )

    @host("TFD122")
    def power_limit_lowered() -> Any:
        """Somebody has set half the card's power."""
        return with_report(
            make.RTX_3090,
            "    <gpu_power_readings><current_power_limit>180.00 W</current_power_limit><default_power_limit>350.00 W"
            "</default_power_limit></gpu_power_readings>\n",
        )

    @host("TFD123")
    def vgpu_without_licence() -> Any:
        """A virtual GPU whose licence server was not reached."""
        return with_report(
            make.A100,
            "    <gpu_virtualization_mode><virtualization_mode>VGPU</virtualization_mode></gpu_virtualization_mode>\n"
            "    <vgpu_software_licensed_product><licensed_product_name>NVIDIA Virtual Compute Server"
            "</licensed_product_name><license_status>Unlicensed (Restricted)</license_status>"
            "</vgpu_software_licensed_product>\n",
        )

    @host("TFD124")
    def server_without_persistence() -> Any:
        """A server's card that is let go of between programs."""
        return with_report(
            make.H100,
            "    <persistence_mode>Disabled</persistence_mode><display_active>Disabled</display_active>\n"
            + ecc.format(errors=0, pending="No", failure="No"),
        )


def _register_other_hosts(host: Any, healthy: Any, smi_xml: Any, two: Any) -> None:
    @host("TFD603", cause="gpu-busy-other-process")
    def earlier_notebook() -> Any:
        """A notebook's kernel of one's own and somebody else's training have taken the card."""
        machine = healthy()
        card = machine.cards[0]
        machine.nvml["devices"][0]["memory_used_mib"] = card.memory - 180
        listed = (
            process(4242, "/srv/tf/bin/python", 14000)
            + process(5151, "python3", 9800)
            + process(6001, "[Not Found]", 400)
            + process(900, "/usr/lib/xorg/Xorg", 60, "G")
        )
        machine.smi_says(condition(smi_xml(machine, used=card.memory - 180), processes=listed), 0)
        machine.files |= {
            "/proc/1/status": status("systemd", 0),
            "/proc/4242/status": status("python", 1000),
            "/proc/4242/cmdline": "/srv/tf/bin/python\0-m\0ipykernel_launcher\0-f\0/run/kernel-1.json\0",
            "/proc/5151/status": status("python3", 1001),
            "/proc/5151/cmdline": "python3\0/home/alice/train.py\0--token=secret\0",
            "/proc/900/status": status("Xorg", 0),
        }
        machine.commands |= {"id -nu 0": {"stdout": "root\n"}, "id -nu 1001": {"stdout": "alice\n"}}
        return machine

    @host("TFD603", cause="gpu-busy-other-process")
    def held_by_a_container() -> Any:
        """A container of somebody else's holds the card, seen from the host."""
        machine = healthy()
        card = machine.cards[0]
        machine.nvml["devices"][0]["memory_used_mib"] = card.memory - 400
        listed = process(7001, "python3", card.memory - 500)
        machine.smi_says(condition(smi_xml(machine, used=card.memory - 400), processes=listed), 0)
        machine.files |= {
            "/proc/1/status": status("systemd", 0),
            "/proc/7001/status": status("python3", 1001),
            "/proc/7001/cmdline": "python3\0/app/serve.py\0",
            "/proc/7001/cgroup": f"0::/system.slice/docker-{'4f1c' * 16}.scope\n",
        }
        machine.commands |= {"id -nu 1001": {"stdout": "alice\n"}}
        return machine

    @host("TFD603", cause="gpu-busy-other-process")
    def held_outside_this_container() -> Any:
        """In a container; what holds the card runs outside of it, and nvidia-smi lists nothing."""
        machine = healthy()
        machine.files["/.dockerenv"] = ""
        card = machine.cards[0]
        machine.nvml["devices"][0]["memory_used_mib"] = card.memory - 300
        machine.smi_says(condition(smi_xml(machine, used=card.memory - 300), processes="\n    "), 0)
        return machine

    @host("TFD113", cause="no-device", registered=False)
    def slurm_job_without_gpu() -> Any:
        """The nodes are there, open to all, and the job's cgroup refuses them."""
        machine = healthy()
        machine.env |= {"SLURM_JOB_ID": "4711"}
        machine.init(100, "CUDA_ERROR_NO_DEVICE")
        machine.libcuda["refused_nodes"] = ["/dev/nvidia0"]
        return machine

    @host("TFD125", "TFD604")
    def cards_at_two_processors() -> Any:
        """Two cards, each at a processor of its own."""
        machine = healthy(*two())
        machine.commands["nvidia-smi topo -m"] = {
            "stdout": "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-15\t0\nGPU1\tSYS\t X \t16-31\t1\n\n"
            "Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"
        }
        return machine

    @host("TFD201", "TFD606", cause="libs-not-installed", registered=False)
    def module_of_another_cuda() -> Any:
        """A cluster's module brings CUDA 11.8, and TensorFlow wants 12.5."""
        machine = healthy()
        for path in [p for p in machine.elf if "/nvidia/" in p and "/lib/lib" in p]:
            del machine.elf[path]
        machine.target["distributions"] = [
            d for d in machine.target["distributions"] if not d["name"].startswith("nvidia-")
        ]
        machine.env["LOADEDMODULES"] = "gcc/12.2.0:cuda/11.8.0"
        return machine
