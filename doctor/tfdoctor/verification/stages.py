"""Define the stages of a verification, and parse the output of payload/stages.py."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Stage
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.diagnosis.tensorflow_run import PTX_MESSAGE
from tfdoctor.system import Failure
from tfdoctor.system.payloads import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.system import CommandResult

__all__ = ["STAGES", "Limits", "PayloadResults", "parse_payload_results"]

STAGES = ("runtime", "driver", "libraries", "import", "visible", "compute", "cudnn", "nccl")
PAYLOAD_STAGES = ("import", "visible", "compute", "cudnn", "nccl")
"""Stages that payload/stages.py runs, in this order."""
ALARM_SIGNAL = 14
"""SIGALRM, which ends the payload at the time limit of a stage."""
KILL_SIGNAL = 9
"""SIGKILL, which the kernel sends if memory is used up."""
MAX_SIGNAL = 64
MAX_IDLE_PROCESSORS, MIN_BUSY_PROCESSORS = 0.05, 0.5
"""Mean number of busy processors: less than IDLE if the process waits, at least BUSY if it computes."""
MAX_ACTIVITY_LINES = 3
"""Number of the last "running" lines that are evaluated to tell what the process was doing."""
FATAL_LINE = re.compile(
    r"(?:[\d\-]{8,10} [\d:.,]{6,20} ?:? F |F\d{4} |Fatal |terminate called|\s{0,8}what\(\): |.{0,80}Check failed:)"
)
"""The beginning of a line that states why a process ended: a fatal log message, or an error of Python or C++."""
GLOG_PREFIX = re.compile(
    r"^(?:[\d\-]{8,10} [\d:.,]{6,20} ?:? [IWEF] |[IWEF]\d{4} [\d:.]{6,30} {1,8}\d{1,8} )(?:\S{0,120}/)?"
)
"""The prefix of a glog message: the time and the folder of the source file."""
CUDA_ERROR = re.compile(
    r"CUDA_ERROR_(?!NO_DEVICE)[A-Z]|(?:CUBLAS|CUDNN|CUFFT|CUSOLVER|CUSPARSE)_STATUS_(?!SUCCESS)[A-Z]"
)
"""The name of an error code of CUDA or one of its libraries."""
_LOCATION_LINE = make_lazy_pattern(
    r"\s*(?:File \"|Detected at node|Graph execution error|Node: |\[\[)|.{0,80}: Graph execution error:"
)
"""A line of an error that only names the location in the user's program."""
STATUS_LINE_PREFIX = "Status: "
"""The beginning of the line after a failed check in TensorFlow 2.17 and newer."""
MAX_LINE_CHARS, HEAD_CHARS = 300, 110
"""The number of characters to which a long line is cut, and the number of those that come from its beginning."""
MAX_CAUSE_LINES = 8
"""Number of lines before the fatal line that may name its cause."""
SIGNAL_DESCRIPTIONS = {
    4: "an illegal instruction (SIGILL): this processor lacks what TensorFlow was built for",
    6: "abort (SIGABRT)",
    7: "a bus error (SIGBUS): a file is truncated, or shared memory is full",
    8: "an arithmetic error (SIGFPE)",
    9: "SIGKILL: usually the memory was used up",
    11: "a segmentation fault (SIGSEGV)",
    14: "its deadline",
    15: "SIGTERM",
}
"""Phrases for the signals that can end the payload."""
ERROR_EXPLANATIONS = (
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
"""Explanations of unclear TensorFlow errors that have no log signature."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limit of each stage in seconds. In `compute`, compiling PTX can take half an hour."""

    importing: float = 180.0
    visible: float = 120.0
    compute: float = 2400.0
    cudnn: float = 600.0
    nccl: float = 300.0

    def get_limit(self, name: str) -> float:
        return self.as_json()[name]

    def sum_limits(self, names: Iterable[str]) -> float:
        return sum(self.get_limit(name) for name in names)

    def as_json(self) -> dict[str, float]:
        """Return the limits by stage, in the order of the fields."""
        return {
            "import": self.importing,
            "visible": self.visible,
            "compute": self.compute,
            "cudnn": self.cudnn,
            "nccl": self.nccl,
        }

    @classmethod
    def from_seconds(cls, seconds: float) -> Limits:
        """Return limits with the same number of seconds for every stage."""
        return cls(seconds, seconds, seconds, seconds, seconds)


@dataclass(frozen=True, slots=True)
class PayloadResults:
    """The results that the payload printed, even if it ended early."""

    stages: tuple[Stage, ...]
    device_names: tuple[str, ...] = ()
    """TensorFlow's names of the devices."""
    error_by_gpu: dict[int, str] = field(default_factory=dict)
    """The error of each GPU, by its number; "" if the GPU computes correctly."""
    first_error: str = ""
    """The first error; "" if there is none."""
    timed_out: bool = False
    """Whether a stage exceeded its time limit."""
    topology: str = ""
    """The topology matrix of nvidia-smi; "" if NCCL was not tried."""

    def find_stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def get_status(self, name: str) -> str | None:
        stage = self.find_stage(name)
        return stage.status if stage is not None else None

    def count_correct_gpus(self) -> int:
        return sum(not error for error in self.error_by_gpu.values())

    def format_gpu_results(self) -> list[str]:
        """Return one line for each GPU as the rules expect it: "GPU:0 ok" or "GPU:1 failed: …"."""
        return [
            f"GPU:{index} {f'failed: {_strip_location(error)}' if error else 'ok'}"
            for index, error in sorted(self.error_by_gpu.items())
        ]


def _strip_location(error: str) -> str:
    """Return an error without the lines that TensorFlow 2 adds for the location in the program."""
    lines = [line.strip() for line in error.splitlines() if line.strip() and not _LOCATION_LINE.match(line)]
    return "\n".join(lines) or error


@dataclass(slots=True)
class _PayloadState:
    """The state of the payload according to its output so far."""

    stages: dict[str, Stage] = field(default_factory=dict)
    unfinished_stage: str | None = None
    """The unfinished stage; None if there is none."""
    running_computation: tuple[int, str] | None = None
    """The number of the GPU and the dtype of the unfinished computation; None if there is none."""
    busy_processors: list[float] = field(default_factory=list)
    """The number of processors that the unfinished stage used, according to each "running" line."""
    device_names: tuple[str, ...] = ()
    error_by_gpu: dict[int, str] = field(default_factory=dict)
    first_error: str = ""
    topology: str = ""
    is_complete: bool = False
    """Whether the payload ran to its end."""

    def update(self, line: dict[str, Any]) -> None:
        """Update the state with one line of the payload."""
        self.is_complete = self.is_complete or line.get("end") is True
        name = line.get("stage")
        if not isinstance(name, str) or name not in PAYLOAD_STAGES:
            return
        status = line.get("status")
        if status == "begin":
            self.unfinished_stage, self.running_computation, self.busy_processors = name, None, []
        elif status == "running":
            self.busy_processors.append(_as_number(line.get("busy")))
        elif status in ("passed", "failed", "skipped"):
            detail = _as_text(line.get("detail"))
            if status == "failed":
                self.first_error = self.first_error or _as_text(line.get("error")) or detail
                detail = add_explanation(detail)
            self.stages[name] = Stage(name, status, detail, _as_number(line.get("seconds")))
            self.unfinished_stage = self.running_computation = None
        if isinstance(line.get("devices"), list):
            self.device_names = tuple(str(device) for device in line["devices"][:256])
        self.topology = self.topology or _as_text(line.get("topology"))
        self._take_gpu_line(name, line)

    def _take_gpu_line(self, name: str, line: dict[str, Any]) -> None:
        """Update the state of a GPU's computation."""
        computing_gpu, gpu = line.get("computing"), line.get("gpu")
        if isinstance(computing_gpu, int):
            self.running_computation = (computing_gpu, _as_text(line.get("dtype")))
        if isinstance(gpu, int) and "ok" in line:
            self.running_computation = None
            if line["ok"] is not True:
                self.first_error = self.first_error or _as_text(line.get("error"))
            if name == "compute":
                error = "" if line["ok"] is True else _as_text(line.get("error")) or "the result is wrong"
                self.error_by_gpu[gpu] = self.error_by_gpu.get(gpu, "") or error


def parse_payload_results(result: CommandResult, limits: Limits) -> PayloadResults:
    """Return the results that the payload printed. If it ended early, the unfinished stage failed."""
    state = _PayloadState()
    for line in _parse_lines(result.stdout):
        state.update(line)
    timed_out = False
    has_failed = any(stage.status == "failed" for stage in state.stages.values())
    if not state.stages and state.unfinished_stage is None:
        reason = f"Python {result.describe_outcome()}. {_find_last_error(result.stderr)}".strip()
        state.stages["import"] = Stage("import", "failed", reason, round(result.seconds, 2))
        state.first_error = reason
    elif state.unfinished_stage is not None or not (state.is_complete or has_failed):
        stage = state.unfinished_stage or _find_next_stage(state.stages)
        if stage is not None:
            detail, timed_out = _describe_end(stage, result, limits, state)
            if state.running_computation is not None and stage == "compute":
                gpu, _ = state.running_computation
                state.error_by_gpu[gpu] = detail
            detail = add_explanation(detail)
            if state.first_error:  # an earlier error of another GPU is closer to the cause
                detail = add_explanation(
                    f"{state.first_error.splitlines()[0][:300]}. Then TensorFlow {detail.removeprefix('TensorFlow ')}"
                )
            earlier_seconds = sum(finished_stage.seconds for finished_stage in state.stages.values())
            state.stages[stage] = Stage(
                stage, "failed", detail, round(max(result.seconds - earlier_seconds, 0.0), 2)
            )
            state.first_error = state.first_error or detail
    sorted_stages = tuple(sorted(state.stages.values(), key=lambda stage: STAGES.index(stage.name)))
    return PayloadResults(
        stages=sorted_stages,
        device_names=state.device_names,
        error_by_gpu=state.error_by_gpu,
        first_error=state.first_error,
        timed_out=timed_out,
        topology=state.topology,
    )


def add_explanation(detail: str) -> str:
    """Append an explanation to the detail if TensorFlow's message in it is known to be unclear."""
    for pattern, sentence in ERROR_EXPLANATIONS:
        match = pattern.search(detail)
        if match is not None:
            return f"{detail.rstrip('. ')}. {sentence.format(*match.groups())}"
    return detail


def _parse_lines(text: str) -> Iterable[dict[str, Any]]:
    """Yield the JSON objects of the payload's output lines."""
    for line in text.splitlines():
        if line.startswith(MARKER):
            try:
                record = json.loads(line[len(MARKER) :])
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def _as_text(value: object) -> str:
    """Return the value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def _as_number(value: object) -> float:
    """Return the value if it is a finite number, else 0. NaN fails the comparison, too."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < math.inf else 0.0


def _find_next_stage(finished_names: Iterable[str]) -> str | None:
    """Return the stage after the last finished one; None if all stages have finished.

    A process that ended between two stages counts as ended in the later one.
    """
    last_index = max(PAYLOAD_STAGES.index(name) for name in finished_names)
    return PAYLOAD_STAGES[last_index + 1] if last_index + 1 < len(PAYLOAD_STAGES) else None


def _describe_end(
    stage: str, result: CommandResult, limits: Limits, state: _PayloadState
) -> tuple[str, bool]:
    """Describe how the process ended during a stage. Return the text, and whether it timed out."""
    signal_number = None
    status = result.returncode or 0
    for candidate in (-status, status - 128):  # the latter if a shell ran the program
        if 0 < candidate <= MAX_SIGNAL:
            signal_number = candidate
    device = ""
    if state.running_computation is not None:
        gpu, dtype = state.running_computation
        device = f" on GPU:{gpu}{f' ({dtype})' if dtype else ''}"
    if result.failure is Failure.TIMEOUT or signal_number == ALARM_SIGNAL:
        text = f"did not end within {limits.get_limit(stage):.0f} s{device}. {_describe_activity(stage, result, state)}"
        return text.strip(), True
    if (
        signal_number == KILL_SIGNAL
    ):  # a killed process logs no reason, so the last line of the log is unrelated
        last_error = _find_last_error(result.stderr, fatal=True)
        return (
            f"TensorFlow was ended by {SIGNAL_DESCRIPTIONS[KILL_SIGNAL]}{device}. {last_error}".strip(),
            False,
        )
    end_text = (
        f"was ended by {SIGNAL_DESCRIPTIONS.get(signal_number, f'signal {signal_number}')}"
        if signal_number is not None
        else result.describe_outcome()
    )
    return f"TensorFlow {end_text}{device}. {_find_last_error(result.stderr)}".strip(), False


def _describe_activity(stage: str, result: CommandResult, state: _PayloadState) -> str:
    """Describe what the process did at its time limit. Compiling PTX keeps it busy, but most hangs do not."""
    last_values = state.busy_processors[-MAX_ACTIVITY_LINES:]
    mean_busy = sum(last_values) / len(last_values) if last_values else None
    if stage == "nccl":  # it waits for the other GPUs, idle or not
        return (
            "An all-reduce that never ends: the GPUs cannot reach each other (NCCL_P2P_DISABLE=1 avoids PCIe peer "
            "access, NCCL_DEBUG=INFO tells more)."
        )
    if mean_busy is not None and mean_busy < MAX_IDLE_PROCESSORS:
        waits = "for the disk, or for a driver" if stage == "import" else "for a driver or a card"
        return f"The process was idle: it waited {waits} that does not answer. That is a hang, not a long computation."
    if PTX_MESSAGE in result.stderr and stage != "import":
        return (
            "TensorFlow said that it compiles PTX for a card without machine code of its own, which takes up to half "
            "an hour, once: give it a longer --timeout."
        )
    if stage == "import":
        return ""
    work = "The process was busy. " if mean_busy is not None and mean_busy >= MIN_BUSY_PROCESSORS else ""
    return (
        f"{work}Compiling PTX for a card without machine code of its own takes up to half an hour, once; a longer "
        "--timeout tells it from a hang."
    )


def _cut_middle(line: str) -> str:
    """Cut out the middle of a long line. The failed check is at its beginning, and the status at its end."""
    return (
        line
        if len(line) <= MAX_LINE_CHARS
        else f"{line[:HEAD_CHARS]} … {line[-(MAX_LINE_CHARS - HEAD_CHARS) :]}"
    )


def _find_last_error(stderr: str, *, fatal: bool = False) -> str:
    """Return the last fatal line of the log, after the CUDA error that precedes it, if there is one.

    If there is no fatal line, return the last line, or "" if `fatal` is true.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or [""]
    # -1 if there is no fatal line
    index = next((number for number in reversed(range(len(lines))) if FATAL_LINE.match(lines[number])), -1)
    if index < 0:
        if fatal:
            return ""
        index = len(lines) - 1
    error_lines = [
        line
        for line in lines[max(index - MAX_CAUSE_LINES, 0) : index + 1]
        if CUDA_ERROR.search(line) and "peer access" not in line
    ]
    fatal_line = lines[index]
    if index + 1 < len(lines) and lines[index + 1].startswith(STATUS_LINE_PREFIX):
        fatal_line += f" {lines[index + 1]}"
    parts = [
        _cut_middle(GLOG_PREFIX.sub("", line)) for line in dict.fromkeys((*error_lines[-1:], fatal_line))
    ]
    return "; ".join(parts)
