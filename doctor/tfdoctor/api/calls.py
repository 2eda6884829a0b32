"""What `check`, `diagnose` and `recommend` print with `--json`, as values.

Each returns just that document (docs/schemas; `shapes` has it as types) and prints nothing. As on the command line,
nothing is changed or sent, and TensorFlow is at most run in a child process. Raises `Error`, which has a `message` and
a `hint`, where the command line says so and exits with 2 or 3.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tfdoctor.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.api.shapes import Check, Diagnosis, Recommendation

__all__ = ["Error", "as_printed", "check", "diagnose", "handle_signals", "recommend"]


def check(
    python: str | None = None,
    *,
    deep: bool = False,
    facts: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
) -> Check:
    """Return why TensorFlow does (not) see the GPUs: `tfdoctor check --json`.

    python: the interpreter to examine, or its environment's folder; None: the active environment's, else
    python3 on
    PATH; `sys.executable` is the one that asks. deep: also run TensorFlow. facts: a recorded machine (what
    `capture`
    wrote) instead of this one. timeout: seconds. Raises Error.
    """
    from pathlib import Path

    from tfdoctor.compat import Compat
    from tfdoctor.errors import UsageError
    from tfdoctor.examine import examine, live_machine
    from tfdoctor.render.report import report_json
    from tfdoctor.system import RecordedSystem

    if deep and facts is not None:
        raise UsageError("TensorFlow cannot be run (deep) on a recorded machine (facts).")
    with handle_signals():
        if facts is not None:
            recorded = RecordedSystem(Path(facts))
            report = examine(recorded, Compat.load(), python=python or recorded.python, timeout=timeout)
        else:
            report = examine(
                live_machine(python, env=os.environ), Compat.load(), python=python, timeout=timeout, deep=deep
            )
    answer: Check = as_printed(report_json(report))
    return answer


def diagnose(text: str | bytes) -> Diagnosis:
    """Return what a TensorFlow log means: `tfdoctor diagnose --json`. Never raises on any text."""
    from tfdoctor.compat import Compat
    from tfdoctor.logs.report import diagnose_log
    from tfdoctor.render.log import log_json

    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    answer: Diagnosis = as_printed(log_json(diagnose_log([data], Compat.load())))
    return answer


def recommend(
    tf: str | None = None,
    *,
    gpu: str | Sequence[str] = (),
    driver: str | None = None,
    python: str | None = None,
    method: str | None = None,
    facts: str | os.PathLike[str] | None = None,
) -> Recommendation:
    """Return which TensorFlow works, and how it is installed: `tfdoctor recommend --json`.

    tf: "2.15", ">=2.10,<2.13"; None: the best. gpu: names or compute capabilities; none: this machine's.
    method: "pip"
    or "container". facts: a recorded machine instead of this one. Raises Error.
    """
    from pathlib import Path

    from tfdoctor.cli.machine import host_for
    from tfdoctor.compat import Compat
    from tfdoctor.errors import UsageError
    from tfdoctor.plan import Method, Request
    from tfdoctor.plan.arguments import address_commands, check_python, make_plan
    from tfdoctor.render.plan import recommendation_json

    ways = {one.value: one for one in Method}
    if method is not None and method not in ways:
        msg = f"method: one of {', '.join(ways)} is meant."
        raise UsageError(msg)
    compat = Compat.load()
    gpus = [gpu] if isinstance(gpu, str) else list(gpu)
    with handle_signals():
        host = host_for(compat, gpus=gpus, driver=driver, facts=Path(facts) if facts is not None else None)
    request = Request(tensorflow=tf, python=check_python(python), method=ways[method] if method else None)
    found = address_commands(make_plan(compat, request, host), gpus, driver)
    answer: Recommendation = as_printed(recommendation_json(found))
    return answer


def as_printed(document: dict[str, Any]) -> Any:
    """Convert a document to the values of its JSON: no tuples, no enumerations."""
    return json.loads(json.dumps(document))


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Stop what we have started if a signal asks this process to end; then the signal is the caller's again."""
    from tfdoctor.system import signals

    try:
        with signals.handle_ending_signals():
            yield
    except signals.EndedError as ended:
        signal.raise_signal(ended.number)
        raise
