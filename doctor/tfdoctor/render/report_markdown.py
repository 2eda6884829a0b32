"""The output of `tfdoctor report`: one machine as Markdown for a bug report.

The report must already be redacted. External text cannot open or close a fenced block, a table cell or a tag, or
mention a user. GitHub limits a comment to 65,536 characters, so the longest sections are cut, with a note.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.facts import Known, SmiFacts, SmiFailure, Unknown, value_of
from tfdoctor.render.markdown import (
    escape_prose,
    fence_lines,
    format_code_span,
    format_table_header,
    format_table_row,
)
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Fact, Facts
    from tfdoctor.findings import Finding, Report

MAX_COMMENT_CHARS = 65_536
"""The largest number of characters in a GitHub comment."""
_RESERVED_CHARS = 400
"""The number of characters of a comment that the report leaves free."""


@dataclass
class _Section:
    """A section of the Markdown. If it has to be shortened, the last lines of its body are cut."""

    head: list[str]
    body: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)
    cut: int = 0
    """The number of lines that were cut from the body."""

    def list_lines(self) -> list[str]:
        """Return the lines of the section, with a note if some were cut."""
        note = (
            [f"<sub>{self.cut} more lines were cut: a comment has no room for them.</sub>", ""]
            if self.cut
            else []
        )
        return [*self.head, *self.body, *self.foot, *note]

    def count_chars(self) -> int:
        """Return the length of the section in characters, including newlines."""
        return sum(len(line) + 1 for line in self.list_lines())


def make_report_markdown(report: Report, *, differences: Sequence[str] = ()) -> str:
    """Return the report as Markdown with at most `MAX_COMMENT_CHARS` characters.

    `differences` are the results that redaction changed.
    """
    facts = report.facts
    sections = [
        _Section([f"**{escape_prose(report.verdict.summary)}**", ""]),
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
    total = sum(section.count_chars() for section in sections)
    # Repeatedly cut the last quarter of the longest body until the text is short enough.
    while total > MAX_COMMENT_CHARS - _RESERVED_CHARS:
        largest = max(
            (section for section in sections if section.body),
            key=lambda section: sum(map(len, section.body)),
            default=None,
        )
        if largest is None:
            break
        drop_count = max(1, len(largest.body) // 4)
        largest.cut += drop_count
        del largest.body[-drop_count:]
        total = sum(section.count_chars() for section in sections)
    return "\n".join(line for section in sections for line in section.list_lines())[:MAX_COMMENT_CHARS]


def _make_folded_section(title: str, columns: Sequence[str], rows: list[list[str]] | str) -> _Section:
    """Return a section that the reader can unfold, or an empty section if there are no rows.

    `rows` are the rows of a table, or a text for a fenced block.
    """
    if not rows:
        return _Section([])
    head = [f"<details><summary>{title}</summary>", ""]
    if isinstance(rows, str):
        return _Section(head, fence_lines([rows]), ["", "</details>", ""])
    return _Section(
        [*head, *format_table_header(columns)],
        [format_table_row(cells) for cells in rows],
        ["", "</details>", ""],
    )


# ---------------------------------------------------------------- sections


def _format_fact(fact: Fact[str]) -> str:
    if isinstance(fact, Known):
        return format_code_span(fact.value)
    return f"not known: {escape_prose(fact.why, 200)}" if isinstance(fact, Unknown) else "none"


def _make_version_section(report: Report) -> _Section:
    """Return a table of the versions on the machine. Rows without a value are left out."""
    facts = report.facts
    machine, python, tensorflow = facts.machine, value_of(facts.python), value_of(facts.tensorflow)
    smi = value_of(facts.driver.smi)
    driver = smi.driver_version if isinstance(smi, SmiFacts) else None
    module, cuda = value_of(facts.driver.kernel_module), value_of(facts.driver.cuda)
    container = machine.container or ("WSL" if machine.wsl else None)
    rows = [
        ("OS", escape_prose(machine.distribution or machine.system)),
        ("kernel", format_code_span(f"{machine.kernel} {machine.machine}")),
        ("container", escape_prose(container) if container else "no"),
        ("glibc", format_code_span(python.glibc or "") if python is not None else ""),
        (
            "Python",
            f"{format_code_span(python.version)} {format_code_span(python.executable)}"
            if python is not None
            else _format_missing(facts.python),
        ),
        (
            "TensorFlow",
            f"{format_code_span(tensorflow.version or 'unknown')} {format_code_span(tensorflow.distribution or '')}"
            if tensorflow is not None
            else _format_missing(facts.tensorflow),
        ),
        (
            "built for",
            _format_build(tensorflow.cuda_config, tensorflow.build_info) if tensorflow is not None else "",
        ),
        ("driver (nvidia-smi)", format_code_span(driver or "") or _format_missing(facts.driver.smi)),
        (
            "kernel module",
            format_code_span(module.version)
            if module is not None
            else _format_missing(facts.driver.kernel_module),
        ),
        ("driver's CUDA", format_code_span(cuda.version or "") if cuda is not None else ""),
        ("nvcc", _format_fact(facts.nvcc)),
    ]
    rows += [
        (
            f"GPU {device.ordinal}",
            f"{escape_prose(device.name or 'unknown')} ({escape_prose(device.compute_capability or '?')})",
        )
        for device in (cuda.devices if cuda is not None else ())
    ]
    if cuda is None or not cuda.devices:
        rows += [
            (
                f"card {card.address}",
                f"{format_code_span('10de:' + card.device_id)}, driver {format_code_span(card.driver or 'none')}",
            )
            for card in value_of(facts.driver.pci) or ()
        ]
    rows += [(f"toolkit {kit.version or ''}".strip(), format_code_span(kit.path)) for kit in facts.toolkits]
    return _Section(
        format_table_header(("", "")), [format_table_row(cells) for cells in rows if cells[1].strip()], [""]
    )


def _format_missing(fact: Fact[Any]) -> str:
    if isinstance(fact, Known):
        return (
            "no version"
            if not isinstance(fact.value, SmiFailure)
            else f"failed: {escape_prose(fact.value.kind)}"
        )
    return f"not known: {escape_prose(fact.why, 200)}" if isinstance(fact, Unknown) else "not there"


def _format_build(config: dict[str, str], info: dict[str, str]) -> str:
    cuda = config.get("TF_CUDA_VERSION") or info.get("cuda_version") or ""
    cudnn = config.get("TF_CUDNN_VERSION") or info.get("cudnn_version") or ""
    return " ".join(
        f"{name} {format_code_span(value)}" for name, value in (("CUDA", cuda), ("cuDNN", cudnn)) if value
    )


def _make_finding_section(finding: Finding) -> _Section:
    head = [
        f"### {finding.code} {escape_prose(finding.title, 300)}", "",
        f"{finding.severity.word}, {format_code_span(finding.cause.value)}. {escape_prose(finding.explanation)}", "",
    ]  # fmt: skip
    evidence_lines = [
        f"{clean_line(e.source)}{f':{e.line}' if e.line else ''}: {clean_line(e.text)}"
        for e in finding.evidence[:40]
    ]
    return _Section(head, foot=[*fence_lines(evidence_lines), ""] if evidence_lines else [])


def _make_outcome_section(report: Report) -> _Section:
    counts = report.count_outcomes()
    text = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
    not_run = [o for o in report.outcomes if o.reason and o.kind.value in ("could_not_check", "crashed")]
    return _Section(
        [f"Checks: {text}.", ""], [f"- {o.code}: {escape_prose(o.reason, 300)}" for o in not_run], [""]
    )


def _list_libraries(facts: Facts) -> list[list[str]]:
    loader = value_of(facts.loader)
    if loader is None:
        return []
    return [
        [
            format_code_span(r.soname),
            "found" if r.ok else escape_prose(r.error, 300),
            f"{format_code_span(r.path or '')} {escape_prose(r.via, 200)}".strip(),
        ]
        for r in (*loader.import_needs, *loader.resolutions)
    ]


def _list_variables(facts: Facts) -> list[list[str]]:
    rows = [
        [format_code_span(name), format_code_span(value) or "(empty)"]
        for name, value in facts.environment.variables.items()
    ]
    return rows + [
        [format_code_span(name), f"meant for {format_code_span(intended)}?"]
        for name, intended in facts.environment.misspelt
    ]


def _list_packages(facts: Facts) -> list[list[str]]:
    python = value_of(facts.python)
    if python is None:
        return []
    packages = [
        [format_code_span(d.name), format_code_span(d.version), escape_prose(d.installer or "")]
        for d in python.distributions
    ]
    return packages + [
        [format_code_span(p.name), format_code_span(f"{p.version} {p.build}"), "conda"]
        for p in python.conda_packages
    ]


def _list_gpus(facts: Facts) -> list[list[str]] | str:
    smi = value_of(facts.driver.smi)
    if isinstance(smi, SmiFailure):
        return smi.text
    if smi is None:
        return []
    return [
        [
            "" if gpu.index is None else str(gpu.index),
            escape_prose(gpu.name or ""),
            f"{_format_number(gpu.memory_used_mib)} / {_format_number(gpu.memory_total_mib)}",
            escape_prose(gpu.compute_mode or ""),
            {True: "on", False: "off", None: ""}[gpu.mig],
            format_code_span(gpu.pci_bus_id or ""),
            format_code_span(gpu.uuid or ""),
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
            f"These give different results after redaction: {escape_prose(', '.join(differences))}.",
            "",
        ]
    return lines
