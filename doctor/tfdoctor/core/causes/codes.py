"""Codes of the findings and notes that have no `Cause`."""

from __future__ import annotations

from tfdoctor.core.records import dataclass

__all__ = [
    "BENCH_CODES",
    "CLUSTER_CODES",
    "DEVICE_UNUSED",
    "FLEET_CODES",
    "HARMLESS",
    "LINT_CODES",
    "LOG_CODES",
    "MEMORY",
    "MISLEADING",
    "NOT_PRINTED",
    "RAN_ON_CPU",
    "RELEASE",
    "CodePage",
]

HARMLESS, MISLEADING, RELEASE = "TFD820", "TFD821", "TFD822"
"""Codes of the notes that `diagnose` adds to the cause."""
DEVICE_UNUSED, RAN_ON_CPU, NOT_PRINTED = "TFD823", "TFD824", "TFD825"
"""Codes of the notes that `diagnose --placement` prints besides the operations that TensorFlow refused to place."""
MEMORY = "TFD826"
"""Code of the page about GPU memory. No finding has this code."""
LOG_CODES = {
    "harmless-messages": HARMLESS,
    "easily-misread": MISLEADING,
    "which-tensorflow": RELEASE,
    "device-unused": DEVICE_UNUSED,
    "ran-on-cpu": RAN_ON_CPU,
    "placement-not-printed": NOT_PRINTED,
}
"""Codes of the notes of `diagnose`, with or without `--placement`, by name."""
BENCH_CODES = {
    "not-timed": "TFD827",
    "bench-disturbed": "TFD828",
    "slower-than-one": "TFD829",
    "below-peak": "TFD830",
    "narrow-link": "TFD831",
}
"""Codes of the findings of `bench`, by name."""
CLUSTER_CODES = {
    "cluster-address": "TFD722",
    "cluster-task": "TFD723",
    "json-invalid": "TFD731",
    "job-name": "TFD732",
    "address-twice": "TFD733",
    "chief-twice": "TFD734",
    "localhost-among-hosts": "TFD735",
    "evaluator-in-cluster": "TFD736",
    "unreachable": "TFD737",
    "wrong-self-address": "TFD738",
    "version-differs": "TFD739",
}
"""Codes of the findings of `cluster`, by name."""
LINT_CODES = {
    "misspelt-variable": "TFD711",
    "misspelt-option": "TFD712",
    "variable-set-wrongly": "TFD713",
    "variable-set-too-late": "TFD714",
    "configured-too-late": "TFD715",
    "growth-not-on-all": "TFD716",
    "removed-api": "TFD717",
    "no-such-device": "TFD718",
    "config-unused": "TFD719",
    "no-soft-placement": "TFD720",
    "all-on-one-device": "TFD721",
    **{name: CLUSTER_CODES[name] for name in ("cluster-address", "cluster-task")},
    "hard-coded-devices": "TFD724",
}
"""Codes of the findings of `lint`, by name."""
FLEET_CODES = {
    "gpu-unused": "TFD910",
    "host-silent": "TFD911",
    "answer-unusable": "TFD912",
    "versions-differ": "TFD913",
    "card-missing": "TFD914",
    "cards-differ": "TFD915",
    "card-slowed": "TFD916",
    "card-faults": "TFD917",
    "host-differs": "TFD918",
    "clock-skew": "TFD919",
    "same-card-twice": "TFD920",
    "peers-apart": "TFD921",
}
"""Codes of the findings of `fleet` about several hosts, by name."""


@dataclass(frozen=True, slots=True)
class CodePage:
    """The documentation page of a finding or note that has no cause."""

    name: str
    title: str
    summary: str
    meaning: str
    remedy: str

    @property
    def code(self) -> str:
        """The code of this name."""
        return {**LOG_CODES, **BENCH_CODES, **CLUSTER_CODES, **LINT_CODES, **FLEET_CODES}[self.name]
