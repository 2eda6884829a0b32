"""A container engine is installed but has no means of giving GPUs to containers.

What it means
-------------
A container gets the host's device nodes and driver libraries through NVIDIA's container toolkit: its hook
(`docker run --gpus`), its runtime (`--runtime=nvidia`), or a CDI specification (`--device
nvidia.com/gpu=all`, which Podman 4.1 and newer needs unless there are OCI hooks). This engine has none of
them. Docker Desktop for Linux cannot have them, because its engine runs in a virtual machine.

How it is seen
--------------
tfdoctor reads the runtimes and CDI folders in `docker info`, the toolkit's commands on PATH and in the
folders that services use, and the specifications in /etc/cdi and /var/run/cdi.

What to do
----------
Install the package nvidia-container-toolkit and let it configure the engine. TensorFlow outside containers
does not need it.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause
from tfdoctor.remedies import engine
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import engines


def check(context: RuleContext) -> Result:
    containers = engines.get_container_facts(context)
    docker = engine.get_docker_engine(containers)
    if docker is None and engine.can_podman_give_gpus(containers) is None:
        return NotApplicable("no engine that could be asked; TFD402 says why")
    if docker is not None and docker.desktop and context.facts.machine.wsl:
        return NotApplicable("Docker Desktop under WSL brings NVIDIA's toolkit itself")
    return engines.make_problem_findings(
        RULE, engine.find_gpu_support_problems(containers, get_sudo_prefix(context.target))
    )


RULE = Rule(
    "TFD403",
    "no-nvidia-runtime",
    "A container engine cannot give GPUs to containers",
    (Cause.NO_NVIDIA_RUNTIME,),
    check,
    short_title="an engine cannot give GPUs",
    needs=(engines.require_container_engine,),
    containers_only=True,
)
