"""Helpers for the rules about an installed driver whose NVIDIA kernel module is not loaded.

If the kernel module is missing, the driver's libraries return one of a few errors (CUDA_ERROR_NO_DEVICE,
CUDA_ERROR_UNKNOWN, 303), whatever the reason. If the reason is known, a specific rule reports it (TFD117, TFD118,
TFD119) instead of the general rules (TFD101, TFD102, TFD105).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, Known, ModuleFiles, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.system import APT, DNF, PACMAN, ZYPPER, get_package_manager, make_driver_remedy
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable
from tfdoctor.rules.shared import drivers, xids

if TYPE_CHECKING:
    from tfdoctor.core.facts import KernelEvent
    from tfdoctor.rules.base import RuleContext

CAUSES_OF_MISSING_MODULE = frozenset({Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN, Cause.NO_DRIVER})
"""The causes that the driver's error can suggest if the kernel module is missing."""
PASSTHROUGH_DRIVERS = frozenset({"vfio-pci", "pci-stub"})
"""Kernel drivers that reserve a GPU for a virtual machine."""

ProblemExplanation = tuple[str, str, list[Remedy]]
"""The title, the explanation and the remedies of a finding."""


def find_missing_module_cause(context: RuleContext) -> Cause | None:
    """Return the cause that libcuda's error suggests if no NVIDIA kernel module is loaded on this host.

    Return None if a module is loaded, if libcuda cannot be opened or does not fail, or if the module is not
    visible here (containers, WSL, Jetson).
    """
    facts = context.facts
    machine = facts.machine
    if machine.container or machine.wsl or machine.jetson or machine.system != "Linux":
        return None
    if not isinstance(facts.driver.kernel_module, Absent):
        return None
    state = drivers.determine_driver_state(context)
    # cuInit: 0 is success, 34 a stub library; 35 and 36 mean that a module of an older version runs
    if (
        state.driver_result is None
        or not state.driver_result.loaded
        or state.driver_result.init in (None, 0, 34, 35, 36)
    ):
        return None
    return state.cause if state.cause in CAUSES_OF_MISSING_MODULE else None


def require_missing_module(context: RuleContext) -> NotApplicable | None:
    """Require an installed driver whose kernel module is not loaded."""
    if find_missing_module_cause(context) is None:
        return NotApplicable("no driver is installed here that waits for its kernel module")
    return None


def has_usable_gpu(context: RuleContext) -> bool:
    """Return whether there is a GPU that the module could drive.

    GPUs that are reserved for virtual machines do not count.
    """
    gpus = value_of(context.facts.driver.pci) or ()
    return any(gpu.driver not in PASSTHROUGH_DRIVERS for gpu in gpus)


def get_module_files(context: RuleContext) -> ModuleFiles | None:
    """Return the files of the kernel module on disk; None if they are not known."""
    return value_of(context.facts.kernel.modules)


def is_module_unbuilt(context: RuleContext) -> bool:
    """Return whether no module was built for the running kernel (TFD117)."""
    files = get_module_files(context)
    if find_missing_module_cause(context) is None or files is None or not has_usable_gpu(context):
        return False
    return not files.running


def is_blocked_by_secure_boot(context: RuleContext) -> bool:
    """Return whether the module exists but Secure Boot blocks it (TFD118)."""
    files = get_module_files(context)
    if (
        find_missing_module_cause(context) is None
        or files is None
        or not files.running
        or not has_usable_gpu(context)
    ):
        return False
    if value_of(context.facts.kernel.secure_boot) is not True:
        return False
    return files.signed is False or bool(list_kernel_events(context, "unsigned"))


def is_gpu_switched_off(context: RuleContext) -> bool:
    """Return whether the GPU or its module was switched off on purpose (TFD119)."""
    if find_missing_module_cause(context) is None:
        return False
    files = get_module_files(context)
    if value_of(context.facts.kernel.prime) == "off":
        return True
    return files is not None and bool(files.blocked) and has_usable_gpu(context)


def find_missing_module_rule(context: RuleContext) -> str:
    """Return the code of the rule that explains why the module is not loaded; "" if there is none."""
    if is_gpu_switched_off(context):
        return "TFD119"
    if is_module_unbuilt(context):
        return "TFD117"
    return "TFD118" if is_blocked_by_secure_boot(context) else ""


def make_initramfs_rebuild_command(context: RuleContext) -> str:
    """Return the command that rebuilds the initial RAM disk."""
    sudo = get_sudo_prefix(context.target)
    manager = get_package_manager(context.target)
    if manager == APT:
        return f"{sudo}update-initramfs -u"
    return f"{sudo}mkinitcpio -P" if manager == PACMAN else f"{sudo}dracut --force"


# ---------------------------------------------------------------- kernel log


def list_kernel_events(context: RuleContext, *kinds: str) -> list[KernelEvent]:
    """Return the kernel log's events of these kinds; all events if no kind is named."""
    return [event for event in value_of(context.facts.kernel.log) or () if not kinds or event.kind in kinds]


def make_kernel_event_evidence(context: RuleContext, events: list[KernelEvent]) -> list[Evidence]:
    """Return the first eight events of the kernel log as evidence."""
    fact = context.facts.kernel.log
    source = fact.source if isinstance(fact, Known) else "dmesg"
    return [
        Evidence(source, event.text + (f" ({event.count} times)" if event.count > 1 else ""))
        for event in events[:8]
    ]


def explain_from_kernel_log(context: RuleContext) -> ProblemExplanation | None:
    """Return the kernel log's reason why the driver shows no GPU; None if it gives none.

    The kinds of events are tried in order of precedence. The latest event of the first kind that occurs counts.
    """
    for kind, explain in (
        ("xid", _explain_lost_gpu),
        ("bus-lost", _explain_lost_gpu),
        ("bad-bar", _explain_bad_bar),
        ("firmware-missing", _explain_missing_firmware),
        ("legacy", _explain_legacy_gpu),
        ("not-supported", _explain_unsupported_gpu),
        ("needs-open", _explain_open_module),
        ("wrong-kernel", _explain_wrong_kernel),
        ("init-failed", _explain_failed_start),
    ):
        events = list_kernel_events(context, kind)
        if kind == "xid":
            events = [
                event for event in events if xids.find_xid(event.xid or 0).kind is xids.XidKind.NEEDS_RESET
            ]
        if events:
            return explain(context, events[-1])
    return None


def _explain_lost_gpu(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain an Xid after which the GPU cannot be used."""
    number = event.xid if event.xid is not None else xids.FALLEN_OFF_BUS_XID
    if number != xids.FALLEN_OFF_BUS_XID:
        meaning = xids.find_xid(number).meaning
        return (
            f"The card is unusable until it is reset (Xid {number})",
            f"The kernel's log says Xid {number}: {meaning}.",
            [drivers.make_reboot_remedy(context, "Restart the machine; if it recurs, the card is faulty.")],
        )
    return (
        "The card has fallen off the bus (Xid 79)",
        (
            "The kernel's log says that the card stopped answering while the machine ran: heat, power, a loose "
            "slot or riser, power saving of the bus, or a fault of the card itself. Programs cannot bring it "
            "back."
        ),
        [make_power_off_remedy(context)],
    )


def _explain_bad_bar(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain a memory region (BAR) to which the firmware assigned no addresses."""
    del event
    hypervisor_hint = (
        "In a virtual machine the same is a setting of the hypervisor (a larger 64-bit MMIO space)."
    )
    return (
        "The firmware gives the card no address space",
        (
            "The kernel's log says that the card's memory region is invalid: the firmware has not given it "
            f"room among the addresses of the bus. {hypervisor_hint}"
        ),
        [
            Remedy('In the firmware\'s settings, switch "Above 4G Decoding" on.'),
            Remedy(
                "See what the kernel says of it.",
                (f"{get_sudo_prefix(context.target)}dmesg | grep -i 'BAR '",),
            ),
        ],
    )


def _explain_missing_firmware(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain firmware files of the driver that could not be loaded."""
    del event
    install_remedy = make_driver_remedy(context.target)
    return (
        "The driver's firmware files are missing",
        (
            "The kernel's log says that NVIDIA firmware could not be loaded from /lib/firmware/nvidia: the "
            "driver was installed in part, or its files are not in the initial RAM disk."
        ),
        [
            Remedy(
                f"Install the driver again. {install_remedy.text}",
                install_remedy.commands,
                changes_system=True,
            )
        ],
    )


def _explain_legacy_gpu(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain a GPU that only an older driver branch supports."""
    del context
    # the line says: "… is supported through the NVIDIA 470.xx Legacy drivers …"
    branch = event.text.partition("through the NVIDIA ")[2].partition(".")[0].partition(" ")[0]
    return (
        "This driver no longer drives the card",
        f"The kernel's log says that the card is driven by branch {branch}, and not by the one that is loaded.",
        [Remedy(f"Install the driver branch {branch} in its place, then restart.", changes_system=True)],
    )


def _explain_unsupported_gpu(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain a GPU that the driver does not know."""
    del event
    return (
        "The driver that is loaded does not know the card",
        (
            "The kernel's log says that the card is not supported by this driver: it is newer than the driver, "
            "older than its branch still drives, or a virtual GPU that needs NVIDIA's vGPU driver."
        ),
        [
            Remedy("See which card it is, and choose a driver that lists it.", ("lspci -nn -d 10de:",)),
            make_driver_remedy(context.target),
        ],
    )


def _explain_open_module(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain a GPU that needs the open kernel module."""
    del context, event
    return (
        "The card needs the open kernel module",
        (
            "The kernel's log says that this card is driven by NVIDIA's open kernel module only; the proprietary "
            "one is loaded."
        ),
        [Remedy("Install the open kernel module of the same branch, then restart.", changes_system=True)],
    )


def _explain_wrong_kernel(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain a module that was built for another kernel."""
    del event
    return (
        "NVIDIA's kernel module was built for another kernel",
        ("The kernel's log says that the module does not fit the kernel that runs."),
        [make_rebuild_module_remedy(context)],
    )


def _explain_failed_start(context: RuleContext, event: KernelEvent) -> ProblemExplanation:
    """Explain a GPU that the module failed to initialize."""
    # the line ends such as: "RmInitAdapter failed! (0x62:0x40:2351)"
    code_text = event.text.partition("RmInitAdapter failed!")[2].strip().partition(")")[0]
    error_code = f" {code_text})" if code_text.startswith("(") else ""
    return (
        "The kernel module cannot start the card",
        (
            f"The kernel's log says RmInitAdapter failed!{error_code}: the module is loaded, knows the card, and fails "
            "to bring it up. After a warm start or in a virtual machine the card is often in a bad state; otherwise "
            "module and libraries have different versions, or the card is faulty."
        ),
        [
            make_power_off_remedy(context),
            drivers.make_kernel_log_remedy(context),
        ],
    )


# ---------------------------------------------------------------- remedies


def make_power_off_remedy(context: RuleContext) -> Remedy:
    """Return the remedy to power the machine off, for a GPU that a restart does not bring back."""
    return Remedy(
        "Shut the machine down, wait, and start it again; a restart is not enough. If it happens again, look at "
        "power, slot and cooling.",
        (f"{get_sudo_prefix(context.target)}poweroff",),
        changes_system=True,
    )


def make_headers_install_command(context: RuleContext) -> str:
    """Return the command that installs the running kernel's headers; "" if no package manager is known."""
    sudo = get_sudo_prefix(context.target)
    return {
        APT: f"{sudo}apt-get install linux-headers-$(uname -r)",
        DNF: f"{sudo}dnf install kernel-devel-$(uname -r)",
        ZYPPER: f"{sudo}zypper install kernel-default-devel",
        PACMAN: f"{sudo}pacman -S linux-headers",
    }.get(get_package_manager(context.target) or "", "")


def make_rebuild_module_remedy(context: RuleContext) -> Remedy:
    """Return the remedy to build the module for the running kernel with DKMS, or with akmods on Fedora."""
    sudo = get_sudo_prefix(context.target)
    files = get_module_files(context)
    headers_command = make_headers_install_command(context) if files is None or not files.headers else ""
    build_command = f"{sudo}dkms autoinstall"
    # Fedora builds the module with akmods, unless it was added to DKMS
    if context.facts.machine.distribution_id == "fedora" and not (files is not None and files.dkms):
        build_command = f"{sudo}akmods --force"
    return Remedy(
        "Build the module for the kernel that runs, and load it.",
        (
            *((headers_command,) if headers_command else ()),
            build_command,
            f"{sudo}modprobe nvidia",
            format_check_command(context.target),
        ),
        changes_system=True,
    )
