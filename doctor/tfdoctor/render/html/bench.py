"""The HTML page of `bench`: the summary, the chart and every timing."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tfdoctor.bench import describe_first_calls, format_duration
from tfdoctor.findings import Status
from tfdoctor.render.bench import format_link, format_size, format_title
from tfdoctor.render.bench_svg import bench_svg
from tfdoctor.render.finding import MARKS, SEVERITY_STATUS
from tfdoctor.render.html.check import finding_values
from tfdoctor.render.html.document import redact_values, render_page

if TYPE_CHECKING:
    from tfdoctor.bench import Bench
    from tfdoctor.privacy.redactor import Redactor

__all__ = ["benchmark_html"]


def benchmark_html(done: Bench, redactor: Redactor) -> bytes:
    """Return the HTML page of a benchmark. All texts are redacted."""
    worst_severity = max((item.severity for item in done.findings), default=None)
    status = SEVERITY_STATUS[worst_severity] if worst_severity is not None else Status.GOOD
    values: dict[str, Any] = {
        "target": done.target,
        "title": done.summary,
        "status": {"status": status.value, "sign": MARKS[status]},
        "tensorflow": done.tensorflow or "unknown",
        "devices": [
            {"device": item.device, "name": item.name or "", "software": item.software}
            for item in done.devices
        ],
        "notes": [
            item
            for item in (
                done.stopped,
                done.disturbed and f"Disturbed: {done.disturbed}.",
                *(f"{format_link(link)}." for link in done.links),
                describe_first_calls(done.runs),
            )
            if item
        ],
        "scaling": [reason for item in done.scaling for reason in item.why],
        "findings": [finding_values(item) for item in done.findings],
        "times": [
            {
                "what": format_title(item),
                "size": format_size(item.size),
                "median": format_duration(item.seconds.median),
                "low": format_duration(item.seconds.low),
                "high": format_duration(item.seconds.high),
                "repeats": f"{item.repeats:,}",
                "gflops": f"{item.gflops:,.3g}" if item.gflops else "",
            }
            for item in done.runs
            if item.seconds is not None
        ],
    }
    chart = ""
    if values["times"]:
        chart = base64.b64encode(bench_svg(done).encode("utf-8")).decode("ascii")
    return render_page("bench", pictures=bool(chart), picture=chart, **redact_values(values, redactor))
