"""`import tensorflow` will fail, for a reason that no other rule names.

What it means
-------------
TensorFlow's own objects need a library that the loader cannot give, or a Python package without which it
cannot be imported is missing or has a version that does not fit.

How it is seen
--------------
What the objects need is read from them and looked for as the loader does it; the installed packages are
compared with what was tried with real wheels (compat/imports.toml).

What to do
----------
Install what is missing, or install TensorFlow again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import not_permitted
from tfdoctor.rules import advice
from tfdoctor.rules._companions import broken_companions, companion_finding
from tfdoctor.rules.base import Context, CouldNotCheck, Result, Rule, unanswered
from tfdoctor.steps import Install

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


def check(context: Context) -> Result:
    refused = unanswered(context.facts.tensorflow, "TensorFlow")
    if refused is not None:
        return refused
    companion = _companion(context)
    result = [companion] if companion is not None else []
    if context.loader is None:
        return result or CouldNotCheck("the loader could not be followed")
    build = context.build
    known = {*(build.required if build is not None else ()), "libcuda.so.1", "libnvidia-ml.so.1"}
    for failed in context.loader.import_needs:
        if any(text in failed.error for text in TOLD) or not_permitted(failed, elsewhere=True):
            continue
        if failed.really_missing and set(failed.really_missing) <= known:
            continue
        result.append(_library(context, failed))
    return result


def _companion(context: Context) -> Finding | None:
    told = {Cause.NUMPY_ABI.value, Cause.PROTOBUF_CONFLICT.value}
    rows = [row for row in broken_companions(context) if row.cause not in told]
    rows.sort(key=lambda row: row.effect != "import")
    return companion_finding(context, RULE, rows[0]) if rows else None


def _library(context: Context, failed: Resolution) -> Finding:
    lost = [name for name in failed.really_missing if "/" not in name]
    packages = [PACKAGES.get(name) for name in lost]
    if lost and all(packages) and advice.package_manager(context) == advice.APT:
        remedy = Remedy(
            f"Install what brings {', '.join(lost)}.",
            (
                f"{advice.sudo(context)}apt-get install {' '.join(str(package) for package in packages)}",
                advice.check_again(context),
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
                advice.pip_install(context, [wanted], options="--force-reinstall --no-deps"),
                advice.check_again(context),
            ),
            steps=(Install((wanted,), again=True, dependencies=False),),
        )
    by = f" (needed by {failed.needed_by.rpartition('/')[2]})" if failed.needed_by else ""
    return RULE.finding(
        Cause.INCONCLUSIVE,
        Severity.ERROR,
        f"The loader cannot load TensorFlow's own objects: {failed.error}{by}.",
        title=f"import tensorflow fails: {', '.join(lost) or failed.error} cannot be loaded",
        evidence=[
            Evidence("the loader", failed.error),
            *(Evidence(t.path, t.problem) for t in failed.tried if t.problem),
        ],
        remedies=[remedy],
    )


RULE = Rule("TFD312", "import-fails", "import tensorflow will fail", (Cause.INCONCLUSIVE,), check)
