"""What each TensorFlow takes of other packages while it is imported: compat/imports/<minor>.json, measured.

Written by scripts/update_imports.py from real imports: of the newest patch of each minor, on one Python.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat.decode import Table, read_json
from tfdoctor.data import data_dir
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Imported", "imported_by", "load_imported", "measured_minors"]


@dataclass(frozen=True, slots=True)
class Imported:
    """The import of one TensorFlow, as it was seen."""

    tensorflow: str
    python: str
    needs: Mapping[str, tuple[str, ...]]
    """Module → the attributes that are taken of it. An error with one of them stops the import."""
    must: tuple[str, ...]
    """Packages that import TensorFlow themselves and must be there."""
    tried: tuple[str, ...]
    """Modules that are taken where they are there: an ImportError does not stop the import, another error does."""
    family: Mapping[str, tuple[str, ...]]
    """Keras and the like, which the import loads → the modules that these take of others."""
    standard: Mapping[str, tuple[str, ...]]
    """Modules of Python's own library → the attributes that are taken of them."""
    shadowable: frozenset[str]
    """Every module of Python's own library that is loaded on the way: a file of that name can take its place."""
    idle: frozenset[str]
    """Sources and shared objects of TensorFlow that the import does not load, below site-packages."""
    sets: tuple[Mapping[str, str], ...]
    """Distributions (normalised name → version) with which the import was seen to work."""
    exact: bool = True
    """False: this is the nearest minor that was measured, and attributes say nothing."""


def measured_minors(folder: Path | None = None) -> tuple[str, ...]:
    """The minors that were measured, oldest first: `"2.20"`."""
    found = (path.stem for path in ((folder or data_dir("compat")) / "imports").glob("*.json"))
    return tuple(sorted(found, key=versions.numbers))


@lru_cache(maxsize=4)
def imported_by(version: str | None) -> Imported | None:
    """What a TensorFlow takes at its import: its minor's table, else that of the newest one below it.

    None where the version is not known, or is older than all that were measured. Raises DataError.
    """
    if version is None or not versions.is_version(version):
        return None
    minor = versions.major_minor(version)
    below = [one for one in measured_minors() if versions.numbers(one) <= versions.numbers(minor)]
    if not below:
        return None
    found = load_imported(below[-1])
    return found if below[-1] == minor else replace(found, exact=False)


def load_imported(minor: str, folder: Path | None = None) -> Imported:
    """One table, read strictly. Raises DataError."""
    top = read_json((folder or data_dir("compat")) / "imports" / f"{minor}.json")
    if top.whole("schema_version") != 1:
        raise top.fail("schema_version must be 1")
    top.text("as_of")
    result = Imported(
        tensorflow=top.text("tensorflow"),
        python=top.text("python"),
        needs=_lists(top.table("needs")),
        must=top.texts("must"),
        tried=top.texts("tried"),
        family=_lists(top.table("family")),
        standard=_lists(top.table("standard")),
        shadowable=frozenset(top.texts("shadowable")),
        idle=frozenset(top.texts("idle")),
        sets=tuple(_versions(top, raw) for raw in top.tables("sets")),
    )
    top.done()
    if versions.major_minor(result.tensorflow) != minor:
        msg = f"`tensorflow` {result.tensorflow} does not belong to a file of this name"
        raise top.fail(msg)
    return result


def _lists(table: Table) -> dict[str, tuple[str, ...]]:
    return {name: table.texts(name) for name in list(table.raw)}


def _versions(top: Table, raw: object) -> dict[str, str]:
    row = Table(raw, f"{top.where}: sets")
    return {name: row.text(name) for name in list(row.raw)}
