"""Is a cluster's specification what TensorFlow takes, and does each task of it answer?

`read_cluster` text → what is written; `evaluate_cluster` what is written, and what was seen → the answer. What listens and who
answers is looked at by `examine.network`.
"""

from __future__ import annotations

from tfdoctor.cluster.judge import evaluate_cluster, list_connectable
from tfdoctor.cluster.models import Address, Answer, Fault, Installed, Member, Spec, Task, Written
from tfdoctor.cluster.reader import read_cluster
from tfdoctor.cluster.together import merge_clusters

__all__ = [
    "Address",
    "Answer",
    "Fault",
    "Installed",
    "Member",
    "Spec",
    "Task",
    "Written",
    "evaluate_cluster",
    "list_connectable",
    "merge_clusters",
    "read_cluster",
]
