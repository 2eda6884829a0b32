"""How data goes between devices: what the way can carry, and what was measured. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfdoctor.causes.codes import NARROW_LINK
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench.models import Interconnect, Timed, Watched

__all__ = ["describe_transfer", "evaluate_links", "find_pairs_lacking_peer", "narrow"]

LOOKS = 3
"""Looks at a card that computes before its generation of PCI Express counts: an idle card lowers it."""
FAR = {
    "bridges": "through two host bridges of one processor",
    "processors": "through the link between two processors (NUMA)",
}
_ROW = re.compile(r"\] +(\d+): +([NY](?: [NY])*)\s*$")


def find_pairs_lacking_peer(log: str) -> frozenset[tuple[str, str]] | None:
    """Return pairs of GPUs of which one cannot reach the other's memory, by TensorFlow's matrix.

    None: it printed none.
    """
    if "edge matrix" not in log:
        return None
    found = set()
    for line in log.splitlines():
        row = _ROW.search(line)
        if row is not None:
            for other, word in enumerate(row[2].split()):
                if word == "N" and other != int(row[1]):
                    found.add((f"GPU:{row[1]}", f"GPU:{other}"))
    return frozenset(found)


def evaluate_links(
    links: Sequence[Interconnect], runs: Sequence[Timed], log: str
) -> tuple[Interconnect, ...]:
    """With the best that was timed over each, and whether cards reach each other's memory."""
    lacking = find_pairs_lacking_peer(log)
    done = []
    for link in links:
        pair = {link.one, link.other}
        speeds = [
            one.gbps for one in runs if one.workload == "copy" and set(one.devices) == pair and one.gbps
        ]
        peer = link.peer
        if lacking is not None and all(name.startswith("GPU") for name in pair):
            peer = (link.one, link.other) not in lacking and (link.other, link.one) not in lacking
        done.append(dataclasses.replace(link, measured=max(speeds, default=None), peer=peer))
    return tuple(done)


def describe_transfer(devices: Sequence[str], runs: Sequence[Timed], links: Sequence[Interconnect]) -> str:
    """Return how data goes between these devices, as the end of a sentence; "" if nothing is known."""
    told = ""
    speeds = [
        other.gbps
        for other in runs
        if other.workload == "copy"
        and len(set(other.devices)) == 2
        and set(other.devices) <= set(devices)
        and other.gbps is not None
    ]
    if speeds:
        told = f"; between these devices at most {max(speeds):.1f} GB/s were measured"
    ours = [link for link in links if {link.one, link.other} <= set(devices)]
    far = next((link for link in ours if link.kind in FAR), None)
    if any(link.peer is False for link in ours):
        told += "; they cannot reach each other's memory, so all of it goes through the host's"
    elif far is not None:
        told += f"; between {far.one} and {far.other} it goes {FAR[far.kind]}"
    return told


def narrow(watched: Sequence[Watched], links: Sequence[Interconnect]) -> list[Finding]:
    """Cards whose way to the host is less than card and slot could have."""
    found = []
    for card in watched:
        less = []
        if card.lanes and card.lanes_most and card.lanes < card.lanes_most:
            less.append(f"{card.lanes} of {card.lanes_most} lanes")
        slower = card.generation and card.generation_most and card.generation < card.generation_most
        if slower and card.looks >= LOOKS:
            less.append(f"generation {card.generation} of {card.generation_most}")
        link = next((one for one in links if one.kind == "pcie" and one.other == card.device), None)
        if less:
            found.append(_narrow(card.device, " and ".join(less), link))
    return found


def _narrow(device: str, less: str, link: Interconnect | None) -> Finding:
    most = f" At most {link.gbps:.1f} GB/s come to it." if link is not None and link.gbps is not None else ""
    seen = (
        f" {link.measured:.1f} GB/s were measured." if link is not None and link.measured is not None else ""
    )
    return Finding(
        NARROW_LINK,
        Cause.HEALTHY,
        Severity.WARNING,
        f"{device} uses {less} of PCI Express",
        f"While it computed it used no more, and card and slot could have more.{most}{seen}",
        evidence=(Evidence("nvidia-smi -q -x", less),),
        remedies=(
            Remedy(
                "Check whether the slot has as many lanes, whether a riser or another card takes them, and what the "
                "firmware is set to; then put the card in again.",
                ("nvidia-smi -q | grep -A 12 'GPU Link Info'",),
            ),
        ),
    )
