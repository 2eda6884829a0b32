"""A loaded environment module (Lmod, Environment Modules) brings a different CUDA or cuDNN than TensorFlow uses.

What it means
-------------
On clusters `module load cuda/11.8` puts a CUDA toolkit first on LD_LIBRARY_PATH. TensorFlow opens libraries of
exactly one major version of CUDA: a module with another one does not help, and its cuDNN can be found before the right
one. If TensorFlow finds none of its libraries, the right module may provide them.

How it is seen
--------------
LOADEDMODULES lists the loaded modules; their versions are compared with those that this TensorFlow was built with.

What to do
----------
Load the matching module, or none if TensorFlow's CUDA is installed as wheels.
"""

from __future__ import annotations

import re

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.remedies.pip import CHECK_COMMAND, quote
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext

LOADED_MODULES_VARIABLE = "LOADEDMODULES"
"""The environment variable in which module systems list the loaded modules."""
CUDA_MODULE_PATTERN = make_lazy_pattern(
    r"(?:\S*/)?(?P<name>cuda|cudatoolkit|cuda-toolkit|cudnn)(?:[/-]|/\S*?)(?P<version>[0-9]{1,2}(?:\.[0-9]{1,3}){0,3})",
    re.IGNORECASE,
)
"""The name of a CUDA or cuDNN module, with its version, such as cuda/12.2."""
LIBRARY_CAUSES = frozenset(
    {
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_NOT_ON_PATH,
        Cause.LIBS_WRONG_VERSION,
        Cause.CUDNN_MISSING,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.LIBS_TRANSITIVE,
    }
)
"""Causes that the right module could fix."""


def check(context: RuleContext) -> Result:
    variables = context.facts.environment.variables
    loaded_modules = variables.get(LOADED_MODULES_VARIABLE)
    if loaded_modules is None and not ({"LMOD_CMD", "MODULESHOME"} & set(variables)):
        return NotApplicable("no module system is in use here")
    build = context.build
    if build is None or not build.has_gpu_code or build.cuda is None:
        return NotApplicable("no TensorFlow with CUDA to compare with")
    cuda_modules = [
        (module, match)
        for module in (loaded_modules or "").split(":")
        if (match := CUDA_MODULE_PATTERN.match(module)) is not None
    ]
    wrong_modules = [
        module for module, match in cuda_modules if _has_other_major(match, build.cuda, build.cudnn)
    ]
    lacks_libraries = bool(context.select_missing_libraries(*LIBRARY_CAUSES))
    if wrong_modules:
        return [
            _build_version_finding(
                context, loaded_modules or "", wrong_modules, build.cuda, lacks_libraries=lacks_libraries
            )
        ]
    if lacks_libraries and not cuda_modules:
        return [_build_no_module_finding(build.cuda, build.cudnn)]
    return ()


def _has_other_major(match: re.Match[str], built_cuda: str, built_cudnn: str | None) -> bool:
    """Return whether the module has another major version than TensorFlow's own build."""
    required_version = built_cudnn if match["name"].lower() == "cudnn" else built_cuda
    return required_version is not None and versions.major(match["version"]) != versions.major(
        required_version
    )


def _format_required_cuda(built_cuda: str, built_cudnn: str | None) -> str:
    """Return the CUDA and cuDNN versions that TensorFlow requires, such as "CUDA 12.3 and cuDNN 9"."""
    return f"CUDA {versions.major_minor(built_cuda)}" + (
        f" and cuDNN {versions.major(built_cudnn)}" if built_cudnn else ""
    )


def _build_version_finding(
    context: RuleContext,
    loaded_modules: str,
    wrong_modules: list[str],
    built_cuda: str,
    *,
    lacks_libraries: bool,
) -> Finding:
    """Return the finding about loaded modules that have the wrong major version."""
    names = " ".join(quote(module) for module in wrong_modules)
    required = _format_required_cuda(built_cuda, context.build.cudnn if context.build is not None else None)
    return RULE.make_finding(
        Cause.LIBS_WRONG_VERSION,
        Severity.WARNING if lacks_libraries else Severity.INFO,
        f"The modules {', '.join(wrong_modules)} are loaded, and this TensorFlow was built with {required}. "
        + (
            "They do not have the libraries that are missing here."
            if lacks_libraries
            else "TensorFlow still finds its own libraries; programs that it starts may find the module's."
        ),
        title=f"The loaded module {wrong_modules[0]} has a different version than TensorFlow uses",
        evidence=[Evidence(LOADED_MODULES_VARIABLE, loaded_modules)],
        remedies=[
            Remedy(
                f"Unload it, and load a module of {required} instead; the second command lists them.",
                (f"module unload {names}", "module avail cuda cudnn"),
            )
            if lacks_libraries
            else Remedy(
                "Unload it: TensorFlow brings its own CUDA and needs no module.", (f"module unload {names}",)
            ),
        ],
    )


def _build_no_module_finding(built_cuda: str, built_cudnn: str | None) -> Finding:
    """Return the finding that libraries are missing and no CUDA module is loaded."""
    return RULE.make_finding(
        Cause.LIBS_NOT_INSTALLED,
        Severity.INFO,
        f"This machine has environment modules, and none with CUDA is loaded. This TensorFlow looks for "
        f"{_format_required_cuda(built_cuda, built_cudnn)}; a module may have them.",
        title="A module may have the libraries that are missing",
        evidence=[Evidence(LOADED_MODULES_VARIABLE, "no cuda or cudnn module is loaded")],
        remedies=[
            Remedy(
                "List the modules, load those that fit (the name is an example), and check again.",
                (
                    "module avail cuda cudnn",
                    f"module load cuda/{versions.major_minor(built_cuda)}",
                    CHECK_COMMAND,
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
    short_title="a loaded module does not fit",
)
