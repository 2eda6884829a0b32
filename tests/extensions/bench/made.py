"""Results of `tfdoctor bench` for tests; every time is computed by a formula."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfdoctor.extensions.bench.analysis import evaluate_bench
from tfdoctor.extensions.bench.reader import parse_payload_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.extensions.bench.models import Bench, GpuObservation, Interconnect

SPREAD = (0.97, 0.98, 0.99, 1.0, 1.0, 1.0, 1.01, 1.02, 1.03)


def make_run_line(seconds: float, *devices: str, **facts: Any) -> dict[str, Any]:
    """Return a payload line with nine samples close to `seconds`."""
    run = {
        "workload": "matmul",
        "model": None,
        "dtype": "float32",
        "size": 1024,
        "devices": list(devices) or ["CPU:0"],
        "strategy": "one",
        "first": seconds * 10,
        "samples": [seconds * factor for factor in SPREAD],
        **facts,
    }
    return {"stage": "bench", "run": run}


def make_training_line(seconds: float, *devices: str, **facts: Any) -> dict[str, Any]:
    """Return the payload line of a training step."""
    strategy = "one" if len(devices) == 1 else "towers"
    return make_run_line(
        seconds, *devices, **{"workload": "train", "model": "cnn", "size": 64, "strategy": strategy, **facts}
    )


def make_devices_line(*names: str) -> dict[str, Any]:
    """Return the payload line that lists the devices."""
    return {"stage": "bench", "devices": [{"device": name, "device_name": "Tesla T4"} for name in names]}


def make_bench(
    *parts: Mapping[str, Any],
    watched: Sequence[GpuObservation] = (),
    peaks: Mapping[str, float] | None = None,
    links: Sequence[Interconnect] = (),
    software: bool = False,
) -> Bench:
    """Return the evaluated result of the payload lines `parts`."""
    measured = parse_payload_lines([{"stage": "import", "tensorflow": "2.20.0"}, *parts])
    return evaluate_bench(
        dataclasses.replace(measured, gpu_observations=tuple(watched), links=tuple(links)),
        "python",
        {name: {"float32": peak} for name, peak in (peaks or {}).items()},
        is_software=software,
    )
