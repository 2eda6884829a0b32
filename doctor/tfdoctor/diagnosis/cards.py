"""Query the GPUs repeatedly, for commands that watch them during a computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import SmiFacts, value_of
from tfdoctor.probes.driver import normalize_bus_id, probe_smi
from tfdoctor.probes.kernel import query_links

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts, SmiGpu
    from tfdoctor.system import System

__all__ = ["find_tensorflow_names", "read_gpu_states", "read_interconnects", "read_peer_access"]

NO_ACCESS_STATES = ("NS", "CNS", "GNS", "TNS", "DR")
"""The codes that nvidia-smi prints if peer access is not possible.

"NS" is not supported, "CNS", "GNS" and "TNS" are not supported by the chipset, the GPU or the topology, and "DR" is
disabled.
"""


def read_gpu_states(system: System, *, timeout: float = 10.0) -> dict[str, SmiGpu]:
    """Return nvidia-smi's current report on each GPU by PCI bus ID; empty if nvidia-smi fails.

    `timeout` is in seconds.
    """
    smi = value_of(probe_smi(system, timeout=timeout))
    if not isinstance(smi, SmiFacts):
        return {}
    return {bus_id: gpu for gpu in smi.gpus if (bus_id := normalize_bus_id(gpu.pci_bus_id))}


def find_tensorflow_names(facts: Facts) -> dict[str, str]:
    """Return the TensorFlow name of each GPU that the driver reports, such as "GPU:0", by PCI bus ID."""
    cuda = value_of(facts.driver.cuda)
    devices = cuda.devices if cuda is not None else ()
    return {
        bus_id: f"GPU:{device.ordinal}"
        for device in devices
        if (bus_id := normalize_bus_id(device.pci_bus_id))
    }


def read_interconnects(system: System, facts: Facts, *, timeout: float = 10.0) -> dict[tuple[str, str], str]:
    """Return the type of link between each pair of TensorFlow's GPUs, as `nvidia-smi topo -m` prints it.

    A pair is ("GPU:0", "GPU:1"). The result is empty if there are fewer than two GPUs.
    """
    if len(find_tensorflow_names(facts)) < 2:
        return {}
    return _rename_pairs(
        value_of(facts.kernel.links) or value_of(query_links(system, timeout=timeout)), facts
    )


def read_peer_access(system: System, facts: Facts, *, timeout: float = 10.0) -> dict[tuple[str, str], bool]:
    """Return for each pair of TensorFlow's GPUs whether they can read each other's memory.

    A pair is ("GPU:0", "GPU:1"). Pairs with an unknown code are omitted.
    """
    if len(find_tensorflow_names(facts)) < 2:
        return {}
    states = _rename_pairs(value_of(query_links(system, timeout=timeout, options=("-p2p", "r"))), facts)
    return {pair: state == "OK" for pair, state in states.items() if state in ("OK", *NO_ACCESS_STATES)}


def _rename_pairs(links: dict[str, str] | None, facts: Facts) -> dict[tuple[str, str], str]:
    """Replace the pairs of nvidia-smi, such as "GPU0-GPU1", with pairs of TensorFlow's names.

    Pairs with a GPU that TensorFlow does not use are omitted. The result is empty if `links` is None.
    """
    name_by_bus_id = find_tensorflow_names(facts)
    smi = value_of(facts.driver.smi)
    gpus = smi.gpus if isinstance(smi, SmiFacts) else ()
    name_by_smi_name = {
        f"GPU{gpu.index}": name_by_bus_id[bus_id]
        for gpu in gpus
        if (bus_id := normalize_bus_id(gpu.pci_bus_id)) in name_by_bus_id and bus_id is not None
    }
    links_by_name = {}
    for pair, link in (links or {}).items():
        first_name, _, second_name = pair.partition("-")
        if first_name in name_by_smi_name and second_name in name_by_smi_name:
            links_by_name[name_by_smi_name[first_name], name_by_smi_name[second_name]] = link
    return links_by_name
