"""A CDI specification names files that no longer exist.

What it means
-------------
A CDI specification lists the device nodes and the driver's libraries, with the version in their names, that a
container receives. After a driver update, or a change of GPUs or MIG instances, the old list names
files that no longer exist: the container does not start ("failed to stat", "no such file or directory",
"unresolvable CDI devices").

How it is seen
--------------
The *.json and *.yaml files of /etc/cdi, /var/run/cdi and the engine's own CDI folders list paths for NVIDIA's GPUs. The
check tests whether every path exists, and compares the version in libcuda's name with the loaded driver. It reads the
files as JSON, or as the block YAML that `nvidia-ctk` writes.

What to do
----------
Write the specification again. From version 1.18 on the toolkit does so itself, for /var/run/cdi.
"""

from __future__ import annotations

import re

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause
from tfdoctor.remedies import engine, engine_state
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import engines

LIBCUDA_VERSION_PATTERN = re.compile(r"libcuda\.so\.(\d{3}\.[\d.]{2,16})\Z")
"""The driver version in the full name of libcuda, such as libcuda.so.535.104.05."""


def check(context: RuleContext) -> Result:
    containers = engines.get_container_facts(context)
    if not engine.list_gpu_cdi_specs(containers):
        return NotApplicable("there is no CDI specification of NVIDIA's GPUs")
    return engines.make_problem_findings(
        RULE,
        engine_state.find_cdi_spec_problems(
            containers, _find_common_driver_version(context), get_sudo_prefix(context.target)
        ),
    )


def _find_common_driver_version(context: RuleContext) -> str | None:
    """Return the driver's version, or None if kernel module and library differ.

    This rule does not decide which of the two is stale.
    """
    module, cuda = value_of(context.facts.driver.kernel_module), value_of(context.facts.driver.cuda)
    library = LIBCUDA_VERSION_PATTERN.search(cuda.path or "") if cuda is not None else None
    if module is None or library is None or library[1] != module.version:
        return None
    return module.version


RULE = Rule(
    "TFD405",
    "cdi-spec-stale",
    "A CDI specification names files that no longer exist",
    (Cause.CONTAINER_DRIVER_LIBS,),
    check,
    short_title="a CDI file is out of date",
    needs=(engines.require_container_engine,),
    containers_only=True,
)
