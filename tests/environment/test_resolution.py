"""What requirements come to beside a lock: how uv and pip are asked, and what is made of their answers."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.environment.installers import InstallFailedError
from tfdoctor.environment.resolution import NoSolutionError, PinChange, PipResolution, Question, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A, B = f"--hash=sha256:{'a' * 64}", f"--hash=sha256:{'b' * 64}"
LOCK = (f"numpy==2.3.3 {A}", f"tensorflow==2.20.0 {A}", f"wrapt==1.17.3 {A}")


def question(*lines: str, uv: bool = True, constraints: tuple[str, ...] = ()) -> Question:
    return Question(
        package="tensorflow",
        requires=("numpy>=1.26.0",),
        lock=LOCK,
        cuda=("nvidia-cudnn-cu12==9.10.2.21",),
        lines=lines,
        constraints=constraints,
        program=("/bin/uv", "pip") if uv else ("/env/bin/python", "-m", "pip"),
        python=("--python", "/env/bin/python") if uv else (),
        index=(),
    )


class Asked:
    """What stands in the files at each attempt; the first ones have no solution."""

    def __init__(self, failures: int, answer: Callable[[Path], None], *output: str) -> None:
        self.failures, self.answer, self.output = failures, answer, output
        self.attempts: list[dict[str, str]] = []

    def __call__(self, command: Sequence[str]) -> None:
        folder = Path(command[-1]).parent
        names = ("wanted.txt", "limits.txt", "found.txt")
        self.attempts.append(
            {name: (folder / name).read_text() for name in names if (folder / name).exists()}
        )
        if len(self.attempts) <= self.failures:
            raise InstallFailedError("no.", output=self.output, unsolved=True)
        self.answer(folder)


def find_matches(*rows: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "found.txt").write_text("".join(f"{row}\n" for row in rows)) and None


def test_uv_is_asked_with_the_whole_lock_first(tmp_path: Path) -> None:
    asked = Asked(
        2, find_matches(f"numpy==1.26.4 \\\n    {B}", f"tensorflow==2.20.0 {B}", f"wrapt==1.17.3 {B}")
    )
    answer = resolve(question("numpy<2", f"pandas {A}"), tmp_path, asked)
    first, second, third = asked.attempts
    assert first["wanted.txt"] == "tensorflow==2.20.0\nnumpy<2\npandas\n"
    assert first["limits.txt"] == "nvidia-cudnn-cu12==9.10.2.21\nnumpy==2.3.3\nwrapt==1.17.3\n"
    assert second["limits.txt"] == "nvidia-cudnn-cu12==9.10.2.21\nwrapt==1.17.3\n"
    assert third["limits.txt"] == "nvidia-cudnn-cu12==9.10.2.21\n"
    # A preferred version that one of two indexes has no file of for this Python would be passed over.
    assert first["found.txt"] == second["found.txt"] == ""
    assert third["found.txt"] == "".join(f"{line}\n" for line in LOCK)
    assert answer == PipResolution(kept=LOCK[1:], hashed=(f"numpy==1.26.4 {B}",))
    assert answer.changes(LOCK) == (PinChange("numpy", "2.3.3", "1.26.4"),)


def test_what_fails_for_another_reason_is_not_tried_again(tmp_path: Path) -> None:
    def run(_: Sequence[str]) -> None:
        raise InstallFailedError("no network.")

    with pytest.raises(InstallFailedError, match="no network") as error:
        resolve(question("numpy<2"), tmp_path, run)
    assert not isinstance(error.value, NoSolutionError)


def report(*rows: dict[str, Any]) -> Callable[[Path], None]:
    return lambda folder: (folder / "report.json").write_text(json.dumps({"install": rows})) and None


def row(name: str, version: str, digest: str = "", **more: Any) -> dict[str, Any]:
    info = {
        "url": "https://files.example/x.whl",
        "archive_info": {"hashes": {"sha256": digest} if digest else {}},
    }
    return {"metadata": {"name": name, "version": version}, "download_info": info, **more}


def test_pip_is_asked_without_fetching_tensorflow_and_cuda(tmp_path: Path) -> None:
    git = {
        "url": "https://code.example/x.git",
        "vcs_info": {"vcs": "git", "commit_id": "0123"},
    }
    asked = Asked(
        1,
        report(
            row("NumPy", "1.26.4", "b" * 64),
            row("tensorflow", "2.20.0", is_direct=True),
            row("wrapt", "1.17.3", "b" * 64),
            row("nvidia-cudnn-cu12", "9.10.2.21", is_direct=True),
            row("mine", "1.0", is_direct=True, download_info=git),
            row("bare", "1.0"),
        ),
    )
    answer = resolve(question("numpy<2", uv=False, constraints=("scipy<1.12",)), tmp_path, asked)
    assert answer.kept == LOCK[1:]
    assert answer.hashed == (f"numpy==1.26.4 {B}",)
    assert answer.others == ("mine @ git+https://code.example/x.git@0123", "bare==1.0")
    first, second = asked.attempts
    assert "numpy==2.3.3\n" in first["limits.txt"]
    assert "numpy==" not in second["limits.txt"]
    assert "wrapt==1.17.3\n" in second["limits.txt"]
    for attempt in asked.attempts:
        assert "scipy<1.12\n" in attempt["limits.txt"]
        assert (
            f"nvidia-cudnn-cu12 @ {tmp_path.as_uri()}/nvidia_cudnn_cu12-9.10.2.21-py3"
            in attempt["limits.txt"]
        )
        assert attempt["wanted.txt"].startswith(f"tensorflow @ {tmp_path.as_uri()}/tensorflow-2.20.0-py3")
    with zipfile.ZipFile(tmp_path / "tensorflow-2.20.0-py3-none-any.whl") as stub:
        told = stub.read("tensorflow-2.20.0.dist-info/METADATA").decode()
    assert "Requires-Dist: numpy>=1.26.0\n" in told
    assert "Requires-Dist: wrapt\n" in told


def test_pip_is_asked_with_the_real_tensorflow_where_its_limits_are_not_known(tmp_path: Path) -> None:
    asked = Asked(9, report())
    with pytest.raises(NoSolutionError):
        resolve(question("wrapt<1", uv=False), tmp_path, asked)
    assert [attempt["wanted.txt"].split()[1] == "@" for attempt in asked.attempts] == [
        True,
        True,
        False,
        False,
    ]
    assert "numpy==2.3.3" in asked.attempts[2]["limits.txt"]


UV_SAYS = (
    "error: No solution found when resolving dependencies",
    "cause: Because tensorflow==2.20.0 depends on protobuf>=5.28.0 and you require tensorflow==2.20.0, we can",
    "conclude that you require protobuf>=5.28.0.",
    "hint: whatever",
)
PIP_SAYS = (
    "Collecting numpy<2",
    "ERROR: Cannot install -r /tmp/x/wanted.txt (line 1) and protobuf==3.20.3 because these have conflicting.",
    "The conflict is caused by:",
    "The user requested protobuf==3.20.3",
    "tensorflow 2.20.0 depends on protobuf>=5.28.0",
    "To fix this you could try to:",
    "1. loosen the range",
    "ERROR: ResolutionImpossible: for help visit https://pip.example",
)


@pytest.mark.parametrize(
    ("uv", "output", "reason"),
    [
        (True, UV_SAYS, "Because tensorflow==2.20.0 depends on protobuf>=5.28.0 and you require tensorflow"),
        (
            False,
            PIP_SAYS,
            "The user requested protobuf==3.20.3; tensorflow 2.20.0 depends on protobuf>=5.28.0",
        ),
    ],
)
def test_the_resolvers_reason_is_told(tmp_path: Path, uv: bool, output: tuple[str, ...], reason: str) -> None:
    with pytest.raises(NoSolutionError) as error:
        resolve(question("protobuf==3.20.3", uv=uv), tmp_path, Asked(9, find_matches(), *output))
    told = str(error.value)
    assert told.startswith("Your requirements and TensorFlow 2.20.0 cannot be installed together: ")
    assert reason in told
    assert "hint" not in told
    assert "wanted.txt" not in told


@pytest.mark.parametrize("name", ["nvidia-cudnn-cu13", "nvidia-cudnn-cu11", "tensorflow-cpu", "tf-nightly"])
def test_what_would_lie_over_the_plan_is_no_solution(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoSolutionError, match=f"{name} 9.0 comes with them, and overwrites the files of"):
        resolve(question("x"), tmp_path, Asked(0, find_matches(*LOCK, f"{name}==9.0 {B}")))


def test_what_is_of_another_folder_may_come(tmp_path: Path) -> None:
    more = ("nvidia-cudnn-cu12==9.10.2.21", f"nvidia-ml-py==12.0 {B}", f"nvidia-cusparselt-cu12==0.7 {B}")
    answer = resolve(question("x"), tmp_path, Asked(0, find_matches(*LOCK, *more)))
    assert answer.hashed == more[1:]


def test_the_users_own_hashes_count(tmp_path: Path) -> None:
    answer = resolve(
        question(f"wrapt==1.17.3 {B}", f"mine @ https://files.example/m.whl {A}"),
        tmp_path,
        Asked(0, find_matches(*LOCK, f"mine @ https://files.example/m.whl {B}")),
    )
    assert answer.kept == LOCK[:2]
    assert answer.hashed == (f"wrapt==1.17.3 {B}", f"mine @ https://files.example/m.whl {A}")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"install": [1]}', '{"install": [{"metadata": {}}]}'])
def test_a_report_that_is_none(tmp_path: Path, text: str) -> None:
    asked = Asked(0, lambda folder: (folder / "report.json").write_text(text) and None)
    with pytest.raises(InstallFailedError, match="cannot be read"):
        resolve(question("x", uv=False), tmp_path, asked)
