"""What `bench` says: a screen with its curves in characters, and JSON (docs/schemas/bench.schema.json)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tfdoctor.bench import describe_first_calls, duration
from tfdoctor.findings import Remedy, Severity
from tfdoctor.render.finding import SEVERITY_STATUS, do, finding_json, mark
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import Page, Text, print_hanging
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench import Bench, Interconnect, Scaling, Timed

__all__ = [
    "UNITS",
    "bench_json",
    "curves",
    "duration",
    "format_link",
    "number_of",
    "render_bench",
    "title_of",
]

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = ".:-=+*%#"
UNITS = {
    "matmul": "rows of the matrices",
    "conv": "pixels of a side",
    "train": "batch",
    "copy": "bytes",
    "allreduce": "bytes",
}
"""Work → what its size counts."""
ROWS = 9
"""Curves on a first screen; with -v all."""


def render_bench(bench: Bench, *, verbose: bool = False, width: int = 80, colour: bool = False) -> str:
    """Return the answer in a sentence, what is wrong, and a line for each curve."""
    out = Page(width, coloured=colour)
    worst = max((one.severity for one in bench.findings), default=None)
    sign = mark(SEVERITY_STATUS[worst]) if worst is not None else Text("✓ ", style="green")
    print_hanging(out, sign, bench.summary)
    if bench.look and bench.any_timed:
        do(out, Remedy("See why.", (bench.look,)), first=True)
    if bench.stopped and all(one.explanation != bench.stopped for one in bench.findings):
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
        _comparison(out, bench, verbose=verbose)
    timed = sum(one.repeats for one in bench.runs if one.seconds)
    for finding in bench.findings:
        out.print()
        style = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(finding.severity, "")
        if f"{finding.title}." != bench.summary:
            print_hanging(out, Text("  "), f"{finding.title}.", style=style)
        print_hanging(out, Text("  Why   "), clean_line(finding.explanation, limit=1000))
        for number, remedy in enumerate(finding.remedies if verbose or not timed else ()):
            do(out, remedy, first=number == 0)
    _table(out, bench, verbose=verbose)
    if verbose:
        for one in bench.scaling:
            out.print()
            print_hanging(out, Text("  "), _format_scaling(one))
            for why in one.why:
                print_hanging(out, Text("    "), why)
        for link in bench.links:
            print_hanging(out, Text("  "), f"{format_link(link)}.")
    if not timed:
        return out.text
    out.print()
    first = describe_first_calls(bench.runs)
    if first:
        print_hanging(out, Text(""), first)
    print_hanging(
        out,
        Text(""),
        f"TensorFlow {clean_line(bench.tensorflow or 'unknown')}, {timed:,} times measured; medians, with intervals "
        "of 95 % in --json and -o.",
    )
    return out.text


def _comparison(out: Page, bench: Bench, *, verbose: bool) -> None:
    known = bench.comparison
    if known is None:
        return
    how = f" ({known.ratio:.2f} times the time)" if known.ratio is not None else ""
    verdict = "not comparable" if known.verdict == "incomparable" else known.verdict
    other = known.tensorflow and known.tensorflow != bench.tensorflow
    release = f" (TensorFlow {clean_line(known.tensorflow or '')})" if other else ""
    print_hanging(out, Text("  "), f"Against {clean_line(known.name)}{release}: {verdict}{how}; {known.why}.")
    changed = sorted((one for one in known.changes if one.beyond), key=lambda one: -abs(math.log(one.ratio)))
    for one in changed[: None if verbose else 3]:
        print_hanging(
            out, Text("    "), f"{title_of(one.now)}, size {one.now.size}: {one.ratio:.2f} times the time"
        )


def title_of(one: Timed) -> str:
    """Return "matmul on GPU:0"; of a software GPU "software: matmul on GPU:0"; float32 is not named."""
    kind = "" if one.dtype == "float32" else one.dtype
    compiler = "XLA" if one.xla else ""
    what = " ".join(part for part in (one.workload, one.model, one.part, kind, compiler) if part)
    soft = "software: " if one.software else ""  # first, where no narrow screen cuts it off
    if one.workload == "copy":
        way = (
            f"within {one.devices[0]}"
            if len(set(one.devices)) == 1
            else f"{one.devices[0]} to {one.devices[-1]}"
        )
        return f"{soft}copy {way}"
    # Before the devices: a narrow screen cuts off the end.
    how = "" if one.strategy == "one" else f", {one.strategy},"
    return f"{soft}{what}{how} on {join_words(one.devices)}"


def curves(runs: Sequence[Timed]) -> dict[str, list[Timed]]:
    """Return title → what was timed of it, the smallest size first; the parts of steps are no curves."""
    found: dict[str, list[Timed]] = {}
    for one in runs:
        if one.seconds is not None and one.part is None:
            found.setdefault(title_of(one), []).append(one)
    return {title: sorted(pieces, key=lambda one: one.size) for title, pieces in found.items()}


def number_of(value: int) -> str:
    """Return a size: "1024", "64 Mi"."""
    for unit, factor in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value >= 1 << 14 and value % factor == 0:
            return f"{value // factor} {unit}"
    return str(value)


def _table(out: Page, bench: Bench, *, verbose: bool) -> None:
    """A line a curve: its times as bars on a log scale that all share, and what the largest size gives."""
    found = curves(bench.runs)
    if not found:
        return
    times = [one.seconds.median for pieces in found.values() for one in pieces if one.seconds]
    low, high = math.log(min(times)), math.log(max(times))
    shown = list(found.items())[: None if verbose else ROWS]
    rows = [
        (title, pieces, f"{number_of(pieces[-1].size):>6}: {_last(pieces[-1], bench)}")
        for title, pieces in shown
    ]
    room = out.width - 12 - max(len(end) for *_, end in rows)
    name = min(max(len(title) for title, _ in shown), max(room, 16))
    out.print()
    for title, pieces, end in rows:
        bars = "".join(
            BARS[round(7 * (math.log(one.seconds.median) - low) / max(high - low, 1e-9))]
            for one in pieces
            if one.seconds
        )
        label = title if len(title) <= name else f"{title[: name - 1]}…"
        out.print(Text(f"  {label:{name}} {bars:8}{end}"), wrap=False)
        if verbose:
            for one in pieces:
                out.print(Text(f"      {_piece_line(one)}"), wrap=False)
    if len(found) > len(shown):
        out.print(Text(f"  and {len(found) - len(shown)} more: -v"))
    units = dict.fromkeys(UNITS[pieces[-1].workload] for _, pieces, _ in rows)
    print_hanging(out, Text("  "), f"Sizes: {', '.join(units)}.")
    left = sum(one.seconds is None for one in bench.runs)
    if left:
        first = next(one.left_out for one in bench.runs if one.seconds is None)
        print_hanging(
            out, Text("  "), f"{left} pieces of work were left out: {first or 'it ended before them'}."
        )


def _piece_line(one: Timed) -> str:
    seconds = one.seconds
    if seconds is None:
        return f"{one.size}: {one.left_out}"
    first = f", the first call {duration(one.first)}" if one.first else ""
    return (
        f"{one.size}: {duration(seconds.median)} ({duration(seconds.low)} to {duration(seconds.high)}), "
        f"{one.repeats} times{first}"
    )


def _last(one: Timed, bench: Bench) -> str:
    """Return "12.1 ms, 178 GFLOP/s, 60 % of peak"."""
    told = [duration(one.seconds.median)] if one.seconds else []
    if one.gflops:
        peak = next((d.peaks.get(one.dtype) for d in bench.devices if d.device == one.devices[0]), None)
        tera = one.gflops >= 1000
        told.append(f"{one.gflops / 1000:.3g} TFLOP/s" if tera else f"{one.gflops:.3g} GFLOP/s")
        if peak:
            told.append(f"{100 * one.gflops / peak:.0f} % of peak")
    elif one.gbps:
        told.append(f"{one.gbps:.3g} GB/s")
        link = next((link for link in bench.links if {link.one, link.other} == set(one.devices)), None)
        if link is not None and link.gbps and one.workload == "copy":
            told.append(f"{100 * one.gbps / link.gbps:.0f} % of {link.how.replace('PCI Express', 'PCIe')}")
    return ", ".join(told)


def format_link(link: Interconnect) -> str:
    """Return "CPU:0 to GPU:0: PCI Express 4.0 x16, at most 31.5 GB/s; 12.1 GB/s were measured (38 %)"."""
    told = f"{link.one} to {link.other}: {clean_line(link.how, limit=40)}"
    if link.gbps is not None:
        told += f", at most {link.gbps:.1f} GB/s"
    if link.peer is False:
        told += ", through the host's memory (no peer access)"
    if link.measured is not None:
        told += f"; {link.measured:.1f} GB/s were measured"
        if link.gbps is not None:
            told += f" ({100 * link.measured / link.gbps:.0f} %)"
    return told


def _format_scaling(one: Scaling) -> str:
    parts = ""
    if one.compute is not None and one.allreduce is not None:
        parts = f"; gradients {duration(one.compute)}, averaging them {duration(one.allreduce)}"
        parts += f", waiting {duration(one.idle)}" if one.idle is not None else ""
    if one.input is not None and one.fed is not None:
        parts += f"; a batch from the host's memory {duration(one.input)} more, then {one.fed[0]:.2f} times"
    return (
        f"{one.model}, batch {one.size}, {one.strategy} on {join_words(one.names)}: "
        f"{one.speedup:.2f} times the speed of one ({one.low:.2f} to {one.high:.2f}){parts}"
    )


def bench_json(bench: Bench) -> dict[str, Any]:
    """Return the contract's document."""
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
                "device": one.device,
                "name": one.name,
                "peak_gflops": one.peak_gflops,
                "peaks": dict(one.peaks),
                "capability": one.capability,
                "software": one.software,
            }
            for one in bench.devices
        ],
        "runs": [_run_json(one) for one in bench.runs],
        "crossover": [
            {
                "workload": one.workload,
                "model": one.model,
                "dtype": one.dtype,
                "against": one.against,
                "device": one.device,
                "size": one.size,
                "below": one.below,
                "fold": one.fold,
            }
            for one in bench.crossover
        ],
        "scaling": [
            {
                "strategy": one.strategy,
                "model": one.model,
                "size": one.size,
                "devices": len(one.names),
                "names": list(one.names),
                "speedup": one.speedup,
                "low": one.low,
                "high": one.high,
                "parts": {
                    "compute": one.compute,
                    "allreduce": one.allreduce,
                    "input": one.input,
                    "idle": one.idle,
                },
                "fed": None
                if one.fed is None
                else dict(zip(("speedup", "low", "high"), one.fed, strict=True)),
                "way": one.way,
                "why": list(one.why),
                "software": one.software,
            }
            for one in bench.scaling
        ],
        "watched": [
            {
                "device": one.device,
                "slowdowns": list(one.slowdowns),
                "temperature": one.temperature,
                "power_limit": one.power_limit,
                "power_default": one.power_default,
                "processes": [clean_line(name) for name in one.processes],
                "lanes": one.lanes,
                "lanes_most": one.lanes_most,
                "generation": one.generation,
                "generation_most": one.generation_most,
            }
            for one in bench.watched
        ],
        "links": [
            {
                "from": one.one,
                "to": one.other,
                "kind": one.kind,
                "how": one.how,
                "gbps": one.gbps,
                "measured_gbps": one.measured,
                "peer": one.peer,
            }
            for one in bench.links
        ],
        "comparison": _comparison_json(bench),
        "findings": [finding_json(finding) for finding in bench.findings],
        "plots": list(bench.plots),
    }


def _run_json(one: Timed) -> dict[str, Any]:
    return {
        "workload": one.workload,
        "model": one.model,
        "part": one.part,
        "dtype": one.dtype,
        "size": one.size,
        "devices": list(one.devices),
        "strategy": one.strategy,
        "seconds": None
        if one.seconds is None
        else {"median": one.seconds.median, "low": one.seconds.low, "high": one.seconds.high},
        "repeats": one.repeats,
        "rounds": list(one.rounds),
        "first": one.first,
        "gflops": one.gflops,
        "gbps": one.gbps,
        "flop": one.flop,
        "bytes": one.bytes,
        "others": one.others,
        "left_out": one.left_out or None,
        "software": one.software,
        "xla": one.xla,
        "way": one.way,
        "disturbed": one.disturbed,
        "compile": {"seconds": one.compiling, "what": list(one.compiled)} if one.compiled else None,
    }


def _comparison_json(bench: Bench) -> dict[str, Any] | None:
    known = bench.comparison
    if known is None:
        return None
    return {
        "file": known.name,
        "tensorflow": known.tensorflow,
        "verdict": known.verdict,
        "ratio": known.ratio,
        "noise": known.noise,
        "why": known.why,
        "changes": [
            {
                "workload": one.now.workload,
                "model": one.now.model,
                "part": one.now.part,
                "dtype": one.now.dtype,
                "size": one.now.size,
                "devices": list(one.now.devices),
                "strategy": one.now.strategy,
                "ratio": one.ratio,
                "noise": one.noise,
                "beyond_noise": one.beyond,
            }
            for one in known.changes
        ],
    }
