"""NVIDIA's cards by name and PCI id: compat/gpus.json, and asked."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tfdoctor import versions
from tfdoctor.compat.decode import DataError, Sources, did_you_mean, read
from tfdoctor.records import dataclass

__all__ = ["Gpu", "GpuMatch", "GpuTable", "UnknownGpuError", "core_words", "load_gpus"]

_GPU_WORD = re.compile(r"[a-z0-9]+")
_GPU_GLUE = re.compile(r"\b(rtx|gtx|gts|gt|titan|quadro|tesla|geforce)(?=\d|[a-z]\d)|(?<=\d)(ti|super)\b")
_BRANDS = frozenset({"nvidia", "geforce", "tesla", "quadro", "graphics", "gpu", "corporation", "device"})


class UnknownGpuError(LookupError):
    """No GPU goes by that name; `nearest` lists the closest names."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"no NVIDIA GPU called `{name}` is known{hint}")
        self.name = name
        self.nearest = nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One name and its PCI device ids (compat/gpus.json)."""

    NAMED: ClassVar = ("name", "cc")
    name: str
    capability: str = field(metadata={"key": "cc"})
    pci_ids: tuple[str, ...] = field(default=(), metadata={"key": "pci"})
    """Four hexadecimal digits, lower case."""
    sources: Sources


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """What a GPU's name can mean."""

    query: str
    gpus: tuple[Gpu, ...]
    capabilities: tuple[str, ...]
    """Lowest first."""
    exact: bool
    """Some GPU has just this name, brand words aside; else all its words occur in theirs."""

    @property
    def ambiguous(self) -> bool:
        """Whether cards of different compute capability go by this name: ask for the PCI id."""
        return len(self.capabilities) > 1


@dataclasses.dataclass(frozen=True)
class GpuTable:
    """The whole table."""

    as_of: str
    ambiguous: Mapping[str, str]
    gpus: tuple[Gpu, ...] = field(metadata={"noun": "GPU"})
    """By capability, then name."""

    @cached_property
    def _map_ids(self) -> dict[str, Gpu]:
        # Of several names of one id the first one in the file is kept: they never differ in capability.
        table: dict[str, Gpu] = {}
        for gpu in self.gpus:
            for pci_id in gpu.pci_ids:
                known = table.get(pci_id)
                if known is None or len(gpu.name) > len(known.name):
                    table[pci_id] = gpu
        return table

    def find_by_pci_id(self, pci_id: str) -> Gpu | None:
        """Return the GPU with this PCI device id, or None: `"2684"`, `"0x2684"`, `"10de:2684"`, `"0x268410DE"`."""
        text = pci_id.strip().lower().removeprefix("0x")
        if re.fullmatch(r"[0-9a-f]{4}10de", text):  # as nvidia-smi and NVML write it: device, then vendor
            text = text[:4]
        text = text.removeprefix("10de:")
        return self._map_ids.get(text)

    def find_by_name(self, name: str) -> GpuMatch | None:
        """Return what a GPU's name can mean (`"Tesla V100-SXM2-16GB"`, `"RTX 3060"`, `"h100"`), or None.

        Case, punctuation and the words NVIDIA, GeForce, Tesla, Quadro do not matter. A full match wins; else every
        GPU whose name has all the words.
        """
        words, core = _words(name), core_words(name)
        if not core:
            return None
        tests: tuple[tuple[Callable[[frozenset[str]], bool], bool], ...] = (
            (lambda have: have == words, True),
            (lambda have: have - _BRANDS == core, True),
            (lambda have: core <= have, False),
        )
        for test, exact in tests:
            found = tuple(gpu for gpu, have in self._list_words if test(have))
            if found:
                order = sorted({gpu.capability for gpu in found}, key=versions.parse_capability)
                return GpuMatch(name, found, tuple(order), exact)
        return None

    @cached_property
    def _list_words(self) -> tuple[tuple[Gpu, frozenset[str]], ...]:
        return tuple((gpu, _words(gpu.name)) for gpu in self.gpus)

    def nearest_names(self, name: str, count: int = 3) -> tuple[str, ...]:
        """Return known names that look like `name`, best first."""
        import difflib

        short = {" ".join(sorted(have - _BRANDS)): gpu.name for gpu, have in self._list_words}
        wanted = " ".join(sorted(core_words(name)))
        return tuple(short[key] for key in difflib.get_close_matches(wanted, short, n=count, cutoff=0.5))


def load_gpus(folder: Path) -> GpuTable:
    """Load compat/gpus.json. Raises DataError."""
    return read(GpuTable, folder / "gpus.json", _explain)


def _explain(raw: dict[str, Any], where: str) -> None:
    """Put what the file's `sources` say of a word in the word's place."""
    meant = raw.pop("sources", None)
    rows = raw.get("gpus")
    if type(meant) is not dict or type(rows) is not list:
        msg = f"{where}: `sources` and `gpus` must be a table and a list"
        raise DataError(msg)
    for row in rows:
        words = row.get("sources") if type(row) is dict else None
        if type(words) is not list:
            continue  # refused later
        for place, word in enumerate(words):
            if word not in meant:
                name = row.get("name")
                msg = f"{where}: GPU {name}: source `{word}` is not explained{did_you_mean(str(word), meant)}"
                raise DataError(msg)
            words[place] = meant[word]


def core_words(name: str) -> frozenset[str]:
    """Return the words of a GPU's name that tell it apart, without its brands: the same for `NVIDIA RTX A6000` and
    `RTX A6000`.
    """
    return _words(name) - _BRANDS


def _words(name: str) -> frozenset[str]:
    text = re.sub(r"\((?:r|tm)\)", " ", name.lower())
    text = _GPU_GLUE.sub(lambda match: f" {match[0]} ", text)
    return frozenset(_GPU_WORD.findall(text))
