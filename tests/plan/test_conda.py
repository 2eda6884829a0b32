"""CUDA from conda: the second way to releases whose CUDA no wheel has; and images that may go."""

from __future__ import annotations

import pytest

from plan.test_plan import COMPAT, RELEASES, ask, check_answer, option_of
from tfdoctor import versions
from tfdoctor.fit import Host
from tfdoctor.fit.matrix import MatrixQuery, select_rows
from tfdoctor.plan import Recipe, Rejected, Request
from tfdoctor.plan.recipes import RECIPES, tries
from tfdoctor.plan.release_sheet import sheet


@pytest.mark.parametrize(
    "version", ["1.13.2", "1.14.0", "1.15.0", "2.0.4", "2.1.4", "2.2.3", "2.3.4", "2.4.4"]
)
def test_there_is_a_second_way_to_the_old_releases(version: str) -> None:
    """Behind what was run, and it says that nobody has run it."""
    answer = ask(version)
    option = option_of(answer, Recipe.CONDA_CUDA)
    assert answer.options[0].recipe is not Recipe.CONDA_CUDA
    assert option.serious > answer.options[0].serious
    assert any("this recipe is untested" in caveat.text for caveat in option.caveats)
    assert option.conda is not None
    assert option.conda.packages == (
        f"cudatoolkit={versions.major_minor(option.release.cuda or '')}",
        f"cudnn={option.cudnn}",
    )


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe.own_venv])
@pytest.mark.parametrize("base", [None, "registry.example/mine:1"])
def test_no_environment_is_made_with_python_2(recipe: Recipe, base: str | None) -> None:
    """Its images have neither `python3` nor the module `venv`."""
    for version in ("1.14.0", "2.1.0"):
        answer = ask(version, python="2.7", recipe=recipe, base=base)
        assert answer.conflict is not None
        assert "no `venv`" in answer.conflict.reasons[0].text
        check_answer(answer)
    assert [one.recipe for one in ask("1.14", python="2.7").options] == [Recipe.OFFICIAL]


@pytest.mark.parametrize("version", ["1.4.1", "1.12.0", "2.5.3", "2.10.1", "2.21.0"])
def test_conda_is_for_what_no_wheel_has(version: str) -> None:
    assert isinstance(tries(COMPAT, RELEASES[version], Request(), Host(), Recipe.CONDA_CUDA), Rejected)


@pytest.mark.parametrize("version", [row.version for row in RELEASES.values()][::4])
def test_the_sheet_says_the_same_of_conda(version: str) -> None:
    release = RELEASES[version]
    steps = sheet(COMPAT, select_rows(COMPAT, MatrixQuery(tf=f"=={version}", package=release.package))).steps
    told = [step for step in steps if any("conda-cuda" in command for command in step.commands)]
    planned = ask(f"=={version}", recipe=Recipe.CONDA_CUDA).options
    assert bool(told) is bool(planned)
    for option in planned:
        assert option.conda is not None
        assert all(package in told[0].text for package in option.conda.packages)


def test_an_image_that_may_go_says_how_it_is_kept() -> None:
    option = option_of(ask("1.14"), Recipe.OFFICIAL)
    assert "docker save" in option.reasons[0]
    assert "--base" in option.reasons[0]
    kept = ask("1.14", recipe=Recipe.OFFICIAL, base="registry.example/kept/tensorflow:1.14.0-gpu-py3")
    assert kept.options[0].base is not None
    assert kept.options[0].base.image == "registry.example/kept/tensorflow:1.14.0-gpu-py3"
