"""Find the package manager of a Linux distribution, and its commands that install NVIDIA's driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Remedy

if TYPE_CHECKING:
    from tfdoctor.remedies.target import Target

APT, DNF, ZYPPER, PACMAN = "apt", "dnf", "zypper", "pacman"
PACKAGE_MANAGER_BY_ID = {
    "debian": APT,
    "ubuntu": APT,
    "fedora": DNF,
    "rhel": DNF,
    "centos": DNF,
    "rocky": DNF,
    "almalinux": DNF,
    "amzn": DNF,
    "suse": ZYPPER,
    "opensuse": ZYPPER,
    "opensuse-leap": ZYPPER,
    "sles": ZYPPER,
    "arch": PACMAN,
}
"""The package manager of each distribution, by its ID in /etc/os-release."""


def get_package_manager(target: Target) -> str | None:
    """Return the package manager of the target's distribution; None if it is not known."""
    return find_package_manager(target.distribution, *target.distribution_like)


def find_package_manager(*names: str | None) -> str | None:
    """Return the package manager of the first known distribution among `names`.

    The names come from ID and ID_LIKE in /etc/os-release. Return None if no name is known.
    """
    return next((PACKAGE_MANAGER_BY_ID[name] for name in names if name in PACKAGE_MANAGER_BY_ID), None)


def make_driver_remedy(target: Target) -> Remedy:
    """Return the remedy that installs NVIDIA's driver; it has no commands for an unknown distribution."""
    manager = get_package_manager(target)
    if manager == APT and target.distribution == "ubuntu":
        commands: tuple[str, ...] = ("sudo ubuntu-drivers install", "sudo reboot")
    elif manager == APT:
        commands = (
            "sudo apt-get update",
            "sudo apt-get install linux-headers-$(uname -r) nvidia-driver",
            "sudo reboot",
        )
    elif manager == DNF and target.distribution == "fedora":
        commands = ("sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda", "sudo reboot")
    elif manager == DNF:
        commands = ("sudo dnf module install nvidia-driver:latest-dkms", "sudo reboot")
    elif manager == ZYPPER:
        commands = ("sudo zypper install-new-recommends --repo NVIDIA", "sudo reboot")
    elif manager == PACMAN:
        commands = ("sudo pacman -S nvidia nvidia-utils", "sudo reboot")
    else:
        commands = ()
    note = ""
    if manager == APT and target.distribution == "debian":
        note = " The package is in Debian's non-free component, which must be in your apt sources."
    elif manager == DNF and target.distribution == "fedora":
        note = " The packages are RPM Fusion's, whose nonfree repository must be enabled."
    elif manager in (DNF, ZYPPER):
        note = " NVIDIA's repository for this distribution must be enabled."
    return Remedy(f"Install NVIDIA's driver, then restart.{note}", commands, changes_system=True)
