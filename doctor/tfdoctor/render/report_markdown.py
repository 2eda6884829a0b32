"""The output of `tfdoctor report`: one machine as Markdown for a bug report.

The report must be redacted before. External text cannot open or close a fenced block, a table cell or a tag, or
mention a user. GitHub limits a comment to 65,536 characters, so the longest sections are cut, with a note.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.facts import Known, SmiFacts, SmiFailure, Unknown, value_of
from tfdoctor.render.markdown import code, fence_lines, row, table, words
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Fact, Facts
    from tfdoctor.findings import Finding, Report

LIMIT = 65_536
"""The largest number of characters in a GitHub comment."""
_RESERVED_CHARS = 400
"""The number of characters of a comment that the report leaves free."""


@dataclass
class _Section:
    """A section of the Markdown. Only the lines of its body may be cut, from the end."""

    head: list[str]
    body: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)
    cut: int = 0
    """The number of lines that were cut from the body."""

    def lines(self) -> list[str]:
        """Return the lines of the section, with a note if some were cut."""
        note = (
            [f"<sub>{self.cut} more lines were cut: a comment has no room for them.</sub>", ""]
            if self.cut
            else []
        )
        return [*self.head, *self.body, *self.foot, *note]

    def size(self) -> int:
        """Return the length in characters, with the newlines."""
        return sum(len(line) + 1 for line in self.lines())


def report_markdown(report: Report, *, differences: Sequence[str] = ()) -> str:
    """Return the report as Markdown with at most `LIMIT` characters.

    `differences` are the results that redaction changed.
    """
    facts = report.facts
    sections = [
        _Section([f"**{words(report.verdict.summary)}**", ""]),
        _make_version_section(report),
        *(_make_finding_section(finding) for finding in report.findings if finding.severity > 0),
        _make_outcome_section(report),
        _make_folded_section(
            "Libraries that TensorFlow opens", ("library", "", "from"), _list_libraries(facts)
        ),
        _make_folded_section("Environment variables", ("variable", "value"), _list_variables(facts)),
        _make_folded_section("Packages", ("package", "version", "installed by"), _list_packages(facts)),
        _make_folded_section(
            "nvidia-smi", ("", "card", "memory (MiB)", "mode", "MIG", "bus", "UUID"), _list_gpus(facts)
        ),
        *(_make_finding_section(finding) for finding in report.findings if finding.severity == 0),
        _Section(_format_origin(differences)),
    ]
    sections = [section for section in sections if section.head]
    total = sum(section.size() for section in sections)
    # Cut the last quarter of the longest body until the text is short enough.
    while total > LIMIT - _RESERVED_CHARS:
        largest = max((s for s in sections if s.body), key=lambda s: sum(map(len, s.body)), default=None)
        if largest is None:
            break
        drop_count = max(1, len(largest.body) // 4)
        largest.cut += drop_count
        del largest.body[-drop_count:]
        total = sum(section.size() for section in sections)
    return "\n".join(line for section in sections for line in section.lines())[:LIMIT]


def _make_folded_section(title: str, columns: Sequence[str], rows: list[list[str]] | str) -> _Section:
    """Return a section that is folded on the page; empty if there are no rows.

    `rows` are the rows of a table, or a text for a fenced block.
    """
    if not rows:
        return _Section([])
    head = [f"<details><summary>{title}</summary>", ""]
    if isinstance(rows, str):
        return _Section(head, fence_lines([rows]), ["", "</details>", ""])
    return _Section([*head, *table(columns)], [row(cells) for cells in rows], ["", "</details>", ""])


# ---------------------------------------------------------------- sections


def _format_fact(fact: Fact[str]) -> str:
    if isinstance(fact, Known):
        return code(fact.value)
    return f"not known: {words(fact.why, 200)}" if isinstance(fact, Unknown) else "none"


def _make_version_section(report: Report) -> _Section:
    """Return a table of the versions on the machine, without the unknown ones."""
    facts = report.facts
    machine, python, tensorflow = facts.machine, value_of(facts.python), value_of(facts.tensorflow)
    smi = value_of(facts.driver.smi)
    driver = smi.driver_version if isinstance(smi, SmiFacts) else None
    module, cuda = value_of(facts.driver.kernel_module), value_of(facts.driver.cuda)
    container = machine.container or ("WSL" if machine.wsl else None)
    rows = [
        ("OS", words(machine.distribution or machine.system)),
        ("kernel", code(f"{machine.kernel} {machine.machine}")),
        ("container", words(container) if container else "no"),
        ("glibc", code(python.glibc or "") if python is not None else ""),
        (
            "Python",
            f"{code(python.version)} {code(python.executable)}"
            if python is not None
            else _format_missing(facts.python),
        ),
        (
            "TensorFlow",
            f"{code(tensorflow.version or 'unknown')} {code(tensorflow.distribution or '')}"
            if tensorflow is not None
            else _format_missing(facts.tensorflow),
        ),
        (
            "built for",
            _format_build(tensorflow.cuda_config, tensorflow.build_info) if tensorflow is not None else "",
        ),
        ("driver (nvidia-smi)", code(driver or "") or _format_missing(facts.driver.smi)),
        (
            "kernel module",
            code(module.version) if module is not None else _format_missing(facts.driver.kernel_module),
        ),
        ("driver's CUDA", code(cuda.version or "") if cuda is not None else ""),
        ("nvcc", _format_fact(facts.nvcc)),
    ]
    rows += [
        (
            f"GPU {device.ordinal}",
            f"{words(device.name or 'unknown')} ({words(device.compute_capability or '?')})",
        )
        for device in (cuda.devices if cuda is not None else ())
    ]
    if cuda is None or not cuda.devices:
        rows += [
            (
                f"card {card.address}",
                f"{code('10de:' + card.device_id)}, driver {code(card.driver or 'none')}",
            )
            for card in value_of(facts.driver.pci) or ()
        ]
    rows += [(f"toolkit {kit.version or ''}".strip(), code(kit.path)) for kit in facts.toolkits]
    return _Section(table(("", "")), [row(cells) for cells in rows if cells[1].strip()], [""])


def _format_missing(fact: Fact[Any]) -> str:
    if isinstance(fact, Known):
        return "no version" if not isinstance(fact.value, SmiFailure) else f"failed: {words(fact.value.kind)}"
    return f"not known: {words(fact.why, 200)}" if isinstance(fact, Unknown) else "not there"


def _format_build(config: dict[str, str], info: dict[str, str]) -> str:
    cuda = config.get("TF_CUDA_VERSION") or info.get("cuda_version") or ""
    cudnn = config.get("TF_CUDNN_VERSION") or info.get("cudnn_version") or ""
    return " ".join(f"{name} {code(value)}" for name, value in (("CUDA", cuda), ("cuDNN", cudnn)) if value)


def _make_finding_section(finding: Finding) -> _Section:
    head = [
        f"### {finding.code} {words(finding.title, 300)}", "",
        f"{finding.severity.word}, {code(finding.cause.value)}. {words(finding.explanation)}", "",
    ]  # fmt: skip
    evidence_lines = [
        f"{clean_line(e.source)}{f':{e.line}' if e.line else ''}: {clean_line(e.text)}"
        for e in finding.evidence[:40]
    ]
    return _Section(head, foot=[*fence_lines(evidence_lines), ""] if evidence_lines else [])


def _make_outcome_section(report: Report) -> _Section:
    counts = report.counts()
    text = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
    not_run = [o for o in report.outcomes if o.reason and o.kind.value in ("could_not_check", "crashed")]
    return _Section([f"Checks: {text}.", ""], [f"- {o.code}: {words(o.reason, 300)}" for o in not_run], [""])


def _list_libraries(facts: Facts) -> list[list[str]]:
    loader = value_of(facts.loader)
    if loader is None:
        return []
    return [
        [
            code(r.soname),
            "found" if r.ok else words(r.error, 300),
            f"{code(r.path or '')} {words(r.via, 200)}".strip(),
        ]
        for r in (*loader.import_needs, *loader.resolutions)
    ]


def _list_variables(facts: Facts) -> list[list[str]]:
    rows = [[code(name), code(value) or "(empty)"] for name, value in facts.environment.variables.items()]
    return rows + [
        [code(name), f"meant for {code(intended)}?"] for name, intended in facts.environment.misspelt
    ]


def _list_packages(facts: Facts) -> list[list[str]]:
    python = value_of(facts.python)
    if python is None:
        return []
    packages = [[code(d.name), code(d.version), words(d.installer or "")] for d in python.distributions]
    return packages + [[code(p.name), code(f"{p.version} {p.build}"), "conda"] for p in python.conda_packages]


def _list_gpus(facts: Facts) -> list[list[str]] | str:
    smi = value_of(facts.driver.smi)
    if isinstance(smi, SmiFailure):
        return smi.text
    if smi is None:
        return []
    return [
        [
            "" if gpu.index is None else str(gpu.index),
            words(gpu.name or ""),
            f"{_format_number(gpu.memory_used_mib)} / {_format_number(gpu.memory_total_mib)}",
            words(gpu.compute_mode or ""),
            {True: "on", False: "off", None: ""}[gpu.mig],
            code(gpu.pci_bus_id or ""),
            code(gpu.uuid or ""),
        ]
        for gpu in smi.gpus
    ]


def _format_number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _format_origin(differences: Sequence[str]) -> list[str]:
    origin = f"Made by `tfdoctor report` {__version__}"
    lines = [
        f"<sub>{origin}. Users, hosts, addresses, tokens and identifiers have placeholders, equal ones the same.</sub>",
        "",
    ]
    if differences:
        lines[:0] = [
            f"These give different results after redaction: {words(', '.join(differences))}.",
            "",
        ]
    return lines
