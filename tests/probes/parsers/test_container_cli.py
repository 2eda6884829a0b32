"""The output of `nvidia-container-cli info`."""

from __future__ import annotations

from tfdoctor.probes.parsers.container_cli import parse_container_cli


def test_container_cli() -> None:
    parsed = parse_container_cli("""\
I0101 00:00:00.000000 1 nvc_info.c:642] requesting device information
NVRM version:   (null)
CUDA version:   99.0

Device Index:   0
Model:          Xavier
GPU UUID:       (null)
Bus Location:   (null)
Architecture:   7.2

Device Index:   1
Model:          NVIDIA A10G
GPU UUID:       GPU-a
Bus Location:   00000000:00:1e.0
Architecture:   8.6
""")
    assert (parsed.nvrm_version, parsed.cuda_version) == ((None,), ("99.0",))
    assert [(d.model, d.uuid, d.architecture) for d in parsed.devices] == [
        ("Xavier", None, "7.2"),
        ("NVIDIA A10G", "GPU-a", "8.6"),
    ]
    assert parsed.bus_location == (None, "00000000:00:1e.0")
