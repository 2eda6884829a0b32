"""A log → its report: the verdict in a sentence, the root cause as a finding, what is harmless, what misleads. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfdoctor.causes.codes import HARMLESS, MISREAD, RELEASE
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.logs import advice
from tfdoctor.logs.detectors import cluster as cluster_detectors
from tfdoctor.logs.known_issues import describe_known_problems
from tfdoctor.logs.libraries import is_cupti, list_names
from tfdoctor.logs.log_context import Case, Decision
from tfdoctor.logs.processes import FRAMEWORKS, LogProcess, ProcessPart, Splitter, overall
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

MAX_SHOWN = 12
ABOUT_LIBRARIES = (
    Cause.LIBS_WRONG_VERSION,
    Cause.LIBS_NOT_INSTALLED,
    Cause.LIBS_NOT_ON_PATH,
    Cause.IMPORT_MISSING_CUDA_LIB,
    Cause.LIBS_TRANSITIVE,
    Cause.CUDNN_MISSING,
)
"""Causes that are told with the names of what is missing."""


@dataclass(frozen=True, slots=True)
class LogReport:
    """Everything that `diagnose` has to say. Renderers compute nothing beyond it."""

    name: str
    """The file, as the user named it; "-" for standard input."""
    tensorflow_version: str | None
    era: str | None
    gpu_registered: bool | None
    devices: tuple[RegisteredDevice, ...]
    missing_libraries: tuple[str, ...]
    benign: tuple[str, ...]
    cause: Cause
    summary: str
    undecided: tuple[Cause, ...]
    """Other causes that the log does not rule out."""
    findings: tuple[Finding, ...]
    lines: int = 0
    bytes: int = 0
    root: Finding | None = field(default=None)
    processes: tuple[LogProcess, ...] = ()
    """Each process and each other framework, where the log tells several apart; else empty."""
    more_processes: int = 0
    """How many more there are."""
    headline: str = ""
    """`summary` as a screen begins: whether the GPU was used, and why not."""


def diagnose_log(chunks: Iterable[bytes], compat: Compat, name: str = "-") -> LogReport:
    """Read a log and judge it. `chunks` are its bytes, in pieces of any size. Never raises on any bytes."""
    catalogue = load_signatures()
    splitter = Splitter()
    log = drop_other_eras(scan(chunks, catalogue, splitter), compat)
    case = Case(log, compat)
    decision = decide(case)
    parts = splitter.parts(log)
    if len(parts) < 2 and len(case.origin.sources.writers) > 1:
        parts = _split_by_release(log, case)
    cases = [Case(drop_other_eras(part.log, compat), compat) for part in parts]
    decisions = _merge_decisions([decide(one) for one in cases])
    if len(parts) > 1:
        decision, having = overall(decision, zip(parts, decisions, strict=True))
        if decision.cause is not Cause.HEALTHY and 0 < having < len(parts):
            note = f"This applies to {having} of {len(parts)} processes."
            decision = replace(decision, note=f"{decision.note} {note}".strip())
        case = _choose_case(case, decision, zip(cases, decisions, strict=True))
    report = _report(case, decision, name)
    labels = _labels(parts)
    processes = [
        _process(label, part.first, one, judged)
        for label, part, one, judged in zip(labels, parts, cases, decisions, strict=True)
    ]
    processes += _frameworks(case)
    if len(processes) < 2:
        return report
    if len({part.label for part in parts}) > 1:
        # what one process opened, another can miss
        names = {
            soname
            for one, judged in zip(cases, decisions, strict=True)
            for soname in _list_missing(one, judged)
        }
        report = replace(report, missing_libraries=tuple(sorted(names)))
    return replace(report, processes=tuple(processes), more_processes=splitter.more)


def _split_by_release(log: Log, case: Case) -> list[ProcessPart]:
    """Return the parts of a log that TensorFlows of different releases wrote, where nothing else tells processes
    apart.
    """
    logs = split_by_writer(log, case.origin.sources.writers)
    parts = [ProcessPart(Case(one, case.compat).origin.name, log=one) for one in logs]
    for part in parts:
        part.first = min(event.line for event in part.log)
    return [part for part in parts if part.speaks()]


def _choose_case(case: Case, decision: Decision, judged: Iterable[tuple[Case, Decision]]) -> Case:
    """Return the whole log, written by the TensorFlow that the decision is about where the whole names none."""
    if case.origin.version is not None:
        return case
    for one, own in judged:
        if own.cause is decision.cause and one.origin.version is not None:
            return replace(case, written_by=one.origin)
    return case


def _merge_decisions(decisions: list[Decision]) -> list[Decision]:
    """Return a process that sees no GPU where another one has it does not see it because it may not."""
    if not any(decision.cause is Cause.HEALTHY for decision in decisions):
        return decisions
    return [
        replace(one, cause=Cause.HIDDEN_BY_ENV, maybe=(Cause.NO_DEVICE,))
        if one.cause is Cause.NO_DEVICE
        else one
        for one in decisions
    ]


def _labels(parts: Sequence[ProcessPart]) -> list[str]:
    """Return what each process is called: by the log, else by its place among several runs."""
    if len(parts) == 1:
        return [parts[0].label or "TensorFlow"]
    alone = len({part.label for part in parts}) == 1
    runs = Counter(part.label for part in parts)
    names = []
    for part in parts:
        run = f"run {part.run}"
        name = part.label or ("" if alone else "without a name")
        names.append(", ".join(word for word in (name, run if runs[part.label] > 1 else "") if word))
    return names


def _process(label: str, line: int, case: Case, decision: Decision) -> LogProcess:
    summary = _summary(case, decision, _list_missing(case, decision))
    used = is_registered(case, decision)
    return LogProcess(label, "TensorFlow", line, used, decision.cause, summary, case.devices)


def _frameworks(case: Case) -> list[LogProcess]:
    found = []
    for signature, name in FRAMEWORKS.items():
        event = case.log.first(signature)
        if event is None:
            continue
        oom = next((e for e in case.log.list_events(signature) if e.get("oom")), None)
        what = f"{name} also logs here; tfdoctor does not judge it."
        if oom is not None:
            what = f"{name} ran out of GPU memory (line {oom.line})."
        found.append(LogProcess(name, name, event.line, None, None, what))
    return sorted(found, key=lambda process: process.line)


def _report(case: Case, decision: Decision, name: str) -> LogReport:
    used = is_registered(case, decision)
    missing = _list_missing(case, decision)
    benign = _benign(case)
    root = _root(case, decision, name, missing)
    findings = [
        root,
        *_separate_findings(case, decision, name),
        *_misread(case, decision, name),
        *_harmless(case, name),
        *_release(case, name),
    ]
    return LogReport(
        name=name,
        tensorflow_version=case.origin.version,
        era=case.origin.era,
        gpu_registered=used,
        devices=case.devices,
        missing_libraries=missing,
        benign=benign,
        cause=decision.cause,
        summary=_summary(case, decision, missing),
        undecided=decision.maybe,
        findings=tuple(findings) if decision.cause is not Cause.HEALTHY else tuple(findings[1:]),
        lines=case.log.lines,
        bytes=case.log.bytes,
        root=root if decision.cause is not Cause.HEALTHY else None,
        headline=_headline(case, decision, missing, used=used),
    )


def _separate_findings(case: Case, decision: Decision, name: str) -> list[Finding]:
    """Return a cluster that does not come together is no reason for a GPU that is not used, and stops the program as
    well.
    """
    other = cluster_detectors.cluster(case)
    if other is None or other.cause is decision.cause:
        return []
    return [_root(case, other, name, ())]


def _list_missing(case: Case, decision: Decision) -> tuple[str, ...]:
    """Return what could not be opened and matters: the profiler's CUPTI only where it is the matter."""
    found = [m for m in case.missing if decision.cause is Cause.CUPTI_MISSING or not is_cupti(m.soname)]
    names = list(list_names(found))
    event = case.log.first("container-driver-error")
    if event is not None:
        names += [n for n in (event.get("soname"), _library_of(event.get("file"))) if n and n not in names]
    return tuple(sorted(names))


def _library_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rstrip(".:,") if ".so" in name else ""


def _benign(case: Case) -> tuple[str, ...]:
    codes: set[str] = set()
    for events in case.log.events.values():
        code = events[0].signature.benign
        if code is not None:
            codes.add(code)
    return tuple(sorted(codes))


# ---------------------------------------------------------------- findings


def _evidence(events: Iterable[Event], name: str) -> tuple[Evidence, ...]:
    seen: dict[tuple[int, str], Evidence] = {}
    for event in events:
        seen.setdefault((event.line, event.text), Evidence(name, event.text, event.line))
    return tuple(seen.values())[:MAX_SHOWN]


def _root(case: Case, decision: Decision, name: str, missing: Sequence[str]) -> Finding:
    cause = decision.cause
    parts = [
        decision.note,
        advice.describe_usual_reason(case, cause),
        "" if decision.title else cause.row.meaning,
    ]
    if (
        cause is Cause.LIBS_WRONG_VERSION and case.other_cuda is None
    ):  # where was searched, which says little by itself
        parts.append(parts.pop(0))
    parts = [text for text in parts if text]
    if missing and cause is not Cause.HEALTHY:
        parts.append(f"The log names: {', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}.")
    told, avoid = describe_known_problems(case, decision)
    if told:
        parts.append(told)
    remedies = (*advice.remedies(case, cause), *avoid)
    if decision.maybe:
        titles = "; ".join(_lower_title(other.row.title) for other in decision.maybe)
        parts.append(
            f"The log alone does not rule out: {titles}. Run `tfdoctor check` on that machine to tell them apart."
        )
        if not any("tfdoctor check" in remedy.commands for remedy in remedies):
            remedies = (*remedies, advice.CHECK)
    return Finding(
        code=cause.row.code,
        cause=cause,
        severity=cause.row.severity,
        title=decision.title or cause.row.title,
        explanation=" ".join(parts),
        evidence=_evidence(decision.events, name),
        remedies=remedies,
    )


def _harmless(case: Case, name: str) -> list[Finding]:
    events = [
        case.log.list_events(e)[0]
        for e in case.log.events
        if case.log.list_events(e)[0].signature.benign is not None
    ]
    if not events:
        return []
    says = list(dict.fromkeys(event.signature.says for event in events))
    return [
        Finding(
            HARMLESS,
            Cause.HEALTHY,
            Severity.INFO,
            "Messages that look bad and are harmless",
            " ".join(says),
            _evidence(sorted(events, key=lambda event: event.order), name),
        )
    ]


_OF_THE_CODE = {
    "configured-late": "A setting came after TensorFlow had taken the GPUs, and has no effect",
    "growth-differs": "Memory growth is set for some GPUs only, which TensorFlow refuses",
}
"""Messages that are about a line of the program."""


def _misread(case: Case, decision: Decision, name: str) -> list[Finding]:
    """Return what in this log looks like something that it is not."""
    found: list[tuple[str, str]] = []
    log, healthy = case.log, decision.cause is Cause.HEALTHY
    if case.created is None:
        if log.has("xla-gpu-listed"):
            found.append(("An XLA_GPU is not a registered GPU: operations run on the CPU.", "xla-gpu-listed"))
        if log.has("xla-on-cuda"):
            found.append(("XLA naming the card does not mean that TensorFlow registered it.", "xla-on-cuda"))
        if log.has("device-found"):
            found.append(("Finding a device does not register it: that comes later.", "device-found"))
    if log.has("cuda-not-found") and decision.cause is not Cause.NO_DRIVER and not healthy:
        found.append(
            (
                "“Could not find cuda drivers” is about libcudart; working drivers print it, too.",
                "cuda-not-found",
            )
        )
    found += [
        (f"{text}: `tfdoctor lint` finds the line.", name)
        for name, text in _OF_THE_CODE.items()
        if log.has(name)
    ]
    if not found:
        return []
    events = [event for _, signature in found for event in log.list_events(signature)[:1]]
    return [
        Finding(
            MISREAD,
            decision.cause,
            Severity.INFO,
            "Easily misread",
            " ".join(text for text, _ in found),
            _evidence(events, name),
        )
    ]


def _release(case: Case, name: str) -> list[Finding]:
    """Return which TensorFlow wrote the log, with the lines that say so, where the log does not say it itself."""
    origin = case.origin
    sources = origin.sources
    events = [event for writer in sources.writers for event in writer.events]
    if origin.by == "log" or not (events or sources.foreign):
        return []
    if sources.foreign is not None:
        events = [sources.foreign]
        said = (
            "Not known: no release contains all these source lines. It may be another build (a nightly, a candidate, "
            "a vendor's), or several."
        )
    elif len(sources.writers) > 1:
        said = "These source lines come from different releases: several TensorFlows wrote this log."
    elif origin.by == "early" and origin.release is not None:
        said = (
            f"TensorFlow {origin.release.minor} has these source lines, and the log is older than it: a candidate or a "
            "nightly build wrote this."
        )
    elif origin.by == "rest":
        said = "These source lines and the rest of the log come from different releases: the release is not known."
    elif origin.version is not None and not _is_from_lines_alone(origin):
        said = f"Of the releases with these source lines, only TensorFlow {origin.version} fits the rest of the log."
    elif origin.version is not None:
        said = f"Only TensorFlow {origin.version} has these source lines."
    else:
        said = f"TensorFlow {origin.era} can have written this, judging by its source lines."
    return [
        Finding(
            RELEASE,
            Cause.HEALTHY,
            Severity.INFO,
            "Which TensorFlow wrote this",
            said,
            _evidence(events, name),
        )
    ]


def _is_from_lines_alone(origin: LogOrigin) -> bool:
    """Return whether no other release than the one that is named has the lines."""
    named = origin.version or ""
    return all(
        release == named or release.startswith(f"{named}.")
        for writer in origin.sources.writers
        for release in writer.releases
    )


# ---------------------------------------------------------------- the sentence


def _summary(case: Case, decision: Decision, missing: Sequence[str]) -> str:
    cause, who = decision.cause, case.origin.name
    if cause is Cause.HEALTHY and case.created is None:
        return (
            f"{who} takes {_describe_taken(case)}; the log ends before the registration, and nothing "
            "in it speaks against it."
        )
    if cause is Cause.HEALTHY:
        count = len({device.index for device in case.devices}) or 1
        names = ", ".join(dict.fromkeys(device.name for device in case.devices))
        what = f"{count} GPU{'' if count == 1 else 's'}" + (f" ({names})" if names else "")
        return f"{who} registered {what}; nothing in this log contradicts that."
    if cause is Cause.INCONCLUSIVE:
        return f"{decision.title or cause.row.title}."
    return f"{who}: {lower_first(_make_title(decision, missing, 4))}."


def _describe_taken(case: Case) -> str:
    """Return the cards of which a log shows that nothing stands in their way, where it ends before they are
    registered.
    """
    visible = case.log.last("devices-visible")
    indices = visible.get("which").split(",") if visible is not None else []
    count = len([one for one in indices if one.strip()]) or len(
        {event.get("index") for event in case.log.list_events("device-found")}
    )
    names = f" ({', '.join(case.cards)})" if case.cards else ""
    return f"{count} GPU{'' if count == 1 else 's'}{names}" if count else f"the GPU{names}"


def _make_title(decision: Decision, missing: Sequence[str], most: int) -> str:
    """Return the title with the libraries that it is about, `most` of them."""
    title = decision.title or decision.cause.row.title
    if not missing or decision.cause not in ABOUT_LIBRARIES:
        return title
    more = f" and {len(missing) - most} more" if len(missing) > most else ""
    return f"{title}: {', '.join(missing[:most])}{more}"


def _runtime(missing: Sequence[str]) -> str:
    """Return the library whose name tells the CUDA, where it is among them."""
    return next((name for name in missing if "cudart" in name), missing[0] if missing else "")


def _headline(case: Case, decision: Decision, missing: Sequence[str], *, used: bool | None) -> str:
    """As `_summary`, and whether the GPU was used."""
    cause, who = decision.cause, case.origin.name
    if cause in (Cause.HEALTHY, Cause.INCONCLUSIVE):
        return _summary(case, decision, missing)
    title = _make_title(decision, missing, 2)
    other = case.other_cuda
    if cause is Cause.LIBS_WRONG_VERSION and other is not None:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        title = f"CUDA {other[0]} is installed, but it needs CUDA {other[1]} ({_runtime(missing)}{more})"
    title = _lower_title(title)
    if used is False:
        return f"{who} did not use the GPU: {title}."
    if used and cause.row.severity is Severity.ERROR:
        return f"{who} found the GPU but failed on it: {title}."
    if used is None and cause.row.severity is Severity.ERROR:
        return f"{who} may not have used the GPU: {title}."
    return f"{who}: {title}."


def _lower_title(title: str) -> str:
    """Return a title in the middle of a sentence."""
    return f"a{title[1:]}" if title.startswith("A ") else lower_first(title)


def with_host(report: LogReport, cause: Cause | None, finding: Finding | None) -> LogReport:
    """Return the report with this machine's own answer where the log left it open."""
    if finding is None or cause is None:
        return report
    if cause in report.undecided or report.cause is Cause.INCONCLUSIVE:
        kept = tuple(f for f in report.findings if f is not report.root)
        summary = f"{report.summary} On this machine: {finding.title}."
        return replace(
            report,
            cause=cause,
            summary=summary,
            headline=f"{report.headline} On this machine: {finding.title}.",
            undecided=(),
            root=finding,
            findings=(finding, *kept),
        )
    here = Remedy("Compare this with what `check` reports for this machine.", ("tfdoctor check",))
    note = Finding(
        finding.code,
        finding.cause,
        Severity.INFO,
        f"On this machine: {finding.title}",
        finding.explanation,
        finding.evidence,
        (*finding.remedies, here),
    )
    return replace(report, findings=(*report.findings, note))
