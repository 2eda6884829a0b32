"""The card and the driver that are simulated: what the tables know of them, and what nobody can know. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.errors import UsageError
from tfdoctor.findings import Simulation
from tfdoctor.fit import Card, find_driver_refusal, find_newest_driver
from tfdoctor.records import dataclass
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.compat import Compat

__all__ = ["LABEL", "Simulated", "add_stand_in", "make_simulated", "make_software_variables"]

LABEL = "(simulated)"
"""What stands behind each card's name, so that no log of a simulation passes for a real one."""
MEMORY_MIB = 16384
"""What a card is given whose memory its name does not say."""
MULTIPROCESSORS = 40
"""What each card is given: above TensorFlow's least (8), alike, so that none is left out for being the slower one."""
_MEMORY = re.compile(r"\b(\d{1,3}) ?GB\b")
_UNSAFE = re.compile(r"[;,\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Simulated:
    """Stand-in cards behind a stand-in driver."""

    cards: tuple[Card, ...]
    """One entry a card, in the driver's order."""
    driver: str
    """The whole version that it tells: `"550.54.15"`."""
    cuda: str
    """The CUDA version that it tells: `"12.4"`."""
    undriven: tuple[str, ...] = ()
    """Why this driver does not show some of the cards, a sentence each."""
    shown: tuple[Card, ...] = ()
    """The cards that it shows."""
    typed: tuple[str, ...] = ()
    """The options, as they are typed."""

    @property
    def title(self) -> str:
        """Return "2 x GeForce RTX 4090 (compute capability 8.9), driver 550.54.15 (CUDA 12.4)"."""
        each: dict[Card, int] = {}
        for card in self.cards:
            each[card] = each.get(card, 0) + 1
        names = [
            f"{f'{count} x ' if count > 1 else ''}{card.name}"
            + ("" if "capability" in card.name else f" (compute capability {card.capability})")
            for card, count in each.items()
        ]
        return f"{join_words(names)}, driver {self.driver} (CUDA {self.cuda})"

    @property
    def variables(self) -> dict[str, str]:
        """Return what the stand-in reads (see standin/libcuda.c)."""
        major, minor = map(int, versions.major_minor(self.cuda).split("."))
        names = (_UNSAFE.sub(" ", card.name)[:80] for card in self.shown)
        return {
            "STANDIN_GPUS": str(len(self.shown)),
            "STANDIN_CC": ",".join(card.capability.replace(".", "") for card in self.shown) or "80",
            "STANDIN_NAME": ";".join(f"{name} {LABEL}" for name in names),
            "STANDIN_MEM_MIB": ",".join(str(parse_memory(card) or MEMORY_MIB) for card in self.shown),
            "STANDIN_MP": str(MULTIPROCESSORS),
            "STANDIN_CUDA": str(1000 * major + 10 * minor),
            "STANDIN_DRIVER": self.driver,
        }

    def does_not_prove(self, *, computed: bool = False) -> tuple[str, ...]:
        """List what no simulation can know, a phrase each. `computed`: software has computed."""
        unknown = [card.name for card in dict.fromkeys(self.cards) if parse_memory(card) is None]
        told = f"the tables do not have it, and the stand-in tells {MEMORY_MIB >> 10} GiB"
        own = "its own faults, whether it is installed rightly, and whether this very version knows this very card"
        not_computed = (
            "that anything is computed, rightly or at all: no product, convolution or all-reduce is tried"
        )
        in_software = "cuBLAS, cuDNN, NCCL and the machine code of the kernels: software stood in for them"
        return (
            in_software if computed else not_computed,
            "speed, and how long a first start takes",
            f"the real driver {self.driver}: {own}",
            "the real card: its health, its links, its number of multiprocessors",
            *([f"the memory of {join_words(unknown)}: {told}"] if unknown else []),
            "how a container engine gives GPUs to a container",
        )

    def simulation(self, proves: Sequence[str], *, computed: bool = False) -> Simulation:
        """Return its description, with what was shown: a phrase each. `computed`: software has computed."""
        return Simulation(
            title=self.title,
            cards=tuple(card.name for card in self.cards),
            capabilities=tuple(card.capability for card in self.cards),
            driver=self.driver,
            cuda=self.cuda,
            proves=tuple(proves),
            does_not_prove=self.does_not_prove(computed=computed),
        )


def parse_memory(card: Card) -> int | None:
    """Return MiB, if the GPU's own name says it (`"A100-SXM4-80GB"`)."""
    match = _MEMORY.search(card.name)
    return int(match[1]) << 10 if match is not None else None


def make_simulated(
    compat: Compat, cards: Sequence[Card], *, driver: str | None = None, typed: Sequence[str] = ()
) -> Simulated:
    """Return the stand-in for these GPUs.

    `driver`: a whole version or a branch; None: the newest known that drives them all.

    A driver that does not know a card is allowed: it then does not show it, as the real one would not. Raises
    UsageError where a card or a driver does not exist, or nobody knows which CUDA the driver speaks.
    """
    for card in cards:
        _check_card(compat, card)
    whole = find_newest_driver(compat, driver) if driver is not None else _find_newest(compat, cards)
    cuda = compat.newest_cuda_for_driver(whole)
    if cuda is None:
        msg = f"--driver: which CUDA driver {whole} speaks is not known: the tables end before it, or begin after it."
        raise UsageError(msg, hint=f"The newest that is known: {_list_drivers(compat)[0]} ({compat.as_of}).")
    why = {card: find_driver_refusal(compat, whole, card) for card in cards}
    return Simulated(
        cards=tuple(cards),
        driver=whole,
        cuda=cuda,
        undriven=tuple(reason[1] for reason in why.values() if reason is not None),
        shown=tuple(card for card in cards if why[card] is None),
        typed=tuple(typed),
    )


def _check_card(compat: Compat, card: Card) -> None:
    """Raise UsageError if the name means several GPUs, or nothing has that compute capability."""
    if card.others:
        each = join_words([card.capability, *card.others])
        msg = f"--simulate: `{card.name}` is the name of cards of compute capability {each}."
        raise UsageError(msg, hint=f"Give its compute capability instead: --simulate {card.capability}")
    if any(gpu.capability == card.capability for gpu in compat.gpus):
        return
    known = sorted({gpu.capability for gpu in compat.gpus}, key=versions.parse_capability)
    msg = f"--simulate: no NVIDIA GPU of compute capability {card.capability} is known."
    raise UsageError(msg, hint=f"There are {', '.join(known)}.")


def _list_drivers(compat: Compat) -> list[str]:
    """Return the drivers of the table, newest first."""
    known = {row.linux for row in compat.cuda_releases if row.linux is not None}
    return sorted(known, key=versions.numbers, reverse=True)


def _find_newest(compat: Compat, cards: Sequence[Card]) -> str:
    """Return the newest driver of the table that drives all the GPUs. Raises UsageError if none does."""
    for driver in _list_drivers(compat):
        if all(find_driver_refusal(compat, driver, card) is None for card in cards):
            return driver
    names = join_words([card.name for card in dict.fromkeys(cards)])
    one = len(set(cards)) == 1
    msg = f"--simulate: no driver that is known drives {names}{'' if one else ' together'}."
    raise UsageError(msg, hint="Say which driver is meant: --driver 550.")


def add_stand_in(env: Mapping[str, str], asked: Simulated, folder: str) -> dict[str, str]:
    """Return these variables with the stand-in of `folder` behind all that LD_LIBRARY_PATH has.

    There a driver is found, too: what stands before a driver has to stand before the stand-in.
    """
    before = env.get("LD_LIBRARY_PATH", "").rstrip(":")
    others = {name: text for name, text in env.items() if not name.startswith("STANDIN_")}
    return {**others, **asked.variables, "LD_LIBRARY_PATH": f"{before}:{folder}" if before else folder}


def make_software_variables(env: Mapping[str, str], folder: str, text: tuple[int, int]) -> dict[str, str]:
    """Return what is set besides `add_stand_in`'s variables if the software GPU of `folder` computes.

    Its libraries stand before all others, for NVIDIA's own run on NVIDIA's driver alone; NCCL, which wheels
    have inside
    them, is preloaded. `text`: the capability up to
    which PTX is taken. cuDNN is not tried out: that writes and reads megabytes around each result.
    """
    before, preloaded = env.get("LD_LIBRARY_PATH", "").rstrip(":"), env.get("LD_PRELOAD", "")
    nccl = f"{folder}/libnccl.so.2"
    return {
        "LD_LIBRARY_PATH": f"{folder}:{before}" if before else folder,
        "LD_PRELOAD": f"{nccl}:{preloaded}" if preloaded else nccl,
        "STANDIN_TEXTS": "".join(map(str, text)),
        "TF_CUDNN_USE_AUTOTUNE": "0",
        "TF_DISABLE_RZ_CHECK": "1",
    }
