"""The output of nvidia-smi -q -x."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.smi_xml import parse_smi_xml

XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Mon Jan  1 00:00:00 2024</timestamp>
  <driver_version>999.54.03</driver_version>
  <cuda_version>12.2</cuda_version>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:01:00.0">
    <product_name>NVIDIA A100-SXM4-80GB</product_name>
    <mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <mig_devices>
      <mig_device><fb_memory_usage><total>1 MiB</total></fb_memory_usage></mig_device>
    </mig_devices>
    <driver_model><current_dm>N/A</current_dm></driver_model>
    <uuid>GPU-0</uuid>
    <fb_memory_usage><total>81920 MiB</total><used>50 MiB</used></fb_memory_usage>
    <processes><process_info><pid>1</pid></process_info></processes>
  </gpu>
  <gpu id="00000000:02:00.0">
    <product_name>NVIDIA A100-SXM4-80GB</product_name>
    <fb_memory_usage><total>N/A</total><used>N/A</used></fb_memory_usage>
    <processes></processes>
  </gpu>
</nvidia_smi_log>
"""


def test_xml() -> None:
    report = parse_smi_xml("user@host:~$ nvidia-smi -q -x\n" + XML + "user@host:~$ ")
    assert (report.dtd, report.timestamp) == ("v12", "Mon Jan  1 00:00:00 2024")
    assert (report.driver_version, report.cuda_version, report.attached_gpus) == ("999.54.03", "12.2", 2)
    first, second = report.gpus
    assert (first.position, first.bus_id, first.uuid) == (0, "00000000:01:00.0", "GPU-0")
    assert (first.memory_total_mib, first.memory_used_mib) == (81920, 50)
    assert (first.mig, first.n_mig_devices, first.driver_model, first.n_processes) == (True, 1, "N/A", 1)
    assert (second.memory_total_mib, second.driver_model, second.n_processes) == (None, None, 0)
    assert report.complete


def test_truncated_xml_is_read_up_to_its_end() -> None:
    report = parse_smi_xml(XML[: XML.index('<gpu id="00000000:02')] + "  <gpu id=")
    assert len(report.gpus) == 1
    assert report.gpus[0].memory_total_mib == 81920
    assert not report.complete
    assert report.notes


@pytest.mark.parametrize(
    "body",
    [
        (
            '<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log><driver_version>&a;</driver_version>'
            "</nvidia_smi_log>"
        ),
        (
            '<!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/passwd">]><nvidia_smi_log>'
            "<timestamp>&a;</timestamp></nvidia_smi_log>"
        ),
    ],
)
def test_xml_with_entities_is_rejected(body: str) -> None:
    report = parse_smi_xml(body)
    assert (report.driver_version, report.timestamp) == (None, None)
    assert report.notes[0].startswith("refused")


def test_xml_of_610_and_cuda_not_found() -> None:
    report = parse_smi_xml(
        "<nvidia_smi_log><driver_version>Deprecated, see kmd_version</driver_version>"
        "<kmd_version>999.1</kmd_version>"
        "<cuda_version>Not Found</cuda_version></nvidia_smi_log>"
    )
    assert (report.driver_version, report.cuda_version, report.cuda_version_raw) == (
        "999.1",
        None,
        "Not Found",
    )
    assert report.dtd is None
