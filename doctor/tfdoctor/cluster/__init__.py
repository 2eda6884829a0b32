"""Is a cluster's specification what TensorFlow takes, and does each task of it answer?

`read_cluster` reads what is written; `evaluate_cluster` finds its faults. `examine.network` probes who listens and who
answers.
"""

from __future__ import annotations

from tfdoctor.cluster.analysis import evaluate_cluster, list_connectable
from tfdoctor.cluster.merge import merge_clusters
from tfdoctor.cluster.models import (
    Address,
    ClusterAnswer,
    ClusterSource,
    Fault,
    InstalledRelease,
    Member,
    Task,
    Written,
)
from tfdoctor.cluster.reader import read_cluster

__all__ = [
    "Address",
    "ClusterAnswer",
    "ClusterSource",
    "Fault",
    "InstalledRelease",
    "Member",
    "Task",
    "Written",
    "evaluate_cluster",
    "list_connectable",
    "merge_clusters",
    "read_cluster",
]
