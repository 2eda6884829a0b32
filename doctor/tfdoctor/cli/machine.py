"""Choose the host that a plan is for: a host that options describe, a recorded host, or this host."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfdoctor.core.errors import UsageError
from tfdoctor.planning.arguments import parse_gpu, validate_driver
from tfdoctor.prediction.fit.drivers import is_windows_driver
from tfdoctor.prediction.fit.host import build_host, find_data_center_gpus
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Facts
    from tfdoctor.prediction.fit.models import HostGpu

__all__ = ["select_host"]

PROBE_TIMEOUT_S = 10.0
"""The time limit in seconds for examining this host."""


def select_host(
    compat: Compat, *, gpus: Sequence[str], driver: str | None, recording_path: Path | None
) -> Host:
    """Return a host with the named GPUs, the host of a recording, or this host if neither is given.

    `recording_path` is the path of the recording. `driver`, if given, replaces the driver of the host. Raise UsageError if a
    GPU or the driver is invalid, or if both `gpus` and `recording_path` are given.
    """
    if gpus and recording_path is not None:
        raise UsageError("--gpu and --from cannot be combined: a recorded machine has its own GPUs.")
    driver = validate_driver(compat, driver)
    if gpus:
        host_gpus = tuple(parse_gpu(compat, name) for name in gpus)
        has_windows_driver = driver is not None and is_windows_driver(compat, driver)
        return Host(
            cards=host_gpus,
            driver=driver,
            machine="aarch64" if _needs_arm64(compat, host_gpus) else "x86_64",
            is_wsl=has_windows_driver,
            has_data_center_gpus=find_data_center_gpus(compat, host_gpus),
            assumption=_describe_wsl_assumption(compat) if has_windows_driver else "",
        )
    host = build_host(_collect_host_facts(compat, recording_path), compat)
    return dataclasses.replace(host, driver=driver, has_driver_gpus=False) if driver is not None else host


def _describe_wsl_assumption(compat: Compat) -> str:
    """Return what a driver of Windows means for a plan, as part of a sentence."""
    last = max(
        (release for release in compat.releases if release.windows_gpu), key=lambda release: release.parsed
    )
    return (
        f"a driver of Windows: this is for Linux under WSL 2, because TensorFlow {last.minor} was the last with GPU "
        "support on native Windows"
    )


def _needs_arm64(compat: Compat, gpus: Sequence[HostGpu]) -> bool:
    """Return whether one of the GPUs exists only in hosts with a 64-bit ARM processor.

    If the name of a GPU is ambiguous, this must be true for all GPUs with that name.
    """
    return any(
        all(
            compat.arm64.find_kind(gpu.name, capability) is not None
            for capability in (gpu.capability, *gpu.other_capabilities)
        )
        for gpu in gpus
    )


def _collect_host_facts(compat: Compat, recording_path: Path | None) -> Facts:
    """Collect the facts about this host or, if `recording_path` is given, those in the recording."""
    from tfdoctor.diagnosis import collect_facts
    from tfdoctor.system import LiveSystem, RecordedSystem

    system = LiveSystem() if recording_path is None else RecordedSystem(recording_path)
    return collect_facts(system, compat, timeout=PROBE_TIMEOUT_S)
