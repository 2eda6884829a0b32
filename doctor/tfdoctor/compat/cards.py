"""What follows from a compute capability: compat/cards.toml, authored, and asked."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from tfdoctor import versions
from tfdoctor.compat.decode import Capability, Converted, Sources, read
from tfdoctor.records import dataclass

__all__ = [
    "Cards",
    "EndedCards",
    "Float32",
    "Generation",
    "NvLink",
    "OpenModule",
    "PciExpress",
    "Reserve",
    "Tensor",
    "load_cards",
]


def _numbers(pairs: Mapping[str, int]) -> dict[int, int]:
    return {int(major): mib for major, mib in pairs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCards:
    """Cards that new drivers do not drive any more (`[[ended]]`)."""

    NAMED: ClassVar = ("name",)
    below: Capability
    """All below this one that no earlier row has."""
    name: str
    last: str
    """The last branch of the driver for them."""
    first_without: str
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModule:
    """Which cards NVIDIA's open kernel module drives (`[open_module]`)."""

    drives_from: Capability
    alone_from: Capability
    """From this one on the other module does not."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What people call the cards of a capability (`[[generation]]`)."""

    NAMED: ClassVar = ("name",)
    capability: Capability
    name: str
    """The best known card or series: `"RTX 30"`."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Float32:
    """How much one multiprocessor computes (`[[float32]]`)."""

    NAMED: ClassVar = ("capability",)
    capability: str
    """`"8.0"`, or `"8"` for every other one of that major."""
    per_clock: int
    """Multiply-adds in a clock."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """How much the tensor cores of one multiprocessor compute (`[[tensor]]`)."""

    NAMED: ClassVar = ("capability", "dtype")
    capability: Capability
    dtype: str
    """Of the factors: tf32, float16 or bfloat16; the sum is in float32."""
    per_clock: int
    """Dense multiply-adds in a clock."""
    card: str
    multiprocessors: int
    clock_mhz: int
    tflops: int
    """Of the card whose documented peak says so."""
    sources: Sources
    named: str | None = None
    """Only of cards whose name has this word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciExpress:
    """How fast PCI Express is (`[[pcie]]`)."""

    NAMED: ClassVar = ("generation",)
    generation: int
    lane_mbps: int
    """10⁶ bytes a second of one lane in one direction."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """How fast NVLink is (`[[nvlink]]`)."""

    NAMED: ClassVar = ("capability",)
    capability: Capability
    link_mbps: int
    """10⁶ bytes a second of one link in one direction."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What TensorFlow leaves of a card's free memory (`[reserve]`); all in MiB."""

    since: str
    """The first minor of TensorFlow for which it is known."""
    small: int
    """Left where less than `small_below` is free."""
    small_below: int
    upto: Annotated[Mapping[int, int], Converted(Mapping[str, int], _numbers)]
    """Up to this major of the capability → MiB, lowest first."""
    above: int
    sources: Sources

    def compute_remaining(self, capability: str, free: int) -> int:
        """Return what is left of `free` MiB on a card of this capability."""
        if free < self.small_below:
            return self.small
        major = versions.parse_capability(capability)[0]
        return next((mib for newest, mib in self.upto.items() if major <= newest), self.above)


@dataclass(frozen=True, slots=True)
class Cards:
    """The whole table."""

    as_of: str
    ended: tuple[EndedCards, ...]
    """The oldest first."""
    open_module: OpenModule
    generation: tuple[Generation, ...]
    """The lowest capability first."""
    float32: tuple[Float32, ...]
    reserve: Reserve
    tensor: tuple[Tensor, ...]
    pcie: tuple[PciExpress, ...]
    nvlink: tuple[NvLink, ...]

    def find_ended(self, capability: str) -> EndedCards | None:
        """Return the row of a capability that new drivers do not drive any more; None for all others."""
        return next((row for row in self.ended if not versions.is_at_least(capability, row.below)), None)

    def get_adds_per_clock(self, capability: str) -> int | None:
        """Return multiply-adds in float32 of one multiprocessor in a clock, or None if it is not known."""
        known = {row.capability: row.per_clock for row in self.float32}
        return known.get(capability, known.get(capability.partition(".")[0]))

    def list_adds_per_clock(self, capability: str, name: str | None) -> dict[str, int]:
        """Type of the factors → multiply-adds of one multiprocessor in a clock; those that are known of this card."""
        found = {"float32": each} if (each := self.get_adds_per_clock(capability)) else {}
        for row in self.tensor:
            if row.capability == capability and (row.named is None or row.named in (name or "").split()):
                found[row.dtype] = row.per_clock
        return found

    def pcie_gbps(self, generation: int, lanes: int) -> float | None:
        """Return 10⁹ bytes a second in one direction, before packets; None if the generation is not known."""
        lane = next((row.lane_mbps for row in self.pcie if row.generation == generation), None)
        return lane * lanes / 1000 if lane is not None else None

    def nvlink_gbps(self, capability: str, links: int) -> float | None:
        """Return 10⁹ bytes a second in one direction of so many links; None if it is not known."""
        link = next((row.link_mbps for row in self.nvlink if row.capability == capability), None)
        return link * links / 1000 if link is not None else None


def load_cards(folder: Path) -> Cards:
    """Load compat/cards.toml. Raises DataError."""
    return read(Cards, folder / "cards.toml")
