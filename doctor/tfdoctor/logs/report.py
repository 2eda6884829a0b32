"""Build the report on a log: a verdict in one sentence, a finding on the root cause, and notes."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfdoctor.core.causes.codes import HARMLESS, MISLEADING, RELEASE
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import clean_line, join_first, lower_first
from tfdoctor.logs import advice
from tfdoctor.logs.cards import list_cards
from tfdoctor.logs.detectors import cluster as cluster_detectors
from tfdoctor.logs.detectors.gpu import USAGE_SIGNATURES
from tfdoctor.logs.events import Log
from tfdoctor.logs.frameworks import (
    FRAMEWORK_NAMES,
    MACHINE_CAUSES,
    separate_frameworks,
)
from tfdoctor.logs.known_issues import describe_known_problems
from tfdoctor.logs.libraries import is_cupti_library, list_sonames
from tfdoctor.logs.log_context import Decision, LogContext
from tfdoctor.logs.processes import (
    LogProcess,
    ProcessPart,
    ProcessSplitter,
    choose_process_decision,
    is_rank_label,
)
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import OTHER_BENIGN, load_signatures
from tfdoctor.logs.sources import drop_other_eras, split_by_writer
from tfdoctor.logs.verdict import choose_decision, is_registered
from tfdoctor.remedies.machine import add_book_remedies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.findings import Report
    from tfdoctor.logs.events import Event
    from tfdoctor.logs.version_inference import LogOrigin, RegisteredDevice
    from tfdoctor.remedies.tools import Tool

__all__ = ["LogReport", "diagnose_log"]

MAX_HOSTS = 3
"""The number of hosts that are named."""
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
LIBRARY_PROBLEMS = frozenset({*LIBRARY_NAME_CAUSES, Cause.LIBS_UNLISTED})
"""Causes of the same failure, of which a check of the machine finds the right one."""
MEMORY_SHARING_NOTE = "TensorFlow takes nearly all of it, unless TF_FORCE_GPU_ALLOW_GROWTH=true."
_PROGRAM_ERRORS = {
    "configured-late": "A setting came after TensorFlow had taken the GPUs, and has no effect",
    "growth-differs": "Memory growth is set for some GPUs only, which TensorFlow refuses",
}
"""Explanations of messages that a mistake in the user's program causes, by signature id."""


@dataclass(frozen=True, slots=True)
class LogReport:
    """Everything that `diagnose` reports. Renderers only format it."""

    name: str
    """The file as the user named it, or "-" for standard input."""
    tensorflow_version: str | None
    """The version that wrote the log, or None if unknown."""
    era: str | None
    """The range of minor releases that can have written the log, such as "2.4-2.11", or None if unknown."""
    gpu_registered: bool | None
    """Whether TensorFlow registered a GPU, or None if the log does not say."""
    registered_devices: tuple[RegisteredDevice, ...]
    cards: tuple[RegisteredDevice, ...] = field(default=(), kw_only=True)
    """Every GPU that the log names, registered or not."""
    missing_sonames: tuple[str, ...]
    """The sonames, sorted."""
    benign_codes: tuple[str, ...]
    """Codes of the harmless messages in the log, sorted."""
    cause: Cause
    summary: str
    other_causes: tuple[Cause, ...]
    """Other causes that the log does not rule out."""
    findings: tuple[Finding, ...]
    line_count: int = 0
    """The number of lines of the log."""
    byte_count: int = 0
    """The size of the log in bytes."""
    root_finding: Finding | None = field(default=None)
    """The finding on the root cause, or None if the cause is HEALTHY."""
    processes: tuple[LogProcess, ...] = ()
    """The processes and other frameworks in the log, if at least two can be distinguished."""
    extra_process_count: int = 0
    """The number of processes that were only counted, because there were too many."""
    headline: str = ""
    """A sentence that says whether the GPU was used, and if not, why."""


def diagnose_log(
    chunks: Iterable[bytes], compat: Compat, name: str = "-", *, tool: Tool | None = None
) -> LogReport:
    """Read a log and return its report.

    `chunks` are the bytes of the log, in pieces of any size. Malformed content never raises an error. `tool` is the one
    for which the commands are shown; None means the one that the log shows.
    """
    catalogue = load_signatures()
    splitter = ProcessSplitter()
    full_log = scan(chunks, catalogue, splitter)
    own_log, framework_logs = separate_frameworks(full_log)
    log = drop_other_eras(own_log, compat)
    context = LogContext(log, compat, requested_tool=tool)
    decision = choose_decision(context)
    if decision.cause is Cause.INCONCLUSIVE:
        context, decision = _choose_framework_decision(context, decision, framework_logs)
    parts = splitter.list_parts(log)
    if len(parts) < 2 and len(context.origin.sources.writers) > 1:
        parts = _split_by_release(log, context)
    contexts = [
        LogContext(drop_other_eras(separate_frameworks(part.log)[0], compat), compat) for part in parts
    ]
    decisions = _mark_hidden_gpus(parts, [choose_decision(part_context) for part_context in contexts])
    share = ""
    if len(parts) > 1:
        decision, affected_count = choose_process_decision(decision, zip(parts, decisions, strict=True))
        if decision.cause is not Cause.HEALTHY and 0 < affected_count < len(parts):
            share = f"{affected_count} of {len(parts)} processes{_name_hosts(decision, contexts, decisions)}"
        # report the release of a part whose cause was chosen
        context = _choose_context(context, decision, zip(contexts, decisions, strict=True))
    report = _make_report(context, decision, name)
    report = _add_framework_note(report, framework_logs)
    if share and report.root_finding is not None:
        is_used = _is_used_by_affected(decision, contexts, decisions)
        headline = _make_headline(context, decision, report.missing_sonames, is_used=is_used, share=share)
        root = report.root_finding
        new_root = replace(root, explanation=f"{root.explanation} This applies to {share}.".strip())
        report = replace(_replace_root(report, new_root), headline=headline)
    labels = _make_labels(parts)
    processes = [
        _make_process(label, part.first_line, part_context, part_decision)
        for label, part, part_context, part_decision in zip(labels, parts, contexts, decisions, strict=True)
    ]
    processes += _list_frameworks(context, framework_logs)
    if len(processes) < 2 or context.framework is not None:
        return report
    if len({part.label for part in parts}) > 1:
        # a library that one process opened can be missing for another
        sonames = {
            soname
            for part_context, part_decision in zip(contexts, decisions, strict=True)
            for soname in _list_missing_sonames(part_context, part_decision)
        }
        report = replace(report, missing_sonames=tuple(sorted(sonames)))
    return replace(report, processes=tuple(processes), extra_process_count=splitter.extra_process_count)


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
            return replace(context, reported_origin=part_context.origin)
    return context


def _name_hosts(decision: Decision, contexts: Sequence[LogContext], decisions: Sequence[Decision]) -> str:
    """Return the hosts of the processes with the cause of a decision, such as " (on gpu-n02)"; "" if none is named."""
    hosts = list(
        dict.fromkeys(
            event.get("host")
            for part_context, part_decision in zip(contexts, decisions, strict=True)
            if part_decision.cause is decision.cause
            for event in part_context.log.list_events("host-named")
        )
    )
    return f" (on {join_first(hosts, MAX_HOSTS)})" if hosts else ""


def _is_used_by_affected(
    decision: Decision, contexts: Sequence[LogContext], decisions: Sequence[Decision]
) -> bool | None:
    """Return whether the processes with the cause of a decision registered a GPU, or None if they differ."""
    answers = {
        is_registered(part_context, part_decision)
        for part_context, part_decision in zip(contexts, decisions, strict=True)
        if part_decision.cause is decision.cause
    }
    return answers.pop() if len(answers) == 1 else None


def _mark_hidden_gpus(parts: Sequence[ProcessPart], decisions: list[Decision]) -> list[Decision]:
    """Replace the cause NO_DEVICE by HIDDEN_BY_ENV if another process registered a GPU.

    The machine has a GPU in this case, so it must be hidden from the processes that see none. The ranks of a job, which
    can run on different machines, keep the cause.
    """
    if not any(decision.cause is Cause.HEALTHY for decision in decisions):
        return decisions
    return [
        replace(decision, cause=Cause.HIDDEN_BY_ENV, other_causes=(Cause.NO_DEVICE,))
        if decision.cause is Cause.NO_DEVICE and not is_rank_label(part.label)
        else decision
        for part, decision in zip(parts, decisions, strict=True)
    ]


def _make_labels(parts: Sequence[ProcessPart]) -> list[str]:
    """Return the label of each process: its name in the log, and its run if it has several."""
    if len(parts) == 1:
        return [parts[0].label or "TensorFlow"]
    has_single_label = len({part.label for part in parts}) == 1
    run_counts = Counter(part.label for part in parts)
    labels = []
    for part in parts:
        run = f"run {part.run}"
        name = part.label or ("" if has_single_label else "without a name")
        labels.append(", ".join(text for text in (name, run if run_counts[part.label] > 1 else "") if text))
    return labels


def _make_process(label: str, line: int, context: LogContext, decision: Decision) -> LogProcess:
    summary = _make_summary(context, decision, _list_missing_sonames(context, decision))
    is_gpu_registered = is_registered(context, decision)
    return LogProcess(
        label=label,
        framework="TensorFlow",
        first_line=line,
        gpu_registered=is_gpu_registered,
        cause=decision.cause,
        summary=summary,
        registered_devices=context.registered_devices,
    )


def _list_frameworks(context: LogContext, framework_logs: Mapping[str, Log]) -> list[LogProcess]:
    """Return the other frameworks that wrote to the log, in the order of their first messages."""
    processes = []
    for signature_id, name in FRAMEWORK_NAMES.items():
        event = context.log.find_first(signature_id)
        if event is None:
            continue
        oom_event = next((item for item in context.log.list_events(signature_id) if item.get("oom")), None)
        error = next(iter(framework_logs.get(name, ())), None)
        summary = f"{name} is used here, too; tfdoctor does not examine it."
        if oom_event is not None:
            summary = f"{name} ran out of GPU memory (line {oom_event.line})."
            if context.registration_event is not None:
                summary += f" {MEMORY_SHARING_NOTE}"
        elif error is not None:
            summary = f"{name} failed (line {error.line})."
        processes.append(
            LogProcess(
                label=name,
                framework=name,
                first_line=event.line,
                gpu_registered=None,
                cause=None,
                summary=summary,
            )
        )
    return sorted(processes, key=lambda process: process.first_line)


def _choose_framework_decision(
    context: LogContext, decision: Decision, framework_logs: Mapping[str, Log]
) -> tuple[LogContext, Decision]:
    """Return the context and the decision for the errors of another framework; unchanged if they show nothing.

    A cause that lies in the machine holds for that framework as well. Other errors say nothing about TensorFlow.
    """
    for name, log in framework_logs.items():
        own = context.log
        both = Log({**own.events, **log.events}, own.event_counts, own.line_count, own.byte_count)
        new_context = LogContext(both, context.compat, framework=name, requested_tool=context.requested_tool)
        new_decision = choose_decision(new_context)
        if new_decision.cause is Cause.INCONCLUSIVE:
            continue
        if new_decision.cause in MACHINE_CAUSES:
            return new_context, new_decision
        note = "tfdoctor examines TensorFlow only. Whether it can use the GPU there, `tfdoctor check` says."
        title = f"This is an error of {name}, not of TensorFlow"
        evidence = new_decision.evidence_events
        return replace(context, framework=name), Decision(
            Cause.INCONCLUSIVE, evidence, note=note, title=title
        )
    return context, decision


def _add_framework_note(report: LogReport, framework_logs: Mapping[str, Log]) -> LogReport:
    """Return the report with a note on the errors of other frameworks, unless they are its subject."""
    root_lines = {item.line for item in report.root_finding.evidence} if report.root_finding else set()
    notes = [
        (name, events[0])
        for name, log in framework_logs.items()
        if (events := [event for event in log if event.line not in root_lines])
    ]
    if not notes:
        return report
    text = " ".join(f"The error in line {event.line} is one of {name}." for name, event in notes)
    finding = Finding(
        code=MISLEADING,
        cause=report.cause,
        severity=Severity.INFO,
        title="Easily misread",
        explanation=text,
        evidence=_make_evidence([event for _, event in notes], report.name),
    )
    return replace(report, findings=(*report.findings, finding))


def _make_report(context: LogContext, decision: Decision, file_name: str) -> LogReport:
    """Return the report on the whole log, without the processes in it."""
    is_gpu_registered = is_registered(context, decision)
    missing_sonames = _list_missing_sonames(context, decision)
    benign_codes = _list_benign_codes(context, decision)
    root_finding = _make_root_finding(context, decision, file_name, missing_sonames)
    findings = [
        root_finding,
        *_make_cluster_findings(context, decision, file_name),
        *_make_misread_findings(context, decision, file_name),
        *_make_harmless_findings(context, decision, file_name),
        *_make_release_findings(context, file_name),
    ]
    return LogReport(
        name=file_name,
        tensorflow_version=context.origin.version,
        era=context.origin.era,
        gpu_registered=is_gpu_registered,
        registered_devices=context.registered_devices,
        cards=list_cards(context.log, context.compat),
        missing_sonames=missing_sonames,
        benign_codes=benign_codes,
        cause=decision.cause,
        summary=_make_summary(context, decision, missing_sonames),
        other_causes=decision.other_causes,
        findings=tuple(findings) if decision.cause is not Cause.HEALTHY else tuple(findings[1:]),
        line_count=context.log.line_count,
        byte_count=context.log.byte_count,
        root_finding=root_finding if decision.cause is not Cause.HEALTHY else None,
        headline=_make_headline(context, decision, missing_sonames, is_used=is_gpu_registered),
    )


def _make_cluster_findings(context: LogContext, decision: Decision, file_name: str) -> list[Finding]:
    """Return the finding on a cluster failure as a list.

    The list is empty if there is no such failure, or if it is the root cause. A cluster failure stops the program,
    although TensorFlow can use the GPU.
    """
    cluster_decision = cluster_detectors.detect_cluster(context)
    if cluster_decision is None or cluster_decision.cause is decision.cause:
        return []
    return [_make_root_finding(context, cluster_decision, file_name, ())]


def _list_missing_sonames(context: LogContext, decision: Decision) -> tuple[str, ...]:
    """Return the sonames of the missing libraries, sorted. CUPTI is included only if it is the cause."""
    libraries = [
        library
        for library in context.missing_libraries
        if decision.cause is Cause.CUPTI_MISSING or not is_cupti_library(library.soname)
    ]
    sonames = list(list_sonames(libraries))
    event = context.log.find_first("container-driver-error")
    if event is not None:
        candidates = (event.get("soname"), _extract_soname(event.get("file")))
        sonames += [soname for soname in candidates if soname and soname not in sonames]
    return tuple(sorted(sonames))


def _extract_soname(path: str) -> str:
    """Return the file name of a path if it is a shared library, or an empty string if it is not."""
    name = path.rpartition("/")[2]
    return name.rstrip(".:,") if ".so" in name else ""


def _list_benign_codes(context: LogContext, decision: Decision) -> tuple[str, ...]:
    """Return the codes of the harmless messages in the log, sorted."""
    codes = {event.signature.benign_code for event in _list_harmless_events(context, decision)}
    return tuple(sorted(code for code in codes if code is not None and code != OTHER_BENIGN))


def _list_harmless_events(context: LogContext, decision: Decision) -> list[Event]:
    """Return the first event of each harmless message, without those that belong to the cause of the failure."""
    is_compiler_missing = decision.cause is Cause.LIBDEVICE_OR_PTXAS_MISSING
    return [
        events[0]
        for events in context.log.events.values()
        if (code := events[0].signature.benign_code) is not None
        and not (is_compiler_missing and code == "ptxas-fallback")
    ]


# ---------------------------------------------------------------- findings


def _make_evidence(events: Iterable[Event], file_name: str) -> tuple[Evidence, ...]:
    """Return the lines of these events as evidence, each once and at most MAX_EVIDENCE_LINES."""
    evidence: dict[tuple[int, str], Evidence] = {}
    for event in events:
        evidence.setdefault((event.line, event.text), Evidence(file_name, event.text, event.line))
    return tuple(evidence.values())[:MAX_EVIDENCE_LINES]


def _make_root_finding(
    context: LogContext, decision: Decision, file_name: str, missing_sonames: Sequence[str]
) -> Finding:
    """Return the finding on the cause of a decision."""
    cause = decision.cause
    reason = advice.find_reason(context, cause) or advice.describe_usual_reason(context, cause)
    sentences = [decision.note, reason, "" if decision.title or reason else cause.data.meaning]
    # unless the log shows another CUDA version, the note (that a card is not registered) repeats the headline
    if cause is Cause.LIBS_NOT_INSTALLED or (
        cause is Cause.LIBS_WRONG_VERSION and context.mismatched_cuda_versions is None
    ):
        sentences.append(sentences.pop(0))
    sentences = [text for text in sentences if text]
    if missing_sonames and cause is not Cause.HEALTHY:
        sentences.append(
            f"The log names: {', '.join(missing_sonames[:8])}{' …' if len(missing_sonames) > 8 else ''}."
        )
    known_problem_text, problem_remedies = describe_known_problems(context, decision)
    if known_problem_text:
        sentences.append(known_problem_text)
    remedies = (*advice.list_remedies(context, cause), *problem_remedies)
    if decision.other_causes:
        sentences.append(
            _describe_other_causes(cause, decision.other_causes, can_check=not context.is_windows)
        )
        if not context.is_windows and not any("tfdoctor check" in remedy.commands for remedy in remedies):
            remedies = (*remedies, advice.CHECK_REMEDY)
    return Finding(
        code=cause.data.finding_code,
        cause=cause,
        severity=Severity.ERROR if decision.is_failure else cause.data.severity,
        title=decision.title or cause.data.finding_title,
        explanation=" ".join(sentences),
        evidence=_make_evidence(decision.evidence_events, file_name),
        remedies=remedies,
    )


def _describe_other_causes(cause: Cause, others: Sequence[Cause], *, can_check: bool = True) -> str:
    """Return a sentence on the causes that the log does not rule out. `can_check`: `check` runs on that machine."""
    titles = [
        # the driver's library answered, so the rest of the driver is in question
        "the driver's kernel module is not loaded"
        if cause is Cause.NO_DEVICE and other is Cause.NO_DRIVER
        else _lower_title(other.data.finding_title)
        for other in others
        if other is not Cause.INCONCLUSIVE
    ]
    if not titles:
        return ""
    hint = " Run `tfdoctor check` on that machine to tell them apart." if can_check else ""
    return f"It may also be that {', or that '.join(titles)}.{hint}"


def _make_harmless_findings(context: LogContext, decision: Decision, file_name: str) -> list[Finding]:
    """Return a finding that lists the harmless messages, or an empty list if there are none."""
    events = _list_harmless_events(context, decision)
    if not events:
        return []
    events.sort(key=lambda event: event.signature.benign_code == OTHER_BENIGN)  # the least telling ones last
    meanings = list(dict.fromkeys(event.signature.meaning for event in events))
    return [
        Finding(
            code=HARMLESS,
            cause=Cause.HEALTHY,
            severity=Severity.INFO,
            title="Messages that look bad and are harmless",
            explanation=" ".join(meanings),
            evidence=_make_evidence(sorted(events, key=lambda event: event.order), file_name),
        )
    ]


def _make_misread_findings(context: LogContext, decision: Decision, file_name: str) -> list[Finding]:
    """Return a finding on easily misread messages in the log, or an empty list if there are none."""
    notes: list[tuple[str, str]] = []
    """(sentence, id of the signature that it is about)."""
    log, is_healthy = context.log, decision.cause is Cause.HEALTHY
    if context.registration_event is None:
        if log.has("xla-gpu-listed"):
            notes.append(("An XLA_GPU is not a registered GPU: operations run on the CPU.", "xla-gpu-listed"))
        if log.has("xla-on-cuda"):
            notes.append(("XLA naming the card does not mean that TensorFlow registered it.", "xla-on-cuda"))
        if log.has("device-found"):
            notes.append(("Finding a device does not register it: that comes later.", "device-found"))
    if log.has("cuda-not-found") and decision.cause is not Cause.NO_DRIVER and not is_healthy:
        notes.append(
            (
                "TensorFlow writes “drivers” but means the library libcudart; your driver may be fine.",
                "cuda-not-found",
            )
        )
    notes += [(text, "device-ignored") for text in _describe_small_gpus(context)]
    notes += [
        (f"{text}: `tfdoctor lint` finds the line.", signature_id)
        for signature_id, text in _PROGRAM_ERRORS.items()
        if log.has(signature_id)
    ]
    if not notes:
        return []
    events = [event for _, signature_id in notes for event in log.list_events(signature_id)[:1]]
    return [
        Finding(
            code=MISLEADING,
            cause=decision.cause,
            severity=Severity.INFO,
            title="Easily misread",
            explanation=" ".join(text for text, _ in notes),
            evidence=_make_evidence(events, file_name),
        )
    ]


def _describe_small_gpus(context: LogContext) -> list[str]:
    """Return a sentence on each GPU that TensorFlow ignores because it has few multiprocessors."""
    events = {
        event.get("index"): event for event in context.log.list_events("device-ignored") if event.get("cores")
    }
    return [
        f"TensorFlow leaves out GPU {index} ({event.get('name')}), which has only {event.get('cores')} multiprocessors "
        f"beside a larger GPU. `TF_MIN_GPU_MULTIPROCESSOR_COUNT={event.get('cores')}` makes it use this one, too."
        for index, event in events.items()
    ]


def _make_release_findings(context: LogContext, file_name: str) -> list[Finding]:
    """Return a finding on the release that wrote the log.

    Return an empty list if the log states the release, or has no source lines to infer it from.
    """
    origin = context.origin
    sources = origin.sources
    events = [event for writer in sources.writers for event in writer.events]
    if origin.basis == "log" or not (events or sources.unmatched_line):
        return []
    known = f"{origin.era} by its messages" if origin.era else "not known"
    if sources.unmatched_line is not None:
        events = [sources.unmatched_line]
        note = (
            f"{known}. No release contains all these source lines. It may be another build (a nightly, a candidate, "
            "a vendor's), or several."
        )
    elif len(sources.writers) > 1:
        note = "These source lines come from different releases: several TensorFlows wrote this log."
    elif origin.basis == "early" and origin.release is not None:
        minor = origin.release.minor
        note = f"a candidate of {minor} or a nightly build (it has the source lines of {minor}; the log is older)."
    elif origin.basis == "rest":
        note = f"{known}. These source lines and the rest of the log come from different releases."
    elif origin.version is not None and not _has_unique_release(origin):
        note = f"Of the releases with these source lines, only TensorFlow {origin.version} fits the rest of the log."
    elif origin.version is not None:
        note = f"{origin.version} (recognized by the source lines in the log)."
    else:
        note = f"{origin.era} (recognized by the source lines in the log)."
    return [
        Finding(
            code=RELEASE,
            cause=Cause.HEALTHY,
            severity=Severity.INFO,
            title="TensorFlow version",
            explanation=note,
            evidence=_make_evidence(events, file_name),
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


def _make_summary(context: LogContext, decision: Decision, missing_sonames: Sequence[str]) -> str:
    """Return the verdict in one sentence."""
    cause, subject = decision.cause, context.origin.name
    if cause is Cause.HEALTHY and context.registration_event is None:
        if context.log.has(*USAGE_SIGNATURES):
            return f"{subject} used a GPU; the log begins after the registration, and shows no problem."
        return (
            f"{subject} takes {_describe_selected_gpus(context)}; the log ends before TensorFlow registers GPUs, "
            "and shows no problem so far."
        )
    if cause is Cause.HEALTHY:
        count = len({device.index for device in context.registered_devices}) or 1
        names = ", ".join(dict.fromkeys(device.name for device in context.registered_devices))
        gpus = f"{count} GPU{'' if count == 1 else 's'}" + (f" ({names})" if names else "")
        return f"{subject} registered {gpus}; nothing in this log contradicts that."
    if cause is Cause.INCONCLUSIVE:
        return f"{decision.title or cause.data.finding_title}."
    return f"{subject}: {lower_first(_make_title(decision, missing_sonames, max_names=4))}."


def _describe_selected_gpus(context: LogContext) -> str:
    """Describe the GPUs that TensorFlow selected. The log ends before it registers them."""
    visible = context.log.find_last("devices-visible")
    indices = visible.get("which").split(",") if visible is not None else []
    count = len([index for index in indices if index.strip()]) or len(
        {event.get("index") for event in context.log.list_events("device-found")}
    )
    names = f" ({', '.join(context.gpu_names)})" if context.gpu_names else ""
    return f"{count} GPU{'' if count == 1 else 's'}{names}" if count else f"the GPU{names}"


def _make_title(decision: Decision, missing_sonames: Sequence[str], max_names: int) -> str:
    """Return the title of a decision. If it is about libraries, name up to `max_names` missing ones."""
    title = decision.title or decision.cause.data.finding_title
    if not missing_sonames or decision.cause not in LIBRARY_NAME_CAUSES:
        return title
    return f"{title}: {join_first(missing_sonames, max_names)}"


def _choose_runtime_soname(missing_sonames: Sequence[str]) -> str:
    """Return the soname of the CUDA runtime, or else the first soname, or else an empty string."""
    return next(
        (name for name in missing_sonames if "cudart" in name), missing_sonames[0] if missing_sonames else ""
    )


def _make_headline(
    context: LogContext,
    decision: Decision,
    missing_sonames: Sequence[str],
    *,
    is_used: bool | None,
    share: str = "",
) -> str:
    """Return one sentence that says whether the GPU was used.

    `is_used` is None if the log does not say whether it was. `share` says for how many processes, as "1 of 4 processes";
    empty if for all.
    """
    cause, subject = decision.cause, context.origin.name
    if cause in (Cause.HEALTHY, Cause.INCONCLUSIVE):
        return _make_summary(context, decision, missing_sonames)
    title = _make_title(decision, missing_sonames, max_names=2)
    if cause is Cause.NO_MATCHING_WHEEL:
        return f"{title}."
    if cause is Cause.LIBS_WRONG_VERSION and context.mismatched_cuda_versions is not None:
        path_version, required_version = context.mismatched_cuda_versions
        more = f" and {len(missing_sonames) - 1} more" if len(missing_sonames) > 1 else ""
        sonames = f"{_choose_runtime_soname(missing_sonames)}{more}"
        title = f"CUDA {path_version} is installed, but it needs CUDA {required_version} ({sonames})"
    if context.framework is not None:
        return f"{context.framework}: {_lower_title(title)}."
    if not context.mentions_tensorflow and cause not in (Cause.OOM, Cause.PLACEMENT_ERROR):
        return f"{title}."
    title = _lower_title(title)
    where = f" in {share}" if share else ""
    if is_used is False:
        return f"{subject} did not use the GPU{where}: {title}."
    if is_used and cause.data.severity is Severity.ERROR:
        return f"{subject} found the GPU but failed on it{where}: {title}."
    if is_used is None and cause.data.severity is Severity.ERROR:
        return f"{subject} may not have used the GPU{where}: {title}."
    return f"{subject}{where}: {title}."


def _lower_title(title: str) -> str:
    """Return a title with its first letter in lower case, for use within a sentence."""
    return f"a{title[1:]}" if title.startswith("A ") else lower_first(title)


def _replace_root(report: LogReport, new_root: Finding) -> LogReport:
    """Return the report with another root finding in the place of its own."""
    findings = tuple(new_root if item is report.root_finding else item for item in report.findings)
    return replace(report, root_finding=new_root, findings=findings)


def adapt_to_machine(
    report: LogReport, check: Report, compat: Compat, python: str, *, can_fix: bool
) -> LogReport:
    """Return the report with remedies for the machine and the Python that wrote the log, and with the verdict of `check`.

    If `can_fix` is false, `tfdoctor fix` can change nothing in that Python.
    """
    root = report.root_finding
    if root is None:
        return report
    arguments = f" --python {shlex.quote(clean_line(python))}"
    remedies = [
        replace(
            remedy,
            text="Run:" if remedy.text == advice.THAT_MACHINE_TEXT else remedy.text,
            commands=tuple(
                f"{command}{arguments}" if command in ("tfdoctor check", "tfdoctor fix") else command
                for command in remedy.commands
                if can_fix or command != "tfdoctor fix"
            ),
        )
        for remedy in root.remedies
        if remedy != advice.CHECK_REMEDY
    ]
    explanation = root.explanation
    if report.other_causes:
        explanation = explanation.replace(
            _describe_other_causes(report.cause, report.other_causes), ""
        ).strip()
    explanation = f"{explanation} `tfdoctor check` says: {check.verdict.headline}".strip()
    new_root = add_book_remedies(
        check.facts, compat, root, replace(root, explanation=explanation, remedies=tuple(remedies))
    )
    return _replace_root(report, new_root)


def merge_host_finding(report: LogReport, cause: Cause | None, finding: Finding | None) -> LogReport:
    """Return the report with a finding from a check of the machine that wrote the log.

    If the log has the cause of the finding as well, the root finding gets its remedies, which are for that machine. If the
    log is inconclusive, or does not rule out the cause, or both say that no GPU was registered because of the libraries,
    the finding becomes the root finding. Otherwise it is added as a note. The report is unchanged if `cause` or `finding`
    is None.
    """
    if finding is None or cause is None:
        return report
    root = report.root_finding
    if root is not None and cause is report.cause:
        new_root = replace(root, explanation=finding.explanation, remedies=finding.remedies)
        return replace(_replace_root(report, new_root), other_causes=())
    is_library_problem = report.gpu_registered is False and {cause, report.cause} <= LIBRARY_PROBLEMS
    if cause in report.other_causes or report.cause is Cause.INCONCLUSIVE or is_library_problem:
        other_findings = tuple(item for item in report.findings if item is not root)
        is_named = is_library_problem and bool(report.missing_sonames)
        addition = "" if is_named else f" On this machine: {finding.title}."
        return replace(
            report,
            cause=cause,
            summary=f"{report.summary}{addition}",
            headline=f"{report.headline}{addition}",
            other_causes=(),
            root_finding=finding,
            findings=(finding, *other_findings),
        )
    compare_remedy = Remedy("Compare this with what `check` reports for this machine.", ("tfdoctor check",))
    note = Finding(
        code=finding.code,
        cause=finding.cause,
        severity=Severity.INFO,
        title=f"On this machine: {finding.title}",
        explanation=finding.explanation,
        evidence=finding.evidence,
        remedies=(*finding.remedies, compare_remedy),
    )
    return replace(report, findings=(*report.findings, note))
