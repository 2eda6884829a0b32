"""Several processes in one log, told apart where the log allows it: each gets its own events and its own cause.

Three things tell processes apart, in this order: what stands before their messages (a rank, a process number, a pod, a
container, a host); the thread of messages that one process prints once, for Abseil's logger names it; and that a
process cannot say again or contradict what it says once: its cuInit fails once, and after that it has no devices.
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
    "find_speaker",
    "find_speaker_spans",
    "label_of",
    "overall",
    "thread_of",
]

MAX_PROCESSES = 256
"""Processes that are kept; more are counted."""
_EVENTS = 12_000
"""Events that are kept of all processes together, and of one."""
_EVENTS_OF_ONE = 400
_COUNTED = 65_536

FRAMEWORKS = {
    "framework-pytorch": "PyTorch",
    "framework-jax": "JAX",
    "framework-onnxruntime": "ONNX Runtime",
    "framework-mxnet": "MXNet",
    "framework-darknet": "Darknet",
}
_HINTS = (
    "container-hint",
    "scheduler-hint",
    "wsl-hint",
    "windows-hint",
    "visible-devices",
    "parameter-server",
)
"""What is said once for all: it counts for each process that does not say it itself."""
_OF_NOBODY = frozenset(
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
"""Signatures that a TensorFlow process need not have said."""
_ONCE = frozenset({"cuinit", "factory", "factory-classic"})
"""Said once by a process, by the thread that started it."""
_TURNS = frozenset({"process-start"})
"""After which another process may speak."""
_DEVICES = frozenset({"device-found", "devices-visible", "device-created", "device-created-part", "numa"})
"""What no process says whose cuInit failed."""

_LABELS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\((?P<name>[\w.:<>-]{1,60}) pid=(?P<id>\d{1,9})(?:, ip=[\d.]{7,15})?\)"),
        "{name} pid {id}",
    ),
    (re.compile(r"\(pid=(?P<id>\d{1,9})(?:, ip=[\d.]{7,15})?\)"), "pid {id}"),
    (re.compile(r"[\w :]{0,40}\[(?:\d{1,6},)?(?P<id>\d{1,6})\]\s?<std(?:out|err)>:"), "rank {id}"),
    (re.compile(r"\[?(?P<name>rank|default|task|worker|node)[ _]?(?P<id>\d{1,6})\]?:"), "{name} {id}"),
    (re.compile(r"(?P<name>[A-Za-z][\w.-]{0,62}) {0,40}\|(?=\s|$)"), "{name}"),
)
"""What names a process at the beginning of any line."""
_BEFORE_A_MESSAGE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?P<id>\d{1,5}):$"), "task {id}"),
    (re.compile(r"\[(?:pod/)?(?P<name>[A-Za-z][\w.-]{2,80}(?:/[\w.-]{1,80})?)\]$"), "{name}"),
    (re.compile(r"(?:.{0,80} )?(?P<name>[A-Za-z][\w./-]{0,40})\[(?P<id>\d{1,9})\]:$"), "{name}[{id}]"),
    (re.compile(r"(?P<name>[A-Za-z][\w.-]{0,62}):$"), "{name}"),
)
"""What names one only where a message of TensorFlow's follows."""
_NO_NAMES = frozenset(
    {
        *("critical", "debug", "e", "err", "error", "exception", "f", "fatal", "i", "info", "log", "message"),
        *("msg", "notice", "out", "output", "stderr", "stdout", "trace", "w", "warn", "warning"),
    }
)
_QUOTES = "># `"
_WELL = frozenset({Cause.HEALTHY, Cause.INCONCLUSIVE, Cause.HIDDEN_BY_ENV})
_THREAD = re.compile(r"[IWEF]\d{4} [\d:.]{8,40}\s{1,8}(?P<id>\d{1,20}) ")


@dataclass(frozen=True, slots=True)
class LogProcess:
    """What one process, or another framework, says."""

    label: str
    """What the log calls it, safe to print."""
    framework: str
    """ "TensorFlow", or who else it is."""
    line: int
    """Where it speaks first."""
    gpu_registered: bool | None
    cause: Cause | None
    """None: another framework; it is not judged."""
    summary: str
    devices: tuple[RegisteredDevice, ...] = ()


@dataclass
class ProcessPart:
    """The events of one process."""

    label: str
    run: int = 1
    log: Log = field(default_factory=Log)
    first: int = 0
    kept: int = 0
    closed: bool = False
    """Whether it has as many events as may be: nothing is added any more."""

    def speaks(self) -> bool:
        """Return whether TensorFlow says anything here."""
        return any(name not in _OF_NOBODY for name in self.log.events)


class Splitter:
    """Sorts events by process while a log is read. Bounded: processes, events of one, events of all.

    What is said again changes nothing but the last time, in whatever order it is told; but for what `turns` names.
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
        """Parts that are to be closed."""
        self.closed = False
        """Whether enough is kept: nothing is told apart any more, other processes are counted."""

    def add(self, event: Event, label: str, thread: str, times: int = 1) -> bool:
        """Sort in an event that these say (see `who`). `times`, and what is returned: as of `Log.add`."""
        if event.id == "process-start":
            new = label in self._runs and label not in self._ended
            if new:
                self._ended.add(label)
            return new
        before = len(self._parts), len(self._threads), len(self._starters), len(self._ended)
        part = self._part(label, event)
        new = part is not None and self._keep(part, event, times)
        if thread:
            new |= self._find_by_thread(thread, event, times)
        return new or before != (len(self._parts), len(self._threads), len(self._starters), len(self._ended))

    def turns(self, label: str, names: Collection[str]) -> bool:
        """Return whether a message with these signatures can begin another process: what was said before it, is to be
        added before.
        """
        if self.closed:
            return False
        if (
            len(self._parts) >= MAX_PROCESSES
            and hash(f"{label} {self._runs.get(label, 0) + 1}") in self._more
        ):
            return False  # others are only counted, and this one is
        if not _TURNS.isdisjoint(names) or label in self._ended:
            return True
        part = self._parts.get((label, self._runs.get(label, 0)))
        again, device = "cuinit" in names, not _DEVICES.isdisjoint(names)
        if part is None:
            return again and device
        failed, seen = part.log.has("cuinit"), part.log.has(*_DEVICES)
        return (again and (failed or seen or device)) or (device and failed and not seen)

    def is_full(self) -> bool:
        """Return whether something is to be closed: what was said before is to be added before that is done."""
        return bool(self._full) or (self._kept >= _EVENTS and not self.closed)

    def close(self) -> None:
        """Close what has as much as may be."""
        self.closed = self._kept >= _EVENTS
        for part in self._full:
            part.closed = True
        self._full.clear()

    def numbers(self) -> frozenset[str] | None:
        """Of the threads that are told apart; None where others can still come."""
        if not self.closed and len(self._threads) < MAX_PROCESSES:
            return None
        return frozenset(label.removeprefix(thread_of("")) for label in self._threads)

    def deaf(self, label: str, thread: str, name: str) -> bool:
        """Return whether what this signature takes from a message changes nothing here but the last time."""
        part = self._parts.get((label, self._runs.get(label, 0)))
        return self.closed or all(
            one is None or one.closed or one.log.full(name) for one in (part, self._threads.get(thread))
        )

    def _part(self, label: str, event: Event) -> ProcessPart | None:
        run = self._runs.get(label)
        if self.closed and run is not None:
            return None
        if run is None:
            if len(self._runs) >= MAX_PROCESSES or self.closed:
                self._count(label)
                return None
            run = self._runs[label] = 1
        part = self._parts.get((label, run))
        if part is not None and part.speaks():
            failed = part.log.has("cuinit")
            contradicts = event.id in _DEVICES and failed and not part.log.has(*_DEVICES)
            again = event.id == "cuinit" and (failed or part.log.has("device-created"))
            if contradicts or again or label in self._ended:
                if len(self._parts) >= MAX_PROCESSES:
                    self._count(f"{label} {run + 1}")
                    return part
                run = self._runs[label] = run + 1
                part = None
        self._ended.discard(label)
        if part is None:
            part = self._parts.setdefault((label, run), ProcessPart(label, run))
        return part

    def _find_by_thread(self, label: str, event: Event, times: int) -> bool:
        part = self._threads.get(label)
        if part is None:
            if len(self._threads) >= MAX_PROCESSES or self.closed:
                return False
            part = self._threads[label] = ProcessPart(label)
        if event.id in _ONCE:
            self._starters.add(label)
        return self._keep(part, event, times)

    def _keep(self, part: ProcessPart, event: Event, times: int) -> bool:
        part.first = part.first or event.line
        if part.closed or self.closed:
            return False
        new = part.log.add(event, times)
        part.kept += new
        self._kept += new
        if new and part.kept >= _EVENTS_OF_ONE:
            self._full.append(part)
        return new

    def _count(self, label: str) -> None:
        if len(self._more) < _COUNTED:
            self._more.add(hash(label))

    @property
    def more(self) -> int:
        """Processes beyond those that are kept."""
        return len(self._more)

    def parts(self, whole: Log) -> list[ProcessPart]:
        """Return the processes in which TensorFlow speaks, in the order in which they begin.

        At most one: not told apart.
        """
        for part in (*self._parts.values(), *self._threads.values()):
            part.log.finish()
        parts = [part for part in self._parts.values() if part.speaks()]
        labelled = {part.label for part in parts if part.label}
        threads = [part for label, part in self._threads.items() if label in self._starters]
        if not labelled and len(threads) > 1 and len(threads) >= len(parts):
            parts = threads
        for part in parts:
            for name in _HINTS:
                said = [
                    event
                    for event in whole.list_events(name)
                    if not find_speaker(event.prefix, event.text)[0]
                ]
                if said and not part.log.has(name):
                    part.log.events[name] = said
        return sorted(parts, key=lambda part: (part.first, part.label, part.run))


def find_speaker(prefix: str, text: str) -> tuple[str, str]:
    """Return who says this: what the log calls the process; else the thread.

    Each is empty if nothing tells.
    """
    label = label_of(prefix, text)
    thread = _THREAD.match(text) if not label else None
    return label, thread_of(thread["id"]) if thread is not None else ""


def thread_of(number: str) -> str:
    """Return what a thread is called."""
    return f"process {number}"


def find_speaker_spans(prefix: str, text: str) -> list[tuple[bool, int, int]]:
    """Return where that is read from: whether in the text, and where it begins and ends there.

    No digit changes that.
    """
    named = _match_process(prefix, text)
    if named is not None:
        found, _ = named
        rest = prefix.lstrip(_QUOTES)
        inside = not rest.rstrip()
        at = 0 if inside else len(prefix) - len(rest)
        return [(inside, found.start(name) + at, found.end(name) + at) for name in found.re.groupindex]
    thread = _THREAD.match(text)
    return [] if thread is None else [(True, *thread.span("id"))]


def label_of(prefix: str, text: str) -> str:
    """Return what names the process that said this; empty if nothing does."""
    named = _match_process(prefix, text)
    if named is None:
        return ""
    found, form = named
    return form.format(**found.groupdict())


def _match_process(prefix: str, text: str) -> tuple[re.Match[str], str] | None:
    """Return what names a process, and the form in which it is told."""
    before = prefix.lstrip(_QUOTES).rstrip()
    for patterns, where in ((_LABELS, before or text), (_BEFORE_A_MESSAGE, before)):
        for pattern, form in patterns:
            found = pattern.match(where) if where else None
            if found is not None and found.groupdict().get("name", "x").lower() not in _NO_NAMES:
                return found, form
    return None


def overall(whole: Decision, parts: Iterable[tuple[ProcessPart, Decision]]) -> tuple[Decision, int]:
    """Return the one root cause over several processes, and how many of them have it.

    1. What the log as a whole shows stands where it is an illness and a process has it.
    2. Else, of those that are ill: what most have, the first of them in the log. Of several runs the last counts; a
       process from which GPUs are hidden is not ill.
    3. Else what the log as a whole shows.
    """
    judged = list(parts)
    having = [decision for _, decision in judged if decision.cause is whole.cause]
    if having and whole.cause not in (
        Cause.HEALTHY,
        Cause.INCONCLUSIVE,
        Cause.HIDDEN_BY_ENV,
        Cause.NO_DEVICE,
    ):
        return whole, len(having)
    last: dict[str, Decision] = {}
    for part, decision in judged:
        if decision.cause is not Cause.INCONCLUSIVE or part.label not in last:
            last[part.label] = decision
    ill = [decision for decision in last.values() if decision.cause not in _WELL]
    if not ill:
        return whole, len(having)
    causes = [decision.cause for decision in ill]
    chosen = max(ill, key=lambda decision: causes.count(decision.cause))
    return chosen, causes.count(chosen.cause)
