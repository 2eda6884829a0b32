"""Check whether TensorFlow accepts a cluster specification, and whether the cluster's tasks respond.

`parse_cluster` parses specifications, and `evaluate_cluster` finds their faults. The ports and the connections are
probed by `examine.network`.
"""

from __future__ import annotations

from tfdoctor.cluster.analysis import evaluate_cluster, map_connectable_addresses
from tfdoctor.cluster.merge import merge_clusters
from tfdoctor.cluster.models import (
    Address,
    ClusterEvaluation,
    ClusterSource,
    ClusterSpecification,
    Fault,
    InstalledRelease,
    Member,
    Task,
)
from tfdoctor.cluster.reader import parse_cluster

__all__ = [
    "Address",
    "ClusterEvaluation",
    "ClusterSource",
    "ClusterSpecification",
    "Fault",
    "InstalledRelease",
    "Member",
    "Task",
    "evaluate_cluster",
    "map_connectable_addresses",
    "merge_clusters",
    "parse_cluster",
]
