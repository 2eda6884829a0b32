"""Show which operations ran on which device, for `tfdoctor diagnose --placement`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tfdoctor.cli.log_arguments import write_note
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode
from tfdoctor.core.text import clean
from tfdoctor.logs.placement import evaluate_placement, infer_release_range, needs_kernels, read_placement
from tfdoctor.render.placement import make_placement_json, make_placement_svg, render_placement
from tfdoctor.render.progress import show_read_progress
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.system.writing import check_output_file, write_file
from tfdoctor.verification.running.streams import read_log

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.cli.options import FailOn


def diagnose_placement(
    name: str, *, svg: Path | None, force: bool, fail_on: FailOn, as_json: bool, verbose: bool, quiet: bool
) -> int:
    """Count the operations on each device in a log, print the result and return the exit status.

    `name` is a file or STDIN. Raise UsageError if the picture cannot be written.
    """
    if svg is not None:
        check_output_file(svg, force=force, option="--svg", input_paths=[name])
    label = clean(name, limit=300)
    with (
        show_read_progress(label)
        if ERR.is_terminal and not (as_json or quiet)
        else contextlib.nullcontext() as display
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
