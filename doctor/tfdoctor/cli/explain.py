"""The `tfdoctor explain` command."""

from __future__ import annotations

from typing import Annotated

from tfdoctor.cli import completion_values
from tfdoctor.cli.options import Json, argument, command, verbose_option
from tfdoctor.errors import ExitCode
from tfdoctor.explain import find_entries, list_entries
from tfdoctor.render.explain import make_explanation_json, render_explanation
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT


@command
def explain(
    terms: Annotated[
        list[str] | None,
        argument(
            "TFD203, libs-not-on-path, or the words of a message. Default: list all.",
            metavar="[CODE|CAUSE|WORDS…]",
            autocompletion=completion_values.complete_cause_or_code,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Annotated[
        bool, verbose_option("Show everything: how it is detected, and related checks.")
    ] = False,
) -> int:
    """Print the entry of a rule, a cause or a message, or the list of all, and return the exit status."""
    explanation = find_entries(" ".join(terms)) if terms else list_entries()
    if as_json:
        write_json(make_explanation_json(explanation))
    else:
        OUT.write(render_explanation(explanation, complete=verbose, **OUT.layout))
    return ExitCode.OK
