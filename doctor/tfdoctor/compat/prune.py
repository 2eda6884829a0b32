"""What an image can do without: compat/prune.toml, read strictly.

Each row was left out of an image in which TensorFlow then registered its GPUs, computed and compiled.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import Table, read_toml
from tfdoctor.data import data_dir
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Leftover", "leftovers", "load_prune"]

_PARTS = ("cuda", "tensorflow")
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./*[]")


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files below site-packages that nothing needs when TensorFlow runs."""

    pattern: str
    """A shell pattern, relative to site-packages."""
    part: Literal["cuda", "tensorflow"]
    """With whose installation they come."""
    tensorflow: str
    """A PEP 440 set of releases it was tried with."""
    why: str
    sources: tuple[str, ...]


@lru_cache(maxsize=1)
def leftovers() -> tuple[Leftover, ...]:
    """The rows of compat/prune.toml, read once."""
    return load_prune()[1]


def load_prune(folder: Path | None = None) -> tuple[str, tuple[Leftover, ...]]:
    """compat/prune.toml: its date and its rows. Raises DataError."""
    top = read_toml((folder or data_dir("compat")) / "prune.toml")
    if top.whole("schema_version") != 1:
        raise top.fail("schema_version must be 1")
    as_of = top.text("as_of")
    rows: list[Leftover] = []
    for index, raw in enumerate(top.tables("leftover")):
        label = raw.get("pattern", index + 1) if isinstance(raw, dict) else index + 1
        row = Table(raw, f"{top.where}: leftover {label}")
        rows.append(_leftover(row))
        row.done()
        if rows[-1].pattern in {known.pattern for known in rows[:-1]}:
            raise row.fail("this `pattern` is there twice")
    top.done()
    return as_of, tuple(rows)


def _leftover(row: Table) -> Leftover:
    result = Leftover(
        pattern=row.text("pattern"),
        part=row.choice("part", _PARTS),
        tensorflow=row.text("tensorflow"),
        why=row.text("why"),
        sources=row.texts("sources"),
    )
    if not {*result.pattern} <= _SAFE or result.pattern.startswith(("/", "-", "*")) or ".." in result.pattern:
        raise row.fail("`pattern` must be a plain path below site-packages")
    try:
        versions.satisfies("1.0", result.tensorflow)
    except versions.VersionSyntaxError as error:
        raise row.fail(str(error)) from error
    return result
