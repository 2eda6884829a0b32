"""The output of `tfdoctor report`: one machine as Markdown for a bug report.

The report must already be redacted. External text cannot open or close a fenced block, a table cell or a tag, or
mention a user. GitHub limits a comment to 65,536 characters, so the longest sections are cut, with a note.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.core.facts import Known, SmiFacts, SmiFailure, Unknown, value_of
from tfdoctor.core.text import clean_line
from tfdoctor.render.markdown import (
    escape_prose,
    fence_lines,
    format_code_span,
    format_table_header,
    format_table_row,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts import Fact, Facts
    from tfdoctor.core.findings import Finding, Report

MAX_COMMENT_CHARS = 65_536
"""The largest number of characters in a GitHub comment."""
MAX_EVIDENCE_LINES = 40
"""The largest number of lines of evidence for a finding."""
_RESERVED_CHARS = 400
"""The number of characters of a comment that the report leaves free."""


@dataclass
class _Section:
    """A section of the Markdown. If it has to be shortened, the last lines of its body are cut."""

    header: list[str]
    body: list[str] = field(default_factory=list)
    footer: list[str] = field(default_factory=list)
    cut_line_count: int = 0
    """The number of lines that were cut from the body."""

    def list_lines(self) -> list[str]:
        """Return the lines of the section, with a note if some were cut."""
        note = (
            [f"<sub>{self.cut_line_count} more lines were cut: a comment has no room for them.</sub>", ""]
            if self.cut_line_count
            else []
        )
        return [*self.header, *self.body, *self.footer, *note]

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
    sections = [section for section in sections if section.header]
    total_chars = sum(section.count_chars() for section in sections)
    # Repeatedly cut the last quarter of the longest body until the text is short enough.
    while total_chars > MAX_COMMENT_CHARS - _RESERVED_CHARS:
        longest_section = max(
            (section for section in sections if section.body),
            key=lambda section: sum(map(len, section.body)),
            default=None,
        )
        if longest_section is None:
            break
        cut_count = max(1, len(longest_section.body) // 4)
        longest_section.cut_line_count += cut_count
        del longest_section.body[-cut_count:]
        total_chars = sum(section.count_chars() for section in sections)
    return "\n".join(line for section in sections for line in section.list_lines())[:MAX_COMMENT_CHARS]


def _make_folded_section(title: str, columns: Sequence[str], rows: list[list[str]] | str) -> _Section:
    """Return a section that the reader can unfold, or an empty section if there are no rows.

    `rows` are the rows of a table, or a text for a fenced block.
    """
    if not rows:
        return _Section([])
    header = [f"<details><summary>{title}</summary>", ""]
    if isinstance(rows, str):
        return _Section(header, body=fence_lines([rows]), footer=["", "</details>", ""])
    return _Section(
        [*header, *format_table_header(columns)],
        body=[format_table_row(cells) for cells in rows],
        footer=["", "</details>", ""],
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
    """Return the reason why a fact has no version."""
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
    header = [
        f"### {finding.code} {escape_prose(finding.title, 300)}", "",
        f"{finding.severity.word}, {format_code_span(finding.cause.value)}. {escape_prose(finding.explanation)}", "",
    ]  # fmt: skip
    evidence_lines = [
        f"{clean_line(item.source)}{f':{item.line}' if item.line else ''}: {clean_line(item.text)}"
        for item in finding.evidence[:MAX_EVIDENCE_LINES]
    ]
    return _Section(header, footer=[*fence_lines(evidence_lines), ""] if evidence_lines else [])


def _make_outcome_section(report: Report) -> _Section:
    counts = report.count_outcomes()
    text = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
    failed_outcomes = [
        outcome
        for outcome in report.outcomes
        if outcome.reason and outcome.kind.value in ("could_not_check", "crashed")
    ]
    return _Section(
        header=[f"Checks: {text}.", ""],
        body=[f"- {outcome.code}: {escape_prose(outcome.reason, 300)}" for outcome in failed_outcomes],
        footer=[""],
    )


def _list_libraries(facts: Facts) -> list[list[str]]:
    loader = value_of(facts.loader)
    if loader is None:
        return []
    return [
        [
            format_code_span(resolution.soname),
            "found" if resolution.ok else escape_prose(resolution.error, 300),
            f"{format_code_span(resolution.path or '')} {escape_prose(resolution.via, 200)}".strip(),
        ]
        for resolution in (*loader.import_needs, *loader.resolutions)
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
        [
            format_code_span(distribution.name),
            format_code_span(distribution.version),
            escape_prose(distribution.installer or ""),
        ]
        for distribution in python.distributions
    ]
    return packages + [
        [format_code_span(package.name), format_code_span(f"{package.version} {package.build}"), "conda"]
        for package in python.conda_packages
    ]


def _list_gpus(facts: Facts) -> list[list[str]] | str:
    """Return a row for each GPU that nvidia-smi lists, or its output if it failed."""
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
