"""What this distribution types: its package manager, and how it installs NVIDIA's driver. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.findings import Remedy

if TYPE_CHECKING:
    from tfdoctor.advice.target import Target

APT, DNF, ZYPPER, PACMAN = "apt", "dnf", "zypper", "pacman"
MANAGERS = {
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


def package_manager(target: Target) -> str | None:
    """Return this distribution's package manager; None if it is not known."""
    return manager_of(target.distribution, *target.like)


def manager_of(*names: str | None) -> str | None:
    """Return the package manager of the first of these distributions (ID and ID_LIKE of /etc/os-release) that is
    known.
    """
    return next((MANAGERS[name] for name in names if name in MANAGERS), None)


def driver_install(target: Target) -> Remedy:
    """Return how this distribution installs NVIDIA's driver."""
    manager = package_manager(target)
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
    needs = ""
    if manager == APT and target.distribution == "debian":
        needs = " The package is in Debian's non-free component, which must be in your apt sources."
    elif manager == DNF and target.distribution == "fedora":
        needs = " The packages are RPM Fusion's, whose nonfree repository must be enabled."
    elif manager in (DNF, ZYPPER):
        needs = " NVIDIA's repository for this distribution must be enabled."
    return Remedy(f"Install NVIDIA's driver, then restart.{needs}", commands, changes_system=True)
