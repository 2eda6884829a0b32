"""The processor lacks AVX, with which TensorFlow's wheels are compiled.

What it means
-------------
Since 1.6 TensorFlow's x86 wheels are compiled with AVX. On a processor without it (Intel before Sandy
Bridge, some Pentium, Celeron and Atom, or a virtual machine that hides it) the import kills Python:
"Illegal instruction (core dumped)".

How it is seen
--------------
The check reads the processor's flags in /proc/cpuinfo.

What to do
----------
In a virtual machine, expose the host's processor to it. Otherwise use TensorFlow 1.5, or conda-forge's build.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.imports import lacks_avx
from tfdoctor.remedies.releases import find_best_release, make_release_remedy
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites


def check(context: RuleContext) -> Result:
    machine, build, tensorflow = context.facts.machine, context.build, context.tensorflow
    if machine.machine.lower() not in {"x86_64", "amd64"}:
        return NotApplicable("only x86 processors have AVX")
    if build is None or tensorflow is None or tensorflow.conda_build or not build.minor_numbers:
        return NotApplicable("this is not one of TensorFlow's own wheels")
    if not build.has_trait("avx"):
        since = context.compat.get_trait("avx").since
        return NotApplicable(f"wheels before {since} are compiled without AVX")
    if not machine.cpu_flags:
        return CouldNotCheck("the processor's flags are not known")
    if not lacks_avx(context.facts, tensorflow, build):
        return ()
    is_virtual = "hypervisor" in machine.cpu_flags
    best = find_best_release(context.target)
    text = "Use a build without AVX (conda-forge's, or one that you compile yourself), or another machine."
    remedies = [Remedy(text)]
    if best is not None:
        text = f"Install TensorFlow {best.version}, the best for this machine that works without AVX."
        remedies.insert(0, make_release_remedy(context.target, best, text))
    if is_virtual:
        remedies.insert(
            0,
            Remedy(
                "This is a virtual machine: expose the host's processor to it (QEMU and Proxmox: CPU type "
                "`host`)."
            ),
        )
    return [
        RULE.make_finding(
            Cause.ILLEGAL_INSTRUCTION_AVX,
            Severity.ERROR,
            f"TensorFlow {build.version} is compiled with AVX, and this processor does not show it. The "
            "import kills "
            'Python with "Illegal instruction".',
            title="This processor has no AVX, which TensorFlow's wheels need",
            evidence=[Evidence("/proc/cpuinfo", "no `avx` among the flags")],
            remedies=remedies,
        )
    ]


RULE = Rule(
    "TFD310",
    "illegal-instruction-avx",
    "The processor lacks AVX",
    (Cause.ILLEGAL_INSTRUCTION_AVX,),
    check,
    short_title="the processor lacks AVX",
    needs=(prerequisites.require_tensorflow,),
)
