"""GPU properties that follow from the compute capability: compat/cards.toml, a hand-written table."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from tfdoctor.compat.decode import Capability, Converted, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = [
    "Cards",
    "DataCenterGpus",
    "Float32Throughput",
    "Generation",
    "MemoryReserve",
    "NvLink",
    "OpenModule",
    "OtherVendor",
    "PciExpress",
    "TensorCoreThroughput",
    "UnsupportedGpus",
    "load_cards",
]


def _parse_majors(mib_by_major: Mapping[str, int]) -> dict[int, int]:
    """Convert the keys, which are major numbers of compute capabilities, to integers."""
    return {int(major): mib for major, mib in mib_by_major.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedGpus:
    """GPUs that new drivers no longer support (`[[ended]]`)."""

    NAMED: ClassVar = ("name",)
    capability_limit: Capability = field(metadata={"key": "below"})
    """The entry is for the GPUs below this capability that are in no earlier entry."""
    name: str
    last_branch: str = field(metadata={"key": "last"})
    """Last driver branch that supports them."""
    first_branch_without: str = field(metadata={"key": "first_without"})
    """First driver branch that does not support them."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModule:
    """GPUs that NVIDIA's open kernel module supports (`[open_module]`)."""

    min_capability: Capability = field(metadata={"key": "drives_from"})
    """Lowest capability that the open module supports."""
    min_exclusive_capability: Capability = field(metadata={"key": "alone_from"})
    """Lowest capability that only the open module supports."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The common name of the GPUs with a capability (`[[generation]]`)."""

    NAMED: ClassVar = ("name",)
    capability: Capability
    name: str
    """Best known GPU or series, such as `"RTX 30"`."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCenterGpus:
    """The GPUs on which NVIDIA supports forward compatibility (`[data_center]`), by the words of their names."""

    words: tuple[str, ...]
    """Lower-case words, one of which the name has."""
    other_brands: tuple[str, ...] = field(metadata={"key": "brands"})
    """Lower-case words that the name does not have."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherVendor:
    """A maker of processors that are no NVIDIA GPUs (`[[other_vendor]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    words: tuple[str, ...]
    """Lower-case words of the names of its processors."""
    advice: str
    """What TensorFlow has for them, as a sentence."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Float32Throughput:
    """Float32 throughput of one multiprocessor (`[[float32]]`)."""

    NAMED: ClassVar = ("capability",)
    capability: str
    """Capability such as `"8.0"`; `"8"` stands for all other capabilities of that major."""
    per_clock: int
    """Multiply-adds per clock cycle."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreThroughput:
    """Tensor core throughput of one multiprocessor (`[[tensor]]`)."""

    NAMED: ClassVar = ("capability", "dtype")
    capability: Capability
    dtype: str
    """Type of the factors: tf32, float16 or bfloat16. Sums are accumulated in float32."""
    per_clock: int
    """Dense multiply-adds per clock cycle."""
    reference_gpu: str = field(metadata={"key": "card"})
    """GPU model whose documented peak throughput was used."""
    multiprocessors: int
    clock_mhz: int
    tflops: int
    """Documented peak of `card`, from which `per_clock` was calculated."""
    sources: Sources
    name_word: str | None = field(default=None, metadata={"key": "named"})
    """Word that the name of the GPU must contain; None for all GPUs with the capability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciExpress:
    """Speed of PCI Express (`[[pcie]]`)."""

    NAMED: ClassVar = ("generation",)
    generation: int
    lane_mbps: int
    """Speed of one lane in one direction, in 10⁶ bytes per second."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """Speed of NVLink (`[[nvlink]]`)."""

    NAMED: ClassVar = ("capability",)
    capability: Capability
    link_mbps: int
    """Speed of one link in one direction, in 10⁶ bytes per second."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReserve:
    """The part of the free GPU memory that TensorFlow does not use (`[reserve]`), in MiB."""

    since: str
    """First TensorFlow minor for which the amounts are known."""
    small_mib: int = field(metadata={"key": "small"})
    """Unused amount if less than `small_below` is free."""
    small_limit_mib: int = field(metadata={"key": "small_below"})
    mib_by_max_major: Annotated[Mapping[int, int], Converted(Mapping[str, int], _parse_majors)] = field(
        metadata={"key": "upto"}
    )
    """Unused amount for GPUs up to a major capability, by that major, lowest first."""
    mib_above_max_major: int = field(metadata={"key": "above"})
    """Unused amount for all higher capabilities."""
    sources: Sources

    def compute_reserve(self, capability: str, free: int) -> int:
        """Return how many of `free` MiB TensorFlow does not use on a GPU of this capability."""
        if free < self.small_limit_mib:
            return self.small_mib
        major = versions.parse_capability(capability)[0]
        return next(
            (mib for highest, mib in self.mib_by_max_major.items() if major <= highest),
            self.mib_above_max_major,
        )


@dataclass(frozen=True, slots=True)
class Cards:
    """The GPU properties in the file."""

    as_of: str
    unsupported_gpus: tuple[UnsupportedGpus, ...] = field(metadata={"key": "ended"})
    """Oldest capabilities first."""
    open_module: OpenModule
    generations: tuple[Generation, ...] = field(metadata={"key": "generation"})
    """Lowest capability first."""
    data_center: DataCenterGpus
    other_vendors: tuple[OtherVendor, ...] = field(metadata={"key": "other_vendor"})
    float32: tuple[Float32Throughput, ...]
    memory_reserve: MemoryReserve = field(metadata={"key": "reserve"})
    tensor_throughputs: tuple[TensorCoreThroughput, ...] = field(metadata={"key": "tensor"})
    pcie: tuple[PciExpress, ...]
    nvlink: tuple[NvLink, ...]

    def find_unsupported(self, capability: str) -> UnsupportedGpus | None:
        """Return the entry for GPUs of this capability; None if new drivers still support them."""
        return next(
            (
                entry
                for entry in self.unsupported_gpus
                if not versions.is_at_least(capability, entry.capability_limit)
            ),
            None,
        )

    def is_data_center(self, name: str) -> bool:
        """Return whether a GPU is known to be a data-centre GPU by its name (`"Tesla T4"`)."""
        words = _split_name(name)
        return bool(words & {*self.data_center.words}) and not words & {*self.data_center.other_brands}

    def find_other_vendor(self, name: str) -> OtherVendor | None:
        """Return the maker that a name means if it is not the name of an NVIDIA GPU; None if it is not known."""
        words = _split_name(name)
        return next((vendor for vendor in self.other_vendors if words & {*vendor.words}), None)

    def get_adds_per_clock(self, capability: str) -> int | None:
        """Return the float32 multiply-adds per clock cycle of one multiprocessor; None if not known."""
        per_clock = {entry.capability: entry.per_clock for entry in self.float32}
        return per_clock.get(capability, per_clock.get(capability.partition(".")[0]))

    def list_adds_per_clock(self, capability: str, name: str | None) -> dict[str, int]:
        """Return the multiply-adds per clock cycle of one multiprocessor of this GPU, by data type.

        Data types without a known number are omitted.
        """
        per_clock = {"float32": float32} if (float32 := self.get_adds_per_clock(capability)) else {}
        for entry in self.tensor_throughputs:
            if entry.capability == capability and (
                entry.name_word is None or entry.name_word in (name or "").split()
            ):
                per_clock[entry.dtype] = entry.per_clock
        return per_clock

    def compute_pcie_gbps(self, generation: int, lanes: int) -> float | None:
        """Return the speed of a PCI Express link in one direction, in 10⁹ bytes per second; None if not known.

        Packet overhead is not subtracted.
        """
        mbps_per_lane = next((entry.lane_mbps for entry in self.pcie if entry.generation == generation), None)
        return mbps_per_lane * lanes / 1000 if mbps_per_lane is not None else None

    def compute_nvlink_gbps(self, capability: str, links: int) -> float | None:
        """Return the speed of all NVLink links in one direction, in 10⁹ bytes per second; None if not known."""
        mbps_per_link = next(
            (entry.link_mbps for entry in self.nvlink if entry.capability == capability), None
        )
        return mbps_per_link * links / 1000 if mbps_per_link is not None else None


def _split_name(name: str) -> frozenset[str]:
    """Return the words of a GPU's name in lower case."""
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))


def load_cards(folder: Path) -> Cards:
    """Load compat/cards.toml. Raise DataError if it is invalid."""
    return read_table(Cards, folder / "cards.toml")
