"""Parse ``/proc/driver/nvidia/version``, the version of the loaded kernel module.

It can differ from the version of the user-space driver.
"""

from __future__ import annotations

import re

from tfdoctor.parse._text import VERSION, Parsed, clean
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

_NVRM = lazy_pattern(r"NVRM version:[ \t]*([^\n]*)", re.IGNORECASE)
_GCC = lazy_pattern(r"GCC version:[ \t]*([^\n]*)", re.IGNORECASE)
# It must not match within x86_64 or aarch64.
_VERSION = lazy_pattern(rf"(?<![\w.])({VERSION})(?![\w.])")


@dataclass(frozen=True, slots=True)
class ProcVersion(Parsed):
    """The parsed file. ``module`` is the text before the version, and ``gcc`` is the compiler.

    A value is None if the text lacks it.
    """

    driver_version: str | None
    open_kernel_module: bool | None
    module: str | None
    gcc: str | None
    notes: tuple[str, ...] = ()


def parse_proc_version(text: str) -> ProcVersion:
    """Parse the content of the file, even if its two lines were joined."""
    text = clean(text)
    gcc = _GCC.search(text)
    compiler = gcc[1].strip(" \t`") or None if gcc else None
    nvrm = _NVRM.search(text)
    if not nvrm:
        return ProcVersion(None, None, None, compiler, notes=("no line starts with 'NVRM version:'",))
    line = _GCC.split(nvrm[1])[0].strip(" \t`")
    version = _VERSION.search(line)
    module = (line[: version.start()] if version else line).strip() or None
    return ProcVersion(
        driver_version=version[1] if version else None,
        open_kernel_module="open kernel module" in line.lower(),
        module=module,
        gcc=compiler,
        notes=() if version else ("the NVRM line has no version",),
    )
