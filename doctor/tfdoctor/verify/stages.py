"""The stages of a verification, and what payload/stages.py says of them. Pure."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor.examine.tensorflow_run import FROM_PTX
from tfdoctor.findings import Stage
from tfdoctor.system import Failure
from tfdoctor.system.payloads import MARKER
from tfdoctor.text import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.system import CommandResult

__all__ = ["STAGES", "Limits", "PayloadAnswer", "read_answer"]

STAGES = ("runtime", "driver", "libraries", "import", "visible", "compute", "cudnn", "nccl")
PAYLOAD = ("import", "visible", "compute", "cudnn", "nccl")
"""The stages that payload/stages.py goes through, in this order."""
ALARM = 14
"""SIGALRM: the payload ends itself so at a stage's deadline."""
KILL = 9
LAST_SIGNAL = 64
IDLE, BUSY = 0.05, 0.5
"""Processors that a process keeps busy: at most, where it waits; at least, where it works."""
PULSES = 3
"""How many of the last signs of life say what it was doing in the end."""
FATAL = re.compile(
    r"(?:[\d\-]{8,10} [\d:.,]{6,20} ?:? F |F\d{4} |Fatal |terminate called|\s{0,8}what\(\): |.{0,80}Check failed:)"
)
"""How the line begins that says why a process ends itself: glog's F, Python, C++."""
PREFIX = re.compile(
    r"^(?:[\d\-]{8,10} [\d:.,]{6,20} ?:? [IWEF] |[IWEF]\d{4} [\d:.]{6,30} {1,8}\d{1,8} )(?:\S{0,120}/)?"
)
"""What glog puts before a line: the time, and the folder of the source."""
CUDA_ERROR = re.compile(
    r"CUDA_ERROR_(?!NO_DEVICE)[A-Z]|(?:CUBLAS|CUDNN|CUFFT|CUSOLVER|CUSPARSE)_STATUS_(?!SUCCESS)[A-Z]"
)
STATUS = "Status: "
"""How the row after a failed check begins, from TensorFlow 2.17 on: what the status was."""
LONGEST_ROW, KEPT = 300, 110
"""Characters of a line that are shown, and how many of its beginning."""
MAX_CAUSE_LINES = 8
"""Lines before the fatal one that may name its cause."""
SIGNALS = {
    4: "an illegal instruction (SIGILL): this processor lacks what TensorFlow was built for",
    6: "abort (SIGABRT)",
    7: "a bus error (SIGBUS): a file is truncated, or shared memory is full",
    8: "an arithmetic error (SIGFPE)",
    9: "SIGKILL: usually the memory was used up",
    11: "a segmentation fault (SIGSEGV)",
    14: "its deadline",
    15: "SIGTERM",
}
EXPLAINED = (
    (
        re.compile(r"\b((?:cu|nccl|nvml)\w{2,60}) symbol not found"),
        "The library that was loaded in its name has no {0}: it is a stub, a stand-in, or cut off.",
    ),
    (
        re.compile(r"Error loading CUDA libraries"),
        "TensorFlow found a CUDA library that it could not open, or that lacks the functions its name promises.",
    ),
    (
        re.compile(r"\b(CUDA_ERROR_STUB_LIBRARY|CUDA driver is a stub library)"),
        "The toolkit's stub of libcuda was loaded in place of the driver's.",
    ),
    (
        re.compile(r"\b(CUDA_ERROR_NOT_SUPPORTED|cudaErrorNotSupported)\b"),
        "The driver that answers does not compute.",
    ),
)
"""What errors mean that TensorFlow words badly, and that are no signature of a log."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines, in seconds. Compiling PTX for a new card can take half an hour: `compute` is given that."""

    importing: float = 180.0
    visible: float = 120.0
    compute: float = 2400.0
    cudnn: float = 600.0
    nccl: float = 300.0

    def get_limit(self, name: str) -> float:
        return {
            "import": self.importing,
            "visible": self.visible,
            "compute": self.compute,
            "cudnn": self.cudnn,
            "nccl": self.nccl,
        }[name]

    def total(self, names: Iterable[str]) -> float:
        return sum(self.get_limit(name) for name in names)

    def as_json(self) -> dict[str, float]:
        return {name: self.get_limit(name) for name in ("import", "visible", "compute", "cudnn", "nccl")}

    @classmethod
    def with_seconds(cls, seconds: float) -> Limits:
        """Return the same limit for every stage."""
        return cls(seconds, seconds, seconds, seconds, seconds)


@dataclass(frozen=True, slots=True)
class PayloadAnswer:
    """What the payload said, however far it came."""

    stages: tuple[Stage, ...]
    devices: tuple[str, ...] = ()
    """As TensorFlow names them."""
    computed: dict[int, str] = field(default_factory=dict)
    """GPU → "" where it computes correctly, else what is wrong."""
    error: str = ""
    timed_out: bool = False
    topology: str = ""
    """nvidia-smi's matrix, where NCCL was tried."""

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def status(self, name: str) -> str | None:
        stage = self.stage(name)
        return stage.status if stage is not None else None

    def count_computed(self) -> int:
        return sum(not wrong for wrong in self.computed.values())

    def format_computed(self) -> list[str]:
        """Return lines as the rules know them: "GPU:0 ok", "GPU:1 failed: …"."""
        return [
            f"GPU:{index} {f'failed: {_strip_location(wrong)}' if wrong else 'ok'}"
            for index, wrong in sorted(self.computed.items())
        ]


_PLACE = lazy_pattern(
    r"\s*(?:File \"|Detected at node|Graph execution error|Node: |\[\[)|.{0,80}: Graph execution error:"
)


def _strip_location(wrong: str) -> str:
    """Remove the location in the program, which TensorFlow 2 puts before the error."""
    rows = [row.strip() for row in wrong.splitlines() if row.strip() and not _PLACE.match(row)]
    return "\n".join(rows) or wrong


@dataclass(slots=True)
class _Heard:
    """The payload's lines, as far as they came."""

    stages: dict[str, Stage] = field(default_factory=dict)
    begun: str | None = None
    """The stage that began and did not end."""
    computing: tuple[int, str] | None = None
    """GPU and dtype that were begun and did not end."""
    busy: list[float] = field(default_factory=list)
    """How many processors it kept busy, of the begun stage."""
    devices: tuple[str, ...] = ()
    computed: dict[int, str] = field(default_factory=dict)
    error: str = ""
    topology: str = ""
    ended: bool = False
    """It came to its end by itself."""

    def take(self, line: dict[str, Any]) -> None:
        self.ended = self.ended or line.get("end") is True
        name = line.get("stage")
        if not isinstance(name, str) or name not in PAYLOAD:
            return
        status = line.get("status")
        if status == "begin":
            self.begun, self.computing, self.busy = name, None, []
        elif status == "running":
            self.busy.append(_number(line.get("busy")))
        elif status in ("passed", "failed", "skipped"):
            detail = _text(line.get("detail"))
            if status == "failed":
                self.error = self.error or _text(line.get("error")) or detail
                detail = add_explanation(detail)
            self.stages[name] = Stage(name, status, detail, _number(line.get("seconds")))
            self.begun = self.computing = None
        if isinstance(line.get("devices"), list):
            self.devices = tuple(str(one) for one in line["devices"][:256])
        self.topology = self.topology or _text(line.get("topology"))
        self._take_gpu_line(name, line)

    def _take_gpu_line(self, name: str, line: dict[str, Any]) -> None:
        at, card = line.get("computing"), line.get("gpu")
        if isinstance(at, int):
            self.computing = (at, _text(line.get("dtype")))
        if isinstance(card, int) and "ok" in line:
            self.computing = None
            if line["ok"] is not True:
                self.error = self.error or _text(line.get("error"))
            if name == "compute":
                wrong = "" if line["ok"] is True else _text(line.get("error")) or "the result is wrong"
                self.computed[card] = self.computed.get(card, "") or wrong


def read_answer(result: CommandResult, limits: Limits) -> PayloadAnswer:
    """Read the payload's lines, completed by how its process ended."""
    heard = _Heard()
    for line in _lines(result.stdout):
        heard.take(line)
    timed_out = False
    failed = any(stage.status == "failed" for stage in heard.stages.values())
    if not heard.stages and heard.begun is None:
        why = f"Python {result.describe_end()}. {_find_last_error(result.stderr)}".strip()
        heard.stages["import"] = Stage("import", "failed", why, round(result.seconds, 2))
        heard.error = why
    elif heard.begun is not None or not (heard.ended or failed):
        stage = heard.begun or _find_next_stage(heard.stages)
        if stage is not None:
            detail, timed_out = _describe_end(stage, result, limits, heard)
            if heard.computing is not None and stage == "compute":
                heard.computed[heard.computing[0]] = detail
            detail = add_explanation(detail)
            if heard.error:  # a card that failed before is nearer to the cause
                detail = add_explanation(
                    f"{heard.error.splitlines()[0][:300]}. Then TensorFlow {detail.removeprefix('TensorFlow ')}"
                )
            spent = sum(done.seconds for done in heard.stages.values())
            heard.stages[stage] = Stage(stage, "failed", detail, round(max(result.seconds - spent, 0.0), 2))
            heard.error = heard.error or detail
    ordered = tuple(sorted(heard.stages.values(), key=lambda stage: STAGES.index(stage.name)))
    return PayloadAnswer(ordered, heard.devices, heard.computed, heard.error, timed_out, heard.topology)


def add_explanation(detail: str) -> str:
    """Add a sentence if TensorFlow's own words do not say what is wrong."""
    for pattern, sentence in EXPLAINED:
        match = pattern.search(detail)
        if match is not None:
            return f"{detail.rstrip('. ')}. {sentence.format(*match.groups())}"
    return detail


def _lines(text: str) -> Iterable[dict[str, Any]]:
    for row in text.splitlines():
        if row.startswith(MARKER):
            try:
                line = json.loads(row[len(MARKER) :])
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                yield line


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    return (
        float(value) if isinstance(value, (int, float)) and abs(value) < math.inf else 0.0
    )  # NaN is not less either


def _find_next_stage(done: Iterable[str]) -> str | None:
    """Return the stage after the last that ended, if the process ended between two."""
    last = max(PAYLOAD.index(name) for name in done)
    return PAYLOAD[last + 1] if last + 1 < len(PAYLOAD) else None


def _describe_end(stage: str, result: CommandResult, limits: Limits, heard: _Heard) -> tuple[str, bool]:
    """Return a sentence on how the process ended during a stage, and whether its time was up."""
    number = None
    code = result.returncode or 0
    for candidate in (-code, code - 128):
        if 0 < candidate <= LAST_SIGNAL:
            number = candidate
    at = ""
    if heard.computing is not None:
        card, dtype = heard.computing
        at = f" on GPU:{card}{f' ({dtype})' if dtype else ''}"
    if result.failure is Failure.TIMEOUT or number == ALARM:
        late = f"did not end within {limits.get_limit(stage):.0f} s{at}. {_describe_activity(stage, result, heard)}"
        return late.strip(), True
    if number == KILL:  # nobody is told before: what stands last in the log is not the reason
        return (
            f"TensorFlow was ended by {SIGNALS[KILL]}{at}. {_find_last_error(result.stderr, fatal=True)}".strip(),
            False,
        )
    end = (
        f"was ended by {SIGNALS.get(number, f'signal {number}')}"
        if number is not None
        else result.describe_end()
    )
    return f"TensorFlow {end}{at}. {_find_last_error(result.stderr)}".strip(), False


def _describe_activity(stage: str, result: CommandResult, heard: _Heard) -> str:
    """Return what it did until its time was up: compiling PTX is work, and most hangs are none."""
    last = heard.busy[-PULSES:]
    share = sum(last) / len(last) if last else None
    if stage == "nccl":  # it waits for the other cards, idle or not
        return (
            "An all-reduce that never ends: the GPUs cannot reach each other (NCCL_P2P_DISABLE=1 avoids PCIe peer "
            "access, NCCL_DEBUG=INFO tells more)."
        )
    if share is not None and share < IDLE:
        waits = "for the disk, or for a driver" if stage == "import" else "for a driver or a card"
        return f"The process was idle: it waited {waits} that does not answer. That is a hang, not a long computation."
    if FROM_PTX in result.stderr and stage != "import":
        return (
            "TensorFlow said that it compiles PTX for a card without machine code of its own, which takes up to half "
            "an hour, once: give it a longer --timeout."
        )
    if stage == "import":
        return ""
    work = "The process was busy. " if share is not None and share >= BUSY else ""
    return (
        f"{work}Compiling PTX for a card without machine code of its own takes up to half an hour, once; a longer "
        "--timeout tells it from a hang."
    )


def _cut_middle(row: str) -> str:
    """Cut the middle of a long line: the check stands at its beginning, and its status at its end."""
    return row if len(row) <= LONGEST_ROW else f"{row[:KEPT]} … {row[-(LONGEST_ROW - KEPT) :]}"


def _find_last_error(stderr: str, *, fatal: bool = False) -> str:
    """Return why it ended, in its own words: the last fatal line, else (not `fatal`) the last one.

    CUDA's error right before it is included.
    """
    rows = [row.strip() for row in stderr.splitlines() if row.strip()] or [""]
    at = next((n for n in reversed(range(len(rows))) if FATAL.match(rows[n])), -1)
    if at < 0:
        if fatal:
            return ""
        at = len(rows) - 1
    near = [
        row
        for row in rows[max(at - MAX_CAUSE_LINES, 0) : at + 1]
        if CUDA_ERROR.search(row) and "peer access" not in row
    ]
    fatal_row = rows[at]
    if at + 1 < len(rows) and rows[at + 1].startswith(STATUS):
        fatal_row += f" {rows[at + 1]}"
    parts = [_cut_middle(PREFIX.sub("", row)) for row in dict.fromkeys((*near[-1:], fatal_row))]
    return "; ".join(parts)
