"""The output of `fleet`: a screen, and JSON (docs/schemas/fleet.schema.json)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.causes.codes import FLEET
from tfdoctor.findings import Severity
from tfdoctor.fleet import join_hosts
from tfdoctor.render.finding import SEVERITY_STATUS, format_mark
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import Page, Text, count_columns, print_hanging, truncate_text
from tfdoctor.report.diff.flatten import AREAS
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.fleet import Fleet, FleetFinding, FleetHost, Group
    from tfdoctor.privacy.redactor import Redactor

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
"""The columns of the grid, and the areas that each of them covers."""
STATE_TEXTS = {"ok": "used", "found": "not used", "failed": "failed", "lost": "lost", "timeout": "too late"}
"""The word for each state of a host."""
DRIVER_KEY = ("driver", "NVIDIA driver")
STATE_MARKS = {"used": ("✓", "green"), "not used": ("✗", "red"), "unknown": ("?", "yellow")}


def format_state(item: Group | FleetHost) -> str:
    """Return the word for the state of a group or a host."""
    return "unknown" if item.unknown else STATE_TEXTS[item.state]


def render_fleet(answer: Fleet, *, verbose: bool = False, width: int = 80, colour: bool = False) -> str:
    """Return the summary, the findings and the grid of host groups by area."""
    out = Page(width, coloured=colour)
    worst = max((finding.severity for finding in answer.findings), default=None)
    status_mark = format_mark(SEVERITY_STATUS[worst]) if worst is not None else Text("✓ ", style="green")
    print_hanging(out, status_mark, answer.summary, style="bold")
    shown_findings = answer.findings if verbose else answer.findings[:MAX_FINDINGS]
    if shown_findings:
        out.print()
    for finding in shown_findings:
        _print_finding(out, finding, whole=verbose)
    if len(answer.findings) > len(shown_findings):
        out.print(Text(f"  and {len(answer.findings) - len(shown_findings)} more findings: -v"))
    if answer.groups:
        out.print()
        _print_grid(out, answer.groups, verbose=verbose)
        common_text = ", ".join(f"{word} {value}" for word, value in answer.common)
        out.print()
        print_hanging(out, Text("  1 has  "), clean_line(common_text, limit=600))
    if answer.aside:
        plural = answer.aside > 1
        out.print(
            Text(f"  {answer.aside} file{'s' * plural} of the folder {'are' if plural else 'is'} no result.")
        )
    return out.text


def redact_fleet(answer: Fleet, redactor: Redactor) -> Fleet:
    """Return the answer with the secrets, users and addresses removed from the hosts' texts.

    Host names stay.
    """
    for group in answer.groups:
        for (area, _), pair in group.differs.items():
            if area not in ("variables", "paths"):
                redactor.learn_version(" ".join(pair))
    texts = [
        *(text for item in answer.findings for text in (item.message, item.fix)),
        *(item.why for item in answer.hosts),
        *(value for _, value in answer.common),
        *(text for group in answer.groups for pair in group.differs.values() for text in pair),
    ]
    redacted = redactor.texts(texts)
    return replace(
        answer,
        hosts=tuple(replace(item, why=redacted[item.why]) for item in answer.hosts),
        groups=tuple(
            replace(
                item,
                differs={
                    key: (redacted[own_value], redacted[first_value])
                    for key, (own_value, first_value) in item.differs.items()
                },
            )
            for item in answer.groups
        ),
        findings=tuple(
            replace(item, message=redacted[item.message], fix=redacted[item.fix]) for item in answer.findings
        ),
        common=tuple((word, redacted[value]) for word, value in answer.common),
    )


def _print_finding(out: Page, finding: FleetFinding, *, whole: bool) -> None:
    names = ", ".join(finding.hosts) if whole else join_hosts(finding.hosts)
    status_mark = Text("  ") + format_mark(SEVERITY_STATUS[finding.severity])
    text = (
        f"{clean_line(names, limit=4000)}: {clean_line(finding.message, limit=600)} [{FLEET[finding.name]}]"
    )
    print_hanging(out, status_mark, text)
    if finding.fix and (whole or finding.severity is Severity.ERROR):
        print_hanging(out, Text("      Do    "), clean_line(finding.fix))


def _print_grid(out: Page, groups: Sequence[Group], *, verbose: bool) -> None:
    """Print a line for each group.

    The first is the largest group; groups whose GPUs TensorFlow does not use come next.
    """
    other_groups = sorted(groups[1:], key=lambda group: group.state == "ok")
    shown_groups = [groups[0], *other_groups] if verbose else [groups[0], *other_groups][:MAX_GROUPS]
    domain = _find_common_domain([group.hosts[0] for group in groups])
    name_width = max(5, *(count_columns(_format_group(group, domain)) for group in shown_groups))
    name_width = min(name_width, max(8, out.width - 22 - sum(len(head) + 1 for head in COLUMNS)))
    header = " ".join(COLUMNS)
    out.print(Text(f"  {'hosts':>6}  {'such as':{name_width}}  GPUs      {header}"), wrap=False)
    for group in shown_groups:
        cells = " ".join(f"{format_cell(group, head):^{len(head)}}" for head in COLUMNS)
        sign, style = STATE_MARKS[format_state(group)]
        name = truncate_text(_format_group(group, domain), name_width)
        line = Text(f"  {len(group.hosts):>6,}  {name}{' ' * (name_width - count_columns(name))}  ") + Text(
            sign, style=style
        )
        out.print(line + Text(f" {format_state(group):<8}{cells}"), wrap=False)
    hidden_groups = len(groups) - len(shown_groups)
    if hidden_groups > 0:
        hosts = sum(len(group.hosts) for group in groups) - sum(len(group.hosts) for group in shown_groups)
        out.print(Text(f"  {hosts:>6,}  in {hidden_groups:,} more kinds: -v"))


def _format_group(group: Group, domain: str) -> str:
    return f"{group.number} {clean_line(group.hosts[0].removesuffix(domain), limit=60)}"


def _find_common_domain(names: Sequence[str]) -> str:
    """Return the domain that all host names share, such as ".cluster.example.org"; empty if there is none."""
    if any(name.replace(".", "").isdecimal() for name in names):  # IP addresses have no domain
        return ""
    shared = {name.partition(".")[1] + name.partition(".")[2] for name in names}
    return shared.pop() if len(shared) == 1 else ""


def format_cell(group: Group, head: str) -> str:
    """Return "=" if the group has the same values as group 1 in a column, or "≠" if not."""
    return "≠" if any(area in COLUMNS[head] for area, _ in group.differs) else "="


def make_fleet_json(answer: Fleet) -> dict[str, Any]:
    """Return the document that `fleet --json` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "engine": answer.engine,
        "summary": answer.summary,
        "hosts": [
            {
                "host": item.name,
                "status": item.state,
                "cause": item.cause,
                "seconds": item.seconds,
                "group": item.group,
                "why": item.why,
            }
            for item in answer.hosts
        ],
        "groups": [
            {
                "group": item.number,
                "hosts": len(item.hosts),
                "like": item.hosts[0],
                "status": item.state,
                "cause": item.cause,
                "cards": item.cards,
                "differs": _list_differences(item),
            }
            for item in answer.groups
        ],
        "findings": [
            {
                "code": FLEET[item.name],
                "name": item.name,
                "severity": item.severity.word,
                "hosts": list(item.hosts),
                "message": item.message,
                "fix": item.fix,
            }
            for item in answer.findings
        ],
        "common": dict(answer.common),
        "files_left_aside": answer.aside,
    }


def _list_differences(group: Group) -> dict[str, str]:
    """Return the group's differing values by name. If several areas have a name, the area is prefixed to it."""
    names = [name for _, name in group.differs]
    values = {}
    for (area, name), (value, _) in sorted(
        group.differs.items(), key=lambda item: _get_area_index(item[0][0])
    ):
        label = "driver" if (area, name) == DRIVER_KEY else name
        values[f"{area}: {label}" if names.count(name) > 1 else label] = value
    return values


def _get_area_index(area: str) -> int:
    return AREAS.index(area) if area in AREAS else len(AREAS)
