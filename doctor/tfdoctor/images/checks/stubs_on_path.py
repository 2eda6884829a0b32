"""LD_LIBRARY_PATH names the toolkit's folder of stubs.

What it means
-------------
`/usr/local/cuda/lib64/stubs` has a libcuda.so for linking programs on hosts without a driver. Its functions only
return CUDA_ERROR_STUB_LIBRARY. TensorFlow does not open libcuda.so, but libcuda.so.1. If the folder has a link with
that name, the loader finds the link before the driver's own library, and TensorFlow finds no GPU.

How it is seen
--------------
ENV LD_LIBRARY_PATH names the folder. The finding also says whether a command creates such a link.

What to do
----------
Use LIBRARY_PATH for linking, and keep the folder out of LD_LIBRARY_PATH.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if LD_LIBRARY_PATH names a stubs folder."""
    setting = context.image.environment.get("LD_LIBRARY_PATH")
    if setting is None or not re.search(r"/stubs/?(?=:|$|\s)", setting.value or setting.text):
        return ()
    links = [link for link in context.image.stub_links if "libcuda.so.1" in link.text]
    reason = "It is for linking only. "
    reason += (
        "A command makes a libcuda.so.1 of the stub, which is then opened in place of the driver's: no GPU is seen."
        if links
        else "As long as nothing makes a libcuda.so.1 in it, TensorFlow does not open it."
    )
    return [
        RULE.make_finding(
            Cause.STUB_LIBCUDA,
            Severity.ERROR if links else Severity.WARNING,
            reason,
            evidence=[
                context.make_evidence(setting.line, f"ENV LD_LIBRARY_PATH={setting.text}"),
                *(context.make_evidence(link.line, link.text) for link in links[:1]),
            ],
            remedies=[Remedy("Remove the folder from LD_LIBRARY_PATH; for linking there is LIBRARY_PATH.")],
        )
    ]


RULE = DockerfileRule(
    code="TFD516",
    name="stubs-on-path",
    title="LD_LIBRARY_PATH names the folder of CUDA's stubs",
    causes=(Cause.STUB_LIBCUDA,),
    check=check,
)
