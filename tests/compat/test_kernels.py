"""compat/kernels.json: the kernels of each operation, its strict reader and the script that lists them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from compat.every_row import for_each
from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.kernels import load_kernels, normalize_type

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
try:
    from update_support.registered_kernels import group_by_operation
finally:
    sys.path.pop(0)

KERNELS = Compat.load().kernels


@for_each(KERNELS.releases)
def test_operations_known_in_every_release(release: str) -> None:
    """MatMul has a GPU kernel in every release; strings, files and Python functions never have one."""
    product = KERNELS.find_kernels(release, "MatMul")
    assert product is not None
    assert product.gpu_types is not None
    assert {"float16", "float32", "float64"} <= product.gpu_types["T"]
    assert "string" not in product.gpu_types["T"]
    for operation in ("StringLength", "ReadFile", "PyFunc", "DecodeJpeg"):
        kernels = KERNELS.find_kernels(release, operation)
        assert kernels is not None
        assert kernels.cpu_types is not None
        assert kernels.gpu_types is None, operation


def test_bfloat16_was_added_in_2_12() -> None:
    """The wheels multiply bfloat16 on GPUs from 2.12 on, and integers never."""
    support = [
        (release, "bfloat16" in kernels.gpu_types["T"], "int32" in kernels.gpu_types["T"])
        for release in KERNELS.releases
        if (kernels := KERNELS.find_kernels(release, "MatMul")) is not None and kernels.gpu_types is not None
    ]
    assert next(release for release, has_bfloat16, _ in support if has_bfloat16) == "2.12.1"
    assert [has_bfloat16 for _, has_bfloat16, _ in support] == sorted(
        has_bfloat16 for _, has_bfloat16, _ in support
    )
    assert not any(has_int32 for _, _, has_int32 in support)


def test_kernels_of_any_device_run_on_a_gpu() -> None:
    for release in ("1.15.5", "2.20.0"):
        kernels = KERNELS.find_kernels(release, "PartitionedCall")
        assert kernels is not None
        assert kernels.gpu_types == kernels.cpu_types == {}


def test_unknown_operation_or_release() -> None:
    assert KERNELS.find_kernels("2.10.1", "MyOwnOperation") is None
    assert KERNELS.find_kernels("1.4.1", "MatMul") is None


@pytest.mark.parametrize(
    ("era", "first", "last"),
    [("2.10", "2.10.1", "2.10.1"), ("1.14-2.0", "1.14.0", "2.0.4"), ("2.9-2.11", "2.9.3", "2.11.1")],
)
def test_measured_releases_of_an_era(era: str, first: str, last: str) -> None:
    releases = KERNELS.list_measured(era)
    assert (releases[0], releases[-1]) == (first, last)
    assert len(releases) == (3 if "-" in era and era != "2.10" else 1)


@pytest.mark.parametrize("era", ["1.12", "1.12-2.3", "2.20-9.1", "2.4+", "", "any", "2.10.1"])
def test_era_without_measured_releases(era: str) -> None:
    assert KERNELS.list_measured(era) == ()


@pytest.mark.parametrize(
    ("word", "name"),
    [("DT_HALF", "float16"), ("DT_FLOAT", "float32"), ("double", "float64"), ("DT_INT32_REF", "int32")],
)
def test_type_names(word: str, name: str) -> None:
    assert normalize_type(word) == name


TABLE: dict[str, Any] = {
    "schema_version": 1,
    "as_of": "2026-11-23",
    "sources": ["made"],
    "releases": ["2.9.3", "2.10.1"],
    "sets": ["float32,int32", "float32"],
    "operations": {"A": {"cpu": "T=0:0-1", "gpu": "T=1:1"}, "B": {"cpu": ":0"}},
}


def make_sample(tmp_path: Path, **changes: object) -> Path:
    (tmp_path / "kernels.json").write_text(json.dumps({**TABLE, **changes}), encoding="utf-8")
    return tmp_path


def test_table_is_read(tmp_path: Path) -> None:
    table = load_kernels(make_sample(tmp_path))
    old, new = (table.find_kernels(release, "A") for release in table.releases)
    assert old is not None
    assert new is not None
    assert (old.cpu_types, old.gpu_types) == ({"T": {"float32", "int32"}}, None)
    assert new.gpu_types == {"T": {"float32"}}
    assert table.find_kernels("2.10.1", "B") is None


@pytest.mark.parametrize(
    "changes", [{"operations": {"A": {"tpu": ":0"}}}, {"sets": [1]}, {"more": 1}, {"releases": None}]
)
def test_table_of_another_shape_is_rejected(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(DataError):
        load_kernels(make_sample(tmp_path, **changes))


@pytest.mark.parametrize("row", ["T=9:0", "T=x:0", "T=0:x", "T=0"])
def test_message_names_the_unreadable_entry(tmp_path: Path, row: str) -> None:
    table = load_kernels(make_sample(tmp_path, operations={"A": {"cpu": row}}))
    with pytest.raises(DataError, match=r"kernels\.json: A"):
        table.find_kernels("2.9.3", "A")


# ---------------------------------------------------------------- the kernel registry of the libraries


def encode_field(number: int, value: bytes | int) -> bytes:
    """Encode one protobuf field: a varint below 128, or bytes."""
    if isinstance(value, int):
        return bytes((number << 3, value))
    return bytes((number << 3 | 2, len(value))) + value


def encode_kernel(
    op: bytes, device: bytes, types: dict[bytes, list[int]], *, label: bytes = b"", packed: bool = True
) -> bytes:
    """Encode one KernelDef of a KernelList."""
    constraints = b""
    for name, numbers in types.items():
        type_list = (
            encode_field(6, bytes(numbers))
            if packed
            else b"".join(encode_field(6, type_number) for type_number in numbers)
        )
        constraints += encode_field(3, encode_field(1, name) + encode_field(2, encode_field(1, type_list)))
    return encode_field(
        1,
        encode_field(1, op)
        + encode_field(2, device)
        + constraints
        + (encode_field(5, label) if label else b"")
        + encode_field(6, 1),
    )


@pytest.mark.parametrize("packed", [True, False])
def test_kernels_are_grouped_by_operation(packed: bool) -> None:
    data = b"".join(
        (
            encode_kernel(b"A", b"CPU", {b"T": [1, 3], b"U": [9]}, packed=packed),
            encode_kernel(b"A", b"CPU", {b"T": [7]}, packed=packed),
            encode_kernel(b"A", b"GPU", {b"T": [101]}, packed=packed),
            encode_kernel(b"A", b"GPU", {b"T": [19]}, label=b"asked", packed=packed),
            encode_kernel(b"A", b"XLA_GPU", {}, packed=packed),
            encode_kernel(b"B", b"DEFAULT", {}, packed=packed),
            encode_kernel(b"C", b"TPU_SYSTEM", {}, packed=packed),
        )
    )
    assert group_by_operation(data) == {
        "A": {"cpu": {"T": ["float32", "int32", "string"]}, "gpu": {"T": ["float32"]}},
        "B": {"cpu": {}, "gpu": {}},
    }


def test_constraint_on_strings_leaves_all_types() -> None:
    constraint = encode_field(
        3, encode_field(1, b"data_format") + encode_field(2, encode_field(1, encode_field(2, b"NHWC")))
    )
    data = encode_field(1, encode_field(1, b"D") + encode_field(2, b"GPU") + constraint)
    assert group_by_operation(data) == {"D": {"gpu": {}}}
