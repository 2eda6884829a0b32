"""The output of `nvcc --version`."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.nvcc import parse_nvcc


def test_nvcc() -> None:
    parsed = parse_nvcc("""\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2099 NVIDIA Corporation
Built on Thu_Mar_19_11:12:51_PM_PDT_2099
Cuda compilation tools, release 99.2, V99.2.78
Build cuda_99.2.r99.2/compiler.37668154_0`
""")
    assert (parsed.found, parsed.release, parsed.version) == (True, "99.2", "99.2.78")
    assert parsed.build == "cuda_99.2.r99.2/compiler.37668154_0"
    assert parsed.built_on == "Thu_Mar_19_11:12:51_PM_PDT_2099"


@pytest.mark.parametrize(
    "text",
    ["bash: nvcc: command not found", "Command 'nvcc' not found, but can be installed with:", "", "nothing"],
)
def test_nvcc_not_found(text: str) -> None:
    parsed = parse_nvcc(text)
    assert (parsed.found, parsed.release, parsed.built_on) == (False, None, None)
    assert parsed.notes
