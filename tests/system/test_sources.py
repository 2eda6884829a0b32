"""Source files that the user names are found, read and decoded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tfdoctor.system import sources

if TYPE_CHECKING:
    from pathlib import Path


def test_files_below_a_folder_are_found(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "project"
    for name in ("b/z.py", "b/a.py", "a/x.py", "node_modules/y.py", "excluded/y.py", "a/no.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "top.py").touch()
    outside.mkdir()
    (folder / "out").symlink_to(outside)
    (folder / "excluded-out").symlink_to(outside)
    (folder / "in").symlink_to(folder / "a")
    errors: list[OSError] = []
    excluded = {"excluded", "no.py", "excluded-out"}
    paths = sources.walk_files(folder, ("node_*",), lambda path: path.name in excluded, errors.append)
    assert [str(path.relative_to(folder)) for path in paths] == ["top.py", "a/x.py", "b/a.py", "b/z.py"]
    assert [(error.strerror, error.filename) for error in errors] == [
        (sources.OUTWARD_LINK, str(folder / "out"))
    ]
    list(sources.walk_files(tmp_path / "absent", (), lambda _: False, errors.append))
    assert len(errors) == 2


def test_link_to_itself_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert sources.resolve_path(tmp_path / "loop").name == "loop"
    assert sources.is_inside(tmp_path / "loop", tmp_path)


@pytest.mark.parametrize(
    ("data", "is_python", "text", "codec", "mark"),
    [
        ("ä\r\n".encode(), True, "ä\r\n", "utf-8", b""),
        (b"\xef\xbb\xbfa", False, "a", "utf-8", b"\xef\xbb\xbf"),
        (b"\xff\xfea\0", False, "a", "utf-16-le", b"\xff\xfe"),
        (b"\xfe\xff\0a", False, "a", "utf-16-be", b"\xfe\xff"),
        (b"\xff\xfea", False, "ÿþa", "latin-1", b""),
        (b"\xe4", False, "ä", "latin-1", b""),
        (b"# coding: cp1252\n\x80", True, "# coding: cp1252\n€", "cp1252", b""),
        (b"# coding: cp1252\n\x80", False, "# coding: cp1252\n\x80", "latin-1", b""),
        (b"# coding: no-such\n\xe4", True, "# coding: no-such\nä", "latin-1", b""),
        (b"", True, "", "utf-8", b""),
    ],
)
def test_text_is_decoded(
    tmp_path: Path, data: bytes, is_python: bool, text: str, codec: str, mark: bytes
) -> None:
    (tmp_path / "file").write_bytes(data)
    source = sources.load_source(tmp_path / "file", is_python=is_python)
    assert (source.data, source.text, source.codec, source.byte_order_mark) == (data, text, codec, mark)
    assert sources.read_source_text(tmp_path / "file", is_python=is_python) == text


def test_file_that_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 1 << 20)
    contents = {"large": b"x" * ((1 << 20) + 1), "limit": b"x" * (1 << 20), "binary": b"a\0b"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert len(sources.load_source(tmp_path / "limit", is_python=False).text) == 1 << 20
    for path, message in (
        (tmp_path / "large", "^it is larger than 1 MiB"),
        (tmp_path / "binary", "not text"),
        (tmp_path, "not a regular file"),
        (tmp_path / "absent", "No such file"),
    ):
        with pytest.raises(ValueError, match=message):
            sources.load_source(path, is_python=True)


def test_first_line_is_read(tmp_path: Path) -> None:
    for content, line in (
        (b"#!/bin/sh\nx", "#!/bin/sh"),
        (b"x" * 300, "x" * 200),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ):
        (tmp_path / "file").write_bytes(content)
        assert sources.read_first_line(tmp_path / "file") == line
    os.mkfifo(tmp_path / "pipe")
    assert sources.read_first_line(tmp_path / "pipe") == sources.read_first_line(tmp_path / "absent") == ""


def test_uppercase_words_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'x = "TF_XLA_FLAGS"; lowerTF_NO_MATCH; AB12; ABCDE1; _NO_WORD'
    (tmp_path / "file").write_bytes(text.encode())
    assert list(sources.iter_uppercase_words(tmp_path / "file")) == ["TF_XLA_FLAGS", "ABCDE1"]
    (tmp_path / "file").write_bytes(text.encode("utf-16"))
    assert list(sources.iter_uppercase_words(tmp_path / "file")) == ["TF_XLA_FLAGS", "ABCDE1"]
    os.mkfifo(tmp_path / "pipe")
    assert list(sources.iter_uppercase_words(tmp_path / "pipe")) == []
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 8)  # each block is read, and words cross their limits
    assert "TF_XLA_FLAGS" in sources.iter_uppercase_words(tmp_path / "file")
