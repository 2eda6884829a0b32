"""The `tfdoctor bench` command."""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.files import read_option_file
from tfdoctor.cli.options import (
    FailOn,
    FailOnOption,
    Force,
    Html,
    Json,
    argument,
    check_finite,
    command,
    option,
    verbose_option,
)
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.bench.render import make_bench_json, render_bench
from tfdoctor.extensions.bench.svg import make_bench_svg
from tfdoctor.images.write import validate_reference
from tfdoctor.render.json import format_json
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.system.writing import check_output_file, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.extensions.bench.models import Bench
    from tfdoctor.extensions.bench.runner import BenchRequest, BenchResult

WORKLOADS = ("matmul", "conv", "train", "copy", "allreduce")
DTYPES = ("float32", "tf32", "float16", "bfloat16")
_DEVICE = re.compile(r"(?:CPU|GPU):\d{1,2}")
_MAX_SIZE = 1 << 30
"""The largest value of `--sizes`."""
DESCRIPTION_BY_STAGE = {
    "import": "TensorFlow is imported",
    "visible": "its devices are listed",
    "bench": "what is timed is built",
}
"""The text that describes each payload stage before the first timing, by stage name."""
BENCH_SVG_NAME = "bench.svg"
STYLE_BY_PNG_NAME = {"bench-light.png": "light", "bench-dark.png": "dark"}
"""The colour scheme of each PNG, by file name."""


@command(
    "tfdoctor bench",
    "tfdoctor bench --workload matmul --sizes 256,1024",
    "tfdoctor bench -o results --compare before/bench.json",
)
def bench(
    image: Annotated[
        str | None, argument("An image of the local engine; without it this machine.", metavar="[IMAGE]")
    ] = None,
    python: Annotated[
        str | None,
        option("The Python to examine; with IMAGE: the one in it. Default: as for `check`.", metavar="PATH"),
    ] = None,
    devices: Annotated[
        str | None,
        option(
            "Default: the CPU and each GPU. CPU:0,CPU:1: parts of the CPU, as if they were devices.",
            metavar="LIST",
        ),
    ] = None,
    workload: Annotated[
        str | None, option("Only these: matmul, conv, train, copy, allreduce.", metavar="LIST")
    ] = None,
    dtype: Annotated[
        str | None,
        option(
            "Number formats of products and convolutions: float32, tf32 (products only), float16, bfloat16. Default: "
            "float32, and all that each GPU supports.",
            metavar="LIST",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        option("Instead of the usual sizes: 256,1024. Needs one workload.", metavar="LIST"),
    ] = None,
    xla: Annotated[
        bool,
        option("Time what XLA compiles (jit_compile), too, and how long it compiles."),
    ] = False,
    duration: Annotated[
        float,
        option(
            "Measure for this long; importing TensorFlow is not counted.",
            min=1,
            max=3600,
            metavar="SECONDS",
            callback=check_finite,
        ),
    ] = 60.0,
    compare: Annotated[
        Path | None, option("Say what changed since this earlier result.", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None,
        option("Write bench.json and bench.svg into this folder.", "--output", "-o", metavar="FOLDER"),
    ] = None,
    png: Annotated[
        bool,
        option("With -o: bench-light.png and bench-dark.png, too (needs tfdoctor[plot])."),
    ] = False,
    fail_on: FailOnOption = FailOn.error,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show every time that was measured.")] = False,
) -> int:
    """Run the benchmark, print the result and return the exit status.

    Times matrix products, convolutions, training steps, copies and all-reduces on each device, says from which size
    on a GPU is faster than the CPU, and why several devices are slower than one. float32 is without TF32; what first
    calls compile is told apart. Ctrl-C keeps what was measured; with IMAGE, in a container with the GPUs, it comes at
    the end alone.
    """
    from tfdoctor.diagnosis import make_live_system
    from tfdoctor.extensions.bench.analysis import evaluate_bench
    from tfdoctor.extensions.bench.compare import compare_runs
    from tfdoctor.extensions.bench.reader import parse_earlier_run
    from tfdoctor.extensions.bench.runner import BenchRequest, bench_python

    workloads = _parse_list(workload, WORKLOADS, "--workload")
    request = BenchRequest(
        seconds=duration,
        devices=_parse_devices(devices),
        workloads=workloads,
        dtypes=_parse_list(dtype, DTYPES, "--dtype"),
        sizes=_parse_sizes(sizes, workloads),
        xla=xla,
    )
    earlier_run = None
    if compare is not None:
        earlier_run = parse_earlier_run(read_option_file(compare, "--compare").encode(), str(compare))
    convert_to_png = _load_png_converter(output) if png else None
    if output is not None:
        _make_folder(output, force=force)
    if html is not None:
        check_output_file(html, force=force, option="--html", input_paths=[compare])
    compat = Compat.load()
    progress = _Progress(duration, quiet=as_json or not ERR.is_terminal)
    if image is not None:
        timed_run = _time_in_image(compat, validate_reference(image), python, request, progress)
    else:
        timed_run = bench_python(make_live_system(python), compat, python, request, on_line=progress.show)
    progress.close()
    if timed_run.measurements.unsupported_reason:
        message = f"nothing is timed: {timed_run.measurements.unsupported_reason}."
        raise UsageError(message)
    result = evaluate_bench(
        timed_run.measurements,
        timed_run.target,
        timed_run.expected_speeds,
        is_software=timed_run.is_simulated,
        check_command=timed_run.check_command,
    )
    if earlier_run is not None:
        result = dataclasses.replace(
            result, comparison=compare_runs(result, earlier_run, clean_line(str(compare)))
        )
    if output is not None and result.has_times:  # an empty result must not replace an earlier one
        result = _write_results(output, result, convert_to_png)
    if html is not None:
        from tfdoctor.cli.html_file import write_redacted_page
        from tfdoctor.extensions.bench.html import make_benchmark_html

        write_redacted_page(html, partial(make_benchmark_html, result), force=force, quiet=False)
    if as_json:
        from tfdoctor.render.json import write_json

        write_json(make_bench_json(result))
    else:
        OUT.write(render_bench(result, verbose=verbose, **OUT.layout))
    if timed_run.interruption is not None:
        OUT.flush()
        raise timed_run.interruption
    if result.stop_reason or not result.has_times:
        return ExitCode.IMPOSSIBLE
    return ExitCode.FOUND if fail_on.is_reached(result.findings) else ExitCode.OK


def _write_results(output: Path, result: Bench, convert_to_png: Callable[[str], bytes] | None) -> Bench:
    """Write the charts and a JSON file that lists them, and return the result with the chart paths."""
    charts = {BENCH_SVG_NAME: make_bench_svg(result).encode("utf-8")}
    if convert_to_png is not None:
        charts |= {
            name: convert_to_png(make_bench_svg(result, style)) for name, style in STYLE_BY_PNG_NAME.items()
        }
    for name, chart in charts.items():
        write_file(output / name, chart, force=True)
    result = dataclasses.replace(result, plot_paths=tuple(str(output / name) for name in charts))
    write_file(output / "bench.json", format_json(make_bench_json(result)).encode(), force=True)
    for name in STYLE_BY_PNG_NAME.keys() - charts.keys():
        (output / name).unlink(missing_ok=True)  # it shows the replaced result
    return result


def _time_in_image(
    compat: Compat, image: str, python: str | None, request: BenchRequest, progress: _Progress
) -> BenchResult:
    """Run the benchmark in a container of the local engine."""
    from tfdoctor.extensions.bench.image_runner import bench_image
    from tfdoctor.images.engine import connect
    from tfdoctor.system import LiveSystem

    engine = connect()
    machine = LiveSystem() if engine.url.startswith("unix://") else None
    progress.print_container_note(image)
    return bench_image(engine, compat, image, python, request, on_line=progress.show, machine=machine)


class _Progress:
    """A progress line on standard error, with the last timing and the remaining seconds."""

    def __init__(self, seconds: float, *, quiet: bool) -> None:
        self._seconds = seconds
        self._quiet = quiet
        self._start_time = 0.0
        """The time at which the first timing was reported. 0.0 before that."""
        self._is_drawn = False

    def show(self, message: dict[str, object]) -> None:
        """Show the progress that a message of the payload reports."""
        if self._quiet:
            return
        timing = message.get("run")
        if not isinstance(timing, dict):
            if (
                message.get("status") == "begin"
                and message.get("stage") in DESCRIPTION_BY_STAGE
                and not self._start_time
            ):
                self._draw(f"{DESCRIPTION_BY_STAGE[str(message['stage'])]}; timing starts after that")
            return
        import time

        now = time.monotonic()
        self._start_time = self._start_time or now
        remaining_seconds = max(0.0, self._seconds - (now - self._start_time))
        title = " ".join(str(timing[key]) for key in ("workload", "model", "part", "size") if timing.get(key))
        device_names = timing.get("devices")
        device_note = f" on {', '.join(map(str, device_names))}" if isinstance(device_names, list) else ""
        self._draw(
            f"{remaining_seconds:4.0f} s left  {title}{device_note}{'' if timing.get('samples') else ': first call'}"
        )

    def _draw(self, text: str) -> None:
        """Replace the text of the progress line."""
        width = max(ERR.width - 3, 20)
        self._is_drawn = True
        ERR.write(f"\r  {clean_line(text, limit=200)[:width]:{width}}")
        ERR.flush()

    def print_container_note(self, image: str) -> None:
        """Print a note instead of progress, because the container reports nothing until it ends."""
        if not self._quiet:
            ERR.write(f"  TensorFlow computes in a container of {clean_line(image, limit=80)} …\n")
            ERR.flush()
            self._quiet = True

    def close(self) -> None:
        """Clear the progress line."""
        if self._is_drawn:
            ERR.write(f"\r{'':{max(ERR.width - 1, 22)}}\r")
            ERR.flush()


def _parse_list(text: str | None, allowed: tuple[str, ...], option_name: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated list without duplicates.

    Raise UsageError if a part is not in `allowed`. `option_name` is the option that the error message mentions.
    """
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text is not None else ()
    unknown_part = next((part for part in parts if part not in allowed), None)
    if unknown_part is not None:
        message = f"{option_name}: there is no `{clean_line(unknown_part)}`."
        raise UsageError(message, hint=f"They are: {', '.join(allowed)}.")
    return parts


def _parse_devices(text: str | None) -> tuple[str, ...]:
    """Return the device names in `--devices`. Raise UsageError if one is invalid."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text is not None else ()
    if not all(_DEVICE.fullmatch(name) for name in names) or len(names) > 64:
        raise UsageError("--devices: expected names such as CPU:0,GPU:0,GPU:1.")
    return names


def _parse_sizes(text: str | None, workloads: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers in `--sizes` in ascending order. Raise UsageError if they are invalid."""
    if text is None:
        return ()
    if len(workloads) != 1:
        raise UsageError(
            "--sizes needs one --workload: a size means something else for each.",
            hint="tfdoctor bench --workload matmul --sizes 256,1024",
        )
    numbers = [number.strip() for number in text.split(",")]
    if not all(re.fullmatch(r"[1-9][0-9]{0,9}", number) and int(number) <= _MAX_SIZE for number in numbers):
        raise UsageError("--sizes: expected whole numbers such as 256,1024.")
    return tuple(sorted({int(number) for number in numbers}))


def _load_png_converter(output: Path | None) -> Callable[[str], bytes]:
    """Return the function that converts an SVG to a PNG.

    It is loaded before the first timing, so that a missing library is reported at once. Raise UsageError if no output
    folder is given, and Error if the library is missing.
    """
    from tfdoctor.render.png import make_png_converter

    if output is None:
        raise UsageError("--png needs -o.", hint="tfdoctor bench -o FOLDER --png")
    return make_png_converter()


def _make_folder(path: Path, *, force: bool) -> None:
    """Create the output folder. Raise UsageError if the folder or a file in it cannot be written."""
    try:
        if str(path) == "-":
            raise ValueError("a folder cannot be written to standard output")  # noqa: TRY301
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        message = f"-o: {clean_line(str(path))} is no folder: {getattr(error, 'strerror', '') or error}."
        raise UsageError(message) from error
    for name in ("bench.json", BENCH_SVG_NAME, *STYLE_BY_PNG_NAME):
        check_output_file(path / name, force=force)
