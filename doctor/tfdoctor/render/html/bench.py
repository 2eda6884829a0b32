"""What `bench` measured, as a page: the answer, its picture, and every time."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tfdoctor.bench import describe_first_calls, duration
from tfdoctor.findings import Status
from tfdoctor.render.bench import format_link, number_of, title_of
from tfdoctor.render.bench_svg import bench_svg
from tfdoctor.render.finding import MARKS, SEVERITY_STATUS
from tfdoctor.render.html.check import finding_values
from tfdoctor.render.html.document import document, redact_values

if TYPE_CHECKING:
    from tfdoctor.bench import Bench
    from tfdoctor.privacy.redactor import Redactor

__all__ = ["benchmark_html"]


def benchmark_html(done: Bench, redactor: Redactor) -> bytes:
    """Return the page, without anything that tells who and where somebody is."""
    worst = max((one.severity for one in done.findings), default=None)
    status = SEVERITY_STATUS[worst] if worst is not None else Status.GOOD
    values: dict[str, Any] = {
        "target": done.target,
        "title": done.summary,
        "status": {"status": status.value, "sign": MARKS[status]},
        "tensorflow": done.tensorflow or "unknown",
        "devices": [
            {"device": one.device, "name": one.name or "", "software": one.software} for one in done.devices
        ],
        "notes": [
            one
            for one in (
                done.stopped,
                done.disturbed and f"Disturbed: {done.disturbed}.",
                *(f"{format_link(link)}." for link in done.links),
                describe_first_calls(done.runs),
            )
            if one
        ],
        "scaling": [why for one in done.scaling for why in one.why],
        "findings": [finding_values(one) for one in done.findings],
        "times": [
            {
                "what": title_of(one),
                "size": number_of(one.size),
                "median": duration(one.seconds.median),
                "low": duration(one.seconds.low),
                "high": duration(one.seconds.high),
                "repeats": f"{one.repeats:,}",
                "gflops": f"{one.gflops:,.3g}" if one.gflops else "",
            }
            for one in done.runs
            if one.seconds is not None
        ],
    }
    picture = ""
    if values["times"]:
        picture = base64.b64encode(bench_svg(done).encode("utf-8")).decode("ascii")
    return document("bench", pictures=bool(picture), picture=picture, **redact_values(values, redactor))
