"""What `cluster` says: a screen and JSON (docs/schemas/cluster.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.causes.codes import CLUSTER
from tfdoctor.findings import Severity
from tfdoctor.render.finding import SEVERITY_STATUS, mark
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import Page, Text, print_hanging
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.cluster import ClusterAnswer, Fault, Member

__all__ = ["cluster_json", "render_cluster"]

FAULTS, TASKS = 3, 6
"""Shown without -v."""
STATES = {
    "refused": "refused",
    "timeout": "timed out",
    "no-such-name": "no such name",
    "not-tensorflow": "not TensorFlow",
}


def render_cluster(
    answers: Sequence[ClusterAnswer], *, verbose: bool = False, width: int = 80, colour: bool = False
) -> str:
    """Return the answer in a sentence, what is wrong and how to fix it, and the tasks."""
    out = Page(width, coloured=colour)
    for number, answer in enumerate(answers):
        if number:
            out.print()
        _print_answer(out, answer, verbose=verbose)
    return out.text


def _print_answer(out: Page, answer: ClusterAnswer, *, verbose: bool) -> None:
    worst = max((fault.severity for fault in answer.faults), default=None)
    sign = mark(SEVERITY_STATUS[worst]) if worst is not None else Text("✓ ", style="green")
    if answer.written.jobs is None and not answer.faults:
        sign = mark(SEVERITY_STATUS[Severity.INFO])
    print_hanging(out, sign, answer.summary)
    faults = sorted(answer.faults, key=lambda fault: -fault.severity)
    shown = faults if verbose else faults[:FAULTS]
    for fault in shown:
        out.print()
        _fault(out, fault)
    if len(faults) > len(shown):
        out.print(Text(f"  and {len(faults) - len(shown)} more findings: -v"))
    members = answer.members if verbose else answer.members[:TASKS]
    if members:
        out.print()
    wide = max((len(_task(one)) for one in members), default=0)
    for one in members:
        print_hanging(out, Text(f"  {_task(one):{wide}}  "), _state(one, connected=answer.connected))
    if len(answer.members) > len(members):
        out.print(Text(f"  and {len(answer.members) - len(members)} more tasks: -v"))
    for note in answer.notes:
        out.print()
        print_hanging(out, Text("  "), clean_line(note, limit=600))


def _fault(out: Page, fault: Fault) -> None:
    style = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(fault.severity, "")
    print_hanging(out, Text("  "), clean_line(fault.message, limit=800), style=style)
    if fault.fix:
        print_hanging(out, Text("  Do    "), clean_line(fault.fix, limit=600))


def _task(member: Member) -> str:
    name = clean_line(str(member.task), limit=40)
    return f"{name} (this)" if member.self else name


def _state(member: Member, *, connected: bool) -> str:
    address = clean_line(member.address, limit=70)
    if member.reachable:
        return f"{address}  answers"
    if member.reachable is False and member.self and member.why == "refused":
        return f"{address}  not started yet: nothing listens there"
    if member.reachable is False:
        return f"{address}  {STATES.get(member.why or '', 'not reached')}"
    if connected:
        return f"{address}  not known{f': {clean_line(member.detail, limit=120)}' if member.detail else ''}"
    if member.listening is not None:
        return f"{address}  {'something listens here' if member.listening else 'nothing listens here yet'}"
    return address


def cluster_json(answers: Sequence[ClusterAnswer]) -> dict[str, Any]:
    """Return the contract's document, of the first cluster.

    Further ones of a Python file are its `others`.
    """
    first, *others = answers
    return {
        "schema_version": SCHEMA_VERSION,
        **_answer(first),
        "others": [_answer(one) for one in others],
    }


def _answer(answer: ClusterAnswer) -> dict[str, Any]:
    written = answer.written
    return {
        "source": answer.source,
        "line": written.line,
        "summary": answer.summary,
        "cluster": written.shown,
        "task": {"type": answer.task.type, "index": answer.task.index} if answer.task else None,
        "members": [
            {
                "task": str(one.task),
                "address": one.address,
                "self": one.self,
                "reachable": one.reachable,
                "why": one.why,
                "listening": one.listening,
            }
            for one in answer.members
        ],
        "findings": [
            {
                "code": CLUSTER[fault.name],
                "name": fault.name,
                "severity": fault.severity.word,
                "task": fault.task,
                "message": fault.message,
                "fix": fault.fix,
            }
            for fault in answer.faults
        ],
        "notes": list(answer.notes),
    }
