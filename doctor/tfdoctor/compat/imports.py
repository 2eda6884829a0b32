"""What stands beside TensorFlow and breaks its import: compat/imports.toml, read strictly, and asked.

Each row was run: real wheels were imported with a version of the companion on either side of the bracket.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import Table, read_toml
from tfdoctor.data import data_dir
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

__all__ = ["Companion", "breaking", "companions", "load_imports"]

_EFFECTS = ("import", "use")
_CAUSES = ("numpy-abi", "protobuf-conflict", "inconclusive")
_EVIDENCE = ("run", "inferred")


@dataclass(frozen=True, slots=True)
class Companion:
    """One companion package in versions that one set of TensorFlow releases does not stand."""

    id: str
    package: str
    """Its distribution's normalised name: "numpy"."""
    tensorflow: str
    """A PEP 440 set of TensorFlow versions."""
    breaks: str
    """A PEP 440 set of the companion's versions; empty: where it is missing altogether."""
    effect: Literal["import", "use"]
    """Whether `import tensorflow` fails, or only something afterwards."""
    cause: str
    """One word of the contract's causes."""
    error: str
    """What Python prints."""
    text: str
    requirement: str
    """What to install instead: "numpy<2"."""
    unless: Mapping[str, str]
    """Environment variables with which the import works all the same."""
    evidence: Literal["run", "inferred"]
    works: tuple[str, ...]
    """ "2.10.1 with 1.26.4": what was run and works."""
    fails: tuple[str, ...]
    listed: bool = False
    """A missing one is only known as such where TensorFlow's own requirements were compared."""

    def applies(self, tensorflow: str, have: str | None, environment: Mapping[str, str]) -> bool:
        """Whether this TensorFlow does not stand the companion in this version (None: it is not there)."""
        if not versions.satisfies(_public(tensorflow), self.tensorflow):
            return False
        if any(environment.get(name) == value for name, value in self.unless.items()):
            return False
        if have is None or not self.breaks:
            return have is None and not self.breaks
        return versions.is_version(have) and versions.satisfies(have, self.breaks)


def _public(version: str) -> str:
    """The version without what a builder adds: "1.15.5+nv23.03" → "1.15.5"."""
    return version.partition("+")[0]


def breaking(
    tensorflow: str | None,
    distributions: Mapping[str, str],
    environment: Mapping[str, str],
    rows: tuple[Companion, ...] | None = None,
    absent: Collection[str] = (),
) -> tuple[Companion, ...]:
    """The rows that apply, in the file's order. `distributions`: normalised name → installed version.

    `absent`: what TensorFlow's own distribution requires and what was looked for and is not there.
    """
    if tensorflow is None or not versions.is_version(tensorflow):
        return ()
    table = companions() if rows is None else rows
    return tuple(
        row
        for row in table
        if row.applies(tensorflow, distributions.get(row.package), environment)
        and (not row.listed or row.package in absent)
    )


@lru_cache(maxsize=1)
def companions() -> tuple[Companion, ...]:
    """The rows of compat/imports.toml, read once."""
    return load_imports()[1]


def load_imports(folder: Path | None = None) -> tuple[str, tuple[Companion, ...]]:
    """compat/imports.toml: its date and its rows in the file's order. Raises DataError."""
    top = read_toml((folder or data_dir("compat")) / "imports.toml")
    if top.whole("schema_version") != 1:
        raise top.fail("schema_version must be 1")
    as_of = top.text("as_of")
    rows: list[Companion] = []
    for index, raw in enumerate(top.tables("companion")):
        label = raw.get("id", index + 1) if isinstance(raw, dict) else index + 1
        row = Table(raw, f"{top.where}: companion {label}")
        rows.append(_companion(row))
        row.done()
        if rows[-1].id in {known.id for known in rows[:-1]}:
            raise row.fail("this `id` is there twice")
    top.done()
    return as_of, tuple(rows)


def _companion(row: Table) -> Companion:
    breaks = row.opt_text("breaks") or ""
    result = Companion(
        id=row.text("id"),
        package=row.text("package"),
        tensorflow=row.text("tensorflow"),
        breaks=breaks,
        effect=row.choice("effect", _EFFECTS),
        cause=row.choice("cause", _CAUSES),
        error=row.text("error"),
        text=row.text("text"),
        requirement=row.text("requirement"),
        unless=row.pairs("unless", optional=True),
        evidence=row.choice("evidence", _EVIDENCE),
        works=row.texts("works", optional=True),
        fails=row.texts("fails", optional=True),
        listed=row.opt_flag("listed") is True,
    )
    try:
        versions.satisfies("1.0", result.tensorflow)
        versions.satisfies("1.0", result.breaks or ">=0")
    except versions.VersionSyntaxError as error:
        raise row.fail(str(error)) from error
    if result.evidence == "run" and not result.fails:
        raise row.fail("`evidence` is run, and `fails` names no run")
    return result
