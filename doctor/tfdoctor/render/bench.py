"""The output of `bench`: text with small bar charts, and JSON (docs/schemas/bench.schema.json)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tfdoctor.bench import describe_first_calls, format_duration
from tfdoctor.findings import Remedy, Severity
from tfdoctor.render.finding import SEVERITY_STATUS, format_mark, make_finding_json, print_remedy
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import Page, Text, print_hanging
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench import Bench, Interconnect, Measurement, Scaling

__all__ = [
    "UNITS",
    "format_duration",
    "format_link",
    "format_size",
    "format_title",
    "group_curves",
    "make_bench_json",
    "render_bench",
]

BAR_CHARS = "▁▂▃▄▅▆▇█"
"""The characters of the bars, the lowest first."""
UNITS = {
    "matmul": "rows of the matrices",
    "conv": "pixels of a side",
    "train": "batch",
    "copy": "bytes",
    "allreduce": "bytes",
}
"""The unit of the size of each workload."""
MAX_CURVES = 9
"""The largest number of curves on the screen without -v."""
MAX_CHANGES = 3
"""The largest number of changed measurements on the screen without -v."""


def render_bench(bench: Bench, *, verbose: bool = False, width: int = 80, colour: bool = False) -> str:
    """Return the result of a benchmark as text: the summary, the findings, and a line for each curve."""
    out = Page(width, coloured=colour)
    worst_severity = max((finding.severity for finding in bench.findings), default=None)
    status_mark = format_mark(SEVERITY_STATUS[worst_severity]) if worst_severity is not None else Text("✓ ", style="green")
    print_hanging(out, status_mark, bench.summary)
    if bench.look and bench.any_timed:
        print_remedy(out, Remedy("See why.", (bench.look,)), first=True)
    if bench.stopped and all(finding.explanation != bench.stopped for finding in bench.findings):
        print_hanging(out, Text("  "), bench.stopped)
    if bench.disturbed and not bench.disturbance.much:
        print_hanging(out, Text("  "), f"A little disturbed: {clean_line(bench.disturbed)}.")
    if bench.unsteady is not None and bench.is_unsteady:
        print_hanging(
            out,
            Text("  "),
            f"This machine's own speed went up and down by {100 * bench.unsteady:.0f} % meanwhile, whatever "
            "else ran here: a virtual machine's neighbours, heat and clocks do that.",
        )
    if bench.comparison is not None:
        _print_comparison(out, bench, verbose=verbose)
    time_count = sum(measurement.repeats for measurement in bench.runs if measurement.seconds)
    for finding in bench.findings:
        out.print()
        style = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(finding.severity, "")
        if f"{finding.title}." != bench.summary:
            print_hanging(out, Text("  "), f"{finding.title}.", style=style)
        print_hanging(out, Text("  Why   "), clean_line(finding.explanation, limit=1000))
        for number, remedy in enumerate(finding.remedies if verbose or not time_count else ()):
            print_remedy(out, remedy, first=number == 0)
    _print_table(out, bench, verbose=verbose)
    if verbose:
        for scaling in bench.scaling:
            out.print()
            print_hanging(out, Text("  "), _format_scaling(scaling))
            for reason in scaling.why:
                print_hanging(out, Text("    "), reason)
        for link in bench.links:
            print_hanging(out, Text("  "), f"{format_link(link)}.")
    if not time_count:
        return out.text
    out.print()
    first_calls = describe_first_calls(bench.runs)
    if first_calls:
        print_hanging(out, Text(""), first_calls)
    print_hanging(
        out,
        Text(""),
        f"TensorFlow {clean_line(bench.tensorflow or 'unknown')}, {time_count:,} times measured; medians, with intervals "
        "of 95 % in --json and -o.",
    )
    return out.text


def _print_comparison(out: Page, bench: Bench, *, verbose: bool) -> None:
    """Print the verdict of the comparison with an earlier benchmark, if there is one, and the largest changes."""
    comparison = bench.comparison
    if comparison is None:
        return
    ratio_text = f" ({comparison.ratio:.2f} times the time)" if comparison.ratio is not None else ""
    verdict = "not comparable" if comparison.verdict == "incomparable" else comparison.verdict
    is_other_release = comparison.tensorflow and comparison.tensorflow != bench.tensorflow
    release = f" (TensorFlow {clean_line(comparison.tensorflow or '')})" if is_other_release else ""
    print_hanging(
        out,
        Text("  "),
        f"Against {clean_line(comparison.name)}{release}: {verdict}{ratio_text}; {comparison.why}.",
    )
    changed = sorted(
        (change for change in comparison.changes if change.beyond),
        key=lambda change: -abs(math.log(change.ratio)),
    )
    for change in changed[: None if verbose else MAX_CHANGES]:
        print_hanging(
            out,
            Text("    "),
            f"{format_title(change.now)}, size {change.now.size}: {change.ratio:.2f} times the time",
        )


def format_title(measurement: Measurement) -> str:
    """Return the title of the curve that a measurement belongs to, such as "matmul on GPU:0".

    If the GPU is simulated in software, the title begins with "software: ". The data type float32 is left out.
    """
    type_name = "" if measurement.dtype == "float32" else measurement.dtype
    compiler = "XLA" if measurement.xla else ""
    work = " ".join(part for part in (measurement.workload, measurement.model, measurement.part, type_name, compiler) if part)
    prefix = "software: " if measurement.software else ""  # at the start, where a narrow screen does not cut it off
    if measurement.workload == "copy":
        route = (
            f"within {measurement.devices[0]}"
            if len(set(measurement.devices)) == 1
            else f"{measurement.devices[0]} to {measurement.devices[-1]}"
        )
        return f"{prefix}copy {route}"
    # Put the strategy before the devices, because a narrow screen cuts off the end.
    strategy = "" if measurement.strategy == "one" else f", {measurement.strategy},"
    return f"{prefix}{work}{strategy} on {join_words(measurement.devices)}"


def group_curves(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Return the measurements of each curve by its title, sorted by size.

    Work that was not timed and the parts of training steps are left out.
    """
    curve_by_title: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        if measurement.seconds is not None and measurement.part is None:
            curve_by_title.setdefault(format_title(measurement), []).append(measurement)
    return {title: sorted(curve, key=lambda measurement: measurement.size) for title, curve in curve_by_title.items()}


def format_size(value: int) -> str:
    """Return a size as text. From 16 Ki on, multiples of 1024 get a unit, such as "64 Mi"."""
    for unit, factor in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value >= 1 << 14 and value % factor == 0:
            return f"{value // factor} {unit}"
    return str(value)


def _print_table(out: Page, bench: Bench, *, verbose: bool) -> None:
    """Print a line for each curve: its times as bars, and the result at its largest size.

    All bars have the same logarithmic scale.
    """
    curve_by_title = group_curves(bench.runs)
    if not curve_by_title:
        return
    times = [measurement.seconds.median for curve in curve_by_title.values() for measurement in curve if measurement.seconds]
    log_min, log_max = math.log(min(times)), math.log(max(times))
    shown_curves = list(curve_by_title.items())[: None if verbose else MAX_CURVES]
    rows = [  # (title, curve, result at its largest size)
        (title, curve, f"{format_size(curve[-1].size):>6}: {_format_largest(curve[-1], bench)}")
        for title, curve in shown_curves
    ]
    # Leave space for the indent, the bars and the spaces around them.
    max_name_width = out.width - 12 - max(len(result) for *_, result in rows)
    name_width = min(max(len(title) for title, _ in shown_curves), max(max_name_width, 16))
    out.print()
    for title, curve, result in rows:
        bars = "".join(
            BAR_CHARS[round(7 * (math.log(measurement.seconds.median) - log_min) / max(log_max - log_min, 1e-9))]
            for measurement in curve
            if measurement.seconds
        )
        label = title if len(title) <= name_width else f"{title[: name_width - 1]}…"
        out.print(Text(f"  {label:{name_width}} {bars:8}{result}"), wrap=False)
        if verbose:
            for measurement in curve:
                out.print(Text(f"      {_format_measurement(measurement)}"), wrap=False)
    if len(curve_by_title) > len(shown_curves):
        out.print(Text(f"  and {len(curve_by_title) - len(shown_curves)} more: -v"))
    units = dict.fromkeys(UNITS[curve[-1].workload] for _, curve, _ in rows)
    print_hanging(out, Text("  "), f"Sizes: {', '.join(units)}.")
    skipped_count = sum(measurement.seconds is None for measurement in bench.runs)
    if skipped_count:
        first_reason = next(measurement.left_out for measurement in bench.runs if measurement.seconds is None)
        print_hanging(
            out,
            Text("  "),
            f"{skipped_count} pieces of work were left out: {first_reason or 'it ended before them'}.",
        )


def _format_measurement(measurement: Measurement) -> str:
    seconds = measurement.seconds
    if seconds is None:
        return f"{measurement.size}: {measurement.left_out}"
    first_call = f", the first call {format_duration(measurement.first)}" if measurement.first else ""
    return (
        f"{measurement.size}: {format_duration(seconds.median)} "
        f"({format_duration(seconds.low)} to {format_duration(seconds.high)}), {measurement.repeats} times{first_call}"
    )


def _format_largest(measurement: Measurement, bench: Bench) -> str:
    """Return the result at the largest size of a curve, such as "12.1 ms, 178 GFLOP/s, 60 % of peak"."""
    parts = [format_duration(measurement.seconds.median)] if measurement.seconds else []
    if measurement.gflops:
        peak_gflops = next(
            (
                device.peaks.get(measurement.dtype)
                for device in bench.devices
                if device.device == measurement.devices[0]
            ),
            None,
        )
        uses_tera = measurement.gflops >= 1000
        parts.append(f"{measurement.gflops / 1000:.3g} TFLOP/s" if uses_tera else f"{measurement.gflops:.3g} GFLOP/s")
        if peak_gflops:
            parts.append(f"{100 * measurement.gflops / peak_gflops:.0f} % of peak")
    elif measurement.gbps:
        parts.append(f"{measurement.gbps:.3g} GB/s")
        link = next((link for link in bench.links if {link.one, link.other} == set(measurement.devices)), None)
        if link is not None and link.gbps and measurement.workload == "copy":
            parts.append(f"{100 * measurement.gbps / link.gbps:.0f} % of {link.how.replace('PCI Express', 'PCIe')}")
    return ", ".join(parts)


def format_link(link: Interconnect) -> str:
    """Describe an interconnect, with its highest possible speed and its measured speed if they are known.

    For example, "CPU:0 to GPU:0: PCI Express 4.0 x16, at most 31.5 GB/s; 12.1 GB/s were measured (38 %)".
    """
    text = f"{link.one} to {link.other}: {clean_line(link.how, limit=40)}"
    if link.gbps is not None:
        text += f", at most {link.gbps:.1f} GB/s"
    if link.peer is False:
        text += ", through the host's memory (no peer access)"
    if link.measured is not None:
        text += f"; {link.measured:.1f} GB/s were measured"
        if link.gbps is not None:
            text += f" ({100 * link.measured / link.gbps:.0f} %)"
    return text


def _format_scaling(scaling: Scaling) -> str:
    """Return the speedup of several devices and, if they are known, the times of the parts of a step."""
    parts = ""
    if scaling.compute is not None and scaling.allreduce is not None:
        parts = f"; gradients {format_duration(scaling.compute)}"
        parts += f", averaging them {format_duration(scaling.allreduce)}"
        parts += f", waiting {format_duration(scaling.idle)}" if scaling.idle is not None else ""
    if scaling.input is not None and scaling.fed is not None:
        fed_speedup, _, _ = scaling.fed
        parts += f"; a batch from the host's memory {format_duration(scaling.input)} more, then {fed_speedup:.2f} times"
    return (
        f"{scaling.model}, batch {scaling.size}, {scaling.strategy} on {join_words(scaling.names)}: "
        f"{scaling.speedup:.2f} times the speed of one ({scaling.low:.2f} to {scaling.high:.2f}){parts}"
    )


def make_bench_json(bench: Bench) -> dict[str, Any]:
    """Return the document that `bench --json` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "target": bench.target,
        "tensorflow": bench.tensorflow,
        "summary": bench.summary,
        "stopped": bench.stopped or None,
        "disturbed": bench.disturbed or None,
        "disturbance": {
            "pieces": bench.disturbance.pieces,
            "of": bench.disturbance.of,
            "much": bench.disturbance.much,
        },
        "unsteady": bench.unsteady,
        "yardstick": None
        if bench.yardstick is None
        else {"what": bench.yardstick.what, "seconds": bench.yardstick.seconds},
        "first_calls": describe_first_calls(bench.runs) or None,
        "devices": [
            {
                "device": item.device,
                "name": item.name,
                "peak_gflops": item.peak_gflops,
                "peaks": dict(item.peaks),
                "capability": item.capability,
                "software": item.software,
            }
            for item in bench.devices
        ],
        "runs": [_make_measurement_json(item) for item in bench.runs],
        "crossover": [
            {
                "workload": item.workload,
                "model": item.model,
                "dtype": item.dtype,
                "against": item.against,
                "device": item.device,
                "size": item.size,
                "below": item.below,
                "fold": item.fold,
            }
            for item in bench.crossover
        ],
        "scaling": [
            {
                "strategy": item.strategy,
                "model": item.model,
                "size": item.size,
                "devices": len(item.names),
                "names": list(item.names),
                "speedup": item.speedup,
                "low": item.low,
                "high": item.high,
                "parts": {
                    "compute": item.compute,
                    "allreduce": item.allreduce,
                    "input": item.input,
                    "idle": item.idle,
                },
                "fed": None
                if item.fed is None
                else dict(zip(("speedup", "low", "high"), item.fed, strict=True)),
                "way": item.way,
                "why": list(item.why),
                "software": item.software,
            }
            for item in bench.scaling
        ],
        "watched": [
            {
                "device": item.device,
                "slowdowns": list(item.slowdowns),
                "temperature": item.temperature,
                "power_limit": item.power_limit,
                "power_default": item.power_default,
                "processes": [clean_line(name) for name in item.processes],
                "lanes": item.lanes,
                "lanes_most": item.lanes_most,
                "generation": item.generation,
                "generation_most": item.generation_most,
            }
            for item in bench.watched
        ],
        "links": [
            {
                "from": item.one,
                "to": item.other,
                "kind": item.kind,
                "how": item.how,
                "gbps": item.gbps,
                "measured_gbps": item.measured,
                "peer": item.peer,
            }
            for item in bench.links
        ],
        "comparison": _make_comparison_json(bench),
        "findings": [make_finding_json(finding) for finding in bench.findings],
        "plots": list(bench.plots),
    }


def _make_measurement_json(measurement: Measurement) -> dict[str, Any]:
    return {
        "workload": measurement.workload,
        "model": measurement.model,
        "part": measurement.part,
        "dtype": measurement.dtype,
        "size": measurement.size,
        "devices": list(measurement.devices),
        "strategy": measurement.strategy,
        "seconds": None
        if measurement.seconds is None
        else {"median": measurement.seconds.median, "low": measurement.seconds.low, "high": measurement.seconds.high},
        "repeats": measurement.repeats,
        "rounds": list(measurement.rounds),
        "first": measurement.first,
        "gflops": measurement.gflops,
        "gbps": measurement.gbps,
        "flop": measurement.flop,
        "bytes": measurement.bytes,
        "others": measurement.others,
        "left_out": measurement.left_out or None,
        "software": measurement.software,
        "xla": measurement.xla,
        "way": measurement.way,
        "disturbed": measurement.disturbed,
        "compile": {"seconds": measurement.compiling, "what": list(measurement.compiled)} if measurement.compiled else None,
    }


def _make_comparison_json(bench: Bench) -> dict[str, Any] | None:
    comparison = bench.comparison
    if comparison is None:
        return None
    return {
        "file": comparison.name,
        "tensorflow": comparison.tensorflow,
        "verdict": comparison.verdict,
        "ratio": comparison.ratio,
        "noise": comparison.noise,
        "why": comparison.why,
        "changes": [
            {
                "workload": change.now.workload,
                "model": change.now.model,
                "part": change.now.part,
                "dtype": change.now.dtype,
                "size": change.now.size,
                "devices": list(change.now.devices),
                "strategy": change.now.strategy,
                "ratio": change.ratio,
                "noise": change.noise,
                "beyond_noise": change.beyond,
            }
            for change in comparison.changes
        ],
    }
