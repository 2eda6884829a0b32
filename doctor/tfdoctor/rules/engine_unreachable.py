"""Docker is installed, but its engine does not answer.

What it means
-------------
Docker's client talks to an engine through a socket. The engine is not running, this user may not open its
socket, or the client is configured for an engine that does not exist. This matters only to containers: TensorFlow in a
Python on this machine needs no engine.

How it is seen
--------------
`docker info`, which runs only if the client would use a local socket and an engine already runs: nothing is
started, and an engine on another machine is never contacted.

What to do
----------
Start the engine, or join the group that its socket belongs to.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause
from tfdoctor.remedies import engine
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import engines


def check(context: RuleContext) -> Result:
    containers = engines.get_container_facts(context)
    silence = engine.get_unreachable_engine(containers)
    if silence is not None and silence.kind == "remote":
        return NotApplicable("Docker's client is set to another machine's engine, which is not asked")
    if silence is None and engine.get_docker_engine(containers) is None:
        return NotApplicable("there is no Docker")
    return engines.make_problem_findings(
        RULE, engine.find_connection_problems(containers, get_sudo_prefix(context.target))
    )


RULE = Rule(
    "TFD402",
    "engine-unreachable",
    "Docker's engine does not answer",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="Docker does not answer",
    needs=(engines.require_container_engine,),
    containers_only=True,
)
