"""The output of nvidia-smi --query-gpu with --format=csv."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.smi_csv import parse_smi_csv


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
