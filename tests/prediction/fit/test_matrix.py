"""The compatibility matrix query, and the page generated from it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat import Compat, UnknownReleaseError
from tfdoctor.core.versions import VersionSyntaxError, is_driver_at_least
from tfdoctor.prediction.fit.drivers import find_driver_refusal, list_known_drivers
from tfdoctor.prediction.fit.matrix import (
    MatrixQuery,
    group_rows,
    list_driver_gaps,
    list_refusals,
    select_rows,
)
from tfdoctor.prediction.fit.models import HostGpu
from tfdoctor.render.matrix import render_rows

if TYPE_CHECKING:
    from types import ModuleType

COMPAT = Compat.load()
ROOT = Path(__file__).resolve().parents[3]


def list_names(query: MatrixQuery) -> list[str]:
    return [f"{row.release.package}-{row.release.version}" for row in select_rows(COMPAT, query)]


def test_all_releases_are_listed_newest_first() -> None:
    rows = select_rows(COMPAT)
    assert len(rows) == len(COMPAT.releases)
    parsed = [row.release.parsed for row in rows]
    assert parsed == sorted(parsed, reverse=True)
    assert rows[0].release is COMPAT.releases[-1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (MatrixQuery(tf="2.4"), ["tensorflow-2.4.4", "tensorflow-gpu-2.4.4"]),
        (MatrixQuery(tf="1.14", gpu=True), ["tensorflow-gpu-1.14.0"]),
        (MatrixQuery(tf="2.15.0"), ["tensorflow-2.15.0"]),
        (
            MatrixQuery(tf=">=2.12", python="3.8", package="tensorflow"),
            ["tensorflow-2.13.1", "tensorflow-2.13.0", "tensorflow-2.12.1", "tensorflow-2.12.0"],
        ),
        (MatrixQuery(cuda="12.2"), ["tensorflow-2.15.1", "tensorflow-2.15.0.post1", "tensorflow-2.15.0"]),
        (MatrixQuery(tf="2.14", cuda="11", cudnn="8.6"), ["tensorflow-2.14.1"]),
        (MatrixQuery(tf=">=2.9", os="windows", gpu=True, package="tensorflow-gpu", python="3.7"), None),
        (MatrixQuery(cuda="12.5", driver="525.53"), []),
        (MatrixQuery(tf="2.19", cuda="12.5", driver="525"), ["tensorflow-2.19.1"]),
        (MatrixQuery(capability="2.0", gpu=True), []),
    ],
)
def test_query_selects_releases(query: MatrixQuery, expected: list[str] | None) -> None:
    selected = list_names(query)
    if expected is None:
        assert selected
        assert all(name.startswith(("tensorflow-gpu-2.9.", "tensorflow-gpu-2.10.")) for name in selected)
    else:
        assert selected == expected


def test_several_capabilities_are_alternatives() -> None:
    """A GPU name that means 2.1, 3.0 or 3.5 keeps releases that run on any of them."""
    rows = select_rows(COMPAT, MatrixQuery(capability="2.1,3.0,3.5", package="tensorflow-gpu", gpu=True))
    assert rows[0].release.version == "2.11.0"
    assert {row.code_kind for row in rows} <= {"native", "jit"}


def test_driver_minimums() -> None:
    row = select_rows(COMPAT, MatrixQuery(tf="2.21.0"))[0]
    assert (row.min_linux_driver, row.min_windows_driver) == ("525.60.13", None)
    row = select_rows(COMPAT, MatrixQuery(tf="2.10.1"))[0]
    assert (row.min_linux_driver, row.min_windows_driver) == ("450.80.02", "452.39")
    assert all(row.release.cuda != "12.5.1" for row in select_rows(COMPAT, MatrixQuery(driver="470.82.01")))


@pytest.mark.parametrize("capability", sorted({gpu.capability for gpu in COMPAT.gpus}))
def test_driver_minimum_of_a_gpu_is_not_older_than_the_gpu(capability: str) -> None:
    """The driver that a row names is itself no reason to refuse this GPU."""
    for row in select_rows(COMPAT, MatrixQuery(capability=capability)):
        for platform, driver in (("linux", row.min_linux_driver), ("windows", row.min_windows_driver)):
            if driver is not None:
                refusal = find_driver_refusal(COMPAT, driver, HostGpu("", capability), platform)
                assert refusal is None, (row.release.version, driver, refusal)


@pytest.mark.parametrize(
    ("capability", "tf", "driver"),
    [
        ("8.9", "2.14.0", "520.61.05"),
        ("9.0", "2.20.0", "555.42.02"),
        ("12.0", "2.20.0", "570.26"),
        ("10.3", "2.21.0", "575.51.03"),
    ],
)
def test_driver_minimum_of_a_new_gpu(capability: str, tf: str, driver: str) -> None:
    assert select_rows(COMPAT, MatrixQuery(tf=tf, capability=capability))[0].min_linux_driver == driver
    older = MatrixQuery(tf=tf, capability=capability, driver=str(int(driver[:3]) - 10))
    assert select_rows(COMPAT, older) == ()


def test_problems_follow_the_capability() -> None:
    def problem_ids(capability: str | None) -> set[str]:
        row = select_rows(COMPAT, MatrixQuery(tf="2.20.0", capability=capability))[0]
        return {problem.id for problem in row.problems}

    assert {"ptx-sm90a-on-blackwell", "cudnn-unpinned"} <= problem_ids(None)
    assert "ptx-sm90a-on-blackwell" in problem_ids("12.0")
    assert "cudnn-unpinned" not in problem_ids("12.0")
    assert "cudnn-unpinned" in problem_ids("7.0")
    assert select_rows(COMPAT, MatrixQuery(tf="2.20.0", capability="12.0"))[0].code_kind == "arch-specific"


@pytest.mark.parametrize("field", ["tf", "cuda", "python", "capability", "driver"])
def test_invalid_version_is_an_error(field: str) -> None:
    with pytest.raises(VersionSyntaxError):
        select_rows(COMPAT, replace(MatrixQuery(), **{field: "banana"}))


def test_unknown_release_is_an_error() -> None:
    with pytest.raises(UnknownReleaseError, match="the nearest known"):
        select_rows(COMPAT, MatrixQuery(tf="3.0"))


def test_json_rows_have_the_documented_keys() -> None:
    keys = {
        "tensorflow",
        "package",
        "released",
        "gpu",
        "python",
        "cuda",
        "cudnn",
        "linkage",
        "required_libraries",
        "optional_libraries",
        "cubin",
        "ptx",
        "registration_floor",
        "driver_minimum",
        "glibc",
        "pip_extra",
        "known_problems",
        "evidence",
        "sources",
    }
    for row in select_rows(COMPAT):
        data = json.loads(json.dumps(row.as_dict(lambda _: "TFD299")))
        assert keys <= data.keys()
        assert data["linkage"] in ({"dlopen", "needed"} if data["gpu"] else {None})
        assert data["evidence"] in {"measured", "documented"}
        assert data["required_libraries"] == sorted(data["required_libraries"])
        assert set(data["driver_minimum"]) == {"linux", "windows"}
        assert data["gpu"] == (data["driver_minimum"]["linux"] is not None)
        for problem in data["known_problems"]:
            assert problem["code"] == "TFD299"
            assert problem["text"]


def test_groups_contain_all_rows() -> None:
    rows = select_rows(COMPAT)
    groups = group_rows(rows)
    assert tuple(row for members in groups for row in members.rows) == rows
    assert len(groups) < len(rows)
    for members in groups:
        assert len({row.release.minor for row in members.rows}) == 1
        assert len(members.versions) <= len(members.rows)


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_matrix_page_is_up_to_date() -> None:
    page = load_script("update_matrix_docs").render_page(COMPAT)
    assert (ROOT / "docs" / "matrix.md").read_text(encoding="utf-8") == page, (
        "stale: run scripts/update_matrix_docs.py"
    )
    for problem in COMPAT.problems:
        assert problem.title in page


@pytest.mark.parametrize("capability", ["8.0", "9.0"])
def test_shown_driver_is_the_oldest_that_the_planner_accepts(capability: str) -> None:
    compat = Compat.load()
    checked = 0
    for row in select_rows(compat, MatrixQuery(capability=capability, tf=">=2.11")):
        if row.code_kind == "arch-specific" or row.min_linux_driver is None:
            continue
        for driver in list_known_drivers(compat):
            query = MatrixQuery(driver=driver)
            accepted = not list_refusals(compat, row.release, query, capability)
            assert accepted is is_driver_at_least(driver, row.min_linux_driver), (row.release.version, driver)
            checked += 1
    assert checked > 100


def test_releases_that_the_driver_is_too_old_for_are_named() -> None:
    """Most kernels of 2.17 and newer are PTX for an H100; 2.16 in between runs."""
    compat = Compat.load()
    query = MatrixQuery(capability="9.0", driver="525", tf=">=2.15,<2.20")
    rows = select_rows(compat, query)
    assert {row.release.minor for row in rows} == {"2.16"}
    assert list_driver_gaps(compat, query, rows) == [
        ("2.19.0", "2.19.1", "555.42.02"),
        ("2.17.0", "2.18.1", "545.23.06"),
        ("2.15.0", "2.15.1", "530.30.02"),
    ]
    assert list_driver_gaps(compat, replace(query, driver=None), rows) == []


@pytest.mark.parametrize(("capability", "is_mostly_ptx"), [("8.0", False), ("9.0", True)])
def test_machine_code_for_a_few_kernels_alone_is_not_called_machine_code(
    capability: str, is_mostly_ptx: bool
) -> None:
    rows = select_rows(Compat.load(), MatrixQuery(capability=capability, tf=">=2.17,<2.20"))
    assert {(row.code_kind, row.is_mostly_ptx) for row in rows} == {("native", is_mostly_ptx)}
    text = render_rows(rows, as_of="")
    assert ("mostly PTX" in text, "machine code" in text) == (is_mostly_ptx, not is_mostly_ptx)
