"""The steps of a remedy: what they change, what they may not change, and how they are shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from environments.killer import write
from tfdoctor.core.causes.steps import (
    CommentOutLine,
    Install,
    LinkMatchingFiles,
    MakeLink,
    RemoveEntries,
    RemovePath,
    SetVariable,
    Uninstall,
    UnsetVariable,
)
from tfdoctor.environments import actions
from tfdoctor.environments.actions import ActionError, StepRunner, format_steps, list_changed_paths, make_link
from tfdoctor.environments.activation import BLOCK_BEGIN
from tfdoctor.environments.installers import Installer
from tfdoctor.environments.models import Environment
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from tfdoctor.core.causes.steps import Step

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    """Return a virtual environment with an activate script and some libraries."""
    prefix = tmp_path / "env"
    write(prefix / "pyvenv.cfg", b"home = /usr\n", 5)
    write(prefix / "bin" / "activate", b"export A=1\nexport B=2\n", 5)
    write(prefix / "bin" / "activate.fish", b"set -gx A 1\n", 5)
    for name in ("liba.so.1", "libb.so.1", "other"):
        write(prefix / "lib" / "source" / name, b"", 5)
    (prefix / "lib" / "source" / "libfolder.so.1").mkdir()
    return Environment(str(prefix), str(prefix / "bin" / "python"), "venv")


def run_steps(env: Environment, *steps: Step) -> StepRunner:
    runner = StepRunner(env, lambda: LiveSystem(env=dict(os.environ)), {"PATH": "/bin", "A": "/x:/y"}, None)
    runner.run(steps)
    return runner


def test_links_are_made_beside_their_targets(env: Environment) -> None:
    folder = Path(env.prefix, "lib", "links")
    folder.mkdir()
    write(folder / "libb.so.1", b"a file", 5)
    (folder / "liba.so.1").symlink_to("outdated")
    step = LinkMatchingFiles(f"{env.prefix}/lib/source", "lib*", str(folder))
    run_steps(env, step)
    assert (folder / "liba.so.1").readlink() == Path("../source/liba.so.1")
    assert (folder / "libb.so.1").read_bytes() == b"a file"
    assert sorted(path.name for path in folder.iterdir()) == ["liba.so.1", "libb.so.1"]
    link = folder / "new"
    write(folder / "new.unwritten", b"left behind", 5)
    make_link(MakeLink(str(link), "libb.so.1"))
    make_link(MakeLink(str(link), "liba.so.1"))
    assert link.readlink() == Path("liba.so.1")
    assert not (folder / "new.unwritten").exists()
    for wrong, reason in (
        (MakeLink(str(folder / "libb.so.1"), "liba.so.1"), "is not a link"),
        (MakeLink(str(folder / "more"), "missing"), "would lead nowhere"),
        (MakeLink(f"{folder}/none/x", "../liba.so.1"), "would lead nowhere|cannot be changed"),
    ):
        with pytest.raises(ActionError, match=reason):
            make_link(wrong)


def test_paths_are_removed(env: Environment) -> None:
    source = Path(env.prefix, "lib", "source")
    (source / "dangling").symlink_to("nowhere")
    steps = (RemovePath(f"{source}/lib*"), RemovePath(f"{source}/dangling"), RemovePath(f"{source}/missing"))
    assert list_changed_paths(steps[:1], env) is None  # there is a folder among them
    assert list_changed_paths(steps[1:], env) == (source / "dangling", Path(f"{source}/dangling.unwritten"))
    run_steps(env, *steps)
    assert [path.name for path in source.iterdir()] == ["other"]


def test_line_is_commented_out_only_as_expected(env: Environment) -> None:
    path = Path(env.prefix, "lib", "x.pth")
    write(path, b"one\nimport x\n", 5, 0o640)
    step = CommentOutLine(str(path), 2, "import x")
    run_steps(env, step)
    assert path.read_text() == "one\n# import x\n"
    with pytest.raises(ActionError, match="has changed in line 2"):
        run_steps(env, step)
    (path.parent / "link.pth").symlink_to("x.pth")
    for name in ("link.pth", "missing.pth"):
        with pytest.raises(ActionError, match="is not a separate file"):
            run_steps(env, CommentOutLine(str(path.parent / name), 1, "one"))


def test_changed_paths_of_steps(env: Environment) -> None:
    prefix = Path(env.prefix)
    for step in (Install(("a",)), Uninstall(("a",))):
        assert list_changed_paths((MakeLink("/a", "b"), step), env) is None
    steps = (
        MakeLink(f"{prefix}/a", "b"),
        LinkMatchingFiles(f"{prefix}/lib/source", "liba*", f"{prefix}/lib"),
        CommentOutLine(f"{prefix}/c", 1, "x"),
        UnsetVariable("A"),
    )
    expected = [
        prefix / "a",
        prefix / "lib/liba.so.1",
        prefix / "c",
        prefix / "bin/activate",
        prefix / "bin/activate.fish",
    ]
    assert list_changed_paths(steps, env) == (*expected, *(Path(f"{path}.unwritten") for path in expected))


def test_steps_as_text(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    python = env.interpreter_path
    installer = Installer("pip", python, (python, "-m", "pip"), setup_command=(python, "-m", "ensurepip"))
    install, uninstall = Install(("a b", "c"), install_dependencies=False), Uninstall(("a",))
    assert format_steps((install, uninstall), env, None) == (
        f"{python} -m pip install --no-deps 'a b' c",
        f"{python} -m pip uninstall -y a",
    )
    assert format_steps((uninstall,), env, installer) == (
        f"{python} -m ensurepip",
        f"{python} -m pip uninstall -y a",
    )
    assert format_steps((Install(("a",), force_reinstall=True),), env, None)[0].endswith(
        "install --force-reinstall a"
    )
    assert format_steps((RemovePath("/a b"), RemovePath("/a/*")), env, None) == (
        "rm -rf '/a b'",
        "rm -rf /a/*",
    )
    assert format_steps((CommentOutLine("/x", 3, "  import y "),), env, None) == (
        "- import y  # in /x, line 3",
    )
    script = f"{env.prefix}/bin/activate"
    assert format_steps((UnsetVariable("A"),), env, None) == (f"- export A=1  # in {script}",)
    assert format_steps((SetVariable("C", "1"),), env, None) == (f"+ export C=1  # in {script}",)
    other = Environment(f"{env.prefix}/lib", python, None)
    assert format_steps((SetVariable("C", "1"),), other, None) == (f"+ export C=1  # in {other.prefix}",)
    Path(script).write_text("export A=/x:/y:$A\n")
    assert format_steps((RemoveEntries("A", ("/x",)),), env, None) == (
        f"- export A=/x:/y:$A  # in {script}",
        f"+ export A=/y:$A  # in {script}",
    )


def test_script_is_edited_before_lines_are_added(env: Environment) -> None:
    script = Path(env.prefix, "bin", "activate")
    runner = run_steps(env, UnsetVariable("A"))
    assert BLOCK_BEGIN not in script.read_text()
    assert "A" not in runner.installer_env
    runner = run_steps(env, SetVariable("C", "1"))
    assert BLOCK_BEGIN in script.read_text()
    assert BLOCK_BEGIN in script.with_suffix(".fish").read_text()
    assert runner.installer_env["A"] == "/x:/y"
    assert run_steps(env, RemoveEntries("A", ("/x",))).installer_env["A"] == "/y"


def test_script_that_an_edit_would_break_is_restored(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [None, {"A": "1"}]
    monkeypatch.setattr(actions, "read_activated_variables", lambda *_: answers.pop(0))
    run_steps(env, UnsetVariable("A"))
    text = Path(env.prefix, "bin", "activate").read_text()
    assert text.startswith("export A=1\nexport B=2\n# >>> tfdoctor fix >>>\nunset A\n")
    # Nothing was edited, and the variables are not known: the lines are added.
    answers = [None]
    run_steps(env, SetVariable("D", "1"))
    assert "export D=1" in Path(env.prefix, "bin", "activate").read_text()
    assert answers == []


def test_installers_get_the_remaining_variables(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, Any]] = []
    python = env.interpreter_path
    installer = Installer("pip", python, (python, "-m", "pip"), setup_command=(python, "-m", "ensurepip"))
    monkeypatch.setattr(actions, "find_installer", lambda *_, **__: installer)
    monkeypatch.setattr(actions, "run_installer", lambda command, *, env, **_: calls.append((command, env)))
    run_steps(env, UnsetVariable("A"), Install(("a",)), Uninstall(("b",)))
    assert [command[3:] for command, _ in calls] == [(), ("install", "a"), ("uninstall", "-y", "b")]
    assert [variables for _, variables in calls] == [{"PATH": "/bin"}] * 3


def test_unreadable_file_is_an_error(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(env.prefix, "lib")
    with pytest.raises(ActionError, match=r"lib cannot be changed: Is a directory\."):
        actions._load_text(folder)
    with pytest.raises(ActionError, match="cannot be changed"):
        actions._write_text(folder / "none" / "x", "text")

    def fail(_: object) -> None:
        raise OSError("odd")

    monkeypatch.setattr(actions, "remove_path", fail)
    with pytest.raises(ActionError, match=r"lib cannot be changed: odd\."):
        actions._remove_path(folder)
