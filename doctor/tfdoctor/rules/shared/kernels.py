"""What rules about the kernel around the driver share: why a driver that is installed does not run.

A driver's libraries without its kernel module give the same few answers (CUDA_ERROR_NO_DEVICE, UNKNOWN, 303),
whatever the reason. Where the reason is known, its own rule (TFD117, TFD118, TFD119) tells it, and the general
ones (TFD101, TFD102, TFD105) leave it to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts import Absent, Known, ModuleFiles, value_of
from tfdoctor.findings import Cause, Evidence, Remedy
from tfdoctor.rules.base import NotApplicable
from tfdoctor.rules.shared import drivers, xids

if TYPE_CHECKING:
    from tfdoctor.facts import KernelEvent
    from tfdoctor.rules.base import Context

SUBJECT = frozenset({Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN, Cause.NO_DRIVER})
"""What a driver without its kernel module answers."""
RESERVED = frozenset({"vfio-pci", "pci-stub"})

Said = tuple[str, str, list[Remedy]]
"""Title, explanation, remedies."""


def without_module(context: Context) -> Cause | None:
    """The cause where libcuda opens, fails, and no kernel module of NVIDIA's runs on this host; else None."""
    facts = context.facts
    machine = facts.machine
    if machine.container or machine.wsl or machine.jetson or machine.system != "Linux":
        return None
    if not isinstance(facts.driver.kernel_module, Absent):
        return None
    state = drivers.state(context)
    if state.answer is None or not state.answer.loaded or state.answer.init in (None, 0, 34, 35, 36):
        return None
    return state.cause if state.cause in SUBJECT else None


def waits_for_module(context: Context) -> NotApplicable | None:
    """A driver that is installed and does not run for want of its kernel module."""
    if without_module(context) is None:
        return NotApplicable("no driver is installed here that waits for its kernel module")
    return None


def on_the_bus(context: Context) -> bool:
    """Whether a card is there for the module to drive: not one that is kept for a virtual machine."""
    cards = value_of(context.facts.driver.pci) or ()
    return any(card.driver not in RESERVED for card in cards)


def files(context: Context) -> ModuleFiles | None:
    """The module's files on the disk, where they were looked for."""
    return value_of(context.facts.kernel.modules)


def not_built(context: Context) -> bool:
    """Whether the module is not there for the kernel that runs (TFD117)."""
    found = files(context)
    if without_module(context) is None or found is None or not on_the_bus(context):
        return False
    return not found.running


def refused_by_secure_boot(context: Context) -> bool:
    """Whether the module is there and Secure Boot keeps it out (TFD118)."""
    found = files(context)
    if without_module(context) is None or found is None or not found.running or not on_the_bus(context):
        return False
    if value_of(context.facts.kernel.secure_boot) is not True:
        return False
    return found.signed is False or bool(events(context, "unsigned"))


def switched_off(context: Context) -> bool:
    """Whether the card or its module was switched off on purpose (TFD119)."""
    if without_module(context) is None:
        return False
    found = files(context)
    if value_of(context.facts.kernel.prime) == "off":
        return True
    return found is not None and bool(found.blocked) and on_the_bus(context)


def explained(context: Context) -> str:
    """The code of the rule that knows why the module does not run; empty where none does."""
    if switched_off(context):
        return "TFD119"
    if not_built(context):
        return "TFD117"
    return "TFD118" if refused_by_secure_boot(context) else ""


def initramfs(context: Context) -> str:
    """The command that builds the initial RAM disk again."""
    root = advice.sudo(context.target)
    manager = advice.package_manager(context.target)
    if manager == advice.APT:
        return f"{root}update-initramfs -u"
    return f"{root}mkinitcpio -P" if manager == advice.PACMAN else f"{root}dracut --force"


# ---------------------------------------------------------------- the kernel's log


def events(context: Context, *kinds: str) -> list[KernelEvent]:
    """What the kernel's log says, of these kinds; of all kinds where none is named."""
    return [e for e in value_of(context.facts.kernel.log) or () if not kinds or e.kind in kinds]


def evidence(context: Context, found: list[KernelEvent]) -> list[Evidence]:
    """The lines themselves, as evidence."""
    fact = context.facts.kernel.log
    source = fact.source if isinstance(fact, Known) else "dmesg"
    return [
        Evidence(source, event.text + (f" ({event.count} times)" if event.count > 1 else ""))
        for event in found[:8]
    ]


def logged(context: Context) -> Said | None:
    """Why the driver shows no card, where the kernel's log names a reason that nothing else shows."""
    for kind, say in (
        ("xid", _lost),
        ("bus-lost", _lost),
        ("bad-bar", _bad_bar),
        ("firmware-missing", _firmware),
        ("legacy", _legacy),
        ("not-supported", _not_supported),
        ("needs-open", _needs_open),
        ("wrong-kernel", _wrong_kernel),
        ("init-failed", _init_failed),
    ):
        found = events(context, kind)
        if kind == "xid":
            found = [e for e in found if xids.meaning(e.xid or 0).kind is xids.Kind.LOST]
        if found:
            return say(context, found[-1])
    return None


def _lost(context: Context, event: KernelEvent) -> Said:
    number = event.xid if event.xid is not None else xids.BUS_LOST
    if number != xids.BUS_LOST:
        said = xids.meaning(number).meaning
        return (
            f"The card is unusable until it is reset (Xid {number})",
            f"The kernel's log says Xid {number}: {said}.",
            [drivers.reboot(context, "Restart the machine; if it recurs, the card is faulty.")],
        )
    return (
        "The card has fallen off the bus (Xid 79)",
        (
            "The kernel's log says that the card stopped answering while the machine ran: heat, power, a loose "
            "slot or riser, power saving of the bus, or a fault of the card itself. Programs cannot bring it "
            "back."
        ),
        [power_off(context)],
    )


def _bad_bar(context: Context, event: KernelEvent) -> Said:
    del event
    virtual = "In a virtual machine the same is a setting of the hypervisor (a larger 64-bit MMIO space)."
    return (
        "The firmware gives the card no address space",
        (
            "The kernel's log says that the card's memory region is invalid: the firmware has not given it "
            f"room among the addresses of the bus. {virtual}"
        ),
        [
            Remedy('In the firmware\'s settings, switch "Above 4G Decoding" on.'),
            Remedy(
                "See what the kernel says of it.", (f"{advice.sudo(context.target)}dmesg | grep -i 'BAR '",)
            ),
        ],
    )


def _firmware(context: Context, event: KernelEvent) -> Said:
    del event
    install = advice.driver_install(context.target)
    return (
        "The driver's firmware files are missing",
        (
            "The kernel's log says that NVIDIA firmware could not be loaded from /lib/firmware/nvidia: the "
            "driver was installed in part, or its files are not in the initial RAM disk."
        ),
        [Remedy(f"Install the driver again. {install.text}", install.commands, changes_system=True)],
    )


def _legacy(context: Context, event: KernelEvent) -> Said:
    del context
    branch = event.text.partition("through the NVIDIA ")[2].partition(".")[0].partition(" ")[0]
    return (
        "This driver no longer drives the card",
        f"The kernel's log says that the card is driven by branch {branch}, and not by the one that is loaded.",
        [Remedy(f"Install the driver branch {branch} in its place, then restart.", changes_system=True)],
    )


def _not_supported(context: Context, event: KernelEvent) -> Said:
    del event
    return (
        "The driver that is loaded does not know the card",
        (
            "The kernel's log says that the card is not supported by this driver: it is newer than the driver, "
            "older than its branch still drives, or a virtual GPU that needs NVIDIA's vGPU driver."
        ),
        [
            Remedy("See which card it is, and choose a driver that lists it.", ("lspci -nn -d 10de:",)),
            advice.driver_install(context.target),
        ],
    )


def _needs_open(context: Context, event: KernelEvent) -> Said:
    del context, event
    return (
        "The card needs the open kernel module",
        (
            "The kernel's log says that this card is driven by NVIDIA's open kernel module only; the proprietary "
            "one is loaded."
        ),
        [Remedy("Install the open kernel module of the same branch, then restart.", changes_system=True)],
    )


def _wrong_kernel(context: Context, event: KernelEvent) -> Said:
    del event
    return (
        "NVIDIA's kernel module was built for another kernel",
        ("The kernel's log says that the module does not fit the kernel that runs."),
        [rebuild(context)],
    )


def _init_failed(context: Context, event: KernelEvent) -> Said:
    code = event.text.partition("RmInitAdapter failed!")[2].strip().partition(")")[0]
    named = f" {code})" if code.startswith("(") else ""
    return (
        "The kernel module cannot start the card",
        (
            f"The kernel's log says RmInitAdapter failed!{named}: the module is loaded, knows the card, and fails "
            "to bring it up. After a warm start or in a virtual machine the card is often in a bad state; otherwise "
            "module and libraries have different versions, or the card is faulty."
        ),
        [
            power_off(context),
            drivers.kernel_log(context),
        ],
    )


# ---------------------------------------------------------------- remedies


def power_off(context: Context) -> Remedy:
    """What brings a card back that a restart leaves as it is."""
    return Remedy(
        "Shut the machine down, wait, and start it again; a restart is not enough. If it happens again, look at "
        "power, slot and cooling.",
        (f"{advice.sudo(context.target)}poweroff",),
        changes_system=True,
    )


def headers(context: Context) -> str:
    """The command that installs the headers of the kernel that runs; empty where it is not known."""
    root = advice.sudo(context.target)
    return {
        advice.APT: f"{root}apt-get install linux-headers-$(uname -r)",
        advice.DNF: f"{root}dnf install kernel-devel-$(uname -r)",
        advice.ZYPPER: f"{root}zypper install kernel-default-devel",
        advice.PACMAN: f"{root}pacman -S linux-headers",
    }.get(advice.package_manager(context.target) or "", "")


def rebuild(context: Context) -> Remedy:
    """How this distribution builds the module for the kernel that runs."""
    root = advice.sudo(context.target)
    found = files(context)
    needed = headers(context) if found is None or not found.headers else ""
    build = f"{root}dkms autoinstall"
    if context.facts.machine.distribution_id == "fedora" and not (found is not None and found.dkms):
        build = f"{root}akmods --force"
    return Remedy(
        "Build the module for the kernel that runs, and load it.",
        (*((needed,) if needed else ()), build, f"{root}modprobe nvidia", advice.check_again(context.target)),
        changes_system=True,
    )
