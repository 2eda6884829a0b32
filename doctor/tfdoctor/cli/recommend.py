"""`tfdoctor recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfdoctor.cli.machine import host_for
from tfdoctor.cli.options import Json, command, verbose_option
from tfdoctor.compat import Compat
from tfdoctor.errors import ExitCode
from tfdoctor.plan import Method, Request
from tfdoctor.plan.asked import checked_python, planned
from tfdoctor.render.json import write_json
from tfdoctor.render.plan import recommendation_json, render_recommendation
from tfdoctor.render.terminal import OUT


@command
def recommend(
    tf: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help='Releases: 2.15, 2.15.0, ">=2.10,<2.13". Default: the best.'),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|CC", help='A card: "RTX 5090", 8.6. Default: this machine\'s.'),
    ] = None,
    driver: Annotated[str | None, typer.Option(metavar="V", help="The driver: 550.54.14, or 550.")] = None,
    python: Annotated[str | None, typer.Option(metavar="V", help="This Python: 3.11.")] = None,
    method: Annotated[Method | None, typer.Option(help="Only this way.")] = None,
    facts: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="For a recorded machine instead of this one.")
    ] = None,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show every option, every part and every reason.")] = False,
) -> int:
    """Print what fits. Returns the exit status.

    Without --tf: the best one. Changes nothing, and uses no network. Exit status 1 where nothing fits.
    """
    compat = Compat.load()
    host = host_for(compat, gpus=gpu or [], driver=driver, facts=facts)
    request = Request(tensorflow=tf, python=checked_python(python), method=method)
    answer = planned(compat, request, host)
    if as_json:
        write_json(recommendation_json(answer))
    else:
        OUT.write(render_recommendation(answer, verbose=verbose, **OUT.looks))
    return ExitCode.FOUND if answer.conflict is not None else ExitCode.OK
