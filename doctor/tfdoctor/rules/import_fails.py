"""`import tensorflow` will fail, for a reason that no other rule names.

What it means
-------------
TensorFlow's own objects need a library that the loader cannot give, or a Python package without which it
cannot be imported is missing or has a version that does not fit.

How it is seen
--------------
What the objects need is read from them and looked for as the loader does it. The installed packages are compared
with what was tried with real wheels (compat/imports.toml) and with the environments in which this import was seen to
work (compat/imports); what is unlike those is imported by a child, and so is what depends on it.

What to do
----------
Install what is missing, or install TensorFlow again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.causes.steps import Install
from tfdoctor.facts import Unknown
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import foreign_libstdcxx, list_forbidden_files
from tfdoctor.predict.imports import choose_object_cause
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites
from tfdoctor.rules.shared.companions import companion_finding, find_broken_companions, package_finding

if TYPE_CHECKING:
    from tfdoctor.facts import Resolution
    from tfdoctor.findings import Finding

PACKAGES = {
    "libgomp.so.1": "libgomp1",
    "libstdc++.so.6": "libstdc++6",
    "libgcc_s.so.1": "libgcc-s1",
    "libz.so.1": "zlib1g",
}
"""What TensorFlow's objects need of the system → its package on Debian and Ubuntu."""
TOLD = ("version `GLIBC_", "version `GLIBCXX_", "version `CXXABI_")


def check(context: RuleContext) -> Result:
    result = _check_packages(context)
    if isinstance(context.facts.rehearsal, Unknown) and not result:
        return CouldNotCheck(
            f"the packages that TensorFlow imports could not be tried: {context.facts.rehearsal.why}"
        )
    if context.loader is None:
        return result or CouldNotCheck("the loader could not be followed")
    build = context.build
    known = {*(build.required if build is not None else ()), "libcuda.so.1", "libnvidia-ml.so.1"}
    for failed in context.loader.import_needs:
        if any(text in failed.error for text in TOLD) or foreign_libstdcxx(context.facts, failed):
            continue
        if list_forbidden_files(failed, elsewhere=True):
            continue
        if failed.really_missing and set(failed.really_missing) <= known:
            continue
        result.append(path_shadowing.with_shadowing(context, _library(context, failed)))
    return result


def _check_packages(context: RuleContext) -> list[Finding]:
    """Report the packages that the import fails with.

    Those that were rehearsed, else what the table says.
    """
    told = {Cause.NUMPY_ABI.value, Cause.PROTOBUF_CONFLICT.value}
    rows = find_broken_companions(context)
    elsewhere = {row.package for row in rows if row.cause in told and row.effect == "import"}
    failed = [
        one for one in context.failures if one.fatal and not one.shadow and one.package not in elsewhere
    ]
    found = [package_finding(context, RULE, failed)] if failed else []
    named = {one.package for one in failed}
    rest = [row for row in rows if row.cause not in told and row.package not in named]
    if failed:  # what else stops it comes to light only then; what hurts later can wait
        rest = [row for row in rest if row.effect == "import"]
    if rest:
        found.append(companion_finding(context, RULE, min(rest, key=lambda row: row.effect != "import")))
    return found


def _library(context: RuleContext, failed: Resolution) -> Finding:
    lost = [name for name in failed.really_missing if "/" not in name]
    packages = [PACKAGES.get(name) for name in lost]
    if lost and all(packages) and advice.package_manager(context.target) == advice.APT:
        remedy = Remedy(
            f"Install the package that provides {', '.join(lost)}.",
            (
                f"{advice.sudo(context.target)}apt-get install {' '.join(str(package) for package in packages)}",
                advice.check_again(context.target),
            ),
            changes_system=True,
        )
    else:
        name = context.tensorflow.distribution if context.tensorflow is not None else None
        version = context.build.version if context.build is not None else None
        wanted = f"{name or 'tensorflow'}=={version}" if version else name or "tensorflow"
        remedy = Remedy(
            "Install TensorFlow again.",
            (
                advice.pip_install(context.target, [wanted], options="--force-reinstall --no-deps"),
                advice.check_again(context.target),
            ),
            steps=(Install((wanted,), again=True, dependencies=False),),
        )
    by = f" (needed by {failed.needed_by.rpartition('/')[2]})" if failed.needed_by else ""
    return RULE.finding(
        choose_object_cause(failed),
        Severity.ERROR,
        f"The loader cannot load TensorFlow's own objects: {failed.error}{by}.",
        title=f"import tensorflow fails: {', '.join(lost) or failed.error} cannot be loaded",
        evidence=[
            Evidence("the loader", failed.error),
            *(Evidence(t.path, t.problem) for t in failed.tried if t.problem),
        ],
        remedies=[remedy],
    )


RULE = Rule(
    "TFD312",
    "import-fails",
    "import tensorflow will fail",
    (
        Cause.PACKAGE_CONFLICT,
        Cause.PROTOBUF_CONFLICT,
        Cause.DAMAGED_FILE,
        Cause.NOT_PERMITTED,
        Cause.LIBSTDCXX_TOO_OLD,
        Cause.INCONCLUSIVE,
    ),
    check,
    row="the import will fail",
    needs=(prerequisites.require_tensorflow,),
    first=22,
)
