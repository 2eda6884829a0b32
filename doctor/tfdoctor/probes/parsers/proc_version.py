"""Parse ``/proc/driver/nvidia/version``, the version of the loaded kernel module.

It can differ from the version of the user-space driver.
"""

from __future__ import annotations

import re

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.probes.parsers._text import VERSION_PATTERN, Parsed, clean

_NVRM_LINE = make_lazy_pattern(r"NVRM version:[ \t]*([^\n]*)", re.IGNORECASE)
_GCC_LINE = make_lazy_pattern(r"GCC version:[ \t]*([^\n]*)", re.IGNORECASE)
# The look-arounds prevent a match within x86_64 or aarch64.
_VERSION = make_lazy_pattern(rf"(?<![\w.])({VERSION_PATTERN})(?![\w.])")


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
    gcc_match = _GCC_LINE.search(text)
    compiler = gcc_match[1].strip(" \t`") or None if gcc_match else None
    nvrm_match = _NVRM_LINE.search(text)
    if not nvrm_match:
        return ProcVersion(
            driver_version=None,
            open_kernel_module=None,
            module=None,
            gcc=compiler,
            notes=("no line starts with 'NVRM version:'",),
        )
    line = _GCC_LINE.split(nvrm_match[1])[0].strip(" \t`")
    version_match = _VERSION.search(line)
    module = (line[: version_match.start()] if version_match else line).strip() or None
    return ProcVersion(
        driver_version=version_match[1] if version_match else None,
        open_kernel_module="open kernel module" in line.lower(),
        module=module,
        gcc=compiler,
        notes=() if version_match else ("the NVRM line has no version",),
    )
