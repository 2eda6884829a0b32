"""Choose the remedies of the book for an examined machine, from the place that its facts show."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.remedies.book import choose_entries, make_book_remedy
from tfdoctor.remedies.place import Place, fit_remedy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.core.causes.steps import Remedy
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Finding

__all__ = ["add_book_remedies", "list_place_evidence"]

PLACE_BY_CONTAINER = {"apptainer": Place.APPTAINER, "kubernetes": Place.POD, "lxc": Place.LXC}
PLACE_BY_VARIABLE = {
    "COLAB_RELEASE_TAG": Place.COLAB,
    "KAGGLE_KERNEL_RUN_TYPE": Place.KAGGLE,
    "SM_NUM_GPUS": Place.SAGEMAKER,
}
PLACE_BY_FOLDER = (
    (re.compile(r"/nix/store/"), Place.NIX),
    (re.compile(r"/r-(?:miniconda|tensorflow|reticulate)\b"), Place.R),
)
"""Places that the path of the Python shows."""


def list_place_evidence(facts: Facts) -> dict[Place, str]:
    """Return the places of the machine and its Python, with the text that shows each."""
    machine, variables = facts.machine, facts.environment.variables
    evidence: dict[Place, str] = {}
    if machine.container is not None:
        evidence[Place.CONTAINER] = machine.container
        if machine.container in PLACE_BY_CONTAINER:
            evidence[PLACE_BY_CONTAINER[machine.container]] = machine.container
    if machine.wsl is not None:
        evidence[Place.WSL] = f"WSL {machine.wsl}"
    if machine.jetson:
        evidence[Place.JETSON] = "Jetson"
    if facts.environment.scheduler == "slurm":
        evidence[Place.SLURM] = "SLURM_JOB_ID"
    evidence |= {place: name for name, place in PLACE_BY_VARIABLE.items() if name in variables}
    python = value_of(facts.python)
    if python is not None:
        evidence |= {
            place: python.real_executable
            for pattern, place in PLACE_BY_FOLDER
            if pattern.search(f"{python.prefix}/ {python.real_executable}")
        }
        if python.conda_prefix is not None:
            evidence[Place.CONDA] = python.conda_prefix
    return evidence


def add_book_remedies(facts: Facts, compat: Compat, root: Finding | None, finding: Finding) -> Finding:
    """Return the finding with the remedies that fit the machine.

    The entries of the book for the machine's place come before the rule's remedies, or replace them. Of several findings
    with the cause of the root finding, only that one has them.
    """
    places = list_place_evidence(facts)
    book_remedies: list[Remedy] = []
    own_remedies = list(finding.remedies)
    if places and (finding is root or root is None or finding.cause is not root.cause):
        tensorflow = value_of(facts.tensorflow)
        entries = [
            entry
            for entry in choose_entries(
                compat.remedies,
                finding.cause,
                lambda signature: [
                    places[place] for place in Place if place in places and place.value == signature
                ],
                [tensorflow.version] if tensorflow is not None and tensorflow.version else [],
            )
            if entry.seen
        ]
        values = _list_placeholder_values(places)
        book_remedies = [make_book_remedy(entry, values) for entry in entries]
        if any(not entry.keeps_general_remedies for entry in entries):
            own_remedies = [remedy for remedy in own_remedies if remedy.steps]
    # what `fix` can do comes first
    ordered = sorted([*book_remedies, *own_remedies], key=lambda remedy: not remedy.steps)
    fitted = [fit_remedy(remedy, places) if not remedy.steps else remedy for remedy in ordered]
    return replace(finding, remedies=tuple(remedy for remedy in fitted if remedy is not None))


def _list_placeholder_values(places: Mapping[Place, str]) -> dict[str, str]:
    return {"env": places.get(Place.CONDA, "$CONDA_PREFIX"), "gpus": "", "driver_option": ""}
