"""`tfdoctor fix` on environments broken in one way each: fixed once, and restored byte for byte by --undo."""

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

from environments.fake import (
    CUDA_12,
    GPUS,
    Fake,
    difference,
    driver_folder,
    make,
    needs_compiler,
    needs_uv,
    tensorflow_files,
)
from lab import standins
from startup import HAS_SITECUSTOMIZE
from tfdoctor.core.causes.steps import RemoveEntries, UnsetVariable
from tfdoctor.core.findings import Observation
from tfdoctor.environments.actions import _remove_variables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    needs_compiler,
]


def leave_unlinked(env: Fake) -> None:
    """Change nothing: 2.21.0 is broken as pip installs it."""


def add_dangling_link(env: Fake) -> None:
    env.nvidia_path("cusparse/lib/libcusolver.so.11").symlink_to("../../gone/lib/libcusolver.so.11")


def remove_wheel(env: Fake) -> None:
    env.remove("nvidia-cufft-cu12")
    env.add_wheel("nvidia-cufft-cu12", "11.2.3.61")


def remove_file(env: Fake) -> None:
    env.nvidia_path("cufft/lib/libcufft.so.11").unlink()
    env.add_wheel("nvidia-cufft-cu12", "11.2.3.61")


def damage_library(env: Fake) -> None:
    env.nvidia_path("cufft/lib/libcufft.so.11").write_bytes(b"")
    env.add_wheel("nvidia-cufft-cu12", "11.2.3.61")


def remove_cudnn_part(env: Fake) -> None:
    env.nvidia_path("cudnn/lib/libcudnn_ops.so.9").unlink()
    env.add_wheel("nvidia-cudnn-cu12", CUDA_12["nvidia-cudnn-cu12"][0])


def install_both(env: Fake) -> None:
    env.install("tensorflow-cpu", "2.20.0", tensorflow_files(env, "2.20.0", gpu=False))
    env.add_wheel("tensorflow", "2.20.0", tensorflow_files(env, "2.20.0"))


def replace_protobuf(env: Fake) -> None:
    env.remove("protobuf")
    env.install("protobuf", "4.25.3")
    env.add_wheel("protobuf", "5.29.5")


def upgrade_protobuf(env: Fake) -> None:
    env.remove("protobuf")
    env.install("protobuf", "5.29.5")
    env.add_wheel("protobuf", "3.19.6")


def shadow_by_activate(env: Fake) -> None:
    folder = env.make_folder("old cuda's/lib64")
    (folder / "libcudnn.so.9").write_bytes(b"")
    env.append_to_activate(f'export LD_LIBRARY_PATH="{folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')


def shadow_by_caller(env: Fake) -> None:
    folder = env.make_folder("old cuda's/lib64")
    (folder / "libcudnn.so.9").write_bytes(b"")
    env.variables["LD_LIBRARY_PATH"] = str(folder)


def add_stub_folder(env: Fake) -> None:
    folder = env.make_folder("cuda/lib64/stubs")
    standins.write_stub_driver(folder / "libcuda.so.1", env.cache)
    env.append_to_activate(f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH")


def hide_in_activate(env: Fake) -> None:
    env.append_to_activate("export MINE=1", "export CUDA_VISIBLE_DEVICES=-1", "export OTHER=2")


def hide_in_shell(env: Fake) -> None:
    env.variables["CUDA_VISIBLE_DEVICES"] = "-1"


def misspell_variable(env: Fake) -> None:
    env.append_to_activate("export TF_FORCE_GPU_ALLOW_GROWHT=true")


def hide_in_sitecustomize(env: Fake) -> None:
    if HAS_SITECUSTOMIZE:
        pytest.skip("this Python has a sitecustomize of its own")
    text = "import os\nif True:\n    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n"
    (env.site / "sitecustomize.py").write_text(text, encoding="utf-8")


def hide_in_pth(env: Fake) -> None:
    line = "import os; os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')\n"
    (env.site / "gpu.pth").write_text(f"# ours\n{line}", encoding="utf-8")


def leave_half_of_cuda(env: Fake) -> None:
    folder = env.make_folder("old cuda's/lib64")
    standins.write_library(folder / "libcusolver.so.11", env.cache, needs=("libcublas.so.11",))
    env.append_to_activate(f'export LD_LIBRARY_PATH="{folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')


def preload_stub(env: Fake) -> None:
    stub = env.make_folder("cuda/lib64/stubs") / "libcuda.so"
    standins.write_stub_driver(stub, env.cache)
    env.append_to_activate(f"export LD_PRELOAD={stub}")


def put_other_tensorflow_first(env: Fake) -> None:
    folder = env.make_folder("team's packages")
    for name, content in tensorflow_files(env, "2.20.0", gpu=False).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    env.append_to_activate(f'export PYTHONPATH="{folder}"')


def mark_as_conda(env: Fake) -> None:
    """Make the environment look like one of conda whose activation hides the GPUs."""
    (env.root / "conda-meta").mkdir()
    (env.root / "conda-meta/history").write_text("==> 2026-01-01 00:00:00 <==\n", encoding="utf-8")
    scripts = env.root / "etc/conda/activate.d"
    scripts.mkdir(parents=True)
    (scripts / "gpu.sh").write_text("export CUDA_VISIBLE_DEVICES=-1\nexport MINE=1\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class FixCase:
    """One way to break an environment."""

    break_it: Callable[[Fake], None]
    code: str
    change: str
    """A path, relative to the environment, that `fix` changes."""
    version: str = "2.20.0"


SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
NVIDIA = f"{SITE}/nvidia"
CASES = (
    FixCase(leave_unlinked, "TFD203", f"{NVIDIA}/cusparse/lib/libcusolver.so.11", "2.21.0"),
    FixCase(add_dangling_link, "TFD203", f"{NVIDIA}/cusparse/lib/libcusolver.so.11", "2.21.0"),
    FixCase(leave_unlinked, "TFD203", f"{SITE}/tensorflow/python/libcudnn.so.8", "2.10.1"),
    FixCase(remove_wheel, "TFD201", f"{NVIDIA}/cufft/lib/libcufft.so.11"),
    FixCase(remove_file, "TFD201", f"{NVIDIA}/cufft/lib/libcufft.so.11"),
    FixCase(damage_library, "TFD209", f"{NVIDIA}/cufft/lib/libcufft.so.11"),
    FixCase(remove_cudnn_part, "TFD205", f"{NVIDIA}/cudnn/lib/libcudnn_ops.so.9"),
    FixCase(install_both, "TFD304", f"{SITE}/tensorflow_cpu-2.20.0.dist-info"),
    FixCase(replace_protobuf, "TFD307", f"{SITE}/protobuf-5.29.5.dist-info"),
    FixCase(upgrade_protobuf, "TFD307", f"{SITE}/protobuf-3.19.6.dist-info", "2.10.1"),
    FixCase(shadow_by_activate, "TFD209", "bin/activate"),
    FixCase(shadow_by_caller, "TFD209", "bin/activate"),
    FixCase(add_stub_folder, "TFD107", "bin/activate"),
    FixCase(hide_in_activate, "TFD601", "bin/activate"),
    FixCase(misspell_variable, "TFD602", "bin/activate"),
    FixCase(hide_in_sitecustomize, "TFD601", f"{SITE}/sitecustomize.py"),
    FixCase(hide_in_pth, "TFD601", f"{SITE}/gpu.pth"),
    FixCase(leave_half_of_cuda, "TFD204", "bin/activate"),
    FixCase(preload_stub, "TFD107", "bin/activate"),
    FixCase(put_other_tensorflow_first, "TFD703", "bin/activate"),
)


@pytest.fixture
def make_env(tmp_path: Path, standin_cache: Path) -> Callable[..., Fake]:
    """Return a function that makes an environment."""

    def build(version: str = "2.20.0", **options: str) -> Fake:
        return make(tmp_path, standin_cache, version, **options)

    return build


@pytest.mark.few(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.break_it.__name__}-{case.version}")
def test_fix_works_once_and_undo_restores_every_byte(case: FixCase, make_env: Callable[..., Fake]) -> None:
    env = make_env(case.version)
    case.break_it(env)
    before = env.list_files()

    run = env.fix("--json")
    output = run.json()
    # 2.10.1 with a wrong protobuf has a second problem: its libraries are not linked.
    codes = {entry["code"] for entry in output["repairs"] if entry["status"] == "mended"}
    assert case.code in codes, output["repairs"]
    assert codes <= {case.code, "TFD203"}
    assert {entry["status"] for entry in output["repairs"]} == {"mended"}, output["repairs"]
    assert (run.status, output["left"]) == (0, [])
    assert output["check"]["verdict"]["gpu_usable"] is True
    assert output["check"]["prediction"]["gpu_count"] == GPUS
    after = env.list_files()
    changed = difference(
        before, {path: state for path, state in after.items() if not path.startswith(".tfdoctor")}
    )
    assert case.change in changed
    assert all(entry["changes"] for entry in output["repairs"])

    second = env.fix()
    assert (second.status, difference(after, env.list_files())) == (0, {}), second
    assert "Nothing to fix automatically" in second.flat_output

    undone = env.run("fix", "--undo", "--json")
    assert undone.status == 0, undone
    assert {code for entry in undone.json()["undone"]["entries"] for code in entry["codes"]} == codes
    assert undone.json()["undone"]["kept"] == []
    assert difference(before, env.list_files()) == {}


def test_healthy_environment_gets_no_journal(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    before = env.list_files()
    run = env.fix("--json")
    assert (run.status, run.json()["repairs"], run.json()["left"]) == (0, [], [])
    assert difference(before, env.list_files()) == {}
    undone = env.run("fix", "--undo")
    assert (undone.status, "Nothing to undo" in undone.out) == (0, True)
    assert env.run("fix", "--undo", "--json").json()["undone"]["entries"] == []
    assert difference(before, env.list_files()) == {}


def test_line_of_activate_becomes_a_comment(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    hide_in_activate(env)
    text = env.activate.read_text(encoding="utf-8")
    run = env.fix()
    assert run.status == 0
    line = "export CUDA_VISIBLE_DEVICES=-1"
    assert env.activate.read_text(encoding="utf-8") == text.replace(
        line, f": # {line}  # taken out by tfdoctor fix"
    )
    assert f". {env.activate}" in run.flat_output  # The change takes effect at the next activation.


def test_line_of_a_startup_file_becomes_a_comment(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    hide_in_sitecustomize(env)
    assert env.fix().status == 0
    text = (env.site / "sitecustomize.py").read_text(encoding="utf-8")
    assert text == "import os\nif True:\n    pass  # os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n"


def test_startup_file_outside_the_environment_is_only_named(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    custom = env.make_folder("company") / "sitecustomize.py"
    custom.write_text("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n", encoding="utf-8")
    env.variables["PYTHONPATH"] = str(custom.parent)
    env.variables["COLUMNS"] = "500"  # keeps a long temporary path on one line
    before = custom.read_bytes()
    run = env.fix()
    assert run.status == 1
    assert f"{custom}, line 2" in run.flat_output
    assert "not this environment's own" in run.flat_output
    assert custom.read_bytes() == before
    assert "company" not in env.activate.read_text(encoding="utf-8")  # other programs may need the folder


def test_variable_of_the_shell_is_set_in_every_script(make_env: Callable[..., Fake]) -> None:
    env = make_env()
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
    assert done.stdout == f"[{driver_folder(env.cache)}]\n"


def test_gpus_hidden_by_the_shell_are_left_to_the_user(make_env: Callable[..., Fake]) -> None:
    """`unset` in bin/activate would override users who select GPUs before they activate."""
    env = make_env()
    hide_in_shell(env)
    before = env.list_files()
    run = env.fix()
    assert run.status == 1
    assert "CUDA_VISIBLE_DEVICES comes from the shell that tfdoctor was started in" in run.flat_output
    assert "unset CUDA_VISIBLE_DEVICES" in run.flat_output
    assert "Still to do, by you, in the shell that tfdoctor was started in: " in run.flat_output
    assert difference(before, env.list_files()) == {}


def test_conda_scripts_are_edited(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    mark_as_conda(env)
    env.variables["TF_FORCE_GPU_ALLOW_GROWHT"] = "true"  # misspelt in the caller's shell
    before = env.list_files()
    run = env.fix("--json")
    assert {entry["code"]: entry["status"] for entry in run.json()["repairs"]} == {
        "TFD601": "mended",
        "TFD602": "mended",
    }, run
    scripts = env.root / "etc/conda/activate.d"
    assert (scripts / "gpu.sh").read_text(encoding="utf-8") == (
        ": # export CUDA_VISIBLE_DEVICES=-1  # taken out by tfdoctor fix\nexport MINE=1\n"
    )
    assert "TF_FORCE_GPU_ALLOW_GROWTH" in (scripts / "tfdoctor.sh").read_text(encoding="utf-8")
    assert "bin/activate" not in difference(before, env.list_files())
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}


def test_installers_run_without_dropped_variables() -> None:
    """A broken libz on LD_LIBRARY_PATH would also break pip."""
    env = {"LD_LIBRARY_PATH": "/bad:/mine", "LD_PRELOAD": "/bad.so /mine.so", "PYTHONPATH": "/over", "A": "1"}
    steps = (
        RemoveEntries("LD_LIBRARY_PATH", ("/bad/",)),
        RemoveEntries("LD_PRELOAD", ("/bad.so",)),
        UnsetVariable("PYTHONPATH"),
    )
    assert _remove_variables(env, steps) == {"LD_LIBRARY_PATH": "/mine", "LD_PRELOAD": "/mine.so", "A": "1"}


@pytest.mark.few(0)
def test_fix_of_one_code_leaves_others(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_file(env)
    replace_protobuf(env)
    run = env.fix("tfd201", "--json")
    assert [(entry["code"], entry["status"]) for entry in run.json()["repairs"]] == [("TFD201", "mended")]
    assert run.status == 1  # the other finding remains
    assert env.nvidia_path("cufft/lib/libcufft.so.11").exists()
    assert (env.site / "protobuf-4.25.3.dist-info").exists()
    assert [entry["code"] for entry in env.fix("--json").json()["repairs"]] == ["TFD307"]
    assert env.run("fix", "--undo").status == 0
    assert not env.nvidia_path("cufft/lib/libcufft.so.11").exists()


@pytest.mark.few(1)
def test_two_problems_are_fixed_together(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_file(env)
    replace_protobuf(env)
    before = env.list_files()
    run = env.fix("--json")
    assert run.status == 0, run
    assert [entry["code"] for entry in run.json()["repairs"]] == ["TFD307", "TFD201"]
    undone = env.run("fix", "--undo", "--json").json()["undone"]
    assert [entry["codes"] for entry in undone["entries"]] == [["TFD307", "TFD201"]]
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(1)
def test_one_of_two_problems_is_fixed_if_the_other_cannot_be(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    env.remove("nvidia-cufft-cu12")  # the index has no such wheel
    hide_in_activate(env)
    before = env.list_files()
    run = env.fix("--json")
    assert run.status == 1
    assert {entry["code"]: entry["status"] for entry in run.json()["repairs"]} == {
        "TFD601": "mended",
        "TFD201": "failed",
    }, run
    assert set(
        difference(before, {k: v for k, v in env.list_files().items() if not k.startswith(".tfdoctor")})
    ) == {"bin/activate"}
    after = env.list_files()
    second = env.fix()
    assert second.status == 1
    assert "Still to do, by you (`tfdoctor check -v` shows what else can be tried): " in second.flat_output
    assert set(difference(after, env.list_files())) <= {".tfdoctor/lock"}
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}


def test_what_tensorflow_does_overrides_the_prediction(
    make_env: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prediction is good after the fix, and the import fails nevertheless."""
    env = make_env()
    hide_in_activate(env)
    error = "AttributeError: module 'numpy._globals' has no attribute 'x'"
    observed = Observation(False, None, None, (), 1.0, error=error)
    monkeypatch.setattr("tfdoctor.environments.fix.run_tensorflow", lambda *_arguments, **_options: observed)
    run = env.run("fix", "--yes", "--json")
    output = run.json()
    assert [(entry["code"], entry["status"]) for entry in output["repairs"]] == [("TFD601", "mended")]
    assert (run.status, output["check"]["verdict"]["gpu_usable"]) == (1, False)
    assert any(error in entry["finding"]["title"] for entry in output["left"])


# ---------------------------------------------------------------- remedies that do not help


@pytest.mark.few(0)
def test_useless_remedy_is_undone_and_the_next_tried(make_env: Callable[..., Fake]) -> None:
    env = make_env("2.10.1")
    env.remove("nvidia-cufft-cu11")
    # The wheel in the index lacks the library, so installing it does not help.
    env.add_wheel("nvidia-cufft-cu11", "10.9.0.58", {"nvidia/cufft/README": b"no library\n"})
    before = env.list_files()
    run = env.fix("tfd201", "--json")
    output = run.json()
    assert run.status == 1
    assert [entry["status"] for entry in output["repairs"]] == ["rolled-back", "rolled-back"]
    first, second = (entry["commands"] for entry in output["repairs"])
    assert any(command.startswith("ln ") for command in first)  # links first, then the variable
    assert any("LD_LIBRARY_PATH" in command for command in second)
    assert {entry["detail"] for entry in output["repairs"]} == {"It did not help."}
    assert difference(before, env.list_files()) == {}
    text = env.fix("tfd201").out
    assert text.count("It did not help. It was taken back.") == 2
    assert "To take all of it back" not in text


@pytest.mark.few(0)
def test_problem_behind_the_first_one_is_reported(make_env: Callable[..., Fake]) -> None:
    env = make_env("2.21.0")
    library = env.make_library("libcusolver.so.11", needs=("libnowhere.so.7",))
    env.nvidia_path("cusolver/lib/libcusolver.so.11").write_bytes(library.read_bytes())
    before = env.list_files()
    run = env.fix("--json")
    attempts = [(entry["code"], entry["status"]) for entry in run.json()["repairs"]]
    assert attempts == [("TFD203", "mended"), ("TFD204", "failed")]
    assert run.status == 1
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}


def test_remedy_that_makes_things_worse_is_undone(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    relative = os.path.relpath(
        driver_folder(env.cache), env.work
    )  # A relative entry is reported; without it, no driver is found.
    env.append_to_activate(f"export LD_LIBRARY_PATH={relative}")
    before = env.list_files()
    run = env.fix()
    assert (run.status, "It made things worse. It was taken back." in run.flat_output) == (0, True), run
    assert difference(before, env.list_files()) == {}


def test_selection_of_gpus_is_left_to_the_user(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    env.append_to_activate("export CUDA_VISIBLE_DEVICE=0")
    before = env.list_files()
    run = env.fix()
    assert (run.status, "TFD602" in run.flat_output) == (0, True), run
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(1)
@pytest.mark.parametrize("installer", [pytest.param("uv", marks=needs_uv), "pip"])
def test_failed_installation_is_reported_and_undone(installer: str, make_env: Callable[..., Fake]) -> None:
    env = make_env()
    env.remove("nvidia-cufft-cu12")  # the index has no such wheel either
    env.add_pip()
    before = env.list_files()
    run = env.fix("--installer", installer)
    assert run.status == 1
    assert f"{installer} failed: the package index does not have it." in run.flat_output
    assert difference(before, env.list_files()) == {}
    output = env.fix("--installer", installer, "--json").json()
    assert {entry["status"] for entry in output["repairs"]} == {"failed"}
    assert [entry["finding"]["code"] for entry in output["left"]] == ["TFD201"]
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(0)
def test_half_finished_installation_is_undone(make_env: Callable[..., Fake]) -> None:
    """TensorFlow is removed and cannot be installed again."""
    env = make_env()
    env.install("tensorflow-cpu", "2.20.0", tensorflow_files(env, "2.20.0", gpu=False))
    before = env.list_files()
    run = env.fix("--json")
    assert run.status == 1
    assert [(entry["code"], entry["status"]) for entry in run.json()["repairs"]][:1] == [("TFD304", "failed")]
    assert difference(before, env.list_files()) == {}


def test_fix_with_pip_only(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_wheel(env)
    env.add_pip()
    env.variables["PATH"] = "/usr/bin:/bin"
    before = env.list_files()
    run = env.fix("--installer", "pip", "--json")
    assert run.status == 0, run
    assert "-m pip install" in run.json()["repairs"][0]["commands"][0]
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(0)
def test_pip_is_bootstrapped_and_removed_by_undo(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_wheel(env)
    env.variables["PATH"] = "/usr/bin:/bin"
    before = env.list_files()
    run = env.fix("--installer", "pip", "--json")
    assert run.status == 0, run
    assert run.json()["repairs"][0]["commands"][0].endswith(" -m ensurepip")
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}


# ---------------------------------------------------------------- changes that fix refuses


def test_missing_driver_is_reported_with_commands(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    env.driver = False
    before = env.list_files()
    run = env.fix("--json")
    output = run.json()
    assert run.status == 1
    assert output["repairs"] == []
    assert "TFD101" in {entry["finding"]["code"] for entry in output["left"]}
    assert difference(before, env.list_files()) == {}
    text = env.fix().out
    missing = next(entry for entry in output["left"] if entry["finding"]["code"] == "TFD101")
    assert missing["why"] in text
    for command in missing["finding"]["remedies"][0]["commands"]:
        assert command.splitlines()[0] in text


@pytest.mark.parametrize("break_it", [remove_wheel, shadow_by_caller, shadow_by_activate])
def test_dry_run_writes_nothing(break_it: Callable[[Fake], None], make_env: Callable[..., Fake]) -> None:
    env = make_env()
    break_it(env)
    before = env.list_files()
    for options in (("--json",), ("-v",), ()):
        run = env.run("fix", "--dry-run", *options)
        assert run.status == 1
        if options == ("--json",):
            repairs = run.json()["repairs"]
            assert [entry["status"] for entry in repairs] == ["planned"]
            assert repairs[0]["commands"]
        else:
            text = "".join(
                run.out.replace("\\\n", " ").split()
            )  # long commands are continued on the next line
            assert "".join(repairs[0]["commands"][0].split()) in text
            assert "Nothing was changed. 1 finding can be fixed here." in run.flat_output
    assert difference(before, env.list_files()) == {}


def test_dry_run_plans_the_same_commands(make_env: Callable[..., Fake]) -> None:
    env = make_env()
    remove_file(env)
    hide_in_activate(env)
    planned = env.run("fix", "-n", "--json").json()["repairs"]
    done = env.fix("--json").json()["repairs"]
    assert {(entry["code"], *entry["commands"]) for entry in planned} == {
        (entry["code"], *entry["commands"]) for entry in done
    }


def test_tensorflow_outside_the_environment_is_not_changed(
    make_env: Callable[..., Fake], tmp_path: Path, standin_cache: Path
) -> None:
    outer = make(tmp_path / "outer", standin_cache, "2.21.0")
    env = make_env("2.21.0", name="inner")
    shutil.rmtree(env.site)
    env_site = env.root / SITE
    env_site.mkdir()
    (env_site / "outer.pth").write_text(f"{outer.site}\n", encoding="utf-8")
    before = env.list_files(), outer.list_files()
    run = env.fix("--json")
    output = run.json()
    assert difference(before[1], outer.list_files()) == {}
    assert not any("ln -s" in command for entry in output["repairs"] for command in entry["commands"])
    for entry in output["repairs"]:  # It may only add the folder to the environment's own activate script.
        assert all(str(env.activate) in command for command in entry["commands"])
    assert env.run("fix", "--undo").status == 0
    assert difference(before[0], env.list_files()) == {}


def test_read_only_folder_is_reported(make_env: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env("2.21.0")
    before = env.list_files()
    real = os.mkdir

    def refuse(path: str, *arguments: int, **options: int) -> None:
        if str(path).startswith(str(env.root)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(path, *arguments, **options)

    monkeypatch.setattr(os, "mkdir", refuse)
    run = env.fix()
    assert run.status == 3
    assert "the journal of changes cannot be made" in run.err
    assert "ermission" in run.err
    assert difference(before, env.list_files()) == {}


def test_undo_refuses_after_a_change_by_the_user(make_env: Callable[..., Fake]) -> None:
    env = make_env("2.21.0")
    hide_in_activate(env)
    before = env.list_files()
    assert env.fix().status == 0
    env.append_to_activate("export ADDED_LATER=1")
    changed = env.list_files()
    run = env.run("fix", "--undo")
    assert (run.status, "bin/activate" in run.err, "--even-if-changed" in run.err) == (3, True, True), run
    assert json.loads(env.run("fix", "--undo", "--json").out)["error"]["code"] == 3
    assert set(difference(changed, env.list_files())) <= {".tfdoctor/lock"}
    forced = env.run("fix", "--undo", "--even-if-changed", "--json")
    assert forced.json()["undone"]["kept"] == ["bin/activate"]
    assert forced.status == 1
    assert list(difference(before, env.list_files())) == ["bin/activate"]
    assert "ADDED_LATER" in env.activate.read_text(encoding="utf-8")
