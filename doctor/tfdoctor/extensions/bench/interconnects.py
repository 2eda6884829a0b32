"""Assess the transfer of data between devices: the capacity of each link, and the measured speed."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfdoctor.core.causes.codes import BENCH_CODES
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.bench.models import GpuObservation, Interconnect, Measurement

__all__ = ["add_measured_speeds", "describe_transfer", "find_narrow_links", "find_pairs_without_peer_access"]

MIN_SAMPLES = 3
"""The number of samples of a busy GPU from which its PCI Express generation is used: an idle GPU lowers it."""
SLOW_PATHS = {
    "bridges": "through two host bridges of one processor",
    "processors": "through the link between two processors (NUMA)",
}
"""The kinds of links that slow transfers down, with a phrase for each."""
_MATRIX_ROW = re.compile(r"\] +(\d+): +([NY](?: [NY])*)\s*$")
"""A row of TensorFlow's peer access matrix, such as "] 0:   N Y"."""


def find_pairs_without_peer_access(log: str) -> frozenset[tuple[str, str]] | None:
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
    pairs_lacking_peer = find_pairs_without_peer_access(log)
    measured_links = []
    for link in links:
        link_devices = {link.first_device, link.second_device}
        speeds = [
            measurement.gbps
            for measurement in measurements
            if measurement.workload == "copy"
            and set(measurement.devices) == link_devices
            and measurement.gbps
        ]
        has_peer_access = link.has_peer_access
        if pairs_lacking_peer is not None and all(device.startswith("GPU") for device in link_devices):
            has_peer_access = (link.first_device, link.second_device) not in pairs_lacking_peer and (
                link.second_device,
                link.first_device,
            ) not in pairs_lacking_peer
        measured_links.append(
            dataclasses.replace(
                link, measured_gbps=max(speeds, default=None), has_peer_access=has_peer_access
            )
        )
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
    links_between = [link for link in links if {link.first_device, link.second_device} <= set(devices)]
    slow_link = next((link for link in links_between if link.kind in SLOW_PATHS), None)
    if any(link.has_peer_access is False for link in links_between):
        description += "; they cannot reach each other's memory, so all of it goes through the host's"
    elif slow_link is not None:
        description += f"; between {slow_link.first_device} and {slow_link.second_device} it goes {SLOW_PATHS[slow_link.kind]}"
    return description


def find_narrow_links(observations: Sequence[GpuObservation], links: Sequence[Interconnect]) -> list[Finding]:
    """Return findings on GPUs whose link to the host uses fewer lanes or a lower generation than possible."""
    findings = []
    for observation in observations:
        limits = []
        if observation.lanes and observation.max_lanes and observation.lanes < observation.max_lanes:
            limits.append(f"{observation.lanes} of {observation.max_lanes} lanes")
        has_lower_generation = (
            observation.generation
            and observation.max_generation
            and observation.generation < observation.max_generation
        )
        if has_lower_generation and observation.sample_count >= MIN_SAMPLES:
            limits.append(f"generation {observation.generation} of {observation.max_generation}")
        link = next(
            (item for item in links if item.kind == "pcie" and item.second_device == observation.device), None
        )
        if limits:
            findings.append(_make_link_finding(observation.device, " and ".join(limits), link))
    return findings


def _make_link_finding(device: str, limits: str, link: Interconnect | None) -> Finding:
    """Build the finding for a link. `limits` says how many lanes and which generation it uses, such as "8 of 16 lanes"."""
    max_speed = (
        f" At most {link.max_gbps:.1f} GB/s come to it."
        if link is not None and link.max_gbps is not None
        else ""
    )
    measured_speed = (
        f" {link.measured_gbps:.1f} GB/s were measured."
        if link is not None and link.measured_gbps is not None
        else ""
    )
    return Finding(
        BENCH_CODES["narrow-link"],
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
