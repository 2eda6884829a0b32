"""The limit of the address space is too low for TensorFlow and its libraries.

What it means
-------------
`ulimit -v` (in a cluster's job: h_vmem, a line of a login node's profile) limits the memory that a process may map, its
libraries included. The loader maps each library in its whole size, so TensorFlow's import stops with "failed to map
segment from shared object", or it cannot open the CUDA libraries and registers no GPU. A driver reserves far more.

How it is seen
--------------
The check adds up the sizes of all files that are mapped, and compares the sum with the limit of this process.

What to do
----------
Raise the limit, or ask the scheduler for more memory.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.libraries import compute_needed_address_space
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.rules.base import ENVIRONMENT, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

MEMORY_REQUESTS = {
    "slurm": ("sbatch --mem=16G JOB.sh",),
    "lsf": ("bsub -M 16GB python3 SCRIPT.py",),
    "pbs": ("qsub -l mem=16gb,vmem=64gb JOB.sh",),
}
"""Commands that request more memory from each scheduler."""


def check(context: RuleContext) -> Result:
    limit = context.facts.machine.address_limit
    if limit is None:
        return NotApplicable("the address space is not limited")
    import_bytes = compute_needed_address_space(context.facts, is_import=True)
    needed_bytes = import_bytes or compute_needed_address_space(context.facts, is_import=False)
    if needed_bytes is None:
        return ()
    subject = "TensorFlow's own files" if import_bytes else "TensorFlow and its CUDA libraries"
    result = (
        "import tensorflow stops with ImportError: failed to map segment from shared object"
        if import_bytes
        else "TensorFlow cannot open them (failed to map segment from shared object) and registers no GPU"
    )
    limit_text, needed_text = format_memory_size(limit), format_memory_size(needed_bytes)
    commands: tuple[str, ...] = ("ulimit -v unlimited", format_check_command(context.target))
    text = "Raise the limit, in the shell or the script that starts the program."
    if not context.facts.machine.can_raise_limit:
        commands = MEMORY_REQUESTS.get(context.facts.environment.scheduler or "", ())
        text = (
            "This is the hard limit, which this user cannot raise. Ask the scheduler for more memory (in Grid Engine "
            "`-l h_vmem=64G`), or the administrator; or take the `ulimit -v` out of the script that sets it."
        )
    return [
        RULE.make_finding(
            Cause.NOT_PERMITTED,
            Severity.ERROR,
            f"A process may map {limit_text} here (ulimit -v). {subject} alone take more than {needed_text}: {result}.",
            title=f"ulimit -v ({limit_text}) is too low for {subject}",
            evidence=[
                Evidence("ulimit -v", str(limit // 1024)),
                Evidence("the files that are mapped", needed_text),
            ],
            remedies=[Remedy(text, commands)],
        )
    ]


def format_memory_size(size: int) -> str:
    """Return a size in MiB or GiB."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"


RULE = Rule(
    "TFD324",
    "address-space-limit",
    "ulimit -v is too low for TensorFlow",
    (Cause.NOT_PERMITTED,),
    check,
    short_title="ulimit -v is too low",
    needs=(prerequisites.require_tensorflow,),
    area=ENVIRONMENT,
)
