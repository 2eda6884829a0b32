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

__all__ = ["find_driver_refusal", "find_driver_version", "find_newest_driver", "list_refusal_limits"]


def find_driver_version(facts: Facts) -> tuple[str, str] | None:
    """Return the driver's version and its source: the kernel module, NVML, else nvidia-smi."""
    driver = facts.driver
    module, nvml, smi = value_of(driver.kernel_module), value_of(driver.nvml), value_of(driver.smi)
    if module is not None and module.version and versions.is_version(module.version):
        return module.version, getattr(driver.kernel_module, "source", "")
    if nvml is not None and nvml.driver_version and versions.is_version(nvml.driver_version):
        return nvml.driver_version, "nvmlSystemGetDriverVersion"
    if isinstance(smi, SmiFacts) and smi.driver_version and versions.is_version(smi.driver_version):
        return smi.driver_version, getattr(driver.smi, "source", "nvidia-smi")
    return None


def find_newest_driver(compat: Compat, driver: str, platform: Platform = "linux") -> str:
    """Return the newest driver that the tables have of a branch (`"550"` → `"550.54.15"`).

    A whole version is returned as it is.
    """
    if "." in driver:
        return driver
    every = [row.windows if platform == "windows" else row.linux for row in compat.cuda_releases]
    of_branch = [one for one in every if one is not None and versions.major(one) == versions.major(driver)]
    return max(of_branch, key=versions.numbers, default=driver)


def _find_ended_branch(compat: Compat, driver: str, card: Card) -> tuple[Cause, str, str] | None:
    """Return why a driver newer than the card's last branch does not drive it, and the row that says so.

    None if the branch has not ended for the card.
    """
    branch = compat.cards.find_ended(card.capability)
    if branch is None or not versions.is_at_least(driver, branch.first_without):
        return None
    last = f"the last branch for compute capability {card.capability} is {branch.last}"
    why = f"driver {driver} does not drive the {card.name}: {last}"
    return Cause.NO_DEVICE, why, f"cards.toml: [[ended]] {branch.name}"


def find_driver_refusal(
    compat: Compat, driver: str, card: Card, platform: Platform = "linux"
) -> tuple[Cause, str, str] | None:
    """Return cause, sentence and row for a card that this driver does not drive; None if nothing known says so.

    Either its branch is newer than the last one for the card, or the driver is older than the card: its own
    compiler,
    which is that of the CUDA it speaks, has no such target.
    """
    past = _find_ended_branch(compat, driver, card)
    known = None if past is not None else _find_newest_capability(compat, driver, platform)
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


def list_refusal_limits(compat: Compat, platform: Platform = "linux") -> frozenset[str]:
    """Return the versions at which `find_driver_refusal` can change its answer; between two of them it stays the
    same.
    """
    own = [row.windows if platform == "windows" else row.linux for row in compat.cuda_releases]
    branches = [
        row.driver_branch.lstrip("R") for row in compat.all_cuda_series if row.driver_branch is not None
    ]
    known = {one for one in (*own, *branches) if one is not None}
    past = str(max(map(versions.major, known)) + 1)  # what newer branches speak, nobody has seen
    return frozenset({*known, past, *(row.first_without for row in compat.cards.ended)})


@lru_cache(maxsize=256)
def _find_newest_capability(compat: Compat, driver: str, platform: Platform) -> tuple[str, str, str] | None:
    """Return the CUDA that a driver speaks, the newest compute capability it knows, and the row that says so.

    None if it is not known.
    """
    cuda = compat.newest_cuda_for_driver(find_newest_driver(compat, driver, platform), platform)
    if cuda is None:
        return None
    # What a newer toolkit does not know, none before it does: the oldest have no row of their own.
    known = [row for row in compat.all_cuda_series if versions.is_at_least(row.version, cuda)]
    return (cuda, known[0].capabilities[-1], known[0].version) if known else None
