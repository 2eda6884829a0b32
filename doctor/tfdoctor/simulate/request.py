"""The simulated GPUs and driver: what the tables know about them, and what a simulation cannot show. Pure."""

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
"""Suffix of each GPU's name, so that the log of a simulation cannot pass for a real one."""
MEMORY_MIB = 16384
"""Memory of a GPU whose name does not say it, in MiB."""
MULTIPROCESSORS = 40
"""Multiprocessors of each GPU: more than TensorFlow's minimum of 8, and equal, so that none is ignored as slower."""
_MEMORY = re.compile(r"\b(\d{1,3}) ?GB\b")
_UNSAFE = re.compile(r"[;,\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Simulated:
    """Stand-in GPUs with a stand-in driver."""

    cards: tuple[Card, ...]
    """The GPUs, in the driver's order."""
    driver: str
    """The full version that the driver reports: `"550.54.15"`."""
    cuda: str
    """The CUDA version that the driver reports: `"12.4"`."""
    refusal_reasons: tuple[str, ...] = ()
    """Why this driver does not support some of the GPUs, one sentence each."""
    shown: tuple[Card, ...] = ()
    """The GPUs that the driver shows."""
    typed: tuple[str, ...] = ()
    """The command-line options as the user typed them."""

    @property
    def title(self) -> str:
        """A description: "2 x GeForce RTX 4090 (compute capability 8.9), driver 550.54.15 (CUDA 12.4)"."""
        counts: dict[Card, int] = {}
        for card in self.cards:
            counts[card] = counts.get(card, 0) + 1
        names = [
            f"{f'{count} x ' if count > 1 else ''}{card.name}"
            + ("" if "capability" in card.name else f" (compute capability {card.capability})")
            for card, count in counts.items()
        ]
        return f"{join_words(names)}, driver {self.driver} (CUDA {self.cuda})"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the stand-in reads (see standin/libcuda.c)."""
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
        """Return what the simulation does not show, a phrase each. `computed`: the software GPU computed."""
        unknown = [card.name for card in dict.fromkeys(self.cards) if parse_memory(card) is None]
        memory_note = f"the tables do not have it, and the stand-in tells {MEMORY_MIB >> 10} GiB"
        doubts = "its own faults, whether it is installed rightly, and whether this very version knows this very card"
        not_computed = (
            "that anything is computed, rightly or at all: no product, convolution or all-reduce is tried"
        )
        in_software = "cuBLAS, cuDNN, NCCL and the machine code of the kernels: software stood in for them"
        return (
            in_software if computed else not_computed,
            "speed, and how long a first start takes",
            f"the real driver {self.driver}: {doubts}",
            "the real card: its health, its links, its number of multiprocessors",
            *([f"the memory of {join_words(unknown)}: {memory_note}"] if unknown else []),
            "how a container engine gives GPUs to a container",
        )

    def simulation(self, proves: Sequence[str], *, computed: bool = False) -> Simulation:
        """Return the description of the simulation for a report.

        `proves`: what the simulation showed, a phrase each. `computed`: the software GPU computed.
        """
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
    """Return the memory in MiB if the name of the GPU has it (`"A100-SXM4-80GB"`); else None."""
    match = _MEMORY.search(card.name)
    return int(match[1]) << 10 if match is not None else None


def make_simulated(
    compat: Compat, cards: Sequence[Card], *, driver: str | None = None, typed: Sequence[str] = ()
) -> Simulated:
    """Return the stand-in for these GPUs.

    `driver`: a full version or a branch; None: the newest known one that supports all GPUs. A driver that
    does not support a GPU is allowed: like the real one, it does not show that GPU. `typed`: the options as
    typed. Raises UsageError if a GPU or a driver does not exist, or if the CUDA version of the driver is
    unknown.
    """
    for card in cards:
        _check_card(compat, card)
    version = (
        find_newest_driver(compat, driver) if driver is not None else _find_driver_for_all(compat, cards)
    )
    cuda = compat.newest_cuda_for_driver(version)
    if cuda is None:
        msg = f"--driver: which CUDA driver {version} speaks is not known: the tables end before it, or begin after it."
        raise UsageError(msg, hint=f"The newest that is known: {_list_drivers(compat)[0]} ({compat.as_of}).")
    refusals = {card: find_driver_refusal(compat, version, card) for card in cards}
    return Simulated(
        cards=tuple(cards),
        driver=version,
        cuda=cuda,
        refusal_reasons=tuple(reason[1] for reason in refusals.values() if reason is not None),
        shown=tuple(card for card in cards if refusals[card] is None),
        typed=tuple(typed),
    )


def _check_card(compat: Compat, card: Card) -> None:
    """Raise UsageError if the name means several GPUs, or no GPU has that compute capability."""
    if card.others:
        capabilities = join_words([card.capability, *card.others])
        msg = f"--simulate: `{card.name}` is the name of cards of compute capability {capabilities}."
        raise UsageError(msg, hint=f"Give its compute capability instead: --simulate {card.capability}")
    if any(gpu.capability == card.capability for gpu in compat.gpus):
        return
    known = sorted({gpu.capability for gpu in compat.gpus}, key=versions.parse_capability)
    msg = f"--simulate: no NVIDIA GPU of compute capability {card.capability} is known."
    raise UsageError(msg, hint=f"There are {', '.join(known)}.")


def _list_drivers(compat: Compat) -> list[str]:
    """Return the drivers in the table, newest first."""
    drivers = {release.linux for release in compat.cuda_releases if release.linux is not None}
    return sorted(drivers, key=versions.numbers, reverse=True)


def _find_driver_for_all(compat: Compat, cards: Sequence[Card]) -> str:
    """Return the newest driver in the table that supports all these GPUs. Raises UsageError if none does."""
    for driver in _list_drivers(compat):
        if all(find_driver_refusal(compat, driver, card) is None for card in cards):
            return driver
    names = join_words([card.name for card in dict.fromkeys(cards)])
    is_single = len(set(cards)) == 1
    msg = f"--simulate: no driver that is known drives {names}{'' if is_single else ' together'}."
    raise UsageError(msg, hint="Say which driver is meant: --driver 550.")


def add_stand_in(env: Mapping[str, str], simulated: Simulated, folder: str) -> dict[str, str]:
    """Return the variables with the stand-in in `folder` at the end of LD_LIBRARY_PATH.

    A real driver is found there, too: what precedes a driver must precede the stand-in.
    """
    path = env.get("LD_LIBRARY_PATH", "").rstrip(":")
    others = {name: text for name, text in env.items() if not name.startswith("STANDIN_")}
    return {**others, **simulated.variables, "LD_LIBRARY_PATH": f"{path}:{folder}" if path else folder}


def make_software_variables(env: Mapping[str, str], folder: str, text: tuple[int, int]) -> dict[str, str]:
    """Return the variables to set in addition to those of `add_stand_in` for the software GPU in `folder`.

    Its libraries come before all others, because NVIDIA's work only with NVIDIA's driver. NCCL, which wheels
    contain, is preloaded. `text`: the compute capability up to which PTX is accepted. The autotuner of cuDNN
    is turned off because it writes and reads megabytes around each result.
    """
    path, preloaded = env.get("LD_LIBRARY_PATH", "").rstrip(":"), env.get("LD_PRELOAD", "")
    nccl = f"{folder}/libnccl.so.2"
    return {
        "LD_LIBRARY_PATH": f"{folder}:{path}" if path else folder,
        "LD_PRELOAD": f"{nccl}:{preloaded}" if preloaded else nccl,
        "STANDIN_TEXTS": "".join(map(str, text)),
        "TF_CUDNN_USE_AUTOTUNE": "0",
        "TF_DISABLE_RZ_CHECK": "1",
    }
