"""Containers here can lose their GPUs, or get them without the right to use them.

What it means
-------------
NVIDIA's hook (`docker run --gpus`) lets a container open the GPU without the engine's knowledge. If systemd
manages the cgroups, `systemctl daemon-reload` removes that permission from every running container: "Failed to
initialize NVML: Unknown Error". The setting no-cgroups = true is for rootless engines: with it, a container of an
engine that runs as root never gets the permission.

How it is seen
--------------
The check reads the cgroup driver and the security options in `docker info`, whether the hook is installed, and
no-cgroups in /etc/nvidia-container-runtime/config.toml. It does not examine running containers.

What to do
----------
Request GPUs through CDI, or let Docker manage cgroups itself; set no-cgroups to false.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause
from tfdoctor.remedies import engine, engine_state
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import engines


def check(context: RuleContext) -> Result:
    containers = engines.get_container_facts(context)
    if engine.get_docker_engine(containers) is None:
        return NotApplicable("no engine of Docker that answers")
    return engines.make_problem_findings(
        RULE, engine_state.find_gpu_loss_problems(containers, get_sudo_prefix(context.target))
    )


RULE = Rule(
    "TFD406",
    "container-nvml-lost",
    "Containers can lose their GPUs",
    (Cause.CONTAINER_NVML_LOST,),
    check,
    short_title="containers can lose their GPUs",
    needs=(engines.require_container_engine,),
    containers_only=True,
)
