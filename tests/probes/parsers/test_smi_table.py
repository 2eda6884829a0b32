"""The nvidia-smi table: every layout since 2013 and every kind of damage in bug reports."""

from __future__ import annotations

import json
import textwrap

import pytest

from tfdoctor.probes.parsers.smi_table import looks_like_smi_table, parse_smi_table

# Versions that begin with 999 are clearly fictitious.
CLASSIC = """\
Mon Jan  1 00:00:00 2018
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 999.13                 Driver Version: 999.13                    |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  GeForce GTX 108...  Off  | 0000:01:00.0      On |                  N/A |
|100%   41C    P0    76W / 250W |    708MiB / 11177MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  Tesla K80           On   | 0000:02:00.0     Off |                    0 |
| N/A   36C    P8    26W / 149W |      0MiB / 11441MiB |      0%   E. Process |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID  Type  Process name                               Usage      |
|=============================================================================|
|    0      1284    G   /usr/lib/xorg/Xorg                             151MiB |
|    0      4122    C   ...two words/envs/one/bin/python               506MiB |
+-----------------------------------------------------------------------------+
"""

WIDE_MIG = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 999.48.01              Driver Version: 999.48.01      CUDA Version: 13.1     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100 80GB PCIe          On  |   00000001:00:00.0 Off |                   On |
| N/A   43C    P0             66W /  300W |    8530MiB /  81920MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100 80GB PCIe          On  |   00000002:00:00.0 Off |                    0 |
| N/A   40C    P0             60W /  300W |                    N/A |     N/A      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  0    7   0   0  |              13MiB /  9728MiB    | 14      0 |  1   0    0    0    0 |
|                  |                 2MiB / 16383MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0   11   0   1  |                 N/A              | 14      0 |  1   0    0    0    0 |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0    7    0            16798      C   .../util/server --port 1                 74MiB |
|    1   N/A  N/A           16799    C+G   C:\\Program Files\\one two.exe            N/A      |
+-----------------------------------------------------------------------------------------+
"""


def test_classic_layout() -> None:
    table = parse_smi_table(CLASSIC)
    assert (table.smi_version, table.driver_version, table.cuda_version) == ("999.13", "999.13", None)
    first, second = table.gpus
    assert (first.index, first.name, first.bus_id) == (0, "GeForce GTX 108...", "0000:01:00.0")
    assert (first.memory_used_mib, first.memory_total_mib, first.mig) == (708, 11177, False)
    assert (second.index, second.name, second.mode) == (1, "Tesla K80", "On")
    assert (table.process_table, table.n_processes) == ("complete", 2)
    process = table.processes[1]
    assert (process.gpu, process.gi, process.ci, process.pid, process.type) == (0, None, None, 4122, "C")
    assert (process.name, process.memory_mib) == ("...two words/envs/one/bin/python", 506)
    assert table.mig_devices == ()


def test_wide_layout_with_mig() -> None:
    table = parse_smi_table(WIDE_MIG)
    assert table.cuda_version == "13.1"
    assert [gpu.mig for gpu in table.gpus] == [True, False]
    assert table.gpus[1].memory_total_mib is None
    assert [
        (d.gpu, d.gi, d.ci, d.mig_dev, d.memory_used_mib, d.memory_total_mib) for d in table.mig_devices
    ] == [
        (0, 7, 0, 0, 13, 9728),
        (0, 11, 0, 1, None, None),
    ]
    mig, windows = table.processes
    assert (mig.gi, mig.ci, mig.name, mig.memory_mib) == ("7", "0", ".../util/server --port 1", 74)
    assert (windows.gi, windows.type, windows.memory_mib) == ("N/A", "C+G", None)
    assert windows.name == r"C:\Program Files\one two.exe"


def test_kmd_and_umd_labels() -> None:
    """The labels that nvidia-smi has used since 610; under WSL the kernel driver is that of Windows."""
    header = "| NVIDIA-SMI 999.65.07              KMD Version: 998.64        CUDA UMD Version: 13.4     |"
    table = parse_smi_table(WIDE_MIG.replace(WIDE_MIG.split("\n")[1], header))
    assert (table.smi_version, table.driver_version, table.cuda_version) == ("999.65.07", "998.64", "13.4")
    assert len(table.gpus) == 2


@pytest.mark.parametrize("raw", ["N/A", "ERR!", "Not Found"])
def test_unreadable_versions_are_kept_as_raw_text(raw: str) -> None:
    header = f"| NVIDIA-SMI 999.3.0       Driver Version: {raw}       CUDA Version: {raw}      |"
    table = parse_smi_table(header)
    assert (table.driver_version, table.cuda_version) == (None, None)
    assert (table.driver_version_raw, table.cuda_version_raw) == (raw, raw)


def test_jetson() -> None:
    table = parse_smi_table("""\
| NVIDIA-SMI 999.3.0                Driver Version: N/A          CUDA Version: 12.2     |
|=========================================+======================+======================|
|   0  Orin (nvgpu)                  N/A  | N/A              N/A |                  N/A |
| N/A   N/A  N/A               N/A /  N/A | Not Supported        |     N/A          N/A |
|                                         |                      |                  N/A |
+-----------------------------------------+----------------------+----------------------+
""")
    (gpu,) = table.gpus
    assert (gpu.name, gpu.bus_id, gpu.memory_total_mib, gpu.memory_used_mib) == (
        "Orin (nvgpu)",
        None,
        None,
        None,
    )
    assert (table.process_table, table.n_processes) == ("absent", None)


def test_compute_processes_of_331_have_no_type() -> None:
    table = parse_smi_table("""\
| NVIDIA-SMI 5.999.15   Driver Version: 999.15         |
|   0  GeForce GTX TITAN   Off  | 0000:03:00.0     N/A |                  N/A |
| 31%   44C  N/A     N/A /  N/A |       14MB /  6143MB |     N/A      Default |
+-------------------------------+----------------------+----------------------+
+-----------------------------------------------------------------------------+
| Compute processes:                                               GPU Memory |
|  GPU       PID  Process name                                     Usage      |
|=============================================================================|
|    0     31700  /opt/two words/namd2                                  67MB  |
|    1            Not Supported                                               |
+-----------------------------------------------------------------------------+
""")
    assert (table.smi_version, table.driver_version) == ("5.999.15", "999.15")
    assert table.gpus[0].memory_total_mib == 6143
    (process,) = table.processes
    assert (process.pid, process.type, process.name, process.memory_mib) == (
        31700,
        None,
        "/opt/two words/namd2",
        67,
    )
    assert table.not_supported_process_rows == (1,)


def _make_process_table(*lines: str, closed: bool = True) -> str:
    header = CLASSIC[: CLASSIC.index("|    0      1284")]
    border = "+-----------------------------------------------------------------------------+\n"
    return header + "".join(line + "\n" for line in lines) + (border if closed else "")


@pytest.mark.parametrize(
    ("text", "state", "count"),
    [
        (_make_process_table(), "empty", 0),
        (
            _make_process_table("|  No running processes found                                  |"),
            "none_found",
            0,
        ),
        (
            _make_process_table("|  No running compute processes found                          |"),
            "none_found",
            0,
        ),
        (
            _make_process_table("|    0                  Not Supported                          |"),
            "not_supported",
            None,
        ),
        (
            _make_process_table("|    0      1284    G   Xorg           151MiB |", closed=False),
            "rows_then_cut",
            1,
        ),
        (_make_process_table("|    0      1284    G   Xo", closed=False), "rows_then_cut", None),
        (_make_process_table(closed=False), "cut", None),
        (CLASSIC[: CLASSIC.index("|========")], "absent", None),
        (
            _make_process_table("|    0      1284    G   Insufficient Permissions    N/A      |"),
            "complete",
            1,
        ),
    ],
)
def test_states_of_the_process_table(text: str, state: str, count: int | None) -> None:
    table = parse_smi_table(text)
    assert (table.process_table, table.n_processes) == (state, count)


def test_broken_gpu_and_fragment_without_header() -> None:
    table = parse_smi_table("""\
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
|                               |                      |                 ERR! |
+-------------------------------+----------------------+----------------------+
""")
    assert (table.smi_version, table.driver_version) == (None, None)
    (gpu,) = table.gpus
    assert (gpu.index, gpu.name, gpu.memory_total_mib, gpu.mig) == (5, "ERR!", 81920, False)
    assert "the version line is not there" in table.notes


def test_abridged_row() -> None:
    (gpu,) = parse_smi_table("|   0  NVIDIA GeForce RTX 3080     ...     2504MiB / 10240MiB  ...      |").gpus
    assert (gpu.name, gpu.bus_id, gpu.memory_used_mib, gpu.memory_total_mib) == (
        "NVIDIA GeForce RTX 3080",
        None,
        2504,
        10240,
    )


def test_only_the_first_of_two_tables() -> None:
    table = parse_smi_table(WIDE_MIG + "\n$ nvidia-smi\n" + CLASSIC)
    assert table.driver_version == "999.48.01"
    assert len(table.gpus) == 2
    assert table.n_processes == 2


def _hard_wrap(text: str, width: int) -> str:
    pieces = (
        line[i : i + width].rstrip() for line in text.split("\n") for i in range(0, max(len(line), 1), width)
    )
    return "\n".join(pieces)


def _word_wrap(text: str, width: int) -> str:
    return "\n".join(
        piece
        for line in text.split("\n")
        for piece in textwrap.wrap(line, width, replace_whitespace=False) or [""]
    )


def _surround_lines(text: str, prefix: str, suffix: str = "") -> str:
    return "\n".join(f"{prefix}{line}{suffix}" for line in text.split("\n"))


DAMAGE = {
    "wrapped-80": lambda text: _hard_wrap(text, 80),
    "wrapped-72": lambda text: _hard_wrap(text, 72),
    "words-72": lambda text: _word_wrap(text, 72),
    "collapsed": lambda text: "\n".join(" ".join(line.split()) for line in text.split("\n")),
    "one-paragraph": lambda text: " ".join(text.split()),
    "notebook": lambda text: "\n".join(f"   {json.dumps(line + chr(10))}," for line in text.split("\n")),
    "json-string": json.dumps,
    "box": lambda text: _surround_lines(text, "│ ", " │"),
    "quote": lambda text: _surround_lines(text, "> "),
    "comment": lambda text: _surround_lines(text, "# "),
    "pod": lambda text: _surround_lines(text, "[pod/gpu/main] "),
    "compose": lambda text: _surround_lines(text, "gpu-test-1  | "),
    "time-stamp": lambda text: _surround_lines(text, "2024-05-01T10:11:12.123456789Z "),
    "html": lambda text: _surround_lines(text, "", "<br>"),
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "blank-lines": lambda text: text.replace("\n", "\n\n"),
    "ansi": lambda text: _surround_lines(text, "\x1b[32m", "\x1b[0m"),
    "no-break-spaces": lambda text: text.replace(" ", "\u00a0"),
    "no-opening-pipes": lambda text: "\n".join(line.lstrip("|+") for line in text.split("\n")),
    "no-closing-pipes": lambda text: "\n".join(line.rstrip("|+") for line in text.split("\n")),
    "stray-pipes": lambda text: text.replace("+\n|  ", "+\n|\n|  "),
    "interrupt": lambda text: text.replace("Tesla K80", "Tesla K80 ^C").replace("80GB PCIe  ", "80GB PCIe^C"),
    "prompt": lambda text: "(venv) user@host:~$ nvidia-smi\n" + text + "(venv) user@host:~$ ",
    "fence": lambda text: f"```{text}```",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("text", [CLASSIC, WIDE_MIG], ids=["classic", "wide"])
def test_damaged_table_is_parsed_the_same(text: str, damage: object) -> None:
    assert callable(damage)
    intact, damaged = parse_smi_table(text).as_dict(), parse_smi_table(damage(text)).as_dict()
    assert json.dumps(intact).replace(" ", "") == json.dumps(damaged).replace(" ", "")


def test_prose_after_a_cut_row_is_not_part_of_it() -> None:
    text = CLASSIC[: CLASSIC.index("   ...two words")] + "\nAny idea what this means?\nThanks | regards\n"
    assert all("idea" not in (process.name or "") for process in parse_smi_table(text).processes)


def test_table_is_recognized() -> None:
    assert looks_like_smi_table(CLASSIC)
    assert looks_like_smi_table(_hard_wrap(WIDE_MIG, 80))
    assert not looks_like_smi_table(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    )
