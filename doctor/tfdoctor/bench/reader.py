"""The lines of payload/stages.py, or an earlier answer's JSON → what was timed. Strict: wrong lines are passed over, a
wrong file is refused."""

from __future__ import annotations

import json
import math
import statistics
from typing import TYPE_CHECKING, Any

from tfdoctor.bench.models import Interconnect, ProcessorTimes, Seconds, Timed, TimedDevice, Watched
from tfdoctor.bench.noise import interval
from tfdoctor.bench.warmup import NAMES
from tfdoctor.errors import UsageError
from tfdoctor.records import dataclass
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Measured", "earlier", "read_lines"]

MAX_PIECES = 5000
"""Pieces of work that are read."""
ROUNDS = 64
"""Rounds that are read."""
LOG = 100_000
"""Characters of the log that are kept."""
WORKLOADS = ("matmul", "conv", "train", "copy", "allreduce")
WRITE_ONE = "Write one with tfdoctor bench -o FOLDER."
STRATEGIES = ("one", "towers", "mirrored")


@dataclass(frozen=True, slots=True)
class Measured:
    """What was timed, before it is judged."""

    tensorflow: str | None
    devices: tuple[TimedDevice, ...]
    runs: tuple[Timed, ...]
    watched: tuple[Watched, ...] = ()
    stopped: str = ""
    error: str = ""
    """Why nothing or not all could be timed, in TensorFlow's words."""
    disturbed: str = ""
    """Of an earlier answer: by what, where it was so much that nothing follows from it."""
    links: tuple[Interconnect, ...] = ()
    yardstick: ProcessorTimes | None = None
    log: str = ""
    """Of TensorFlow's log of making its devices: the lines that tell of compiling and of ways between devices."""
    interrupted: bool = False
    """By whoever started it."""
    asked: bool = False
    """Whether its devices were asked for by name."""
    unserved: str = ""
    """Why no work is what was wished."""
    autotuned: bool = True
    """Whether cuDNN's algorithms are chosen by trying them."""

    @property
    def any_timed(self) -> bool:
        """Whether there is a time at all."""
        return any(one.seconds for one in self.runs)


def read_lines(parts: Iterable[object]) -> Measured:
    """Return the payload's lines, decoded: of two of the same piece the later one holds."""
    version, devices, error, log, autotuned, yardstick, unserved = None, [], "", "", True, None, ""
    runs: dict[tuple[object, ...], Timed] = {}
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
        listed = part.get("devices")
        autotuned = autotuned and part.get("autotune") is not False
        log += clean(part["log"]) if isinstance(part.get("log"), str) else ""
        devices += [
            TimedDevice(
                clean_line(one["device"], limit=20),
                _text(one.get("device_name")),
                capability=_text(one.get("compute_capability")),
            )
            for one in (listed[:256] if isinstance(listed, list) else ())
            if isinstance(one, dict) and isinstance(one.get("device"), str)
        ]
        yardstick = _yardstick(part.get("yardstick")) or yardstick
        one = part.get("run")
        timed = _parse_timed(one) if isinstance(one, dict) else None
        if timed is not None and (timed.key in runs or len(runs) < MAX_PIECES):
            runs[timed.key] = timed
    return Measured(
        version,
        tuple(devices),
        tuple(runs.values()),
        error=error,
        yardstick=yardstick,
        log=log[:LOG],
        unserved=unserved,
        autotuned=autotuned,
    )


def _yardstick(raw: object) -> ProcessorTimes | None:
    if not isinstance(raw, dict):
        return None
    what, seconds = _text(raw.get("what")), _positive(raw.get("seconds"))
    return ProcessorTimes(what, seconds) if what and seconds else None


def _parse_timed(raw: Mapping[str, Any]) -> Timed | None:
    samples = raw.get("samples")
    times = [one for one in map(_positive, samples[:MAX_PIECES]) if one] if isinstance(samples, list) else []
    rounds = (
        _rounds(raw.get("rounds"), times) if isinstance(samples, list) and len(times) == len(samples) else ()
    )
    return _piece(raw, interval(times, rounds), len(times), rounds)


def _rounds(counts: object, times: Sequence[float]) -> tuple[float | None, ...]:
    """Return the median of each round, of whose times there are so many one after the other.

    () where they do not add up.
    """
    if not isinstance(counts, list) or not all(type(one) is int and one >= 0 for one in counts[:ROUNDS]):
        return ()
    if len(counts) > ROUNDS or sum(counts) != len(times):
        return ()
    found, at = [], 0
    for count in counts:
        found.append(statistics.median(times[at : at + count]) if count else None)
        at += count
    return tuple(found)


def _piece(
    raw: Mapping[str, Any], seconds: Seconds | None, repeats: int, rounds: tuple[float | None, ...]
) -> Timed | None:
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
    return Timed(
        workload=raw["workload"],
        model=_text(raw.get("model")),
        part=_text(raw.get("part")),
        dtype=_text(raw.get("dtype")) or "float32",
        size=size,
        devices=tuple(clean_line(str(name), limit=20) for name in names[:256]),
        strategy=raw["strategy"],
        seconds=seconds,
        repeats=repeats,
        first=_positive(raw.get("first")),
        flop=_positive(raw.get("flop")),
        bytes=int(_positive(raw.get("bytes")) or 0) or None,
        others=0.0 if raw.get("others") == 0 else _positive(raw.get("others")),
        left_out=_text(raw.get("left_out")) or "",
        software=raw.get("software") is True,
        xla=raw.get("xla") is True,
        way=_text(raw.get("way")),
        rounds=rounds,
        heard=clean(raw["heard"]) if isinstance(raw.get("heard"), str) else "",
        compiled=_parse_compiled(raw.get("compile")),
    )


def _parse_compiled(told: object) -> tuple[str, ...]:
    what = told.get("what") if isinstance(told, dict) else None
    return tuple(word for word in what[:8] if word in NAMES) if isinstance(what, list) else ()


def _positive(value: object) -> float | None:
    """Return a number above 0; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _text(value: object) -> str | None:
    return clean_line(value, limit=300) if isinstance(value, str) and value else None


def earlier(data: bytes, name: str) -> Measured:
    """Return the file that `tfdoctor bench --json` or `-o` wrote. Raises UsageError if it is none."""
    wrong = f"--compare: {clean_line(name)} is no result of tfdoctor bench"
    try:
        raw = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        message = f"{wrong}: it is no JSON."
        raise UsageError(message) from error
    if not isinstance(raw, dict) or "schema_version" not in raw or not isinstance(raw.get("runs"), list):
        message = f"{wrong}: `schema_version` and `runs` are not there."
        raise UsageError(message, hint=WRITE_ONE)
    if raw["schema_version"] != 1:
        kind = clean_line(json.dumps(raw["schema_version"]), limit=40)
        message = f"{wrong} that this version of tfdoctor reads: its schema_version is {kind}, not 1."
        raise UsageError(message, hint=WRITE_ONE)
    runs = []
    for number, one in enumerate(raw["runs"][:MAX_PIECES]):
        seconds = one.get("seconds") if isinstance(one, dict) else None
        known = None
        if isinstance(seconds, dict):
            median, low, high = (_positive(seconds.get(key)) for key in ("median", "low", "high"))
            if median and low and high:
                known = Seconds(median, low, high)
        repeats = one.get("repeats") if isinstance(one, dict) else None
        piece = (
            _piece(one, known, repeats if isinstance(repeats, int) else 0, _medians(one.get("rounds")))
            if isinstance(one, dict)
            else None
        )
        if piece is None or (seconds is not None and known is None):
            message = f"{wrong}: its `runs[{number}]` cannot be read."
            raise UsageError(message, hint=WRITE_ONE)
        runs.append(piece)
    devices = raw.get("devices")
    return Measured(
        _text(raw.get("tensorflow")),
        tuple(
            TimedDevice(clean_line(one["device"], limit=20), _text(one.get("name")))
            for one in (devices if isinstance(devices, list) else [])[:256]
            if isinstance(one, dict) and isinstance(one.get("device"), str)
        ),
        tuple(runs),
        disturbed=_much(raw),
        yardstick=_yardstick(raw.get("yardstick")),
    )


def _medians(told: object) -> tuple[float | None, ...]:
    """Of an earlier answer; older ones have none."""
    return tuple(map(_positive, told[:ROUNDS])) if isinstance(told, list) else ()


def _much(raw: Mapping[str, Any]) -> str:
    """By what an earlier run was disturbed; "" where it was so little that the rest of it can be compared."""
    told = raw.get("disturbance")
    if isinstance(told, dict) and told.get("much") is False:
        return ""
    return _text(raw.get("disturbed")) or ""
