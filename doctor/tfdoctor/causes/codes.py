"""Codes of what is told of a log beside its cause."""

from __future__ import annotations

from tfdoctor.records import dataclass

__all__ = [
    "BELOW_PEAK",
    "BENCH_DISTURBED",
    "CLUSTER",
    "DEVICE_UNUSED",
    "FLEET",
    "HARMLESS",
    "LINT",
    "MEMORY",
    "MISREAD",
    "NARROW_LINK",
    "NOT_PRINTED",
    "NOT_TIMED",
    "RAN_ON_CPU",
    "RELEASE",
    "SLOWER_THAN_ONE",
    "Explained",
]

HARMLESS, MISREAD, RELEASE = "TFD820", "TFD821", "TFD822"
"""Codes of what `diagnose` tells beside the cause: messages that look bad and are harmless, and what is misread."""
DEVICE_UNUSED, RAN_ON_CPU, NOT_PRINTED = "TFD823", "TFD824", "TFD825"
"""Codes of what `placement` tells beside refusals."""
NOT_TIMED, BENCH_DISTURBED, SLOWER_THAN_ONE, BELOW_PEAK = "TFD827", "TFD828", "TFD829", "TFD830"
NARROW_LINK = "TFD831"
"""Codes of what `bench` tells."""
MEMORY = "TFD826"
"""The page on the memory of GPUs; no finding has it."""
CLUSTER = {
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
"""Names of what `cluster` tells → their codes."""
LINT = {
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
    **{name: CLUSTER[name] for name in ("cluster-address", "cluster-task")},
    "hard-coded-devices": "TFD724",
}
"""Names of what `lint` tells of code → their codes."""
FLEET = {
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
"""Names of what `fleet` tells of many hosts → their codes."""


@dataclass(frozen=True, slots=True)
class Explained:
    """The page of one name of CLUSTER or FLEET."""

    name: str
    title: str
    summary: str
    means: str
    do: str

    @property
    def code(self) -> str:
        return {**CLUSTER, **FLEET}[self.name]
