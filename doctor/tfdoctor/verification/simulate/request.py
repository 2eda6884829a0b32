"""Describe simulated GPUs and their driver, and make the environment variables that simulate them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Simulation
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import join_words
from tfdoctor.prediction.fit.drivers import find_driver_refusal, find_newest_driver, list_known_drivers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.prediction.fit.models import HostGpu

__all__ = ["NAME_SUFFIX", "SimulatedGpus", "add_stand_in", "make_simulated_gpus", "make_software_variables"]

NAME_SUFFIX = "(simulated)"
"""The suffix of each GPU name, so that the log of a simulation cannot be mistaken for a real one."""
MEMORY_MIB = 16384
"""The memory in MiB of a GPU whose name does not contain it."""
MULTIPROCESSOR_COUNT = 40
"""The number of multiprocessors of each GPU. It is above TensorFlow's minimum of 8, so that no GPU is ignored."""
_MEMORY = re.compile(r"(?:\b|\dg\.)(\d{1,3}) ?GB(?=$|[\s+)])", re.IGNORECASE)
"""The memory in the name of a GPU."""
_UNSAFE = re.compile(r"[;,\x00-\x1f\x7f]")
"""Characters that a name in the stand-in's variables may not contain: their separators, and control characters."""


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    """Simulated GPUs with a simulated driver."""

    cards: tuple[HostGpu, ...]
    """The GPUs, in the driver's order."""
    driver: str
    """The full version that the driver reports, such as `"550.54.15"`."""
    cuda: str
    """The CUDA version that the driver reports, such as `"12.4"`."""
    refusal_reasons: tuple[str, ...] = ()
    """One sentence for each kind of GPU that this driver does not support."""
    visible_cards: tuple[HostGpu, ...] = ()
    """The GPUs that this driver supports and therefore lists."""
    typed_options: tuple[str, ...] = ()
    """The command-line options as the user typed them."""

    @property
    def title(self) -> str:
        """A description: "2 x GeForce RTX 4090 (compute capability 8.9), driver 550.54.15 (CUDA 12.4)"."""
        counts: dict[HostGpu, int] = {}
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
        """The environment variables that configure the stand-in (see standin/libcuda.c)."""
        major, minor = map(int, versions.major_minor(self.cuda).split("."))
        names = (_UNSAFE.sub(" ", card.name)[:80] for card in self.visible_cards)
        return {
            "STANDIN_GPUS": str(len(self.visible_cards)),
            "STANDIN_CC": ",".join(card.capability.replace(".", "") for card in self.visible_cards) or "80",
            "STANDIN_NAME": ";".join(f"{name} {NAME_SUFFIX}" for name in names),
            "STANDIN_MEM_MIB": ",".join(
                str(parse_memory_mib(card) or MEMORY_MIB) for card in self.visible_cards
            ),
            "STANDIN_MP": str(MULTIPROCESSOR_COUNT),
            "STANDIN_CUDA": str(1000 * major + 10 * minor),
            "STANDIN_DRIVER": self.driver,
        }

    def list_unproven(self, *, computed: bool = False) -> tuple[str, ...]:
        """Return phrases for what the simulation does not prove.

        `computed` says whether the software GPU computed.
        """
        unknown_memory_names = [
            card.name for card in dict.fromkeys(self.cards) if parse_memory_mib(card) is None
        ]
        memory_note = f"the tables do not have it, and the stand-in tells {MEMORY_MIB >> 10} GiB"
        driver_doubts = "its own faults, whether it is installed rightly, and whether this very version knows this very card"
        nothing_computed_note = "that results are correct: no product, convolution or all-reduce is tried"
        software_note = "cuBLAS, cuDNN, NCCL and the machine code of the kernels: software stood in for them"
        return (
            software_note if computed else nothing_computed_note,
            "speed, and how long a first start takes",
            f"the real driver {self.driver}: {driver_doubts}",
            "the real card: its health, its links, its number of multiprocessors",
            *(
                [f"the memory of {join_words(unknown_memory_names)}: {memory_note}"]
                if unknown_memory_names
                else []
            ),
            "how a container engine gives GPUs to a container",
        )

    def describe(self, proves: Sequence[str], *, computed: bool = False) -> Simulation:
        """Return the description of the simulation for a report.

        `proves` are phrases for what the simulation proved. `computed` says whether the software GPU computed.
        """
        return Simulation(
            title=self.title,
            cards=tuple(card.name for card in self.cards),
            capabilities=tuple(card.capability for card in self.cards),
            driver=self.driver,
            cuda=self.cuda,
            proves=tuple(proves),
            does_not_prove=self.list_unproven(computed=computed),
        )


def parse_memory_mib(card: HostGpu) -> int | None:
    """Return the memory in MiB that a GPU's name contains, as in `"A100-SXM4-80GB"`, or None."""
    sizes = _MEMORY.findall(card.name)  # the last one is that of a MIG instance
    return int(sizes[-1]) << 10 if sizes else None


def make_simulated_gpus(
    compat: Compat, cards: Sequence[HostGpu], *, driver: str | None = None, typed_options: Sequence[str] = ()
) -> SimulatedGpus:
    """Return the simulation of these GPUs.

    `driver` is a full version or a branch; None means the newest known driver that supports all of the GPUs. As with
    a real driver, a GPU that it does not support is not listed. `typed_options` are the command-line options as the user
    typed them.

    Raise UsageError if a GPU or a driver does not exist, or if the CUDA version of the driver is unknown.
    """
    for card in cards:
        _check_card(compat, card)
    version = (
        find_newest_driver(compat, driver) if driver is not None else _find_driver_for_all(compat, cards)
    )
    cuda = compat.find_newest_cuda_for_driver(version)
    if cuda is None:
        msg = f"--driver: which CUDA driver {version} speaks is not known: the tables end before it, or begin after it."
        raise UsageError(
            msg, hint=f"The newest that is known: {list_known_drivers(compat)[0]} ({compat.as_of})."
        )
    refusals = {card: find_driver_refusal(compat, version, card) for card in cards}
    return SimulatedGpus(
        cards=tuple(cards),
        driver=version,
        cuda=cuda,
        refusal_reasons=tuple(
            reason for _, reason, _ in (refusal for refusal in refusals.values() if refusal is not None)
        ),
        visible_cards=tuple(card for card in cards if refusals[card] is None),
        typed_options=tuple(typed_options),
    )


def _check_card(compat: Compat, card: HostGpu) -> None:
    """Raise UsageError if the name means several GPUs, or if no known GPU has this compute capability."""
    if card.other_capabilities:
        capabilities = join_words([card.capability, *card.other_capabilities])
        msg = f"--simulate: `{card.name}` is the name of cards of compute capability {capabilities}."
        raise UsageError(msg, hint=f"Give its compute capability instead: --simulate {card.capability}")
    if any(gpu.capability == card.capability for gpu in compat.gpus):
        return
    known = sorted({gpu.capability for gpu in compat.gpus}, key=versions.parse_capability)
    msg = f"--simulate: no NVIDIA GPU of compute capability {card.capability} is known."
    raise UsageError(msg, hint=f"There are {', '.join(known)}.")


def _find_driver_for_all(compat: Compat, cards: Sequence[HostGpu]) -> str:
    """Return the newest known driver that supports all of these GPUs. Raise UsageError if none does."""
    for driver in list_known_drivers(compat):
        if all(find_driver_refusal(compat, driver, card) is None for card in cards):
            return driver
    names = join_words([card.name for card in dict.fromkeys(cards)])
    is_one_kind = len(set(cards)) == 1
    msg = f"--simulate: no driver that is known drives {names}{'' if is_one_kind else ' together'}."
    raise UsageError(msg, hint="Name the driver: --driver 550.")


def add_stand_in(env: Mapping[str, str], simulated: SimulatedGpus, folder: str) -> dict[str, str]:
    """Return the environment variables for the stand-in in `folder`, which is appended to LD_LIBRARY_PATH.

    It comes last, so that a libcuda that would hide a real driver also hides the stand-in.
    """
    library_path = env.get("LD_LIBRARY_PATH", "").rstrip(":")
    other_variables = {name: value for name, value in env.items() if not name.startswith("STANDIN_")}
    return {
        **other_variables,
        **simulated.variables,
        "LD_LIBRARY_PATH": f"{library_path}:{folder}" if library_path else folder,
    }


def make_software_variables(
    env: Mapping[str, str], folder: str, max_ptx_capability: tuple[int, int]
) -> dict[str, str]:
    """Return the additional environment variables for the software GPU in `folder` (see `add_stand_in`).

    Its libraries come before all others, because NVIDIA's libraries work only with NVIDIA's driver. NCCL is preloaded,
    because wheels contain their own. cuDNN's autotuner is turned off, because it writes and reads megabytes around each
    result. `max_ptx_capability` is the highest (major, minor) compute capability whose PTX is accepted.
    """
    library_path, preloaded = env.get("LD_LIBRARY_PATH", "").rstrip(":"), env.get("LD_PRELOAD", "")
    nccl = f"{folder}/libnccl.so.2"
    return {
        "LD_LIBRARY_PATH": f"{folder}:{library_path}" if library_path else folder,
        "LD_PRELOAD": f"{nccl}:{preloaded}" if preloaded else nccl,
        "STANDIN_TEXTS": "".join(map(str, max_ptx_capability)),
        "TF_CUDNN_USE_AUTOTUNE": "0",
        "TF_DISABLE_RZ_CHECK": "1",
    }
