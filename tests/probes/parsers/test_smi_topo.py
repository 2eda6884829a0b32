"""The output of nvidia-smi topo -m."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.smi_topo import parse_smi_topo


@pytest.mark.parametrize("blanks", ["\t", "   "], ids=["tabs", "spaces"])
def test_topo(blanks: str) -> None:
    text = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tSYS\t0-5,12-17\t0\t\tN/A
GPU1\tNV12\t X \tPIX\t6-11\t1\t\tN/A
NIC0\tSYS\tPIX\t X \t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
    topology = parse_smi_topo(text.replace("\t", blanks))
    assert (topology.n_gpus, topology.columns, topology.nics) == (2, ("GPU0", "GPU1", "NIC0"), ("NIC0",))
    assert topology.matrix["GPU0"] == {"GPU0": "X", "GPU1": "NV12", "NIC0": "SYS"}
    assert topology.matrix["NIC0"] == {"GPU0": "SYS", "GPU1": "PIX", "NIC0": "X"}
    assert topology.affinity_tokens == {"GPU0": ("0-5,12-17", "0", "N/A"), "GPU1": ("6-11", "1", "N/A")}
    assert topology.affinity_columns == ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
    assert topology.ansi
    assert topology.nic_legend == {"NIC0": "mlx5_0"}
