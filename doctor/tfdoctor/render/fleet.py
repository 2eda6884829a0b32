"""What `fleet` says: a screen and JSON (docs/schemas/fleet.schema.json)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.causes.codes import FLEET
from tfdoctor.findings import Severity
from tfdoctor.fleet import join_hosts
from tfdoctor.render.finding import SEVERITY_STATUS, mark
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import Page, Text, cells, cut, print_hanging
from tfdoctor.report.diff.flatten import AREAS
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.fleet import Fleet, FleetFinding, FleetHost, Group
    from tfdoctor.privacy.redactor import Redactor

__all__ = ["COLUMNS", "cell", "fleet_json", "redact_fleet", "render_fleet", "state_word"]

FINDINGS, GROUPS = 4, 5
"""Shown without -v."""
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
"""Heads of the grid → the areas that they stand for."""
STATES = {"ok": "used", "found": "not used", "failed": "failed", "lost": "lost", "timeout": "too late"}
OF_DRIVER = ("driver", "NVIDIA driver")
SIGNS = {"used": ("✓", "green"), "not used": ("✗", "red"), "unknown": ("?", "yellow")}


def state_word(one: Group | FleetHost) -> str:
    """Return the word of the table for a group's or a host's state."""
    return "unknown" if one.unknown else STATES[one.state]


def render_fleet(answer: Fleet, *, verbose: bool = False, width: int = 80, colour: bool = False) -> str:
    """Return the answer in a sentence, what the odd ones have, and the grid: groups of hosts by areas."""
    out = Page(width, coloured=colour)
    worst = max((one.severity for one in answer.findings), default=None)
    sign = mark(SEVERITY_STATUS[worst]) if worst is not None else Text("✓ ", style="green")
    print_hanging(out, sign, answer.summary, style="bold")
    shown = answer.findings if verbose else answer.findings[:FINDINGS]
    if shown:
        out.print()
    for one in shown:
        _finding(out, one, whole=verbose)
    if len(answer.findings) > len(shown):
        out.print(Text(f"  and {len(answer.findings) - len(shown)} more findings: -v"))
    if answer.groups:
        out.print()
        _grid(out, answer.groups, verbose=verbose)
        told = ", ".join(f"{word} {value}" for word, value in answer.common)
        out.print()
        print_hanging(out, Text("  1 has  "), clean_line(told, limit=600))
    if answer.aside:
        many = answer.aside > 1
        out.print(
            Text(f"  {answer.aside} file{'s' * many} of the folder {'are' if many else 'is'} no result.")
        )
    return out.text


def redact_fleet(answer: Fleet, redactor: Redactor) -> Fleet:
    """Return the answer without secrets, users and addresses in what the hosts wrote. The hosts' names stay."""
    for group in answer.groups:
        for (area, _), pair in group.differs.items():
            if area not in ("variables", "paths"):
                redactor.learn_version(" ".join(pair))
    texts = [
        *(text for one in answer.findings for text in (one.message, one.fix)),
        *(one.why for one in answer.hosts),
        *(value for _, value in answer.common),
        *(text for group in answer.groups for pair in group.differs.values() for text in pair),
    ]
    made = redactor.texts(texts)
    return replace(
        answer,
        hosts=tuple(replace(one, why=made[one.why]) for one in answer.hosts),
        groups=tuple(
            replace(
                one, differs={key: (made[here], made[there]) for key, (here, there) in one.differs.items()}
            )
            for one in answer.groups
        ),
        findings=tuple(replace(one, message=made[one.message], fix=made[one.fix]) for one in answer.findings),
        common=tuple((word, made[value]) for word, value in answer.common),
    )


def _finding(out: Page, one: FleetFinding, *, whole: bool) -> None:
    names = ", ".join(one.hosts) if whole else join_hosts(one.hosts)
    sign = Text("  ") + mark(SEVERITY_STATUS[one.severity])
    told = f"{clean_line(names, limit=4000)}: {clean_line(one.message, limit=600)} [{FLEET[one.name]}]"
    print_hanging(out, sign, told)
    if one.fix and (whole or one.severity is Severity.ERROR):
        print_hanging(out, Text("      Do    "), clean_line(one.fix))


def _grid(out: Page, groups: Sequence[Group], *, verbose: bool) -> None:
    """A line a group; the largest first, then those that TensorFlow uses no GPU on."""
    odd = sorted(groups[1:], key=lambda one: one.state == "ok")
    shown = [groups[0], *odd] if verbose else [groups[0], *odd][:GROUPS]
    domain = _domain([one.hosts[0] for one in groups])
    wide = max(5, *(cells(_format_group(one, domain)) for one in shown))
    wide = min(wide, max(8, out.width - 22 - sum(len(head) + 1 for head in COLUMNS)))
    heads = " ".join(COLUMNS)
    out.print(Text(f"  {'hosts':>6}  {'such as':{wide}}  GPUs      {heads}"), wrap=False)
    for one in shown:
        cells_ = " ".join(f"{cell(one, head):^{len(head)}}" for head in COLUMNS)
        sign, style = SIGNS[state_word(one)]
        name = cut(_format_group(one, domain), wide)
        line = Text(f"  {len(one.hosts):>6,}  {name}{' ' * (wide - cells(name))}  ") + Text(sign, style=style)
        out.print(line + Text(f" {state_word(one):<8}{cells_}"), wrap=False)
    rest = len(groups) - len(shown)
    if rest > 0:
        hosts = sum(len(one.hosts) for one in groups) - sum(len(one.hosts) for one in shown)
        out.print(Text(f"  {hosts:>6,}  in {rest:,} more kinds: -v"))


def _format_group(group: Group, domain: str) -> str:
    return f"{group.number} {clean_line(group.hosts[0].removesuffix(domain), limit=60)}"


def _domain(names: Sequence[str]) -> str:
    """Return ".cluster.example.org" where all names end with it, which tells none from another.

    Else nothing.
    """
    if any(one.replace(".", "").isdecimal() for one in names):  # addresses
        return ""
    shared = {one.partition(".")[1] + one.partition(".")[2] for one in names}
    return shared.pop() if len(shared) == 1 else ""


def cell(group: Group, head: str) -> str:
    """ "=": as group 1; "≠": otherwise."""
    return "≠" if any(area in COLUMNS[head] for area, _ in group.differs) else "="


def fleet_json(answer: Fleet) -> dict[str, Any]:
    """Return the contract's document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "engine": answer.engine,
        "summary": answer.summary,
        "hosts": [
            {
                "host": one.name,
                "status": one.state,
                "cause": one.cause,
                "seconds": one.seconds,
                "group": one.group,
                "why": one.why,
            }
            for one in answer.hosts
        ],
        "groups": [
            {
                "group": one.number,
                "hosts": len(one.hosts),
                "like": one.hosts[0],
                "status": one.state,
                "cause": one.cause,
                "cards": one.cards,
                "differs": _differs(one),
            }
            for one in answer.groups
        ],
        "findings": [
            {
                "code": FLEET[one.name],
                "name": one.name,
                "severity": one.severity.word,
                "hosts": list(one.hosts),
                "message": one.message,
                "fix": one.fix,
            }
            for one in answer.findings
        ],
        "common": dict(answer.common),
        "files_left_aside": answer.aside,
    }


def _differs(group: Group) -> dict[str, str]:
    """By name; the area before it where two areas have that name."""
    names = [name for _, name in group.differs]
    found = {}
    for (area, name), (here, _) in sorted(group.differs.items(), key=lambda item: _place(item[0][0])):
        label = "driver" if (area, name) == OF_DRIVER else name
        found[f"{area}: {label}" if names.count(name) > 1 else label] = here
    return found


def _place(area: str) -> int:
    return AREAS.index(area) if area in AREAS else len(AREAS)
