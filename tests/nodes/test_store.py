"""Tests of the folder with the results of a fleet."""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING

import pytest

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.extensions.fleet.nodes import NodeAnswer
from tfdoctor.extensions.fleet.nodes.store import JOURNAL, ResultStore, make_file_name
from tfdoctor.system.writing import SCRATCH_PREFIX, make_scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = ["node1", "../../etc/x", "user@host:22", "a/b", ".", "..", "ü", "x" * 400, "%2e"]


def test_stored_results_are_read_with_their_ending(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "out")
    store.create_folder()
    store.save_answer(
        NodeAnswer("a", "answered", b'{"x": 1}', duration_s=2.0), request_time=5.0, response_time=7.0
    )
    store.save_answer(
        NodeAnswer("b", "timeout", reason="no answer within 3 s"), request_time=5.0, response_time=8.0
    )
    results = {result.host: result for result in store.iter_nodes(100)}
    assert results["a"].content == b'{"x": 1}'
    assert results["b"].content is None
    ends = {
        name: (result.journal_entry.outcome, result.journal_entry.reason, result.journal_entry.request_time)
        for name, result in results.items()
        if result.journal_entry
    }
    assert ends == {"a": ("answered", "", 5.0), "b": ("timeout", "no answer within 3 s", 5.0)}


@pytest.mark.parametrize("host", HOSTS)
def test_no_host_name_escapes_the_folder(tmp_path: Path, host: str) -> None:
    store = ResultStore(tmp_path / "out")
    store.create_folder()
    store.save_answer(NodeAnswer(host, "answered", b"{}"), request_time=None, response_time=1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [make_file_name(host), JOURNAL]
    )


def test_last_ending_is_used(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.save_answer(NodeAnswer("a", "lost", reason="no route"), request_time=1.0, response_time=2.0)
    store.save_answer(NodeAnswer("a", "answered", b"{}"), request_time=3.0, response_time=4.0)
    (result,) = store.iter_nodes(100)
    assert result.journal_entry is not None
    assert result.journal_entry.outcome == "answered"


def test_invalid_journal_is_ignored(tmp_path: Path) -> None:
    lines = [
        b"hello",
        b"[" * 4000,
        b'{"host": 5}',
        b'{"host": "a", "ended": "fine"}',
        b"\xff",
        b"x" * 100_000,
    ]
    (tmp_path / JOURNAL).write_bytes(b"\n".join(lines))
    assert ResultStore(tmp_path).load_journal() == {}


def test_a_pipe_and_a_folder_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    store = ResultStore(tmp_path)
    assert [(result.host, result.content, result.read_error) for result in store.iter_nodes(100)] == [
        ("folder", None, "it is no regular file"),
        ("pipe", None, "it is no regular file"),
    ]
    assert store.ignored_file_count == 1


def test_large_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"x" * 1000)
    (result,) = ResultStore(tmp_path).iter_nodes(100)
    assert result.content == b"x" * 101


def test_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        list(ResultStore(tmp_path / "none").iter_nodes(1))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        list(ResultStore(tmp_path / "file").iter_nodes(1))
    with pytest.raises(UsageError):
        ResultStore(tmp_path / "file").create_folder()
    with pytest.raises(UsageError):
        ResultStore(tmp_path / "none" / "deeper").create_folder()


def test_full_disk_raises_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tfdoctor.extensions.fleet.nodes.store.place_file", raise_full_disk)
    with pytest.raises(Error, match="No space left") as caught:
        ResultStore(tmp_path).save_answer(
            NodeAnswer("a", "answered", json.dumps({}).encode()), request_time=None, response_time=1.0
        )
    assert "--resume" in caught.value.hint


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).symlink_to(tmp_path / "victim")
    with pytest.raises(Error, match="cannot be kept"):
        ResultStore(tmp_path).save_answer(
            NodeAnswer("h", "lost", reason="gone"), request_time=None, response_time=1.0
        )
    assert not (tmp_path / "victim").exists()


def test_folder_of_a_killed_process_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{SCRATCH_PREFIX}dead").mkdir()
    (tmp_path / f"{SCRATCH_PREFIX}dead" / "file").write_text("")
    (tmp_path / f"{SCRATCH_PREFIX}link").symlink_to("/usr")
    with make_scratch_folder() as first:
        with make_scratch_folder() as second:
            assert {path.name for path in tmp_path.iterdir()} == {
                first.name,
                second.name,
                f"{SCRATCH_PREFIX}link",
            }
        assert first.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [f"{SCRATCH_PREFIX}link"]
