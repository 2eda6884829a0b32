"""Values at the edge of what each parser accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfdoctor.core.facts import SmiProcess
from tfdoctor.probes.parsers import _text, kernel_log
from tfdoctor.probes.parsers.cdi import CdiError, parse_cdi
from tfdoctor.probes.parsers.kernel_log import parse_kernel_log
from tfdoctor.probes.parsers.pip_conda import parse_pip_conda
from tfdoctor.probes.parsers.registry import detect_kind, parse
from tfdoctor.probes.parsers.smi_csv import parse_smi_csv
from tfdoctor.probes.parsers.smi_health import MAX_PROCESSES, parse_smi_health
from tfdoctor.probes.parsers.smi_q import parse_smi_q
from tfdoctor.probes.parsers.smi_table import looks_like_smi_table, parse_smi_table
from tfdoctor.probes.parsers.smi_topo import parse_smi_topo
from tfdoctor.probes.parsers.smi_xml import parse_smi_xml
from tfdoctor.probes.parsers.wrapped import unwrap

# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("lines", "stripped"),
    [
        (["> a", "> b"], ["a", "b"]),
        (["> a", "b"], ["> a", "b"]),
        (["> a", "> b", "> c", "d", "e"], ["> a", "> b", "> c", "d", "e"]),
        (["> a", "> b", "> c", "d"], ["a", "b", "c", "d"]),
        (["> | a |", "> | b |"], ["a", "b"]),
        (["> a", "", "> b"], ["a", "", "b"]),
        (["> > > > a"] * 2, ["> a"] * 2),
        (["# `a`", "# `b`"], ["a", "b"]),
    ],
)
def test_margins_of_most_lines_are_stripped(lines: list[str], stripped: list[str]) -> None:
    assert _text.strip_margins(lines) == stripped


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        (_text.to_int, " +12 ", 12),
        (_text.to_int, "1" * 18, int("1" * 18)),
        (_text.to_int, "1" * 19, None),
        (_text.to_int, "1.0", None),
        (_text.to_mib, "1024MB", 1024),
        (_text.to_mib, "1024", 1024),
        (_text.to_mib, "1024 KiB", None),
        (_text.value_or_none, " x ", "x"),
        (_text.value_or_none, "[N/A]", None),
        (_text.is_fence, "  ~~~", True),
        (_text.is_fence, "``", False),
        (_text.clean, "a\r\nb\r\rc\r\r\n", "a\nb\n\nc\n"),
        (_text.clean, "\x1b[1mx\x1b]0;t\x07y\u00a0\u200bz", "xy z"),
    ],
)  # fmt: skip
def test_values_are_converted(function: Any, text: str, expected: Any) -> None:
    assert function(text) == expected


def test_results_become_plain_values() -> None:
    value = {1: (_text.Parsed(), [None, "a"]), "b": True}
    assert _text.to_plain(value) == {"1": [{}, [None, "a"]], "b": True}


# ---------------------------------------------------------------- nvidia-smi -q -x


def make_xml(gpu: str, **fields: str) -> str:
    top = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    return f"<nvidia_smi_log>{top}<gpu>{gpu}</gpu></nvidia_smi_log>"


@pytest.mark.parametrize(
    ("xml", "field", "expected"),
    [
        ("<persistence_mode>Enabled</persistence_mode>", "persistence", True),
        ("<persistence_mode>Disabled</persistence_mode>", "persistence", False),
        ("<persistence_mode>N/A</persistence_mode>", "persistence", None),
        ("<ecc_mode><current_ecc>On</current_ecc></ecc_mode>", "ecc", True),
        ("<ecc_mode><current_ecc>Off</current_ecc></ecc_mode>", "ecc", False),
        ("<display_active>Disabled</display_active><display_mode>Yes</display_mode>", "display", True),
        ("<display_active>N/A</display_active><display_attached>No</display_attached>", "display", False),
        ("<display_active>Active</display_active>", "display", True),
        ("<display_active>Not Active</display_active>", "display", False),
        ("", "display", None),
        (("<ecc_errors><volatile><sram_uncorrectable>2</sram_uncorrectable><dram_uncorrectable>3</dram_uncorrectable>"
         "</volatile></ecc_errors>"), "uncorrected", 5),
        ("<ecc_errors><aggregate><double_bit><total>4</total></double_bit></aggregate></ecc_errors>", "uncorrected_ever", 4),
        ("<ecc_errors><volatile><sram_uncorrectable>N/A</sram_uncorrectable></volatile></ecc_errors>", "uncorrected", None),
        ("<ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>", "uncorrected", 0),
        ("<retired_pages><pending_retirement>N/A</pending_retirement><pending_blacklist>Yes</pending_blacklist></retired_pages>",
         "retirement_pending", True),
        ("<remapped_rows><remapped_row_pending>No</remapped_row_pending></remapped_rows>", "remap_pending", False),
        ("<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>", "remap_failure", True),
        ("<gpu_recovery_action>Drain</gpu_recovery_action><gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>",
         "recovery", "Drain"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "recovery", "Reset"),
        ("<gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>", "recovery", None),
        (("<clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>"
         "<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>"
         "<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown></clocks_event_reasons>"
         "<clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>"
         "<clocks_throttle_reason_hw_slowdown> Active </clocks_throttle_reason_hw_slowdown></clocks_throttle_reasons>"),
         "slowdowns", ("sw_power_cap", "hw_slowdown")),
        ("<temperature><gpu_temp>41 C</gpu_temp></temperature>", "temperature", 41),
        ("<temperature><gpu_temp>N/A</gpu_temp></temperature>", "temperature", None),
        ("<power_readings><power_limit>250.00 W</power_limit></power_readings>", "power_limit", 250.0),
        (("<gpu_power_readings><current_power_limit>N/A</current_power_limit></gpu_power_readings>"
         "<power_readings><enforced_power_limit>99.5 W</enforced_power_limit></power_readings>"), "power_limit", 99.5),
        ("<power_readings><power_limit>1.2.3 W</power_limit></power_readings>", "power_limit", None),
        ("<power_readings><power_limit>123456789012 W</power_limit></power_readings>", "power_limit", None),
        ("<gpu_power_readings><default_power_limit>300 W</default_power_limit></gpu_power_readings>", "power_default", 300.0),
        ("<grid_licensed_product><license_status>Licensed</license_status></grid_licensed_product>", "licence", "Licensed"),
        ("<pci><pci_gpu_link_info><link_widths><current_link_width>x16</current_link_width></link_widths></pci_gpu_link_info></pci>",
         "link_width", 16),
        ("<pci><pci_gpu_link_info><link_widths><max_link_width>8x</max_link_width></link_widths></pci_gpu_link_info></pci>",
         "link_width_most", 8),
        ("<pci><pci_gpu_link_info><pcie_gen><current_link_gen>4</current_link_gen></pcie_gen></pci_gpu_link_info></pci>",
         "link_generation", 4),
        ("<max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>", "clock_most", 1980),
    ],
)  # fmt: skip
def test_health_of_a_gpu(xml: str, field: str, expected: Any) -> None:
    ((health, _),) = parse_smi_health(make_xml(xml))
    assert getattr(health, field) == expected


def test_processes_of_a_gpu() -> None:
    info = "<process_info><pid>{}</pid><type>C</type><process_name>p</process_name>"
    info += "<used_memory>5 MiB</used_memory></process_info>"
    both = f"<processes>{info.format(1)}</processes><compute_processes>{info.format('x')}</compute_processes>"
    ((_, processes),) = parse_smi_health(make_xml(both))
    assert processes == (SmiProcess(1, "p", 5, kind="C"), SmiProcess(None, "p", 5, kind="C"))
    many = "".join(info.format(number) for number in range(MAX_PROCESSES + 1))
    ((_, processes),) = parse_smi_health(make_xml(f"<processes>{many}</processes>"))
    assert len(processes) == MAX_PROCESSES
    assert parse_smi_health("no report") == ()


@pytest.mark.parametrize(
    ("gpu", "field", "expected"),
    [
        ("<processes>N/A</processes>", "n_processes", None),
        ("<processes>None</processes>", "n_processes", 0),
        ("<processes></processes>", "n_processes", 0),
        ("<compute_processes><process_info/></compute_processes>", "n_processes", 1),
        ("<processes>N/A<process_info/></processes>", "n_processes", 1),
        ("", "n_processes", None),
        ("<pci><pci_bus_id>0:1</pci_bus_id></pci>", "bus_id", "0:1"),
        ("<fb_memory_usage><total> 7 MiB </total></fb_memory_usage>", "memory_total_mib", 7),
        ("<mig_mode><current_mig>Enabled</current_mig></mig_mode>", "mig", True),
        ("<mig_devices><mig_device/><mig_device/></mig_devices>", "n_mig_devices", 2),
        ("<minor_number>3</minor_number>", "minor_number", 3),
        ("<product_name></product_name>", "name", None),
    ],
)
def test_field_of_a_gpu_element(gpu: str, field: str, expected: Any) -> None:
    (parsed,) = parse_smi_xml(make_xml(gpu)).gpus
    assert getattr(parsed, field) == expected


def test_versions_and_damage_of_a_report() -> None:
    fields = {
        "driver_version": "Deprecated, see kmd",
        "kmd_version": "610.1 [x]",
        "cuda_version": "N/A",
        "attached_gpus": "2",
    }
    report = parse_smi_xml(make_xml("", **fields))
    assert (report.driver_version, report.cuda_version, report.cuda_version_raw, report.attached_gpus) == (
        "610.1", None, "N/A", 2,
    )  # fmt: skip
    assert report.complete
    cut = parse_smi_xml(make_xml("<uuid>U</uuid>")[:-30])
    assert (cut.complete, len(cut.gpus)) == (False, 1)
    assert cut.notes[0].startswith("not well-formed")
    assert parse_smi_xml("").notes == ("no <nvidia_smi_log> element",)
    entity = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>'
    assert parse_smi_xml(entity).notes[0].startswith("refused")
    dtd = (
        '<?xml version="1.0" encoding="x"?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">'
        + make_xml("")
    )
    assert parse_smi_xml(f"$ nvidia-smi\n{dtd}\n$ ").dtd == "v12"


# ---------------------------------------------------------------- nvidia-smi -q

SMI_Q = """==============NVSMI LOG==============
Driver Version                            : {driver}
KMD Version                               : 610.1
CUDA Version                              : {cuda}
Attached GPUs                             : 2
GPU 00000000:01:00.0
    Product Name                          : A
    MIG Mode
        Current                           : Enabled
    Driver Model
        Current                           : WDDM
    MIG Device
        FB Memory Usage
            Total                         : 5 MiB
            Used                          : 1 MiB
    FB Memory Usage
        Total                             : 80 MiB
        Used                              : 7 MiB
    Other
        Total                             : 1 MiB
    Processes
        Process ID                        : 1
        Process ID                        : 2
GPU 1
    Bus Id                                : 00000000:02:00.0
    Processes                             : {processes}
"""


def test_report_with_sections() -> None:
    report = parse_smi_q(
        SMI_Q.format(driver="Deprecated, see KMD", cuda="13.0 [Deprecated; see UMD]", processes="None")
    )
    assert (report.driver_version, report.kmd_version, report.cuda_version) == ("610.1", "610.1", "13.0")
    assert (report.attached_gpus, report.cuda_umd_version, report.notes) == (2, None, ())
    first, second = report.gpus
    assert (first.bus_id, first.name, first.mig, first.driver_model) == (
        "00000000:01:00.0",
        "A",
        True,
        "WDDM",
    )
    assert (first.memory_total_mib, first.memory_used_mib, first.n_processes) == (80, 7, 2)
    assert (second.bus_id, second.mig, second.memory_total_mib, second.n_processes) == (
        "00000000:02:00.0",
        False,
        None,
        0,
    )


@pytest.mark.parametrize(("remark", "count"), [("N/A", None), ("None", 0), ("something", 0), ("", 0)])
def test_remark_instead_of_processes(remark: str, count: int | None) -> None:
    assert parse_smi_q(SMI_Q.format(driver="1", cuda="2", processes=remark)).gpus[1].n_processes == count


def test_quoted_report_and_text_without_report() -> None:
    assert parse_smi_q("text\n").notes == ("no 'key : value' lines before the first GPU",)
    assert parse_smi_q("GPU 0\n  Product Name : A\n").gpus[0].n_processes is None
    assert parse_smi_q(">Driver Version : 5.1\ntext\n").driver_version == "5.1"


# ---------------------------------------------------------------- the table

ROW = "|   0  {name:<20} {mode:>3}  | {bus} Off |                  N/A |\n"
MEMORY = "| N/A   43C    P0    66W / 300W |     7MiB /    100MiB |     N/A      Default |\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROW.format(name="Tesla T4", mode="On", bus="0000:01:00.0") + MEMORY, [("Tesla T4", "0000:01:00.0", 7, 100)]),
        (ROW.format(name="Tesla T4", mode="On", bus="N/A"), [("Tesla T4", None, None, None)]),
        ("|   0  Tesla T4  On  |\n" + MEMORY, [("Tesla T4", None, 7, 100)]),
        ("|   0  Tesla T4  On  \n" + MEMORY, []),
        ("|   0  4 boards  On  |\n", []),
        ("|   0  Name of x  On  |\n", []),
        ("   0  Tesla T4  On  0000:01:00.0 Off  N/A\n", [("Tesla T4", "0000:01:00.0", None, None)]),
        ("|   0. Tesla C2050  On  | 0000:01:00.0 Off | 0 |\n", [("Tesla C2050", "0000:01:00.0", None, None)]),
        ("|   0  Tesla T4 ... 5MiB / 9MiB |\n", [("Tesla T4", None, 5, 9)]),
        ("|   0  5MiB / 9MiB |\n", []),
        (ROW.format(name="T4", mode="On", bus="0000:01:00.0") + "|  5MiB / |\n", [("T4", "0000:01:00.0", 5, None)]),
    ],
)  # fmt: skip
def test_gpu_row(text: str, expected: list[Any]) -> None:
    gpus = parse_smi_table(text).gpus
    assert [(gpu.name, gpu.bus_id, gpu.memory_used_mib, gpu.memory_total_mib) for gpu in gpus] == expected


PROCESSES = "| Processes:                        GPU Memory |\n|=====================|\n"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("|    0   N/A  N/A      1284      C   python   506MiB |", (0, "N/A", 1284, "C", "python", 506)),
        ("|    0    7    0      1284    C+G   python   N/A |", (0, "7", 1284, "C+G", "python", None)),
        ("|    0      1284      G   Xorg   |", (0, None, 1284, "G", "Xorg", None)),
        ("|    0      1284      G   151MiB |", (0, None, 1284, "G", None, 151)),
        ("|    0      1284      G |", (0, None, 1284, "G", None, None)),
        ("|    0     31700  /opt/namd2   67MB  |", (0, None, 31700, None, "/opt/namd2", 67)),
        ("|    0     31700  9 |", None),
        ("|    0    Not Supported |", None),
        ("|    x      1284      G   Xorg |", None),
    ],
)
def test_process_row(row: str, expected: tuple[Any, ...] | None) -> None:
    processes = parse_smi_table(f"{PROCESSES}{row}\n+-----------------------+\n").processes
    found = [(row.gpu, row.gi, row.pid, row.type, row.name, row.memory_mib) for row in processes]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("text", "state", "count"),
    [
        ("|  processes found |\n", "cut", None),
        ("|    0   1284   G   Xorg   1MiB |\n|    0   1285   G   X\n", "rows_then_cut", None),
        ("|    0   1284   G   Xorg   1MiB |\n|    0   1285   G   X   1MiB\n", "rows_then_cut", 2),
    ],
)
def test_process_table_state(text: str, state: str, count: int | None) -> None:
    table = parse_smi_table(PROCESSES + text)
    assert (table.process_table, table.n_processes) == (state, count)


def test_notes_name_what_is_missing() -> None:
    assert parse_smi_table("").notes == ("the version line is not there", "no GPU row")
    header = "| NVIDIA-SMI 550.1   Driver Version: 550.1   CUDA Version: ERR!  |\n"
    table = parse_smi_table(header + ROW.format(name="T4", mode="On", bus="0000:01:00.0"))
    assert table.notes == ("the CUDA version is printed as 'ERR!'", "GPU 0: memory is not printed")


def test_version_line_may_be_broken() -> None:
    text = "| NVIDIA-SMI 550.1\n Driver Version: 550.2\n CUDA Version: 12.4 |\n"
    table = parse_smi_table(text + ROW.format(name="T4", mode="On", bus="0000:01:00.0"))
    assert (table.smi_version, table.driver_version, table.cuda_version) == ("550.1", "550.2", "12.4")
    assert parse_smi_table("NVIDIA-SMI 1\n\n\nNVIDIA-SMI 2 Driver Version: 3\n").smi_version == "2"
    assert parse_smi_table("| Driver Version: 5 |\n").driver_version == "5"
    assert parse_smi_table("Driver Version: 5\n").driver_version is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVIDIA-SMI 1  Driver Version: 2", True),
        ("NVIDIA-SMI 1\nDriver Version: 2", False),
        (ROW.format(name="T4", mode="On", bus="0000:01:00.0") + MEMORY, True),
        (ROW.format(name="T4", mode="On", bus="0000:01:00.0"), False),
        ((ROW.format(name="T4", mode="On", bus="0000:01:00.0") + MEMORY).replace("|", " "), False),
        (MEMORY, False),
    ],
)
def test_text_that_looks_like_a_table(text: str, expected: bool) -> None:
    assert looks_like_smi_table(text) is expected


# ---------------------------------------------------------------- the kernel log

XID = "[ 1.0] NVRM: Xid (PCI:0000:01:00): {}, pid={}, name={}, text {}"


def test_events_are_merged_by_kind_xid_and_gpu() -> None:
    lines = [XID.format(31, 7, "a", 1), XID.format(31, "x", "", 2), XID.format(13, 8, "b", 3)]
    lines += ["[ 2] NVRM: RmInitAdapter failed! (0x1:0x2:3)", "[ 3] NVRM: RmInitAdapter failed! (0x9:0x9:9)"]
    first, second, third = parse_kernel_log("\n".join(lines))
    assert (first.xid, first.count, first.process, first.text[-6:]) == (31, 2, "a (7)", "text 2")
    assert (second.xid, second.count, second.process) == (13, 1, "b (8)")
    assert (third.kind, third.count, "0x1:0x2" in third.text) == ("init-failed", 2, True)


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["NVRM: a", "NVRM: b"], 1),
        (["NVRM: a.", "NVRM: B"], 2),
        (["NVRM: a.", "NVRM: b"], 1),
        (["NVRM: a.", "[ 1.0] NVRM: b"], 2),
        (["NVRM: a", "[ 1.0] NVRM: b"], 1),
        (["NVRM: a", "usb 1-1: x", "NVRM: b"], 2),
        (["NVRM: a", "nvidia: b"], 2),
        (["nvidia: a", "NVRM: b"], 2),
        (["NVRM: Xid (PCI:0000:01:00): 1", "NVRM: b"], 2),
        (["NVRM: a", "NVRM: Xid (PCI:0000:01:00): 1"], 2),
        (["NVRM: a", "NVRM: loading NVIDIA UNIX"], 2),
        (["NVRM: a"] * kernel_log.MAX_JOINED_LINES, 1),
        (["NVRM: a"] * (kernel_log.MAX_JOINED_LINES + 1), 2),
    ],
)
def test_lines_of_a_message_are_joined(lines: list[str], count: int) -> None:
    assert len(kernel_log._split_messages(lines)) == count


def test_number_of_events_and_lines_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "MAX_EVENTS", 3)
    lines = [XID.format(number, 1, "a", "") for number in (1, 2, 3, 4, 3)]
    assert [(event.xid, event.count) for event in parse_kernel_log("\n".join(lines))] == [
        (1, 1),
        (2, 1),
        (3, 2),
    ]
    monkeypatch.setattr(kernel_log, "MAX_NVIDIA_LINES", 2)
    assert [event.xid for event in parse_kernel_log("\n".join(lines))] == [4, 3]
    assert [event.xid for event in parse_kernel_log("\n".join(lines[:2]))] == [1, 2]


# ---------------------------------------------------------------- other outputs


def test_topology_with_missing_rows_and_odd_lines() -> None:
    text = "\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU0\tSYS\tSYS\nGPU1\tword\tX\nGPU2\tX\nNIC9: x\nGPU1:\n"
    topology = parse_smi_topo(text)
    assert topology.matrix == {"GPU0": {"GPU0": "X", "GPU1": "NV2"}}
    assert topology.notes == ("no row for GPU1",)
    assert (topology.nic_legend, topology.ansi, topology.affinity_columns) == ({}, False, ())
    assert parse_smi_topo("GPU0 X\n").notes == ("no header row with GPU columns",)
    assert parse_smi_topo("GPU0\nGPU0 X\n").matrix == {"GPU0": {"GPU0": "X"}}
    assert parse_smi_topo("[4mGPU0[0m\nGPU0 X\n").n_gpus == 1


@pytest.mark.parametrize(
    ("text", "header", "rows"),
    [
        ("name\nT4 x\nuser@host$\n", ("name",), 1),
        ("name, index\nname, index\nT4, 0\nonly\n", ("name", "index"), 1),
        ("node1: name, index\nnode1: T4, 0\n", ("node1: name", "index"), 1),
        ("word, other\nmore, words\n", None, 0),
        ("a.b, c\n1, 2\n", ("a.b", "c"), 1),
        ("1, 2\n1, 2, 3\n", None, 1),
        ("P0, x\ny, z\n", None, 1),
    ],
)
def test_csv_table(text: str, header: tuple[str, ...] | None, rows: int) -> None:
    table = parse_smi_csv(text)
    assert (table.header, table.n_rows) == (header, rows)


@pytest.mark.parametrize(
    ("text", "layout", "packages"),
    [
        ("a==1\nb @ file:///x\nc (2)\n", "freeze", [("a", "1"), ("b", None)]),
        ("a 1\nb 2 /src\nc 3 word\n", "pip_list", [("a", "1"), ("b", "2")]),
        ("a 1\nb 2 ~/src\nc 2 C:\\src\n", "pip_list", [("a", "1"), ("b", "2"), ("c", "2")]),
        ("a 1 py39_0\nb 2 word ch\nc 3\n", "conda_list", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a 1 <pip>\n", "conda_list", [("a", "1")]),
        ("# Name Version Build Channel\na 1 word\n", "conda_list", [("a", "1")]),
        ("# packages in environment at /x:\na 1 word\n", "conda_list", [("a", "1")]),
        ("a=1=b\n- c=2\n", "conda_export", [("a", "1"), ("c", "2")]),
        ("a word\nb 1 2 3 4\n-x 1\nsingle\n", None, []),
    ],
)
def test_package_listing(text: str, layout: str | None, packages: list[tuple[str, str | None]]) -> None:
    listing = parse_pip_conda(text)
    assert listing.format == layout
    assert [(package.name, package.version) for package in listing.packages] == packages
    assert bool(listing.notes) is (layout is None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("== check pips ===\n== env ===\n", "tf_env"),
        ("== check pips ===\n", None),
        ("GPU 0: Tesla T4\n", None),
        ("nvcc: command not found\n", "nvcc"),
        ("nvidia-smi: command not found\n", "smi_failure"),
        ("NVRM version: NVIDIA\nDevice Minor: 0\n", "container_cli"),
        ("numpy 1.26.4\nabsl 2.0\n", "pip_conda"),
        ("numpy==1.26.4\n", "pip_conda"),
        ("Tesla T4, 15360 MiB\n", "smi_csv"),
        ("libcudart.so.12 -> libcudart.so.12.4.127\n", "ldconfig"),
        ("NVIDIA-SMI 1  Driver Version: N/A\n", "smi_table"),
    ],
)
def test_kind_of_a_short_text(text: str, kind: str | None) -> None:
    assert detect_kind(text) == kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("dpkg", "no packages\n"),
        ("lspci", "nothing\n"),
        ("lsmod", "nothing\n"),
        ("tf_env", "nothing\n"),
        ("smi_csv", "nothing here\n"),
        ("pip_conda", "nothing here\n"),
        ("smi_list", "  MIG 1g.10gb  Device  0: (UUID: M)\n"),
    ],
)
def test_empty_result_has_a_note(kind: str, text: str) -> None:
    assert len(parse(kind, text)["notes"]) == 1


def test_complete_result_has_no_note() -> None:
    for kind, text in (
        ("dpkg", "ii  libcudnn8  8.8.0  amd64  x\n"),
        ("dpkg", "libcudnn8/unknown,now 8.8.0.121-1+cuda11.8 amd64 [installed]\n"),
        ("lspci", "01:00.0 VGA compatible controller: NVIDIA Corporation GP104\n"),
        (
            "proc_version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.99  Mon Jan  1 00:00:00 2018\n",
        ),
        ("lsmod", "nvidia 16384 0\n"),
        ("smi_list", "GPU 0: A (UUID: G)\n  MIG 1g.10gb  Device  0: (UUID: M)\n"),
    ):
        assert parse(kind, text)["notes"] == [], kind


def test_python_version_of_old_reports() -> None:
    section = "== python version ===\nsys.version_info(3, 8, 1, 'final', 0)\n(3, 8, 1, 'final', 0)\n== env ===\n{}\n"
    for env, path in (
        ("LD_LIBRARY_PATH is unset", None),
        ("LD_LIBRARY_PATH ", None),
        ("> LD_LIBRARY_PATH=/a", "/a"),
    ):
        (run,) = parse("tf_env", section.format(env))["runs"]
        assert (run["python_version"], run["ld_library_path"]) == ("3.8.1", path)
    (run,) = parse("tf_env", "== env ===\n")["runs"]
    assert (run["python_version"], run["docker"], run["tf_import_error"], run["nvidia_smi"]) == (
        None,
        None,
        None,
        None,
    )
    (run,) = parse(
        "tf_env",
        "== are we in docker ===\nYes sure\n== check for virtualenv ===\nmaybe\n== nvidia-smi ===\nx\n",
    )["runs"]
    assert (run["docker"], run["virtualenv"], run["nvidia_smi"]) == (True, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"one line"', "one line"),
        ('["a\\n", "b"]', "a\nb"),
        ('["a", "b"]', '["a", "b"]'),
        ('{"a": "b"}', '{"a": "b"}'),
        ('{"log": "a\\n"}\n{"log": "b"}\nplain\n', "a\nb"),
        ('{"log": "a"}\n{"log": "b"}\nx\ny\n', '{"log": "a"}\n{"log": "b"}\nx\ny\n'),
        ('{"log": "a"}\n{"log": "b"}\nx\n', "a\nb"),
        ('{"other": "a"}\n{"other": "b"}', '{"other": "a"}\n{"other": "b"}'),
        ("- a\n- b", "a\nb"),
        ("- a\nb", "- a\nb"),
        ("- a", "- a"),
        ("7. a\n8. b", "a\nb"),
        ("7. a\n9. b", "7. a\n9. b"),
        ('{"x": {"y": ["no", 1, "a\\nb"]}}', "a\nb"),
    ],
)
def test_wrapped_text(text: str, expected: str) -> None:
    assert unwrap(text) == expected


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        (
            {
                "containerEdits": {
                    "deviceNodes": [{"path": "/dev/a", "hostPath": "/host/a"}, {"path": "relative"}, 5]
                }
            },
            ("/host/a",),
        ),
        ({"containerEdits": {"hooks": [{"path": "/h"}, {"path": "/h"}, 5]}, "devices": "x"}, ("/h",)),
        ({"devices": [{"name": 0, "containerEdits": {"mounts": [{"hostPath": "/m"}]}}, 7]}, ("/m",)),
        ({"containerEdits": []}, ()),
    ],
)
def test_host_paths_of_a_cdi_specification(spec: dict[str, Any], paths: tuple[str, ...]) -> None:
    assert parse_cdi(json.dumps({"kind": "nvidia.com/gpu", **spec})).paths == paths


def test_limits_of_a_cdi_specification() -> None:
    def nest(depth: int) -> str:
        return "kind: x\na: " + "[" * depth + "]" * depth + "\n"

    assert parse_cdi(nest(23)).kind == "x"
    with pytest.raises(CdiError, match="too deep"):
        parse_cdi(nest(24))
    assert parse_cdi("kind: x\n" + "\n" * 49_999).kind == "x"
    with pytest.raises(CdiError, match="lines"):
        parse_cdi("kind: x\n" + "\n" * 50_000)
    assert parse_cdi("kind: ''\n").kind == ""
    with pytest.raises(CdiError, match="no `kind`"):
        parse_cdi("kind:\n")
    assert parse_cdi("\ufeff" + json.dumps({"kind": "x", "cdiVersion": 5})).version == "5"
