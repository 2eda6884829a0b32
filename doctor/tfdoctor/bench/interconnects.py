"""Assess the transfer of data between devices: the capacity of each link, and the measured speed."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfdoctor.causes.codes import NARROW_LINK
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench.models import GpuObservation, Interconnect, Measurement

__all__ = ["add_measured_speeds", "describe_transfer", "find_narrow_links", "find_pairs_lacking_peer"]

MIN_SAMPLES = 3
"""The number of samples of a busy GPU that its PCI Express generation requires, because an idle GPU lowers it."""
SLOW_PATHS = {
    "bridges": "through two host bridges of one processor",
    "processors": "through the link between two processors (NUMA)",
}
"""Kinds of links that slow transfers down, with their descriptions in sentences."""
_MATRIX_ROW = re.compile(r"\] +(\d+): +([NY](?: [NY])*)\s*$")
"""A row of TensorFlow's peer access matrix, such as "] 0:   N Y"."""


def find_pairs_lacking_peer(log: str) -> frozenset[tuple[str, str]] | None:
    """Return the pairs of GPUs that cannot access each other's memory, according to TensorFlow's log.

    Return None if the log has no matrix of peer access.
    """
    if "edge matrix" not in log:
        return None
    pairs = set()
    for line in log.splitlines():
        match = _MATRIX_ROW.search(line)
        if match is not None:
            for other, flag in enumerate(match[2].split()):
                if flag == "N" and other != int(match[1]):
                    pairs.add((f"GPU:{match[1]}", f"GPU:{other}"))
    return frozenset(pairs)


def add_measured_speeds(
    links: Sequence[Interconnect], runs: Sequence[Measurement], log: str
) -> tuple[Interconnect, ...]:
    """Add to each link its highest measured speed, and its peer access according to the log."""
    pairs_lacking_peer = find_pairs_lacking_peer(log)
    evaluated = []
    for link in links:
        pair = {link.one, link.other}
        speeds = [
            timed.gbps
            for timed in runs
            if timed.workload == "copy" and set(timed.devices) == pair and timed.gbps
        ]
        peer = link.peer
        if pairs_lacking_peer is not None and all(name.startswith("GPU") for name in pair):
            peer = (link.one, link.other) not in pairs_lacking_peer and (
                link.other,
                link.one,
            ) not in pairs_lacking_peer
        evaluated.append(dataclasses.replace(link, measured=max(speeds, default=None), peer=peer))
    return tuple(evaluated)


def describe_transfer(
    devices: Sequence[str], runs: Sequence[Measurement], links: Sequence[Interconnect]
) -> str:
    """Describe how data moves between these devices, for the end of a sentence, or return ""."""
    description = ""
    speeds = [
        timed.gbps
        for timed in runs
        if timed.workload == "copy"
        and len(set(timed.devices)) == 2
        and set(timed.devices) <= set(devices)
        and timed.gbps is not None
    ]
    if speeds:
        description = f"; between these devices at most {max(speeds):.1f} GB/s were measured"
    relevant = [link for link in links if {link.one, link.other} <= set(devices)]
    slow = next((link for link in relevant if link.kind in SLOW_PATHS), None)
    if any(link.peer is False for link in relevant):
        description += "; they cannot reach each other's memory, so all of it goes through the host's"
    elif slow is not None:
        description += f"; between {slow.one} and {slow.other} it goes {SLOW_PATHS[slow.kind]}"
    return description


def find_narrow_links(watched: Sequence[GpuObservation], links: Sequence[Interconnect]) -> list[Finding]:
    """Return findings on GPUs whose link to the host uses fewer lanes or a lower generation than possible."""
    findings = []
    for card in watched:
        limits = []
        if card.lanes and card.lanes_most and card.lanes < card.lanes_most:
            limits.append(f"{card.lanes} of {card.lanes_most} lanes")
        slower = card.generation and card.generation_most and card.generation < card.generation_most
        if slower and card.looks >= MIN_SAMPLES:
            limits.append(f"generation {card.generation} of {card.generation_most}")
        link = next((item for item in links if item.kind == "pcie" and item.other == card.device), None)
        if limits:
            findings.append(_make_link_finding(card.device, " and ".join(limits), link))
    return findings


def _make_link_finding(device: str, limits: str, link: Interconnect | None) -> Finding:
    """Build the finding for a link. `limits` states the lanes and the generation that it uses."""
    max_speed = (
        f" At most {link.gbps:.1f} GB/s come to it." if link is not None and link.gbps is not None else ""
    )
    measured_speed = (
        f" {link.measured:.1f} GB/s were measured." if link is not None and link.measured is not None else ""
    )
    return Finding(
        NARROW_LINK,
        Cause.HEALTHY,
        Severity.WARNING,
        f"{device} uses {limits} of PCI Express",
        f"While it computed it used no more, and card and slot could have more.{max_speed}{measured_speed}",
        evidence=(Evidence("nvidia-smi -q -x", limits),),
        remedies=(
            Remedy(
                "Check whether the slot has as many lanes, whether a riser or another card takes them, and what the "
                "firmware is set to; then put the card in again.",
                ("nvidia-smi -q | grep -A 12 'GPU Link Info'",),
            ),
        ),
    )
