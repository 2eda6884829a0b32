"""The output of nvidia-smi --version."""

from __future__ import annotations

from tfdoctor.probes.parsers.smi_version import parse_smi_version


def test_version_of_610() -> None:
    version = parse_smi_version("""\
NVIDIA-SMI version   : 999.43.02
NVML version         : 999.43
DRIVER version       : Deprecated, see "KMD version" instead
CUDA Version         : Deprecated, see "CUDA UMD version" instead
KMD version          : 998.43.02
CUDA UMD version     : 13.3
""")
    assert (version.smi_version, version.nvml_version) == ("999.43.02", "999.43")
    assert (version.driver_version, version.cuda_version) == ("998.43.02", "13.3")
    assert version.fields["DRIVER version"] == 'Deprecated, see "KMD version" instead'
