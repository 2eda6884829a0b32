"""On which lines the functions of TensorFlow's own Python stand, release for release: compat/functions.json, read from
the wheels by scripts.

`session.py", line 1334, in _do_call` in a traceback is of the releases whose `_do_call` has that line. A wheel that
somebody built of the same sources has the same lines.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from tfdoctor.compat.decode import DataError, Sources, read
from tfdoctor.compat.source_lines import expand_span
from tfdoctor.records import dataclass

__all__ = ["Functions", "load_functions"]

_INSTALLED = re.compile(r"(?:site|dist)-packages/(tensorflow(?:_core)?/[\w/]{1,200}\.py)c?$")
_EATEN = re.compile(r"(?<=[^\W_])_{1,2}init_{0,2}\.py$")
"""`\\__init__.py`, as Markdown leaves it: `tensorflow_init_.py`, `python__init__.py`. No file measured ends so."""


@dataclass(frozen=True, slots=True)
class PythonFile:
    """The functions of one file."""

    functions: Mapping[str, str]
    """Name → `"1280-1300:12-14,16"`: first and last line, and the places of its releases in `releases`. Of `<module>`
    each statement that can fail: `"58:7-20"`."""


@dataclasses.dataclass(frozen=True)
class Functions:
    """The whole table."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Those that were measured, oldest first."""
    files: Mapping[str, PythonFile]
    """By path in the wheel."""

    def find_releases(self, path: str, line: int, function: str) -> frozenset[str] | None:
        """Return the releases whose function has this line; none if no release's has.

        None: it is not in the table.

        `path` as a traceback has it. Raises DataError.
        """
        plain = re.sub(r"[\\/]{1,8}", "/", path)
        found = _INSTALLED.search(_EATEN.sub("/__init__.py", plain))
        row = self.files.get(found[1]) if found is not None else None
        words = row.functions.get(function) if row is not None else None
        if words is None:
            return None
        releases: set[str] = set()
        try:
            for word in words.split():
                where, _, places = word.partition(":")
                first, _, last = where.partition("-")
                if int(first) <= line <= int(last or first):
                    for part in places.split(","):
                        releases.update(expand_span(self.releases, part))
        except ValueError as error:
            msg = f"compat/functions.json: {path}: {error}"
            raise DataError(msg) from error
        return frozenset(releases)


def load_functions(folder: Path) -> Functions:
    """Load compat/functions.json. Raises DataError."""
    return read(Functions, folder / "functions.json")
