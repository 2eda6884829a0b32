"""Real TensorFlow with the stand-in, by release, GPU and driver: the tables and the wheels give each expected result.

It takes environments with their CUDA libraries: TFDOCTOR_LAB_PYTHONS="ENV/bin/python …".
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from lab import environments

HEALTHY, PTX = "machine code for", "PTX alone for"
NEW, OLD, DRIVER, NONE = "gpu-too-new", "gpu-too-old", "driver-too-old", "no-device"
CASES: dict[str, tuple[tuple[str, str, str], ...]] = {
    # cubins 6.0, 7.0, 8.0, 8.9; PTX for 9.0, most of it sm_90a; CUDA 12.5
    "2.20": (
        ("RTX 4090", "550", HEALTHY),
        ("A100", "535", HEALTHY),
        ("Tesla P100", "535", HEALTHY),
        ("Tesla T4", "525", HEALTHY),
        ("H100", "560", PTX),
        ("H100", "550", DRIVER),
        ("Tesla T4", "510", DRIVER),
        ("RTX 5090", "570", NEW),
        ("GTX 980", "535", OLD),
        ("Tesla K80", "470", OLD),
        ("RTX 4090", "470", NONE),
        ("Tesla V100", "595", NONE),
    ),
    # cubins 3.5, 5.0, 6.0, 7.0, 7.5, and 8.0 in a quarter of the kernels; PTX for 8.0 (of CUDA 11.0) in the others
    "2.10": (
        ("RTX 4090", "550", PTX),
        ("A100", "450", PTX),
        ("Tesla K80", "470", HEALTHY),
        ("Tesla T4", "460", HEALTHY),
        ("GTX 980", "535", HEALTHY),
        ("H100", "520", PTX),
        ("RTX 5090", "570", PTX),
        ("Tesla T4", "440", DRIVER),
        ("GTX 680", "470", OLD),
        ("RTX 4090", "470", NONE),
        ("Tesla V100", "590", NONE),
        ("RTX 5090", "550", NONE),
    ),
}
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not environments.list_existing(), reason="TFDOCTOR_LAB_PYTHONS names no environment"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]


def version_of(python: str) -> str:
    script = "import importlib.metadata as m; print(m.version('tensorflow'))"
    process = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return ".".join(process.stdout.strip().split(".")[:2])


def list_cases() -> list[Any]:
    """Return (python, card, driver, outcome) for each available environment."""
    return [
        pytest.param(python, *case, id=f"{version}-{'-'.join(case[:2]).replace(' ', '-')}")
        for python in environments.list_existing()
        for version in [version_of(python)]
        for case in CASES.get(version, ())
    ]


def verify(python: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "verify", "--python", python, "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={name: text for name, text in os.environ.items() if name != "LD_LIBRARY_PATH"},
    )
    return process.returncode, json.loads(process.stdout)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("python", "card", "driver", "outcome"), list_cases())
def test_outcome_agrees_with_the_tables_and_the_wheels(
    python: str, card: str, driver: str, outcome: str
) -> None:
    status, answer = verify(python, "--simulate", card, "--driver", driver)
    stages = {stage["name"]: stage for stage in answer["stages"]}
    output = json.dumps(answer, indent=1)
    if outcome in (HEALTHY, PTX):
        assert (status, answer["verdict"]["cause"]) == (0, "healthy"), output
        assert stages["visible"]["status"] == "passed", output
        assert outcome in stages["compute"]["detail"], output
        assert [stages[name]["status"] for name in ("compute", "cudnn")] == ["passed", "passed"], output
        assert all("in software" in stages[name]["detail"] for name in ("compute", "cudnn"))
        assert (answer["gpus"]["visible"], answer["gpus"]["computed"]) == (1, 1)
    else:
        assert (status, answer["verdict"]["cause"]) == (1, outcome), output
        assert answer["findings"]
    assert answer["verdict"]["gpu_usable"] is not True
    assert answer["simulated"]["card"]
    assert stages["nccl"]["status"] == "skipped"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", environments.list_existing())
def test_two_gpus_of_different_capability(python: str) -> None:
    status, answer = verify(python, "--simulate", "Tesla T4", "--simulate", "A100", "--driver", "535")
    assert (status, answer["gpus"]["visible"], answer["gpus"]["computed"]) == (0, 2, 2), answer
    detail = next(stage["detail"] for stage in answer["stages"] if stage["name"] == "compute")
    assert "capability 7.5" in detail
    assert "capability 8.0" in detail
