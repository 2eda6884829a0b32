"""The `tfdoctor parse` command, which runs the parsers of `check` on pasted or saved output."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tfdoctor.cli import completion_values
from tfdoctor.cli.options import Json, argument, command
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.probes.parsers.registry import PARSERS, detect_kind
from tfdoctor.probes.parsers.registry import parse as parse_text
from tfdoctor.render.json import SCHEMA_VERSION, write_json
from tfdoctor.render.terminal import OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_INPUT_BYTES = 64 << 20
"""The most bytes that are read, to limit memory use. No tool prints that much."""
BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@command("nvidia-smi | tfdoctor parse auto", "tfdoctor parse nvcc nvcc.txt --json")
def parse(
    kind: Annotated[
        str,
        argument(
            "What printed it: smi_table, nvcc, ldconfig …, or auto.",
            metavar="KIND|auto",
            autocompletion=completion_values.complete_kind,
        ),
    ],
    file: Annotated[
        str, argument("The file with the output; - or nothing: standard input.", metavar="[FILE|-]")
    ] = "-",
    as_json: Json = False,
) -> int:
    """Parse the output of a tool, print the result and return the exit status."""
    if kind != "auto" and kind not in PARSERS:
        nearest = difflib.get_close_matches(kind, PARSERS, n=2)
        hint = f"Did you mean {' or '.join(nearest)}?" if nearest else f"One of: auto {' '.join(PARSERS)}"
        message = f"`{clean_line(kind)}` is not a known kind of output."
        raise UsageError(message, hint=hint)
    text = _load_input(file)
    detected_kind = detect_kind(text) if kind == "auto" else kind
    if detected_kind is None:
        raise UsageError("This output is not recognised.", hint=f"Name its kind, one of: {' '.join(PARSERS)}")
    data = parse_text(detected_kind, text)
    if as_json:
        write_json({"schema_version": SCHEMA_VERSION, "kind": detected_kind, "data": data})
    else:
        lines = (f"{path}: {clean_line(str(value))}" for path, value in iter_leaves(data))
        OUT.write_document("\n".join((f"kind: {detected_kind}", *lines)) + "\n")
    return 0


def iter_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) for every scalar in nested data, such as ("gpus[0].name", "Tesla T4").

    The value for None and for an empty list is "none".
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from iter_leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from iter_leaves(item, f"{path}[{index}]")
    else:
        yield path, "none" if value in (None, []) else value


def _load_input(file: str) -> str:
    """Read a file, or standard input for `-`, and return its text. Raise UsageError if it cannot be read."""
    try:
        if file == "-":
            content = sys.stdin.buffer.read(MAX_INPUT_BYTES)
        else:
            with Path(file).open("rb") as stream:
                content = stream.read(MAX_INPUT_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"{clean_line(file)}: {reason}"
        raise UsageError(message) from error
    encoding = next((name for mark, name in BYTE_ORDER_MARKS if content.startswith(mark)), "utf-8")
    return content.decode(encoding, "replace")
