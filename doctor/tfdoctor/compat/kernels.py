"""The kernels of each operation by device and data type: compat/kernels.json, measured in the wheels.

An operation runs on a GPU only if the release registers a GPU kernel that accepts its types. A type that no kernel
accepts is unsupported. A type that some kernel accepts may still be unsupported in combination with other attributes.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tfdoctor.compat.decode import DataError, Sources, read_table
from tfdoctor.compat.source_lines import expand_span
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["Kernels", "OperationKernels", "Types", "load_kernels", "normalize_type"]

Types = Mapping[str, frozenset[str]]
"""The types that kernels accept, by attribute: `{"T": {"float16", "float32"}}`. Attributes without limits are omitted."""
_CPP_TYPE_NAMES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
}
"""The names in tf.dtypes of types that have other names in C++."""
_MINOR_RANGE = re.compile(r"(\d{1,3}\.\d{1,3})(?:-(\d{1,3}\.\d{1,3}))?")
"""A minor release, such as "2.10", or a range, such as "2.4-2.11"."""


@dataclass(frozen=True, slots=True)
class OperationKernels:
    """The kernels of an operation in one release."""

    cpu_types: Types | None
    """Types of its CPU kernels; None if it has none."""
    gpu_types: Types | None
    """Types of its GPU kernels; None if it has none."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The kernels of an operation in all releases."""

    cpu_types: str = field(default="", metadata={"key": "cpu"})
    """The types that the CPU kernels accept, such as `"T=3;Tidx=7:0-5,9 :6-8"`.

    Each group assigns to attributes the index of their types in `sets`. After the colon are the indices in `releases` of
    the releases that the group is for. A group without attributes accepts any types.
    """
    gpu_types: str = field(default="", metadata={"key": "gpu"})
    """The types that the GPU kernels accept, in the same format."""


@dataclasses.dataclass(frozen=True)
class Kernels:
    """The kernels of all measured releases."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Measured releases, oldest first, one of each minor."""
    type_sets: tuple[str, ...] = field(metadata={"key": "sets"})
    """Sets of type names, such as `"float16,float32"`."""
    operations: Mapping[str, KernelRow]

    def list_measured(self, minors: str) -> tuple[str, ...]:
        """Return the measured releases of a minor or a range of minors: `"2.10"` or `"2.4-2.11"`.

        The result is empty if `minors` is neither, or if the first or last minor was not measured.
        """
        match = _MINOR_RANGE.fullmatch(minors)
        if match is None:
            return ()
        measured_minors = [versions.major_minor(release) for release in self.releases]
        first, last = match[1], match[2] or match[1]
        if first not in measured_minors or last not in measured_minors:
            return ()
        return self.releases[measured_minors.index(first) : measured_minors.index(last) + 1]

    def find_kernels(self, release: str, operation: str) -> OperationKernels | None:
        """Return the kernels of an operation in a release; None if it has none or was not measured.

        Raise DataError if the table is invalid.
        """
        row = self.operations.get(operation)
        if row is None or release not in self.releases:
            return None
        try:
            kernels = OperationKernels(
                self._parse_types(row.cpu_types, release), self._parse_types(row.gpu_types, release)
            )
        except (ValueError, IndexError) as error:
            msg = f"compat/kernels.json: {operation}: {error}"
            raise DataError(msg) from error
        return None if kernels.cpu_types is None and kernels.gpu_types is None else kernels

    def _parse_types(self, text: str, release: str) -> Types | None:
        """Parse a text of `KernelRow` for one release; return None if that release has no kernel."""
        for group in text.split():
            limits, _, indices = group.partition(":")
            if any(release in expand_span(self.releases, part) for part in indices.split(",")):
                pairs = (limit.partition("=") for limit in limits.split(";") if limit)
                return {name: frozenset(self.type_sets[int(index)].split(",")) for name, _, index in pairs}
        return None


def normalize_type(word: str) -> str:
    """Return the tf.dtypes name of a type: `"DT_HALF"` and `"half"` become `"float16"`."""
    plain = word.removeprefix("DT_").removesuffix("_REF").lower()
    return _CPP_TYPE_NAMES.get(plain, plain)


def load_kernels(folder: Path) -> Kernels:
    """Load compat/kernels.json. Raise DataError if it is invalid."""
    return read_table(Kernels, folder / "kernels.json")
