"""CUDA from conda, for releases whose CUDA no wheel has; and images that may disappear."""

from __future__ import annotations

import pytest

from compat.every_row import for_each
from planning.test_plan import COMPAT, RELEASES, check_answer, find_option, recommend_for
from tfdoctor.core import versions
from tfdoctor.planning import Recipe, Rejection, Request
from tfdoctor.planning.recipes import RECIPES, try_recipe
from tfdoctor.planning.release_sheet import make_sheet
from tfdoctor.prediction.fit.matrix import MatrixQuery, select_rows
from tfdoctor.prediction.fit.models import Host


@pytest.mark.parametrize(
    "version", ["1.13.2", "1.14.0", "1.15.0", "2.0.4", "2.1.2", "2.2.3", "2.3.4", "2.4.3"]
)
def test_old_releases_have_a_conda_option(version: str) -> None:
    """It comes after the tested options, and says that it is only partly tested."""
    answer = recommend_for(version)
    option = find_option(answer, Recipe.CONDA_CUDA)
    assert answer.options[0].recipe is not Recipe.CONDA_CUDA
    assert option.serious_count > answer.options[0].serious_count
    assert any(
        "partly tested: the versions of the conda-forge packages" in caveat.text for caveat in option.caveats
    )
    assert option.conda_cuda is not None
    assert option.conda_cuda.packages == (
        f"cudatoolkit={versions.major_minor(option.release.cuda or '')}",
        f"cudnn={option.cudnn}",
    )


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe.needs_venv])
@pytest.mark.parametrize("base", [None, "registry.example/mine:1"])
def test_python_2_gets_no_virtual_environment(recipe: Recipe, base: str | None) -> None:
    """Its images have neither `python3` nor the module `venv`."""
    for version in ("1.14.0", "2.1.0"):
        answer = recommend_for(version, python="2.7", recipe=recipe, base=base)
        assert answer.conflict is not None
        assert "no `venv`" in answer.conflict.reasons[0].text
        check_answer(answer)
    assert [option.recipe for option in recommend_for("1.14", python="2.7").options] == [Recipe.OFFICIAL]


@pytest.mark.parametrize("version", ["1.4.1", "1.12.0", "2.5.3", "2.10.1", "2.21.0"])
def test_conda_is_rejected_if_wheels_have_the_cuda(version: str) -> None:
    assert isinstance(try_recipe(COMPAT, RELEASES[version], Request(), Host(), Recipe.CONDA_CUDA), Rejection)


@for_each([row.version for row in RELEASES.values()][::4])
def test_release_sheet_agrees_on_conda(version: str) -> None:
    release = RELEASES[version]
    steps = make_sheet(
        COMPAT, select_rows(COMPAT, MatrixQuery(tf=f"=={version}", package=release.package))
    ).remedies
    conda_steps = [step for step in steps if any("conda-cuda" in command for command in step.commands)]
    options = recommend_for(f"=={version}", recipe=Recipe.CONDA_CUDA).options
    assert bool(conda_steps) is bool(options)
    for option in options:
        assert option.conda_cuda is not None
        assert all(package in conda_steps[0].text for package in option.conda_cuda.packages)


def test_official_image_explains_how_to_save_it() -> None:
    option = find_option(recommend_for("1.14"), Recipe.OFFICIAL)
    assert "docker save" in option.reasons[0]
    assert "--base" in option.reasons[0]
    answer = recommend_for(
        "1.14", recipe=Recipe.OFFICIAL, base="registry.example/kept/tensorflow:1.14.0-gpu-py3"
    )
    assert answer.options[0].base is not None
    assert answer.options[0].base.image == "registry.example/kept/tensorflow:1.14.0-gpu-py3"
