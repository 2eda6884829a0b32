"""Parse the output lines of payload/stages.py, and the JSON files of earlier runs.

Invalid lines are ignored. An invalid file raises UsageError.
"""

from __future__ import annotations

import json
import math
import statistics
from typing import TYPE_CHECKING, Any

from tfdoctor.bench.models import (
    GpuObservation,
    Interconnect,
    MeasuredDevice,
    Measurement,
    MedianTime,
    ProcessorTimes,
)
from tfdoctor.bench.noise import compute_interval
from tfdoctor.bench.warmup import STEP_NAMES
from tfdoctor.errors import UsageError
from tfdoctor.records import dataclass
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["RawMeasurements", "parse_earlier", "parse_lines"]

MAX_MEASUREMENTS = 5000
"""The maximum number of measurements that are read."""
MAX_ROUNDS = 64
"""The maximum number of rounds that are read from one measurement."""
MAX_LOG_CHARS = 100_000
"""The maximum number of characters that are stored of the log."""
WORKLOADS = ("matmul", "conv", "train", "copy", "allreduce")
WRITE_HINT = "Write one with tfdoctor bench -o FOLDER."
STRATEGIES = ("one", "towers", "mirrored")


@dataclass(frozen=True, slots=True)
class RawMeasurements:
    """The measurements of a run before they are evaluated."""

    tensorflow: str | None
    devices: tuple[MeasuredDevice, ...]
    runs: tuple[Measurement, ...]
    watched: tuple[GpuObservation, ...] = ()
    stopped: str = ""
    """A sentence that says why the run ended early, or "" if it did not."""
    error: str = ""
    """Error message of the last stage that failed, or "" if none did."""
    disturbed: str = ""
    """Description of what disturbed an earlier run, or "" if it can be used for a comparison."""
    links: tuple[Interconnect, ...] = ()
    yardstick: ProcessorTimes | None = None
    log: str = ""
    """Lines about compilation and links between devices that TensorFlow logged when it created its devices."""
    interrupted: bool = False
    """Whether the user interrupted the run."""
    asked: bool = False
    """Whether the user selected the devices."""
    unserved: str = ""
    """Reason why none of the requested workloads can run, or "" if some can."""
    autotuned: bool = True
    """Whether cuDNN chooses its algorithms by trying them."""

    @property
    def any_timed(self) -> bool:
        """Whether anything was timed."""
        return any(timed.seconds for timed in self.runs)


def parse_lines(parts: Iterable[object]) -> RawMeasurements:
    """Parse the payload's lines. Of two lines for the same measurement, the later one counts."""
    version, devices, error, log, autotuned, yardstick, unserved = None, [], "", "", True, None, ""
    runs: dict[tuple[object, ...], Measurement] = {}
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("stage") == "import" and isinstance(part.get("tensorflow"), str):
            version = clean_line(part["tensorflow"], limit=60)
        if part.get("status") == "failed" and isinstance(part.get("detail"), str):
            error = clean_line(part["detail"], limit=400)
            unserved = error if part.get("wish") is True else ""
        if part.get("stage") != "bench":
            continue
        raw_devices = part.get("devices")
        autotuned = autotuned and part.get("autotune") is not False
        log += clean(part["log"]) if isinstance(part.get("log"), str) else ""
        devices += [
            MeasuredDevice(
                clean_line(item["device"], limit=20),
                _clean_text(item.get("device_name")),
                capability=_clean_text(item.get("compute_capability")),
            )
            for item in (raw_devices[:256] if isinstance(raw_devices, list) else ())
            if isinstance(item, dict) and isinstance(item.get("device"), str)
        ]
        yardstick = _parse_yardstick(part.get("yardstick")) or yardstick
        item = part.get("run")
        timed = _parse_timed(item) if isinstance(item, dict) else None
        if timed is not None and (timed.key in runs or len(runs) < MAX_MEASUREMENTS):
            runs[timed.key] = timed
    return RawMeasurements(
        version,
        tuple(devices),
        tuple(runs.values()),
        error=error,
        yardstick=yardstick,
        log=log[:MAX_LOG_CHARS],
        unserved=unserved,
        autotuned=autotuned,
    )


def _parse_yardstick(raw: object) -> ProcessorTimes | None:
    if not isinstance(raw, dict):
        return None
    program, seconds = _clean_text(raw.get("what")), _parse_positive(raw.get("seconds"))
    return ProcessorTimes(program, seconds) if program and seconds else None


def _parse_timed(raw: Mapping[str, Any]) -> Measurement | None:
    """Return a measurement from the payload, whose times are in `samples`, or None if it is invalid."""
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
    return _parse_piece(raw, compute_interval(times, rounds), len(times), rounds)


def _parse_rounds(counts: object, times: Sequence[float]) -> tuple[float | None, ...]:
    """Return the median of each round. `counts` states how many consecutive times belong to each.

    The median of a round without times is None. The result is empty if the counts do not match the times.
    """
    if not isinstance(counts, list) or not all(type(n) is int and n >= 0 for n in counts[:MAX_ROUNDS]):
        return ()
    if len(counts) > MAX_ROUNDS or sum(counts) != len(times):
        return ()
    medians, start = [], 0
    for count in counts:
        medians.append(statistics.median(times[start : start + count]) if count else None)
        start += count
    return tuple(medians)


def _parse_piece(
    raw: Mapping[str, Any], seconds: MedianTime | None, repeats: int, rounds: tuple[float | None, ...]
) -> Measurement | None:
    """Return a measurement from its JSON object and its evaluated times, or None if it is invalid."""
    size, names = raw.get("size"), raw.get("devices")
    if raw.get("workload") not in WORKLOADS or raw.get("strategy") not in STRATEGIES:
        return None
    if (
        not isinstance(size, int)
        or isinstance(size, bool)
        or size < 1
        or not isinstance(names, list)
        or not names
    ):
        return None
    return Measurement(
        workload=raw["workload"],
        model=_clean_text(raw.get("model")),
        part=_clean_text(raw.get("part")),
        dtype=_clean_text(raw.get("dtype")) or "float32",
        size=size,
        devices=tuple(clean_line(str(name), limit=20) for name in names[:256]),
        strategy=raw["strategy"],
        seconds=seconds,
        repeats=repeats,
        first=_parse_positive(raw.get("first")),
        flop=_parse_positive(raw.get("flop")),
        bytes=int(_parse_positive(raw.get("bytes")) or 0) or None,
        others=0.0 if raw.get("others") == 0 else _parse_positive(raw.get("others")),
        left_out=_clean_text(raw.get("left_out")) or "",
        software=raw.get("software") is True,
        xla=raw.get("xla") is True,
        way=_clean_text(raw.get("way")),
        rounds=rounds,
        heard=clean(raw["heard"]) if isinstance(raw.get("heard"), str) else "",
        compiled=_parse_compiled(raw.get("compile")),
    )


def _parse_compiled(value: object) -> tuple[str, ...]:
    names = value.get("what") if isinstance(value, dict) else None
    return tuple(name for name in names[:8] if name in STEP_NAMES) if isinstance(names, list) else ()


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


def parse_earlier(data: bytes, name: str) -> RawMeasurements:
    """Parse a file that `tfdoctor bench --json` or `-o` wrote. Raise UsageError if it is invalid."""
    error_prefix = f"--compare: {clean_line(name)} is no result of tfdoctor bench"
    try:
        raw = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        message = f"{error_prefix}: it is no JSON."
        raise UsageError(message) from error
    if not isinstance(raw, dict) or "schema_version" not in raw or not isinstance(raw.get("runs"), list):
        message = f"{error_prefix}: `schema_version` and `runs` are not there."
        raise UsageError(message, hint=WRITE_HINT)
    if raw["schema_version"] != 1:
        kind = clean_line(json.dumps(raw["schema_version"]), limit=40)
        message = f"{error_prefix} that this version of tfdoctor reads: its schema_version is {kind}, not 1."
        raise UsageError(message, hint=WRITE_HINT)
    runs = []
    for number, run in enumerate(raw["runs"][:MAX_MEASUREMENTS]):
        seconds = run.get("seconds") if isinstance(run, dict) else None
        parsed = None
        if isinstance(seconds, dict):
            median, low, high = (_parse_positive(seconds.get(key)) for key in ("median", "low", "high"))
            if median and low and high:
                parsed = MedianTime(median, low, high)
        repeats = run.get("repeats") if isinstance(run, dict) else None
        piece = (
            _parse_piece(
                run, parsed, repeats if isinstance(repeats, int) else 0, _parse_medians(run.get("rounds"))
            )
            if isinstance(run, dict)
            else None
        )
        if piece is None or (seconds is not None and parsed is None):
            message = f"{error_prefix}: its `runs[{number}]` cannot be read."
            raise UsageError(message, hint=WRITE_HINT)
        runs.append(piece)
    devices = raw.get("devices")
    return RawMeasurements(
        _clean_text(raw.get("tensorflow")),
        tuple(
            MeasuredDevice(clean_line(run["device"], limit=20), _clean_text(run.get("name")))
            for run in (devices if isinstance(devices, list) else [])[:256]
            if isinstance(run, dict) and isinstance(run.get("device"), str)
        ),
        tuple(runs),
        disturbed=_get_disturbance(raw),
        yardstick=_parse_yardstick(raw.get("yardstick")),
    )


def _parse_medians(value: object) -> tuple[float | None, ...]:
    """Return the round medians of an earlier run, or an empty tuple if there are none, as in older files."""
    return tuple(map(_parse_positive, value[:MAX_ROUNDS])) if isinstance(value, list) else ()


def _get_disturbance(raw: Mapping[str, Any]) -> str:
    """Return what disturbed an earlier run, or "" if its other measurements can be compared."""
    disturbance = raw.get("disturbance")
    if isinstance(disturbance, dict) and disturbance.get("much") is False:
        return ""
    return _clean_text(raw.get("disturbed")) or ""
