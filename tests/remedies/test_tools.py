"""The commands of remedies, for the tool that manages the user's packages."""

from __future__ import annotations

import pytest

from tfdoctor.core.causes.steps import Remedy
from tfdoctor.remedies.tools import Tool, convert_remedy

INSTALL = "/env/bin/python -m pip install --upgrade 'tensorflow[and-cuda]==2.20.0' 'numpy<2'"
REMOVE = "python3 -m pip uninstall -y tensorflow tensorflow-gpu"


@pytest.mark.parametrize(
    ("tool", "install", "remove"),
    [
        (Tool.pip, INSTALL, REMOVE),
        (
            Tool.uv,
            "uv pip install --python /env/bin/python --upgrade 'tensorflow[and-cuda]==2.20.0' 'numpy<2'",
            "uv pip uninstall --python python3 tensorflow tensorflow-gpu",
        ),
        (
            Tool.poetry,
            "poetry add 'tensorflow[and-cuda]==2.20.0' 'numpy<2'",
            "poetry remove tensorflow tensorflow-gpu",
        ),
        (
            Tool.pixi,
            "pixi add --pypi 'tensorflow[and-cuda]==2.20.0' 'numpy<2'",
            "pixi remove --pypi tensorflow tensorflow-gpu",
        ),
        (
            Tool.conda,
            "python -m pip install --upgrade 'tensorflow[and-cuda]==2.20.0' 'numpy<2'",
            "python -m pip uninstall -y tensorflow tensorflow-gpu",
        ),
        (
            Tool.mamba,
            "python -m pip install --upgrade 'tensorflow[and-cuda]==2.20.0' 'numpy<2'",
            "python -m pip uninstall -y tensorflow tensorflow-gpu",
        ),
        (
            Tool.colab,
            "%pip install --upgrade 'tensorflow[and-cuda]==2.20.0' 'numpy<2'",
            "%pip uninstall -y tensorflow tensorflow-gpu",
        ),
        (
            Tool.r,
            'reticulate::py_install(c("tensorflow[and-cuda]==2.20.0", "numpy<2"), pip = TRUE)',
            REMOVE,
        ),
        (
            Tool.dockerfile,
            "RUN python3 -m pip install --no-cache-dir --upgrade 'tensorflow[and-cuda]==2.20.0' 'numpy<2'",
            "RUN python3 -m pip uninstall -y tensorflow tensorflow-gpu",
        ),
    ],
)
def test_commands_of_pip_are_converted(tool: Tool, install: str, remove: str) -> None:
    assert convert_remedy(Remedy("x", (INSTALL, REMOVE)), tool) == Remedy("x", (install, remove))


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (Tool.conda, "conda install -c conda-forge 'numpy<2' h5py"),
        (Tool.mamba, "mamba install -c conda-forge 'numpy<2' h5py"),
        (Tool.pixi, "pixi add 'numpy<2' h5py"),
    ],
)
def test_conda_installs_the_packages_that_it_has(tool: Tool, expected: str) -> None:
    packages = {"numpy", "h5py"}
    command = "python3 -m pip install --upgrade 'numpy<2' h5py"
    assert convert_remedy(Remedy("x", (command, REMOVE)), tool, packages).commands[0] == expected
    with_wheel = (
        f"{command} nvidia-cudnn-cu12"  # one package that conda does not have, or not for this TensorFlow
    )
    assert (
        "install -c conda-forge" not in convert_remedy(Remedy("x", (with_wheel,)), tool, packages).commands[0]
    )


@pytest.mark.parametrize(
    "command",
    [
        "tfdoctor check",
        "python3 -m pip install -r requirements.txt",
        "python3 -m pip install https://example.org/x.whl",
        "python3 -m pip check",
        "python3 -m pip install 'unfinished",
        "echo python3 -m pip install numpy",
    ],
)
def test_other_commands_stay(command: str) -> None:
    for tool in Tool:
        assert convert_remedy(Remedy("x", (command,)), tool).commands == (command,)
