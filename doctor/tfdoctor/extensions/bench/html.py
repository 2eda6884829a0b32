"""The HTML page of `bench`: the summary, the chart and every timing."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tfdoctor.extensions.bench.models import format_duration
from tfdoctor.extensions.bench.render import format_curve_title, format_interconnect, format_size
from tfdoctor.extensions.bench.svg import make_bench_svg
from tfdoctor.extensions.bench.warmup import describe_first_calls
from tfdoctor.render.finding import choose_status
from tfdoctor.render.html.check import make_finding_values, make_status_values
from tfdoctor.render.html.document import redact_values, render_page

if TYPE_CHECKING:
    from tfdoctor.core.privacy.redactor import Redactor
    from tfdoctor.extensions.bench.models import Bench

__all__ = ["make_benchmark_html"]


def make_benchmark_html(bench: Bench, redactor: Redactor) -> bytes:
    """Return the HTML page of a benchmark, with all texts redacted."""
    values: dict[str, Any] = {
        "target": bench.target,
        "title": bench.summary,
        "status": make_status_values(choose_status(bench.findings)),
        "tensorflow": bench.tensorflow or "unknown",
        "devices": [
            {"device": item.device, "name": item.name or "", "software": item.is_software}
            for item in bench.devices
        ],
        "notes": [
            item
            for item in (
                bench.stop_reason,
                bench.disturbance_text and f"Disturbed: {bench.disturbance_text}.",
                *(f"{format_interconnect(link)}." for link in bench.links),
                describe_first_calls(bench.measurements),
            )
            if item
        ],
        "scaling": [reason for item in bench.scalings for reason in item.reasons],
        "findings": [make_finding_values(item) for item in bench.findings],
        "times": [
            {
                "what": format_curve_title(item),
                "size": format_size(item.size),
                "median": format_duration(item.seconds.median),
                "low": format_duration(item.seconds.low),
                "high": format_duration(item.seconds.high),
                "repeats": f"{item.repeats:,}",
                "gflops": f"{item.gflops:,.3g}" if item.gflops else "",
            }
            for item in bench.measurements
            if item.seconds is not None
        ],
    }
    chart = ""
    if values["times"]:
        chart = base64.b64encode(make_bench_svg(bench).encode("utf-8")).decode("ascii")
    return render_page("bench", has_images=bool(chart), picture=chart, **redact_values(values, redactor))
