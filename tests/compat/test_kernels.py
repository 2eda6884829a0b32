"""compat/kernels.json: what it says of operations whose kernels are known, and that it is read strictly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.kernels import load_kernels, type_named

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
try:
    from update_support.registered_kernels import group_by_operation
finally:
    sys.path.pop(0)

KERNELS = Compat.load().kernels


@pytest.mark.parametrize("release", KERNELS.releases)
def test_what_is_known_of_every_release(release: str) -> None:
    """MatMul has been on GPUs ever since, and strings, files and Python functions never."""
    product = KERNELS.find_kernels(release, "MatMul")
    assert product is not None
    assert product.gpu is not None
    assert {"float16", "float32", "float64"} <= product.gpu["T"]
    assert "string" not in product.gpu["T"]
    for operation in ("StringLength", "ReadFile", "PyFunc", "DecodeJpeg"):
        found = KERNELS.find_kernels(release, operation)
        assert found is not None
        assert found.cpu is not None
        assert found.gpu is None, operation


def test_a_type_that_came_later() -> None:
    """The wheels multiply bfloat16 on GPUs from 2.12 on, and whole numbers never."""
    has = [
        (release, "bfloat16" in found.gpu["T"], "int32" in found.gpu["T"])
        for release in KERNELS.releases
        if (found := KERNELS.find_kernels(release, "MatMul")) is not None and found.gpu is not None
    ]
    assert next(release for release, brain, _ in has if brain) == "2.12.1"
    assert [brain for _, brain, _ in has] == sorted(brain for _, brain, _ in has)
    assert not any(whole for _, _, whole in has)


def test_kernels_of_any_device_are_a_gpus_too() -> None:
    for release in ("1.15.5", "2.20.0"):
        found = KERNELS.find_kernels(release, "PartitionedCall")
        assert found is not None
        assert found.gpu == found.cpu == {}


def test_what_is_not_known_is_not_answered() -> None:
    assert KERNELS.find_kernels("2.10.1", "MyOwnOperation") is None
    assert KERNELS.find_kernels("1.4.1", "MatMul") is None


@pytest.mark.parametrize(
    ("era", "first", "last"),
    [("2.10", "2.10.1", "2.10.1"), ("1.14-2.0", "1.14.0", "2.0.4"), ("2.9-2.11", "2.9.3", "2.11.1")],
)
def test_the_releases_that_a_log_can_be_of(era: str, first: str, last: str) -> None:
    found = KERNELS.list_measured(era)
    assert (found[0], found[-1]) == (first, last)
    assert len(found) == (3 if "-" in era and era != "2.10" else 1)


@pytest.mark.parametrize("era", ["1.12", "1.12-2.3", "2.20-9.1", "2.4+", "", "any", "2.10.1"])
def test_of_what_was_not_measured_there_are_none(era: str) -> None:
    assert KERNELS.list_measured(era) == ()


@pytest.mark.parametrize(
    ("word", "name"),
    [("DT_HALF", "float16"), ("DT_FLOAT", "float32"), ("double", "float64"), ("DT_INT32_REF", "int32")],
)
def test_names_of_types(word: str, name: str) -> None:
    assert type_named(word) == name


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


def test_places_are_read(tmp_path: Path) -> None:
    table = load_kernels(make_sample(tmp_path))
    old, new = (table.find_kernels(release, "A") for release in table.releases)
    assert old is not None
    assert new is not None
    assert (old.cpu, old.gpu) == ({"T": {"float32", "int32"}}, None)
    assert new.gpu == {"T": {"float32"}}
    assert table.find_kernels("2.10.1", "B") is None


@pytest.mark.parametrize(
    "changes", [{"operations": {"A": {"tpu": ":0"}}}, {"sets": [1]}, {"more": 1}, {"releases": None}]
)
def test_another_shape_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(DataError):
        load_kernels(make_sample(tmp_path, **changes))


@pytest.mark.parametrize("row", ["T=9:0", "T=x:0", "T=0:x", "T=0"])
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, row: str) -> None:
    table = load_kernels(make_sample(tmp_path, operations={"A": {"cpu": row}}))
    with pytest.raises(DataError, match=r"kernels\.json: A"):
        table.find_kernels("2.9.3", "A")


# ---------------------------------------------------------------- what the libraries answer


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes((number << 3, value))
    return bytes((number << 3 | 2, len(value))) + value


def kernel(
    op: bytes, device: bytes, types: dict[bytes, list[int]], *, label: bytes = b"", packed: bool = True
) -> bytes:
    limits = b""
    for name, numbers in types.items():
        inside = field(6, bytes(numbers)) if packed else b"".join(field(6, one) for one in numbers)
        limits += field(3, field(1, name) + field(2, field(1, inside)))
    return field(
        1, field(1, op) + field(2, device) + limits + (field(5, label) if label else b"") + field(6, 1)
    )


@pytest.mark.parametrize("packed", [True, False])
def test_a_list_of_kernels_by_operation(packed: bool) -> None:
    data = b"".join(
        (
            kernel(b"A", b"CPU", {b"T": [1, 3], b"U": [9]}, packed=packed),
            kernel(b"A", b"CPU", {b"T": [7]}, packed=packed),
            kernel(b"A", b"GPU", {b"T": [101]}, packed=packed),
            kernel(b"A", b"GPU", {b"T": [19]}, label=b"asked", packed=packed),
            kernel(b"A", b"XLA_GPU", {}, packed=packed),
            kernel(b"B", b"DEFAULT", {}, packed=packed),
            kernel(b"C", b"TPU_SYSTEM", {}, packed=packed),
        )
    )
    assert group_by_operation(data) == {
        "A": {"cpu": {"T": ["float32", "int32", "string"]}, "gpu": {"T": ["float32"]}},
        "B": {"cpu": {}, "gpu": {}},
    }


def test_a_limit_to_words_leaves_all_types() -> None:
    words = field(3, field(1, b"data_format") + field(2, field(1, field(2, b"NHWC"))))
    data = field(1, field(1, b"D") + field(2, b"GPU") + words)
    assert group_by_operation(data) == {"D": {"gpu": {}}}
