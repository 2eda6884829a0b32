"""What compat/gpus.json holds, and the answers made from it (see models)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Gpu", "GpuMatch"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One name and its PCI device ids (compat/gpus.json)."""

    name: str
    capability: str
    pci_ids: tuple[str, ...]
    """Four hexadecimal digits, lower case."""
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """What a GPU's name can mean."""

    query: str
    gpus: tuple[Gpu, ...]
    capabilities: tuple[str, ...]
    """Lowest first."""
    exact: bool
    """Some GPU has just this name, brand words aside; else all its words occur in theirs."""

    @property
    def ambiguous(self) -> bool:
        """Whether cards of different compute capability go by this name: ask for the PCI id."""
        return len(self.capabilities) > 1
