"""The output of lspci about GPUs, in each of its forms."""

from __future__ import annotations

from tfdoctor.probes.parsers.pci import parse_lspci


def test_lspci_forms() -> None:
    parsed = parse_lspci("""\
00:00.0 Host bridge: Intel Corporation Something (rev 07)
\tKernel driver in use: skl_uncore
00:02.0 Display controller: Intel Corporation HD Graphics 530 (rev 06)
0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2206] (rev a1)
\tSubsystem: NVIDIA Corporation Device 1014
\tKernel driver in use: nouveau
\tKernel modules: nvidiafb, nouveau
0000:01:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:1aef] (rev a1)
> 05:00.0 Bridge: NVIDIA Corporation GA100 [A100 NVSwitch] (rev a1)
02:00.0 0302: 10de:1db4 (rev a1)
12:06:00.0 "VGA compatible controller [0300]" "Advanced Micro Devices [1002]" "Navi [731f]" -rc1
""")
    devices = [(d.slot, d.cls, d.nvidia, d.display, d.vendor_device_id) for d in parsed.devices]
    assert devices == [
        ("00:02.0", "Display controller", False, True, None),
        ("0000:01:00.0", "VGA compatible controller", True, True, "10de:2206"),
        ("0000:01:00.1", "Audio device", True, False, "10de:1aef"),
        ("05:00.0", "Bridge", True, False, None),
        ("02:00.0", "0302", True, True, "10de:1db4"),
        ("06:00.0", "VGA compatible controller", False, True, "1002:731f"),
    ]
    assert (parsed.n_nvidia_gpus, parsed.n_nvidia_functions) == (2, 4)
    assert parsed.drivers_in_use == ("skl_uncore", "nouveau")
    assert (parsed.devices[1].driver, parsed.devices[1].kernel_modules) == (
        "nouveau",
        ("nvidiafb", "nouveau"),
    )
