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
"""The number of samples of a busy GPU from which its PCI Express generation is used: an idle GPU lowers it."""
SLOW_PATHS = {
    "bridges": "through two host bridges of one processor",
    "processors": "through the link between two processors (NUMA)",
}
"""The kinds of links that slow transfers down, with a phrase for each."""
_MATRIX_ROW = re.compile(r"\] +(\d+): +([NY](?: [NY])*)\s*$")
"""A row of TensorFlow's peer access matrix, such as "] 0:   N Y"."""


def find_pairs_lacking_peer(log: str) -> frozenset[tuple[str, str]] | None:
    """Return the pairs of GPUs, such as ("GPU:0", "GPU:1"), for which TensorFlow's log denies peer access.

    Return None if the log has no matrix of peer access.
    """
    if "edge matrix" not in log:
        return None
    lacking_pairs = set()
    for line in log.splitlines():
        match = _MATRIX_ROW.search(line)
        if match is not None:
            for peer_index, access in enumerate(match[2].split()):
                if access == "N" and peer_index != int(match[1]):
                    lacking_pairs.add((f"GPU:{match[1]}", f"GPU:{peer_index}"))
    return frozenset(lacking_pairs)


def add_measured_speeds(
    links: Sequence[Interconnect], measurements: Sequence[Measurement], log: str
) -> tuple[Interconnect, ...]:
    """Add to each link its highest measured speed, and its peer access according to the log."""
    pairs_lacking_peer = find_pairs_lacking_peer(log)
    measured_links = []
    for link in links:
        link_devices = {link.one, link.other}
        speeds = [
            measurement.gbps
            for measurement in measurements
            if measurement.workload == "copy" and set(measurement.devices) == link_devices and measurement.gbps
        ]
        has_peer_access = link.peer
        if pairs_lacking_peer is not None and all(device.startswith("GPU") for device in link_devices):
            has_peer_access = (link.one, link.other) not in pairs_lacking_peer and (
                link.other,
                link.one,
            ) not in pairs_lacking_peer
        measured_links.append(dataclasses.replace(link, measured=max(speeds, default=None), peer=has_peer_access))
    return tuple(measured_links)


def describe_transfer(
    devices: Sequence[str], measurements: Sequence[Measurement], links: Sequence[Interconnect]
) -> str:
    """Return clauses on the speed and the path of data between these devices, or "" if nothing is known."""
    description = ""
    speeds = [
        measurement.gbps
        for measurement in measurements
        if measurement.workload == "copy"
        and len(set(measurement.devices)) == 2
        and set(measurement.devices) <= set(devices)
        and measurement.gbps is not None
    ]
    if speeds:
        description = f"; between these devices at most {max(speeds):.1f} GB/s were measured"
    links_between = [link for link in links if {link.one, link.other} <= set(devices)]
    slow_link = next((link for link in links_between if link.kind in SLOW_PATHS), None)
    if any(link.peer is False for link in links_between):
        description += "; they cannot reach each other's memory, so all of it goes through the host's"
    elif slow_link is not None:
        description += f"; between {slow_link.one} and {slow_link.other} it goes {SLOW_PATHS[slow_link.kind]}"
    return description


def find_narrow_links(observations: Sequence[GpuObservation], links: Sequence[Interconnect]) -> list[Finding]:
    """Return findings on GPUs whose link to the host uses fewer lanes or a lower generation than possible."""
    findings = []
    for observation in observations:
        limits = []
        if observation.lanes and observation.lanes_most and observation.lanes < observation.lanes_most:
            limits.append(f"{observation.lanes} of {observation.lanes_most} lanes")
        has_lower_generation = (
            observation.generation
            and observation.generation_most
            and observation.generation < observation.generation_most
        )
        if has_lower_generation and observation.looks >= MIN_SAMPLES:
            limits.append(f"generation {observation.generation} of {observation.generation_most}")
        link = next((item for item in links if item.kind == "pcie" and item.other == observation.device), None)
        if limits:
            findings.append(_make_link_finding(observation.device, " and ".join(limits), link))
    return findings


def _make_link_finding(device: str, limits: str, link: Interconnect | None) -> Finding:
    """Build the finding for a link. `limits` says how many lanes and which generation it uses, such as "8 of 16 lanes"."""
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
