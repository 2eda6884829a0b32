"""`lint --fix` on generated files: the misspelt names change and every other byte stays."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cli.planner import Tfdoctor
from tfdoctor.core.edits import Edit, EditError, apply_edits
from tfdoctor.extensions.lint.analysis import lint_text
from tfdoctor.extensions.lint.fixes import drop_fixes_of_shared_names
from tfdoctor.extensions.lint.models import LintTarget
from tfdoctor.system.editing import edit_file
from tfdoctor.system.sources import MAX_FILE_BYTES

COUNT = int(os.environ.get("TFDOCTOR_DRAWN", "300"))
WRONG, RIGHT = "CUDA_VISIBLE_DEVIES", "CUDA_VISIBLE_DEVICES"
ENDINGS = ("\n", "\r\n", "\r", None)  # None: mixed
FILE_LINES = {
    "a.py": (
        "import os",
        "# {letters} CUDA_VISIBLE_DEVIES in a comment",
        "x = '{letters}'; os.environ['@'] = '0'",
        "import tensorflow as tf",
        "path = '/srv/models/production/weights.h5'",
        "os.environ.update({{'{letters}': '1', '@': '1'}})",
    ),
    "a.sh": (
        "#!/bin/sh",
        "# {letters} CUDA_VISIBLE_DEVIES in a comment",
        "export NOTE='{letters}' @=0",
        "python train.py --note {letters}",
        "@=1 python other.py",
        "cat <<'END'",
        "MY_CUDA_VISIBLE_DEVIES=data",
        "END",
    ),
    "Dockerfile": (
        "FROM debian:12",
        "# {letters} CUDA_VISIBLE_DEVIES in a comment",
        "ENV NOTE='{letters}' @=0",
        "RUN true",
        "ENV OTHER=MY_CUDA_VISIBLE_DEVIES @=1",
    ),
    "a.yaml": (
        "services:",
        "  x:",
        "    # note: CUDA_VISIBLE_DEVIES in a comment",
        "    environment:",
        "      NOTE: '{letters}'",
        "      @: '0'",
        "  y:",
        "    environment: ['NOTE={letters}', @=1]",
    ),
    "a.env": ("NOTE={letters}", "@=0", "OTHER=MY_CUDA_VISIBLE_DEVIES"),
}
LETTERS = {
    "utf-8": "aé\u2028ß漢😀",
    "utf-8-sig": "éß漢",
    "utf-16-le": "é漢😀",
    "utf-16-be": "é漢",
    "latin-1": "éß",
    "cp1252": "€“",
    "shift_jis": "漢字",
    "koi8-r": "ё",
    "gb18030": "漢😀",
}
BYTE_ORDER_MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


def encode(text: str, codec: str) -> bytes:
    return BYTE_ORDER_MARKS.get(codec, b"") + text.encode(codec)


def make_text(rng: random.Random) -> tuple[str, bytes, bytes]:
    """Return a file name, and the bytes of the file before and after."""
    name = rng.choice(list(FILE_LINES))
    codec = rng.choice(list(LETTERS) if name == "a.py" else ["utf-8", "utf-8-sig", "utf-16-le", "latin-1"])
    letters = "".join(rng.choices(LETTERS[codec], k=rng.randrange(4)))
    lines = [line.format(letters=letters) for line in FILE_LINES[name]]
    if name == "a.py" and codec not in BYTE_ORDER_MARKS:
        lines.insert(0, f"# -*- coding: {codec.removesuffix('-sig')} -*-")
    for _ in range(rng.randrange(4)):
        lines.insert(rng.randrange(2 if name == "Dockerfile" else 1, 3), "# " + "padding " * rng.randrange(9))
    ending = rng.choice(ENDINGS)
    text = "".join(line + (ending or rng.choice(["\n", "\r\n"])) for line in lines)
    if rng.random() < 0.3:
        text = text.rstrip("\r\n")
    return name, encode(text.replace("@", WRONG), codec), encode(text.replace("@", RIGHT), codec)


def spell_json(text: str, rng: random.Random) -> str:
    """Return text as a JSON string, with some characters as escapes."""
    characters = [json.dumps(char, ensure_ascii=rng.random() < 0.2)[1:-1] for char in text]
    return "".join(
        f"\\u{ord(char):04X}" if char.isalnum() and char.isascii() and rng.random() < 0.05 else char
        for char in characters
    )


def make_notebook(rng: random.Random) -> tuple[str, bytes, bytes]:
    """Return a file name, and the bytes of the notebook before and after."""
    note = f"os.environ['{WRONG}'] = '0' does nothing"
    code = (
        f"import os\n# é {WRONG}\nos.environ['@'] = '0'  # 😀\nos.environ.update({{'é': '1', \"@\": '1'}})\n"
    )
    code = code.replace("\n", rng.choice(["\n", "\n", "\r\n"]))
    pieces = rng.choice([[code], code.splitlines(keepends=True), [code[:40], code[40:41], code[41:]]])
    spelled = [f'"{spell_json(piece, rng)}"' for piece in pieces]
    source = spelled[0] if len(spelled) == 1 and rng.random() < 0.7 else f"[{', '.join(spelled)}]"
    version_3 = rng.random() < 0.3
    key = "input" if version_3 else "source"
    cells = [
        json.dumps({"cell_type": "markdown", "metadata": {"a": note}, "source": [note]}, ensure_ascii=False),
        json.dumps({"cell_type": "raw", "metadata": {}, "source": note}),
        f'{{"cell_type": "code", "outputs": [{json.dumps(note)}],\r\n"{key}": {source}, "metadata": {{}}}}',
    ]
    rng.shuffle(cells)
    joined = rng.choice([",", " ,\n  "]).join(cells)
    text = f'{{"cells": [ {joined}\n],"n": 4}}\n'
    if version_3:
        text = f'{{"worksheets": [{text}], "nbformat": 3}}'
    wrong = "".join(f"\\u{ord(char):04x}" if rng.random() < 0.1 else char for char in WRONG)
    codec = rng.choice(["utf-8", "utf-8", "utf-8-sig"])
    return "a.ipynb", encode(text.replace("@", wrong), codec), encode(text.replace("@", RIGHT), codec)


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    return functools.partial(Tfdoctor(monkeypatch, capsys), "lint")


@pytest.mark.parametrize("seed", range(20))
def test_no_other_byte_changes(lint: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    expected = {}
    for number in range(COUNT // 20):
        folder = tmp_path / str(number)
        folder.mkdir()
        name, before, after = make_notebook(rng) if rng.random() < 0.4 else make_text(rng)
        (folder / name).write_bytes(before)
        expected[folder / name] = before, after
    for folder in sorted(tmp_path.iterdir()):  # one run each: a name that stands in two files of a run stays
        result = lint("--fix", str(folder))
        assert result.err == ""
        assert "--fix corrects" not in result.out
    contents = [(before, after, path.read_bytes()) for path, (before, after) in expected.items()]
    assert [content for content in contents if content[1] != content[2]] == []


MISSPELT = f"import os\nos.environ['{WRONG}'] = '0'\nimport tensorflow\n".encode()
CORRECTED = MISSPELT.replace(WRONG.encode(), RIGHT.encode())


def test_file_keeps_owner_mode_and_links(lint: Any, tmp_path: Path) -> None:
    file, other = tmp_path / "a.py", tmp_path / "b.py"
    for path in (file, other):
        path.write_bytes(MISSPELT)
        path.chmod(0o640)
    (tmp_path / "name").hardlink_to(other)
    if os.geteuid() == 0:
        os.chown(file, 1000, 1001)
    with contextlib.suppress(OSError):  # not every file system has extended attributes
        os.setxattr(file, "user.note", b"kept")
    before, names = file.stat(), os.listxattr(file)
    assert [lint("--fix", path.name).status for path in (file, other)] == [0, 0]
    after = file.stat()
    assert [path.read_bytes() for path in (file, other, tmp_path / "name")] == [CORRECTED] * 3
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert (os.listxattr(file), other.stat().st_nlink) == (names, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"a.py", "b.py", "name"}


def test_read_only_file_is_left_and_named(lint: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(MISSPELT)
    (tmp_path / "a.py").chmod(0o444)
    result = lint("--fix", "a.py")
    assert (result.status, result.err) == (1, "a.py: left unchanged: it is read-only.\n")
    assert (tmp_path / "a.py").read_bytes() == MISSPELT


def test_link_out_of_the_folder_is_left_and_named(lint: Any, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "mine.py").write_bytes(MISSPELT)
    (tmp_path / "project" / "a.py").symlink_to("../mine.py")
    result = lint("--fix", "project")
    assert (result.status, result.out.startswith("---")) == (3, False)
    assert "project/a.py: not checked: it is a link that leads out of the folder" in result.out
    assert (tmp_path / "mine.py").read_bytes() == MISSPELT
    assert lint("--fix", "project/a.py").status == 0  # named by the user
    assert ((tmp_path / "mine.py").read_bytes(), (tmp_path / "project" / "a.py").is_symlink()) == (
        CORRECTED,
        True,
    )


@pytest.mark.parametrize(
    ("codec", "letters"), [("hz", b"~{VPND~}~{VPND~}"), ("iso2022_jp", b"\x1b$B4A\x1b(B\x1b$B4A\x1b(B")]
)
def test_lossy_encoding_is_refused(lint: Any, tmp_path: Path, codec: str, letters: bytes) -> None:
    data = f"# -*- coding: {codec} -*-\n# ".encode() + letters + b"\n" + MISSPELT
    (tmp_path / "a.py").write_bytes(data)
    result = lint("--fix", "a.py")
    assert (result.status, result.err) == (
        1,
        f"a.py: left unchanged: its encoding ({codec}) cannot be written back unchanged.\n",
    )
    assert "---" not in result.out
    assert "--fix" not in result.out
    assert (tmp_path / "a.py").read_bytes() == data


def test_edit_must_match_the_bytes() -> None:
    assert apply_edits(b"abcdef", [Edit(4, b"e", b"E"), Edit(1, b"bc", b"")]) == b"adEf"
    for edits in ([Edit(0, b"b", b"")], [Edit(0, b"ab", b""), Edit(1, b"bc", b"")], [Edit(5, b"fg", b"")]):
        with pytest.raises(EditError, match="not where it was found"):
            apply_edits(b"abcdef", edits)


def test_file_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    for content in (b"abcd", b"xbc", b""):
        file.write_bytes(content)
        with pytest.raises(EditError, match="it has changed"):
            edit_file(file, b"abc", [Edit(0, b"a", b"A")])
        assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "import os\nos.environ['@'] = '0'\nassert os.environ['@'] == '0'\n"),
        ("a.py", "import os\nos.environ['@'] = '0'\ndel os.environ['@']\n"),
        ("a.py", "import os\nos.environ.update(@='0', CUDA_VISIBLE_DEVICES='1')\n"),
        ("a.py", "import os\nos.environ.update({'@': '0', 'CUDA_VISIBLE_DEVICE': '1'})\n"),
        ("a.py", "import tensorflow as tf\ng = tf.GPUOptions(allow_grouth=True, allow_growth=False)\n"),
        ("a.py", "environ = {}\nenviron['CUDA_VISIBLE_DEVICES'] = 0\n"),
        ("a.py", "def app(environ, start):\n    environ['@'] = 'x'\n"),
        ("a.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\nos.environ['@'] = '0'\n"),
        ("a.py", "import os\nos.environ['@'] = '0'\nos.environ['CUDA_VISABLE_DEVICES'] = '1'\n"),
        ("a.py", "import os\nos.environ['@'] = '0'\nprint(os.getenv('CUDA_VISIBLE_' 'DEVIES'))\n"),
        ("a.sh", "set -u; export @=0; echo $@\n"),
        ("Dockerfile", "FROM debian:12\nARG @=0\nENV X=${@}\n"),
        ("a.yaml", "environment:\n  @: '0'\n  CUDA_VISIBLE_DEVICES: '1'\n"),
        ("a.yaml", "env: {@: '0'}\nrun: echo $@\n"),
        ("a.env", "A='\n@=0\n'\n"),
    ],
)
def test_risky_correction_is_not_made(lint: Any, tmp_path: Path, name: str, text: str) -> None:
    before = text.replace("@", WRONG)
    (tmp_path / name).write_text(before)
    lint("--fix", name)
    assert (tmp_path / name).read_text() == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s = \"os.environ('X')\"; os.environ('@') = '0'", "s = \"os.environ('X')\"; os.environ['@'] = '0'"),
        ("os.environ ( '@' ) = '0' # os.environ('@')", "os.environ[ '@' ] = '0' # os.environ('@')"),
        ("os.environ ('@') = '0'; s = \"os.environ('@')\"", "os.environ['@'] = '0'; s = \"os.environ('@')\""),
    ],
)
def test_brackets_of_code_change_and_those_of_strings_stay(
    lint: Any, tmp_path: Path, before: str, after: str
) -> None:
    (tmp_path / "a.py").write_text(f"import os\n{before}\n".replace("@", RIGHT))
    lint("--fix", "a.py")
    assert (tmp_path / "a.py").read_text() == f"import os\n{after}\n".replace("@", RIGHT)


def test_context_dependent_encoding_is_refused(lint: Any, tmp_path: Path) -> None:
    text = f"import os\ns = 'é'\nos.environ['{WRONG}'] = '0'\n"
    before = b"# -*- coding: punycode -*-\n" + text.encode("punycode")
    (tmp_path / "a.py").write_bytes(before)
    assert "left unchanged" in lint("--fix", "a.py").err
    assert (tmp_path / "a.py").read_bytes() == before


@pytest.mark.parametrize("links", [1, 2])
def test_failed_write_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"abc")
    if links == 2:
        (tmp_path / "b").hardlink_to(file)
    written = []

    def write(descriptor: int, content: bytes) -> int:
        written.append(content)
        if len(written) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(descriptor, content)

    real_write, real_fsync = os.write, os.fsync

    def fsync(descriptor: int) -> None:
        if links == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(EditError, match="No space left"):
        edit_file(file, b"abc", [Edit(0, b"a", b"AAAA")])
    monkeypatch.undo()
    assert file.read_bytes() == b"abc"
    assert {path.name for path in tmp_path.iterdir()} <= {"a.py", "b"}


def test_name_read_by_another_file_stays(lint: Any, tmp_path: Path) -> None:
    setter, reader = tmp_path / "a.sh", tmp_path / "b.py"
    setter.write_text(f"export {WRONG}=0\npython3 b.py\n")
    reader.write_text(f"from os import environ as E\nN = '{WRONG}'\nprint(E[N])\n")
    assert "a.sh" in lint("--fix", ".").out
    assert WRONG in setter.read_text()
    assert WRONG in reader.read_text()
    reader.write_text(f"import os\nos.environ['{WRONG}'] = '1'\n")
    lint("--fix", ".")
    assert WRONG in setter.read_text()
    assert WRONG in reader.read_text()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("b.sh", "export CUDA_VISIBLE_DEVICES=1\n"),
        (".env", "CUDA_VISIBLE_DEVICES=1\n"),
    ],
)
def test_a_name_stays_if_another_file_sets_the_correct_one(
    lint: Any, tmp_path: Path, name: str, content: str
) -> None:
    setter = tmp_path / "a.py"
    setter.write_text(f"import os\nos.environ['{WRONG}'] = '0'\n")
    (tmp_path / name).write_text(content)
    assert f"{name} sets CUDA_VISIBLE_DEVICES" in " ".join(lint("--fix", ".").out.split())
    assert WRONG in setter.read_text()
    (tmp_path / name).unlink()
    (tmp_path / "b.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n")
    lint("--fix", ".")  # another program's own setting
    assert WRONG not in setter.read_text()


def test_a_name_stays_if_a_folder_cannot_be_listed(
    lint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setter = tmp_path / "a.sh"
    setter.write_text(f"export {WRONG}=0\n")
    (tmp_path / "closed").mkdir()
    real_scandir = os.scandir

    def scandir(path: Any = ".") -> Any:
        if os.fspath(path).endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return real_scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert "closed" in lint("--fix", ".").out
    assert WRONG in setter.read_text()


def test_an_empty_path_is_an_error(lint: Any, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"export {WRONG}=0\n")
    assert lint("--fix", "").status == 2
    assert lint("x" * 300).status == 2
    assert WRONG in (tmp_path / "a.sh").read_text()


def test_a_name_that_another_file_puts_together_stays(lint: Any, tmp_path: Path) -> None:
    setter = tmp_path / "a.sh"
    setter.write_text(f"export {WRONG}=0\npython3 b.py\n")
    (tmp_path / "b.py").write_text(f"import os\nprint(os.environ['{WRONG[:9]}' +\n    '{WRONG[9:]}'])\n")
    lint("--fix", ".")
    assert WRONG in setter.read_text()


@pytest.mark.parametrize("size", ["large", "broken"])
def test_a_name_that_an_unchecked_file_may_read_stays(lint: Any, tmp_path: Path, size: str) -> None:
    setter = tmp_path / "a.sh"
    setter.write_text(f"export {WRONG}=0\npython3 b.py\n")
    content = f"os.environ['{WRONG}']"
    if size == "large":
        (tmp_path / "b.py").write_text("x\n" * (MAX_FILE_BYTES // 2) + content)
    else:
        (tmp_path / "b.ipynb").write_text(f'{{"cells": [{content}')
    lint("--fix", ".")
    assert WRONG in setter.read_text()


def test_a_name_stays_if_a_file_cannot_be_read() -> None:
    (problem,) = lint_text(f"export {WRONG}=0\n", "shell", LintTarget())[0]
    assert problem.fix is not None
    assert drop_fixes_of_shared_names([problem], {"a.sh": set(), "b.sh": {"OTHER"}}) == [problem]
    (left,) = drop_fixes_of_shared_names([problem], {"a.sh": set(), "b.py": None})
    assert left.fix is None
    assert "b.py could not be read" in left.message


def test_a_negative_number_becomes_a_string(lint: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = -1\n")
    lint("--fix", ".")
    assert (tmp_path / "a.py").read_text() == "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = \"-1\"\n"


@pytest.mark.parametrize(
    "code",
    [
        "import os\ntry:\n    os.environ['CUDA_VISIBLE_DEVICES'] = 0\nexcept TypeError:\n    pass\n",
        "import os\nwith test.assertRaises(TypeError):\n    os.environ['CUDA_VISIBLE_DEVICES'] = 0\n",
        'import os\nx = f"{os.environ.update(CUDA_VISIBLE_DEVICES=0)}"\n',  # valid from Python 3.12 on
        "from tensorflow import config as c\nf = c.experimental\nf.set_memory_growht = 1\nf.set_memory_growht()\n",
    ],
)
def test_intended_mistake_stays(lint: Any, tmp_path: Path, code: str) -> None:
    (tmp_path / "a.py").write_text(code)
    assert "a.py" in lint("--fix", ".").out
    assert (tmp_path / "a.py").read_text() == code


@pytest.mark.parametrize(
    "code",
    [
        "env = dict(os.environ)\nenv['CUDA_VISIBLE_DEVICES'] = 0\nenv['CUDA_VISIBLE_DEVICES'] += 1\n",
        "env = os.environ.copy()\nenv['CUDA_VISIBLE_DEVICES'] = 0\n",
        "env = dict(os.environ, CUDA_VISIBLE_DEVICES=0)\n",
    ],
)
def test_a_number_in_a_copy_of_the_environment_stays(lint: Any, tmp_path: Path, code: str) -> None:
    (tmp_path / "a.py").write_text(f"import os\n{code}")
    lint("--fix", ".")
    assert (tmp_path / "a.py").read_text() == f"import os\n{code}"


def test_a_name_stays_if_a_linked_folder_may_use_it(lint: Any, tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    (project / "a.sh").write_text(f"export {WRONG}=0\n")
    (project / "common").symlink_to(other, target_is_directory=True)
    assert "common" in lint("--fix", str(project)).out
    assert WRONG in (project / "a.sh").read_text()
    (project / "common").unlink()
    (project / "inner").mkdir()
    (project / "common").symlink_to(project / "inner", target_is_directory=True)
    lint("--fix", str(project))
    assert WRONG not in (project / "a.sh").read_text()


@pytest.mark.parametrize("name", ["run.csh", "run.fish", ".envrc", ".env.local"])
def test_a_name_stays_if_another_shell_reads_it(lint: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "a.sh").write_text(f"export {WRONG}=0\n")
    (tmp_path / name).write_text(f"echo ${WRONG}\n")
    lint("--fix", ".")
    assert WRONG in (tmp_path / "a.sh").read_text()


def test_value_of_two_targets_is_not_changed() -> None:
    """The correction for the variable would change `gpu`, too."""
    code = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = gpu = 0\nprint(devices[gpu])\n'
    problems, _ = lint_text(code, "python", LintTarget())
    assert [(problem.kind_name, problem.fix) for problem in problems] == [("variable-set-wrongly", None)]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("link_count", [1, 2])
def test_set_user_id_is_kept(link_count: int) -> None:
    """Let an ordinary owner edit a file with mode 4755, which is written in place if it has several names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.py")
        path.write_bytes(b"abc")
        if link_count == 2:
            os.link(path, Path(folder, "b.py"))
        for name in (folder, path):
            os.chown(name, 65534, 0)
            Path(name).chmod(0o4755)
        process = os.fork()
        if not process:
            os.setgid(65534)
            os.setuid(65534)
            edit_file(path, b"abc", [Edit(0, b"a", b"XY")])
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
        assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"XYbc", 0o4755)
