"""Free disk space: what is written to which disk, and what is refused."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tfdoctor.environments import disk_space
from tfdoctor.environments.disk_space import (
    DiskSpaceError,
    DiskSpaceNeed,
    InstallSizes,
    compute_needs,
    has_space_for_pip_cache,
    require_space,
    sum_needs_by_disk,
)

GB = 10**9


class _Usage(NamedTuple):
    free: int


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return a dictionary of folders below tmp_path that act as disks of their own, with their free bytes."""
    free: dict[str, int] = {}
    real_stat = os.stat

    def stat(path: Any, *args: Any, **options: Any) -> Any:
        result = real_stat(path, *args, **options)
        names = list(free)
        for name in names:
            if str(path).startswith(str(tmp_path / name)):
                fields = list(result)
                fields[2] = 1000 + names.index(name)
                return os.stat_result(fields)
        return result

    def disk_usage(path: Any) -> _Usage:
        return _Usage(next(size for name, size in free.items() if str(path).startswith(str(tmp_path / name))))

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    return free


def make_writing(folder: Path, *, uv: str | None = None, **env: str) -> InstallSizes:
    locks = (folder / "a.txt", folder / "b.txt")
    locks[0].write_text("tensorflow==2.20.0 --hash=sha256:00\nnumpy==1.0 --hash=sha256:00\n")
    locks[1].write_text("nvidia-cudnn-cu12==9.10 --hash=sha256:00\n")
    wheels = {"tensorflow": 2 * GB, "nvidia-cudnn-cu12": GB}
    return InstallSizes(folder / "home" / "env", 5 * GB, 2 * GB, wheels, locks, uv, "/usr/bin/python3", env)


def test_pip_needs_space_for_downloads(tmp_path: Path, disks: dict[str, int]) -> None:
    for name, size in {"home": 6 * GB, "tmp": 3 * GB}.items():
        (tmp_path / name).mkdir()
        disks[name] = size
    (single,) = compute_needs(make_writing(tmp_path))
    assert (single.needed_bytes, single.free_bytes, single.is_met) == (7 * GB, 6 * GB, False)
    separate = compute_needs(make_writing(tmp_path, TMPDIR=str(tmp_path / "tmp")))
    assert [(need.folder.name, need.needed_bytes) for need in separate] == [("home", 5 * GB), ("tmp", 2 * GB)]
    require_space(separate, "x")
    disks["tmp"] = GB
    with pytest.raises(DiskSpaceError, match=r"tmp: 2\.0 GB for temporary files, 1\.0 GB free") as error:
        require_space(compute_needs(make_writing(tmp_path, TMPDIR=str(tmp_path / "tmp"))), "x")
    assert "TMPDIR" in error.value.hint
    assert "--into" not in error.value.hint


def test_pip_cache_is_used_only_with_free_space(tmp_path: Path, disks: dict[str, int]) -> None:
    for name in ("home", "cache"):
        (tmp_path / name).mkdir()
        disks[name] = 8 * GB
    assert has_space_for_pip_cache(make_writing(tmp_path, PIP_CACHE_DIR=str(tmp_path / "cache")))
    assert not has_space_for_pip_cache(make_writing(tmp_path, PIP_CACHE_DIR=str(tmp_path / "home" / "pip")))


@pytest.mark.parametrize(
    ("cached", "same", "expected"),
    [
        ((), True, [("home", 5)]),
        (("tensorflow",), True, [("home", 3)]),
        (("tensorflow", "nvidia-cudnn-cu12"), True, [("home", 2)]),
        (("all",), True, [("home", 0)]),
        ((), False, [("home", 5), ("cache", 5)]),
        (("all",), False, [("home", 5), ("cache", 0)]),
    ],
)
def test_uv_needs_space_in_its_cache(
    tmp_path: Path,
    disks: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    cached: tuple[str, ...],
    same: bool,
    expected: list[tuple[str, int]],
) -> None:
    for name in ("home", "cache"):
        (tmp_path / name).mkdir()
        disks[name] = GB
    cache = tmp_path / ("home" if same else "cache") / "uv"

    def make_output(command: Any, _: Any) -> str | None:
        if command[1] == "cache":
            return f"{cache}\n"
        files = [command[index + 1] for index, argument in enumerate(command) if argument == "-r"]
        if len(files) > 1:
            return "Would install 3 packages" if "all" in cached else None
        with open(files[0]) as stream:  # noqa: PTH123
            name = stream.read().partition("==")[0]
        return "Would install 1 package" if name in cached else None

    monkeypatch.setattr(disk_space, "capture_output", make_output)
    linked = compute_needs(make_writing(tmp_path, uv="/bin/uv"))
    assert [(need.folder.name, need.needed_bytes // GB) for need in linked] == expected
    copied = compute_needs(make_writing(tmp_path, uv="/bin/uv", UV_LINK_MODE="copy"))
    assert sum(need.needed_bytes for need in copied) == 5 * GB + sum(
        need.needed_bytes for need in linked if same
    ) + (0 if same else sum(need.needed_bytes for need in linked[1:]))


@pytest.mark.parametrize(
    ("answer", "cached"),
    [
        (None, False),
        ("Would install 1 package", True),
        ("Would download 1 package\nWould install 1 package", False),
        ("Audited 1 package", False),
    ],
)
def test_dry_run_of_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, cached: bool
) -> None:
    commands: list[Any] = []
    monkeypatch.setattr(disk_space, "capture_output", lambda command, _: commands.append(command) or answer)
    for base, option in (("/usr/bin/python3", "--python"), ("3.11", "--python-version")):
        sizes = replace(make_writing(tmp_path, uv="/bin/uv"), base_python=base)
        assert disk_space._is_cached(sizes, sizes.lock_files) is cached
        assert commands[-1][commands[-1].index(base) - 1] == option
        assert commands[-1][-4:] == ("-r", str(sizes.lock_files[0]), "-r", str(sizes.lock_files[1]))


@pytest.mark.parametrize("answer", [None, "", "relative/cache\n"])
def test_unknown_cache_of_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    monkeypatch.setattr(disk_space, "capture_output", lambda *_: answer)
    sizes = make_writing(tmp_path, uv="/bin/uv")
    (need,) = compute_needs(sizes, installed_bytes=GB)
    assert (need.purposes, need.needed_bytes) == (("the environment",), 4 * GB)
    (need,) = compute_needs(sizes, installed_bytes=6 * GB)
    assert need.needed_bytes == 0
    assert compute_needs(replace(sizes, unpacked_bytes=None)) == ()
    (environment, *_) = compute_needs(replace(sizes, uv_path=None), installed_bytes=6 * GB)
    assert environment.needed_bytes == 2 * GB  # the downloads


def test_need_that_is_just_met() -> None:
    need = DiskSpaceNeed(Path("/home"), ("the environment", "uv's cache"), (4 * GB, GB), 5 * GB, 5 * GB)
    assert need.is_met
    assert need.text == "/home: 4.0 GB for the environment and 1.0 GB for uv's cache, 5.0 GB free"
    linked = replace(need, sizes=(0, 5 * GB))
    assert linked.text == "/home: 5.0 GB for uv's cache, 5.0 GB free"
    assert "nothing more for the environment and uv's cache" in replace(need, sizes=(0, 0)).text
    unmet = replace(need, needed_bytes=5 * GB + 1)
    with pytest.raises(DiskSpaceError) as error:
        require_space((need, unmet), "x")
    assert error.value.hint == (
        "Free some space, or name a folder on another disk (--into DIR), or put uv's cache on another disk (UV_CACHE_DIR)."
    )


def test_disk_usage_counts_a_file_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    usage = disk_space.measure_disk_usage(tmp_path)
    assert usage >= 10_000
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert disk_space.measure_disk_usage(tmp_path) == usage
    (tmp_path / "c").write_bytes(b"x" * 10_000)
    assert disk_space.measure_disk_usage(tmp_path) == 2 * usage
    assert disk_space.find_existing_folder(tmp_path / "none" / "below") == tmp_path
    assert disk_space.find_existing_folder(tmp_path / "a") == tmp_path
    assert disk_space.format_gigabytes(-5) == "0.0 GB"


def test_unknown_free_space_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise OSError

    monkeypatch.setattr(shutil, "disk_usage", fail)
    assert sum_needs_by_disk([("the environment", tmp_path / "not" / "there", GB)]) == ()
