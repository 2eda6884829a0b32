"""`tfdoctor fix` if the problem is outside the environment: it changes nothing and names the place."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from environments.fake import Fake, difference, list_tree, make, needs_compiler, needs_uv
from tfdoctor.compat import Compat
from tfdoctor.core.causes.steps import VariableStep
from tfdoctor.core.errors import UsageError
from tfdoctor.environments.fix import FixRequest, plan_fix
from tfdoctor.environments.folder import find_outward_links
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    needs_compiler,
]


@pytest.fixture
def make_env(tmp_path: Path, standin_cache: Path) -> Callable[..., Fake]:
    """Return a function that makes an environment."""

    def build(version: str = "2.20.0", **options: str) -> Fake:
        return make(tmp_path, standin_cache, version, **options)

    return build


def move_nvidia_outside(env: Fake) -> Path:
    """Move NVIDIA's wheels out of the environment, leave a link, and return the new folder."""
    shared = env.make_folder("large disk") / "nvidia"
    original = env.nvidia_path("x").parent
    original.rename(shared)
    original.symlink_to(shared)
    return shared


def test_pythonhome_is_named_if_the_python_does_not_start(
    make_env: Callable[..., Fake], tmp_path: Path
) -> None:
    python = str(make_env().root / "bin" / "python")
    request = FixRequest(python=python)

    def new_system(variables: Mapping[str, str] | None) -> LiveSystem:
        return LiveSystem(
            env=variables if variables is not None else {**os.environ, "PYTHONHOME": str(tmp_path)}
        )

    with pytest.raises(UsageError) as refused:
        plan_fix(new_system, Compat.load(), request, {})
    assert "unset PYTHONHOME" in refused.value.hint
    assert "no Python frame" not in refused.value.message


@needs_uv
def test_nothing_is_installed_through_an_outward_link(make_env: Callable[..., Fake]) -> None:
    """--undo would not remove what an installer writes behind the link."""
    env = make_env()
    env.remove("nvidia-cufft-cu12")
    env.add_wheel("nvidia-cufft-cu12", "11.2.3.61")
    shared = move_nvidia_outside(env)
    assert "TFD201" in env.list_codes()
    before, outside = env.list_files(), list_tree(shared)
    run = env.fix()
    assert run.status == 1
    assert f"is a link to {shared}, outside the environment" in run.flat_output
    assert difference(before, env.list_files()) == {}
    assert difference(outside, list_tree(shared)) == {}


def test_no_link_is_made_behind_an_outward_link(make_env: Callable[..., Fake]) -> None:
    """The remedy that changes nothing there is used: the activation script names the folder."""
    env = make_env("2.21.0")
    shared = move_nvidia_outside(env)
    assert "TFD203" in env.list_codes()
    before, outside = env.list_files(), list_tree(shared)
    run = env.fix()
    assert run.status == 0, run
    assert difference(outside, list_tree(shared)) == {}
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list_files()) == {}
    assert difference(outside, list_tree(shared)) == {}


def test_outward_links_are_found_everywhere(tmp_path: Path) -> None:
    env, out = tmp_path / "env", tmp_path / "out"
    site = env / "lib/python3.11/site-packages"
    (site / "nvidia/cudnn").mkdir(parents=True)
    (out / "deep").mkdir(parents=True)
    (env / "lib64").symlink_to("lib")
    (site / "inside").symlink_to("nvidia")
    (site / "file").symlink_to(out / "none")
    assert find_outward_links(str(env), [str(site), str(env / "lib64/python3.11/site-packages")]) == ()
    (site / "nvidia/cudnn/lib").symlink_to(out)
    assert find_outward_links(str(env), [str(site)]) == ((str(site / "nvidia/cudnn/lib"), str(out)),)
    (env / "lib").rename(out / "lib")
    (env / "lib").symlink_to(out / "lib")
    assert find_outward_links(str(env), [str(site)]) == ((str(env / "lib"), str(out / "lib")),)
    assert find_outward_links(str(env), [str(tmp_path / "elsewhere")]) == ()


def test_variable_of_a_kernel_is_left_to_its_kernel_json(make_env: Callable[..., Fake]) -> None:
    """A kernel sets its variables itself, so lines in `activate` would have no effect."""
    env = make_env()
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "TF_FORCE_GPU_ALLOW_GROWHT": "true", "LD_LIBRARY_PATH": ""}
    kernel = env.make_folder("kernels/tf") / "kernel.json"
    spec = {"argv": [str(env.python), "-m", "ipykernel_launcher"], "env": {**env.environment(), **hidden}}
    spec["env"]["LD_LIBRARY_PATH"] = env.environment().get("LD_LIBRARY_PATH", "")
    kernel.write_text(json.dumps(spec, indent=1), encoding="utf-8")
    before = env.list_files()
    base_env = env.environment()
    result = plan_fix(
        lambda variables: LiveSystem(env=base_env if variables is None else variables),
        Compat.load(),
        FixRequest(python=str(kernel), timeout=60),
        base_env,
    )
    assert "TFD601" not in [item.candidate.finding.code for item in result.attempts]
    unfixed = next(item.finding for item in result.unfixed_findings if item.finding.code == "TFD601")
    assert str(kernel) in unfixed.title
    assert f'In {kernel}, below "env": take "CUDA_VISIBLE_DEVICES" out.' in unfixed.remedies[0].text
    assert not any(
        isinstance(step, VariableStep) for item in result.attempts for step in item.candidate.steps
    )
    assert difference(before, env.list_files()) == {}
