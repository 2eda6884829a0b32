"""`tfdoctor explain`."""

from __future__ import annotations

from tfdoctor.errors import ExitCode
from tfdoctor.explain import catalogue, lookup


def explain(what: str | None, *, as_json: bool) -> int:
    """Print one rule or cause, or the list of all. Returns the exit status."""
    found = catalogue() if what is None else lookup(what)
    if as_json:
        from tfdoctor.render.explain import explanation_json
        from tfdoctor.render.json import write_json

        write_json(explanation_json(found))
    else:
        from tfdoctor.render.explain import print_explanation

        print_explanation(found)
    return ExitCode.OK
