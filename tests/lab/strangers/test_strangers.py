"""The generator of strangers: its grammar without any environment, and a few seeds on a real one (opt-in)."""

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
from lab.strangers.grammar import DOORS, OWN, WAYS, Change, Meaning, Story, draw
from lab.strangers.ground import LINKED, ON_PATH, STARTS, TOOLKITS, Ground, Index, Undrawn
from lab.strangers.kinds import BY_NAME, KINDS, meaning
from lab.strangers.trying import Stock, Try, acceptable, possible, printed
from tfdoctor.findings import Cause

COMPANIONS = dict.fromkeys(
    (
        *("numpy", "protobuf", "typing-extensions", "ml-dtypes", "h5py", "wrapt", "keras", "six", "absl-py"),
        *("gast", "packaging", "requests", "setuptools", "tensorboard", "certifi", "rsa"),
    ),
    "2.0",
)


class Fixed(Index):
    """An index that has the same versions of everything."""

    has: tuple[str, ...] = ("3.1", "2.0", "1.9.1")

    def versions(self, name: str, python: str) -> list[str]:
        assert name
        assert python
        return list(self.has)


class Empty(Fixed):
    """An index that has nothing."""

    has = ()


def ground(base: str, tmp_path: Path) -> Ground:
    """A base as a survey would see it, with an index that has three versions of everything."""
    wheels = (
        () if base in TOOLKITS else ("cuda-runtime", "cudnn", "cufft", "curand", "nvjitlink", "cuda-nvcc")
    )
    own = "cu11" if base in ON_PATH else "cu12"
    libraries = TOOLKITS.get(base) or (
        *("nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia/cudnn/lib/libcudnn.so.9"),
        *("nvidia/cufft/lib/libcufft.so.11", "nvidia/cufft/lib/libcufftw.so.11"),
    )

    return Ground(
        base,
        STARTS[base].python,
        COMPANIONS,
        {f"nvidia-{part}-{own}": "12.0" for part in wheels},
        libraries,
        ("tensorflow/libtensorflow_framework.so.2", "tensorflow/python/_pywrap_tensorflow_internal.so"),
        ("numpy/core/_multiarray_umath.so", "h5py/_conv.so"),
        ("six.py", "absl/__init__.py"),
        Fixed(tmp_path / "index.json"),
    )


@pytest.fixture
def grounds(tmp_path: Path) -> dict[str, Ground]:
    return {base: ground(base, tmp_path) for base in STARTS}


def stories(grounds: dict[str, Ground], count: int) -> list[Story]:
    return [draw(seed, grounds, KINDS) for seed in range(count)]


def test_the_same_seed_is_the_same_environment(grounds: dict[str, Ground]) -> None:
    once = stories(grounds, 200)
    shuffled = dict(sorted(grounds.items(), reverse=True))
    assert stories(shuffled, 200) == once
    assert len({(one.base, one.way, one.changes) for one in once}) > 190


def test_every_kind_base_and_way_comes_up(grounds: dict[str, Ground]) -> None:
    drawn = stories(grounds, 3000)
    kinds = Counter(change.kind for story in drawn for change in story.changes)
    assert set(kinds) == set(BY_NAME)
    assert {story.base for story in drawn} == set(STARTS)
    assert {story.way for story in drawn} == set(WAYS)
    assert {len(story.changes) for story in drawn} == {1, 2, 3}
    doors = {word for story in drawn for change in story.changes for word in change.words}
    assert set(DOORS) <= doors
    assert OWN not in doors


def test_what_a_change_may_be_called_is_in_the_vocabulary(grounds: dict[str, Ground]) -> None:
    for story in stories(grounds, 3000):
        for change in story.changes:
            meant = meaning(change)
            assert meant.causes, change
            assert all(isinstance(cause, Cause) for cause in meant.causes | meant.later), change
            assert Cause.HEALTHY not in meant.causes, change


def test_groups_exclude_each_other(grounds: dict[str, Ground]) -> None:
    for story in stories(grounds, 1000):
        groups = [BY_NAME[change.kind].group for change in story.changes if BY_NAME[change.kind].group]
        assert len(groups) == len(set(groups)), story
        last = [BY_NAME[change.kind].last for change in story.changes]
        assert last == sorted(last), story


def test_the_bases_are_of_every_era() -> None:
    assert len(STARTS) >= 8
    assert set(TOOLKITS) | ON_PATH | LINKED < set(STARTS)


def test_a_kind_that_the_index_has_nothing_for_is_drawn_again(tmp_path: Path) -> None:
    one = ground("2.20", tmp_path)

    bare = Ground(one.base, one.python, one.companions, {}, (), (), (), (), Empty(tmp_path / "index.json"))
    for seed in range(100):
        kinds = {change.kind for change in draw(seed, {"2.20": bare}, KINDS).changes}
        assert not kinds & {"companion-version", "beside", "overlay", "cuda-dropped", "file-removed"}
    with pytest.raises(Undrawn):
        BY_NAME["beside"].draw(random.Random(1), bare)


def test_what_is_acceptable() -> None:
    hidden = Meaning(frozenset({Cause.HIDDEN_BY_ENV}))
    damaged = Meaning(frozenset({Cause.DAMAGED_FILE}), later=frozenset({Cause.DAMAGED_FILE}))
    assert acceptable("whole", [], [hidden]) == ["healthy"]
    assert acceptable("whole", [], [damaged]) == ["damaged-file", "healthy"]
    assert acceptable("none", [hidden], [damaged]) == ["hidden-by-env"]
    assert acceptable("fewer", [hidden], []) == ["healthy", "hidden-by-env"]
    assert possible([True, None, False]) is False
    assert possible([True, None]) is None
    assert possible([]) is True


def test_the_commands_are_those_of_the_root() -> None:
    def finding(cause: str, *remedies: tuple[bool, list[str]]) -> dict[str, object]:
        told = [{"text": "", "commands": lines, "changes_system": system} for system, lines in remedies]
        return {"cause": cause, "severity": "error", "remedies": told}

    answer = {
        "verdict": {"cause": "hidden-by-env"},
        "findings": [
            finding("no-driver", (False, ["nvidia-smi"])),
            finding(
                "hidden-by-env", (True, ["sudo reboot"]), (False, []), (False, ["unset X", "export Y=1"])
            ),
        ],
    }
    assert printed(answer) == ["unset X", "export Y=1"]
    assert printed({}) == []


def test_results_go_on_where_they_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.jsonl"
    good = {
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
    results.add(path, good)
    results.add(path, good | {"seed": 8, "green_lie": True, "cause_right": False, "fixed": False} | {
        "cause": "healthy", "acceptable": ["numpy-abi"]
    })  # fmt: skip
    results.add(path, {"seed": 9, "skipped": "no wheel", "changes": [], "seconds": 1.0})
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"seed": 10, "cut')
    kept = results.read(path)
    assert sorted(kept) == [7, 8, 9]
    assert results.problems(kept[7]) == []
    assert len(results.problems(kept[8])) == 3
    assert results.sum_up(list(kept.values())) == 1
    said = capsys.readouterr().out
    assert "2 tried" in said
    assert "1 could not be set up" in said
    assert "exit 0 where the import fails: 1 [8]" in said


WHY = "set TFDOCTOR_LAB=1 to try strangers on real environments (gigabytes)"


@pytest.mark.tensorflow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not environments.parse_wanted(), reason=WHY)
@pytest.mark.skipif(not can_mount(), reason="needs root and private mount namespaces")
def test_a_few_strangers_on_a_real_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{Path(sys.executable).parent}")
    kept = os.environ.get("TFDOCTOR_LAB_BASES")
    stock = Stock(Path(kept) / "strangers" if kept else tmp_path / "bases", Path(sys.executable))
    try:
        stock.ground("2.20")
    except Unavailable as why:
        pytest.skip(str(why))
    told = (
        (Change("companion-dropped", ("termcolor",)), "import"),
        (Change("cuda-dropped", ("nvidia-cufft-cu12",)), "none"),
        (Change("hiding-variable", ("activate", "CUDA_VISIBLE_DEVICES", "-1")), "none"),
        (Change("shadow", ("here", "test.py", "raises")), "whole"),
    )
    if not environments.list_everything():
        told = told[:2]
    try:
        for number, (change, state) in enumerate(told):
            story = Story(number, "2.20", "activated", "", 1, "8.0", uv=True, changes=(change,))
            line = Try(story, stock, only_check=number != 1).go()
            assert line["state"] == state, line
            if number == 1:
                assert results.problems(line) == [], line
            left = stock.get("2.20").differences()
            assert not left, left
    finally:
        stock.leave()
