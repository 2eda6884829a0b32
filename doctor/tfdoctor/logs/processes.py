"""Split the events of a log by process, so that each process gets its own cause.

Three criteria tell processes apart, in this order:

1. The text before a message: a rank, process number, pod, container or host.
2. The thread number that Abseil's logger writes, for messages that a process prints only once.
3. Messages that one process cannot repeat or contradict: its cuInit fails only once, and then it has no devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.findings import Cause
from tfdoctor.logs.events import Log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tfdoctor.logs.events import Event
    from tfdoctor.logs.log_context import Decision
    from tfdoctor.logs.version_inference import RegisteredDevice

__all__ = [
    "FRAMEWORKS",
    "MAX_PROCESSES",
    "LogProcess",
    "ProcessPart",
    "Splitter",
    "find_label",
    "find_speaker",
    "find_speaker_spans",
    "format_thread",
    "merge_process_decisions",
]

MAX_PROCESSES = 256
"""The most processes whose events are stored. More processes are only counted."""
_MAX_EVENTS = 12_000
"""The most events that are stored for all processes together."""
_MAX_PROCESS_EVENTS = 400
"""The most events that are stored for one process."""
_MAX_COUNTED = 65_536
"""The most processes beyond MAX_PROCESSES that are counted."""

FRAMEWORKS = {
    "framework-pytorch": "PyTorch",
    "framework-jax": "JAX",
    "framework-onnxruntime": "ONNX Runtime",
    "framework-mxnet": "MXNet",
    "framework-darknet": "Darknet",
}
"""The name of each other framework, by signature."""
_HINTS = (
    "container-hint",
    "scheduler-hint",
    "wsl-hint",
    "windows-hint",
    "visible-devices",
    "parameter-server",
)
"""Signatures that are logged once for all processes.

They count for each process that does not log them itself.
"""
_UNSPECIFIC = frozenset(
    {
        *FRAMEWORKS,
        *_HINTS,
        *("process-start", "other-framework", "tf-version", "tf-version-alone", "answer-line", "smi-table"),
        *("source-line", "old-names", "tensorflow-core"),
        *(
            "smi-failed",
            "cuda-requirement",
            "container-nvml",
            "container-driver-error",
            "no-runtime",
            "no-wheel",
            "package-listed",
            "both-installed",
            "gfx-name",
            "import-frame",
            "import-error",
            "tensorflow-attribute",
            "file-refused",
            "file-damaged",
            "python-broken",
            "tensorflow-absent",
        ),
    }
)
"""Signatures that do not prove a TensorFlow process."""
_ONCE = frozenset({"cuinit", "factory", "factory-classic"})
"""Signatures that a process logs once, from its first thread."""
_START_SIGNATURES = frozenset({"process-start"})
"""Signatures after which another process may begin."""
_DEVICE_SIGNATURES = frozenset(
    {"device-found", "devices-visible", "device-created", "device-created-part", "numa"}
)
"""Signatures that a process whose cuInit failed cannot log."""

_LABEL_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\((?P<name>[\w.:<>-]{1,60}) pid=(?P<id>\d{1,9})(?:, ip=[\d.]{7,15})?\)"),
        "{name} pid {id}",
    ),
    (re.compile(r"\(pid=(?P<id>\d{1,9})(?:, ip=[\d.]{7,15})?\)"), "pid {id}"),
    (re.compile(r"[\w :]{0,40}\[(?:\d{1,6},)?(?P<id>\d{1,6})\]\s?<std(?:out|err)>:"), "rank {id}"),
    (re.compile(r"\[?(?P<name>rank|default|task|worker|node)[ _]?(?P<id>\d{1,6})\]?:"), "{name} {id}"),
    (re.compile(r"(?P<name>[A-Za-z][\w.-]{0,62}) {0,40}\|(?=\s|$)"), "{name}"),
)
"""Patterns for a process name at the beginning of any line, and the formats of the label."""
_PREFIX_LABEL_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?P<id>\d{1,5}):$"), "task {id}"),
    (re.compile(r"\[(?:pod/)?(?P<name>[A-Za-z][\w.-]{2,80}(?:/[\w.-]{1,80})?)\]$"), "{name}"),
    (re.compile(r"(?:.{0,80} )?(?P<name>[A-Za-z][\w./-]{0,40})\[(?P<id>\d{1,9})\]:$"), "{name}[{id}]"),
    (re.compile(r"(?P<name>[A-Za-z][\w.-]{0,62}):$"), "{name}"),
)
"""Patterns for a process name that count only if a TensorFlow message follows."""
_NOT_PROCESS_NAMES = frozenset(
    {
        *("critical", "debug", "e", "err", "error", "exception", "f", "fatal", "i", "info", "log", "message"),
        *("msg", "notice", "out", "output", "stderr", "stdout", "trace", "w", "warn", "warning"),
    }
)
"""Words, such as severities and streams, that look like a process name and are none."""
_QUOTES = "># `"
"""Quote and prompt characters before a prefix."""
_NO_FAILURE = frozenset({Cause.HEALTHY, Cause.INCONCLUSIVE, Cause.HIDDEN_BY_ENV})
_THREAD = re.compile(r"[IWEF]\d{4} [\d:.]{8,40}\s{1,8}(?P<id>\d{1,20}) ")


@dataclass(frozen=True, slots=True)
class LogProcess:
    """The result for one process, or for another framework that wrote to the log."""

    label: str
    """The name of the process in the log, safe to print."""
    framework: str
    """"TensorFlow", or the name of another framework."""
    line: int
    """The line number of its first message."""
    gpu_registered: bool | None
    """Whether TensorFlow registered a GPU. None if unknown, and for another framework."""
    cause: Cause | None
    """The root cause. None for another framework, which is not diagnosed."""
    summary: str
    devices: tuple[RegisteredDevice, ...] = ()


@dataclass
class ProcessPart:
    """The events of one process."""

    label: str
    run: int = 1
    """The number of the process among those with the same label, from 1."""
    log: Log = field(default_factory=Log)
    first_line: int = 0
    """The line number of its first event. 0 if it has none."""
    event_count: int = 0
    """The number of events that are stored."""
    is_closed: bool = False
    """Whether no more events are added, because the maximum number is stored."""

    def has_tensorflow_events(self) -> bool:
        """Return whether a TensorFlow process logged any of the events."""
        return any(name not in _UNSPECIFIC for name in self.log.events)


class Splitter:
    """A splitter of events by process, with bounded memory.

    Repetitions of an event only update its last occurrence, so they may be added in any order. Before a message
    for which `may_start_process` returns true, all pending repetitions must be added.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], ProcessPart] = {}
        self._threads: dict[str, ProcessPart] = {}
        self._starters: set[str] = set()
        self._runs: dict[str, int] = {}
        self._ended: set[str] = set()
        self._kept = 0
        self._more: set[int] = set()
        self._full: list[ProcessPart] = []
        """The parts that have the maximum number of events and are not closed yet."""
        self.closed = False
        """Whether the maximum number of events is stored. Then new processes are only counted."""

    def add(self, event: Event, label: str, thread: str, times: int = 1) -> bool:
        """Add an event that was logged `times` times to its process and its thread (see `find_speaker`).

        Return whether the event is new, or changed how later events are split.
        """
        if event.id == "process-start":
            is_new = label in self._runs and label not in self._ended
            if is_new:
                self._ended.add(label)
            return is_new
        sizes_before = len(self._parts), len(self._threads), len(self._starters), len(self._ended)
        part = self._find_part(label, event)
        is_new = part is not None and self._add_to_part(part, event, times)
        if thread:
            is_new |= self._add_to_thread(thread, event, times)
        return is_new or sizes_before != (
            len(self._parts),
            len(self._threads),
            len(self._starters),
            len(self._ended),
        )

    def may_start_process(self, label: str, names: Collection[str]) -> bool:
        """Return whether a message with these signatures can begin another process.

        If so, the caller must add all pending events before it.
        """
        if self.closed:
            return False
        if (
            len(self._parts) >= MAX_PROCESSES
            and hash(f"{label} {self._runs.get(label, 0) + 1}") in self._more
        ):
            return False  # beyond MAX_PROCESSES, processes are only counted, and this one already is
        if not _START_SIGNATURES.isdisjoint(names) or label in self._ended:
            return True
        part = self._parts.get((label, self._runs.get(label, 0)))
        has_cuinit, has_device = "cuinit" in names, not _DEVICE_SIGNATURES.isdisjoint(names)
        if part is None:
            return has_cuinit and has_device
        failed, has_devices = part.log.has("cuinit"), part.log.has(*_DEVICE_SIGNATURES)
        return (has_cuinit and (failed or has_devices or has_device)) or (
            has_device and failed and not has_devices
        )

    def is_full(self) -> bool:
        """Return whether `close` must be called, after all pending events were added."""
        return bool(self._full) or (self._kept >= _MAX_EVENTS and not self.closed)

    def close(self) -> None:
        """Close every full part, and the splitter itself if it is full."""
        self.closed = self._kept >= _MAX_EVENTS
        for part in self._full:
            part.is_closed = True
        self._full.clear()

    def list_thread_numbers(self) -> frozenset[str] | None:
        """Return the numbers of the threads that are told apart. None if more can still be added."""
        if not self.closed and len(self._threads) < MAX_PROCESSES:
            return None
        return frozenset(label.removeprefix(format_thread("")) for label in self._threads)

    def is_saturated(self, label: str, thread: str, name: str) -> bool:
        """Return whether another event of this signature can only update a last occurrence."""
        part = self._parts.get((label, self._runs.get(label, 0)))
        return self.closed or all(
            stored is None or stored.is_closed or stored.log.is_saturated(name)
            for stored in (part, self._threads.get(thread))
        )

    def _find_part(self, label: str, event: Event) -> ProcessPart | None:
        """Return the part that an event belongs to, which may be a new one. None if the event is not stored."""
        run = self._runs.get(label)
        if self.closed and run is not None:
            return None
        if run is None:
            if len(self._runs) >= MAX_PROCESSES or self.closed:
                self._count_process(label)
                return None
            run = self._runs[label] = 1
        part = self._parts.get((label, run))
        if part is not None and part.has_tensorflow_events():
            failed = part.log.has("cuinit")
            contradicts = event.id in _DEVICE_SIGNATURES and failed and not part.log.has(*_DEVICE_SIGNATURES)
            repeats = event.id == "cuinit" and (failed or part.log.has("device-created"))
            if contradicts or repeats or label in self._ended:
                if len(self._parts) >= MAX_PROCESSES:
                    self._count_process(f"{label} {run + 1}")
                    return part
                run = self._runs[label] = run + 1
                part = None
        self._ended.discard(label)
        if part is None:
            part = self._parts.setdefault((label, run), ProcessPart(label, run))
        return part

    def _add_to_thread(self, label: str, event: Event, times: int) -> bool:
        """Add an event to its thread. Return whether the event is new."""
        part = self._threads.get(label)
        if part is None:
            if len(self._threads) >= MAX_PROCESSES or self.closed:
                return False
            part = self._threads[label] = ProcessPart(label)
        if event.id in _ONCE:
            self._starters.add(label)
        return self._add_to_part(part, event, times)

    def _add_to_part(self, part: ProcessPart, event: Event, times: int) -> bool:
        """Add an event to a part unless that is closed. Return whether the event is new."""
        part.first_line = part.first_line or event.line
        if part.is_closed or self.closed:
            return False
        is_new = part.log.add(event, times)
        part.event_count += is_new
        self._kept += is_new
        if is_new and part.event_count >= _MAX_PROCESS_EVENTS:
            self._full.append(part)
        return is_new

    def _count_process(self, label: str) -> None:
        if len(self._more) < _MAX_COUNTED:
            self._more.add(hash(label))

    @property
    def extra_process_count(self) -> int:
        """The number of processes that were only counted."""
        return len(self._more)

    def list_parts(self, whole: Log) -> list[ProcessPart]:
        """Return the TensorFlow processes in the order of their first events.

        `whole` is the log with the events of all processes. If the result has fewer than two parts, the processes
        in the log cannot be told apart.
        """
        for part in (*self._parts.values(), *self._threads.values()):
            part.log.finish()
        parts = [part for part in self._parts.values() if part.has_tensorflow_events()]
        labelled = {part.label for part in parts if part.label}
        threads = [part for label, part in self._threads.items() if label in self._starters]
        if not labelled and len(threads) > 1 and len(threads) >= len(parts):
            parts = threads
        for part in parts:
            for name in _HINTS:
                hints = [
                    event
                    for event in whole.list_events(name)
                    if not find_speaker(event.prefix, event.text)[0]
                ]
                if hints and not part.log.has(name):
                    part.log.events[name] = hints
        return sorted(parts, key=lambda part: (part.first_line, part.label, part.run))


def find_speaker(prefix: str, text: str) -> tuple[str, str]:
    """Return (process label, thread label) of a message.

    The thread label is empty if there is a process label. Both are empty if the message names neither.
    """
    label = find_label(prefix, text)
    thread = _THREAD.match(text) if not label else None
    return label, format_thread(thread["id"]) if thread is not None else ""


def format_thread(number: str) -> str:
    """Return the label of a thread."""
    return f"process {number}"


def find_speaker_spans(prefix: str, text: str) -> list[tuple[bool, int, int]]:
    """Return (whether it is in the text, start, end) for each span that `find_speaker` reads.

    A span that is not in the text is in the prefix. The spans do not depend on the digits in them.
    """
    process = _match_process(prefix, text)
    if process is not None:
        match, _ = process
        rest = prefix.lstrip(_QUOTES)
        in_text = not rest.rstrip()
        offset = 0 if in_text else len(prefix) - len(rest)
        return [
            (in_text, match.start(name) + offset, match.end(name) + offset) for name in match.re.groupindex
        ]
    thread = _THREAD.match(text)
    return [] if thread is None else [(True, *thread.span("id"))]


def find_label(prefix: str, text: str) -> str:
    """Return the label of the process that logged a message. Empty if the message does not name it."""
    process = _match_process(prefix, text)
    if process is None:
        return ""
    match, label_format = process
    return label_format.format(**match.groupdict())


def _match_process(prefix: str, text: str) -> tuple[re.Match[str], str] | None:
    """Return (match of a process name, format of its label). None if the message names no process."""
    stripped_prefix = prefix.lstrip(_QUOTES).rstrip()
    for patterns, source in (
        (_LABEL_PATTERNS, stripped_prefix or text),
        (_PREFIX_LABEL_PATTERNS, stripped_prefix),
    ):
        for pattern, label_format in patterns:
            match = pattern.match(source) if source else None
            if match is not None and match.groupdict().get("name", "x").lower() not in _NOT_PROCESS_NAMES:
                return match, label_format
    return None


def merge_process_decisions(
    whole: Decision, process_decisions: Iterable[tuple[ProcessPart, Decision]]
) -> tuple[Decision, int]:
    """Return (decision on the whole log, number of processes with its cause).

    1. The decision stays if its cause is a failure that a process also has.
    2. Otherwise it is the most frequent cause of the failing processes; among equally frequent ones, the first in
       the log. Of several runs of a process only the last counts. A process from which GPUs are hidden does not fail.
    3. If no process fails, the decision on the whole log stays.
    """
    decisions = list(process_decisions)
    matching = [decision for _, decision in decisions if decision.cause is whole.cause]
    if matching and whole.cause not in (
        Cause.HEALTHY,
        Cause.INCONCLUSIVE,
        Cause.HIDDEN_BY_ENV,
        Cause.NO_DEVICE,
    ):
        return whole, len(matching)
    last_by_label: dict[str, Decision] = {}
    for part, decision in decisions:
        if decision.cause is not Cause.INCONCLUSIVE or part.label not in last_by_label:
            last_by_label[part.label] = decision
    failing = [decision for decision in last_by_label.values() if decision.cause not in _NO_FAILURE]
    if not failing:
        return whole, len(matching)
    causes = [decision.cause for decision in failing]
    chosen = max(failing, key=lambda decision: causes.count(decision.cause))
    return chosen, causes.count(chosen.cause)
