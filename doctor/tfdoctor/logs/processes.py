"""Split the events of a log by process, so that each process has its own cause.

Three criteria distinguish processes, in this order:

1. The text before a message: a rank, process number, pod, container or host.
2. The thread number that Abseil's logger writes, for messages that a process prints only once.
3. Messages that one process cannot repeat or contradict: its cuInit fails only once, and then it has no devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause
from tfdoctor.logs.events import Log
from tfdoctor.logs.frameworks import FRAMEWORK_NAMES
from tfdoctor.remedies.place import Place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tfdoctor.logs.events import Event
    from tfdoctor.logs.log_context import Decision
    from tfdoctor.logs.version_inference import RegisteredDevice

__all__ = [
    "MAX_PROCESSES",
    "LogProcess",
    "ProcessPart",
    "ProcessSplitter",
    "choose_process_decision",
    "find_label",
    "find_process_label_spans",
    "find_process_labels",
    "format_thread",
    "is_rank_label",
]

MAX_PROCESSES = 256
"""The maximum number of processes whose events are stored. Further processes are only counted."""
_MAX_EVENTS = 12_000
"""The maximum number of events that are stored for all processes together."""
_MAX_PROCESS_EVENTS = 400
"""The maximum number of events that are stored for one process."""
_MAX_COUNTED_PROCESSES = 65_536
"""The maximum number of processes beyond MAX_PROCESSES that are counted."""

_ENVIRONMENT_SIGNATURES = (
    *(place.value for place in Place),
    "scheduler-hint",
    "visible-devices",
    "parameter-server",
    "library-file-listed",
    "listing-asked",
)
"""Signatures of the environment, which are often logged only once for all processes.

They apply to each process that does not log them itself.
"""
_UNSPECIFIC_SIGNATURES = frozenset(
    {
        *FRAMEWORK_NAMES,
        *_ENVIRONMENT_SIGNATURES,
        *("process-start", "other-framework", "tf-version", "tf-version-alone", "answer-line", "smi-table"),
        *("source-line", "old-names", "tensorflow-core"),
        *("fresh-container", "no-cgroups-set", "virtual-processor", "pip-ignored-versions"),
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
            "any-error",
            "stub-folder",
        ),
    }
)
"""Signatures that do not prove a TensorFlow process."""
_FIRST_THREAD_SIGNATURES = frozenset({"cuinit", "factory", "factory-classic"})
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
    (re.compile(r"[\w :]{0,40}\[(?:[\w.@-]{1,80},)?(?P<id>\d{1,6})\]\s?<std(?:out|err)>:"), "rank {id}"),
    (re.compile(r"\[?(?P<name>rank|default|task|worker|node)[ _]?(?P<id>\d{1,6})\]?:"), "{name} {id}"),
    (re.compile(r"(?P<name>[A-Za-z][\w.-]{0,62}) {0,40}\|(?=\s|$)"), "{name}"),
)
"""Patterns for a process name at the beginning of any line, and the formats of the label."""
_PREFIX_LABEL_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?P<id>\d{1,5}):$"), "task {id}"),
    (re.compile(r"\[(?P<name>[A-Za-z_]{1,30})(?P<id>\d{1,6})\]:$"), "{name} {id}"),
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
"""Words that look like a process name but are not one, such as severities and streams."""
_RANK_LABEL = re.compile(r"(?:task|rank|default) \d|[\w.-]+/[\w.-]+$")
_QUOTE_CHARS = "># `"
"""Quote and prompt characters that can precede a prefix."""
_NON_FAILURE_CAUSES = frozenset({Cause.HEALTHY, Cause.INCONCLUSIVE, Cause.HIDDEN_BY_ENV})
"""Causes with which a process does not count as failing."""
_THREAD_NUMBER = re.compile(r"[IWEF]\d{4} [\d:.]{8,40}\s{1,8}(?P<id>\d{1,20}) ")


@dataclass(frozen=True, slots=True)
class LogProcess:
    """The result for one process, or for another framework that wrote to the log."""

    label: str
    """The name of the process in the log, safe to print."""
    framework: str
    """"TensorFlow", or the name of another framework."""
    first_line: int
    """The line number of its first message."""
    gpu_registered: bool | None
    """Whether TensorFlow registered a GPU, or None if that is unknown or this is another framework."""
    cause: Cause | None
    """The root cause, or None for another framework, which is not diagnosed."""
    summary: str
    registered_devices: tuple[RegisteredDevice, ...] = ()


@dataclass
class ProcessPart:
    """The events of one process."""

    label: str
    run: int = 1
    """The number of the process among those with the same label, from 1."""
    log: Log = field(default_factory=Log)
    first_line: int = 0
    """The line number of its first event, or 0 if it has none."""
    event_count: int = 0
    """The number of events that are stored."""
    is_closed: bool = False
    """Whether the maximum number of events is stored, so that no more are added."""

    def has_tensorflow_events(self) -> bool:
        """Return whether a TensorFlow process logged any of the events."""
        return any(
            signature_id not in _UNSPECIFIC_SIGNATURES and not signature_id.endswith("-hint")
            for signature_id in self.log.events
        )


class ProcessSplitter:
    """A splitter of events by process, with bounded memory.

    Repetitions of an event only update its last occurrence, so they may be added in any order. Before a message
    for which `may_start_process` returns true, all pending repetitions must be added.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], ProcessPart] = {}
        self._threads: dict[str, ProcessPart] = {}
        self._starting_threads: set[str] = set()
        self._run_counts: dict[str, int] = {}
        self._ended_labels: set[str] = set()
        self._event_count = 0
        self._extra_processes: set[int] = set()
        """The hashes of the names of the processes that are only counted."""
        self._full_parts: list[ProcessPart] = []
        """The parts that have the maximum number of events and are not closed yet."""
        self.is_closed = False
        """Whether the maximum number of events is stored, so that new processes are only counted."""

    def add(self, event: Event, label: str, thread: str, times: int = 1) -> bool:
        """Add an event that was logged `times` times to its process and its thread.

        The labels are those of `find_process_labels`. Return whether the event is new, or changed how later events are
        split.
        """
        if event.id == "process-start":
            ends_process = label in self._run_counts and label not in self._ended_labels
            if ends_process:
                self._ended_labels.add(label)
            return ends_process
        sizes_before = (
            len(self._parts),
            len(self._threads),
            len(self._starting_threads),
            len(self._ended_labels),
        )
        part = self._find_part(label, event)
        is_new = part is not None and self._add_to_part(part, event, times)
        if thread:
            is_new |= self._add_to_thread(thread, event, times)
        return is_new or sizes_before != (
            len(self._parts),
            len(self._threads),
            len(self._starting_threads),
            len(self._ended_labels),
        )

    def may_start_process(self, label: str, signature_ids: Collection[str]) -> bool:
        """Return whether a message with these signatures can begin another process.

        If it can, the caller must add all pending events before it.
        """
        if self.is_closed:
            return False
        if (
            len(self._parts) >= MAX_PROCESSES
            and hash(f"{label} {self._run_counts.get(label, 0) + 1}") in self._extra_processes
        ):
            return False  # beyond MAX_PROCESSES, processes are only counted, and this one already is
        if not _START_SIGNATURES.isdisjoint(signature_ids) or label in self._ended_labels:
            return True
        part = self._parts.get((label, self._run_counts.get(label, 0)))
        has_cuinit, has_device = "cuinit" in signature_ids, not _DEVICE_SIGNATURES.isdisjoint(signature_ids)
        if part is None:
            return has_cuinit and has_device
        # a process cannot log a second failure of cuInit, or devices after one (see `_find_part`)
        has_failed, had_device = part.log.has("cuinit"), part.log.has(*_DEVICE_SIGNATURES)
        return (has_cuinit and (has_failed or had_device or has_device)) or (
            has_device and has_failed and not had_device
        )

    def is_full(self) -> bool:
        """Return whether `close` must be called, after all pending events were added."""
        return bool(self._full_parts) or (self._event_count >= _MAX_EVENTS and not self.is_closed)

    def close(self) -> None:
        """Close every full part, and the splitter itself if it is full."""
        self.is_closed = self._event_count >= _MAX_EVENTS
        for part in self._full_parts:
            part.is_closed = True
        self._full_parts.clear()

    def list_thread_numbers(self) -> frozenset[str] | None:
        """Return the numbers of the distinguished threads, or None if more can still be added."""
        if not self.is_closed and len(self._threads) < MAX_PROCESSES:
            return None
        return frozenset(label.removeprefix(format_thread("")) for label in self._threads)

    def is_saturated(self, label: str, thread: str, signature_id: str) -> bool:
        """Return whether another event of this signature would only update a last occurrence."""
        part = self._parts.get((label, self._run_counts.get(label, 0)))
        return self.is_closed or all(
            stored_part is None or stored_part.is_closed or stored_part.log.is_saturated(signature_id)
            for stored_part in (part, self._threads.get(thread))
        )

    def _find_part(self, label: str, event: Event) -> ProcessPart | None:
        """Return the part that an event belongs to, which may be new, or None if the event is not stored."""
        run = self._run_counts.get(label)
        if self.is_closed and run is not None:
            return None
        if run is None:
            if len(self._run_counts) >= MAX_PROCESSES or self.is_closed:
                self._count_process(label)
                return None
            run = self._run_counts[label] = 1
        part = self._parts.get((label, run))
        if part is not None and part.has_tensorflow_events():
            has_failed = part.log.has("cuinit")
            is_contradiction = (
                event.id in _DEVICE_SIGNATURES and has_failed and not part.log.has(*_DEVICE_SIGNATURES)
            )
            is_repetition = event.id == "cuinit" and (has_failed or part.log.has("device-created"))
            if is_contradiction or is_repetition or label in self._ended_labels:
                if len(self._parts) >= MAX_PROCESSES:
                    self._count_process(f"{label} {run + 1}")
                    return part
                run = self._run_counts[label] = run + 1
                part = None
        self._ended_labels.discard(label)
        if part is None:
            part = self._parts.setdefault((label, run), ProcessPart(label, run))
        return part

    def _add_to_thread(self, label: str, event: Event, times: int) -> bool:
        """Add an event to its thread. Return whether the event is new."""
        part = self._threads.get(label)
        if part is None:
            if len(self._threads) >= MAX_PROCESSES or self.is_closed:
                return False
            part = self._threads[label] = ProcessPart(label)
        if event.id in _FIRST_THREAD_SIGNATURES:
            self._starting_threads.add(label)
        return self._add_to_part(part, event, times)

    def _add_to_part(self, part: ProcessPart, event: Event, times: int) -> bool:
        """Add an event to a part unless the part is closed. Return whether the event is new."""
        part.first_line = part.first_line or event.line
        if part.is_closed or self.is_closed:
            return False
        is_new = part.log.add(event, times)
        part.event_count += is_new
        self._event_count += is_new
        if is_new and part.event_count >= _MAX_PROCESS_EVENTS:
            self._full_parts.append(part)
        return is_new

    def _count_process(self, label: str) -> None:
        if len(self._extra_processes) < _MAX_COUNTED_PROCESSES:
            self._extra_processes.add(hash(label))

    @property
    def extra_process_count(self) -> int:
        """The number of processes that were only counted."""
        return len(self._extra_processes)

    def list_parts(self, full_log: Log) -> list[ProcessPart]:
        """Return the TensorFlow processes in the order of their first events.

        `full_log` has the events of all processes. If the result has fewer than two parts, the processes in the log
        cannot be distinguished.
        """
        for part in (*self._parts.values(), *self._threads.values()):
            part.log.finish()
        parts = [part for part in self._parts.values() if part.has_tensorflow_events()]
        labels = {part.label for part in parts if part.label}
        threads = [part for label, part in self._threads.items() if label in self._starting_threads]
        # threads distinguish processes only if no label does
        if not labels and len(threads) > 1 and len(threads) >= len(parts):
            parts = threads
        for part in parts:
            for signature_id in _ENVIRONMENT_SIGNATURES:
                hints = [
                    event
                    for event in full_log.list_events(signature_id)
                    if not find_process_labels(event.prefix, event.text)[0]
                ]
                if hints and not part.log.has(signature_id):
                    part.log.events[signature_id] = hints
        return sorted(parts, key=lambda part: (part.first_line, part.label, part.run))


def find_process_labels(prefix: str, text: str) -> tuple[str, str]:
    """Return (process label, thread label) of a message.

    The thread label is empty if there is a process label. Both are empty if the message names neither.
    """
    label = find_label(prefix, text)
    thread_match = _THREAD_NUMBER.match(text) if not label else None
    return label, format_thread(thread_match["id"]) if thread_match is not None else ""


def format_thread(number: str) -> str:
    """Return the label of a thread."""
    return f"process {number}"


def find_process_label_spans(prefix: str, text: str) -> list[tuple[bool, int, int]]:
    """Return (whether it is in the text, start, end) for each span that `find_process_labels` uses.

    A span that is not in the text is in the prefix. If only digits change, the spans stay at the same positions.
    """
    process_match = _match_process(prefix, text)
    if process_match is not None:
        match, _ = process_match
        unquoted_prefix = prefix.lstrip(_QUOTE_CHARS)
        in_text = not unquoted_prefix.rstrip()
        offset = 0 if in_text else len(prefix) - len(unquoted_prefix)
        return [
            (in_text, match.start(name) + offset, match.end(name) + offset) for name in match.re.groupindex
        ]
    thread_match = _THREAD_NUMBER.match(text)
    return [] if thread_match is None else [(True, *thread_match.span("id"))]


def find_label(prefix: str, text: str) -> str:
    """Return the label of the process that logged a message, or an empty string if it is not named."""
    process_match = _match_process(prefix, text)
    if process_match is None:
        return ""
    match, label_format = process_match
    return label_format.format(**match.groupdict())


def is_rank_label(label: str) -> bool:
    """Return whether a label names a rank of a parallel job or a pod, each of which has GPUs of its own."""
    return _RANK_LABEL.match(label) is not None


def _match_process(prefix: str, text: str) -> tuple[re.Match[str], str] | None:
    """Return (match of a process name, format of its label), or None if the message names no process."""
    stripped_prefix = prefix.lstrip(_QUOTE_CHARS).rstrip()
    for patterns, source in (
        (_LABEL_PATTERNS, stripped_prefix or text),
        (_PREFIX_LABEL_PATTERNS, stripped_prefix),
    ):
        for pattern, label_format in patterns:
            match = pattern.match(source) if source else None
            # a match without a name group is a number, never one of the excluded words
            if match is not None and match.groupdict().get("name", "x").lower() not in _NOT_PROCESS_NAMES:
                return match, label_format
    return None


def choose_process_decision(
    log_decision: Decision, process_decisions: Iterable[tuple[ProcessPart, Decision]]
) -> tuple[Decision, int]:
    """Return (decision on the whole log, number of processes with its cause).

    1. If a process has the same failure as the whole log, `log_decision` is returned, except for NO_DEVICE.
    2. Otherwise the most frequent cause of the failing processes is chosen, or the first in the log if several are
       equally frequent. Only the last conclusive run of a process counts. Hidden GPUs do not count as a failure.
    3. If no process fails, `log_decision` is returned.
    """
    decisions = list(process_decisions)
    matching_decisions = [decision for _, decision in decisions if decision.cause is log_decision.cause]
    if matching_decisions and log_decision.cause not in (
        Cause.HEALTHY,
        Cause.INCONCLUSIVE,
        Cause.HIDDEN_BY_ENV,
        Cause.NO_DEVICE,
    ):
        return log_decision, len(matching_decisions)
    last_decisions: dict[str, Decision] = {}
    for part, decision in decisions:
        if decision.cause is not Cause.INCONCLUSIVE or part.label not in last_decisions:
            last_decisions[part.label] = decision
    failing_decisions = [
        decision for decision in last_decisions.values() if decision.cause not in _NON_FAILURE_CAUSES
    ]
    if not failing_decisions:
        return log_decision, len(matching_decisions)
    causes = [decision.cause for decision in failing_decisions]
    chosen = max(failing_decisions, key=lambda decision: causes.count(decision.cause))
    return chosen, causes.count(chosen.cause)
