"""Resolution of requirements next to a lock: the requests to uv and pip, and their answers."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.environments.installers import InstallFailedError
from tfdoctor.environments.resolution import (
    NoSolutionError,
    PinChange,
    ResolutionRequest,
    ResolvedPackages,
    format_resolver_reason,
    resolve,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A, B = f"--hash=sha256:{'a' * 64}", f"--hash=sha256:{'b' * 64}"
LOCK = (f"numpy==2.3.3 {A}", f"tensorflow==2.20.0 {A}", f"wrapt==1.17.3 {A}")


def make_question(*lines: str, uv: bool = True, constraints: tuple[str, ...] = ()) -> ResolutionRequest:
    return ResolutionRequest(
        package="tensorflow",
        recorded_requires=("numpy>=1.26.0",),
        lock_lines=LOCK,
        cuda_pins=("nvidia-cudnn-cu12==9.10.2.21",),
        requirements=lines,
        constraints=constraints,
        resolver_command=("/bin/uv", "pip") if uv else ("/env/bin/python", "-m", "pip"),
        python_options=("--python", "/env/bin/python") if uv else (),
        index_options=(),
    )


class FakeResolver:
    """A resolver that records the content of the files at each attempt; the first `failures` attempts fail."""

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
            raise InstallFailedError("no.", output=self.output, has_no_solution=True)
        self.answer(folder)


def write_lock(*lines: str) -> Callable[[Path], None]:
    """Return a function that writes uv's answer."""
    return lambda folder: (folder / "found.txt").write_text("".join(f"{line}\n" for line in lines)) and None


def test_uv_first_tries_the_whole_lock(tmp_path: Path) -> None:
    resolver = FakeResolver(
        2, write_lock(f"numpy==1.26.4 \\\n    {B}", f"tensorflow==2.20.0 {B}", f"wrapt==1.17.3 {B}")
    )
    resolution = resolve(make_question("numpy<2", f"pandas {A}"), tmp_path, resolver)
    first, second, third = resolver.attempts
    assert first["wanted.txt"] == "tensorflow==2.20.0\nnumpy<2\npandas\n"
    assert first["limits.txt"] == "nvidia-cudnn-cu12==9.10.2.21\nnumpy==2.3.3\nwrapt==1.17.3\n"
    assert second["limits.txt"] == "nvidia-cudnn-cu12==9.10.2.21\nwrapt==1.17.3\n"
    assert third["limits.txt"] == "nvidia-cudnn-cu12==9.10.2.21\n"
    # uv would ignore a preferred version if one of two indexes had no file for this Python.
    assert first["found.txt"] == second["found.txt"] == ""
    assert third["found.txt"] == "".join(f"{line}\n" for line in LOCK)
    assert resolution == ResolvedPackages(locked_lines=LOCK[1:], hashed_lines=(f"numpy==1.26.4 {B}",))
    assert resolution.compare_with_lock(LOCK) == (PinChange("numpy", "2.3.3", "1.26.4"),)


def test_other_failures_are_not_retried(tmp_path: Path) -> None:
    def run(_: Sequence[str]) -> None:
        raise InstallFailedError("no network.")

    with pytest.raises(InstallFailedError, match="no network") as error:
        resolve(make_question("numpy<2"), tmp_path, run)
    assert not isinstance(error.value, NoSolutionError)


def write_report(*entries: dict[str, Any]) -> Callable[[Path], None]:
    """Return a function that writes pip's report."""
    return lambda folder: (folder / "report.json").write_text(json.dumps({"install": entries})) and None


def make_report_entry(name: str, version: str, digest: str = "", **changes: Any) -> dict[str, Any]:
    info = {
        "url": "https://files.example/x.whl",
        "archive_info": {"hashes": {"sha256": digest} if digest else {}},
    }
    return {"metadata": {"name": name, "version": version}, "download_info": info, **changes}


def test_pip_does_not_download_tensorflow_and_cuda(tmp_path: Path) -> None:
    git = {
        "url": "https://code.example/x.git",
        "vcs_info": {"vcs": "git", "commit_id": "0123"},
    }
    resolver = FakeResolver(
        1,
        write_report(
            make_report_entry("NumPy", "1.26.4", "b" * 64),
            make_report_entry("tensorflow", "2.20.0", is_direct=True),
            make_report_entry("wrapt", "1.17.3", "b" * 64),
            make_report_entry("nvidia-cudnn-cu12", "9.10.2.21", is_direct=True),
            make_report_entry("mine", "1.0", is_direct=True, download_info=git),
            make_report_entry("bare", "1.0"),
        ),
    )
    resolution = resolve(make_question("numpy<2", uv=False, constraints=("scipy<1.12",)), tmp_path, resolver)
    assert resolution.locked_lines == LOCK[1:]
    assert resolution.hashed_lines == (f"numpy==1.26.4 {B}",)
    assert resolution.unhashed_lines == ("mine @ git+https://code.example/x.git@0123", "bare==1.0")
    first, second = resolver.attempts
    assert "numpy==2.3.3\n" in first["limits.txt"]
    assert "numpy==" not in second["limits.txt"]
    assert "wrapt==1.17.3\n" in second["limits.txt"]
    for attempt in resolver.attempts:
        assert "scipy<1.12\n" in attempt["limits.txt"]
        assert (
            f"nvidia-cudnn-cu12 @ {tmp_path.as_uri()}/nvidia_cudnn_cu12-9.10.2.21-py3"
            in attempt["limits.txt"]
        )
        assert attempt["wanted.txt"].startswith(f"tensorflow @ {tmp_path.as_uri()}/tensorflow-2.20.0-py3")
    with zipfile.ZipFile(tmp_path / "tensorflow-2.20.0-py3-none-any.whl") as stub:
        metadata = stub.read("tensorflow-2.20.0.dist-info/METADATA").decode()
    assert "Requires-Dist: numpy>=1.26.0\n" in metadata
    assert "Requires-Dist: wrapt\n" in metadata


def test_pip_also_tries_the_real_tensorflow(tmp_path: Path) -> None:
    resolver = FakeResolver(9, write_report())
    with pytest.raises(NoSolutionError):
        resolve(make_question("wrapt<1", uv=False), tmp_path, resolver)
    assert [attempt["wanted.txt"].split()[1] == "@" for attempt in resolver.attempts] == [
        True,
        True,
        False,
        False,
    ]
    assert "numpy==2.3.3" in resolver.attempts[2]["limits.txt"]


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
def test_reason_of_the_resolver_is_quoted(
    tmp_path: Path, uv: bool, output: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(NoSolutionError) as error:
        resolve(make_question("protobuf==3.20.3", uv=uv), tmp_path, FakeResolver(9, write_lock(), *output))
    message = str(error.value)
    assert message.startswith("Your requirements and TensorFlow 2.20.0 cannot be installed together: ")
    assert reason in message
    assert "hint" not in message
    assert "wanted.txt" not in message


@pytest.mark.parametrize("name", ["nvidia-cudnn-cu13", "nvidia-cudnn-cu11", "tensorflow-cpu", "tf-nightly"])
def test_package_that_overwrites_the_plan_is_no_solution(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoSolutionError, match=f"{name} 9.0 comes with them, and overwrites the files of"):
        resolve(make_question("x"), tmp_path, FakeResolver(0, write_lock(*LOCK, f"{name}==9.0 {B}")))


def test_package_with_its_own_folder_is_allowed(tmp_path: Path) -> None:
    additional = (
        "nvidia-cudnn-cu12==9.10.2.21",
        f"nvidia-ml-py==12.0 {B}",
        f"nvidia-cusparselt-cu12==0.7 {B}",
    )
    resolution = resolve(make_question("x"), tmp_path, FakeResolver(0, write_lock(*LOCK, *additional)))
    assert resolution.hashed_lines == additional[1:]


def test_hashes_of_the_user_are_kept(tmp_path: Path) -> None:
    resolution = resolve(
        make_question(f"wrapt==1.17.3 {B}", f"mine @ https://files.example/m.whl {A}"),
        tmp_path,
        FakeResolver(0, write_lock(*LOCK, f"mine @ https://files.example/m.whl {B}")),
    )
    assert resolution.locked_lines == LOCK[:2]
    assert resolution.hashed_lines == (f"wrapt==1.17.3 {B}", f"mine @ https://files.example/m.whl {A}")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"install": [1]}', '{"install": [{"metadata": {}}]}'])
def test_invalid_report_is_refused(tmp_path: Path, text: str) -> None:
    resolver = FakeResolver(0, lambda folder: (folder / "report.json").write_text(text) and None)
    with pytest.raises(InstallFailedError, match="cannot be read"):
        resolve(make_question("x", uv=False), tmp_path, resolver)


def test_lines_of_a_report(tmp_path: Path) -> None:
    git = {"url": "https://c.example/x.git", "vcs_info": {"vcs": "git", "commit_id": "01"}}
    entries = (
        make_report_entry("direct", "1", "b" * 64, is_direct=True),
        make_report_entry("plain", "1", is_direct=True),
        make_report_entry("git", "1", is_direct=True, download_info=git),
        make_report_entry("index", "1", "a" * 64),
    )
    resolution = resolve(make_question("x", uv=False), tmp_path, FakeResolver(0, write_report(*entries)))
    assert resolution.hashed_lines == (f"direct @ https://files.example/x.whl {B}", f"index==1 {A}")
    assert resolution.unhashed_lines == (
        "plain @ https://files.example/x.whl",
        "git @ git+https://c.example/x.git@01",
    )
    assert resolution.locked_lines == LOCK[1:2]  # TensorFlow itself is always installed
    changes = resolution.compare_with_lock(LOCK)
    assert [(change.name, change.locked_version, change.resolved_version) for change in changes] == [
        ("direct", None, "https://files.example/x.whl"),
        ("git", None, "git+https://c.example/x.git@01"),
        ("index", None, "1"),
        ("numpy", "2.3.3", None),
        ("plain", None, "https://files.example/x.whl"),
        ("wrapt", "1.17.3", None),
    ]
    (tmp_path / "none").mkdir()
    with pytest.raises(InstallFailedError, match=r"What was resolved cannot be read: No such file"):
        resolve(make_question("x", uv=False), tmp_path / "none", lambda _: None)


def test_attempts_that_are_equal_are_made_once(tmp_path: Path) -> None:
    """If the user's lines allow the whole lock, the second attempt would be the first one again."""
    resolver = FakeResolver(9, write_lock())
    with pytest.raises(NoSolutionError):
        resolve(make_question("numpy>2", "x @ https://f.example/x.whl"), tmp_path, resolver)
    assert len(resolver.attempts) == 2
    by_url = FakeResolver(9, write_lock())
    with pytest.raises(NoSolutionError):
        resolve(make_question("numpy @ https://f.example/n.whl"), tmp_path, by_url)
    assert ["numpy==" in attempt["limits.txt"] for attempt in by_url.attempts] == [True, False, False]


def test_explanation_of_a_resolver() -> None:
    lines = (
        "Collecting x",
        "  × first:",
        "│ second.",
        "│ second.",
        "third",
        "hint: no",
        "",
        "fourth,",
        "fifth",
    )
    assert format_resolver_reason(lines) == "first: second. third; fourth, fifth"
    lines = ("noise", "The conflict is caused by:", "    reason", "To fix this you could try to:", "1. x")
    assert format_resolver_reason(lines) == "The conflict is caused by: reason"
    assert format_resolver_reason([f"{number:02}" for number in range(13)]).startswith("01; 02")
    assert format_resolver_reason(()) == ""
    assert format_resolver_reason(["x" * 1000]) == "x" * 900 + " […]"
