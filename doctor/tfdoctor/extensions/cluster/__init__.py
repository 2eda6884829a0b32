"""Check whether TensorFlow accepts a cluster specification, and whether the cluster's tasks respond.

`parse_cluster` parses specifications, and `evaluate_cluster` finds their faults. The ports and the connections are
probed by `network`.
"""

from __future__ import annotations

from tfdoctor.cli.extensions import Extension

__all__ = ["EXTENSION"]

EXTENSION = Extension(
    summary="Check a TF_CONFIG, and whether its tasks answer.",
    command="tfdoctor.extensions.cluster.command:cluster",
    example="tfdoctor cluster",
    pages="tfdoctor.extensions.cluster.codes:CLUSTER_PAGES",
    run_without_typer="tfdoctor.extensions.cluster.connect:run_connect",
)
