"""Run a script of payload/ in another interpreter, and read the JSON lines that it prints."""

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
"""The folder of the payloads."""
PAYLOAD_VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
"""Environment variables for every payload."""


def make_payload_variables(system: System) -> dict[str, str]:
    """Return variables that keep Python from writing files and from importing from the working directory.

    Empty and relative entries of PYTHONPATH are removed, because they depend on the working directory.
    """
    path = system.env.get("PYTHONPATH", "")
    absolute_entries = ":".join(entry for entry in path.split(":") if entry.startswith("/"))
    return (
        PAYLOAD_VARIABLES
        if absolute_entries == path
        else {**PAYLOAD_VARIABLES, "PYTHONPATH": absolute_entries}
    )


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
    """Run payload/<name>.py. Return the merged objects of its lines, and the result of the command.

    The merged object is {} if no line is valid. `variant` distinguishes several runs of one payload in a recording.
    `flags` are options of the interpreter.
    """
    result = system.run(
        _make_command(python, name, args, flags),
        timeout=timeout,
        env={**make_payload_variables(system), **(env or {})},
        unset=unset,
        key=f"payload:{name}{f':{variant}' if variant else ''}",
    )
    return parse_payload_output(result.stdout), result


class PayloadDecoder:
    """A decoder of a payload's output that calls `on_object` with the object of each valid line."""

    def __init__(self, on_object: Callable[[dict[str, Any]], None]) -> None:
        self._on_object = on_object
        self._incomplete_line = b""

    def __call__(self, data: bytes) -> None:
        """Process the next bytes."""
        *lines, last_line = (self._incomplete_line + data).split(b"\n")
        self._incomplete_line = last_line if len(last_line) <= MAX_LINE_BYTES else b""
        for line in lines:
            merged_object = parse_payload_output(line.decode("utf-8", "replace"))
            if merged_object:
                self._on_object(merged_object)


def stream_payload(
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
    """Run payload/<name>.py, and call `on_object` with the object of each line as it arrives."""
    command = _make_command(python, name, args, ())
    variables = {**make_payload_variables(system), **(env or {})}
    return system.run_streaming(
        command, PayloadDecoder(on_object), timeout=timeout, env=variables, unset=unset
    )


def start_payload(
    system: LiveSystem,
    python: str,
    name: str,
    args: Sequence[str] = (),
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> None:
    """Start a payload early. A later `run_payload` with the same arguments waits for its result."""
    system.start_in_background(
        _make_command(python, name, args, flags),
        timeout=timeout,
        env={**make_payload_variables(system), **(env or {})},
    )


def _make_command(python: str, name: str, args: Sequence[str], flags: Sequence[str]) -> list[str]:
    return [python, *flags, "-B", str(_FOLDER / f"{name}.py"), *args]


def list_payload_files(path: Path) -> list[Path]:
    """Return a payload script NAME.py and the modules NAME_*.py that it imports from its folder.

    Return [] if the path is not in the payload folder.
    """
    if path.parent != _FOLDER:
        return []
    return [path, *sorted(_FOLDER.glob(f"{path.stem}_*.py"))]


def parse_payload_output(text: str) -> dict[str, Any]:
    """Return the merged JSON objects of the lines that start with the marker. Invalid lines are skipped."""
    merged: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.startswith(MARKER):
            continue
        try:
            value = json.loads(line[len(MARKER) :])
        except (ValueError, RecursionError):  # RecursionError: for nesting such as "[[[[…"
            continue
        if isinstance(value, dict):
            merged.update(value)
    return merged
