"""A loaded environment module (Lmod, Environment Modules) brings a different CUDA or cuDNN than TensorFlow uses.

What it means
-------------
On clusters `module load cuda/11.8` puts a CUDA toolkit before everything else, through LD_LIBRARY_PATH. TensorFlow
opens libraries of exactly one major version of CUDA: a module of another one does not help it, and its cuDNN can
come before the right one. Where TensorFlow finds none of its libraries, the right module is the way to them.

How it is seen
--------------
LOADEDMODULES lists what is loaded; its versions are compared with those that this TensorFlow was built with.

What to do
----------
Load the module that fits, or none where TensorFlow's CUDA comes as wheels.
"""

from __future__ import annotations

import re

from tfdoctor import advice, versions
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.text import lazy_pattern

VARIABLE = "LOADEDMODULES"
MODULE = lazy_pattern(
    r"(?:\S*/)?(?P<name>cuda|cudatoolkit|cuda-toolkit|cudnn)(?:[/-]|/\S*?)(?P<version>[0-9]{1,2}(?:\.[0-9]{1,3}){0,3})",
    re.IGNORECASE,
)
LIBRARIES = frozenset(
    {
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_NOT_ON_PATH,
        Cause.LIBS_WRONG_VERSION,
        Cause.CUDNN_MISSING,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.LIBS_TRANSITIVE,
    }
)


def check(context: RuleContext) -> Result:
    variables = context.facts.environment.variables
    loaded = variables.get(VARIABLE)
    if loaded is None and not ({"LMOD_CMD", "MODULESHOME"} & set(variables)):
        return NotApplicable("no module system is in use here")
    build = context.build
    if build is None or not build.gpu or build.cuda is None:
        return NotApplicable("no TensorFlow with CUDA to compare with")
    found = [(word, match) for word in (loaded or "").split(":") if (match := MODULE.match(word)) is not None]
    other = [word for word, match in found if _differs(match, build.cuda, build.cudnn)]
    missing = bool(context.select_missing(*LIBRARIES))
    if other:
        return [_build_version_finding(context, loaded or "", other, build.cuda, missing=missing)]
    if missing and not found:
        return [_build_unloaded_finding(context, build.cuda, build.cudnn)]
    return ()


def _differs(match: re.Match[str], cuda: str, cudnn: str | None) -> bool:
    wanted = cudnn if match["name"].lower() == "cudnn" else cuda
    return wanted is not None and versions.major(match["version"]) != versions.major(wanted)


def _format_required_cuda(cuda: str, cudnn: str | None) -> str:
    return f"CUDA {versions.major_minor(cuda)}" + (f" and cuDNN {versions.major(cudnn)}" if cudnn else "")


def _build_version_finding(
    context: RuleContext, loaded: str, other: list[str], cuda: str, *, missing: bool
) -> Finding:
    names = " ".join(advice.quote(word) for word in other)
    wanted = _format_required_cuda(cuda, context.build.cudnn if context.build is not None else None)
    return RULE.finding(
        Cause.LIBS_WRONG_VERSION,
        Severity.WARNING if missing else Severity.INFO,
        f"The modules {', '.join(other)} are loaded, and this TensorFlow was built with {wanted}. "
        + (
            "They do not have the libraries that are missing here."
            if missing
            else "TensorFlow still finds its own libraries; programs that it starts may find the module's."
        ),
        title=f"The loaded module {other[0]} has a different version than TensorFlow uses",
        evidence=[Evidence(VARIABLE, loaded)],
        remedies=[
            Remedy(
                "List the versions, and load the one that fits.",
                ("module avail cuda cudnn", f"module unload {names}"),
            ),
        ],
    )


def _build_unloaded_finding(context: RuleContext, cuda: str, cudnn: str | None) -> Finding:
    del context
    return RULE.finding(
        Cause.LIBS_NOT_INSTALLED,
        Severity.INFO,
        f"This machine has environment modules, and none with CUDA is loaded. This TensorFlow looks for "
        f"{_format_required_cuda(cuda, cudnn)}; a module may have them.",
        title="A module may have the libraries that are missing",
        evidence=[Evidence(VARIABLE, "no cuda or cudnn module is loaded")],
        remedies=[
            Remedy(
                "List the modules, load those that fit (the name is an example), and check again.",
                (
                    "module avail cuda cudnn",
                    f"module load cuda/{versions.major_minor(cuda)}",
                    advice.CHECK_AGAIN,
                ),
            )
        ],
    )


RULE = Rule(
    "TFD606",
    "loaded-modules",
    "A loaded environment module does not fit TensorFlow's CUDA",
    (Cause.LIBS_WRONG_VERSION, Cause.LIBS_NOT_INSTALLED),
    check,
    row="a loaded module does not fit",
)
