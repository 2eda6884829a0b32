"""The script that makes locks: which versions it chooses, from an index in memory; and that nothing is stale."""

from __future__ import annotations

import io
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
try:
    import update_locks as script
    from update_support import index, resolve, trials
finally:
    sys.path.remove(str(SCRIPTS))

LATE = "2100-01-01"


def wheel(
    name: str, version: str, uploaded: str = "2020-01-01", *, tag: str = "py3-none-any", **more: object
) -> index.File:
    return file(f"{name.replace('-', '_')}-{version}-{tag}.whl", name, uploaded, **more)


def sdist(name: str, version: str, uploaded: str = "2020-01-01", **more: object) -> index.File:
    return file(f"{name}-{version}.tar.gz", name, uploaded, **more)


def file(
    filename: str, name: str, uploaded: str, *, requires_python: str = "", yanked: bool = False
) -> index.File:
    return index.File(name, filename, "", f"hash of {filename}", 1, uploaded, requires_python, yanked)


@dataclass
class Memory:
    """An index: files, and what they require."""

    has: list[index.File]
    needs: dict[str, list[str]] = field(default_factory=dict)

    def files(self, project: str) -> list[index.File]:
        return [row for row in self.has if row.project == project]

    def requirements(self, one: index.File) -> list[str]:
        return self.needs.get(f"{one.project} {one.version}", [])


def pins(source: Memory, *roots: str, python: str = "3.9", until: str = LATE, **more: Any) -> dict[str, str]:
    found = resolve.Resolver(source, python, until, **more).resolve(roots)
    return {pin.name: str(pin.version) for pin in found}


# ---------------------------------------------------------------- choosing


def test_the_newest_of_that_day_is_taken() -> None:
    source = Memory([wheel("a", "1", "2020-01-01"), wheel("a", "2", "2021-01-01"), wheel("a", "3", "")])
    assert pins(source, "a", until="2020-12-31T23:59:59Z") == {"a": "1"}
    assert pins(source, "a", until="2021-01-01T23:59:59Z") == {"a": "2"}
    with pytest.raises(resolve.UnsolvableError, match="stuck at a"):
        pins(source, "a", until="2019-12-31T23:59:59Z")


def test_what_this_python_cannot_install_is_not_there() -> None:
    source = Memory(
        [
            wheel("a", "1"),
            wheel("a", "2", requires_python=">=3.10"),
            wheel("a", "3", yanked=True),
            wheel("a", "4", tag="cp310-cp310-manylinux1_x86_64"),
            wheel("a", "5", tag="cp39-cp39-manylinux_2_39_x86_64"),
            wheel("a", "6", tag="cp39-cp39-win_amd64"),
            wheel("a", "7", tag="cp39-cp39-musllinux_1_1_x86_64"),
            wheel("a", "8", tag="cp39-cp39-manylinux2014_aarch64"),
        ]
    )
    assert pins(source, "a") == {"a": "1"}
    assert pins(source, "a", python="3.10") == {"a": "4"}


@pytest.mark.parametrize(
    ("python", "tag"),
    [
        ("2.7", "cp27-cp27mu-manylinux1_x86_64"),
        ("2.7", "py2.py3-none-any"),
        ("3.5", "cp35-cp35m-manylinux2010_x86_64"),
        ("3.7", "cp37-cp37m-manylinux2014_x86_64"),
        ("3.7", "cp36-abi3-manylinux2014_x86_64"),
        ("3.8", "cp38-cp38-manylinux_2_5_x86_64.manylinux1_x86_64"),
        ("3.13", "cp313-cp313-manylinux_2_27_x86_64.manylinux_2_28_x86_64"),
    ],
)
def test_what_this_python_can_install(python: str, tag: str) -> None:
    assert pins(Memory([wheel("a", "1", tag=tag)]), "a", python=python) == {"a": "1"}


@pytest.mark.parametrize(
    ("python", "tag"),
    [
        ("2.7", "cp27-cp27m-manylinux1_x86_64"),
        ("2.7", "py3-none-any"),
        ("3.7", "cp37-cp37-manylinux1_x86_64"),
        ("3.8", "cp38-cp38m-manylinux1_x86_64"),
        ("3.7", "cp38-abi3-manylinux2014_x86_64"),
        ("3.13", "cp313-cp313t-manylinux2014_x86_64"),
    ],
)
def test_what_it_cannot(python: str, tag: str) -> None:
    with pytest.raises(resolve.UnsolvableError):
        pins(Memory([wheel("a", "1", tag=tag)]), "a", python=python)


def test_a_wheel_is_preferred_to_a_newer_source_archive_and_then_is_all_there_is() -> None:
    source = Memory([wheel("a", "1"), sdist("a", "1"), sdist("a", "2")])
    [pin] = resolve.Resolver(source, "3.9", LATE).resolve(["a"])
    assert (str(pin.version), pin.built, [row.filename for row in pin.files]) == (
        "1",
        False,
        ["a-1-py3-none-any.whl"],
    )
    [pin] = resolve.Resolver(source, "3.9", LATE).resolve(["a>1"])
    assert (str(pin.version), pin.built) == ("2", True)


@pytest.mark.parametrize(
    ("tags", "glibc"),
    [
        (["py3-none-any"], 0),
        (["cp39-cp39-manylinux1_x86_64"], 5),
        (["cp39-cp39-manylinux_2_17_x86_64.manylinux2014_x86_64"], 17),
        (["cp39-cp39-manylinux_2_28_x86_64", "cp39-cp39-manylinux2014_x86_64"], 17),
        (["cp39-cp39-manylinux_2_27_x86_64.manylinux_2_28_x86_64"], 27),
    ],
)
def test_which_glibc_a_pin_asks_for(tags: list[str], glibc: int) -> None:
    assert resolve.Pin("a", Version("1"), tuple(wheel("a", "1", tag=tag) for tag in tags)).glibc == glibc


def test_a_candidate_for_a_release_only_where_nothing_else_fits() -> None:
    source = Memory([wheel("a", "1"), wheel("a", "2rc1")])
    assert pins(source, "a") == pins(source, "a<3dev") == {"a": "1"}
    assert pins(source, "a>=2rc1") == {"a": "2rc1"}


def test_markers_are_those_of_the_target() -> None:
    source = Memory(
        [wheel("a", "1", tag="py2.py3-none-any"), wheel("b", "1", tag="py2-none-any"), wheel("c", "1")],
        {
            "a 1": [
                'b; python_version < "3"',
                'c; python_version >= "3.6"',
                'd; extra == "gpu"',
                'e; sys_platform == "win32"',
            ]
        },
    )
    assert pins(source, "a", python="2.7") == {"a": "1", "b": "1"}
    assert pins(source, "a", python="3.5") == {"a": "1"}
    assert pins(source, "a", python="3.6") == {"a": "1", "c": "1"}


def test_an_extra_that_is_asked_for() -> None:
    source = Memory(
        [wheel("a", "1"), wheel("b", "1"), wheel("c", "1")], {"a 1": ["b[x]"], "b 1": ['c; extra == "x"']}
    )
    assert pins(source, "a") == {"a": "1", "b": "1", "c": "1"}


def test_it_goes_back_to_the_choice_that_is_to_blame() -> None:
    """b was chosen first and too new for c; between them lie choices that have nothing to do with it."""
    between = [f"x{number}" for number in range(12)]
    source = Memory(
        [
            wheel("a", "1"),
            *(wheel("b", str(version)) for version in range(1, 9)),
            *(wheel(name, str(version)) for name in between for version in range(1, 9)),
            *(wheel("c", str(version)) for version in range(1, 9)),
        ],
        {"a 1": ["b", *between, "c"], **{f"c {version}": ["b<3"] for version in range(1, 9)}},
    )
    found = resolve.Resolver(source, "3.9", LATE)
    assert {pin.name: str(pin.version) for pin in found.resolve(["a"])} == {
        "a": "1", "b": "2", "c": "8", **dict.fromkeys(between, "8"),
    }  # fmt: skip
    assert found.steps < 500


def test_limits_that_no_metadata_says() -> None:
    source = Memory([wheel("a", "1"), wheel("b", "1"), wheel("b", "2"), wheel("b", "3")], {"a 1": ["b"]})
    assert pins(source, "a", forbidden={"b": [SpecifierSet(">=3")]}) == {"a": "1", "b": "2"}
    assert pins(source, "a", constraints=[Requirement("b<2"), Requirement("z<2")]) == {"a": "1", "b": "1"}


def test_what_is_preferred_is_taken_where_it_is_allowed() -> None:
    source = Memory(
        [wheel("a", "1"), wheel("a", "2"), wheel("b", "1"), wheel("b", "5")], {"a 1": ["b<3"], "a 2": ["b"]}
    )
    ready = {"b": resolve.Pin("b", Version("4"), (wheel("b", "4", "2099-01-01"),))}
    assert pins(source, "a", until="2021", preferred=ready) == {"a": "2", "b": "4"}
    assert pins(source, "a<2", until="2021", preferred=ready) == {"a": "1", "b": "1"}


def test_a_circle_ends() -> None:
    source = Memory([wheel("a", "1"), wheel("b", "1")], {"a 1": ["b"], "b 1": ["a"]})
    assert pins(source, "a") == {"a": "1", "b": "1"}


NAMES = st.sampled_from(["a", "b", "c", "d"])
NEEDS = st.dictionaries(
    st.tuples(NAMES, st.integers(1, 3)),
    st.lists(st.tuples(NAMES, st.sampled_from(["<", ">=", "==", "!="]), st.integers(1, 3)), max_size=3),
)


@given(NEEDS)
@settings(max_examples=60, deadline=None)
def test_it_finds_a_solution_exactly_where_there_is_one(
    drawn: dict[tuple[str, int], list[tuple[str, str, int]]],
) -> None:
    source = Memory(
        [wheel(name, str(version)) for name in "abcd" for version in (1, 2, 3)],
        {f"{name} {version}": [f"{n}{o}{v}" for n, o, v in rows] for (name, version), rows in drawn.items()},
    )

    def holds(chosen: dict[str, str]) -> bool:
        needed = {
            name
            for name in chosen
            for row in source.needs.get(f"{name} {chosen[name]}", [])
            for name in [Requirement(row).name]
        }
        return needed <= set(chosen) and all(
            Requirement(row).specifier.contains(chosen[Requirement(row).name])
            for name, version in chosen.items()
            for row in source.needs.get(f"{name} {version}", [])
        )

    try:
        found = pins(source, "a")
    except resolve.UnsolvableError:
        for choice in range(4**3 * 3):
            numbers = [choice % 3 + 1, choice // 3 % 4, choice // 12 % 4, choice // 48 % 4]
            chosen = {name: str(number) for name, number in zip("abcd", numbers, strict=True) if number}
            assert not holds(chosen), chosen
    else:
        assert "a" in found
        assert holds(found)


# ---------------------------------------------------------------- files of the index


@pytest.mark.parametrize(
    ("filename", "project", "version"),
    [
        ("functools32-3.2.3-2.tar.gz", "functools32", "3.2.3.post2"),
        ("backports.weakref-1.0.post1.tar.gz", "backports-weakref", "1.0.post1"),
        ("html5lib-0.9999999.zip", "html5lib", "0.9999999"),
        ("tensorflow_gpu-1.4.1-cp27-cp27mu-manylinux1_x86_64.whl", "tensorflow-gpu", "1.4.1"),
    ],
)
def test_versions_out_of_file_names(filename: str, project: str, version: str) -> None:
    assert str(file(filename, project, "").version) == version


def test_requirements_out_of_old_source_archives() -> None:
    text = (
        'six\nenum34\n\n[:python_version < "3"]\nmock>=2\n\n[gpu]\ncuda\n\n[x:sys_platform == "win32"]\nw\n'
    )
    assert index.requires_txt(text) == [
        "six",
        "enum34",
        'mock>=2; (python_version < "3")',
        'cuda; extra == "gpu"',
        'w; (sys_platform == "win32") and extra == "x"',
    ]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in (("p-1/p.egg-info/requires.txt", b"six\n"), ("p-1/setup.py", b"1/0")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert dict(index._texts("p-1.tar.gz", out.getvalue())) == {"p-1/p.egg-info/requires.txt": "six\n"}


# ---------------------------------------------------------------- the script


def test_all_locks_are_there_and_none_is_stale() -> None:
    assert script.problems() == []
    assert len(script.targets()) >= script.MINIMUM


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    (folder / "cuda").mkdir(parents=True)
    for path in script.FOLDER.rglob("*.*"):
        (folder / path.relative_to(script.FOLDER)).write_bytes(path.read_bytes())
    (tmp_path / "cuda_wheels.toml").write_bytes((script.FOLDER.parent / "cuda_wheels.toml").read_bytes())
    assert script.problems(folder) == []
    (folder / "tensorflow-2.99.0-cp39.txt").write_text("", encoding="ascii")
    (folder / "tensorflow-2.10.1-cp39.txt").unlink()
    other = folder / "tensorflow-2.10.0-cp39.txt"
    other.write_text(other.read_text(encoding="ascii").replace("numpy==1.", "numpy==0."), encoding="ascii")
    cuda = folder / "cuda" / "cu11.8-cudnn8.6.txt"
    cuda.write_text(
        cuda.read_text(encoding="ascii").replace("sha256:", "sha256:0").replace("a ", " "), encoding="ascii"
    )
    found = script.problems(folder)
    assert "tensorflow-2.10.1-cp39.txt: missing" in found
    assert "tensorflow-2.99.0-cp39.txt: stale, nothing wants it" in found
    assert any(line.startswith("tensorflow-2.10.0-cp39.txt: tensorflow requires numpy") for line in found)
    assert any(line.startswith("cu11.8-cudnn8.6.txt:") for line in found)
    assert len(found) == 4


def test_a_move_is_told_only_where_it_moves_something() -> None:
    target = next(row for row in script.targets() if row.release.version == "2.3.4")
    source = Memory([wheel("h5py", "2.10"), wheel("h5py", "3.1")])
    plain = resolve.Resolver(source, "3.9", LATE).resolve(["h5py"])
    limited = resolve.Resolver(source, "3.9", LATE, constraints=[Requirement("h5py<3")]).resolve(["h5py"])
    assert script.find_moved(target, plain, plain) == []
    [told] = script.find_moved(target, limited, plain)
    assert told.startswith("moved: h5py 2.10 rather than 3.1: Keras")


@pytest.mark.parametrize(
    ("spec", "yes", "no"),
    [
        ("2.10", "2.10.1", "2.1.0"),
        ("2.10.1", "2.10.1", "2.10.0"),
        (">=2.10,<2.12", "2.11.1", "2.12.0"),
        ("2", "2.9.0", "1.15.0"),
    ],
)
def test_releases_by_prefix_or_set(spec: str, yes: str, no: str) -> None:
    assert script.make_filter(spec)(yes)
    assert not script.make_filter(spec)(no)


def test_what_a_trial_runs_is_python_2_and_3() -> None:
    compile(trials.CHILD, "child", "exec")
    assert "print(" in trials.CHILD
    assert "f'" not in trials.CHILD
    assert 'f"' not in trials.CHILD
