"""The lines of functions in TensorFlow's Python files: compat/functions.json, measured in the wheels.

A line of a traceback, such as `session.py", line 1334, in _do_call`, identifies the releases whose `_do_call` contains
that line. Other builds of the same sources have the same lines.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tfdoctor.compat.decode import DataError, Sources, read_table
from tfdoctor.compat.source_lines import expand_span
from tfdoctor.core.records import dataclass

__all__ = ["Functions", "load_functions"]

_INSTALLED_PATH = re.compile(r"(?:site|dist)-packages/(tensorflow(?:_core)?/[\w/]{1,200}\.py)c?$")
_MARKDOWN_INIT = re.compile(r"(?<=[^\W_])_{1,2}init_{0,2}\.py$")
"""`\\__init__.py` after Markdown: `tensorflow_init_.py`, `python__init__.py`. No measured file has such a name."""


@dataclass(frozen=True, slots=True)
class PythonFile:
    """The functions of one file."""

    spans_by_function: Mapping[str, str] = field(metadata={"key": "functions"})
    """The spans of each function, separated by spaces: `"1280-1300:12-14,16"`.

    A span has the first and last line, and the indices in `releases` of the releases that have it. `<module>` has a
    span for each statement that can fail, such as `"58:7-20"`.
    """


@dataclasses.dataclass(frozen=True)
class Functions:
    """The functions of the measured releases."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Measured releases, oldest first."""
    files: Mapping[str, PythonFile]
    """Files by their path in the wheel."""

    def find_releases(self, path: str, line: int, function: str) -> frozenset[str] | None:
        """Return the releases in which a function contains a line; None if the function is not in the table.

        `path` is a path in a traceback. Raise DataError if the table is invalid.
        """
        slash_path = re.sub(r"[\\/]{1,8}", "/", path)
        match = _INSTALLED_PATH.search(_MARKDOWN_INIT.sub("/__init__.py", slash_path))
        python_file = self.files.get(match[1]) if match is not None else None
        spans = python_file.spans_by_function.get(function) if python_file is not None else None
        if spans is None:
            return None
        releases: set[str] = set()
        try:
            for span in spans.split():
                lines, _, indices = span.partition(":")
                first, _, last = lines.partition("-")
                if int(first) <= line <= int(last or first):
                    for part in indices.split(","):
                        releases.update(expand_span(self.releases, part))
        except ValueError as error:
            msg = f"compat/functions.json: {path}: {error}"
            raise DataError(msg) from error
        return frozenset(releases)


def load_functions(folder: Path) -> Functions:
    """Load compat/functions.json. Raise DataError if it is invalid."""
    return read_table(Functions, folder / "functions.json")
