"""Which driver is there, and which cards it drives. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import SmiFacts, value_of
from tfdoctor.findings import Cause

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.releases import Platform
    from tfdoctor.facts import Facts
    from tfdoctor.fit.models import Card

__all__ = ["driver_version", "limits_of_cards", "newest_of_branch", "not_driven"]


def driver_version(facts: Facts) -> tuple[str, str] | None:
    """(the driver's version, where it was seen): the kernel module's, NVML's, else nvidia-smi's."""
    driver = facts.driver
    module, nvml, smi = value_of(driver.kernel_module), value_of(driver.nvml), value_of(driver.smi)
    if module is not None and module.version and versions.is_version(module.version):
        return module.version, getattr(driver.kernel_module, "source", "")
    if nvml is not None and nvml.driver_version and versions.is_version(nvml.driver_version):
        return nvml.driver_version, "nvmlSystemGetDriverVersion"
    if isinstance(smi, SmiFacts) and smi.driver_version and versions.is_version(smi.driver_version):
        return smi.driver_version, getattr(driver.smi, "source", "nvidia-smi")
    return None


def newest_of_branch(compat: Compat, driver: str, platform: Platform = "linux") -> str:
    """The newest driver that the tables have of a branch (`"550"` → `"550.54.15"`); a whole version as it is."""
    if "." in driver:
        return driver
    every = [row.windows if platform == "windows" else row.linux for row in compat.cuda_releases]
    of_branch = [one for one in every if one is not None and versions.major(one) == versions.major(driver)]
    return max(of_branch, key=versions.numbers, default=driver)


def _past_branch(compat: Compat, driver: str, card: Card) -> tuple[Cause, str, str] | None:
    """Why a driver of a newer branch than the card's last one does not drive it, and the row that says so, or None."""
    branch = compat.cards.ended_with(card.capability)
    if branch is None or not versions.is_at_least(driver, branch.first_without):
        return None
    last = f"the last branch for compute capability {card.capability} is {branch.last}"
    why = f"driver {driver} does not drive the {card.name}: {last}"
    return Cause.NO_DEVICE, why, f"cards.toml: [[ended]] {branch.name}"


def not_driven(
    compat: Compat, driver: str, card: Card, platform: Platform = "linux"
) -> tuple[Cause, str, str] | None:
    """Why this driver does not drive the card: cause, sentence, the row that says so. None: nothing known says so.

    Its branch is newer than the card's last one; or it came before the card: its own compiler, which is that of the
    CUDA it speaks, has no such target.
    """
    past = _past_branch(compat, driver, card)
    known = None if past is not None else _known_cards(compat, driver, platform)
    if known is None:
        return past
    cuda, newest, series = known
    if versions.parse_capability(card.capability) <= versions.parse_capability(newest):
        return None
    why = f"it speaks CUDA {cuda}, which knows cards up to compute capability {newest}"
    return (
        Cause.DRIVER_TOO_OLD,
        f"driver {driver} is older than the {card.name}: {why}",
        f"cuda.toml: [[series]] {series}",
    )


def limits_of_cards(compat: Compat, platform: Platform = "linux") -> frozenset[str]:
    """The versions at which what `not_driven` says can become something else; between two of them it is the same."""
    own = [row.windows if platform == "windows" else row.linux for row in compat.cuda_releases]
    branches = [
        row.driver_branch.lstrip("R") for row in compat.all_cuda_series if row.driver_branch is not None
    ]
    known = {one for one in (*own, *branches) if one is not None}
    past = str(max(map(versions.major, known)) + 1)  # what newer branches speak, nobody has seen
    return frozenset({*known, past, *(row.first_without for row in compat.cards.ended)})


@lru_cache(maxsize=256)
def _known_cards(compat: Compat, driver: str, platform: Platform) -> tuple[str, str, str] | None:
    """(the CUDA that a driver speaks, the newest compute capability that it knows, the row that says so), if known."""
    cuda = compat.newest_cuda_for_driver(newest_of_branch(compat, driver, platform), platform)
    if cuda is None:
        return None
    # What a newer toolkit does not know, none before it does: the oldest have no row of their own.
    known = [row for row in compat.all_cuda_series if versions.is_at_least(row.version, cuda)]
    return (cuda, known[0].capabilities[-1], known[0].version) if known else None
