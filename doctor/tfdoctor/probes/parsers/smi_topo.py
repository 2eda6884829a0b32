"""Parse ``nvidia-smi topo -m``, the matrix of connections between GPUs and network adapters."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.probes.parsers._text import Parsed, clean_lines, has_ansi

if TYPE_CHECKING:
    from collections.abc import Mapping

_AFFINITY_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_GPU = make_lazy_pattern(r"GPU[0-9]{1,4}")
# A connection between two devices. SOC is the former name of SYS.
_LINK = make_lazy_pattern(r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,3}|C2C|N/A|OK|NS|CNS|GNS|TNS|U|DR|--")
# A terminal escape, such as that for underlining, that lost its escape character.
_BARE_SGR = make_lazy_pattern(r"\[[0-9]{0,3}m")


@dataclass(frozen=True, slots=True)
class SmiTopology(Parsed):
    """The parsed matrix. ``matrix`` maps the device of each row to its links by column.

    ``affinity_tokens`` maps each GPU to the words to the right of the matrix. Their columns are unknown, because an
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


def parse_smi_topo(text: str) -> SmiTopology:
    """Parse the matrix, with tabs or spaces. The header need not be indented or underlined."""
    lines = [_BARE_SGR.sub("", line) for line in clean_lines(text)]
    header_index = next((index for index, line in enumerate(lines) if _is_header(line)), None)
    if header_index is None:
        return SmiTopology(
            n_gpus=0, columns=(), nics=(), ansi=has_ansi(text), notes=("no header row with GPU columns",)
        )
    names, affinity_columns = _parse_header(lines[header_index])
    devices = set(names)
    matrix: dict[str, dict[str, str]] = {}
    affinity_tokens: dict[str, tuple[str, ...]] = {}
    for line in lines[header_index + 1 :]:
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
            affinity_tokens[label] = tuple(tokens[1 + len(names) :])
    gpu_count = sum(_GPU.fullmatch(name) is not None for name in names)
    missing = [name for name in names if name not in matrix]
    return SmiTopology(
        n_gpus=gpu_count,
        columns=names,
        nics=tuple(name for name in names if not _GPU.fullmatch(name)),
        matrix=matrix,
        affinity_tokens=affinity_tokens,
        affinity_columns=affinity_columns,
        ansi=has_ansi(text),
        nic_legend=_parse_nic_legend(lines[header_index + 1 :], devices),
        notes=(f"no row for {', '.join(missing[:8])}",) if missing else (),
    )


def _is_header(line: str) -> bool:
    """Return whether a line is the header. After the first GPU, it has a column name instead of a link."""
    tokens = line.split()
    if not tokens or not _GPU.fullmatch(tokens[0]):
        return False
    return len(tokens) == 1 or not _LINK.fullmatch(tokens[1])


def _parse_header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (device columns, affinity columns). The names of affinity columns contain spaces."""
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
