"""The output of `bench`: text with small bar charts, and JSON (docs/schemas/bench.schema.json)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Remedy, Severity
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.extensions.bench.models import format_duration
from tfdoctor.extensions.bench.warmup import describe_first_calls
from tfdoctor.render.finding import STATUS_BY_SEVERITY, format_mark, make_finding_json, print_remedy
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import Page, Text, print_hanging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.bench.models import Bench, Interconnect, Measurement, Scaling

__all__ = [
    "SIZE_UNITS",
    "format_curve_title",
    "format_duration",
    "format_interconnect",
    "format_size",
    "group_curves",
    "make_bench_json",
    "render_bench",
]

BAR_CHARS = "▁▂▃▄▅▆▇█"
"""The characters of the bars, the lowest first."""
SIZE_UNITS = {
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
    status_mark = (
        format_mark(STATUS_BY_SEVERITY[worst_severity])
        if worst_severity is not None
        else Text("✓ ", style="green")
    )
    print_hanging(out, status_mark, bench.summary)
    if bench.check_command and bench.has_times:
        print_remedy(out, Remedy("See why.", (bench.check_command,)), first=True)
    if bench.stop_reason and all(finding.explanation != bench.stop_reason for finding in bench.findings):
        print_hanging(out, Text("  "), bench.stop_reason)
    if bench.disturbance_text and not bench.disturbance.is_serious:
        print_hanging(out, Text("  "), f"A little disturbed: {clean_line(bench.disturbance_text)}.")
    if bench.speed_variation is not None and bench.is_unsteady:
        print_hanging(
            out,
            Text("  "),
            f"This machine's own speed went up and down by {100 * bench.speed_variation:.0f} % meanwhile, whatever "
            "else ran here: a virtual machine's neighbours, heat and clocks do that.",
        )
    if bench.comparison is not None:
        _print_comparison(out, bench, verbose=verbose)
    time_count = sum(measurement.repeats for measurement in bench.measurements if measurement.seconds)
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
        for scaling in bench.scalings:
            out.print()
            print_hanging(out, Text("  "), _format_scaling(scaling))
            for reason in scaling.reasons:
                print_hanging(out, Text("    "), reason)
        for link in bench.links:
            print_hanging(out, Text("  "), f"{format_interconnect(link)}.")
    if not time_count:
        return out.text
    out.print()
    first_calls = describe_first_calls(bench.measurements)
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
        f"Against {clean_line(comparison.file_name)}{release}: {verdict}{ratio_text}; {comparison.reason}.",
    )
    changed = sorted(
        (change for change in comparison.changes if change.exceeds_noise),
        key=lambda change: -abs(math.log(change.ratio)),
    )
    for change in changed[: None if verbose else MAX_CHANGES]:
        print_hanging(
            out,
            Text("    "),
            f"{format_curve_title(change.current)}, size {change.current.size}: {change.ratio:.2f} times the time",
        )


def format_curve_title(measurement: Measurement) -> str:
    """Return the title of the curve that a measurement belongs to, such as "matmul on GPU:0".

    If the GPU is simulated in software, the title begins with "software: ". The data type float32 is left out.
    """
    type_name = "" if measurement.dtype == "float32" else measurement.dtype
    compiler = "XLA" if measurement.uses_xla else ""
    work = " ".join(
        part
        for part in (measurement.workload, measurement.model, measurement.part, type_name, compiler)
        if part
    )
    prefix = (
        "software: " if measurement.is_software else ""
    )  # at the start, where a narrow screen does not cut it off
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
            curve_by_title.setdefault(format_curve_title(measurement), []).append(measurement)
    return {
        title: sorted(curve, key=lambda measurement: measurement.size)
        for title, curve in curve_by_title.items()
    }


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
    curve_by_title = group_curves(bench.measurements)
    if not curve_by_title:
        return
    times = [
        measurement.seconds.median
        for curve in curve_by_title.values()
        for measurement in curve
        if measurement.seconds
    ]
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
            BAR_CHARS[
                round(7 * (math.log(measurement.seconds.median) - log_min) / max(log_max - log_min, 1e-9))
            ]
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
    units = dict.fromkeys(SIZE_UNITS[curve[-1].workload] for _, curve, _ in rows)
    print_hanging(out, Text("  "), f"Sizes: {', '.join(units)}.")
    skipped_count = sum(measurement.seconds is None for measurement in bench.measurements)
    if skipped_count:
        first_reason = next(
            measurement.omission_reason for measurement in bench.measurements if measurement.seconds is None
        )
        print_hanging(
            out,
            Text("  "),
            f"{skipped_count} pieces of work were left out: {first_reason or 'it ended before them'}.",
        )


def _format_measurement(measurement: Measurement) -> str:
    seconds = measurement.seconds
    if seconds is None:
        return f"{measurement.size}: {measurement.omission_reason}"
    first_call = (
        f", the first call {format_duration(measurement.first_call_seconds)}"
        if measurement.first_call_seconds
        else ""
    )
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
                device.peak_gflops_by_dtype.get(measurement.dtype)
                for device in bench.devices
                if device.device == measurement.devices[0]
            ),
            None,
        )
        uses_tera = measurement.gflops >= 1000
        parts.append(
            f"{measurement.gflops / 1000:.3g} TFLOP/s" if uses_tera else f"{measurement.gflops:.3g} GFLOP/s"
        )
        if peak_gflops:
            parts.append(f"{100 * measurement.gflops / peak_gflops:.0f} % of peak")
    elif measurement.gbps:
        parts.append(f"{measurement.gbps:.3g} GB/s")
        link = next(
            (
                link
                for link in bench.links
                if {link.first_device, link.second_device} == set(measurement.devices)
            ),
            None,
        )
        if link is not None and link.max_gbps and measurement.workload == "copy":
            parts.append(
                f"{100 * measurement.gbps / link.max_gbps:.0f} % of {link.description.replace('PCI Express', 'PCIe')}"
            )
    return ", ".join(parts)


def format_interconnect(link: Interconnect) -> str:
    """Describe an interconnect, with its highest possible speed and its measured speed if they are known.

    For example, "CPU:0 to GPU:0: PCI Express 4.0 x16, at most 31.5 GB/s; 12.1 GB/s were measured (38 %)".
    """
    text = f"{link.first_device} to {link.second_device}: {clean_line(link.description, limit=40)}"
    if link.max_gbps is not None:
        text += f", at most {link.max_gbps:.1f} GB/s"
    if link.has_peer_access is False:
        text += ", through the host's memory (no peer access)"
    if link.measured_gbps is not None:
        text += f"; {link.measured_gbps:.1f} GB/s were measured"
        if link.max_gbps is not None:
            text += f" ({100 * link.measured_gbps / link.max_gbps:.0f} %)"
    return text


def _format_scaling(scaling: Scaling) -> str:
    """Return the speedup of several devices and, if they are known, the times of the parts of a step."""
    parts = ""
    if scaling.compute_seconds is not None and scaling.allreduce_seconds is not None:
        parts = f"; gradients {format_duration(scaling.compute_seconds)}"
        parts += f", averaging them {format_duration(scaling.allreduce_seconds)}"
        parts += (
            f", waiting {format_duration(scaling.idle_seconds)}" if scaling.idle_seconds is not None else ""
        )
    if scaling.input_seconds is not None and scaling.fed_speedup is not None:
        fed_speedup, _, _ = scaling.fed_speedup
        parts += f"; a batch from the host's memory {format_duration(scaling.input_seconds)} more, then {fed_speedup:.2f} times"
    return (
        f"{scaling.model}, batch {scaling.batch_size}, {scaling.strategy} on {join_words(scaling.devices)}: "
        f"{scaling.speedup:.2f} times the speed of one ({scaling.speedup_low:.2f} to {scaling.speedup_high:.2f}){parts}"
    )


def make_bench_json(bench: Bench) -> dict[str, Any]:
    """Return the document that `bench --json` prints."""
    return {
        **make_document_head("bench"),
        "target": bench.target,
        "tensorflow": bench.tensorflow,
        "summary": bench.summary,
        "stopped": bench.stop_reason or None,
        "disturbed": bench.disturbance_text or None,
        "disturbance": {
            "pieces": bench.disturbance.disturbed_count,
            "of": bench.disturbance.assessed_count,
            "much": bench.disturbance.is_serious,
        },
        "unsteady": bench.speed_variation,
        "yardstick": None
        if bench.processor_times is None
        else {"what": bench.processor_times.program, "seconds": bench.processor_times.median_seconds},
        "first_calls": describe_first_calls(bench.measurements) or None,
        "devices": [
            {
                "device": item.device,
                "name": item.name,
                "peak_gflops": item.peak_gflops,
                "peaks": dict(item.peak_gflops_by_dtype),
                "capability": item.compute_capability,
                "software": item.is_software,
            }
            for item in bench.devices
        ],
        "runs": [_make_measurement_json(item) for item in bench.measurements],
        "crossover": [
            {
                "workload": item.workload,
                "model": item.model,
                "dtype": item.dtype,
                "against": item.reference_device,
                "device": item.device,
                "size": item.min_faster_size,
                "below": item.max_slower_size,
                "fold": item.speedup,
            }
            for item in bench.crossovers
        ],
        "scaling": [
            {
                "strategy": item.strategy,
                "model": item.model,
                "size": item.batch_size,
                "devices": len(item.devices),
                "names": list(item.devices),
                "speedup": item.speedup,
                "low": item.speedup_low,
                "high": item.speedup_high,
                "parts": {
                    "compute": item.compute_seconds,
                    "allreduce": item.allreduce_seconds,
                    "input": item.input_seconds,
                    "idle": item.idle_seconds,
                },
                "fed": None
                if item.fed_speedup is None
                else dict(zip(("speedup", "low", "high"), item.fed_speedup, strict=True)),
                "way": item.averaging_method,
                "why": list(item.reasons),
                "software": item.is_software,
            }
            for item in bench.scalings
        ],
        "watched": [
            {
                "device": item.device,
                "slowdowns": list(item.slowdowns),
                "temperature": item.max_temperature,
                "power_limit": item.power_limit,
                "power_default": item.default_power_limit,
                "processes": [clean_line(name) for name in item.other_processes],
                "lanes": item.lanes,
                "lanes_most": item.max_lanes,
                "generation": item.generation,
                "generation_most": item.max_generation,
            }
            for item in bench.gpu_observations
        ],
        "links": [
            {
                "from": item.first_device,
                "to": item.second_device,
                "kind": item.kind,
                "how": item.description,
                "gbps": item.max_gbps,
                "measured_gbps": item.measured_gbps,
                "peer": item.has_peer_access,
            }
            for item in bench.links
        ],
        "comparison": _make_comparison_json(bench),
        "findings": [make_finding_json(finding) for finding in bench.findings],
        "plots": list(bench.plot_paths),
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
        else {
            "median": measurement.seconds.median,
            "low": measurement.seconds.low,
            "high": measurement.seconds.high,
        },
        "repeats": measurement.repeats,
        "rounds": list(measurement.round_medians),
        "first": measurement.first_call_seconds,
        "gflops": measurement.gflops,
        "gbps": measurement.gbps,
        "flop": measurement.flop_count,
        "bytes": measurement.transferred_bytes,
        "others": measurement.other_programs_share,
        "left_out": measurement.omission_reason or None,
        "software": measurement.is_software,
        "xla": measurement.uses_xla,
        "way": measurement.averaging_method,
        "disturbed": measurement.is_disturbed,
        "compile": {"seconds": measurement.first_call_overhead, "what": list(measurement.first_call_steps)}
        if measurement.first_call_steps
        else None,
    }


def _make_comparison_json(bench: Bench) -> dict[str, Any] | None:
    comparison = bench.comparison
    if comparison is None:
        return None
    return {
        "file": comparison.file_name,
        "tensorflow": comparison.tensorflow,
        "verdict": comparison.verdict,
        "ratio": comparison.ratio,
        "noise": comparison.noise,
        "why": comparison.reason,
        "changes": [
            {
                "workload": change.current.workload,
                "model": change.current.model,
                "part": change.current.part,
                "dtype": change.current.dtype,
                "size": change.current.size,
                "devices": list(change.current.devices),
                "strategy": change.current.strategy,
                "ratio": change.ratio,
                "noise": change.noise,
                "beyond_noise": change.exceeds_noise,
            }
            for change in comparison.changes
        ],
    }
