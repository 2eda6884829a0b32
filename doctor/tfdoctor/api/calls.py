"""Run `check`, `diagnose` and `recommend` from Python.

Each function returns the document that its command prints with `--json` (see docs/schemas, and the types in
`shapes`). It prints nothing. As on the command line, nothing is changed or sent, and TensorFlow runs only in a child
process, if at all. If the command would exit with 2 or 3, the function raises `Error`, which has a `message` and a
`hint`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tfdoctor.core.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.api.shapes import Check, Diagnosis, Recommendation

__all__ = ["Error", "check", "convert_to_json_values", "diagnose", "handle_signals", "recommend"]


def check(
    python: str | None = None,
    *,
    deep: bool = False,
    recording: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
) -> Check:
    """Check whether TensorFlow can use the GPUs, and return the document of `tfdoctor check --json`.

    * `python` is the interpreter to examine, or the folder of its environment. None means the interpreter of the
      active environment, or else python3 on PATH. Pass `sys.executable` for the current one.
    * `deep` also runs TensorFlow.
    * `recording` is a file or folder that `capture` made, to examine instead of this machine.
    * `timeout` is the time limit in seconds for collecting the facts.

    Raise Error if the machine or the recording cannot be examined, or if `deep` and `recording` are combined.
    """
    from pathlib import Path

    from tfdoctor.compat import Compat
    from tfdoctor.core.errors import UsageError
    from tfdoctor.diagnosis import examine, make_live_system
    from tfdoctor.render.report import make_report_json
    from tfdoctor.system import RecordedSystem

    if deep and recording is not None:
        raise UsageError("TensorFlow cannot be run (deep) on a recorded machine (recording).")
    with handle_signals():
        if recording is not None:
            recorded = RecordedSystem(Path(recording))
            report = examine(recorded, Compat.load(), python=python or recorded.python, timeout=timeout)
        else:
            report = examine(
                make_live_system(python, env=os.environ),
                Compat.load(),
                python=python,
                timeout=timeout,
                deep=deep,
            )
    document: Check = convert_to_json_values(make_report_json(report))
    return document


def diagnose(text: str | bytes) -> Diagnosis:
    """Return the diagnosis of a TensorFlow log, like `tfdoctor diagnose --json`.

    Any text is accepted, even if it is not a log.
    """
    from tfdoctor.compat import Compat
    from tfdoctor.logs.report import diagnose_log
    from tfdoctor.render.log import make_log_json

    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    document: Diagnosis = convert_to_json_values(make_log_json(diagnose_log([data], Compat.load())))
    return document


def recommend(
    tf: str | None = None,
    *,
    gpu: str | Sequence[str] = (),
    driver: str | None = None,
    python_version: str | None = None,
    method: str | None = None,
    recording: str | os.PathLike[str] | None = None,
) -> Recommendation:
    """Return the TensorFlow releases that work and how to install them, like `tfdoctor recommend --json`.

    * `tf` is a TensorFlow version or specifier, such as "2.15" or ">=2.10,<2.13". None means the best one.
    * `gpu` is one or more GPU names or compute capabilities. Empty means the GPUs of this machine.
    * `driver` is the driver version. None means the driver of this machine.
    * `python_version` is the Python version, such as "3.11". None means any.
    * `method` is "pip" or "container". None means both.
    * `recording` is a file or folder that `capture` made, to plan for instead of this machine.

    Raise Error if an argument is invalid, or if the recording cannot be read.
    """
    from pathlib import Path

    from tfdoctor.cli.machine import select_host
    from tfdoctor.compat import Compat
    from tfdoctor.core.errors import UsageError
    from tfdoctor.planning import Method, Request
    from tfdoctor.planning.arguments import add_machine_arguments, make_plan, parse_python_version
    from tfdoctor.render.plan import make_recommendation_json

    method_by_name = {choice.value: choice for choice in Method}
    if method is not None and method not in method_by_name:
        msg = f"method must be one of {', '.join(method_by_name)}."
        raise UsageError(msg)
    compat = Compat.load()
    gpus = [gpu] if isinstance(gpu, str) else list(gpu)
    with handle_signals():
        host = select_host(
            compat,
            gpus=gpus,
            driver=driver,
            recording_path=Path(recording) if recording is not None else None,
        )
    request = Request(
        tensorflow=tf,
        python=parse_python_version(python_version),
        method=method_by_name[method] if method else None,
    )
    plan = add_machine_arguments(make_plan(compat, request, host), gpus, driver)
    document: Recommendation = convert_to_json_values(make_recommendation_json(plan))
    return document


def convert_to_json_values(document: dict[str, Any]) -> Any:
    """Return a document as a JSON parser returns it: with lists instead of tuples, and no enumerations."""
    return json.loads(json.dumps(document))


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Stop the child processes if this process receives a termination signal.

    The signal is then raised again, so that the handler of the calling program runs.
    """
    from tfdoctor.system import signals

    try:
        with signals.handle_termination_signals():
            yield
    except signals.TerminationError as error:
        signal.raise_signal(error.number)
        raise  # only if the handler of the calling program returns
