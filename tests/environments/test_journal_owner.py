"""The journal: owners, extended attributes and hard links are restored, and a missing history is refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from environments.trees import list_tree
from tfdoctor.environments.folder import write_atomically
from tfdoctor.environments.history.journal import Journal, JournalError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="owners and attributes as Linux has them")


def test_missing_history_is_refused_and_copies_stay(prefix: Path) -> None:
    before = list_tree(prefix)
    with Journal.open(prefix) as journal:
        step = journal.begin_step(title="edit")
        (prefix / "pyvenv.cfg").write_text("changed\n")
        step.commit()
    (prefix / ".tfdoctor/history.json").rename(prefix / "kept.json")
    files = sorted((prefix / ".tfdoctor").rglob("*"))
    for attempt in (lambda: Journal.open(prefix), lambda: Journal.read_entries(prefix)):
        with pytest.raises(JournalError, match="step 1 is missing"):
            attempt()
    assert sorted((prefix / ".tfdoctor").rglob("*")) == files
    (prefix / "kept.json").rename(prefix / ".tfdoctor/history.json")
    with Journal.open(prefix) as journal:
        journal.undo()
    assert list_tree(prefix) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can work in somebody else's environment")
def test_files_made_by_root_belong_to_the_owner(prefix: Path) -> None:
    (prefix / "lib/gone").mkdir(parents=True)
    (prefix / "lib/gone/link").symlink_to("nowhere")
    (prefix / "lib/gone/file").write_text("text")
    (prefix / "lib/of_root").mkdir()

    def list_owners() -> dict[str, tuple[int, int]]:
        paths = [path for path in prefix.rglob("*") if ".tfdoctor" not in path.parts]
        return {str(path): (path.lstat().st_uid, path.lstat().st_gid) for path in paths}

    for path in (prefix, *prefix.rglob("*")):
        if path.name != "of_root":
            os.chown(path, 1000, 1001, follow_symlinks=False)
    before = list_owners()
    with Journal.open(prefix) as journal:
        step = journal.begin_step(title="edit")
        shutil.rmtree(prefix / "lib/gone")
        (prefix / "lib/new").mkdir()
        (prefix / "lib/new/file").write_text("")
        (prefix / "lib/of_root/file").write_text("")
        write_atomically(prefix / "pyvenv.cfg", b"changed\n")
        step.commit()
        new_owners = {name: owner for name, owner in list_owners().items() if name not in before}
        assert new_owners == {
            str(prefix / "lib/new"): (1000, 1001),
            str(prefix / "lib/new/file"): (1000, 1001),
            str(prefix / "lib/of_root/file"): (0, 0),
        }
        assert (prefix / "pyvenv.cfg").stat().st_uid == 1000
        journal.undo()
    assert list_owners() == before


def test_hard_links_and_attributes_are_restored(prefix: Path) -> None:
    first, second = prefix / "bin/first", prefix / "bin/second"
    first.write_text("text")
    second.hardlink_to(first)
    with contextlib.suppress(OSError):  # Not every file system supports extended attributes.
        os.setxattr(first, "user.note", b"kept")
    names = os.listxattr(first)
    with Journal.open(prefix) as journal:
        step = journal.begin_step(title="edit")
        for path in (first, second):
            path.unlink()
            path.write_text("other")
        step.commit()
        journal.undo()
    assert first.samefile(second)
    assert (first.read_text(), os.listxattr(first)) == ("text", names)
