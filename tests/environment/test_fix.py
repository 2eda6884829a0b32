"""`tfdoctor fix` on environments that are broken in one way each: mended, once, and taken back byte for byte."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from environment.fake import (
    CUDA_12,
    GPUS,
    Fake,
    difference,
    driver,
    make,
    needs_compiler,
    needs_uv,
    tensorflow_files,
)
from lab import standins
from startup import HAS_ITS_OWN
from tfdoctor.causes.steps import Drop, Unset
from tfdoctor.environment.actions import _less

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    needs_compiler,
]


def link_cure(env: Fake) -> None:
    """2.21.0 is broken as pip leaves it."""


def add_dangling_link(env: Fake) -> None:
    env.nvidia("cusparse/lib/libcusolver.so.11").symlink_to("../../gone/lib/libcusolver.so.11")


def wheel_gone(env: Fake) -> None:
    env.take_away("nvidia-cufft-cu12")
    env.wheel("nvidia-cufft-cu12", "11.2.3.61")


def file_gone(env: Fake) -> None:
    env.nvidia("cufft/lib/libcufft.so.11").unlink()
    env.wheel("nvidia-cufft-cu12", "11.2.3.61")


def damage_library(env: Fake) -> None:
    env.nvidia("cufft/lib/libcufft.so.11").write_bytes(b"")
    env.wheel("nvidia-cufft-cu12", "11.2.3.61")


def cudnn_part_gone(env: Fake) -> None:
    env.nvidia("cudnn/lib/libcudnn_ops.so.9").unlink()
    env.wheel("nvidia-cudnn-cu12", CUDA_12["nvidia-cudnn-cu12"][0])


def install_both(env: Fake) -> None:
    env.place("tensorflow-cpu", "2.20.0", tensorflow_files(env, "2.20.0", gpu=False))
    env.wheel("tensorflow", "2.20.0", tensorflow_files(env, "2.20.0"))


def protobuf_wrong(env: Fake) -> None:
    env.take_away("protobuf")
    env.place("protobuf", "4.25.3")
    env.wheel("protobuf", "5.29.5")


def protobuf_too_new(env: Fake) -> None:
    env.take_away("protobuf")
    env.place("protobuf", "5.29.5")
    env.wheel("protobuf", "3.19.6")


def shadow_by_activate(env: Fake) -> None:
    folder = env.folder("old cuda's/lib64")
    (folder / "libcudnn.so.9").write_bytes(b"")
    env.activates(f'export LD_LIBRARY_PATH="{folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')


def shadow_by_caller(env: Fake) -> None:
    folder = env.folder("old cuda's/lib64")
    (folder / "libcudnn.so.9").write_bytes(b"")
    env.variables["LD_LIBRARY_PATH"] = str(folder)


def stubs(env: Fake) -> None:
    folder = env.folder("cuda/lib64/stubs")
    standins.stub_driver(folder / "libcuda.so.1", env.cache)
    env.activates(f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH")


def hidden_by_activate(env: Fake) -> None:
    env.activates("export MINE=1", "export CUDA_VISIBLE_DEVICES=-1", "export OTHER=2")


def hidden_by_caller(env: Fake) -> None:
    env.variables["CUDA_VISIBLE_DEVICES"] = "-1"


def misspelt(env: Fake) -> None:
    env.activates("export TF_FORCE_GPU_ALLOW_GROWHT=true")


def hidden_by_sitecustomize(env: Fake) -> None:
    if HAS_ITS_OWN:
        pytest.skip("this Python has a sitecustomize of its own")
    text = "import os\nif True:\n    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n"
    (env.site / "sitecustomize.py").write_text(text, encoding="utf-8")


def hidden_by_pth(env: Fake) -> None:
    line = "import os; os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')\n"
    (env.site / "gpu.pth").write_text(f"# ours\n{line}", encoding="utf-8")


def half_removed_cuda(env: Fake) -> None:
    folder = env.folder("old cuda's/lib64")
    standins.library(folder / "libcusolver.so.11", env.cache, needs=("libcublas.so.11",))
    env.activates(f'export LD_LIBRARY_PATH="{folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')


def stub_preloaded(env: Fake) -> None:
    stub = env.folder("cuda/lib64/stubs") / "libcuda.so"
    standins.stub_driver(stub, env.cache)
    env.activates(f"export LD_PRELOAD={stub}")


def put_other_tensorflow_first(env: Fake) -> None:
    folder = env.folder("team's packages")
    for name, content in tensorflow_files(env, "2.20.0", gpu=False).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    env.activates(f'export PYTHONPATH="{folder}"')


def conda(env: Fake) -> None:
    """The marks of a conda environment; a script of its activation hides the GPUs."""
    (env.root / "conda-meta").mkdir()
    (env.root / "conda-meta/history").write_text("==> 2026-01-01 00:00:00 <==\n", encoding="utf-8")
    scripts = env.root / "etc/conda/activate.d"
    scripts.mkdir(parents=True)
    (scripts / "gpu.sh").write_text("export CUDA_VISIBLE_DEVICES=-1\nexport MINE=1\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Case:
    """One way to break an environment."""

    break_it: Callable[[Fake], None]
    code: str
    change: str
    """A path that is different afterwards, from the environment on."""
    version: str = "2.20.0"


SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
NVIDIA = f"{SITE}/nvidia"
CASES = (
    Case(link_cure, "TFD203", f"{NVIDIA}/cusparse/lib/libcusolver.so.11", "2.21.0"),
    Case(add_dangling_link, "TFD203", f"{NVIDIA}/cusparse/lib/libcusolver.so.11", "2.21.0"),
    Case(link_cure, "TFD203", f"{SITE}/tensorflow/python/libcudnn.so.8", "2.10.1"),
    Case(wheel_gone, "TFD201", f"{NVIDIA}/cufft/lib/libcufft.so.11"),
    Case(file_gone, "TFD201", f"{NVIDIA}/cufft/lib/libcufft.so.11"),
    Case(damage_library, "TFD209", f"{NVIDIA}/cufft/lib/libcufft.so.11"),
    Case(cudnn_part_gone, "TFD205", f"{NVIDIA}/cudnn/lib/libcudnn_ops.so.9"),
    Case(install_both, "TFD304", f"{SITE}/tensorflow_cpu-2.20.0.dist-info"),
    Case(protobuf_wrong, "TFD307", f"{SITE}/protobuf-5.29.5.dist-info"),
    Case(protobuf_too_new, "TFD307", f"{SITE}/protobuf-3.19.6.dist-info", "2.10.1"),
    Case(shadow_by_activate, "TFD209", "bin/activate"),
    Case(shadow_by_caller, "TFD209", "bin/activate"),
    Case(stubs, "TFD107", "bin/activate"),
    Case(hidden_by_activate, "TFD601", "bin/activate"),
    Case(misspelt, "TFD602", "bin/activate"),
    Case(hidden_by_sitecustomize, "TFD601", f"{SITE}/sitecustomize.py"),
    Case(hidden_by_pth, "TFD601", f"{SITE}/gpu.pth"),
    Case(half_removed_cuda, "TFD204", "bin/activate"),
    Case(stub_preloaded, "TFD107", "bin/activate"),
    Case(put_other_tensorflow_first, "TFD703", "bin/activate"),
)


@pytest.fixture
def new(tmp_path: Path, standin_cache: Path) -> Callable[..., Fake]:
    """A function that makes an environment."""

    def make_one(version: str = "2.20.0", **how: str) -> Fake:
        return make(tmp_path, standin_cache, version, **how)

    return make_one


@pytest.mark.few(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.break_it.__name__}-{case.version}")
def test_it_mends_once_and_undo_restores_every_byte(case: Case, new: Callable[..., Fake]) -> None:
    env = new(case.version)
    case.break_it(env)
    before = env.list()

    run = env.fix("--json")
    answer = run.json()
    # 2.10.1 has two faults where protobuf is the one: its wheels are not connected, either
    mended = {one["code"] for one in answer["repairs"] if one["status"] == "mended"}
    assert case.code in mended, answer["repairs"]
    assert mended <= {case.code, "TFD203"}
    assert {one["status"] for one in answer["repairs"]} == {"mended"}, answer["repairs"]
    assert (run.status, answer["left"]) == (0, [])
    assert answer["check"]["verdict"]["gpu_usable"] is True
    assert answer["check"]["prediction"]["gpu_count"] == GPUS
    after = env.list()
    changed = difference(
        before, {path: seen for path, seen in after.items() if not path.startswith(".tfdoctor")}
    )
    assert case.change in changed
    assert all(one["changes"] for one in answer["repairs"])

    second = env.fix()
    assert (second.status, difference(after, env.list())) == (0, {}), second
    assert "Fix can do nothing here" in second.said

    undone = env.run("fix", "--undo", "--json")
    assert undone.status == 0, undone
    assert {code for one in undone.json()["undone"]["entries"] for code in one["codes"]} == mended
    assert undone.json()["undone"]["kept"] == []
    assert difference(before, env.list()) == {}


def test_a_healthy_environment_gets_no_journal(new: Callable[..., Fake]) -> None:
    env = new()
    before = env.list()
    run = env.fix("--json")
    assert (run.status, run.json()["repairs"], run.json()["left"]) == (0, [], [])
    assert difference(before, env.list()) == {}
    undone = env.run("fix", "--undo")
    assert (undone.status, "has changed nothing" in undone.out) == (0, True)
    assert env.run("fix", "--undo", "--json").json()["undone"]["entries"] == []
    assert difference(before, env.list()) == {}


def test_lines_of_activate_become_comments_and_its_neighbours_stay(new: Callable[..., Fake]) -> None:
    env = new()
    hidden_by_activate(env)
    text = env.activate.read_text(encoding="utf-8")
    run = env.fix()
    assert run.status == 0
    line = "export CUDA_VISIBLE_DEVICES=-1"
    assert env.activate.read_text(encoding="utf-8") == text.replace(
        line, f": # {line}  # taken out by tfdoctor fix"
    )
    assert f". {env.activate}" in run.said  # it counts from the next activation on


def test_a_line_of_a_startup_file_becomes_a_comment(new: Callable[..., Fake]) -> None:
    env = new()
    hidden_by_sitecustomize(env)
    assert env.fix().status == 0
    text = (env.site / "sitecustomize.py").read_text(encoding="utf-8")
    assert text == "import os\nif True:\n    pass  # os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n"


def test_a_startup_file_outside_of_the_environment_is_named_and_left_alone(new: Callable[..., Fake]) -> None:
    env = new()
    custom = env.folder("company") / "sitecustomize.py"
    custom.write_text("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n", encoding="utf-8")
    env.variables["PYTHONPATH"] = str(custom.parent)
    env.variables["COLUMNS"] = "500"  # a path is not broken, however long the temporary folder's is
    before = custom.read_bytes()
    run = env.fix()
    assert run.status == 1
    assert f"{custom}, line 2" in run.said
    assert "not this environment's own" in run.said
    assert custom.read_bytes() == before


def test_a_variable_of_the_caller_gets_lines_in_every_script(new: Callable[..., Fake]) -> None:
    env = new()
    shadow_by_caller(env)
    assert env.fix().status == 0
    for name in ("activate", "activate.fish", "activate.csh"):
        text = (env.root / "bin" / name).read_text(encoding="utf-8")
        assert text.count("# >>> tfdoctor fix >>>") == text.count("# <<< tfdoctor fix <<<") == 1
    shell = [
        shutil.which("sh") or "sh",
        "-c",
        f'. "{env.activate}"; echo "[$LD_LIBRARY_PATH]"',
    ]
    done = subprocess.run(
        shell, env=env.environment(), capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == f"[{driver(env.cache)}]\n"


def test_cards_that_the_caller_hides_are_left_to_the_caller(new: Callable[..., Fake]) -> None:
    """`unset` in bin/activate would take the cards from everybody who chooses some before activating."""
    env = new()
    hidden_by_caller(env)
    before = env.list()
    run = env.fix()
    assert run.status == 1
    assert "CUDA_VISIBLE_DEVICES comes from the shell that tfdoctor was started in" in run.said
    assert "unset CUDA_VISIBLE_DEVICES" in run.said
    assert difference(before, env.list()) == {}


def test_conda_runs_scripts_of_its_own(new: Callable[..., Fake]) -> None:
    env = new()
    conda(env)
    env.variables["TF_FORCE_GPU_ALLOW_GROWHT"] = "true"  # misspelt, by the caller
    before = env.list()
    run = env.fix("--json")
    assert {one["code"]: one["status"] for one in run.json()["repairs"]} == {
        "TFD601": "mended",
        "TFD602": "mended",
    }, run
    scripts = env.root / "etc/conda/activate.d"
    assert (scripts / "gpu.sh").read_text(encoding="utf-8") == (
        ": # export CUDA_VISIBLE_DEVICES=-1  # taken out by tfdoctor fix\nexport MINE=1\n"
    )
    assert "TF_FORCE_GPU_ALLOW_GROWTH" in (scripts / "tfdoctor.sh").read_text(encoding="utf-8")
    assert "bin/activate" not in difference(before, env.list())
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list()) == {}


def test_installers_run_without_what_was_taken_away() -> None:
    """A broken libz on LD_LIBRARY_PATH breaks pip, too."""
    env = {"LD_LIBRARY_PATH": "/bad:/mine", "LD_PRELOAD": "/bad.so /mine.so", "PYTHONPATH": "/over", "A": "1"}
    steps = (Drop("LD_LIBRARY_PATH", ("/bad/",)), Drop("LD_PRELOAD", ("/bad.so",)), Unset("PYTHONPATH"))
    assert _less(env, steps) == {"LD_LIBRARY_PATH": "/mine", "LD_PRELOAD": "/mine.so", "A": "1"}


@pytest.mark.few(0)
def test_one_code_mends_that_one_alone(new: Callable[..., Fake]) -> None:
    env = new()
    file_gone(env)
    protobuf_wrong(env)
    run = env.fix("tfd201", "--json")
    assert [(one["code"], one["status"]) for one in run.json()["repairs"]] == [("TFD201", "mended")]
    assert run.status == 1  # the other one is left
    assert env.nvidia("cufft/lib/libcufft.so.11").exists()
    assert (env.site / "protobuf-4.25.3.dist-info").exists()
    assert [one["code"] for one in env.fix("--json").json()["repairs"]] == ["TFD307"]
    assert env.run("fix", "--undo").status == 0
    assert not env.nvidia("cufft/lib/libcufft.so.11").exists()


@pytest.mark.few(0)
def test_two_faults_are_both_mended_the_import_first(new: Callable[..., Fake]) -> None:
    env = new()
    file_gone(env)
    protobuf_wrong(env)
    before = env.list()
    run = env.fix("--json")
    assert run.status == 0, run
    assert [one["code"] for one in run.json()["repairs"]] == ["TFD307", "TFD201"]
    undone = env.run("fix", "--undo", "--json").json()["undone"]
    assert [one["codes"] for one in undone["entries"]] == [["TFD201"], ["TFD307"]]
    assert difference(before, env.list()) == {}


# ---------------------------------------------------------------- ways that do not help


@pytest.mark.few(0)
def test_a_way_that_does_not_help_is_taken_back_and_the_next_is_tried(new: Callable[..., Fake]) -> None:
    env = new("2.10.1")
    env.take_away("nvidia-cufft-cu11")
    # An index whose wheel lacks the library: it can be installed and helps nobody.
    env.wheel("nvidia-cufft-cu11", "10.9.0.58", {"nvidia/cufft/README": b"no library\n"})
    before = env.list()
    run = env.fix("tfd201", "--json")
    answer = run.json()
    assert run.status == 1
    assert [one["status"] for one in answer["repairs"]] == ["rolled-back", "rolled-back"]
    first, second = (one["commands"] for one in answer["repairs"])
    assert any(command.startswith("ln ") for command in first)  # links, then the variable
    assert any("LD_LIBRARY_PATH" in command for command in second)
    assert {one["detail"] for one in answer["repairs"]} == {"It did not help."}
    assert difference(before, env.list()) == {}
    text = env.fix("tfd201").out
    assert text.count("It did not help. It was taken back.") == 2
    assert "To take all of it back" not in text


@pytest.mark.few(0)
def test_what_lay_behind_the_first_fault_is_told(new: Callable[..., Fake]) -> None:
    env = new("2.21.0")
    library = env.library("libcusolver.so.11", needs=("libnowhere.so.7",))
    env.nvidia("cusolver/lib/libcusolver.so.11").write_bytes(library.read_bytes())
    before = env.list()
    run = env.fix("--json")
    tried = [(one["code"], one["status"]) for one in run.json()["repairs"]]
    assert tried == [("TFD203", "mended"), ("TFD204", "failed")]
    assert run.status == 1
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list()) == {}


def test_what_makes_things_worse_is_taken_back_and_told(new: Callable[..., Fake]) -> None:
    env = new()
    beside = os.path.relpath(
        driver(env.cache), env.work
    )  # a relative entry is told, and without it there is no driver
    env.activates(f"export LD_LIBRARY_PATH={beside}")
    before = env.list()
    run = env.fix()
    assert (run.status, "It made things worse. It was taken back." in run.said) == (0, True), run
    assert difference(before, env.list()) == {}


def test_which_cards_are_hidden_is_left_to_the_person(new: Callable[..., Fake]) -> None:
    env = new()
    env.activates("export CUDA_VISIBLE_DEVICE=0")
    before = env.list()
    run = env.fix()
    assert (run.status, "TFD602" in run.said) == (0, True), run
    assert difference(before, env.list()) == {}


@pytest.mark.few(1)
@pytest.mark.parametrize("installer", [pytest.param("uv", marks=needs_uv), "pip"])
def test_an_installer_that_fails_is_told_and_taken_back(installer: str, new: Callable[..., Fake]) -> None:
    env = new()
    env.take_away("nvidia-cufft-cu12")  # and there is no such wheel
    env.with_pip()
    before = env.list()
    run = env.fix("--installer", installer)
    assert run.status == 1
    assert f"{installer} failed: the package index does not have it." in run.said
    assert difference(before, env.list()) == {}
    answer = env.fix("--installer", installer, "--json").json()
    assert {one["status"] for one in answer["repairs"]} == {"failed"}
    assert [one["finding"]["code"] for one in answer["left"]] == ["TFD201"]
    assert difference(before, env.list()) == {}


@pytest.mark.few(0)
def test_an_installer_that_fails_half_way_is_taken_back(new: Callable[..., Fake]) -> None:
    """TensorFlow is removed, and then cannot be installed again."""
    env = new()
    env.place("tensorflow-cpu", "2.20.0", tensorflow_files(env, "2.20.0", gpu=False))
    before = env.list()
    run = env.fix("--json")
    assert run.status == 1
    assert [(one["code"], one["status"]) for one in run.json()["repairs"]][:1] == [("TFD304", "failed")]
    assert difference(before, env.list()) == {}


def test_pip_alone_does_it_too(new: Callable[..., Fake]) -> None:
    env = new()
    wheel_gone(env)
    env.with_pip()
    env.variables["PATH"] = "/usr/bin:/bin"
    before = env.list()
    run = env.fix("--installer", "pip", "--json")
    assert run.status == 0, run
    assert "-m pip install" in run.json()["repairs"][0]["commands"][0]
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list()) == {}


@pytest.mark.few(0)
def test_without_any_installer_a_pip_is_made_and_undo_takes_it_away(new: Callable[..., Fake]) -> None:
    env = new()
    wheel_gone(env)
    env.variables["PATH"] = "/usr/bin:/bin"
    before = env.list()
    run = env.fix("--installer", "pip", "--json")
    assert run.status == 0, run
    assert run.json()["repairs"][0]["commands"][0].endswith(" -m ensurepip")
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list()) == {}


# ---------------------------------------------------------------- what is not done


def test_a_missing_driver_is_told_with_its_commands(new: Callable[..., Fake]) -> None:
    env = new()
    env.driver = False
    before = env.list()
    run = env.fix("--json")
    answer = run.json()
    assert run.status == 1
    assert answer["repairs"] == []
    assert "TFD101" in {one["finding"]["code"] for one in answer["left"]}
    assert difference(before, env.list()) == {}
    text = env.fix().out
    left = next(one for one in answer["left"] if one["finding"]["code"] == "TFD101")
    assert left["why"] in text
    for command in left["finding"]["remedies"][0]["commands"]:
        assert command.splitlines()[0] in text


@pytest.mark.parametrize("break_it", [wheel_gone, shadow_by_caller, shadow_by_activate])
def test_a_dry_run_writes_nothing(break_it: Callable[[Fake], None], new: Callable[..., Fake]) -> None:
    env = new()
    break_it(env)
    before = env.list()
    for words in (("--json",), ("-v",), ()):
        run = env.run("fix", "--dry-run", *words)
        assert run.status == 1
        if words == ("--json",):
            repairs = run.json()["repairs"]
            assert [one["status"] for one in repairs] == ["planned"]
            assert repairs[0]["commands"]
        else:
            said = "".join(run.out.replace("\\\n", " ").split())  # long lines go on in the next one
            assert "".join(repairs[0]["commands"][0].split()) in said
            assert "Nothing was changed. 1 finding can be fixed here." in run.said
    assert difference(before, env.list()) == {}


def test_what_is_planned_is_what_is_done(new: Callable[..., Fake]) -> None:
    env = new()
    file_gone(env)
    hidden_by_activate(env)
    planned = env.run("fix", "-n", "--json").json()["repairs"]
    done = env.fix("--json").json()["repairs"]
    assert {(one["code"], *one["commands"]) for one in planned} == {
        (one["code"], *one["commands"]) for one in done
    }


def test_tensorflow_outside_of_the_environment_is_not_touched(
    new: Callable[..., Fake], tmp_path: Path, standin_cache: Path
) -> None:
    outer = make(tmp_path / "outer", standin_cache, "2.21.0")
    env = new("2.21.0", name="inner")
    shutil.rmtree(env.site)
    env_site = env.root / SITE
    env_site.mkdir()
    (env_site / "outer.pth").write_text(f"{outer.site}\n", encoding="utf-8")
    before = env.list(), outer.list()
    run = env.fix("--json")
    answer = run.json()
    assert difference(before[1], outer.list()) == {}
    assert not any("ln -s" in command for one in answer["repairs"] for command in one["commands"])
    for one in answer["repairs"]:  # what it may do is name the folder in its own activate
        assert all(str(env.activate) in command for command in one["commands"])
    assert env.run("fix", "--undo").status == 0
    assert difference(before[0], env.list()) == {}


def test_a_folder_that_cannot_be_written_is_told(
    new: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = new("2.21.0")
    before = env.list()
    real = os.mkdir

    def refuse(path: str, *words: int, **more: int) -> None:
        if str(path).startswith(str(env.root)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(path, *words, **more)

    monkeypatch.setattr(os, "mkdir", refuse)
    run = env.fix()
    assert run.status == 3
    assert "the journal of changes cannot be made" in run.err
    assert "ermission" in run.err
    assert difference(before, env.list()) == {}


def test_after_a_change_by_somebody_undo_refuses_and_force_leaves_it(new: Callable[..., Fake]) -> None:
    env = new("2.21.0")
    hidden_by_activate(env)
    before = env.list()
    assert env.fix().status == 0
    env.activates("export ADDED_LATER=1")
    changed = env.list()
    run = env.run("fix", "--undo")
    assert (run.status, "bin/activate" in run.err, "--force" in run.err) == (3, True, True), run
    assert json.loads(env.run("fix", "--undo", "--json").out)["error"]["code"] == 3
    assert set(difference(changed, env.list())) <= {".tfdoctor/lock"}
    forced = env.run("fix", "--undo", "--force", "--json")
    assert forced.json()["undone"]["kept"] == ["bin/activate"]
    assert forced.status == 1
    assert list(difference(before, env.list())) == ["bin/activate"]
    assert "ADDED_LATER" in env.activate.read_text(encoding="utf-8")
