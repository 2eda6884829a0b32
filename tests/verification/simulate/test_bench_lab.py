"""`tfdoctor bench` with real TensorFlow on two software GPUs: no time is reported as a real GPU's.

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
from lab.softgpu import build_libraries

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
"""nvidia-smi as a script: the second GPU is hot and has four PCIe lanes."""


def make_environment(folder: Path, release: str) -> dict[str, str]:
    """Return an environment in which TensorFlow finds two software GPUs and nvidia-smi is a script."""
    build_libraries(folder, release)
    (folder / "nvidia-smi").write_text(SMI.format(python=sys.executable), encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": str(folder / "libnccl.so.2"),  # loaded before the NCCL that is inside TensorFlow
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": "90,90",
        "STANDIN_GPUS": "2",
        "TF_CUDNN_USE_FRONTEND": "0",
        "TF_CUDNN_USE_AUTOTUNE": "0",  # the software needs seconds for each of cuDNN's algorithms
    }


def run_bench(python: str, env: dict[str, str], *arguments: str) -> dict[str, Any]:
    """Run `bench --json` and return its result, validated against the schema."""
    command = [sys.executable, "-m", "tfdoctor", "bench", "--json", "--python", python]
    process = subprocess.run(
        [*command, "--dtype", "float32", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    result: dict[str, Any] = json.loads(process.stdout)
    validate(result, "bench")
    return result


def check_software_runs(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Check that no result is reported as a real GPU's; return the runs on the software GPUs."""
    assert [entry["software"] for entry in result["devices"]] == [False, True, True]
    timed_runs = [entry for entry in result["runs"] if entry["seconds"]]
    on_gpus = [entry for entry in timed_runs if any(name.startswith("GPU") for name in entry["devices"])]
    assert all(entry["software"] for entry in on_gpus)
    assert not any(entry["software"] for entry in timed_runs if entry not in on_gpus)
    assert not result["crossover"]
    assert not result["links"]
    assert all(entry["peak_gflops"] is None and not entry["peaks"] for entry in result["devices"])
    assert "are no card" in result["summary"]
    assert {finding["code"] for finding in result["findings"]} <= {"TFD828"}
    second = next(entry for entry in result["watched"] if entry["device"] == "GPU:1")
    assert (second["temperature"], second["lanes"], second["lanes_most"]) == (93, 4, 16)
    assert "hw_thermal_slowdown" in second["slowdowns"]
    return on_gpus


def check_training(python: str, env: dict[str, str]) -> set[str]:
    """Check the training runs on both GPUs and return their strategies."""
    result = run_bench(python, env, "--workload", "train", "--sizes", "2", "--duration", "200")
    on_gpus = check_software_runs(result)
    both_gpu_runs = [entry for entry in on_gpus if entry["devices"] == ["GPU:0", "GPU:1"]]
    unfinished = [entry for entry in result["runs"] if entry["left_out"] == "the time is used up"]
    parts = {entry["part"] for entry in both_gpu_runs}
    assert parts == {None, "compute", "allreduce", "fed"} or (
        unfinished and None in parts
    )  # a busy machine is too slow to time every part
    for entry in result["scaling"]:
        assert entry["software"]
        if entry["why"] or entry["speedup"] < 1.5:  # an idle machine has a core for each GPU
            assert entry["why"][0] == "GPU:0 and GPU:1 are software: they share this machine's processor."
        assert entry["parts"]["compute"] is not None or unfinished
    return {entry["strategy"] for entry in both_gpu_runs}


def check_copies(python: str, env: dict[str, str]) -> None:
    """Check the products, copies and all-reduces on the software GPUs."""
    arguments = ("--workload", "matmul,copy,allreduce", "--duration", "15")
    on_gpus = check_software_runs(run_bench(python, env, *arguments))
    assert {entry["workload"] for entry in on_gpus} == {"matmul", "copy", "allreduce"}
    assert ["GPU:0", "GPU:1"] in [entry["devices"] for entry in on_gpus if entry["strategy"] == "towers"]


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(
    ("release", "strategies"),
    [
        ("2.20.0", {"towers", "mirrored"}),
        ("2.15.1", {"towers", "mirrored"}),
    ],
)
def test_software_gpus_are_timed_but_not_reported_as_gpus(
    tmp_path: Path, release: str, strategies: set[str]
) -> None:
    env = make_environment(tmp_path / "gpu", release)
    with environments.provide_environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        check_copies(str(python), env)
        assert check_training(str(python), env) >= strategies
