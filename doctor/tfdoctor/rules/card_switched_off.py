"""The NVIDIA card, or its kernel module, was switched off on purpose.

What it means
-------------
On laptops with two graphics cards (Optimus), tools switch the NVIDIA GPU off to save power: prime-select, bbswitch,
supergfxctl, envycontrol, system76-power. They blacklist its kernel module, or remove the GPU from the bus.
Somebody may also have written such a line by hand. The driver's libraries are installed, but show no GPU.

How it is seen
--------------
No NVIDIA module is loaded, and Ubuntu's /etc/prime-discrete says `off`, or modprobe's configuration or the kernel's
command line forbids the module.

What to do
----------
Switch the GPU on with the tool that switched it off, then restart.
"""

from __future__ import annotations

from typing import NamedTuple

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import quote
from tfdoctor.remedies.system import APT, PACMAN, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import Result, Rule, RuleContext, get_required_value
from tfdoctor.rules.shared import drivers, kernels

COMMENT_OUT_SCRIPT = "s/^[[:space:]]*(blacklist|install|alias)[[:space:]]+nvidia/# &/"
"""The sed script that comments out the lines of modprobe's configuration that forbid NVIDIA's modules."""


class SwitchingTool(NamedTuple):
    """A tool that switches between two graphics cards."""

    name: str
    config_file_name: str
    """The name of the file that it writes in /etc/modprobe.d."""
    enable_command: str
    """The command that switches the NVIDIA GPU on."""


SWITCHING_TOOLS = (
    SwitchingTool("EnvyControl", "blacklist-nvidia.conf", "envycontrol -s hybrid"),
    SwitchingTool("supergfxctl", "supergfxd.conf", "supergfxctl -m Hybrid"),
    SwitchingTool("system76-power", "system76-power.conf", "system76-power graphics hybrid"),
)


def check(context: RuleContext) -> Result:
    cause = get_required_value(kernels.find_missing_module_cause(context))
    if not kernels.is_gpu_switched_off(context):
        return ()
    sudo = get_sudo_prefix(context.target)
    files = kernels.get_module_files(context)
    blocked = files.blocked if files is not None else ()
    is_prime_off = value_of(context.facts.kernel.prime) == "off"
    evidence = [Evidence("/etc/prime-discrete", "off")] if is_prime_off else []
    evidence += [Evidence(path, line) for path, line in blocked]
    evidence += drivers.list_pci_evidence(context)
    remedies = []
    if is_prime_off:
        remedies.append(
            Remedy(
                "Let the NVIDIA card be used on demand (Ubuntu's tool), then restart.",
                (f"{sudo}prime-select on-demand", f"{sudo}reboot"),
                changes_system=True,
            )
        )
        explanation = (
            "prime-select has switched the NVIDIA card off, in favour of the processor's own graphics."
        )
    else:
        path, line = blocked[0]
        explanation = (
            f"{path} says `{line}`: NVIDIA's kernel module is installed, and modprobe may not load it."
        )
        tool = next(
            (candidate for candidate in SWITCHING_TOOLS if path.endswith(f"/{candidate.config_file_name}")),
            None,
        )
        if tool is not None:
            remedies.append(
                Remedy(
                    f"{tool.name} writes this file: use it to switch the card on, then restart.",
                    (f"{sudo}{tool.enable_command}", f"{sudo}reboot"),
                    changes_system=True,
                )
            )
        remedies.append(_build_manual_edit_remedy(context, path))
    return [
        RULE.make_finding(
            cause,
            Severity.ERROR,
            explanation,
            title="The NVIDIA card is switched off (prime-select)"
            if is_prime_off
            else "NVIDIA's kernel module is blacklisted",
            evidence=evidence,
            remedies=remedies,
        )
    ]


def _build_manual_edit_remedy(context: RuleContext, path: str) -> Remedy:
    """Return the remedy for a line in `path` that forbids the module.

    In a modprobe file the remedy comments out the line. Otherwise the user edits the kernel's command line.
    """
    sudo = get_sudo_prefix(context.target)
    if not path.startswith(("/etc/", "/usr/", "/lib/", "/run/")):
        manager = get_package_manager(context.target)
        # GRUB's folder and command are called grub on Arch Linux, and grub2 elsewhere
        folder = "grub" if manager == PACMAN else "grub2"
        rebuild_command = f"{folder}-mkconfig -o /boot/{folder}/grub.cfg"
        return Remedy(
            "Remove it from the kernel's command line (with GRUB: GRUB_CMDLINE_LINUX), then restart.",
            (
                f"{sudo}vi /etc/default/grub",
                f"{sudo}update-grub" if manager == APT else f"{sudo}{rebuild_command}",
                f"{sudo}reboot",
            ),
            changes_system=True,
        )
    return Remedy(
        "Turn the lines that forbid it into comments (the old file stays beside it, .bak), then restart.",
        (
            f"{sudo}sed -i.bak -E '{COMMENT_OUT_SCRIPT}' {quote(path)}",
            kernels.make_initramfs_rebuild_command(context),
            f"{sudo}reboot",
        ),
        changes_system=True,
    )


RULE = Rule(
    "TFD119",
    "card-switched-off",
    "The NVIDIA card, or its kernel module, was switched off on purpose",
    (Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN, Cause.NO_DRIVER),
    check,
    short_title="switched off on purpose",
    needs=(kernels.require_missing_module,),
)
