"""Engines that run the check on every node of a cluster, with ssh, Slurm, Dask, Ray or Kubernetes.

`Engine.run` yields each node's raw output as soon as its run has ended; `fleet` evaluates the output.
"""

from __future__ import annotations

from tfdoctor.extensions.fleet.nodes.models import NodeAnswer, NodeEngine, NodeJob, RunOutcome

__all__ = ["NodeAnswer", "NodeEngine", "NodeJob", "RunOutcome"]
