"""Parse ``lsmod`` and ``/proc/modules``, which list the loaded kernel modules."""

from __future__ import annotations

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.probes.parsers._text import Parsed, clean_lines, unquote

# lsmod: "nvidia 39059456 115 nvidia_uvm,nvidia_modeset"; /proc/modules adds "Live 0x…" and a trailing comma.
_ROW = make_lazy_pattern(
    r"([A-Za-z0-9_.+-]+)[ \t]+([0-9]{3,12})[ \t]+(-?[0-9]{1,9})(?:[ \t]+([A-Za-z0-9_,.\[\]+-]+))?(?:[ \t]|$)"
)


@dataclass(frozen=True, slots=True)
class ListedModule(Parsed):
    """A kernel module. ``size`` is in bytes, ``used`` is a count, and ``by`` are the modules that use it."""

    module: str
    size: int
    used: int
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleListing(Parsed):
    """The number of all modules, the modules of the NVIDIA driver, and whether nouveau is loaded."""

    n_modules: int
    nvidia_modules: tuple[ListedModule, ...]
    nouveau: bool
    notes: tuple[str, ...] = ()


def parse_modules(text: str) -> list[ListedModule]:
    """Return every module in the output of ``lsmod`` or in ``/proc/modules``."""
    return [module for line in clean_lines(text) if (module := _parse_row(line)) is not None]


def parse_lsmod(text: str) -> ModuleListing:
    """Parse either listing, even if it was filtered by grep."""
    modules = parse_modules(text)
    return ModuleListing(
        n_modules=len(modules),
        nvidia_modules=tuple(module for module in modules if module.module.startswith("nvidia")),
        nouveau=any(module.module == "nouveau" for module in modules),
        notes=() if modules else ("no module rows",),
    )


def _parse_row(line: str) -> ListedModule | None:
    match = _ROW.match(unquote(line))
    if not match:
        return None
    users = (match[4] or "").split(",")
    # /proc/modules prints "-" for no users and adds flags such as "[permanent]".
    user_modules = tuple(user for user in users if user not in ("", "-") and not user.startswith("["))
    return ListedModule(module=match[1], size=int(match[2]), used=int(match[3]), by=user_modules)
