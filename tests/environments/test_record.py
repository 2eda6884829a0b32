"""The history: how steps are merged, which states count as recorded, and what conflicts with an undo."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from environments.killer import write
from tfdoctor.environments.history import record
from tfdoctor.environments.history.record import (
    History,
    HistoryEntry,
    JournalError,
    add_step,
    compute_changes,
    find_conflicts,
    has_state,
    join_paths,
    list_step_numbers,
    read_history,
    read_undo,
    require_no_conflicts,
    write_history,
    write_undo,
)
from tfdoctor.environments.history.restore import SavedContents, list_blocking_paths
from tfdoctor.environments.history.snapshot import (
    PathChange,
    PathState,
    SavedFile,
    Scope,
    SnapshotEntry,
    hash_file,
    scan_states,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")

ENTRY = HistoryEntry(1, "title", ("TFD205",), "2026-01-01T00:00:00+00:00", 1)
OLD, MIDDLE, NEW, OTHER = (
    PathState("file", 0o644, number, number, sha256=f"{number}" * 64) for number in range(1, 5)
)
KEPT, LATER = SavedFile(1, 0), SavedFile(2, 0)


def merge(
    *changes: PathChange, history: tuple[PathChange, ...] = (), pyc: dict[str, tuple[int, int]] | None = None
) -> dict[str, PathChange]:
    merged = add_step(
        History((ENTRY,), {change.path: change for change in history}, pyc or {}), ENTRY, changes, {}
    )
    assert merged.entries == (ENTRY, ENTRY)
    return dict(merged.changes)


@pytest.mark.parametrize(
    ("before", "merged_before", "kept", "foreign"),
    [
        (MIDDLE, OLD, KEPT, False),
        (OLD, OLD, KEPT, False),  # somebody had restored the file
        (OTHER, OTHER, LATER, True),
        (None, None, LATER, True),
        # The file was modified in place, so its hash is not known: size and mtime decide.
        (MIDDLE._replace(sha256=None), OLD, KEPT, False),
        (MIDDLE._replace(sha256=None, mtime_ns=9), MIDDLE._replace(sha256=None, mtime_ns=9), LATER, True),
        (MIDDLE._replace(sha256=None, size=9), MIDDLE._replace(sha256=None, size=9), LATER, True),
        (MIDDLE._replace(mtime_ns=9), OLD, KEPT, False),
    ],
)
def test_two_steps_are_merged(
    before: PathState | None, merged_before: PathState | None, kept: SavedFile, foreign: bool
) -> None:
    previous = PathChange("a", OLD, MIDDLE, KEPT)
    merged = merge(PathChange("a", before, NEW, LATER), history=(previous,))
    assert merged == {"a": PathChange("a", merged_before, NEW, kept, foreign)}


def test_bytecode_between_two_steps() -> None:
    source = PathChange("lib/a.py", OLD, MIDDLE, KEPT)
    for path in ("lib/__pycache__/a.cpython-311.pyc", "lib/a.pyc"):
        change = PathChange(path, OLD, None, LATER)
        unknown = change._replace(before=None, kept=None)
        # Python compiled the file from the changed source, unless the first step had left it.
        assert merge(change, history=(source,))[path] == unknown
        assert merge(change, history=(source,), pyc={path: (OLD.size, OLD.mtime_ns)})[path] == change
        assert merge(change, history=(source,), pyc={path: (OLD.size, 9)})[path] == unknown
        assert merge(change)[path] == change
        assert merge(PathChange(path, None, NEW, None), history=(source,))[path].after == NEW
        # A recorded file may be compiled again at any time.
        previous = PathChange(path, OLD, MIDDLE, KEPT)
        merged = merge(PathChange(path, OTHER, NEW, LATER), history=(previous,))[path]
        assert merged == PathChange(path, OLD, NEW, KEPT)
    top_source = PathChange("a.py", OLD, MIDDLE, KEPT)
    change = PathChange("__pycache__/a.cpython-311.pyc", OLD, None, LATER)
    assert merge(change, history=(top_source,))[change.path].before is None


def test_valid_bytecode_of_changed_sources_is_recorded() -> None:
    compiled = {"__pycache__/a.x.pyc": OLD, "__pycache__/b.x.pyc": OLD, "b.pyc": MIDDLE, "c.pyc": NEW}
    entries = {path: SnapshotEntry(state, KEPT) for path, state in compiled.items()}
    changes = [PathChange("b.py", OLD, NEW, KEPT), PathChange("c.pyc", NEW, None, KEPT)]
    changes += [PathChange("c.py", OLD, NEW, KEPT)]
    history = add_step(History(valid_pyc={"b.pyc": (7, 7)}), ENTRY, changes, entries)
    assert history.valid_pyc == {"b.pyc": (7, 7), "__pycache__/b.x.pyc": (1, 1)}
    # Bytecode of a source that an earlier step changed is not that of the original source.
    again = add_step(history, ENTRY, changes[:1], entries)
    assert again.valid_pyc == history.valid_pyc
    earlier = History(changes={"b.py": changes[0]})
    assert add_step(earlier, ENTRY, changes[:1], entries).valid_pyc == {}


def test_changes_of_a_step_have_both_hashes(tmp_path: Path) -> None:
    top, steps = tmp_path / "env", tmp_path / "steps"
    for name, text in {
        "linked": b"new",
        "copied": b"new",
        "same": b"old",
        "added": b"a",
        "written": b"w",
    }.items():
        write(top / name, text, 9)
    (top / "link").symlink_to("added")
    entries, saved = {}, {}
    for number, name in enumerate(("linked", "copied", "same", "written", "removed")):
        file = SavedFile(1, number)
        path = steps / file.path
        write(path, b"old", 9)
        is_copied = name in {"copied", "same"}
        sha256 = hash_file(str(path)) if is_copied else None
        entries[name] = SnapshotEntry(PathState("file", 0o644, 3, 9 * 10**9, sha256=sha256), file)
        saved[name] = path
    saved["written"].write_bytes(b"longer")
    states = scan_states(str(top), Scope(("",)))
    changes = {change.path: change for change in compute_changes(str(top), str(steps), entries, states)}
    old, new = hash_file(str(saved["linked"])), hash_file(str(top / "linked"))
    assert set(changes) == {"linked", "copied", "added", "link", "written", "removed"}
    for name in ("linked", "copied"):
        before, after = changes[name].before, changes[name].after
        assert before is not None
        assert after is not None
        assert (before.sha256, after.sha256, changes[name].kept) == (old, new, entries[name].saved_file)
    assert changes["removed"].after is None
    assert changes["removed"].kept is not None
    written = changes["written"].before
    assert written is not None
    assert (written.sha256, changes["written"].kept) == (None, None)
    assert changes["link"].after is not None
    assert changes["link"].after.sha256 is None


def test_unknown_old_state_is_a_change() -> None:
    unknown = OLD._replace(sha256=None)
    assert not record._is_unchanged(PathChange("a", unknown, unknown, None))
    assert record._is_unchanged(PathChange("a", OLD, OLD, None))
    assert not record._is_unchanged(PathChange("a", OLD, OLD._replace(mtime_ns=9), None))
    folder = PathState("dir", 0o755, 0, 0)
    assert record._is_unchanged(PathChange("a", folder, folder, None))
    assert not record._is_unchanged(PathChange("a", None, folder, None))


def test_state_of_a_path_is_compared(tmp_path: Path) -> None:
    write(tmp_path / "file", b"abc", 5)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir(mode=0o755)
    os.mkfifo(tmp_path / "pipe")
    file = PathState("file", 0o644, 3, 0, sha256=hash_file(str(tmp_path / "file")))
    link, folder = PathState("link", 0, 0, 0, target="file"), PathState("dir", 0o755, 0, 0)
    cases: list[tuple[str, PathState | None, bool]] = [
        ("file", file, True),
        ("file", None, False),
        ("file", file._replace(sha256=None), False),
        ("file", file._replace(sha256="0" * 64), False),
        ("file", file._replace(size=4), False),
        ("file", file._replace(mode=0o600), False),
        ("file", link, False),
        ("link", link, True),
        ("link", file, False),
        ("folder", folder, True),
        ("folder", None, False),
        ("none", None, True),
        ("none", file, False),
        ("none/below", None, True),
        ("pipe", None, False),
        ("pipe", file, False),
    ]
    for real_folders in (None, set[str]()):
        wrong = [
            case
            for case in cases
            if has_state(str(tmp_path), case[0], case[1], {}, real_folders) is not case[2]
        ]
        assert wrong == []
    assert has_state(str(tmp_path), "file", file._replace(sha256="1" * 64), {f"{tmp_path}/file": "1" * 64})


def test_conflicts_with_an_undo(tmp_path: Path) -> None:
    """Each file has the name of its case; the saved contents of `lost` are missing."""
    top, steps = tmp_path / "env", tmp_path / "steps"
    names = ("fine", "restored", "edited", "lost", "foreign", "edited_too", "__pycache__/x.pyc")
    changes = {}
    for number, name in enumerate(names):
        file = SavedFile(1, number)
        write(steps / file.path, b"old", 5)
        write(top / name, b"new", 9)
        before = PathState("file", 0o644, 3, 5 * 10**9, sha256=hash_file(f"{steps}/{file.path}"))
        after = before._replace(sha256=hash_file(f"{top}/{name}"))
        changes[name] = PathChange(name, before, after, file, foreign=name == "foreign")
    write(top / "restored", b"old", 9)
    write(top / "edited", b"mine", 9)
    write(top / "edited_too", b"now", 9)
    write(top / "__pycache__/x.pyc", b"compiled", 9)
    (steps / SavedFile(1, names.index("lost")).path).unlink()
    changes["missing"] = PathChange("missing", changes["fine"].before, None, changes["fine"].kept)
    changes["added"] = PathChange("added", None, changes["fine"].after, None)
    found = find_conflicts(str(top), History((ENTRY,), changes), SavedContents(str(steps)))
    assert found == (["edited", "foreign", "edited_too"], ["lost"], {"edited", "edited_too", "lost"})


def test_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    """An undo may remove the folder only if all of its content is known or made by Python."""
    folder = PathState("dir", 0o755, 0, 0)
    link = PathState("link", 0, 0, 0, target="x")
    (tmp_path / "a").mkdir(mode=0o755)
    write(tmp_path / "a" / "known", b"", 5)
    write(tmp_path / "a" / "__pycache__" / "x.pyc", b"", 5)
    known = PathChange(
        "a/known", None, PathState("file", 0o644, 0, 0, sha256=hash_file(f"{tmp_path}/a/known")), None
    )
    contents = SavedContents(str(tmp_path / "steps"))
    for before, mine, conflicts in (
        (link, False, []),
        (link, True, ["a"]),
        (folder, True, []),
        (None, True, []),
    ):
        if mine:
            write(tmp_path / "a" / "mine", b"", 5)
        changes = {"a": PathChange("a", before, folder, None), "a/known": known}
        assert find_conflicts(str(tmp_path), History((ENTRY,), changes), contents)[0] == conflicts
    assert list_blocking_paths(str(tmp_path), "a", {"a", "a/known"}) == ["a/mine"]


def test_sentence_about_conflicts() -> None:
    require_no_conflicts([], [])
    for changed, lost, sentence in (
        (["b", "a"], [], "Nothing was taken back: changed by somebody since tfdoctor changed them: a, b."),
        (
            [],
            ["c"],
            "Nothing was taken back: what they were is no longer kept, for a program wrote into the files themselves: c.",
        ),
    ):
        with pytest.raises(JournalError) as error:
            require_no_conflicts(changed, lost)
        assert error.value.message == sentence
    names = [f"{number:02}" for number in range(11)]
    assert join_paths(names[:10]) == ", ".join(names[:10])
    assert join_paths(reversed(names)) == f"{', '.join(names[:10])} and 1 more"


def test_folders_that_are_steps(tmp_path: Path) -> None:
    assert list_step_numbers(str(tmp_path)) == []
    for name in ("1", "10", "9", "0", "01", "x", "1.gone", "999999999", "1234567890", "٣"):
        (tmp_path / "steps" / name).mkdir(parents=True)
    (tmp_path / "steps" / "2").write_text("")
    (tmp_path / "steps" / "3").symlink_to("1")
    assert list_step_numbers(str(tmp_path)) == [1, 9, 10, 999999999]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "steps").write_text("")
    with pytest.raises(JournalError, match="not a folder"):
        list_step_numbers(str(tmp_path / "other"))


def test_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    link, folder = PathState("link", 0o777, 0, 5, target="x"), PathState("dir", 0o755, 0, 5)
    changes = (
        PathChange("a", OLD, NEW, KEPT),
        PathChange("b", None, OLD._replace(sha256=None), None, foreign=True),
        PathChange("c", link, folder, None),
    )
    history = History((ENTRY,), {change.path: change for change in changes}, {"a.pyc": (1, -2)})
    write_history(str(tmp_path), history)
    assert read_history(str(tmp_path)) == history
    assert 1 in history
    assert 2 not in history
    write_undo(str(tmp_path), {"b", "a"})
    assert read_undo(str(tmp_path)) == {"a", "b"}
    assert (tmp_path / "undo.json").read_text() == '{"schema_version":2,"left":["a","b"]}'


def test_entries_and_changes_at_the_limits() -> None:
    entry = {"number": 0, "title": "", "codes": [], "when": "", "changes": 0}
    change = {"path": "a", "before": OLD._asdict(), "after": None, "kept": [0, 0], "foreign": False}
    assert record._parse_entry(dict(entry)).codes == ()
    assert record._parse_change(dict(change)).kept == SavedFile(0, 0)
    wrong_entries = [
        {"number": True},
        {"changes": -1},
        {"codes": [1]},
        {"codes": "ab"},
        {"when": 5},
        {"x": 1},
    ]
    wrong_changes = [{"foreign": 1}, {"x": 1}, {"kept": [0]}, {"before": None}, {"path": ""}]
    wrong_changes += [{"before": OLD._replace(type="dir", sha256=None)._asdict()}]
    for parse, base, wrong in (
        (record._parse_entry, entry, wrong_entries),
        (record._parse_change, change, wrong_changes),
    ):
        for changed in wrong:
            with pytest.raises((KeyError, TypeError, ValueError)):
                parse({**base, **changed})
