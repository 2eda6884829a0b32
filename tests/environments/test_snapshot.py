"""Snapshots: which states are valid, which files are copied, and what counts as a change."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from environments.killer import write
from tfdoctor.environments.history import snapshot
from tfdoctor.environments.history.snapshot import (
    MAX_COPY_BYTES,
    MAX_NAMED_COPY_BYTES,
    MAX_SITE_COPY_BYTES,
    JournalError,
    PathState,
    SavedFile,
    Scope,
    are_equal_states,
    hash_files,
    lstat_below,
    make_hard_link,
    parse_saved_file,
    read_json,
    read_snapshot,
    scan_states,
    take_snapshot,
    validate_path,
    validate_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")

FILE = PathState("file", 0o644, 3, 5, sha256="a" * 64, inode=7)
LINK = PathState("link", 0o777, 0, 5, target="x")
DIR = PathState("dir", 0o755, 0, 5)
WHOLE = Scope(("",))


def is_accepted(check: Callable[[], object]) -> bool:
    try:
        check()
    except (TypeError, ValueError):
        return False
    return True


def test_limits_of_stored_states() -> None:
    valid: list[Any] = [
        FILE,
        LINK,
        DIR,
        FILE._replace(sha256=None),
        FILE._replace(mode=0o7777, size=(1 << 63) - 1, mtime_ns=(1 << 63) - 1, inode=0),
        FILE._replace(mode=0, size=0, mtime_ns=-(1 << 63)),
    ]
    values: dict[str, list[Any]] = {
        "mode": [-1, 0o10000, True, "420", None],
        "size": [-1, 1 << 63, 1.0],
        "inode": [-1, 1 << 63],
        "mtime_ns": [-(1 << 63) - 1, 1 << 63, True, None],
        "target": ["x", ""],
        "sha256": ["a" * 63, "a" * 65, "A" * 64, 5],
        "type": ["pipe", "", None],
    }
    invalid: list[Any] = [FILE._replace(**{name: value}) for name in values for value in values[name]]
    invalid += [LINK._replace(target=target) for target in (None, "", "a\0b", 5)]
    invalid += [LINK._replace(sha256="a" * 64), DIR._replace(sha256="a" * 64), DIR._replace(target="x")]
    assert [state for state in valid if not is_accepted(lambda state=state: validate_state(state))] == []
    assert [state for state in invalid if is_accepted(lambda state=state: validate_state(state))] == []


def test_limits_of_stored_paths_and_locations() -> None:
    assert [
        path
        for path in ("a", "a/.tfdoctor", "a/b", ".a", "...", "a.tfdoctor")
        if not is_accepted(lambda path=path: validate_path(path))
    ] == []
    assert [
        path
        for path in ("", ".", "..", "a/..", "/a", "a/", "a//b", ".tfdoctor", ".tfdoctor/x", "a\0", None, 5)
        if is_accepted(lambda path=path: validate_path(path))
    ] == []
    assert validate_path("", allow_root=True) == ""
    assert not is_accepted(lambda: validate_path("..", allow_root=True))
    assert (parse_saved_file(None), parse_saved_file([0, 1999])) == (None, SavedFile(0, 1999))
    assert SavedFile(2, 1999).path == "2/files/1/1999"
    wrong: list[Any] = [[1], [1, 2, 3], [1, -1], [-1, 1], [1, True], [1, 1 << 63], "12", (1, 2)]
    assert [value for value in wrong if is_accepted(lambda value=value: parse_saved_file(value))] == []


@pytest.mark.parametrize(
    ("path", "size", "scope", "copied"),
    [
        ("bin/x", MAX_COPY_BYTES, WHOLE, True),
        ("bin/x", MAX_COPY_BYTES + 1, WHOLE, False),
        ("bin/below/x", 1, WHOLE, True),
        ("etc/x", 1, WHOLE, True),
        ("conda-meta/x", 1, WHOLE, True),
        ("Scripts/x", 1, WHOLE, True),
        ("lib/bin/x", 1, WHOLE, False),
        ("pyvenv.cfg", 1, WHOLE, True),
        ("lib/pyvenv.cfg", 1, WHOLE, False),
        ("lib/x.pth", MAX_COPY_BYTES, WHOLE, True),
        ("lib/site-packages/x.py", MAX_SITE_COPY_BYTES, WHOLE, True),
        ("lib/dist-packages/x.py", MAX_SITE_COPY_BYTES, WHOLE, True),
        ("lib/site-packages/x.py", MAX_SITE_COPY_BYTES + 1, WHOLE, False),
        ("lib/site-packages/below/x.py", 1, WHOLE, False),
        ("lib/site-packages/x-1.dist-info/REQUESTED", 0, WHOLE, True),
        ("lib/site-packages/x-1.dist-info/METADATA", 1, WHOLE, False),
        ("lib/site-packages/x/REQUESTED", 0, WHOLE, False),
        ("lib/x", MAX_NAMED_COPY_BYTES, Scope(("lib/x",)), True),
        ("lib/x", MAX_NAMED_COPY_BYTES + 1, Scope(("lib/x",)), False),
    ],
)
def test_files_that_are_copied(path: str, size: int, scope: Scope, copied: bool) -> None:
    state = FILE._replace(size=size)
    assert snapshot._needs_copy(path, state, scope) is copied
    for bit in (0o4000, 0o2000):  # a copy would lose these bits
        assert not snapshot._needs_copy(path, state._replace(mode=0o755 | bit), scope)


@pytest.mark.parametrize(
    ("before", "current", "sha256", "same"),
    [
        (FILE, FILE._replace(sha256=None, inode=8), "a" * 64, True),
        (FILE, FILE, "b" * 64, False),
        (FILE, FILE._replace(mode=0o600), "a" * 64, False),
        (FILE, FILE._replace(size=4), "a" * 64, False),
        (FILE, FILE._replace(mtime_ns=6), "a" * 64, False),
        (FILE._replace(sha256=None), FILE, None, True),
        (FILE._replace(sha256=None), FILE._replace(inode=8), None, False),
        (LINK, LINK._replace(mode=0, mtime_ns=6), None, True),
        (LINK, LINK._replace(target="y"), None, False),
        (DIR, DIR._replace(mtime_ns=6), None, True),
        (DIR, DIR._replace(mode=0o700), None, False),
        (DIR, FILE._replace(mode=0o755), None, False),
    ],
)
def test_state_that_counts_as_changed(
    before: PathState, current: PathState, sha256: str | None, same: bool
) -> None:
    assert snapshot._is_same_state(before, current, sha256) is same


@pytest.mark.parametrize(
    ("first", "second", "equal", "equal_with_times"),
    [
        (None, None, True, True),
        (None, FILE, False, False),
        (FILE, None, False, False),
        (FILE, FILE._replace(inode=8), True, True),
        (FILE, FILE._replace(mtime_ns=6), True, False),
        (DIR, DIR._replace(mtime_ns=6), True, True),
        (LINK, LINK._replace(mtime_ns=6, mode=0), True, True),
        (FILE, FILE._replace(mode=0o600), False, False),
        (DIR, DIR._replace(mode=0o700), False, False),
        (FILE, FILE._replace(size=4), False, False),
        (FILE, FILE._replace(sha256="b" * 64), False, False),
        (LINK, LINK._replace(target="y"), False, False),
        (DIR, DIR._replace(type="link"), False, False),
    ],
)
def test_equal_states(
    first: PathState | None, second: PathState | None, equal: bool, equal_with_times: bool
) -> None:
    assert are_equal_states(first, second) is equal
    assert are_equal_states(first, second, compare_times=True) is equal_with_times


def test_json_is_read_up_to_the_limit_and_only_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    text = json.dumps({"schema_version": snapshot.FORMAT_VERSION, "a": 1})
    path.write_text(text)
    monkeypatch.setattr(snapshot, "MAX_JSON_BYTES", len(text))
    assert read_json(str(path), {"a"})["a"] == 1
    for keys in (set(), {"b"}, {"a", "b"}):
        with pytest.raises(JournalError, match="not what tfdoctor writes"):
            read_json(str(path), keys)
    monkeypatch.setattr(snapshot, "MAX_JSON_BYTES", len(text) - 1)
    with pytest.raises(JournalError, match="far too large"):
        read_json(str(path), {"a"})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JournalError, match="not a file"):
        read_json(str(tmp_path / "pipe"), {"a"})
    for version in (True, "9", 0, None):
        path.write_text(json.dumps({"schema_version": version}))
        with pytest.raises(JournalError, match="format 1" if version is True else "damaged"):
            read_json(str(path), set())


def test_paths_behind_links_and_files_do_not_exist(tmp_path: Path) -> None:
    write(tmp_path / "a/b/c", b"", 5)
    (tmp_path / "link").symlink_to("a")
    for cache in (None, set[str]()):
        paths = ("a/b/c", "a", "link", "link/b/c", "a/b/c/d", "a/none", "none/x", "a/b/c")
        found = [path for path in paths if lstat_below(str(tmp_path), path, cache) is not None]
        assert found == ["a/b/c", "a", "link", "a/b/c"]
        assert cache in (None, {"a", "a/b"})


def test_scan_of_a_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".tfdoctor/own", "a/.tfdoctor/other", "a/b/c", "d/e", "d/f/g", "single"):
        write(tmp_path / name, b"", 5)
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "link").symlink_to("a")
    top = str(tmp_path)
    assert set(scan_states(top, WHOLE)) == {
        *(
            "a",
            "a/.tfdoctor",
            "a/.tfdoctor/other",
            "a/b",
            "a/b/c",
            "d",
            "d/e",
            "d/f",
            "d/f/g",
            "link",
            "single",
        )
    }
    scope = Scope(("d/f", "link", "single", "a/pipe", "none"), ("a", "d", "missing"))
    assert set(scan_states(top, scope)) == {"a", "d", "d/f", "d/f/g", "link", "single"}
    real_scandir = os.scandir

    def scan_deleted(path: str) -> Any:
        if path == f"{top}/d":
            raise FileNotFoundError(path)
        return real_scandir(path)

    monkeypatch.setattr(os, "scandir", scan_deleted)
    assert {"d", "single"} <= set(scan_states(top, WHOLE))
    assert "d/e" not in scan_states(top, WHOLE)


def test_hashes_of_missing_files_are_omitted(tmp_path: Path) -> None:
    write(tmp_path / "big", b"x" * ((1 << 20) + 1), 5)
    path, missing = str(tmp_path / "big"), str(tmp_path / "missing")
    assert hash_files([path, missing]) == {path: snapshot.hash_file(path)}
    assert hash_files([]) == {}


def test_snapshot_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thousand files have a folder, hard links stay links, and a deleted file has no entry."""
    top, folder = tmp_path / "env", tmp_path / "steps" / "3"
    folder.mkdir(parents=True)
    for number in range(1001):
        write(top / "lib" / f"{number:04}", b"x", 5)
    write(top / "bin" / "first", b"text", 5, 0o640)
    (top / "bin" / "second").hardlink_to(top / "bin" / "first")
    states = dict(sorted(scan_states(str(top), WHOLE).items()))
    monkeypatch.setattr(snapshot, "scan_states", lambda *_: states)
    (top / "lib" / "0500").unlink()
    take_snapshot(str(top), str(folder), "title", WHOLE)
    taken = read_snapshot(str(folder))
    assert (taken.title, taken.scope) == ("title", WHOLE)
    assert set(taken.entries) == {*states} - {"lib/0500"}
    saved = {path: entry.saved_file for path, entry in taken.entries.items() if entry.saved_file is not None}
    assert saved["bin/first"] == SavedFile(3, 0)
    assert saved["lib/1000"] == SavedFile(3, 1002)
    assert sorted(path.name for path in (folder / "files").iterdir()) == ["0", "1"]
    assert {path.stat().st_mode & 0o777 for path in (folder / "files", *(folder / "files").iterdir())} == {
        0o700
    }
    locations = {path: tmp_path / "steps" / file.path for path, file in saved.items()}
    assert locations["bin/first"].samefile(locations["bin/second"])
    assert not locations["bin/first"].samefile(top / "bin" / "first")
    assert locations["lib/1000"].samefile(top / "lib" / "1000")
    copied = taken.entries["bin/first"].state
    assert (copied.size, copied.mode, copied.mtime_ns) == (4, 0o640, 5 * 10**9)
    assert copied == taken.entries["bin/second"].state
    assert copied.sha256 == snapshot.hash_file(str(top / "bin" / "first"))
    assert taken.entries["lib/1000"].state.sha256 is None


def test_unexpected_error_of_a_link_is_raised(tmp_path: Path) -> None:
    write(tmp_path / "a", b"", 5)
    assert make_hard_link(str(tmp_path / "a"), str(tmp_path / "b"))
    with pytest.raises(FileExistsError):
        make_hard_link(str(tmp_path / "a"), str(tmp_path / "b"))
