"""``nvidia-smi topo -m``: how GPUs and network cards reach each other."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.parse._text import Parsed, clean_lines, has_ansi
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

_AFFINITY_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_GPU = lazy_pattern(r"GPU[0-9]{1,4}")
# What stands between two devices; SOC was renamed to SYS.
_LINK = lazy_pattern(r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,3}|C2C|N/A|OK|NS|CNS|GNS|TNS|U|DR|--")
# Left of an underline sequence whose escape character was lost.
_BARE_SGR = lazy_pattern(r"\[[0-9]{0,3}m")


@dataclass(frozen=True, slots=True)
class SmiTopo(Parsed):
    """``matrix`` maps row to column to link; ``affinity_tokens`` has, by GPU, what stands right of the
    matrix.

    The affinity tokens are separated by blanks only: a blank cell leaves no trace, so they do not tell their
    column.
    """

    n_gpus: int
    columns: tuple[str, ...]
    nics: tuple[str, ...]
    matrix: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    affinity_tokens: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    affinity_columns: tuple[str, ...] = ()
    ansi: bool = False
    nic_legend: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def parse_smi_topo(text: str) -> SmiTopo:
    """Read the matrix; tabs or blanks, with or without the header's indentation and underlining."""
    lines = [_BARE_SGR.sub("", line) for line in clean_lines(text)]
    at = next((number for number, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        return SmiTopo(0, (), (), ansi=has_ansi(text), notes=("no header row with GPU columns",))
    names, affinity_columns = _header(lines[at])
    known = set(names)
    matrix: dict[str, dict[str, str]] = {}
    affinity: dict[str, tuple[str, ...]] = {}
    for line in lines[at + 1 :]:
        tokens = line.split()
        if len(tokens) < 2 or tokens[0] not in known or tokens[0] in matrix or not _LINK.fullmatch(tokens[1]):
            continue
        label, links = tokens[0], tokens[1 : 1 + len(names)]
        matrix[label] = dict(zip(names, links, strict=False))
        if _GPU.fullmatch(label):
            affinity[label] = tuple(tokens[1 + len(names) :])
    gpus = sum(_GPU.fullmatch(name) is not None for name in names)
    missing = [name for name in names if name not in matrix]
    return SmiTopo(
        n_gpus=gpus,
        columns=names,
        nics=tuple(name for name in names if not _GPU.fullmatch(name)),
        matrix=matrix,
        affinity_tokens=affinity,
        affinity_columns=affinity_columns,
        ansi=has_ansi(text),
        nic_legend=_nic_legend(lines[at + 1 :], known),
        notes=(f"no row for {', '.join(missing[:8])}",) if missing else (),
    )


def _is_header(line: str) -> bool:
    """Return the first GPU heads a column: what follows is another column, not a link."""
    tokens = line.split()
    if not tokens or not _GPU.fullmatch(tokens[0]):
        return False
    return len(tokens) == 1 or not _LINK.fullmatch(tokens[1])


def _header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the device columns and the affinity columns; the latter have blanks in their names."""
    positions = {name: line.find(name) for name in _AFFINITY_COLUMNS}
    shown = tuple(name for name in _AFFINITY_COLUMNS if positions[name] >= 0)
    end = min((positions[name] for name in shown), default=len(line))
    return tuple(line[:end].split()), shown


def _nic_legend(lines: list[str], known: set[str]) -> dict[str, str]:
    """Return the lines ``NIC0: mlx5_0`` under the matrix."""
    legend: dict[str, str] = {}
    for line in lines:
        name, colon, device = line.strip().partition(":")
        if colon and name in known and device.strip():
            legend[name] = device.strip()
    return legend
