"""NVIDIA's GPUs by name and PCI ID: compat/gpus.json."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tfdoctor.compat.decode import DataError, Sources, format_suggestion, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["Gpu", "GpuMatch", "GpuTable", "UnknownGpuError", "extract_core_words", "load_gpus"]

_GPU_WORD = re.compile(r"[a-z0-9]+")
_JOINED_WORD = re.compile(r"\b(rtx|gtx|gts|gt|titan|quadro|tesla|geforce)(?=\d|[a-z]\d)|(?<=\d)(ti|super)\b")
"""A brand or suffix without a space before or after the number, as in "RTX3060Ti"."""
_BRANDS = frozenset({"nvidia", "geforce", "tesla", "quadro", "graphics", "gpu", "corporation", "device"})


class UnknownGpuError(LookupError):
    """A GPU name is not known. `nearest` lists the closest known names."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"no NVIDIA GPU called `{name}` is known{hint}")
        self.name = name
        self.nearest = nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A name of a GPU, and the PCI device IDs with that name."""

    NAMED: ClassVar = ("name", "cc")
    name: str
    capability: str = field(metadata={"key": "cc"})
    pci_ids: tuple[str, ...] = field(default=(), metadata={"key": "pci"})
    """PCI device IDs of four lower-case hexadecimal digits."""
    sources: Sources


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """The GPUs that match a name."""

    query: str
    gpus: tuple[Gpu, ...]
    capabilities: tuple[str, ...]
    """Lowest first."""
    is_exact: bool
    """Whether the GPUs have exactly this name, apart from brand words. If not, their names contain all of its words."""

    @property
    def is_ambiguous(self) -> bool:
        """Whether the GPUs have different compute capabilities, so that only a PCI ID identifies one."""
        return len(self.capabilities) > 1


@dataclasses.dataclass(frozen=True)
class GpuTable:
    """The known GPUs."""

    as_of: str
    capabilities_by_shared_name: Mapping[str, str] = field(metadata={"key": "ambiguous"})
    """The names that GPUs of several compute capabilities share, with the capabilities: `"3.5, 5.2"`."""
    gpus: tuple[Gpu, ...] = field(metadata={"noun": "GPU"})
    """Sorted by capability, then name."""

    @cached_property
    def _gpus_by_id(self) -> dict[str, Gpu]:
        """The GPUs by PCI ID: the longest name if several share an ID. Their capabilities never differ."""
        table: dict[str, Gpu] = {}
        for gpu in self.gpus:
            for pci_id in gpu.pci_ids:
                current = table.get(pci_id)
                if current is None or len(gpu.name) > len(current.name):
                    table[pci_id] = gpu
        return table

    def find_by_pci_id(self, pci_id: str) -> Gpu | None:
        """Return the GPU with a PCI device ID; None if it is not known.

        `"2684"`, `"0x2684"`, `"10de:2684"` and `"0x268410DE"` are the same ID.
        """
        text = pci_id.strip().lower().removeprefix("0x")
        if re.fullmatch(r"[0-9a-f]{4}10de", text):  # nvidia-smi and NVML write the device before the vendor
            text = text[:4]
        text = text.removeprefix("10de:")
        return self._gpus_by_id.get(text)

    def find_by_name(self, name: str) -> GpuMatch | None:
        """Return the GPUs that match a name (`"Tesla V100-SXM2-16GB"`, `"h100"`); None if none does.

        Case and punctuation are ignored. The GPUs with exactly these words are preferred, then those with the same words
        apart from brands such as NVIDIA or GeForce, then those whose names contain all of the words.
        """
        words, core = _split_words(name), extract_core_words(name)
        if not core:
            return None
        tests: tuple[tuple[Callable[[frozenset[str]], bool], bool], ...] = (
            (lambda gpu_words: gpu_words == words, True),
            (lambda gpu_words: gpu_words - _BRANDS == core, True),
            (lambda gpu_words: core <= gpu_words, False),
        )
        for test, exact in tests:
            matches = tuple(gpu for gpu, gpu_words in self._words_by_gpu if test(gpu_words))
            if matches:
                capabilities = sorted({gpu.capability for gpu in matches}, key=versions.parse_capability)
                return GpuMatch(name, matches, tuple(capabilities), exact)
        return None

    @cached_property
    def _words_by_gpu(self) -> tuple[tuple[Gpu, frozenset[str]], ...]:
        return tuple((gpu, _split_words(gpu.name)) for gpu in self.gpus)

    def find_similar_names(self, name: str, count: int = 3) -> tuple[str, ...]:
        """Return up to `count` known names that are similar to `name`, the best match first."""
        import difflib

        names = {" ".join(sorted(words - _BRANDS)): gpu.name for gpu, words in self._words_by_gpu}
        query = " ".join(sorted(extract_core_words(name)))
        return tuple(names[key] for key in difflib.get_close_matches(query, names, n=count, cutoff=0.5))


def load_gpus(folder: Path) -> GpuTable:
    """Load compat/gpus.json. Raise DataError if it is invalid."""
    return read_table(GpuTable, folder / "gpus.json", _expand_sources)


def _expand_sources(raw: dict[str, Any], location: str) -> None:
    """Replace the keywords in each GPU's `sources` with the texts in the top-level `sources`.

    Raise DataError if a keyword has no text.
    """
    texts = raw.pop("sources", None)
    rows = raw.get("gpus")
    if type(texts) is not dict or type(rows) is not list:
        msg = f"{location}: `sources` and `gpus` must be a table and a list"
        raise DataError(msg)
    for row in rows:
        keywords = row.get("sources") if type(row) is dict else None
        if type(keywords) is not list:
            continue  # `decode` reports the error
        for index, keyword in enumerate(keywords):
            if keyword not in texts:
                name = row.get("name")
                msg = f"{location}: GPU {name}: source `{keyword}` is not explained{format_suggestion(str(keyword), texts)}"
                raise DataError(msg)
            keywords[index] = texts[keyword]


def extract_core_words(name: str) -> frozenset[str]:
    """Return the words of a GPU's name without brands: `NVIDIA RTX A6000` is the same as `RTX A6000`."""
    return _split_words(name) - _BRANDS


def _split_words(name: str) -> frozenset[str]:
    text = re.sub(r"\((?:r|tm)\)", " ", name.lower())
    text = _JOINED_WORD.sub(lambda match: f" {match[0]} ", text)
    return frozenset(_GPU_WORD.findall(text))
