"""The output of nvidia-smi -L."""

from __future__ import annotations

from tfdoctor.probes.parsers.smi_list import parse_smi_list


def test_list() -> None:
    listing = parse_smi_list("""\
[user@host ~]$ nvidia-smi -L
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-b)
MIG 1g.10gb     Device  0: (UUID: MIG-c)
  MIG 2g.20gb+me  Device  1: (UUID: [removed])
[pod/a/b] GPU 1: Tesla T4 (UUID: GPU-...) GPU 2: Tesla P4
""")
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in listing.gpus] == [
        (0, "NVIDIA H100 80GB HBM3", "GPU-b"),
        (1, "Tesla T4", "GPU-..."),
        (2, "Tesla P4", None),
    ]
    assert [(d.profile, d.index, d.uuid) for d in listing.gpus[0].mig_devices] == [
        ("1g.10gb", 0, "MIG-c"),
        ("2g.20gb+me", 1, "[removed]"),
    ]
    assert (listing.n_gpu_lines, listing.n_mig_lines) == (3, 2)
