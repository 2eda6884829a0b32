"""The script that makes locks: which versions it chooses, from an index in memory, and that no lock is stale."""

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

FAR_FUTURE = "2100-01-01"


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
class MemoryIndex:
    """A package index in memory: its files and the requirements of each version."""

    has: list[index.File]
    needs: dict[str, list[str]] = field(default_factory=dict)

    def files(self, project: str) -> list[index.File]:
        return [row for row in self.has if row.project == project]

    def requirements(self, file_: index.File) -> list[str]:
        return self.needs.get(f"{file_.project} {file_.version}", [])


def resolve_pins(
    source: MemoryIndex, *roots: str, python: str = "3.9", until: str = FAR_FUTURE, **more: Any
) -> dict[str, str]:
    pinned = resolve.Resolver(source, python, until, **more).resolve(roots)
    return {pin.name: str(pin.version) for pin in pinned}


# ---------------------------------------------------------------- choosing versions


def test_newest_version_of_the_date_is_chosen() -> None:
    source = MemoryIndex([wheel("a", "1", "2020-01-01"), wheel("a", "2", "2021-01-01"), wheel("a", "3", "")])
    assert resolve_pins(source, "a", until="2020-12-31T23:59:59Z") == {"a": "1"}
    assert resolve_pins(source, "a", until="2021-01-01T23:59:59Z") == {"a": "2"}
    with pytest.raises(resolve.UnsolvableError, match="stuck at a"):
        resolve_pins(source, "a", until="2019-12-31T23:59:59Z")


def test_files_that_python_cannot_install_are_skipped() -> None:
    source = MemoryIndex(
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
    assert resolve_pins(source, "a") == {"a": "1"}
    assert resolve_pins(source, "a", python="3.10") == {"a": "4"}


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
def test_compatible_wheel_is_chosen(python: str, tag: str) -> None:
    assert resolve_pins(MemoryIndex([wheel("a", "1", tag=tag)]), "a", python=python) == {"a": "1"}


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
def test_incompatible_wheel_is_rejected(python: str, tag: str) -> None:
    with pytest.raises(resolve.UnsolvableError):
        resolve_pins(MemoryIndex([wheel("a", "1", tag=tag)]), "a", python=python)


def test_wheel_is_preferred_to_a_newer_sdist() -> None:
    source = MemoryIndex([wheel("a", "1"), sdist("a", "1"), sdist("a", "2")])
    [pin] = resolve.Resolver(source, "3.9", FAR_FUTURE).resolve(["a"])
    assert (str(pin.version), pin.built, [file_.filename for file_ in pin.files]) == (
        "1",
        False,
        ["a-1-py3-none-any.whl"],
    )
    [pin] = resolve.Resolver(source, "3.9", FAR_FUTURE).resolve(["a>1"])
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
def test_glibc_that_a_pin_requires(tags: list[str], glibc: int) -> None:
    assert resolve.Pin("a", Version("1"), tuple(wheel("a", "1", tag=tag) for tag in tags)).glibc == glibc


def test_prerelease_is_chosen_only_if_nothing_else_fits() -> None:
    source = MemoryIndex([wheel("a", "1"), wheel("a", "2rc1")])
    assert resolve_pins(source, "a") == resolve_pins(source, "a<3dev") == {"a": "1"}
    assert resolve_pins(source, "a>=2rc1") == {"a": "2rc1"}


def test_markers_are_evaluated_for_the_target() -> None:
    source = MemoryIndex(
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
    assert resolve_pins(source, "a", python="2.7") == {"a": "1", "b": "1"}
    assert resolve_pins(source, "a", python="3.5") == {"a": "1"}
    assert resolve_pins(source, "a", python="3.6") == {"a": "1", "c": "1"}


def test_requirements_of_an_extra() -> None:
    source = MemoryIndex(
        [wheel("a", "1"), wheel("b", "1"), wheel("c", "1")], {"a 1": ["b[x]"], "b 1": ['c; extra == "x"']}
    )
    assert resolve_pins(source, "a") == {"a": "1", "b": "1", "c": "1"}


def test_backtracking_returns_to_the_conflicting_choice() -> None:
    """b was chosen first and is too new for c; the choices between them are unrelated to the conflict."""
    unrelated = [f"x{number}" for number in range(12)]
    source = MemoryIndex(
        [
            wheel("a", "1"),
            *(wheel("b", str(version)) for version in range(1, 9)),
            *(wheel(name, str(version)) for name in unrelated for version in range(1, 9)),
            *(wheel("c", str(version)) for version in range(1, 9)),
        ],
        {"a 1": ["b", *unrelated, "c"], **{f"c {version}": ["b<3"] for version in range(1, 9)}},
    )
    resolver = resolve.Resolver(source, "3.9", FAR_FUTURE)
    assert {pin.name: str(pin.version) for pin in resolver.resolve(["a"])} == {
        "a": "1", "b": "2", "c": "8", **dict.fromkeys(unrelated, "8"),
    }  # fmt: skip
    assert resolver.steps < 500


def test_forbidden_versions_and_constraints() -> None:
    source = MemoryIndex([wheel("a", "1"), wheel("b", "1"), wheel("b", "2"), wheel("b", "3")], {"a 1": ["b"]})
    assert resolve_pins(source, "a", forbidden={"b": [SpecifierSet(">=3")]}) == {"a": "1", "b": "2"}
    assert resolve_pins(source, "a", constraints=[Requirement("b<2"), Requirement("z<2")]) == {
        "a": "1",
        "b": "1",
    }


def test_preferred_pin_is_chosen_if_allowed() -> None:
    source = MemoryIndex(
        [wheel("a", "1"), wheel("a", "2"), wheel("b", "1"), wheel("b", "5")], {"a 1": ["b<3"], "a 2": ["b"]}
    )
    preferred = {"b": resolve.Pin("b", Version("4"), (wheel("b", "4", "2099-01-01"),))}
    assert resolve_pins(source, "a", until="2021", preferred=preferred) == {"a": "2", "b": "4"}
    assert resolve_pins(source, "a<2", until="2021", preferred=preferred) == {"a": "1", "b": "1"}


def test_circular_requirements_are_resolved() -> None:
    source = MemoryIndex([wheel("a", "1"), wheel("b", "1")], {"a 1": ["b"], "b 1": ["a"]})
    assert resolve_pins(source, "a") == {"a": "1", "b": "1"}


NAMES = st.sampled_from(["a", "b", "c", "d"])
NEEDS = st.dictionaries(
    st.tuples(NAMES, st.integers(1, 3)),
    st.lists(st.tuples(NAMES, st.sampled_from(["<", ">=", "==", "!="]), st.integers(1, 3)), max_size=3),
)


@given(NEEDS)
@settings(max_examples=60, deadline=None)
def test_solution_is_found_if_one_exists(
    drawn: dict[tuple[str, int], list[tuple[str, str, int]]],
) -> None:
    source = MemoryIndex(
        [wheel(name, str(version)) for name in "abcd" for version in (1, 2, 3)],
        {
            f"{name} {version}": [f"{n}{o}{v}" for n, o, v in requirements]
            for (name, version), requirements in drawn.items()
        },
    )

    def is_solution(chosen: dict[str, str]) -> bool:
        needed = {
            name
            for name in chosen
            for requirement in source.needs.get(f"{name} {chosen[name]}", [])
            for name in [Requirement(requirement).name]
        }
        return needed <= set(chosen) and all(
            Requirement(requirement).specifier.contains(chosen[Requirement(requirement).name])
            for name, version in chosen.items()
            for requirement in source.needs.get(f"{name} {version}", [])
        )

    try:
        solution = resolve_pins(source, "a")
    except resolve.UnsolvableError:
        for choice in range(4**3 * 3):
            numbers = [choice % 3 + 1, choice // 3 % 4, choice // 12 % 4, choice // 48 % 4]
            chosen = {name: str(number) for name, number in zip("abcd", numbers, strict=True) if number}
            assert not is_solution(chosen), chosen
    else:
        assert "a" in solution
        assert is_solution(solution)


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
def test_version_of_a_file_name(filename: str, project: str, version: str) -> None:
    assert str(file(filename, project, "").version) == version


def test_requirements_of_old_source_archives() -> None:
    text = (
        'six\nenum34\n\n[:python_version < "3"]\nmock>=2\n\n[gpu]\ncuda\n\n[x:sys_platform == "win32"]\nw\n'
    )
    assert index.parse_requires_txt(text) == [
        "six",
        "enum34",
        'mock>=2; (python_version < "3")',
        'cuda; extra == "gpu"',
        'w; (sys_platform == "win32") and extra == "x"',
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in (("p-1/p.egg-info/requires.txt", b"six\n"), ("p-1/setup.py", b"1/0")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert dict(index._load_metadata_files("p-1.tar.gz", buffer.getvalue())) == {
        "p-1/p.egg-info/requires.txt": "six\n"
    }


# ---------------------------------------------------------------- the script


def test_no_lock_is_missing_or_stale() -> None:
    assert script.find_problems() == []
    assert len(script.list_targets()) >= script.MINIMUM


def test_problems_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    (folder / "cuda").mkdir(parents=True)
    for path in script.FOLDER.rglob("*.*"):
        (folder / path.relative_to(script.FOLDER)).write_bytes(path.read_bytes())
    (tmp_path / "cuda_wheels.toml").write_bytes((script.FOLDER.parent / "cuda_wheels.toml").read_bytes())
    assert script.find_problems(folder) == []
    (folder / "tensorflow-2.99.0-cp39.txt").write_text("", encoding="ascii")
    (folder / "tensorflow-2.10.1-cp39.txt").unlink()
    other = folder / "tensorflow-2.10.0-cp39.txt"
    other.write_text(other.read_text(encoding="ascii").replace("numpy==1.", "numpy==0."), encoding="ascii")
    cuda = folder / "cuda" / "cu11.8-cudnn8.6.txt"
    cuda.write_text(
        cuda.read_text(encoding="ascii").replace("sha256:", "sha256:0").replace("a ", " "), encoding="ascii"
    )
    problems = script.find_problems(folder)
    assert "tensorflow-2.10.1-cp39.txt: missing" in problems
    assert "tensorflow-2.99.0-cp39.txt: stale, nothing wants it" in problems
    assert any(line.startswith("tensorflow-2.10.0-cp39.txt: tensorflow requires numpy") for line in problems)
    assert any(line.startswith("cu11.8-cudnn8.6.txt:") for line in problems)
    assert len(problems) == 4


def test_move_is_reported_only_if_a_version_changes() -> None:
    target = next(candidate for candidate in script.list_targets() if candidate.release.version == "2.3.4")
    source = MemoryIndex([wheel("h5py", "2.10"), wheel("h5py", "3.1")])
    plain = resolve.Resolver(source, "3.9", FAR_FUTURE).resolve(["h5py"])
    limited = resolve.Resolver(source, "3.9", FAR_FUTURE, constraints=[Requirement("h5py<3")]).resolve(
        ["h5py"]
    )
    assert script.find_moved(target, plain, plain) == []
    [message] = script.find_moved(target, limited, plain)
    assert message.startswith("moved: h5py 2.10 rather than 3.1: Keras")


@pytest.mark.parametrize(
    ("spec", "yes", "no"),
    [
        ("2.10", "2.10.1", "2.1.0"),
        ("2.10.1", "2.10.1", "2.10.0"),
        (">=2.10,<2.12", "2.11.1", "2.12.0"),
        ("2", "2.9.0", "1.15.0"),
    ],
)
def test_filter_by_prefix_or_specification(spec: str, yes: str, no: str) -> None:
    assert script.make_filter(spec)(yes)
    assert not script.make_filter(spec)(no)


def test_trial_code_runs_on_python_2_and_3() -> None:
    compile(trials.CHILD, "child", "exec")
    assert "print(" in trials.CHILD
    assert "f'" not in trials.CHILD
    assert 'f"' not in trials.CHILD
