"""Running one of payload/'s scripts in another interpreter, and reading its JSON lines."""

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
"""Bytes of a line."""
_FOLDER = Path(tfdoctor.payload.__file__).parent
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}


def quiet_variables(system: System) -> dict[str, str]:
    """Return the variables for a Python that is examined: it writes no files and imports nothing of the working folder.

    An empty or relative entry of PYTHONPATH means the working folder, or a folder below it.
    """
    path = system.env.get("PYTHONPATH", "")
    absolute = ":".join(entry for entry in path.split(":") if entry.startswith("/"))
    return QUIET if absolute == path else {**QUIET, "PYTHONPATH": absolute}


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
    """Run payload/<name>.py and merge what its lines say; {} where it said nothing that can be read.

    `variant` keeps two runs of one payload apart in a recording; `flags` are the interpreter's.
    """
    result = system.run(
        _command(python, name, args, flags),
        timeout=timeout,
        env={**quiet_variables(system), **(env or {})},
        unset=unset,
        key=f"payload:{name}{f':{variant}' if variant else ''}",
    )
    return parse_answer(result.stdout), result


class Lines:
    """A payload's lines, decoded as they come: the objects behind the marker; what is not valid is passed over."""

    def __init__(self, told: Callable[[dict[str, Any]], None]) -> None:
        self._told = told
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        """The next bytes."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= MAX_LINE_BYTES else b""
        for line in lines:
            part = parse_answer(line.decode("utf-8", "replace"))
            if part:
                self._told(part)


def follow_payload(
    system: LiveSystem,
    python: str,
    name: str,
    args: Sequence[str],
    told: Callable[[dict[str, Any]], None],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
) -> CommandResult:
    """Run payload/<name>.py; `told` gets the object of each line as it comes."""
    command = _command(python, name, args, ())
    variables = {**quiet_variables(system), **(env or {})}
    return system.follow(command, Lines(told), timeout=timeout, env=variables, unset=unset)


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
    """Start what `run_payload` will be asked for with the same arguments."""
    system.begin(
        _command(python, name, args, flags), timeout=timeout, env={**quiet_variables(system), **(env or {})}
    )


def _command(python: str, name: str, args: Sequence[str], flags: Sequence[str]) -> list[str]:
    return [python, *flags, "-B", str(_FOLDER / f"{name}.py"), *args]


def files_of(path: Path) -> list[Path]:
    """Return the script of ours that `path` is, and its parts, which must lie beside it.

    None if it is no script of ours.

    The parts of NAME.py are NAME_*.py.
    """
    if path.parent != _FOLDER:
        return []
    return [path, *sorted(_FOLDER.glob(f"{path.stem}_*.py"))]


def parse_answer(text: str) -> dict[str, Any]:
    """Return the merged JSON objects behind the marker; lines that are not valid are passed over."""
    answer: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.startswith(MARKER):
            continue
        try:
            part = json.loads(line[len(MARKER) :])
        except (ValueError, RecursionError):  # the latter of "[[[[…"
            continue
        if isinstance(part, dict):
            answer.update(part)
    return answer
