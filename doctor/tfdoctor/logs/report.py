"""Build the report on a log: a verdict in one sentence, a finding on the root cause, and notes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfdoctor.causes.codes import HARMLESS, MISLEADING, RELEASE
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.logs import advice
from tfdoctor.logs.detectors import cluster as cluster_detectors
from tfdoctor.logs.known_issues import describe_known_problems
from tfdoctor.logs.libraries import is_cupti, list_sonames
from tfdoctor.logs.log_context import Decision, LogContext
from tfdoctor.logs.processes import (
    FRAMEWORKS,
    LogProcess,
    ProcessPart,
    ProcessSplitter,
    choose_process_decision,
)
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.sources import drop_other_eras, split_by_writer
from tfdoctor.logs.verdict import decide, is_registered
from tfdoctor.text import lower_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.logs.events import Event, Log
    from tfdoctor.logs.version_inference import LogOrigin, RegisteredDevice

__all__ = ["LogReport", "diagnose_log"]

MAX_EVIDENCE_LINES = 12
"""The maximum number of evidence lines of a finding."""
LIBRARY_NAME_CAUSES = (
    Cause.LIBS_WRONG_VERSION,
    Cause.LIBS_NOT_INSTALLED,
    Cause.LIBS_NOT_ON_PATH,
    Cause.IMPORT_MISSING_CUDA_LIB,
    Cause.LIBS_TRANSITIVE,
    Cause.CUDNN_MISSING,
)
"""Causes that are reported with the names of the missing libraries."""


@dataclass(frozen=True, slots=True)
class LogReport:
    """Everything that `diagnose` reports. Renderers only format it."""

    name: str
    """The file as the user named it, or "-" for standard input."""
    tensorflow_version: str | None
    """The version that wrote the log, or None if unknown."""
    era: str | None
    """The minor releases that can have written the log, such as "2.4-2.11", or None if unknown."""
    gpu_registered: bool | None
    """Whether TensorFlow registered a GPU, or None if the log does not say."""
    devices: tuple[RegisteredDevice, ...]
    missing_libraries: tuple[str, ...]
    """Sonames, sorted."""
    benign: tuple[str, ...]
    """Codes of the harmless messages in the log, sorted."""
    cause: Cause
    summary: str
    undecided: tuple[Cause, ...]
    """Other causes that the log does not rule out."""
    findings: tuple[Finding, ...]
    lines: int = 0
    bytes: int = 0
    root: Finding | None = field(default=None)
    """The finding on the root cause, or None if the GPU was used without a problem."""
    processes: tuple[LogProcess, ...] = ()
    """The processes and other frameworks in the log, if at least two can be distinguished."""
    more_processes: int = 0
    """The number of processes that were only counted, because there were too many."""
    headline: str = ""
    """A sentence that says whether the GPU was used, and if not, why."""


def diagnose_log(chunks: Iterable[bytes], compat: Compat, name: str = "-") -> LogReport:
    """Read a log and return its report.

    `chunks` are the bytes of the log, in pieces of any size. Malformed content never raises an error.
    """
    catalogue = load_signatures()
    splitter = ProcessSplitter()
    log = drop_other_eras(scan(chunks, catalogue, splitter), compat)
    context = LogContext(log, compat)
    decision = decide(context)
    parts = splitter.list_parts(log)
    if len(parts) < 2 and len(context.origin.sources.writers) > 1:
        parts = _split_by_release(log, context)
    contexts = [LogContext(drop_other_eras(part.log, compat), compat) for part in parts]
    decisions = _mark_hidden_gpus([decide(part_context) for part_context in contexts])
    if len(parts) > 1:
        decision, affected = choose_process_decision(decision, zip(parts, decisions, strict=True))
        if decision.cause is not Cause.HEALTHY and 0 < affected < len(parts):
            note = f"This applies to {affected} of {len(parts)} processes."
            decision = replace(decision, note=f"{decision.note} {note}".strip())
        context = _choose_context(context, decision, zip(contexts, decisions, strict=True))
    report = _make_report(context, decision, name)
    labels = _make_labels(parts)
    processes = [
        _make_process(label, part.first_line, part_context, part_decision)
        for label, part, part_context, part_decision in zip(labels, parts, contexts, decisions, strict=True)
    ]
    processes += _list_frameworks(context)
    if len(processes) < 2:
        return report
    if len({part.label for part in parts}) > 1:
        # a library that one process opened can be missing for another
        names = {
            soname
            for part_context, part_decision in zip(contexts, decisions, strict=True)
            for soname in _list_missing(part_context, part_decision)
        }
        report = replace(report, missing_libraries=tuple(sorted(names)))
    return replace(report, processes=tuple(processes), more_processes=splitter.extra_process_count)


def _split_by_release(log: Log, context: LogContext) -> list[ProcessPart]:
    """Split a log by the TensorFlow release that wrote each part."""
    logs = split_by_writer(log, context.origin.sources.writers)
    parts = [ProcessPart(LogContext(part_log, context.compat).origin.name, log=part_log) for part_log in logs]
    for part in parts:
        part.first_line = min(event.line for event in part.log)
    return [part for part in parts if part.has_tensorflow_events()]


def _choose_context(
    context: LogContext, decision: Decision, part_decisions: Iterable[tuple[LogContext, Decision]]
) -> LogContext:
    """Return the context of the whole log, with a known release if a part of the log has one.

    The release comes from the first part with the same cause and a known release.
    """
    if context.origin.version is not None:
        return context
    for part_context, part_decision in part_decisions:
        if part_decision.cause is decision.cause and part_context.origin.version is not None:
            return replace(context, main_origin=part_context.origin)
    return context


def _mark_hidden_gpus(decisions: list[Decision]) -> list[Decision]:
    """Replace the cause NO_DEVICE by HIDDEN_BY_ENV if another process registered a GPU.

    The machine has a GPU in this case, so it must be hidden from the processes that see none.
    """
    if not any(decision.cause is Cause.HEALTHY for decision in decisions):
        return decisions
    return [
        replace(item, cause=Cause.HIDDEN_BY_ENV, other_causes=(Cause.NO_DEVICE,))
        if item.cause is Cause.NO_DEVICE
        else item
        for item in decisions
    ]


def _make_labels(parts: Sequence[ProcessPart]) -> list[str]:
    """Return the label of each process: its name in the log, and its run if there are several."""
    if len(parts) == 1:
        return [parts[0].label or "TensorFlow"]
    has_single_label = len({part.label for part in parts}) == 1
    runs = Counter(part.label for part in parts)
    names = []
    for part in parts:
        run = f"run {part.run}"
        name = part.label or ("" if has_single_label else "without a name")
        names.append(", ".join(text for text in (name, run if runs[part.label] > 1 else "") if text))
    return names


def _make_process(label: str, line: int, context: LogContext, decision: Decision) -> LogProcess:
    summary = _make_summary(context, decision, _list_missing(context, decision))
    is_gpu_registered = is_registered(context, decision)
    return LogProcess(label, "TensorFlow", line, is_gpu_registered, decision.cause, summary, context.devices)


def _list_frameworks(context: LogContext) -> list[LogProcess]:
    """Return the other frameworks that wrote to the log, in the order of their first messages."""
    processes = []
    for signature_id, name in FRAMEWORKS.items():
        event = context.log.first(signature_id)
        if event is None:
            continue
        oom_event = next((e for e in context.log.list_events(signature_id) if e.get("oom")), None)
        summary = f"{name} also logs here; tfdoctor does not judge it."
        if oom_event is not None:
            summary = f"{name} ran out of GPU memory (line {oom_event.line})."
        processes.append(LogProcess(name, name, event.line, None, None, summary))
    return sorted(processes, key=lambda process: process.line)


def _make_report(context: LogContext, decision: Decision, name: str) -> LogReport:
    """Return the report on the whole log, without the processes in it."""
    is_gpu_registered = is_registered(context, decision)
    missing = _list_missing(context, decision)
    benign = _list_benign_codes(context)
    root = _make_root_finding(context, decision, name, missing)
    findings = [
        root,
        *_make_cluster_findings(context, decision, name),
        *_make_misread_findings(context, decision, name),
        *_make_harmless_findings(context, name),
        *_make_release_findings(context, name),
    ]
    return LogReport(
        name=name,
        tensorflow_version=context.origin.version,
        era=context.origin.era,
        gpu_registered=is_gpu_registered,
        devices=context.devices,
        missing_libraries=missing,
        benign=benign,
        cause=decision.cause,
        summary=_make_summary(context, decision, missing),
        undecided=decision.other_causes,
        findings=tuple(findings) if decision.cause is not Cause.HEALTHY else tuple(findings[1:]),
        lines=context.log.lines,
        bytes=context.log.bytes,
        root=root if decision.cause is not Cause.HEALTHY else None,
        headline=_make_headline(context, decision, missing, used=is_gpu_registered),
    )


def _make_cluster_findings(context: LogContext, decision: Decision, name: str) -> list[Finding]:
    """Return a finding on a cluster failure, unless it is the root cause, as a list of at most one item.

    A cluster failure stops the program, although TensorFlow can use the GPU.
    """
    cluster_decision = cluster_detectors.detect_cluster(context)
    if cluster_decision is None or cluster_decision.cause is decision.cause:
        return []
    return [_make_root_finding(context, cluster_decision, name, ())]


def _list_missing(context: LogContext, decision: Decision) -> tuple[str, ...]:
    """Return the sonames of the missing libraries, sorted. CUPTI is included only if it is the cause."""
    missing = [
        m
        for m in context.missing_libraries
        if decision.cause is Cause.CUPTI_MISSING or not is_cupti(m.soname)
    ]
    names = list(list_sonames(missing))
    event = context.log.first("container-driver-error")
    if event is not None:
        names += [
            n for n in (event.get("soname"), _extract_soname(event.get("file"))) if n and n not in names
        ]
    return tuple(sorted(names))


def _extract_soname(path: str) -> str:
    """Return the file name of a path if it is a shared library, or an empty string if it is not."""
    name = path.rpartition("/")[2]
    return name.rstrip(".:,") if ".so" in name else ""


def _list_benign_codes(context: LogContext) -> tuple[str, ...]:
    """Return the codes of the harmless messages in the log, sorted."""
    codes: set[str] = set()
    for events in context.log.events.values():
        code = events[0].signature.benign
        if code is not None:
            codes.add(code)
    return tuple(sorted(codes))


# ---------------------------------------------------------------- findings


def _make_evidence(events: Iterable[Event], name: str) -> tuple[Evidence, ...]:
    """Return the lines of these events as evidence, each once and at most MAX_EVIDENCE_LINES."""
    evidence: dict[tuple[int, str], Evidence] = {}
    for event in events:
        evidence.setdefault((event.line, event.text), Evidence(name, event.text, event.line))
    return tuple(evidence.values())[:MAX_EVIDENCE_LINES]


def _make_root_finding(context: LogContext, decision: Decision, name: str, missing: Sequence[str]) -> Finding:
    """Return the finding on the root cause."""
    cause = decision.cause
    parts = [
        decision.note,
        advice.describe_usual_reason(context, cause),
        "" if decision.title else cause.data.meaning,
    ]
    # without another CUDA version the note says little by itself: put it last
    if cause is Cause.LIBS_WRONG_VERSION and context.mismatched_cuda is None:
        parts.append(parts.pop(0))
    parts = [text for text in parts if text]
    if missing and cause is not Cause.HEALTHY:
        parts.append(f"The log names: {', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}.")
    known_problem_text, problem_remedies = describe_known_problems(context, decision)
    if known_problem_text:
        parts.append(known_problem_text)
    remedies = (*advice.list_remedies(context, cause), *problem_remedies)
    if decision.other_causes:
        titles = "; ".join(_lower_title(candidate.data.title) for candidate in decision.other_causes)
        parts.append(
            f"The log alone does not rule out: {titles}. Run `tfdoctor check` on that machine to tell them apart."
        )
        if not any("tfdoctor check" in remedy.commands for remedy in remedies):
            remedies = (*remedies, advice.CHECK_REMEDY)
    return Finding(
        code=cause.data.code,
        cause=cause,
        severity=cause.data.severity,
        title=decision.title or cause.data.title,
        explanation=" ".join(parts),
        evidence=_make_evidence(decision.events, name),
        remedies=remedies,
    )


def _make_harmless_findings(context: LogContext, name: str) -> list[Finding]:
    """Return a finding that lists the harmless messages, or an empty list if there are none."""
    events = [
        context.log.list_events(e)[0]
        for e in context.log.events
        if context.log.list_events(e)[0].signature.benign is not None
    ]
    if not events:
        return []
    meanings = list(dict.fromkeys(event.signature.says for event in events))
    return [
        Finding(
            HARMLESS,
            Cause.HEALTHY,
            Severity.INFO,
            "Messages that look bad and are harmless",
            " ".join(meanings),
            _make_evidence(sorted(events, key=lambda event: event.order), name),
        )
    ]


_PROGRAM_ERRORS = {
    "configured-late": "A setting came after TensorFlow had taken the GPUs, and has no effect",
    "growth-differs": "Memory growth is set for some GPUs only, which TensorFlow refuses",
}
"""Explanations of messages that a mistake in the user's program causes, by signature."""


def _make_misread_findings(context: LogContext, decision: Decision, name: str) -> list[Finding]:
    """Return a finding on easily misread messages in the log, or an empty list if there are none."""
    notes: list[tuple[str, str]] = []
    log, healthy = context.log, decision.cause is Cause.HEALTHY
    if context.registration is None:
        if log.has("xla-gpu-listed"):
            notes.append(("An XLA_GPU is not a registered GPU: operations run on the CPU.", "xla-gpu-listed"))
        if log.has("xla-on-cuda"):
            notes.append(("XLA naming the card does not mean that TensorFlow registered it.", "xla-on-cuda"))
        if log.has("device-found"):
            notes.append(("Finding a device does not register it: that comes later.", "device-found"))
    if log.has("cuda-not-found") and decision.cause is not Cause.NO_DRIVER and not healthy:
        notes.append(
            (
                "“Could not find cuda drivers” is about libcudart; working drivers print it, too.",
                "cuda-not-found",
            )
        )
    notes += [
        (f"{text}: `tfdoctor lint` finds the line.", name)
        for name, text in _PROGRAM_ERRORS.items()
        if log.has(name)
    ]
    if not notes:
        return []
    events = [event for _, signature in notes for event in log.list_events(signature)[:1]]
    return [
        Finding(
            MISLEADING,
            decision.cause,
            Severity.INFO,
            "Easily misread",
            " ".join(text for text, _ in notes),
            _make_evidence(events, name),
        )
    ]


def _make_release_findings(context: LogContext, name: str) -> list[Finding]:
    """Return a finding on the release that wrote the log.

    Return an empty list if the log states the release, or has no source lines to infer it from.
    """
    origin = context.origin
    sources = origin.sources
    events = [event for writer in sources.writers for event in writer.events]
    if origin.basis == "log" or not (events or sources.unmatched_line):
        return []
    if sources.unmatched_line is not None:
        events = [sources.unmatched_line]
        note = (
            "Not known: no release contains all these source lines. It may be another build (a nightly, a candidate, "
            "a vendor's), or several."
        )
    elif len(sources.writers) > 1:
        note = "These source lines come from different releases: several TensorFlows wrote this log."
    elif origin.basis == "early" and origin.release is not None:
        note = (
            f"TensorFlow {origin.release.minor} has these source lines, and the log is older than it: a candidate or a "
            "nightly build wrote this."
        )
    elif origin.basis == "rest":
        note = "These source lines and the rest of the log come from different releases: the release is not known."
    elif origin.version is not None and not _has_unique_release(origin):
        note = f"Of the releases with these source lines, only TensorFlow {origin.version} fits the rest of the log."
    elif origin.version is not None:
        note = f"Only TensorFlow {origin.version} has these source lines."
    else:
        note = f"TensorFlow {origin.era} can have written this, judging by its source lines."
    return [
        Finding(
            RELEASE,
            Cause.HEALTHY,
            Severity.INFO,
            "Which TensorFlow wrote this",
            note,
            _make_evidence(events, name),
        )
    ]


def _has_unique_release(origin: LogOrigin) -> bool:
    """Return whether the source lines alone identify the release, without other evidence from the log."""
    version = origin.version or ""
    return all(
        release == version or release.startswith(f"{version}.")
        for writer in origin.sources.writers
        for release in writer.releases
    )


# ---------------------------------------------------------------- summary


def _make_summary(context: LogContext, decision: Decision, missing: Sequence[str]) -> str:
    """Return the verdict in one sentence."""
    cause, subject = decision.cause, context.origin.name
    if cause is Cause.HEALTHY and context.registration is None:
        return (
            f"{subject} takes {_describe_selected_gpus(context)}; the log ends before the registration, and nothing "
            "in it speaks against it."
        )
    if cause is Cause.HEALTHY:
        count = len({device.index for device in context.devices}) or 1
        names = ", ".join(dict.fromkeys(device.name for device in context.devices))
        gpus = f"{count} GPU{'' if count == 1 else 's'}" + (f" ({names})" if names else "")
        return f"{subject} registered {gpus}; nothing in this log contradicts that."
    if cause is Cause.INCONCLUSIVE:
        return f"{decision.title or cause.data.title}."
    return f"{subject}: {lower_first(_make_title(decision, missing, 4))}."


def _describe_selected_gpus(context: LogContext) -> str:
    """Describe the GPUs that TensorFlow selected. The log ends before it registers them."""
    visible = context.log.last("devices-visible")
    indices = visible.get("which").split(",") if visible is not None else []
    count = len([index for index in indices if index.strip()]) or len(
        {event.get("index") for event in context.log.list_events("device-found")}
    )
    names = f" ({', '.join(context.gpu_names)})" if context.gpu_names else ""
    return f"{count} GPU{'' if count == 1 else 's'}{names}" if count else f"the GPU{names}"


def _make_title(decision: Decision, missing: Sequence[str], max_names: int) -> str:
    """Return the title of a decision, with up to `max_names` missing libraries if it is about libraries."""
    title = decision.title or decision.cause.data.title
    if not missing or decision.cause not in LIBRARY_NAME_CAUSES:
        return title
    more = f" and {len(missing) - max_names} more" if len(missing) > max_names else ""
    return f"{title}: {', '.join(missing[:max_names])}{more}"


def _find_runtime(missing: Sequence[str]) -> str:
    """Return the soname of the CUDA runtime, which contains the CUDA version, or else the first soname.

    Return an empty string if no library is missing.
    """
    return next((name for name in missing if "cudart" in name), missing[0] if missing else "")


def _make_headline(
    context: LogContext, decision: Decision, missing: Sequence[str], *, used: bool | None
) -> str:
    """Return one sentence that says whether the GPU was used.

    `used` is None if the log does not say whether it was.
    """
    cause, subject = decision.cause, context.origin.name
    if cause in (Cause.HEALTHY, Cause.INCONCLUSIVE):
        return _make_summary(context, decision, missing)
    title = _make_title(decision, missing, 2)
    other_cuda = context.mismatched_cuda
    if cause is Cause.LIBS_WRONG_VERSION and other_cuda is not None:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        title = f"CUDA {other_cuda[0]} is installed, but it needs CUDA {other_cuda[1]} ({_find_runtime(missing)}{more})"
    title = _lower_title(title)
    if used is False:
        return f"{subject} did not use the GPU: {title}."
    if used and cause.data.severity is Severity.ERROR:
        return f"{subject} found the GPU but failed on it: {title}."
    if used is None and cause.data.severity is Severity.ERROR:
        return f"{subject} may not have used the GPU: {title}."
    return f"{subject}: {title}."


def _lower_title(title: str) -> str:
    """Return a title with its first letter in lower case, for use within a sentence."""
    return f"a{title[1:]}" if title.startswith("A ") else lower_first(title)


def merge_host_finding(report: LogReport, cause: Cause | None, finding: Finding | None) -> LogReport:
    """Return the report with a finding from a check of this machine added.

    If the log is inconclusive, or does not rule out the cause of the finding, the finding becomes the root cause.
    Otherwise it is added as a note. The report is unchanged if `cause` or `finding` is None.
    """
    if finding is None or cause is None:
        return report
    if cause in report.undecided or report.cause is Cause.INCONCLUSIVE:
        other_findings = tuple(f for f in report.findings if f is not report.root)
        summary = f"{report.summary} On this machine: {finding.title}."
        return replace(
            report,
            cause=cause,
            summary=summary,
            headline=f"{report.headline} On this machine: {finding.title}.",
            undecided=(),
            root=finding,
            findings=(finding, *other_findings),
        )
    compare = Remedy("Compare this with what `check` reports for this machine.", ("tfdoctor check",))
    note = Finding(
        finding.code,
        finding.cause,
        Severity.INFO,
        f"On this machine: {finding.title}",
        finding.explanation,
        finding.evidence,
        (*finding.remedies, compare),
    )
    return replace(report, findings=(*report.findings, note))
