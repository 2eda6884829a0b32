"""NumPy or protobuf is installed in a version with which this TensorFlow cannot be imported.

What it means
-------------
Old releases of TensorFlow put no upper limit on NumPy and protobuf, so that a fresh build today gets versions that
did not exist when they were made: protobuf 4 and newer break 2.8 and older, NumPy 2 breaks 2.7 to 2.11. A version
written into the Dockerfile can be wrong in the same way.

How it is seen
--------------
The requirement in the Dockerfile, or where there is none the newest version that TensorFlow's own limits and the
image's Python let through, against the versions that were tried with real wheels.

What to do
----------
Install the companion with the limit that the finding names, in the same pip command as TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tfdoctor import versions
from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.companions import Companion, Ladder
    from tfdoctor.dockerfile.checks.base import Context
    from tfdoctor.findings import Finding

PLAIN = frozenset({"pip", "setuptools", "wheel", "numpy", "protobuf"})
"""Packages that put no limit on others."""


def check(context: Context) -> Sequence[Finding]:
    tensorflow, release = context.tensorflow, context.tensorflow.release
    if tensorflow.state != "there" or release is None or not release.gpu or context.subject.no_deps:
        return ()
    found: list[Finding] = []
    for ladder in context.compat.ladders:
        package = ladder.package
        written = _written(context, package)
        version = written or (_today(context, ladder) if tensorflow.installed is not None else None)
        if version is None:
            continue
        row = _breaking(context, package, version)
        if row is not None:
            found.append(_finding(context, row, version, written=written is not None))
    return found


def _breaking(context: Context, package: str, version: str) -> Companion | None:
    release = context.tensorflow.release
    environment = {name: one.value or "" for name, one in context.subject.environment.items()}
    rows = [
        row
        for row in context.compat.companions
        if row.package == package
        and row.breaks
        and release is not None
        and row.applies(release.version, version, environment)
    ]
    rows.sort(key=lambda row: row.effect != "import")
    return rows[0] if rows else None


def _written(context: Context, package: str) -> str | None:
    """The version that the Dockerfile fixes."""
    for text in context.subject.all_of(package):
        for one in SpecifierSet(text):
            if (
                one.operator in ("==", "===")
                and not one.version.endswith(".*")
                and versions.is_version(one.version)
            ):
                return one.version
    return None


def _today(context: Context, ladder: Ladder) -> str | None:
    """The newest version that every known limit and the Python let through; None where the Python is not known."""
    python, release = context.tensorflow.python, context.tensorflow.release
    if python is None or release is None or not versions.is_version(python):
        return None
    limits = [*context.subject.all_of(ladder.package), *_own(release.requires, ladder.package, python)]
    try:
        wanted = SpecifierSet(",".join(limits))
    except InvalidSpecifier:
        return None
    fitting = [
        version
        for version, least in ladder.oldest_python.items()
        if versions.at_least(python, least) and wanted.contains(version)
    ]
    return fitting[-1] if fitting else None


def _own(requires: Sequence[str], package: str, python: str) -> list[str]:
    """The limits of TensorFlow itself."""
    found = []
    for text in requires:
        try:
            one = Requirement(text)
        except InvalidRequirement:
            continue
        applies = one.marker is None or one.marker.evaluate(
            {"python_version": python, "sys_platform": "linux"}
        )
        if one.name.lower() == package and applies and str(one.specifier):
            found.append(str(one.specifier))
    return found


def _finding(context: Context, row: Companion, version: str, *, written: bool) -> Finding:
    tensorflow, subject = context.tensorflow, context.subject
    others = [name for name in subject.packages if name not in PLAIN and name != tensorflow.package]
    sure = written or not (others or subject.others or subject.unseen)
    breaks = row.effect == "import"
    why = row.text
    if not written:
        why = f"Nothing holds {row.package} back, so pip takes {version} on Python {tensorflow.python}. {row.text}"
        if not sure:
            why += " Another package's own limit may hold it back."
    evidence = [context.about_tensorflow]
    if row.package in subject.packages:
        want = subject.packages[row.package].want
        evidence.append(context.at(want.line, want.text, want.source))
    return RULE.finding(
        Cause(row.cause),
        Severity.ERROR if breaks and sure else Severity.WARNING,
        f"{why} {'The import stops with' if breaks else 'It stops with'}: {row.error}",
        title=f"{tensorflow.name} {'cannot be imported' if breaks else 'does not work'} with {row.package} {version}",
        evidence=evidence,
        remedies=[
            Remedy("Install it with a limit, in the same command.", (f"pip install '{row.requirement}'",))
        ],
    )


RULE = DockerfileRule(
    code="TFD514",
    name="companion-breaks",
    title="NumPy or protobuf is one that this TensorFlow does not stand",
    causes=(Cause.NUMPY_ABI, Cause.PROTOBUF_CONFLICT),
    check=check,
)
