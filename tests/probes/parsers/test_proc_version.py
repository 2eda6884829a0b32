"""/proc/driver/nvidia/version: the version of the loaded kernel module."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.proc_version import parse_proc_version


@pytest.mark.parametrize(
    ("text", "module", "version", "is_open", "gcc"),
    [
        (
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.99  Mon Jan  1 00:00:00 PDT 2018\n"
                "GCC version:  gcc version 4.8.4 (Ubuntu 4.8.4-2ubuntu1~14.04.3)\n"
            ),
            "NVIDIA UNIX x86_64 Kernel Module",
            "999.99",
            False,
            "gcc version 4.8.4 (Ubuntu 4.8.4-2ubuntu1~14.04.3)",
        ),
        (
            (
                "> NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  999.4.0  Release  (a@b-1.2.3)  "
                "GCC version:  Selected multilib: .;@m64"
            ),
            "NVIDIA UNIX Open Kernel Module for aarch64",
            "999.4.0",
            True,
            "Selected multilib: .;@m64",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module",
            "NVIDIA UNIX x86_64 Kernel Module",
            None,
            False,
            None,
        ),
        ("cat: /proc/driver/nvidia/version: No such file or directory", None, None, None, None),
    ],
)
def test_proc_version(
    text: str, module: str | None, version: str | None, is_open: bool | None, gcc: str | None
) -> None:
    parsed = parse_proc_version(text)
    assert (parsed.module, parsed.driver_version, parsed.open_kernel_module, parsed.gcc) == (
        module,
        version,
        is_open,
        gcc,
    )
