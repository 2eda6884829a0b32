"""Parse the output lines of payload/stages.py, and the JSON files of earlier runs.

Invalid lines are ignored. For an invalid file, UsageError is raised.
"""

from __future__ import annotations

import json
import math
import statistics
from typing import TYPE_CHECKING, Any

from tfdoctor.core.errors import UsageError
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import clean, clean_line
from tfdoctor.extensions.bench.models import (
    GpuObservation,
    Interconnect,
    MeasuredDevice,
    Measurement,
    MedianTime,
    ProcessorTimes,
)
from tfdoctor.extensions.bench.noise import compute_interval
from tfdoctor.extensions.bench.warmup import STEP_PHRASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["RawMeasurements", "parse_earlier_run", "parse_payload_lines"]

MAX_MEASUREMENTS = 5000
"""The maximum number of measurements that are read."""
MAX_ROUNDS = 64
"""The maximum number of rounds that are read from one measurement."""
MAX_LOG_CHARS = 100_000
"""The maximum number of characters that are stored of the log."""
MAX_DEVICES = 256
"""The maximum number of devices that are read."""
WORKLOADS = ("matmul", "conv", "train", "copy", "allreduce")
STRATEGIES = ("one", "towers", "mirrored")
WRITE_HINT = "Write one with tfdoctor bench -o FOLDER."


@dataclass(frozen=True, slots=True)
class RawMeasurements:
    """The measurements of a run before they are evaluated."""

    tensorflow: str | None
    devices: tuple[MeasuredDevice, ...]
    measurements: tuple[Measurement, ...]
    gpu_observations: tuple[GpuObservation, ...] = ()
    stop_reason: str = ""
    """Sentence on why the run ended early, or "" if it did not."""
    error_message: str = ""
    """Error message of the last stage that failed, or "" if none did."""
    disturbance_text: str = ""
    """Description of what disturbed an earlier run. "" if its undisturbed measurements can be compared."""
    links: tuple[Interconnect, ...] = ()
    processor_times: ProcessorTimes | None = None
    log: str = ""
    """Lines about compilation and links between devices that TensorFlow logged when it created its devices."""
    was_interrupted: bool = False
    """Whether the user interrupted the run."""
    has_selected_devices: bool = False
    """Whether the user selected the devices."""
    unsupported_reason: str = ""
    """Reason why none of the requested workloads can run, or "" if some of them can."""
    autotunes_cudnn: bool = True
    """Whether cuDNN chooses its algorithms by trying them."""

    @property
    def has_times(self) -> bool:
        """Whether anything was timed."""
        return any(measurement.seconds for measurement in self.measurements)


def parse_payload_lines(lines: Iterable[object]) -> RawMeasurements:
    """Parse the payload's lines, each a JSON value. Of two lines for the same measurement, the later one counts."""
    version, devices, log, yardstick = None, [], "", None
    error_message, unserved, autotuned = "", "", True
    measurements: dict[tuple[object, ...], Measurement] = {}
    for line in lines:
        if not isinstance(line, dict):
            continue
        if line.get("stage") == "import" and isinstance(line.get("tensorflow"), str):
            version = clean_line(line["tensorflow"], limit=60)
        if line.get("status") == "failed" and isinstance(line.get("detail"), str):
            error_message = clean_line(line["detail"], limit=400)
            unserved = error_message if line.get("wish") is True else ""
        if line.get("stage") != "bench":
            continue
        raw_devices = line.get("devices")
        autotuned = autotuned and line.get("autotune") is not False
        log += clean(line["log"]) if isinstance(line.get("log"), str) else ""
        devices += [
            MeasuredDevice(
                clean_line(item["device"], limit=20),
                _clean_text(item.get("device_name")),
                compute_capability=_clean_text(item.get("compute_capability")),
            )
            for item in (raw_devices[:MAX_DEVICES] if isinstance(raw_devices, list) else ())
            if isinstance(item, dict) and isinstance(item.get("device"), str)
        ]
        yardstick = _parse_yardstick(line.get("yardstick")) or yardstick
        raw_measurement = line.get("run")
        measurement = _parse_with_samples(raw_measurement) if isinstance(raw_measurement, dict) else None
        if measurement is not None and (
            measurement.key in measurements or len(measurements) < MAX_MEASUREMENTS
        ):
            measurements[measurement.key] = measurement
    return RawMeasurements(
        tensorflow=version,
        devices=tuple(devices),
        measurements=tuple(measurements.values()),
        error_message=error_message,
        processor_times=yardstick,
        log=log[:MAX_LOG_CHARS],
        unsupported_reason=unserved,
        autotunes_cudnn=autotuned,
    )


def _parse_yardstick(raw: object) -> ProcessorTimes | None:
    if not isinstance(raw, dict):
        return None
    program, seconds = _clean_text(raw.get("what")), _parse_positive(raw.get("seconds"))
    return ProcessorTimes(program, seconds) if program and seconds else None


def _parse_with_samples(raw: Mapping[str, Any]) -> Measurement | None:
    """Parse a measurement of the payload, whose times are in `samples`. Return None if it is invalid."""
    samples = raw.get("samples")
    times = (
        [t for t in map(_parse_positive, samples[:MAX_MEASUREMENTS]) if t]
        if isinstance(samples, list)
        else []
    )
    rounds = (
        _parse_rounds(raw.get("rounds"), times)
        if isinstance(samples, list) and len(times) == len(samples)
        else ()
    )
    return _parse_measurement(raw, compute_interval(times, rounds), len(times), rounds)


def _parse_rounds(counts: object, times: Sequence[float]) -> tuple[float | None, ...]:
    """Return the median of each round, or None for a round without times.

    `counts` states how many consecutive times belong to each round. The result is empty if they do not match the times.
    """
    # `type` instead of `isinstance`, because True and False are instances of int
    if not isinstance(counts, list) or not all(type(n) is int and n >= 0 for n in counts[:MAX_ROUNDS]):
        return ()
    if len(counts) > MAX_ROUNDS or sum(counts) != len(times):
        return ()
    medians, start = [], 0
    for count in counts:
        medians.append(statistics.median(times[start : start + count]) if count else None)
        start += count
    return tuple(medians)


def _parse_measurement(
    raw: Mapping[str, Any], seconds: MedianTime | None, repeats: int, rounds: tuple[float | None, ...]
) -> Measurement | None:
    """Return a measurement from its JSON object and its evaluated times, or None if the object is invalid."""
    size, devices = raw.get("size"), raw.get("devices")
    if raw.get("workload") not in WORKLOADS or raw.get("strategy") not in STRATEGIES:
        return None
    if (
        not isinstance(size, int)
        or isinstance(size, bool)
        or size < 1
        or not isinstance(devices, list)
        or not devices
    ):
        return None
    return Measurement(
        workload=raw["workload"],
        model=_clean_text(raw.get("model")),
        part=_clean_text(raw.get("part")),
        dtype=_clean_text(raw.get("dtype")) or "float32",
        size=size,
        devices=tuple(clean_line(str(name), limit=20) for name in devices[:MAX_DEVICES]),
        strategy=raw["strategy"],
        seconds=seconds,
        repeats=repeats,
        first_call_seconds=_parse_positive(raw.get("first")),
        flop_count=_parse_positive(raw.get("flop")),
        transferred_bytes=int(_parse_positive(raw.get("bytes")) or 0) or None,
        other_programs_share=0.0 if raw.get("others") == 0 else _parse_positive(raw.get("others")),
        omission_reason=_clean_text(raw.get("left_out")) or "",
        is_software=raw.get("software") is True,
        uses_xla=raw.get("xla") is True,
        averaging_method=_clean_text(raw.get("way")),
        round_medians=rounds,
        compilation_log=clean(raw["heard"]) if isinstance(raw.get("heard"), str) else "",
        first_call_steps=_parse_compiled(raw.get("compile")),
    )


def _parse_compiled(value: object) -> tuple[str, ...]:
    """Return the known steps of a first call in an earlier run's object `compile`."""
    names = value.get("what") if isinstance(value, dict) else None
    return tuple(name for name in names[:8] if name in STEP_PHRASES) if isinstance(names, list) else ()


def _parse_positive(value: object) -> float | None:
    """Return the value as a float if it is a finite number above 0, else None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _clean_text(value: object) -> str | None:
    return clean_line(value, limit=300) if isinstance(value, str) and value else None


def parse_earlier_run(data: bytes, name: str) -> RawMeasurements:
    """Parse a file that `tfdoctor bench --json` or `-o` wrote. Raise UsageError if it is invalid.

    `name` is the file as the user named it.
    """
    error_prefix = f"--compare: {clean_line(name)} is no result of tfdoctor bench"
    try:
        raw = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        message = f"{error_prefix}: it is not JSON."
        raise UsageError(message) from error
    if not isinstance(raw, dict) or "schema_version" not in raw or not isinstance(raw.get("runs"), list):
        message = f"{error_prefix}: `schema_version` and `runs` are not there."
        raise UsageError(message, hint=WRITE_HINT)
    if raw["schema_version"] != 1:
        found_version = clean_line(json.dumps(raw["schema_version"]), limit=40)
        message = f"{error_prefix} that this version of tfdoctor reads: its schema_version is {found_version}, not 1."
        raise UsageError(message, hint=WRITE_HINT)
    measurements = []
    for index, raw_measurement in enumerate(raw["runs"][:MAX_MEASUREMENTS]):
        seconds = raw_measurement.get("seconds") if isinstance(raw_measurement, dict) else None
        median_time = None
        if isinstance(seconds, dict):
            median, low, high = (_parse_positive(seconds.get(key)) for key in ("median", "low", "high"))
            if median and low and high:
                median_time = MedianTime(median, low, high)
        repeats = raw_measurement.get("repeats") if isinstance(raw_measurement, dict) else None
        measurement = (
            _parse_measurement(
                raw_measurement,
                median_time,
                repeats if isinstance(repeats, int) else 0,
                _parse_medians(raw_measurement.get("rounds")),
            )
            if isinstance(raw_measurement, dict)
            else None
        )
        if measurement is None or (seconds is not None and median_time is None):
            message = f"{error_prefix}: its `runs[{index}]` cannot be read."
            raise UsageError(message, hint=WRITE_HINT)
        measurements.append(measurement)
    devices = raw.get("devices")
    return RawMeasurements(
        tensorflow=_clean_text(raw.get("tensorflow")),
        devices=tuple(
            MeasuredDevice(clean_line(device["device"], limit=20), _clean_text(device.get("name")))
            for device in (devices if isinstance(devices, list) else [])[:MAX_DEVICES]
            if isinstance(device, dict) and isinstance(device.get("device"), str)
        ),
        measurements=tuple(measurements),
        disturbance_text=_get_disturbance(raw),
        processor_times=_parse_yardstick(raw.get("yardstick")),
    )


def _parse_medians(value: object) -> tuple[float | None, ...]:
    """Return the round medians of an earlier measurement. The result is empty for older files, which have none."""
    return tuple(map(_parse_positive, value[:MAX_ROUNDS])) if isinstance(value, list) else ()


def _get_disturbance(raw: Mapping[str, Any]) -> str:
    """Return what disturbed an earlier run, or "" if its undisturbed measurements can be compared."""
    disturbance = raw.get("disturbance")
    if isinstance(disturbance, dict) and disturbance.get("much") is False:
        return ""
    return _clean_text(raw.get("disturbed")) or ""
