"""The output of `cluster`: text, and JSON (docs/schemas/cluster.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.causes.codes import CLUSTER_CODES
from tfdoctor.core.findings import Severity
from tfdoctor.core.text import clean_line
from tfdoctor.render.finding import STATUS_BY_SEVERITY, format_mark
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import Page, Text, print_hanging
from tfdoctor.render.screen import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.cluster.models import ClusterEvaluation, Fault, Member

__all__ = ["make_cluster_json", "render_cluster"]

MAX_FAULTS, MAX_TASKS = 3, 6
"""The largest numbers of faults and of tasks that are listed without -v."""
UNREACHABLE_TEXTS = {
    "refused": "refused",
    "timeout": "timed out",
    "no-such-name": "no such name",
    "not-tensorflow": "not TensorFlow",
}
"""The text for each reason why a task is not reachable."""


def render_cluster(
    evaluations: Sequence[ClusterEvaluation], *, verbose: bool = False, width: int = 80, colour: bool = False
) -> str:
    """Return the summary of each cluster, its faults with their fixes, and its tasks as text."""
    out = Page(width, coloured=colour)
    for index, evaluation in enumerate(evaluations):
        if index:
            out.print()
        _print_evaluation(out, evaluation, verbose=verbose)
    return out.text


def _print_evaluation(out: Page, evaluation: ClusterEvaluation, *, verbose: bool) -> None:
    worst_severity = max((fault.severity for fault in evaluation.faults), default=None)
    status_mark = (
        format_mark(STATUS_BY_SEVERITY[worst_severity])
        if worst_severity is not None
        else Text("✓ ", style="green")
    )
    if evaluation.specification.jobs is None and not evaluation.faults:
        status_mark = format_mark(STATUS_BY_SEVERITY[Severity.INFO])
    print_hanging(out, status_mark, evaluation.summary)
    faults = sorted(evaluation.faults, key=lambda fault: -fault.severity)
    shown_faults = faults if verbose else faults[:MAX_FAULTS]
    for fault in shown_faults:
        out.print()
        _print_fault(out, fault)
    if len(faults) > len(shown_faults):
        out.print(Text(f"  and {format_count(len(faults) - len(shown_faults), 'more finding')}: -v"))
    members = evaluation.members if verbose else evaluation.members[:MAX_TASKS]
    if members:
        out.print()
    task_width = max((len(_format_task(member)) for member in members), default=0)
    for member in members:
        print_hanging(
            out,
            Text(f"  {_format_task(member):{task_width}}  "),
            _describe_state(member, has_connections=evaluation.has_connection_results),
        )
    if len(evaluation.members) > len(members):
        out.print(Text(f"  and {format_count(len(evaluation.members) - len(members), 'more task')}: -v"))
    for note in evaluation.notes:
        out.print()
        print_hanging(out, Text("  "), clean_line(note, limit=600))


def _print_fault(out: Page, fault: Fault) -> None:
    style = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(fault.severity, "")
    print_hanging(out, Text("  "), clean_line(fault.message, limit=800), style=style)
    if fault.remedy:
        print_hanging(out, Text("  Do    "), clean_line(fault.remedy, limit=600))


def _format_task(member: Member) -> str:
    name = clean_line(str(member.task), limit=40)
    return f"{name} (this)" if member.is_own_task else name


def _describe_state(member: Member, *, has_connections: bool) -> str:
    """Return the address of a member and its state.

    If the members were contacted (`has_connections`), the state is the result. Otherwise it says whether a program
    listens at the address.
    """
    address = clean_line(member.address, limit=70)
    if member.is_reachable:
        return f"{address}  answers"
    if member.is_reachable is False and member.is_own_task and member.failure_kind == "refused":
        return f"{address}  not started yet: nothing listens there"
    if member.is_reachable is False:
        return f"{address}  {UNREACHABLE_TEXTS.get(member.failure_kind or '', 'not reached')}"
    if has_connections:
        return f"{address}  not known{f': {clean_line(member.detail, limit=120)}' if member.detail else ''}"
    if member.is_listening is not None:
        return f"{address}  {'something listens here' if member.is_listening else 'nothing listens here yet'}"
    return address


def make_cluster_json(evaluations: Sequence[ClusterEvaluation]) -> dict[str, Any]:
    """Return the document that `cluster --json` prints.

    It describes the first cluster. Further clusters, which only a Python file can define, are in its list `others`.
    """
    first_evaluation, *others = evaluations
    return {
        **make_document_head("cluster"),
        **_make_evaluation_json(first_evaluation),
        "others": [_make_evaluation_json(evaluation) for evaluation in others],
    }


def _make_evaluation_json(evaluation: ClusterEvaluation) -> dict[str, Any]:
    specification = evaluation.specification
    return {
        "source": evaluation.source,
        "line": specification.line,
        "summary": evaluation.summary,
        "cluster": specification.original_cluster,
        "task": {"type": evaluation.task.type, "index": evaluation.task.index} if evaluation.task else None,
        "members": [
            {
                "task": str(member.task),
                "address": member.address,
                "self": member.is_own_task,
                "reachable": member.is_reachable,
                "why": member.failure_kind,
                "listening": member.is_listening,
            }
            for member in evaluation.members
        ],
        "findings": [
            {
                "code": CLUSTER_CODES[fault.kind],
                "name": fault.kind,
                "severity": fault.severity.word,
                "task": fault.task,
                "message": fault.message,
                "fix": fault.remedy,
            }
            for fault in evaluation.faults
        ],
        "notes": list(evaluation.notes),
    }
