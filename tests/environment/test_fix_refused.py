"""`tfdoctor fix` where what is wrong lies outside of the environment: it changes nothing, and says where."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from environment.fake import Fake, difference, list_tree, make, needs_compiler, needs_uv
from tfdoctor.causes.steps import SHELL_STEPS
from tfdoctor.compat import Compat
from tfdoctor.environment.fix import FixRequest, plan
from tfdoctor.environment.folder import find_outward_links
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    needs_compiler,
]


@pytest.fixture
def new(tmp_path: Path, standin_cache: Path) -> Callable[..., Fake]:
    """A function that makes an environment."""

    def make_one(version: str = "2.20.0", **how: str) -> Fake:
        return make(tmp_path, standin_cache, version, **how)

    return make_one


def lead_out(env: Fake) -> Path:
    """NVIDIA's wheels lie on a larger disk, and a link leads there. Returns that folder."""
    shared = env.folder("large disk") / "nvidia"
    place = env.nvidia("x").parent
    place.rename(shared)
    place.symlink_to(shared)
    return shared


@needs_uv
def test_nothing_is_installed_through_a_link_that_leads_out(new: Callable[..., Fake]) -> None:
    """What an installer writes behind it would stay after --undo."""
    env = new()
    env.take_away("nvidia-cufft-cu12")
    env.wheel("nvidia-cufft-cu12", "11.2.3.61")
    shared = lead_out(env)
    assert "TFD201" in env.codes()
    before, outside = env.list(), list_tree(shared)
    run = env.fix()
    assert run.status == 1
    assert f"is a link to {shared}, outside the environment" in run.said
    assert difference(before, env.list()) == {}
    assert difference(outside, list_tree(shared)) == {}


def test_no_link_is_made_behind_one(new: Callable[..., Fake]) -> None:
    """The way that changes nothing there is taken: activation names the folder."""
    env = new("2.21.0")
    shared = lead_out(env)
    assert "TFD203" in env.codes()
    before, outside = env.list(), list_tree(shared)
    run = env.fix()
    assert run.status == 0, run
    assert difference(outside, list_tree(shared)) == {}
    assert env.run("fix", "--undo").status == 0
    assert difference(before, env.list()) == {}
    assert difference(outside, list_tree(shared)) == {}


def test_links_that_lead_out_are_found_wherever_they_are(tmp_path: Path) -> None:
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


def test_what_a_kernel_sets_is_changed_in_its_kernel_json(new: Callable[..., Fake]) -> None:
    """It sets its variables whatever a shell has: nothing that could be written into `activate` has an effect."""
    env = new()
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "TF_FORCE_GPU_ALLOW_GROWHT": "true", "LD_LIBRARY_PATH": ""}
    kernel = env.folder("kernels/tf") / "kernel.json"
    said = {"argv": [str(env.python), "-m", "ipykernel_launcher"], "env": {**env.environment(), **hidden}}
    said["env"]["LD_LIBRARY_PATH"] = env.environment().get("LD_LIBRARY_PATH", "")
    kernel.write_text(json.dumps(said, indent=1), encoding="utf-8")
    before = env.list()
    machine = env.environment()
    found = plan(
        lambda variables: LiveSystem(env=machine if variables is None else variables),
        Compat.load(),
        FixRequest(python=str(kernel), timeout=60),
        machine,
    )
    assert "TFD601" not in [one.candidate.finding.code for one in found.attempts]
    left = next(one.finding for one in found.unfixed if one.finding.code == "TFD601")
    assert str(kernel) in left.title
    assert f'In {kernel}, below "env": take "CUDA_VISIBLE_DEVICES" out.' in left.remedies[0].text
    assert not any(isinstance(step, SHELL_STEPS) for one in found.attempts for step in one.candidate.steps)
    assert difference(before, env.list()) == {}
