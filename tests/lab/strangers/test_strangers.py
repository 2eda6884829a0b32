"""Tests of the random breakages: the grammar without an environment, and a few seeds on a real one (opt-in)."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from lab import environments
from lab.broken_env import Unavailable
from lab.situations import can_mount
from lab.strangers import results
from lab.strangers.grammar import OWN, USAGES, VARIABLE_SOURCES, Change, Meaning, Story, draw
from lab.strangers.ground import (
    BASES_BY_RELEASE,
    NEEDS_LINK,
    ON_PATH,
    TOOLKITS,
    BaseContents,
    GroundIndex,
    Undrawn,
)
from lab.strangers.kinds import BY_NAME, KINDS, find_meaning
from lab.strangers.trying import (
    SeedTrial,
    Stock,
    are_all_possible,
    list_acceptable_causes,
    list_root_commands,
)
from tfdoctor.core.findings import Cause

COMPANIONS = dict.fromkeys(
    (
        *("numpy", "protobuf", "typing-extensions", "ml-dtypes", "h5py", "wrapt", "keras", "six", "absl-py"),
        *("gast", "packaging", "requests", "setuptools", "tensorboard", "certifi", "rsa"),
    ),
    "2.0",
)


class FixedIndex(GroundIndex):
    """An index with the same versions of every package."""

    has: tuple[str, ...] = ("3.1", "2.0", "1.9.1")

    def versions(self, name: str, python: str) -> list[str]:
        assert name
        assert python
        return list(self.has)


class EmptyIndex(FixedIndex):
    """An index without any versions."""

    has = ()


def make_ground(base: str, tmp_path: Path) -> BaseContents:
    """Return a base as `survey` would describe it, with an index of three versions of every package."""
    wheels = (
        () if base in TOOLKITS else ("cuda-runtime", "cudnn", "cufft", "curand", "nvjitlink", "cuda-nvcc")
    )
    suffix = "cu11" if base in ON_PATH else "cu12"
    libraries = TOOLKITS.get(base) or (
        *("nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia/cudnn/lib/libcudnn.so.9"),
        *("nvidia/cufft/lib/libcufft.so.11", "nvidia/cufft/lib/libcufftw.so.11"),
    )

    return BaseContents(
        base,
        BASES_BY_RELEASE[base].python,
        COMPANIONS,
        {f"nvidia-{part}-{suffix}": "12.0" for part in wheels},
        libraries,
        ("tensorflow/libtensorflow_framework.so.2", "tensorflow/python/_pywrap_tensorflow_internal.so"),
        ("numpy/core/_multiarray_umath.so", "h5py/_conv.so"),
        ("six.py", "absl/__init__.py"),
        FixedIndex(tmp_path / "index.json"),
    )


@pytest.fixture
def grounds(tmp_path: Path) -> dict[str, BaseContents]:
    return {base: make_ground(base, tmp_path) for base in BASES_BY_RELEASE}


def draw_stories(grounds: dict[str, BaseContents], count: int) -> list[Story]:
    return [draw(seed, grounds, KINDS) for seed in range(count)]


def test_same_seed_draws_the_same_environment(grounds: dict[str, BaseContents]) -> None:
    first_draw = draw_stories(grounds, 200)
    shuffled = dict(sorted(grounds.items(), reverse=True))
    assert draw_stories(shuffled, 200) == first_draw
    assert len({(story.base, story.way, story.changes) for story in first_draw}) > 190


def test_every_kind_and_base_is_drawn(grounds: dict[str, BaseContents]) -> None:
    drawn = draw_stories(grounds, 3000)
    kinds = Counter(change.kind for story in drawn for change in story.changes)
    assert set(BY_NAME) - set(kinds) <= {"memory"}  # a limit needs cgroups that this user may write
    assert set(kinds) <= set(BY_NAME)
    assert {story.base for story in drawn} == set(BASES_BY_RELEASE)
    assert {story.way for story in drawn} == set(USAGES)
    assert {len(story.changes) for story in drawn} == {1, 2, 3}
    doors = {argument for story in drawn for change in story.changes for argument in change.words}
    assert set(VARIABLE_SOURCES) <= doors
    assert OWN not in doors


def test_changes_have_known_causes(grounds: dict[str, BaseContents]) -> None:
    for story in draw_stories(grounds, 3000):
        for change in story.changes:
            expected = find_meaning(change)
            assert expected.causes, change
            assert all(isinstance(cause, Cause) for cause in expected.causes | expected.later), change
            assert Cause.HEALTHY not in expected.causes, change


def test_kinds_of_a_group_exclude_each_other(grounds: dict[str, BaseContents]) -> None:
    for story in draw_stories(grounds, 1000):
        groups = [BY_NAME[change.kind].group for change in story.changes if BY_NAME[change.kind].group]
        assert len(groups) == len(set(groups)), story
        last = [BY_NAME[change.kind].last for change in story.changes]
        assert last == sorted(last), story


def test_bases_cover_all_periods() -> None:
    assert len(BASES_BY_RELEASE) >= 8
    assert set(TOOLKITS) | ON_PATH | NEEDS_LINK < set(BASES_BY_RELEASE)


def test_kind_without_versions_is_not_drawn(tmp_path: Path) -> None:
    complete = make_ground("2.20", tmp_path)

    empty = BaseContents(
        complete.base,
        complete.python,
        complete.companions,
        {},
        (),
        (),
        (),
        (),
        EmptyIndex(tmp_path / "index.json"),
    )
    for seed in range(100):
        kinds = {change.kind for change in draw(seed, {"2.20": empty}, KINDS).changes}
        assert not kinds & {"companion-version", "beside", "overlay", "cuda-dropped", "file-removed"}
    with pytest.raises(Undrawn):
        BY_NAME["beside"].draw(random.Random(1), empty)


def test_acceptable_causes() -> None:
    hidden = Meaning(frozenset({Cause.HIDDEN_BY_ENV}))
    damaged = Meaning(frozenset({Cause.DAMAGED_FILE}), later=frozenset({Cause.DAMAGED_FILE}))
    assert list_acceptable_causes("whole", [], [hidden]) == ["healthy"]
    assert list_acceptable_causes("whole", [], [damaged]) == ["damaged-file", "healthy"]
    assert list_acceptable_causes("none", [hidden], [damaged]) == ["hidden-by-env"]
    assert list_acceptable_causes("fewer", [hidden], []) == ["healthy", "hidden-by-env"]
    assert are_all_possible([True, None, False]) is False
    assert are_all_possible([True, None]) is None
    assert are_all_possible([]) is True


def test_commands_are_those_of_the_root_finding() -> None:
    def finding(cause: str, *remedies: tuple[bool, list[str]]) -> dict[str, object]:
        remedy_data = [
            {"text": "", "commands": commands, "changes_system": system} for system, commands in remedies
        ]
        return {"cause": cause, "severity": "error", "remedies": remedy_data}

    answer = {
        "verdict": {"cause": "hidden-by-env"},
        "findings": [
            finding("no-driver", (False, ["nvidia-smi"])),
            finding(
                "hidden-by-env", (True, ["sudo reboot"]), (False, []), (False, ["unset X", "export Y=1"])
            ),
        ],
    }
    assert list_root_commands(answer) == ["unset X", "export Y=1"]
    assert list_root_commands({}) == []


def test_results_are_read_and_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.jsonl"
    right_line = {
        "seed": 7,
        "differences": [],
        "predicted": True,
        "cause_right": True,
        "green_lie": False,
        "state": "import",
        "changes": ["x"],
        "fixed": True,
        "fix_possible": True,
        "seconds": 1.0,
    }
    results.append_line(path, right_line)
    results.append_line(path, right_line | {"seed": 8, "green_lie": True, "cause_right": False, "fixed": False} | {
        "cause": "healthy", "acceptable": ["numpy-abi"]
    })  # fmt: skip
    results.append_line(path, {"seed": 9, "skipped": "no wheel", "changes": [], "seconds": 1.0})
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"seed": 10, "cut')
    lines = results.read_lines(path)
    assert sorted(lines) == [7, 8, 9]
    assert results.list_errors(lines[7]) == []
    assert len(results.list_errors(lines[8])) == 3
    assert results.print_summary(list(lines.values())) == 1
    output = capsys.readouterr().out
    assert "2 tried" in output
    assert "1 could not be set up" in output
    assert "exit 0 where the import fails: 1 [8]" in output


WHY = "set TFDOCTOR_LAB=1 to try strangers on real environments (gigabytes)"


@pytest.mark.tensorflow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not environments.is_lab_enabled(), reason=WHY)
@pytest.mark.skipif(not can_mount(), reason="needs root and private mount namespaces")
def test_some_seeds_on_a_real_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{Path(sys.executable).parent}")
    bases = os.environ.get("TFDOCTOR_LAB_BASES")
    stock = Stock(Path(bases) / "strangers" if bases else tmp_path / "bases", Path(sys.executable))
    try:
        stock.ground("2.20")
    except Unavailable as reason:
        pytest.skip(str(reason))
    cases = (
        (Change("companion-dropped", ("termcolor",)), "import"),
        (Change("cuda-dropped", ("nvidia-cufft-cu12",)), "none"),
        (Change("hiding-variable", ("activate", "CUDA_VISIBLE_DEVICES", "-1")), "none"),
        (Change("shadow", ("here", "test.py", "raises")), "whole"),
    )
    if not environments.is_full_run():
        cases = cases[:2]
    try:
        for number, (change, state) in enumerate(cases):
            story = Story(number, "2.20", "activated", "", 1, "8.0", uv=True, changes=(change,))
            line = SeedTrial(story, stock, only_check=number != 1).run_trial()
            assert line["state"] == state, line
            if number == 1:
                assert results.list_errors(line) == [], line
            differences = stock.get("2.20").differences()
            assert not differences, differences
    finally:
        stock.drop_snapshots()
