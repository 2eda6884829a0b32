"""`tfdoctor bench` with real TensorFlow on two cards that are software: no time is shown as a card's.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cli.planner import validate
from lab import environments
from lab.softgpu import libraries

if TYPE_CHECKING:
    from pathlib import Path

SMI = """#!{python}
import sys
CARD = '''  <gpu id="00000000:0%d:00.0"><product_name>Stand-in GPU</product_name>
    <pci><pci_gpu_link_info><pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>4</current_link_gen></pcie_gen>
    <link_widths><max_link_width>16x</max_link_width><current_link_width>%dx</current_link_width></link_widths>
    </pci_gpu_link_info></pci><temperature><gpu_temp>%d C</gpu_temp></temperature>
    <clocks_event_reasons><clocks_event_reason_hw_thermal_slowdown>%s</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons></gpu>
'''
if sys.argv[1:] == ["topo", "-m"]:
    print("\\tGPU0\\tGPU1\\tCPU Affinity\\nGPU0\\t X \\tSYS\\t0-1\\nGPU1\\tSYS\\t X \\t0-1")
else:
    print("<nvidia_smi_log><driver_version>570.86.15</driver_version><cuda_version>12.8</cuda_version>")
    print(CARD % (1, 16, 60, "Not Active") + CARD % (2, 4, 93, "Active") + "</nvidia_smi_log>")
"""
"""nvidia-smi as a script: the second card is hot, and has four lanes."""


def software(folder: Path, release: str) -> dict[str, str]:
    """The environment in which TensorFlow finds two software GPUs, and a scripted nvidia-smi tells of them."""
    libraries(folder, release)
    (folder / "nvidia-smi").write_text(SMI.format(python=sys.executable), encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": str(folder / "libnccl.so.2"),  # before the NCCL that is within TensorFlow
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": "90,90",
        "STANDIN_GPUS": "2",
        "TF_CUDNN_USE_FRONTEND": "0",
        "TF_CUDNN_USE_AUTOTUNE": "0",  # each of cuDNN's algorithms takes the software seconds
    }


def answer(python: str, env: dict[str, str], *work: str) -> dict[str, Any]:
    """What `bench --json` says of it, which keeps its contract."""
    command = [sys.executable, "-m", "tfdoctor", "bench", "--json", "--python", python]
    done = subprocess.run(
        [*command, "--dtype", "float32", *work],
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    validate(told, "bench")
    return told


def are_no_cards(told: dict[str, Any]) -> list[dict[str, Any]]:
    """What was timed on the software GPUs, none of which is shown as a card's."""
    assert [one["software"] for one in told["devices"]] == [False, True, True]
    timed = [one for one in told["runs"] if one["seconds"]]
    on_gpus = [one for one in timed if any(name.startswith("GPU") for name in one["devices"])]
    assert all(one["software"] for one in on_gpus)
    assert not any(one["software"] for one in timed if one not in on_gpus)
    assert not told["crossover"]
    assert not told["links"]
    assert all(one["peak_gflops"] is None and not one["peaks"] for one in told["devices"])
    assert "are no card" in told["summary"]
    assert {finding["code"] for finding in told["findings"]} <= {"TFD828"}
    second = next(one for one in told["watched"] if one["device"] == "GPU:1")
    assert (second["temperature"], second["lanes"], second["lanes_most"]) == (93, 4, 16)
    assert "hw_thermal_slowdown" in second["slowdowns"]
    return on_gpus


def trains(python: str, env: dict[str, str]) -> set[str]:
    """By which strategies both trained, and what is known of their parts."""
    told = answer(python, env, "--workload", "train", "--sizes", "2", "--time", "200")
    on_gpus = are_no_cards(told)
    both = [one for one in on_gpus if one["devices"] == ["GPU:0", "GPU:1"]]
    late = [one for one in told["runs"] if one["left_out"] == "the time is used up"]
    parts = {one["part"] for one in both}
    assert parts == {None, "compute", "allreduce", "fed"} or (
        late and None in parts
    )  # a busy machine is too slow
    for one in told["scaling"]:
        assert one["software"]
        if one["why"] or one["speedup"] < 1.5:  # an idle machine has a core for each
            assert one["why"][0] == "GPU:0 and GPU:1 are software: they share this machine's processor."
        assert one["parts"]["compute"] is not None or late
    return {one["strategy"] for one in both}


def copies(python: str, env: dict[str, str]) -> None:
    work = ("--workload", "matmul,copy,allreduce", "--time", "15")
    on_gpus = are_no_cards(answer(python, env, *work))
    assert {one["workload"] for one in on_gpus} == {"matmul", "copy", "allreduce"}
    assert ["GPU:0", "GPU:1"] in [one["devices"] for one in on_gpus if one["strategy"] == "towers"]


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(
    ("release", "strategies"),
    [
        ("2.20.0", {"towers", "mirrored"}),
        ("2.15.1", {"towers", "mirrored"}),
    ],
)
def test_two_software_gpus_are_timed_and_are_no_cards(
    tmp_path: Path, release: str, strategies: set[str]
) -> None:
    env = software(tmp_path / "gpu", release)
    with environments.environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        copies(str(python), env)
        assert trains(str(python), env) >= strategies
