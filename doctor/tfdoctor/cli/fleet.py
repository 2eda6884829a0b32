"""`tfdoctor fleet`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import FailOn, Force, Html, Json, Severe, argument, command, verbose_option
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity

if TYPE_CHECKING:
    from tfdoctor.fleet import Fleet, Gathered
    from tfdoctor.nodes.store import Kept


class What(str, enum.Enum):
    """What is to be done."""

    report = "report"


@command
def fleet(
    what: Annotated[What, argument("report: judge the results of a folder.", metavar="report")],
    folder: Annotated[
        Path, argument("Its files NODE.json are what `tfdoctor check --json` printed on each.", metavar="DIR")
    ],
    fail_on: Severe = FailOn.error,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all findings, hosts and groups.")] = False,
) -> int:
    """Read, judge, print. Returns the exit status.

    Groups the hosts that are alike in driver, kernel, cards, TensorFlow, Python, libraries, packages, variables and
    paths, and says what the odd ones have: another version, a card missing or slower, no GPU for TensorFlow.
    """
    from tfdoctor.render.fleet import fleet_json, render_fleet
    from tfdoctor.render.terminal import OUT

    if html is not None:
        from tfdoctor.system.writing import check_file

        check_file(html, force=force, option="--html")
    answer = told(folder, "folder")
    if html is not None:
        from tfdoctor.cli.page import write_page
        from tfdoctor.render.html.fleet import fleet_html

        write_page(html, fleet_html(answer), force=force, quiet=as_json)
    if as_json:
        from tfdoctor.render.json import write_json

        write_json(fleet_json(answer))
    else:
        OUT.write(render_fleet(answer, verbose=verbose, **OUT.looks))
    if fail_on is FailOn.never:
        return ExitCode.OK
    least = Severity[fail_on.value.upper()]
    return ExitCode.FOUND if any(one.severity >= least for one in answer.findings) else ExitCode.OK


def told(folder: Path, engine: str) -> Fleet:
    """The results of a folder, judged. Raises UsageError where there are none."""
    from tfdoctor.fleet import LARGEST, Gathered, judged
    from tfdoctor.nodes.store import Store

    store, found = Store(folder), Gathered()
    for one in store.results(LARGEST):
        _take(found, one)
    if not found.hosts:
        msg = f"{folder} has no results."
        raise UsageError(msg, hint="tfdoctor check --json > DIR/$(hostname).json on each host")
    return judged(engine, found, aside=store.aside)


def _take(found: Gathered, one: Kept) -> None:
    """A node's result, or why there is none: what its last run gave counts, not an older file."""
    from tfdoctor.fleet import UnusableError, read_result

    ending = one.ending
    seconds = ending.seconds if ending is not None else None
    if ending is not None and ending.ended in ("lost", "timeout"):
        found.silent(one.host, "lost" if ending.ended == "lost" else "timeout", ending.why, seconds=seconds)
        return
    if ending is not None and ending.ended != "answered":
        found.silent(one.host, "failed", ending.why, seconds=seconds)
        return
    if one.content is None:
        found.silent(one.host, "failed", one.why or "its file is gone", seconds=seconds)
        return
    try:
        result = read_result(one.content)
    except UnusableError as error:
        found.silent(one.host, "failed", str(error), seconds=seconds)
        return
    times = (ending.asked, ending.came) if ending is not None else (None, None)
    found.add(one.host, result, seconds=seconds, asked=times[0], came=times[1])
