"""Tests of the arguments of pip, uv, conda and apt-get."""

from __future__ import annotations

import pytest

from tfdoctor.images.read import installs
from tfdoctor.images.read.installs import (
    PipCall,
    iter_requirement_lines,
    parse_apt_call,
    parse_conda_call,
    parse_pip_call,
    parse_requirement,
)
from tfdoctor.images.read.shell import Command, parse_commands


def parse(text: str) -> Command:
    (command,) = parse_commands(text, lambda _: 1, {})
    return command


def parse_pip(text: str) -> PipCall:
    call = parse_pip_call(parse(text))
    assert call is not None
    return call


@pytest.mark.parametrize(
    ("text", "program", "python"),
    [
        ("pip install a", "pip", None),
        ("pip3 install a", "pip3", None),
        ("/opt/v/bin/pip3.8 install a", "/opt/v/bin/pip3.8", "3.8"),
        ("python3 -m pip install a", "python3", None),
        ("python3.9 -B -m pip install a", "python3.9", "3.9"),
        ("pypy3.9 -m pip install a", "pypy3.9", "3.9"),
        ("uv pip install a", "uv", None),
        ("uv pip install --python 3.11 a", "uv", "3.11"),
        ("uv pip install -p=3.11 a", "uv", "3.11"),
        ("uv pip install --python /v/bin/python a", "/v/bin/python", None),
        ("uv pip install --python auto a", "uv", None),
        ("conda run -n tf pip install a", "conda run", None),
        ("mamba run --prefix /x -v pip install a", "mamba run", None),
        ("poetry run pip install a", "poetry run", None),
        ("conda run -n tf python3.8 -m pip install a", "python3.8", "3.8"),
        ("pip --proxy x --no-cache-dir install a", "pip", None),
    ],
)
def test_programs_that_install(text: str, program: str, python: str | None) -> None:
    call = parse_pip(text)
    assert (call.action, call.program, call.python) == ("install", program, python)
    assert [package.name for package in call.packages] == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "pip",
        "pip list",
        "pipx install a",
        "python3 setup.py -m pip install a",
        "python3 -m venv x",
        "python3 -m",
        "python3 -m uv.pop install a",
        "uv sync",
        "uv",
        "conda install a",
        "conda",
        "conda run",
        "conda run -n x",
        "pip --proxy install",
    ],
)
def test_other_commands(text: str) -> None:
    assert parse_pip_call(parse(text)) is None


@pytest.mark.parametrize(
    ("arguments", "packages", "files", "constraints", "unnamed"),
    [
        ("a -r f -rg --requirement=h --requirements i b", "a b", "f g h i", "", 0),
        ("-c x --constraint=y --constraints z --build-constraint v -b w a", "a", "", "x y z v w", 0),
        ("-e . --editable=x ./y /z https://h/w.zip .[gpu] a", "a", "", "", 6),
        ("--index-url u -i v --hash w a -f x", "a", "", "", 0),
        ("--index-url=u a --upgrade b -U", "a b", "", "", 0),
        ("a -r", "a", "", "", 0),
    ],
)
def test_arguments_of_pip(arguments: str, packages: str, files: str, constraints: str, unnamed: int) -> None:
    call = parse_pip(f"pip install {arguments}")
    assert [package.name for package in call.packages] == packages.split()
    assert [file for file in call.requirements_files if file] == files.split()
    assert [*call.constraints_files] == constraints.split()
    assert call.unnamed_count == unnamed
    assert call.installs_dependencies


def test_dependencies_can_be_left_out() -> None:
    assert not parse_pip("pip install --no-deps a").installs_dependencies


def test_uv_syncs_with_files() -> None:
    call = parse_pip("uv pip sync a.txt")
    assert (call.action, call.requirements_files, call.packages) == ("sync", ("a.txt",), ())


def test_number_of_arguments_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installs, "MAX_PIP_ARGUMENTS", 2)
    assert [package.name for package in parse_pip("pip install a b c").packages] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("pip install a tensorflow>=2.4 b", [("a", ""), ("tensorflow", ">=2.4"), ("b", "")]),
        ("sudo -H pip install tensorflow>=2.4 b", [("tensorflow", ">=2.4"), ("b", "")]),
        ("pip install a >log", [("a", "")]),
        ("pip install a &>log", [("a", "")]),
        ("pip install a<2 b", [("a", "<2"), ("b", "")]),
    ],
)
def test_redirected_specifier(text: str, parts: list[tuple[str, str]]) -> None:
    assert [(package.name, package.redirected_part) for package in parse_pip(text).packages] == parts


@pytest.mark.parametrize(
    ("text", "name", "specifier"),
    [
        ("TensorFlow_GPU ==2.4.1", "tensorflow-gpu", "==2.4.1"),
        ("tensorflow[and-cuda]~=2.15", "tensorflow", "~=2.15"),
        ("/w/tensorflow-2.4.1-cp38-cp38-manylinux2010_x86_64.whl", "tensorflow", "==2.4.1"),
        ("tensorflow-2.4.1+nv_1-3-cp38-cp38-linux_x86_64.whl#sha256=0", "tensorflow", "==2.4.1+nv.1"),
        ("tensorflow @ https://h/tensorflow-2.4.1-cp38-cp38-linux_x86_64.whl", "tensorflow", "==2.4.1"),
        ("tensorflow @ https://h/x.tar.gz", "tensorflow", None),
    ],
)
def test_requirement(text: str, name: str, specifier: str | None) -> None:
    requirement = parse_requirement(text, 3, "r.txt")
    assert requirement is not None
    assert (requirement.name, requirement.line, requirement.source) == (name, 3, "r.txt")
    assert (requirement.specifier if requirement.is_known else None) == specifier


def test_parts_of_a_requirement() -> None:
    requirement = parse_requirement("tensorflow[And_Cuda,x]; python_version < '3.9'", 1)
    assert requirement is not None
    assert requirement.extras == {"and-cuda", "x"}
    assert requirement.marker == 'python_version < "3.9"'
    unknown = parse_requirement("tensorflow==", 1, known=False)
    assert unknown is not None
    assert (unknown.name, unknown.specifier, unknown.is_known) == ("tensorflow", "", False)
    wheel = parse_requirement("a @ https://h/a-1-py3-none-any.whl", 1, known=False)
    assert wheel is not None
    assert not wheel.is_known
    for text in ("tensorflow==", "", "a b", "a" * 1001, "a" + " " * 999 + ";"):
        assert parse_requirement(text, 1) is None
    assert parse_requirement("a" * 1000, 1) is not None


@pytest.mark.parametrize(
    ("text", "packages", "environment", "files"),
    [
        ("conda install tensorflow-gpu=2.4 numpy", [("tensorflow-gpu", "=2.4"), ("numpy", "")], "", ()),
        ("mamba create -n x -c nvidia --channel y 'cudnn>=8'", [("cudnn", ">=8")], "x", ()),
        ("micromamba install -p /o nvidia::cudatoolkit==11", [("cudatoolkit", "==11")], "/o", ()),
        ("conda create --name x --prefix /y python", [("python", "")], "/y", ()),
        ("conda env create -f e.yml", [], "", ("e.yml",)),
        ("conda env update --file e.yml --file=f.yml", [], "", ("e.yml", "f.yml")),
        ("conda install --solver classic --subdir linux-64 --platform x a -y", [("a", "")], "", ()),
        ("conda upgrade A", [("a", "")], "", ()),
        ("conda install -n", [], "", ()),
    ],
)
def test_conda_call(
    text: str, packages: list[tuple[str, str]], environment: str, files: tuple[str, ...]
) -> None:
    call = parse_conda_call(parse(text))
    assert call is not None
    assert ([*call.packages], call.environment, call.spec_files) == (packages, environment, files)


@pytest.mark.parametrize("text", ["conda", "conda list", "conda env", "conda env list", "pip install a"])
def test_other_conda_commands(text: str) -> None:
    assert parse_conda_call(parse(text)) is None


def test_apt_call() -> None:
    call = parse_apt_call(
        parse(
            "apt-get -y -o A=b -t stable -c f --option C --target-release d install a b=1.2 c:amd64 d/sid $X -q"
        )
    )
    assert call is not None
    assert call.action == "install"
    assert call.packages == (("a", None), ("b", "1.2"), ("c", None), ("d", None))
    assert call.has_unknown_argument
    for program in ("apt", "aptitude"):
        update = parse_apt_call(parse(f"{program} update"))
        assert update is not None
        assert (update.action, update.packages, update.has_unknown_argument) == ("update", (), False)
    assert parse_apt_call(parse("apt-get -y")) is None
    assert parse_apt_call(parse("apt-key add x")) is None


def test_lines_of_a_requirements_file() -> None:
    text = "\ufeff# comment\na==1 # why\n\nb \\\n  ==2 \\\n  --hash=x\nc#egg\n-r d\nlast \\"
    assert [*iter_requirement_lines(text)] == [
        (2, "a==1"),
        (4, "b    ==2    --hash=x"),
        (7, "c#egg"),
        (8, "-r d"),
        (9, "last"),
    ]
