"""Tables that say of each release what was read out of its wheel: which releases there are, places in their list, the
arguments of the scripts, and the text of the file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "expand_spans",
    "find_unmeasured",
    "finish_check",
    "options",
    "releases",
    "render",
    "spans",
    "urls",
]

COMPAT = ROOT / "compat"


def releases() -> list[dict[str, Any]]:
    """The row of each release with GPU code, oldest first: one package of each version."""
    rows = json.loads((COMPAT / "tensorflow.json").read_text(encoding="utf-8"))["releases"]
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["gpu"] and (row["version"] not in found or row["package"] == "tensorflow"):
            found[row["version"]] = row
    return sorted(found.values(), key=lambda row: Version(row["version"]))


def urls() -> dict[str, str]:
    """Wheel → where the index has it."""
    from update_support.wheel_facts import read_index

    return {package.filename: package.url for files in read_index() for package in files.linux.values()}


def find_unmeasured(table: Mapping[str, Any], at_least: int) -> list[str]:
    """What is wrong with the releases of a table, offline."""
    missing = sorted({row["version"] for row in releases()} - {*table["releases"]}, key=Version)
    found = [f"not measured: {', '.join(missing)}"] if missing else []
    if len(table["releases"]) < at_least:
        found.append(f"only {len(table['releases'])} releases")
    return found


def options(doc: str | None, *more: tuple[str, dict[str, Any]]) -> argparse.Namespace:
    """What was typed; `more`: the script's own arguments."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("only", nargs="?", help="which releases are read anew, as a specification")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 where something is missing"
    )
    parser.add_argument("--as-of", default=time.strftime("%Y-%m-%d", time.gmtime()), help="date of the table")
    for name, given in more:
        parser.add_argument(name, **given)
    return parser.parse_args()


def finish_check(lines: list[str]) -> int:
    """The exit status of `--check`, after it said these."""
    print("\n".join(lines) or "every release is there")
    return 1 if lines else 0


def spans(places: Iterable[int]) -> str:
    """[3, 4, 5, 9] → "3-5,9"."""
    found: list[list[int]] = []
    for place in sorted(places):
        if found and place == found[-1][1] + 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def expand_spans(names: list[str], places: str) -> Iterator[str]:
    """ "3-5,9" → the names that stand there: what `spans` wrote."""
    for part in places.split(","):
        first, _, last = part.partition("-")
        yield from names[int(first) : int(last or first) + 1]


def render(head: Mapping[str, object], files: Mapping[str, object]) -> str:
    """A table's text, a line a key and a line a file: the same bytes of the same values."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    rows = ",\n".join(f"{text(file)}:{text(row)}" for file, row in sorted(files.items()))
    lines = "".join(f"{text(key)}:{text(value)},\n" for key, value in {"schema_version": 1, **head}.items())
    return f'{{{lines}"files":{{\n{rows}\n}}}}\n'


def format_count(count: int) -> None:
    """How many releases the table has now."""
    print(f"{count} releases", file=sys.stderr)
