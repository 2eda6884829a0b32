"""The memory limit of the container or the job is too low for TensorFlow.

What it means
-------------
A container, a pod or a job has a memory limit (a cgroup). A process that takes more is killed by the kernel, without a
message of TensorFlow: "Killed", exit status 137, OOMKilled. The import of TensorFlow alone takes about 200 MiB. The
libraries of CUDA, the driver and the program's data come on top.

How it is seen
--------------
The check reads the limits of the cgroups of its own process, and compares the lowest with what was measured.

What to do
----------
Give the container, the pod or the job more memory.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.imports import get_short_memory
from tfdoctor.rules.address_space_limit import MEMORY_REQUESTS, format_memory_size
from tfdoctor.rules.base import ENVIRONMENT, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

REQUESTS_BY_CONTAINER = {
    "docker": ("docker run --memory=16g IMAGE", "In compose: `mem_limit: 16g`."),
    "podman": ("podman run --memory=16g IMAGE", ""),
    "kubernetes": (
        "kubectl set resources deployment NAME --limits=memory=16Gi",
        "A pod has `resources.limits.memory`.",
    ),
}
"""The command that requests more memory, and a sentence, for each kind of container."""


def check(context: RuleContext) -> Result:
    limit, tensorflow = context.facts.machine.memory_limit, context.tensorflow
    if limit is None:
        return NotApplicable("the memory is not limited")
    memory = (
        get_short_memory(context.facts, tensorflow.version, context.compat)
        if tensorflow is not None
        else None
    )
    if memory is None:
        return ()
    is_fatal = limit < memory.import_bytes
    result = (
        f"The import of TensorFlow alone takes more than {format_memory_size(memory.import_bytes)}: the kernel kills it."
        if is_fatal
        else "That is enough for the import of some releases, and may not be enough for CUDA's libraries: a process "
        "that needs more is killed."
    )
    verb = "is" if is_fatal else "may be"
    command, text = REQUESTS_BY_CONTAINER.get(context.facts.machine.container or "", ("", ""))
    commands: tuple[str, ...] = MEMORY_REQUESTS.get(context.facts.environment.scheduler or "", ())
    if not commands and command:
        commands = (command,)
    return [
        RULE.make_finding(
            Cause.OOM,
            Severity.ERROR if is_fatal else Severity.WARNING,
            f"The processes here may use {format_memory_size(limit)} of memory (a cgroup). {result}",
            title=f"The memory limit ({format_memory_size(limit)}) {verb} too low for TensorFlow",
            evidence=[Evidence("memory.max of the cgroup", str(limit))],
            remedies=[Remedy(f"Give the container or the job more memory. {text}".strip(), commands)],
        )
    ]


RULE = Rule(
    "TFD325",
    "memory-limit",
    "The memory limit is too low for TensorFlow",
    (Cause.OOM,),
    check,
    short_title="the memory limit is too low",
    needs=(prerequisites.require_tensorflow,),
    area=ENVIRONMENT,
)
