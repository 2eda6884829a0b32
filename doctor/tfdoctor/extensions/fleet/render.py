"""The output of `fleet`: text, and JSON (docs/schemas/fleet.schema.json)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.core.causes.codes import FLEET_CODES
from tfdoctor.core.findings import Severity
from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis.diff.flatten import AREAS
from tfdoctor.extensions.fleet.analysis import format_host_names
from tfdoctor.render.finding import STATUS_BY_SEVERITY, format_mark
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import Page, Text, count_columns, print_hanging, truncate_text
from tfdoctor.render.screen import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.privacy.redactor import Redactor
    from tfdoctor.extensions.fleet.models import Fleet, FleetFinding, FleetHost, HostGroup

__all__ = ["COLUMNS", "format_cell", "format_state", "make_fleet_json", "redact_fleet", "render_fleet"]

MAX_FINDINGS, MAX_GROUPS = 4, 5
"""The largest numbers of findings and of groups that are listed without -v."""
COLUMNS = {
    "driver": ("driver",),
    "kernel": ("kernel",),
    "cards": ("cards",),
    "TF": ("TensorFlow",),
    "Py": ("Python",),
    "CUDA": ("CUDA libraries",),
    "pkgs": ("packages",),
    "env": ("variables", "paths"),
    "OS": ("system",),
}
"""The areas that each column of the grid covers, by the header of the column."""
STATE_TEXTS = {"ok": "used", "found": "not used", "failed": "failed", "lost": "lost", "timeout": "too late"}
"""The word for each state of a host."""
STATE_MARKS = {"used": ("✓", "green"), "not used": ("✗", "red"), "unknown": ("?", "yellow")}
"""The mark and the style of each text that a group can have as its state."""
DRIVER_KEY = ("driver", "NVIDIA driver")
"""The area and the name of the driver version."""


def format_state(group_or_host: HostGroup | FleetHost) -> str:
    """Return the word for the state of a group or a host, such as "used"."""
    return "unknown" if group_or_host.is_unknown else STATE_TEXTS[group_or_host.state]


def render_fleet(fleet: Fleet, *, verbose: bool = False, width: int = 80, colour: bool = False) -> str:
    """Return the summary, the findings, and a grid that compares the groups of hosts."""
    out = Page(width, coloured=colour)
    worst_severity = max((finding.severity for finding in fleet.findings), default=None)
    status_mark = (
        format_mark(STATUS_BY_SEVERITY[worst_severity])
        if worst_severity is not None
        else Text("✓ ", style="green")
    )
    print_hanging(out, status_mark, fleet.summary, style="bold")
    shown_findings = fleet.findings if verbose else fleet.findings[:MAX_FINDINGS]
    if shown_findings:
        out.print()
    for finding in shown_findings:
        _print_finding(out, finding, complete=verbose)
    if len(fleet.findings) > len(shown_findings):
        hidden_count = len(fleet.findings) - len(shown_findings)
        out.print(Text(f"  and {format_count(hidden_count, 'more finding')}: -v"))
    if fleet.groups:
        out.print()
        _print_grid(out, fleet.groups, verbose=verbose)
        common_text = ", ".join(f"{word} {value}" for word, value in fleet.common_values)
        out.print()
        print_hanging(out, Text("  1 has  "), clean_line(common_text, limit=600))
    if fleet.ignored_file_count:
        is_plural = fleet.ignored_file_count > 1
        out.print(
            Text(
                f"  {fleet.ignored_file_count} file{'s' * is_plural} of the folder {'are' if is_plural else 'is'} no result."
            )
        )
    return out.text


def redact_fleet(fleet: Fleet, redactor: Redactor) -> Fleet:
    """Return the result with secrets, users and addresses replaced. The host names are not redacted."""
    for group in fleet.groups:
        for (area, _), values in group.differences.items():
            if area not in ("variables", "paths"):  # the others contain versions that look like addresses
                redactor.learn_version(" ".join(values))
    texts = [
        *(text for item in fleet.findings for text in (item.message, item.remedy)),
        *(item.failure_reason for item in fleet.hosts),
        *(value for _, value in fleet.common_values),
        *(text for group in fleet.groups for values in group.differences.values() for text in values),
    ]
    redacted = redactor.redact_texts(texts)

    def redact_difference(key: tuple[str, str], value: str) -> str:
        area, name = key
        return redactor.redact_keyed(name, redacted[value]) if area == "variables" else redacted[value]

    return replace(
        fleet,
        hosts=tuple(replace(item, failure_reason=redacted[item.failure_reason]) for item in fleet.hosts),
        groups=tuple(
            replace(
                item,
                differences={
                    key: (redact_difference(key, own_value), redact_difference(key, first_value))
                    for key, (own_value, first_value) in item.differences.items()
                },
            )
            for item in fleet.groups
        ),
        findings=tuple(
            replace(item, message=redacted[item.message], remedy=redacted[item.remedy])
            for item in fleet.findings
        ),
        common_values=tuple((word, redacted[value]) for word, value in fleet.common_values),
    )


def _print_finding(out: Page, finding: FleetFinding, *, complete: bool) -> None:
    host_names = ", ".join(finding.hosts) if complete else format_host_names(finding.hosts)
    status_mark = Text("  ") + format_mark(STATUS_BY_SEVERITY[finding.severity])
    text = f"{clean_line(host_names, limit=4000)}: {clean_line(finding.message, limit=600)} [{FLEET_CODES[finding.kind]}]"
    print_hanging(out, status_mark, text)
    if finding.remedy and (complete or finding.severity is Severity.ERROR):
        print_hanging(out, Text("      Do    "), clean_line(finding.remedy))


def _print_grid(out: Page, groups: Sequence[HostGroup], *, verbose: bool) -> None:
    """Print a line for each group.

    The largest group comes first, followed by the groups whose GPUs TensorFlow does not use.
    """
    other_groups = sorted(groups[1:], key=lambda group: group.state == "ok")
    shown_groups = [groups[0], *other_groups] if verbose else [groups[0], *other_groups][:MAX_GROUPS]
    common_domain = _find_common_domain([group.hosts[0] for group in groups])
    name_width = max(5, *(count_columns(_format_group(group, common_domain)) for group in shown_groups))
    # Indents, the number of hosts and the state take 22 columns.
    name_width = min(name_width, max(8, out.width - 22 - sum(len(column) + 1 for column in COLUMNS)))
    header = " ".join(COLUMNS)
    out.print(Text(f"  {'hosts':>6}  {'such as':{name_width}}  GPUs      {header}"), wrap=False)
    for group in shown_groups:
        cells = " ".join(f"{format_cell(group, column):^{len(column)}}" for column in COLUMNS)
        mark, style = STATE_MARKS[format_state(group)]
        name = truncate_text(_format_group(group, common_domain), name_width)
        line = Text(f"  {len(group.hosts):>6,}  {name}{' ' * (name_width - count_columns(name))}  ") + Text(
            mark, style=style
        )
        out.print(line + Text(f" {format_state(group):<8}{cells}"), wrap=False)
    hidden_group_count = len(groups) - len(shown_groups)
    if hidden_group_count > 0:
        hidden_host_count = sum(len(group.hosts) for group in groups) - sum(
            len(group.hosts) for group in shown_groups
        )
        plural = "s" if hidden_group_count != 1 else ""
        out.print(Text(f"  {hidden_host_count:>6,}  in {hidden_group_count:,} more kind{plural}: -v"))


def _format_group(group: HostGroup, domain: str) -> str:
    return f"{group.number} {clean_line(group.hosts[0].removesuffix(domain), limit=60)}"


def _find_common_domain(host_names: Sequence[str]) -> str:
    """Return the domain that all host names share, such as ".cluster.example.org", or "" if there is none."""
    if any(host_name.replace(".", "").isdecimal() for host_name in host_names):  # IP addresses have no domain
        return ""
    domains = {host_name.partition(".")[1] + host_name.partition(".")[2] for host_name in host_names}
    return domains.pop() if len(domains) == 1 else ""


def format_cell(group: HostGroup, column: str) -> str:
    """Return "=" if the group has the same values as group 1 in a column, else "≠"."""
    return "≠" if any(area in COLUMNS[column] for area, _ in group.differences) else "="


def make_fleet_json(fleet: Fleet) -> dict[str, Any]:
    """Return the document that `fleet --json` prints."""
    return {
        **make_document_head("fleet"),
        "engine": fleet.engine,
        "summary": fleet.summary,
        "hosts": [
            {
                "host": entry.name,
                "status": entry.state,
                "cause": entry.cause,
                "seconds": entry.duration_s,
                "group": entry.group_number,
                "why": entry.failure_reason,
            }
            for entry in fleet.hosts
        ],
        "groups": [
            {
                "group": entry.number,
                "hosts": len(entry.hosts),
                "like": entry.hosts[0],
                "status": entry.state,
                "cause": entry.cause,
                "cards": entry.card_description,
                "differs": _list_differences(entry),
            }
            for entry in fleet.groups
        ],
        "findings": [
            {
                "code": FLEET_CODES[entry.kind],
                "name": entry.kind,
                "severity": entry.severity.word,
                "hosts": list(entry.hosts),
                "message": entry.message,
                "fix": entry.remedy,
            }
            for entry in fleet.findings
        ],
        "common": dict(fleet.common_values),
        "files_left_aside": fleet.ignored_file_count,
    }


def _list_differences(group: HostGroup) -> dict[str, str]:
    """Return the values that differ from group 1, by name. Ambiguous names are preceded by their area."""
    all_names = [name for _, name in group.differences]
    value_by_label = {}
    for (area, name), (value, _) in sorted(
        group.differences.items(), key=lambda item: _get_area_index(item[0][0])
    ):
        label = "driver" if (area, name) == DRIVER_KEY else name
        value_by_label[f"{area}: {label}" if all_names.count(name) > 1 else label] = value
    return value_by_label


def _get_area_index(area: str) -> int:
    return AREAS.index(area) if area in AREAS else len(AREAS)
