"""The configuration of Docker or of NVIDIA's container toolkit cannot work.

What it means
-------------
daemon.json is not valid JSON, or names a default runtime that it does not define: the engine will not start.
A runtime points to a program that is not there: no container starts with it. A rootless engine without
no-cgroups is refused by the toolkit. A toolkit in the mode cdi refuses `--gpus`. A config.toml that is not
TOML stops the toolkit.

How it is seen
--------------
The daemon.json of the engine in use, /etc/nvidia-container-runtime/config.toml, `docker info`, and whether the
programs they name are there.

What to do
----------
Each finding names the line and the command.
"""

from __future__ import annotations

from tfdoctor import advice
from tfdoctor.advice import engine, engine_state
from tfdoctor.findings import Cause
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import engines


def check(context: RuleContext) -> Result:
    containers = engines.get_container_facts(context)
    if containers.tool("docker") is None and engine.engine(containers) is None:
        return NotApplicable("there is no Docker")
    return engines.convert_problems(
        RULE, engine_state.find_misconfigurations(containers, advice.sudo(context.target))
    )


RULE = Rule(
    "TFD404",
    "engine-misconfigured",
    "Docker's or the toolkit's configuration cannot work",
    (Cause.NO_NVIDIA_RUNTIME,),
    check,
    row="Docker's configuration cannot work",
    needs=(engines.require_engine,),
    beside=True,
)
