"""Make remedies that install TensorFlow for the CPU, for machines that no release has GPU code for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Remedy
from tfdoctor.prediction.build import find_capability_floor
from tfdoctor.prediction.fit.compatibility import list_candidates
from tfdoctor.remedies.pip import make_venv_commands
from tfdoctor.remedies.releases import list_companion_pins
from tfdoctor.remedies.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.planning.models import Request
    from tfdoctor.prediction.fit.models import Host

__all__ = ["find_capability_limit", "make_machine_remedy", "make_release_remedy"]


def make_release_remedy(target: Target, release: Release, python: str | None) -> Remedy:
    """Return the remedy that installs this release in a virtual environment, without CUDA."""
    chosen_python = python or release.linux_pythons[-1]
    requirements = (
        f"{release.package}=={release.version}",
        *list_companion_pins(target.compat, release),
    )
    # Without the last command, `tfdoctor check`, which looks for a GPU.
    commands = make_venv_commands(target, requirements, f"python{chosen_python}")[:-1]
    return Remedy(f"Without a GPU, with Python {chosen_python}.", commands)


def make_machine_remedy(compat: Compat, request: Request, host: Host) -> Remedy | None:
    """Return the remedy that installs the requested TensorFlow, or the newest one, for the machine's CPU.

    Return None if no release fits. Also return None if the machine may have a GPU that TensorFlow can use, unless its
    processor is ARM.
    """
    if not (host.has_no_gpu or is_arm64(host) or has_only_ancient_gpus(compat, host)):
        return None
    target, python = Target(compat, host), request.python or host.python
    releases = [
        candidate
        for candidate in _select_releases(compat, request.tensorflow)
        if candidate.package == "tensorflow"
    ]
    if is_arm64(host):
        # Older versions have no wheel for ARM in the package index.
        first_version = compat.arm64.index.since
        if request.tensorflow is None:
            requirement = "tensorflow"
        elif releases and versions.is_at_least(releases[0].version, first_version):
            requirement = f"tensorflow=={releases[0].version}"
        else:
            return None
        commands = make_venv_commands(target, (requirement,), f"python{python or 3}")[:-1]  # without check
        return Remedy("On the CPU only: the package index has wheels for it, without GPU code.", commands)
    release = next((candidate for candidate in releases if python in candidate.linux_pythons), None)
    if release is None and request.python is None and releases:
        release, python = releases[0], releases[0].linux_pythons[-1]
    if release is None:
        return None
    release_remedy = make_release_remedy(target, release, python)
    owner = "this machine's " if python == host.python else ""
    return Remedy(
        f"Without a GPU: TensorFlow {release.version} on {owner}Python {python}.", release_remedy.commands
    )


def find_capability_limit(compat: Compat) -> str:
    """Return the compute capability below which no release uses a GPU."""
    floors = (find_capability_floor(release, compat) for release in list_candidates(compat))
    return min(floors, key=versions.parse_capability)


def has_only_ancient_gpus(compat: Compat, host: Host) -> bool:
    """Return whether the host has GPUs, and all are older than those that any release uses."""
    limit = find_capability_limit(compat)
    return bool(host.cards) and not any(
        versions.is_at_least(capability, limit)
        for gpu in host.cards
        for capability in (gpu.capability, *gpu.other_capabilities)
    )


def _select_releases(compat: Compat, spec: str | None) -> Sequence[Release]:
    """Return the releases that match `spec`, newest first, including those without GPU code.

    If `spec` is None, return all releases except prereleases and yanked ones.
    """
    if spec is not None:
        return compat.select(spec)
    return [
        release for release in reversed(compat.releases) if not release.is_prerelease and not release.yanked
    ]


def is_arm64(host: Host) -> bool:
    """Return whether the host is a Linux machine with a 64-bit ARM processor."""
    return host.system == "Linux" and host.machine.lower() in ("aarch64", "arm64")
