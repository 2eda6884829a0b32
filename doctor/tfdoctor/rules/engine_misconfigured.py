"""The configuration of Docker or of NVIDIA's container toolkit cannot work.

What it means
-------------
If daemon.json is not valid JSON, or names a default runtime that it does not define, the engine does not start.
If a runtime points to a program that does not exist, no container starts with it. The toolkit refuses a rootless
engine without no-cgroups. A toolkit in cdi mode refuses `--gpus`. A config.toml that is not valid TOML stops the
toolkit.

How it is seen
--------------
The check reads the daemon.json of the engine in use, /etc/nvidia-container-runtime/config.toml and `docker info`, and
tests whether the programs that they name exist.

What to do
----------
Each finding names the line and the command.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause
from tfdoctor.remedies import engine, engine_state
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import engines


def check(context: RuleContext) -> Result:
    containers = engines.get_container_facts(context)
    if containers.find_tool("docker") is None and engine.get_docker_engine(containers) is None:
        return NotApplicable("there is no Docker")
    return engines.make_problem_findings(
        RULE, engine_state.find_config_problems(containers, get_sudo_prefix(context.target))
    )


RULE = Rule(
    "TFD404",
    "engine-misconfigured",
    "Docker's or the toolkit's configuration cannot work",
    (Cause.NO_NVIDIA_RUNTIME,),
    check,
    short_title="Docker's configuration cannot work",
    needs=(engines.require_container_engine,),
    containers_only=True,
)
