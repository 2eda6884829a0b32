"""The output of nvidia-smi -q."""

from __future__ import annotations

from tfdoctor.probes.parsers.smi_q import parse_smi_q

Q_OUTPUT = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Jan  1 00:00:00 2024
Driver Version                            : 999.57.04 [Deprecated; will be removed in CUDA 14.0.]
CUDA Version                              : 13.3 [Deprecated; will be removed]
KMD Version                               : 999.57.04
CUDA UMD Version                          : 13.3

Attached GPUs                             : 2
GPU 00000001:00:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        FB Memory Usage
            Total                         : 4864 MiB
            Used                          : 3 MiB
    Driver Model
        Current                           : N/A
    GPU UUID                              : GPU-1
    FB Memory Usage
        Total                             : 40536 MiB
        Used                              : 22 MiB
    BAR1 Memory Usage
        Total                             : 65536 MiB
    ECC Mode
        Current                           : Enabled
    Processes
        Process ID                        : 11
        Process ID                        : 12

GPU 00000002:00:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    Processes                             : None
"""


def test_q() -> None:
    report = parse_smi_q(Q_OUTPUT)
    assert (report.driver_version, report.cuda_version) == ("999.57.04", "13.3")
    assert (report.kmd_version, report.cuda_umd_version, report.attached_gpus) == ("999.57.04", "13.3", 2)
    first, second = report.gpus
    assert (first.bus_id, first.uuid, first.mig, first.driver_model) == (
        "00000001:00:00.0",
        "GPU-1",
        True,
        "N/A",
    )
    assert (first.memory_total_mib, first.memory_used_mib, first.n_processes) == (40536, 22, 2)
    assert (second.memory_total_mib, second.mig, second.n_processes) == (None, False, 0)


def test_q_without_indentation() -> None:
    first = parse_smi_q("\n".join(line.strip() for line in Q_OUTPUT.split("\n"))).gpus[0]
    assert (first.memory_total_mib, first.mig, first.n_processes) == (40536, True, 2)
