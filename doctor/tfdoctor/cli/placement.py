"""The `tfdoctor placement` command."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from tfdoctor.cli.log_arguments import select_logs, write_note
from tfdoctor.cli.options import FailOn, FailOnOption, Force, Json, argument, command, option, verbose_option
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode
from tfdoctor.core.text import clean
from tfdoctor.logs.placement import evaluate_placement, infer_release_range, needs_kernels, read_placement
from tfdoctor.render.placement import make_placement_json, make_placement_svg, render_placement
from tfdoctor.render.progress import show_read_progress
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.system.writing import check_output_file, write_file
from tfdoctor.verification.running.streams import read_log


@command
def placement(
    file: Annotated[
        str | None,
        argument("A log, also .gz, .bz2, .xz and .zst; - or nothing: standard input.", metavar="[LOG|-]"),
    ] = None,
    svg: Annotated[
        Path | None, option("Write a picture of operations over devices, too.", "--svg", metavar="FILE")
    ] = None,
    force: Force = False,
    fail_on: FailOnOption = FailOn.error,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all operations and all evidence.")] = False,
) -> int:
    """Count the operations on each device in a log, print the result and return the exit status.

    TensorFlow prints where operations go after tf.debugging.set_log_device_placement(True), in TensorFlow 1 with
    ConfigProto(log_device_placement=True). Sends nothing.
    """
    (name,) = select_logs([file] if file else [], "placement")
    if svg is not None:
        check_output_file(svg, force=force, option="--svg", input_paths=[name])
    label = clean(name, limit=300)
    with (
        show_read_progress(label) if ERR.is_terminal and not as_json else contextlib.nullcontext() as display
    ):
        placements = read_placement(read_log(name, on_note=write_note, meter=display))
    compat = Compat.load()
    # which operations have a GPU kernel depends on the release that wrote the log
    release_range = (
        infer_release_range(placements.release_messages, compat) if needs_kernels(placements) else None
    )
    result = evaluate_placement(
        placements, label, kernels=compat.kernels if release_range else None, release_range=release_range
    )
    if svg is not None:
        write_file(svg, make_placement_svg(result).encode("utf-8"), force=force, option="--svg")
    if as_json:
        from tfdoctor.render.json import write_json

        write_json(make_placement_json(result))
    else:
        OUT.write(render_placement(result, verbose=verbose, **OUT.layout))
    return ExitCode.FOUND if fail_on.is_reached(result.findings) else ExitCode.OK
