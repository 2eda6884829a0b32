"""For which devices and types a release has kernels: compat/kernels.json, asked of the wheels by scripts.

An operation runs on a GPU only where the release registers a kernel of it for GPUs that takes its types. What is known
of a type is a limit: one that no kernel takes is not served; one that some kernel takes can still be refused together
with another attribute's.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from tfdoctor import versions
from tfdoctor.compat.decode import DataError, Sources, read
from tfdoctor.compat.source_lines import expand_span
from tfdoctor.records import dataclass

__all__ = ["Kernels", "OfOperation", "Types", "load_kernels", "type_named"]

Types = Mapping[str, frozenset[str]]
"""Attribute → the types that some kernel takes: `{"T": {"float16", "float32"}}`. Attributes without a limit are left
out."""
_NAMED = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
}
"""As TensorFlow's C++ calls types: as tf.dtypes does."""
_ERA = re.compile(r"(\d{1,3}\.\d{1,3})(?:-(\d{1,3}\.\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class OfOperation:
    """The kernels of one operation in one release."""

    cpu: Types | None
    """None: it has none."""
    gpu: Types | None


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The kernels of one operation in all releases."""

    cpu: str = ""
    """`"T=3;Tidx=7:0-5,9 :6-8"`: limits (attribute and the place of its types in `sets`; none: any), and the places of
    the releases that have these in `releases`."""
    gpu: str = ""


@dataclasses.dataclass(frozen=True)
class Kernels:
    """The whole table."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Those that were measured, oldest first: one of each minor."""
    sets: tuple[str, ...]
    """Types, by name: `"float16,float32"`."""
    operations: Mapping[str, KernelRow]

    def list_measured(self, era: str) -> tuple[str, ...]:
        """Return those of the minors that a log can be of, `"2.10"` or `"2.4-2.11"`.

        None if the first or last was not.
        """
        found = _ERA.fullmatch(era)
        if found is None:
            return ()
        minors = [versions.major_minor(release) for release in self.releases]
        first, last = found[1], found[2] or found[1]
        if first not in minors or last not in minors:
            return ()
        return self.releases[minors.index(first) : minors.index(last) + 1]

    def find_kernels(self, release: str, operation: str) -> OfOperation | None:
        """Return its kernels in one of `releases`; None: that release has none for CPUs and GPUs.

        Raises DataError.
        """
        row = self.operations.get(operation)
        if row is None or release not in self.releases:
            return None
        try:
            found = OfOperation(self._types(row.cpu, release), self._types(row.gpu, release))
        except (ValueError, IndexError) as error:
            msg = f"compat/kernels.json: {operation}: {error}"
            raise DataError(msg) from error
        return None if found.cpu is None and found.gpu is None else found

    def _types(self, text: str, release: str) -> Types | None:
        for word in text.split():
            limits, _, places = word.partition(":")
            if any(release in expand_span(self.releases, part) for part in places.split(",")):
                pairs = (limit.partition("=") for limit in limits.split(";") if limit)
                return {name: frozenset(self.sets[int(at)].split(",")) for name, _, at in pairs}
        return None


def type_named(word: str) -> str:
    """Return `"DT_HALF"` or `"half"` → `"float16"`."""
    plain = word.removeprefix("DT_").removesuffix("_REF").lower()
    return _NAMED.get(plain, plain)


def load_kernels(folder: Path) -> Kernels:
    """Load compat/kernels.json. Raises DataError."""
    return read(Kernels, folder / "kernels.json")
