"""Running a script of payload/ in another interpreter and reading the JSON lines that it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tfdoctor.payload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdoctor.system import CommandResult, LiveSystem, System

MARKER = "tfdoctor-payload:"
MAX_LINE_BYTES = 1 << 20
"""Longer lines are discarded."""
_FOLDER = Path(tfdoctor.payload.__file__).parent
QUIET_VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
"""Variables for every payload."""


def quiet_variables(system: System) -> dict[str, str]:
    """Return variables with which a Python writes no files and imports nothing from the working directory.

    An empty or relative entry of PYTHONPATH refers to the working directory or a folder below it.
    """
    path = system.env.get("PYTHONPATH", "")
    absolute = ":".join(entry for entry in path.split(":") if entry.startswith("/"))
    return QUIET_VARIABLES if absolute == path else {**QUIET_VARIABLES, "PYTHONPATH": absolute}


def run_payload(
    system: System,
    python: str,
    name: str,
    args: Sequence[str] = (),
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
    variant: str = "",
    flags: Sequence[str] = (),
) -> tuple[dict[str, Any], CommandResult]:
    """Run payload/<name>.py; return the merged objects of its lines, {} if there are none, and the result.

    `variant` distinguishes several runs of one payload in a recording; `flags` are options of the
    interpreter.
    """
    result = system.run(
        _make_command(python, name, args, flags),
        timeout=timeout,
        env={**quiet_variables(system), **(env or {})},
        unset=unset,
        key=f"payload:{name}{f':{variant}' if variant else ''}",
    )
    return parse_answer(result.stdout), result


class Lines:
    """A decoder of a payload's output that calls `told` with each object as it arrives; invalid lines are skipped."""

    def __init__(self, told: Callable[[dict[str, Any]], None]) -> None:
        self._on_object = told
        self._incomplete_line = b""

    def __call__(self, data: bytes) -> None:
        """Process the next bytes."""
        *lines, incomplete = (self._incomplete_line + data).split(b"\n")
        self._incomplete_line = incomplete if len(incomplete) <= MAX_LINE_BYTES else b""
        for line in lines:
            part = parse_answer(line.decode("utf-8", "replace"))
            if part:
                self._on_object(part)


def follow_payload(
    system: LiveSystem,
    python: str,
    name: str,
    args: Sequence[str],
    on_object: Callable[[dict[str, Any]], None],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
) -> CommandResult:
    """Run payload/<name>.py; call `told` with the object of each line as it arrives."""
    command = _make_command(python, name, args, ())
    variables = {**quiet_variables(system), **(env or {})}
    return system.follow(command, Lines(on_object), timeout=timeout, env=variables, unset=unset)


def begin_payload(
    system: LiveSystem,
    python: str,
    name: str,
    args: Sequence[str] = (),
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> None:
    """Start a payload early; `run_payload` with the same arguments then waits for its result."""
    system.begin(
        _make_command(python, name, args, flags),
        timeout=timeout,
        env={**quiet_variables(system), **(env or {})},
    )


def _make_command(python: str, name: str, args: Sequence[str], flags: Sequence[str]) -> list[str]:
    return [python, *flags, "-B", str(_FOLDER / f"{name}.py"), *args]


def list_payload_files(path: Path) -> list[Path]:
    """Return a payload script and the parts that it imports from its folder (NAME_*.py for NAME.py).

    The list is empty if the path is not a payload script.
    """
    if path.parent != _FOLDER:
        return []
    return [path, *sorted(_FOLDER.glob(f"{path.stem}_*.py"))]


def parse_answer(text: str) -> dict[str, Any]:
    """Return the merged JSON objects of the lines that start with the marker; invalid lines are skipped."""
    answer: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.startswith(MARKER):
            continue
        try:
            part = json.loads(line[len(MARKER) :])
        except (ValueError, RecursionError):  # the latter for deep nesting such as "[[[[…"
            continue
        if isinstance(part, dict):
            answer.update(part)
    return answer
