"""The `tfdoctor explain` command."""

from __future__ import annotations

import functools
from typing import Annotated

from tfdoctor.cli import completion_values
from tfdoctor.cli.extensions import find_extensions, load_object
from tfdoctor.cli.options import Json, argument, command, verbose_option
from tfdoctor.core.errors import ExitCode
from tfdoctor.diagnosis.explain import (
    PAGES_WITHOUT_CAUSE,
    Documentation,
    find_entries,
    list_entries,
    make_page_entry,
    make_rule_entry,
)
from tfdoctor.images.checks import DOCKERFILE_RULES
from tfdoctor.render.explain import make_explanation_json, render_explanation
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.rules import ALL_RULES


@functools.cache
def load_documentation() -> Documentation:
    """Return what can be looked up: the rules, and the pages of `diagnose` and of the extensions."""
    rules = [make_rule_entry(rule) for rule in ALL_RULES]
    rules += [make_rule_entry(rule, "tfdoctor lint Dockerfile") for rule in DOCKERFILE_RULES]
    pages = dict(PAGES_WITHOUT_CAUSE)
    for extension in find_extensions().values():
        for page in load_object(extension.pages) if extension.pages else ():
            pages.setdefault(page.code, make_page_entry(page, extension.example))
    return Documentation(tuple(sorted(rules, key=lambda rule: rule.code)), pages)


@command("tfdoctor explain TFD201", 'tfdoctor explain "Skipping registering GPU devices"')
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
    documentation = load_documentation()
    explanation = find_entries(" ".join(terms), documentation) if terms else list_entries(documentation)
    if as_json:
        write_json(make_explanation_json(explanation))
    else:
        OUT.write(render_explanation(explanation, complete=verbose, **OUT.layout))
    return ExitCode.OK
