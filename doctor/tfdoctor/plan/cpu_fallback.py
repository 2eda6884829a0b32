"""TensorFlow on the processor alone: for a machine without a card, or one that no release has GPU code for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.advice import Target
from tfdoctor.findings import Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.fit import Host
    from tfdoctor.plan.models import Request

__all__ = ["make_machine_remedy", "make_release_remedy"]


def make_release_remedy(target: Target, release: Release, python: str | None) -> Remedy:
    """Return this release in an environment, without CUDA."""
    chosen = python or release.linux_pythons[-1]
    wanted = (f"{release.package}=={release.version}", *advice.companion_pins(target.compat, release))
    commands = advice.venv_with(target, wanted, f"python{chosen}")[:-1]
    return Remedy(f"Without a GPU, with Python {chosen}.", commands)


def make_machine_remedy(compat: Compat, request: Request, host: Host) -> Remedy | None:
    """Return the wanted TensorFlow, else the newest, for the machine's processor.

    None if nothing calls for it, or where there is none.
    """
    if not (host.no_card or is_arm64(host)):
        return None
    target, python = Target(compat, host), request.python or host.python
    rows = [row for row in _select_releases(compat, request.tensorflow) if row.package == "tensorflow"]
    if is_arm64(host):
        first = compat.arm64.index.since
        if request.tensorflow is None:
            wanted = "tensorflow"
        elif rows and versions.is_at_least(rows[0].version, first):
            wanted = f"tensorflow=={rows[0].version}"
        else:
            return None
        commands = advice.venv_with(target, (wanted,), f"python{python or 3}")[:-1]
        return Remedy("On the CPU only: the package index has wheels for it, without GPU code.", commands)
    release = next((row for row in rows if python in row.linux_pythons), None)
    if release is None and request.python is None and rows:
        release, python = rows[0], rows[0].linux_pythons[-1]
    if release is None:
        return None
    made = make_release_remedy(target, release, python)
    return Remedy(f"Without a GPU: TensorFlow {release.version} on Python {python}.", made.commands)


def _select_releases(compat: Compat, spec: str | None) -> Sequence[Release]:
    """Return releases, newest first, also those without GPU code."""
    if spec is not None:
        return compat.select(spec)
    return [row for row in reversed(compat.releases) if not row.is_prerelease and not row.yanked]


def is_arm64(host: Host) -> bool:
    """Return whether it is a Linux machine with a 64-bit ARM processor."""
    return host.system == "Linux" and host.machine.lower() in ("aarch64", "arm64")
