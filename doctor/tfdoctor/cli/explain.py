"""`tfdoctor explain`."""

from __future__ import annotations

from typing import Annotated

from tfdoctor.cli.options import Json, argument, command
from tfdoctor.errors import ExitCode
from tfdoctor.explain import catalogue, lookup
from tfdoctor.render.explain import explanation_json, render_explanation
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT


@command
def explain(
    what: Annotated[
        str | None,
        argument("TFD203, or libs-not-on-path; nothing lists all.", metavar="[CODE|CAUSE]"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Print one rule or cause, or the list of all. Returns the exit status."""
    found = catalogue() if what is None else lookup(what)
    if as_json:
        write_json(explanation_json(found))
    else:
        OUT.write(render_explanation(found, **OUT.looks))
    return ExitCode.OK
