"""`import tensorflow` will fail, for a reason that no other rule names.

What it means
-------------
TensorFlow's own objects need a library that the loader cannot find, or a Python package that the import needs
is missing or has a version that does not work with it.

How it is seen
--------------
The check reads the names of the required libraries from the objects, and searches for them as the loader does. It compares
the installed packages with the requirements of TensorFlow and of what it imports, with their RECORD, with the installed
NumPy, and with the versions that were tested with real wheels (compat/imports.toml, compat/imports). A version that is newer
than these and meets all requirements counts as working. A child process imports the packages about which this says nothing.

What to do
----------
Install what is missing, or install TensorFlow again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import Unknown
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.imports import choose_object_cause, find_overriding_libstdcxx
from tfdoctor.prediction.libraries import list_forbidden_files
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.remedies.system import APT, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites
from tfdoctor.rules.shared.companions import (
    build_companion_finding,
    build_failing_packages_finding,
    find_unshadowed_companions,
)

if TYPE_CHECKING:
    from tfdoctor.core.facts import Resolution
    from tfdoctor.core.findings import Finding

DEBIAN_PACKAGES = {
    "libgomp.so.1": "libgomp1",
    "libstdc++.so.6": "libstdc++6",
    "libgcc_s.so.1": "libgcc-s1",
    "libz.so.1": "zlib1g",
}
"""Debian and Ubuntu packages of the system libraries that TensorFlow's objects need."""
ERRORS_OF_OTHER_RULES = ("version `GLIBC_", "version `GLIBCXX_", "version `CXXABI_")
"""Phrases of the loader's errors that TFD308 and TFD309 report."""


def check(context: RuleContext) -> Result:
    result = _build_package_findings(context)
    if isinstance(context.facts.rehearsal, Unknown) and not result:
        return CouldNotCheck(
            f"the packages that TensorFlow imports could not be tried: {context.facts.rehearsal.why}"
        )
    if context.loader is None:
        return result or CouldNotCheck("the loader could not be followed")
    build = context.build
    covered_libraries = {
        *(build.required_libraries if build is not None else ()),
        "libcuda.so.1",
        "libnvidia-ml.so.1",
    }
    for resolution in context.loader.import_needs:
        # TFD308 and TFD309
        if any(text in resolution.error for text in ERRORS_OF_OTHER_RULES) or find_overriding_libstdcxx(
            context.facts, resolution
        ):
            continue
        if list_forbidden_files(resolution, is_elsewhere=True):  # TFD319
            continue
        # other rules report CUDA's libraries and the driver's
        if resolution.really_missing and set(resolution.really_missing) <= covered_libraries:
            continue
        result.append(
            path_shadowing.add_shadowing_explanation(context, _build_library_finding(context, resolution))
        )
    return result


def _build_package_findings(context: RuleContext) -> list[Finding]:
    """Return the findings about packages that make the import fail.

    Failures of a rehearsed import come first, then entries of the compatibility table.
    """
    covered_causes = {Cause.NUMPY_ABI.value, Cause.PROTOBUF_CONFLICT.value}
    companions = find_unshadowed_companions(context)
    covered_packages = {
        companion.package
        for companion in companions
        if companion.cause in covered_causes and companion.effect == "import"
    }
    failures = [
        failure
        for failure in context.import_failures
        if failure.is_fatal and not failure.shadowing_file and failure.package not in covered_packages
    ]
    findings = [build_failing_packages_finding(context, RULE, failures)] if failures else []
    failed_packages = {failure.package for failure in failures}
    other_companions = [
        companion
        for companion in companions
        if companion.cause not in covered_causes and companion.package not in failed_packages
    ]
    if failures:  # fix the import first; problems that occur later can wait
        other_companions = [companion for companion in other_companions if companion.effect == "import"]
    if other_companions:
        findings.append(
            build_companion_finding(
                context, RULE, min(other_companions, key=lambda companion: companion.effect != "import")
            )
        )
    return findings


def _build_library_finding(context: RuleContext, resolution: Resolution) -> Finding:
    """Return the finding about a library that TensorFlow's own objects need and the loader cannot load."""
    missing_names = [name for name in resolution.really_missing if "/" not in name]
    packages = [DEBIAN_PACKAGES.get(name) for name in missing_names]
    if missing_names and all(packages) and get_package_manager(context.target) == APT:
        remedy = Remedy(
            f"Install the package that provides {', '.join(missing_names)}.",
            (
                f"{get_sudo_prefix(context.target)}apt-get install {' '.join(str(package) for package in packages)}",
                format_check_command(context.target),
            ),
            changes_system=True,
        )
    else:
        name = context.tensorflow.distribution if context.tensorflow is not None else None
        version = context.build.version if context.build is not None else None
        requirement = f"{name or 'tensorflow'}=={version}" if version else name or "tensorflow"
        remedy = Remedy(
            "Install TensorFlow again.",
            (
                format_pip_install(context.target, [requirement], options="--force-reinstall --no-deps"),
                format_check_command(context.target),
            ),
            steps=(Install((requirement,), force_reinstall=True, install_dependencies=False),),
        )
    needed_by_text = f" (needed by {resolution.needed_by.rpartition('/')[2]})" if resolution.needed_by else ""
    return RULE.make_finding(
        choose_object_cause(resolution),
        Severity.ERROR,
        f"The loader cannot load TensorFlow's own objects: {resolution.error}{needed_by_text}.",
        title=f"import tensorflow fails: {', '.join(missing_names) or resolution.error} cannot be loaded",
        evidence=[
            Evidence("the loader", resolution.error),
            *(Evidence(attempt.path, attempt.problem) for attempt in resolution.tried if attempt.problem),
        ],
        remedies=[remedy],
    )


RULE = Rule(
    "TFD312",
    "import-fails",
    "import tensorflow will fail",
    (
        Cause.PACKAGE_CONFLICT,
        Cause.PYTHON_UNUSABLE,
        Cause.PROTOBUF_CONFLICT,
        Cause.DAMAGED_FILE,
        Cause.NOT_PERMITTED,
        Cause.LIBSTDCXX_TOO_OLD,
        Cause.INCONCLUSIVE,
    ),
    check,
    short_title="the import will fail",
    needs=(prerequisites.require_tensorflow,),
    fix_order=22,
)
