"""Tables of data that was read from the wheel of each release.

The releases, positions in their list, the arguments of the scripts, and the text of the file.
"""

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
    "format_spans",
    "list_releases",
    "list_urls",
    "parse_options",
    "render",
]

COMPAT = ROOT / "compat"


def list_releases() -> list[dict[str, Any]]:
    """Return the row of each release with GPU code, oldest first, with one package per version."""
    rows = json.loads((COMPAT / "tensorflow.json").read_text(encoding="utf-8"))["releases"]
    row_by_version: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["gpu"] and (row["version"] not in row_by_version or row["package"] == "tensorflow"):
            row_by_version[row["version"]] = row
    return sorted(row_by_version.values(), key=lambda row: Version(row["version"]))


def list_urls() -> dict[str, str]:
    """Return the URL of each wheel on the index by file name."""
    from update_support.wheel_facts import load_index

    return {package.filename: package.url for files in load_index() for package in files.linux.values()}


def find_unmeasured(table: Mapping[str, Any], at_least: int) -> list[str]:
    """Return the problems with the releases of a table that can be found offline."""
    missing = sorted({row["version"] for row in list_releases()} - {*table["releases"]}, key=Version)
    problems = [f"not measured: {', '.join(missing)}"] if missing else []
    if len(table["releases"]) < at_least:
        problems.append(f"only {len(table['releases'])} releases")
    return problems


def parse_options(doc: str | None, *more: tuple[str, dict[str, Any]]) -> argparse.Namespace:
    """Return the parsed command line; `more` are the script's own arguments."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("only", nargs="?", help="which releases are read anew, as a specification")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 where something is missing"
    )
    parser.add_argument("--as-of", default=time.strftime("%Y-%m-%d", time.gmtime()), help="date of the table")
    for name, settings in more:
        parser.add_argument(name, **settings)
    return parser.parse_args()


def finish_check(lines: list[str]) -> int:
    """Print the problems and return the exit status of `--check`."""
    print("\n".join(lines) or "every release is there")
    return 1 if lines else 0


def format_spans(numbers: Iterable[int]) -> str:
    """Return the numbers as ranges: "3-5,9" for [3, 4, 5, 9]."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def expand_spans(names: list[str], ranges: str) -> Iterator[str]:
    """Yield the names at the positions of ranges that `spans` wrote, such as "3-5,9"."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from names[int(first) : int(last or first) + 1]


def render(head: Mapping[str, object], files: Mapping[str, object]) -> str:
    """Return the text of a table, one line per key and per file; equal values give equal bytes."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    rows = ",\n".join(f"{text(file)}:{text(row)}" for file, row in sorted(files.items()))
    lines = "".join(f"{text(key)}:{text(value)},\n" for key, value in {"schema_version": 1, **head}.items())
    return f'{{{lines}"files":{{\n{rows}\n}}}}\n'


def print_count(count: int) -> None:
    """Print the number of releases in the table to standard error."""
    print(f"{count} releases", file=sys.stderr)
