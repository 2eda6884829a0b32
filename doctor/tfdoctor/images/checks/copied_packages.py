"""Packages are copied into the folder of another Python than the one that the image runs.

What it means
-------------
pip installs into a folder with the minor version in its name, such as lib/python3.11/site-packages. Python 3.12 does not
search that folder, and extension modules are compiled for one version. The import ends with `No module named
'tensorflow'`, or with another error if `pip install --target` chose the folder.

How it is seen
--------------
The Python of the stage that installs the packages is compared with the Python of the stage into which COPY --from brings
them. A copy that brings the interpreter, too, is not reported.

What to do
----------
Use the same Python in both stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding for each copy of packages of another Python."""
    return [
        RULE.make_finding(
            Cause.TENSORFLOW_MISSING,
            Severity.ERROR,
            f"pip installed them for Python {other}. Python {here} does not search lib/python{other}/site-packages and "
            f"cannot load modules that are compiled for Python {other}: the import fails.",
            title=f"The packages were installed for Python {other}, and the image has Python {here}",
            evidence=[context.cite(line), context.tensorflow_evidence, context.base_evidence],
            remedies=[
                Remedy(
                    f"Build the last stage on an image with Python {other}, or install with Python {here}."
                ),
                context.make_build_remedy(),
            ],
        )
        for line, other, here in context.image.foreign_copies
    ]


RULE = DockerfileRule(
    code="TFD521",
    name="copied-packages",
    title="Packages are copied to another Python",
    causes=(Cause.TENSORFLOW_MISSING,),
    check=check,
)
