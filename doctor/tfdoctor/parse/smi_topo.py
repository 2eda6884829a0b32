"""Parse ``nvidia-smi topo -m``, the matrix of connections between GPUs and network adapters."""

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
# A connection between two devices. SOC is the former name of SYS.
_LINK = lazy_pattern(r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,3}|C2C|N/A|OK|NS|CNS|GNS|TNS|U|DR|--")
# An underline sequence that lost its escape character.
_BARE_SGR = lazy_pattern(r"\[[0-9]{0,3}m")


@dataclass(frozen=True, slots=True)
class SmiTopo(Parsed):
    """The parsed matrix. ``matrix`` has the links by row and column.

    ``affinity_tokens`` has the words to the right of the matrix for each GPU. Their columns are unknown, because an
    empty cell looks like a gap. ``ansi`` says whether the text contains terminal escapes.
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
    """Parse the matrix, with tabs or spaces. The header need not be indented or underlined."""
    lines = [_BARE_SGR.sub("", line) for line in clean_lines(text)]
    header_at = next((number for number, line in enumerate(lines) if _is_header(line)), None)
    if header_at is None:
        return SmiTopo(0, (), (), ansi=has_ansi(text), notes=("no header row with GPU columns",))
    names, affinity_columns = _parse_header(lines[header_at])
    devices = set(names)
    matrix: dict[str, dict[str, str]] = {}
    affinity: dict[str, tuple[str, ...]] = {}
    for line in lines[header_at + 1 :]:
        tokens = line.split()
        if (
            len(tokens) < 2
            or tokens[0] not in devices
            or tokens[0] in matrix
            or not _LINK.fullmatch(tokens[1])
        ):
            continue
        label, links = tokens[0], tokens[1 : 1 + len(names)]
        matrix[label] = dict(zip(names, links, strict=False))
        if _GPU.fullmatch(label):
            affinity[label] = tuple(tokens[1 + len(names) :])
    gpu_count = sum(_GPU.fullmatch(name) is not None for name in names)
    missing = [name for name in names if name not in matrix]
    return SmiTopo(
        n_gpus=gpu_count,
        columns=names,
        nics=tuple(name for name in names if not _GPU.fullmatch(name)),
        matrix=matrix,
        affinity_tokens=affinity,
        affinity_columns=affinity_columns,
        ansi=has_ansi(text),
        nic_legend=_parse_nic_legend(lines[header_at + 1 :], devices),
        notes=(f"no row for {', '.join(missing[:8])}",) if missing else (),
    )


def _is_header(line: str) -> bool:
    """Return whether a line is the header, in which a column name follows the first GPU, not a link."""
    tokens = line.split()
    if not tokens or not _GPU.fullmatch(tokens[0]):
        return False
    return len(tokens) == 1 or not _LINK.fullmatch(tokens[1])


def _parse_header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the device columns and the affinity columns, whose names contain spaces."""
    positions = {name: line.find(name) for name in _AFFINITY_COLUMNS}
    affinity_columns = tuple(name for name in _AFFINITY_COLUMNS if positions[name] >= 0)
    end = min((positions[name] for name in affinity_columns), default=len(line))
    return tuple(line[:end].split()), affinity_columns


def _parse_nic_legend(lines: list[str], devices: set[str]) -> dict[str, str]:
    """Return the device by NIC name, from lines such as ``NIC0: mlx5_0`` below the matrix."""
    legend: dict[str, str] = {}
    for line in lines:
        name, colon, device = line.strip().partition(":")
        if colon and name in devices and device.strip():
            legend[name] = device.strip()
    return legend
