"""Misspelt names of environment variables, which `check`, `lint` and `fix` recognize alike."""

from __future__ import annotations

import pytest

from tfdoctor.core.facts.variables import (
    KNOWN_VARIABLES,
    READ_VARIABLES,
    find_misspelt_variables,
    guess_variable,
)

ORDINARY_NAMES = (
    *(
        "CUDA_VERSION",
        "CUDA_PATH_V11_2",
        "CUDA_BIN_PATH",
        "CUDNN_VERSION",
        "NCCL_VERSION",
        "NVIDIA_PRODUCT_NAME",
    ),
    *(
        "LIBRARY_PATH",
        "LD_RUN_PATH",
        "DYLD_LIBRARY_PATH",
        "CPATH",
        "MODULEPATH",
        "CONDA_PREFIX_1",
        "CONDA_EXE",
    ),
    *(
        "PYTHONHASHSEED",
        "PYTHONUNBUFFERED",
        "VIRTUAL_ENV_PROMPT",
        "TF_CONFIG2",
        "TF_VERSION",
        "TF_LOG",
        "TF_ACC",
    ),
    *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST", "CUDA_VISIBLE_DEVICES_ORIG"),
)


def test_swapped_letters_are_recognized() -> None:
    swapped = [
        (name[:index] + name[index + 1] + name[index] + name[index + 2 :], name)
        for name in KNOWN_VARIABLES
        if len(name) >= 10
        for index in range(len(name) - 1)
    ]
    wrong = [pair for pair in swapped if pair[0] not in READ_VARIABLES and guess_variable(pair[0]) != pair[1]]
    # each is nearer to another variable
    assert wrong == [
        ("TF_CPP_MAXV_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL"),
        ("TF_CPP_MAX_LVOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL"),
    ]


@pytest.mark.parametrize("name", ORDINARY_NAMES)
def test_other_programs_variables_are_not_misspelt(name: str) -> None:
    assert guess_variable(name) is None


def test_check_finds_what_lint_finds() -> None:
    names = {"XLA_FALGS", "NCCL_DEBGU", "NIVDIA_VISIBLE_DEVICES", "L_DPRELOAD", "PATH"}
    assert dict(find_misspelt_variables(names)) == {
        "L_DPRELOAD": "LD_PRELOAD",
        "NCCL_DEBGU": "NCCL_DEBUG",
        "NIVDIA_VISIBLE_DEVICES": "NVIDIA_VISIBLE_DEVICES",
        "XLA_FALGS": "XLA_FLAGS",
    }
