"""Probe the operating system, the processor, and the kind of container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core.facts import MachineFacts
from tfdoctor.core.text import clean_line
from tfdoctor.probes.files import load_text

if TYPE_CHECKING:
    from tfdoctor.system import System

MAX_CGROUPS, MAX_CGROUP_DEPTH = 64, 32
MAX_LIMIT_DIGITS = 16
"""The number of digits of the highest memory limit. The number that means "no limit" has more."""


def probe(system: System) -> MachineFacts:
    """Return the facts about this machine."""
    platform = system.platform
    os_release = parse_os_release(
        load_text(system, "/etc/os-release") or load_text(system, "/usr/lib/os-release") or ""
    )
    kernel = platform.get("release", "")
    is_root = platform["uid"] == "0" if platform.get("uid") else None
    soft_limit, hard_limit = parse_address_limits(load_text(system, "/proc/self/limits") or "")
    return MachineFacts(
        system=platform.get("system", ""),
        machine=platform.get("machine", ""),
        kernel=kernel,
        distribution=os_release.get("PRETTY_NAME"),
        distribution_id=os_release.get("ID"),
        distribution_like=tuple(os_release.get("ID_LIKE", "").split()),
        distribution_version=os_release.get("VERSION_ID"),
        cpu_flags=parse_cpu_flags(load_text(system, "/proc/cpuinfo", 1 << 14) or ""),
        container=_detect_container(system),
        wsl=_detect_wsl(system, kernel),
        root=is_root,
        address_limit=soft_limit,
        can_raise_limit=is_root is True
        or soft_limit is None
        or hard_limit is None
        or hard_limit > soft_limit,
        memory_limit=_read_memory_limit(system),
        jetson=system.exists("/etc/nv_tegra_release"),
    )


def parse_os_release(text: str) -> dict[str, str]:
    """Parse the KEY=value lines of an os-release file, and remove the quotes."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"([A-Z_]{1,40})=(.{0,400})\Z", line.strip())
        if match:
            fields[match[1]] = clean_line(match[2].strip("\"'"))
    return fields


def parse_address_limits(text: str) -> tuple[int | None, int | None]:
    """Return (soft, hard) limits of the address space in /proc/PID/limits, in bytes; None is unlimited or unknown."""
    match = re.search(
        r"^Max address space\s+(\d{1,20}|unlimited)\s+(\d{1,20}|unlimited)\s", text, re.MULTILINE
    )
    soft, hard = match.groups() if match is not None else ("", "")
    return int(soft) if soft.isdigit() else None, int(hard) if hard.isdigit() else None


def _read_memory_limit(system: System) -> int | None:
    """Return the lowest memory limit of this process's cgroups, in bytes; None if there is none."""
    limits = (
        (load_text(system, path) or "").strip()
        for path in list_memory_limit_files(load_text(system, "/proc/self/cgroup") or "")
    )
    numbers = [int(limit) for limit in limits if limit.isdigit() and len(limit) <= MAX_LIMIT_DIGITS]
    return min(numbers, default=None)


def list_memory_limit_files(text: str) -> list[str]:
    """Return the paths of the memory limits of all cgroups in /proc/PID/cgroup and of their parents.

    In a container, only the mount point may exist.
    """
    paths: list[str] = []
    for line in text.splitlines()[:MAX_CGROUPS]:
        hierarchy, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if hierarchy == "0":
            mount_point, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount_point, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folders = [part for part in group.split("/") if part not in ("", "..")][:MAX_CGROUP_DEPTH]
        paths += ["/".join((mount_point, *folders[:depth], name)) for depth in range(len(folders), -1, -1)]
    return paths


def parse_cpu_flags(text: str) -> frozenset[str]:
    """Return the flags of the first processor in /proc/cpuinfo.

    On x86 these include the vendor, such as "GenuineIntel". On Arm they are the "Features". They may be empty.
    """
    vendor: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "vendor_id":
            vendor = {value.strip()}
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split()) | vendor
    return frozenset()


def _detect_container(system: System) -> str | None:
    """Return the kind of container that this process runs in, or None if it is not in one."""
    if system.exists("/.dockerenv"):
        return "kubernetes" if "KUBERNETES_SERVICE_HOST" in system.env else "docker"
    if system.exists("/run/.containerenv"):
        return "podman"
    for name, kind in (("APPTAINER_CONTAINER", "apptainer"), ("SINGULARITY_CONTAINER", "apptainer")):
        if name in system.env:
            return kind
    if "KUBERNETES_SERVICE_HOST" in system.env:
        return "kubernetes"
    declared_kind = system.env.get("container", "")  # engines set this variable to their name
    if declared_kind:
        return (
            declared_kind if declared_kind in ("lxc", "podman", "docker", "systemd-nspawn") else "container"
        )
    cgroup = load_text(system, "/proc/1/cgroup") or ""
    for marker, kind in (
        ("kubepods", "kubernetes"),
        ("docker", "docker"),
        ("libpod", "podman"),
        ("lxc", "lxc"),
    ):
        if f"/{marker}" in cgroup:
            return kind
    return None


def _detect_wsl(system: System, kernel: str) -> int | None:
    """Return the version of WSL, 1 or 2, or None if this is not WSL."""
    kernel_text = f"{kernel} {load_text(system, '/proc/version') or ''}".lower()
    if "microsoft" not in kernel_text:
        return None
    return (
        2 if "wsl2" in kernel_text or "microsoft-standard" in kernel_text or system.exists("/dev/dxg") else 1
    )
