"""nvidia-smi's other answers: failures, XML, -q, csv, -L, topo, --version."""

from __future__ import annotations

import pytest

from tfdoctor.parse.smi_csv import parse_smi_csv
from tfdoctor.parse.smi_failure import EXIT_STATUS_KINDS, parse_smi_failure, says_not_found
from tfdoctor.parse.smi_list import parse_smi_list
from tfdoctor.parse.smi_q import parse_smi_q
from tfdoctor.parse.smi_topo import parse_smi_topo
from tfdoctor.parse.smi_version import parse_smi_version
from tfdoctor.parse.smi_xml import parse_smi_xml

COULD_NOT_COMMUNICATE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running."
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (COULD_NOT_COMMUNICATE, "driver_not_communicating"),
        (
            COULD_NOT_COMMUNICATE.replace("'", "’").replace("with the", "with\n  the"),
            "driver_not_communicating",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "nvml_mismatch"),
        (
            "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
            "nvml_mismatch",
        ),
        ("Failed to initialize NVML: Unknown Error", "nvml_unknown_error"),
        ("Failed to initialize NVML: Insufficient Permissions", "nvml_insufficient_permissions"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "nvml_access_blocked_os"),
        ("Failed to initialize NVML: Driver Not Loaded", "nvml_driver_not_loaded"),
        (
            "nvidia-container-cli: initialization error: nvml error: driver not loaded",
            "nvml_driver_not_loaded",
        ),
        ("Failed to initialize NVML: N/A", "nvml_na"),
        ("No devices were found", "no_devices"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "libnvidia_ml_missing"),
        ("load library failed: libnvidia-ml.so.1: cannot open shared object file", "libnvidia_ml_missing"),
        (
            'exec: "nvidia-smi": executable file not found in $PATH: unknown',
            "executable_not_found_in_container",
        ),
        (
            r'caused "exec: \"nvidia-smi\": executable file not found in $PATH"',
            "executable_not_found_in_container",
        ),
        ("Error: crun: executable file `nvidia-smi` not found in $PATH", "executable_not_found_in_container"),
        (
            "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
            "device_handle_unknown_error",
        ),
        ("Unable to determine the device handle for gpu 0000:01:00.0: Not Found", "device_handle_not_found"),
        (
            "Unable to determine the device handle for GPU 0000:01:00.0: Some New Reason",
            "device_handle_error",
        ),
        ("-bash: nvidia-smi: command not found", "command_not_found"),
        ("sh: 1: nvidia-smi: not found", "command_not_found"),
        ("zsh: command not found: nvidia-smi", "command_not_found"),
        ("fish: Unknown command: nvidia-smi", "command_not_found"),
        ("'nvidia-smi' is not recognized as an internal or external command,", "command_not_found"),
        ("nvidia-smi : The term 'nvidia-smi' is not recognized as the name of a cmdlet", "command_not_found"),
        ("Command 'nvidia-smi' not found, but can be installed with:", "command_not_found"),
        ("/usr/bin/which: no nvidia-smi in (/usr/local/bin:/usr/bin)", "command_not_found"),
        ("bash: nvidia-smi: Kommando nicht gefunden.", "command_not_found"),
        ("bash: nvidia-smi : commande introuvable", "command_not_found"),
        ("bash: nvidia-smi: orden no encontrada", "command_not_found"),
        ("bash: nvidia-smi: 未找到命令", "command_not_found"),
        ("'nvidia-smi' 不是内部或外部命令，也不是可运行的程序", "command_not_found"),
        ("bash: nvidia-smi: команда не найдена", "command_not_found"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'", "command_not_found"),
        ("bash: nvcc: command not found", None),
        ("", None),
    ],
)
def test_failure_kinds(text: str, kind: str | None) -> None:
    assert parse_smi_failure(text).kind == kind


@pytest.mark.parametrize(
    "where", ["GPU 0000:C3:00.0", "GPU0: 0000:C3:00.0", "GPU0000:C3:00.0", "GPU00000:C3:00.0"]
)
def test_failure_names_the_card(where: str) -> None:
    failure = parse_smi_failure(
        f"Unable to determine the device handle for {where}: GPU is lost.  Reboot the system"
    )
    assert (failure.kind, failure.bus_id) == ("gpu_lost", "0000:C3:00.0")


def test_failure_details() -> None:
    failure = parse_smi_failure("""\
Failed to initialize NVML: Driver/library version mismatch
NVML library version: 999.144
nvidia-smi: exit status 18
Failed to properly shut down NVML: N/A
Cuda compilation tools, release 11.5, V11.5.119
""")
    assert (failure.kind, failure.also) == ("nvml_mismatch", ("nvml_shutdown_failed",))
    assert (failure.nvml_version, failure.exit_status) == ("999.144", 18)
    assert failure.nvcc_also_present


def test_two_failures_lead_in_order() -> None:
    text = (
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\nNo devices were found\n"
    )
    failure = parse_smi_failure(text)
    assert (failure.kind, failure.also) == ("device_handle_unknown_error", ("no_devices",))


def test_exit_status_decides_only_without_a_sentence() -> None:
    assert parse_smi_failure("gibberish", exit_status=9).kind == EXIT_STATUS_KINDS[9]
    assert parse_smi_failure("No devices were found", exit_status=9).kind == "no_devices"
    assert parse_smi_failure("gibberish", exit_status=1).kind is None


def test_says_not_found_wants_the_program_on_the_line() -> None:
    assert says_not_found("bash: nvcc: command not found", "nvcc")
    assert not says_not_found("nvcc is here\nls: command not found", "nvcc")


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


def test_xml_cut_short_is_read_as_far_as_it_goes() -> None:
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
def test_xml_refuses_entities(body: str) -> None:
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


LONG = """\
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
    report = parse_smi_q(LONG)
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
    first = parse_smi_q("\n".join(line.strip() for line in LONG.split("\n"))).gpus[0]
    assert (first.memory_total_mib, first.mig, first.n_processes) == (40536, True, 2)


def test_csv_with_header_among_noise() -> None:
    table = parse_smi_csv("""\
$ nvidia-smi --query-gpu=name,memory.total --format=csv
name, memory.total [MiB], utilization.gpu [%]
NVIDIA A10, 23028 MiB, [Unknown Error]
NVIDIA A10, 23028 MiB, 0 %
It works, as you can see.
""")
    assert table.header == ("name", "memory.total [MiB]", "utilization.gpu [%]")
    assert table.rows == (("NVIDIA A10", "23028 MiB", "[Unknown Error]"), ("NVIDIA A10", "23028 MiB", "0 %"))
    assert table.n_rows == 2


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("999.95.05, NVIDIA L4, 8.9\n", (("999.95.05", "NVIDIA L4", "8.9"),)),
        (
            "node1: NVIDIA L4, 1 MiB\nnode2: NVIDIA L4, 2 MiB\n",
            (("node1: NVIDIA L4", "1 MiB"), ("node2: NVIDIA L4", "2 MiB")),
        ),
        ("999.95.05\n999.95.05\n", (("999.95.05",), ("999.95.05",))),
        ("no numbers here, sorry\n", ()),
    ],
)
def test_csv_without_header(text: str, rows: tuple[tuple[str, ...], ...]) -> None:
    table = parse_smi_csv(text)
    assert (table.header, table.rows, table.n_rows) == (None, rows, len(rows))


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
