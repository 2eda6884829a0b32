"""Running the check on every node of a cluster, through an engine that is there: ssh, Slurm, Dask, Ray, Kubernetes.

`Engine.run` gives each node's answer as it ends, as raw bytes; what they mean is judged by `fleet`.
"""

from __future__ import annotations

from tfdoctor.fleet.nodes.models import Ended, Engine, Job, NodeAnswer

__all__ = ["Ended", "Engine", "Job", "NodeAnswer"]
