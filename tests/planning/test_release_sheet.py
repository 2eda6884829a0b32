"""Tests of the data sheet of a release and of the overview of all releases."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tfdoctor.compat import Compat, Release
from tfdoctor.planning import overview as overview_module
from tfdoctor.planning.overview import list_overviews
from tfdoctor.planning.release_sheet import (
    ReleaseSheet,
    describe_conditions,
    format_python_ranges,
    get_problem_code,
    make_sheet,
)
from tfdoctor.prediction.fit.matrix import MatrixQuery, MatrixRow, select_rows

COMPAT = Compat.load()
ROWS = select_rows(COMPAT, MatrixQuery())


def select(version: str, package: str = "tensorflow") -> list[MatrixRow]:
    return [*select_rows(COMPAT, MatrixQuery(tf=f"=={version}", package=package))]


def describe(version: str = "2.10.1", **fields: Any) -> dict[str, str]:
    """Return the requirements of a release that every newer GPU can run, with some of its fields changed."""
    (row,) = select(version)
    fields = {"newest_capability": None, **fields}
    changed = {key: value for key, value in fields.items() if hasattr(row, key)}
    release: Release = replace(
        row.release, **{key: value for key, value in fields.items() if key not in changed}
    )
    return dict(make_sheet(COMPAT, [replace(row, release=release, **changed)]).requirements)


@pytest.mark.parametrize(
    ("pythons", "text"),
    [
        (("3.6", "3.9", "3.10", "3.11"), "3.6, 3.9-3.11"),
        (("2.7", "3.5"), "2.7, 3.5"),
        (("2.9", "3.0"), "2.9, 3.0"),
        (("3.9", "3.10"), "3.9-3.10"),
        ((), ""),
    ],
)
def test_python_ranges(pythons: tuple[str, ...], text: str) -> None:
    assert format_python_ranges(pythons) == text


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("Python", {}, "3.7-3.10 (Linux and Windows)"),
        ("Python", {"windows_pythons": (), "windows_gpu": False}, "3.7-3.10 (Linux; no Windows wheel)"),
        ("Python", {"windows_gpu": False}, "3.7-3.10 (Linux); 3.7-3.10 (Windows, without GPU code)"),
        ("Python", {"windows_pythons": ("3.7",)}, "3.7-3.10 (Linux); 3.7 (Windows)"),
        ("Python", {"gpu": False, "windows_gpu": False}, "3.7-3.10 (Linux and Windows)"),
        ("Driver", {"min_linux_driver": None, "min_windows_driver": None}, "not known"),
        ("Driver", {"min_linux_driver": "450", "min_windows_driver": "452"}, "450 or newer (Windows: 452)"),
        ("Driver", {"min_linux_driver": "450", "min_windows_driver": None}, "450 or newer"),
        ("CUDA", {"cuda": None}, "not known"),
        ("cuDNN", {"cudnn": None}, "not known"),
        (
            "Libraries",
            {"required_libraries": ("b", "a")},
            "a, b. Without any one of them no GPU is registered.",
        ),
        (
            "Libraries",
            {"required_libraries": ("a",), "linkage": "needed"},
            "a. Without any one of them the import fails.",
        ),
        ("GPUs", {"cubin": ()}, "not known"),
        (
            "GPUs",
            {"cubin": ("7.0",), "ptx": (), "registration_floor": None},
            "machine code for compute capability 7.0.",
        ),
        (
            "GPUs",
            {"cubin": ("7.0",), "ptx": ("7.0", "8.0"), "ptx_arch_specific": (), "registration_floor": None},
            "machine code for compute capability 7.0; newer ones compile PTX 8.0 on first use.",
        ),
        (
            "GPUs",
            {"cubin": ("6.1", "7.0"), "newest_capability": "7.5", "registration_floor": None},
            (
                "compute capability 6.1 to 7.5; newer cards do not work. "
                "Machine code for compute capability 6.1, 7.0; 7.5 compiles PTX on first use."
            ),
        ),
        (
            "GPUs",
            {"cubin": ("7.0",), "ptx": ("9.0",), "ptx_arch_specific": ("9.0a",), "registration_floor": "5.0"},
            (
                "machine code for compute capability 7.0; newer ones fail where a kernel has only PTX for 9.0a. "
                "TensorFlow ignores cards below 5.0."
            ),
        ),
        (
            "System",
            {"glibc": "2.17", "glibcxx": "3.4", "cpu_instructions": ("avx", "fma")},
            "glibc 2.17 or newer, libstdc++ with GLIBCXX_3.4, a processor with AVX, FMA",
        ),
        ("System", {"glibc": None, "glibcxx": "3.4", "cpu_instructions": ()}, "libstdc++ with GLIBCXX_3.4"),
    ],
)
def test_requirements_of_a_release(name: str, fields: dict[str, Any], text: str) -> None:
    assert describe(**fields)[name] == text


def test_parts_that_a_sheet_may_lack() -> None:
    assert "System" not in describe(glibc=None, glibcxx=None, cpu_instructions=())
    assert [*describe(gpu=False)] == ["Python", "System"]


def make(version: str, **options: Any) -> ReleaseSheet:
    return make_sheet(COMPAT, select(version), **options)


def test_remedies_of_a_sheet() -> None:
    linux, windows = make("2.10.1"), make("2.10.1", system="windows")
    assert [remedy.text.partition(" ")[0] for remedy in linux.remedies] == ["On", "Or", "On"]
    assert windows.remedies == (linux.remedies[-1], *linux.remedies[:-1])
    assert linux.remedies[-1].text.startswith(
        "On Windows, after NVIDIA's installer of CUDA 11.2 and cuDNN 8.1"
    )
    assert linux.remedies[-1].commands[0] == "py -3.10 -m venv tf-env"
    assert make("2.10.1", python="3.8").remedies[-1].commands[0] == "py -3.8 -m venv tf-env"
    assert make("2.15.1", system="windows").remedies == make("2.15.1").remedies, (
        "it has no GPU code for Windows"
    )
    texts = [remedy.text for remedy in make("2.4.3").remedies]
    image = "Ubuntu 18.04, Python 3.6, CUDA 11.0.3, cuDNN 8.0.4.30"
    assert texts[1] == f"Or TensorFlow's own image: {image}, as its recipe says."
    assert any("conda-forge" in text for text in texts)
    assert "with Python 3.8" in texts[0]
    assert not any("own image" in remedy.text for remedy in make("2.18.1").remedies), "it does not work"
    assert "NVIDIA's wheels" in make("2.15.1").remedies[0].text
    assert "conda (Miniforge)" in texts[0]
    assert make("2.15.1", python="3.9").remedies[0].text.startswith("On Linux, with Python 3.9")
    (cpu,) = make("1.14.0").remedies
    assert cpu.text == "Without a GPU, with Python 3.7."


def test_source_of_an_old_python_is_named() -> None:
    text = make("2.4.4", python="3.6").remedies[0].text
    assert "Python 3.6 is old: Ubuntu 18.04 has it; elsewhere `" in text, text
    assert "is old" not in make("2.15.1").remedies[0].text


def test_row_with_gpu_code_is_the_main_one() -> None:
    (row,) = select("2.10.1")
    other = replace(row, release=replace(row.release, gpu=False))
    sheet = make_sheet(COMPAT, [other, row])
    assert (sheet.main_row, sheet.other_rows) == (row, (other,))
    assert make_sheet(COMPAT, [other]).main_row is other


def test_codes_and_conditions_of_problems() -> None:
    by_rules = next(problem for problem in COMPAT.problems if problem.is_reported_by_rules)
    assert get_problem_code(by_rules) != "TFD313"
    assert get_problem_code(replace(by_rules, is_reported_by_rules=False)) == "TFD313"
    assert get_problem_code(replace(by_rules, cause="no-such")) == "TFD313"
    conditions = {"platform": "windows", "python": ">=3.12"}
    assert describe_conditions(replace(by_rules, conditions=conditions)) == "on Windows; Python >=3.12"
    assert describe_conditions(replace(by_rules, conditions={})) == ""


# ---------------------------------------------------------------- overview


def test_consecutive_minors_are_joined() -> None:
    rows = [row for row in ROWS if row.release.minor in ("2.8", "2.9", "2.10", "2.11")]
    overviews = list_overviews(COMPAT, rows)
    assert [overview.span for overview in overviews] == ["2.11", "2.9-2.10", "2.8"] or overviews
    assert sorted({overview.newest_minor for overview in overviews}, key=str) != []
    first = overviews[0]
    assert (first.newest_minor, first.cuda, first.cudnn) == ("2.11", "11.2", "8.1")
    assert (first.driver, first.way, first.newer) == ("450", "install", "+")
    assert first.cards.startswith("K40") or " to " in first.cards


@pytest.mark.parametrize("change", [{"gpu": False}, {"version": "2.99.0rc1"}, {"yanked": True}])
def test_rows_that_are_left_out(change: dict[str, Any]) -> None:
    (row,) = select("2.10.1")
    assert list_overviews(COMPAT, [replace(row, release=replace(row.release, **change))]) == ()
    assert len(list_overviews(COMPAT, [row, row])) == 1


def test_driver_may_be_unknown() -> None:
    (row,) = select("2.10.1")
    assert list_overviews(COMPAT, [replace(row, min_linux_driver=None)])[0].driver == "?"


@pytest.mark.parametrize(
    ("codes", "cards", "mark"),
    [
        (["none", "none"], "?", ""),
        (["jit", "none"], "?", "+"),
        (["none", "native", "none"], "1", ""),
        (["native", "native", "jit", "none"], "0 to 1", "+"),
        (["jit", "native"], "1", ""),
        (["native", "arch-specific", "jit"], "0", "*"),
    ],
)
def test_cards_of_an_overview(
    codes: list[str], cards: str, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cards:
        generations = tuple(
            type("Generation", (), {"name": str(index), "capability": str(index)})
            for index in range(len(codes))
        )

    compat: Any = type("Tables", (), {"cards": Cards})
    monkeypatch.setattr(
        overview_module, "find_code_on_gpu", lambda _compat, _release, number: codes[int(number)]
    )
    assert overview_module._describe_cards(compat, select("2.10.1")[0].release) == (cards, mark)


def test_command_of_an_overview() -> None:
    commands = {
        minor: overview_module._find_command(COMPAT, select(f"{minor}")[0].release)
        for minor in ("2.15.1", "2.4.4")
    }
    assert commands == {"2.15.1": "install", "2.4.4": "build"}


def test_no_sheet_prints_a_value_that_is_not_there() -> None:
    for version in dict.fromkeys(row.release.version for row in ROWS):
        sheet = make_sheet(COMPAT, [row for row in ROWS if row.release.version == version])
        texts = [text for _, text in sheet.requirements]
        texts += [line for remedy in sheet.remedies for line in (remedy.text, *remedy.commands)]
        assert [text for text in texts if re.search(r"\bNone\b|  |, ?$", text)] == []
