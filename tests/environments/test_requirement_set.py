"""Files that `-r` accepts: requirements files, projects, conda environments and locks."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from tfdoctor.core.errors import UsageError
from tfdoctor.environments.requirements import drop_cuda_lines, read_requirement_files
from tfdoctor.environments.requirements.conda import convert_conda_constraint, read_environment
from tfdoctor.environments.requirements.locked import parse_poetry, parse_uv
from tfdoctor.environments.requirements.project import convert_poetry_constraint, read_project

if TYPE_CHECKING:
    from tfdoctor.environments.requirements import PythonRequirements, RequirementSet

A, B = "a" * 64, "b" * 64


def read_files(folder: Path, *names: str, **files: str) -> RequirementSet:
    """Write the files (`__` in a name is a dot) and read the named ones."""
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_requirement_files(
        [folder / name for name in names], lambda path: path.read_text(encoding="utf-8")
    )


def list_specifiers(requirements: PythonRequirements) -> list[str]:
    """Return the specifiers for TensorFlow."""
    return [str(requirement.specifier) for requirement in requirements.tensorflow_conditions]


def get_refusal(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_files(folder, name).select_for_python("3.11")
    return f"{error.value} {error.value.hint}"


# ---------------------------------------------------------------- requirements files


def test_requirements_file_with_all_features(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.txt").write_text("-c ../limits.txt\n-r ../r.txt\npackaging\n")
    requirement_set = read_files(
        tmp_path,
        "r.txt",
        r__txt=f"""\
# what we need
--require-hashes
tensorflow[and-cuda]==2.15.* ; sys_platform == "linux"  # the one
tensorflow-macos==2.15.0 ; sys_platform == "darwin"
tensorflow-intel; platform_system == "Windows"
pandas==2.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
tomli; python_version < "3.11"
-r sub/more.txt
--constraint=limits.txt
""",
        limits__txt="numpy<1.25\ntensorflow>=2.10\n",
    )
    requirements = requirement_set.select_for_python("3.10")
    assert list_specifiers(requirements) == ["==2.15.*", ">=2.10"]
    assert requirements.lines == (
        f"pandas==2.0 --hash=sha256:{A} --hash=sha256:{B}",
        'tomli; python_version < "3.11"',
        "packaging",
    )
    assert requirements.constraints == ("numpy<1.25",)
    assert requirements.notes == ()
    assert requirements.tensorflow_conditions[0].location.endswith("r.txt, line 3")


def test_release_with_a_hundred_wheels(tmp_path: Path) -> None:
    hashes = sorted(f"{number:064x}" for number in range(150))
    lines = " \\\n".join(["numpy==2.1.0", *(f"    --hash=sha256:{digest}" for digest in hashes)])
    wheels = ",".join(f"{{ hash = 'sha256:{digest}' }}" for digest in hashes)
    lock = f"[[package]]\nname = 'numpy'\nversion = '2.1.0'\nwheels = [{wheels}]\n"
    (line,) = read_files(tmp_path, "r.txt", r__txt=f"{lines}\n").select_for_python("3.11").lines
    assert line.count("--hash=") == 150
    assert read_files(tmp_path, "uv.lock", uv__lock=lock).select_for_python("3.11").lines == (line,)


@pytest.mark.parametrize(("name", "note"), [("tensorflow-gpu", "same code"), ("tensorflow-cpu", "not see")])
def test_other_packages_of_tensorflow(tmp_path: Path, name: str, note: str) -> None:
    requirements = read_files(tmp_path, "r.txt", r__txt=f"{name}>=2.5,<2.11\n").select_for_python("3.9")
    assert list_specifiers(requirements) == ["<2.11,>=2.5"]
    assert note in requirements.notes[0]


def test_tensorflow_depends_on_the_python(tmp_path: Path) -> None:
    text = 'tensorflow==2.8.*; python_version < "3.8"\ntensorflow==2.15.*; python_version >= "3.9"\n'
    requirement_set = read_files(tmp_path, "r.txt", r__txt=text)
    assert requirement_set.depends_on_python
    assert list_specifiers(requirement_set.select_for_python("3.7")) == ["==2.8.*"]
    assert list_specifiers(requirement_set.select_for_python("3.8")) == []
    assert list_specifiers(requirement_set.select_for_python("3.11.4")) == ["==2.15.*"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tensorflow @ https://files.example/t.whl", "not locked"),
        ("tf-nightly", "not one of the TensorFlow packages"),
        ("tensorflow-macos", "not one of the TensorFlow packages"),
        ("-r https://files.example/r.txt", "not a file"),
        ("--index-url https://i.example/simple", "--index"),
        ("-r missing.txt", "missing.txt"),
        ("-e .", "Publish"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.txt").write_text(f"pandas\n{text}\n")

    def read_text(path: Path) -> str:
        if not path.exists():
            msg = f"-r: {path} cannot be read."
            raise UsageError(msg)
        return path.read_text()

    with pytest.raises(UsageError) as error:
        read_requirement_files([tmp_path / "r.txt"], read_text).select_for_python("3.11")
    assert said in f"{error.value} {error.value.hint}"
    assert "r.txt, line 2" in str(error.value)


def test_number_of_included_files(tmp_path: Path) -> None:
    for number in range(1, 51):
        (tmp_path / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\n")
    (tmp_path / "r50.txt").write_text("pandas\n-r r1.txt\n")
    assert read_files(tmp_path, "r1.txt").select_for_python("3.11").lines == ("pandas",)
    assert "more than 50 files include each other" in get_refusal(tmp_path, "r.txt", "-r r1.txt\n")
    (tmp_path / "r1.txt").write_text("x\n" * 2000)
    assert read_files(tmp_path, "r1.txt").select_for_python("3.11").lines == ("x",)
    assert "has more than 2000 lines" in get_refusal(tmp_path, "r.txt", "x\n" * 2001)


def test_files_elsewhere_are_not_quoted(tmp_path: Path) -> None:
    """The file of an option may be a secret of this machine; only those below the including folder are quoted."""
    for name in ("sub/bad.txt", "bad.txt", "subway.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("root:x:0\n")
    (tmp_path / "sub" / "http.txt").write_text("-r https://secret.example\n")
    for line, quoted in (
        ("-r sub/bad.txt", True),
        ("-cbad.txt", True),
        ("--constraint ../sub/../bad.txt", False),
        ("--requirement=../bad.txt", False),
        ("--requirements 'sub/http.txt'", True),
    ):
        folder = tmp_path / "sub" if ".." in line else tmp_path
        message = get_refusal(folder, "r.txt", f"{line}\n")
        assert ("root:x:0" in message or "secret" in message) is quoted, message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pipfile", "pipenv requirements"),
        ("setup.py", "requirements file"),
        ("pylock.toml", "requirements file"),
    ],
)
def test_unsupported_kinds_of_files(tmp_path: Path, name: str, said: str) -> None:
    assert said in get_refusal(tmp_path, name, "x")


# ---------------------------------------------------------------- pyproject.toml


def test_project_of_pep_621(tmp_path: Path) -> None:
    requirement_set = read_files(
        tmp_path,
        "pyproject.toml",
        pyproject__toml="""\
[project]
name = "mine"
requires-python = ">=3.9,<3.12"
dependencies = ["tensorflow[and-cuda]>=2.14,<2.16", "numpy<2", "tomli; python_version < '3.11'"]
[project.optional-dependencies]
docs = ["sphinx"]
[tool.poetry.dependencies]
pandas = "*"
""",
    )
    pythons = ("3.8", "3.8.9", "3.9", "3.9.0", "3.11.7", "3.12")
    assert [requirement_set.allows_python(python) for python in pythons] == [
        *(False, False, True, True, True, False)
    ]
    patch = "[project]\nrequires-python = '>=3.9.2,<3.11.3'\ndependencies = []\n"
    patch_set = read_files(tmp_path, "pyproject.toml", pyproject__toml=patch)
    pythons = ("3.9", "3.9.1", "3.9.2", "3.11", "3.11.2", "3.11.3", "3.12")
    assert [patch_set.allows_python(python) for python in pythons] == [
        *(True, False, True, True, True, False, False)
    ]
    requirements = requirement_set.select_for_python("3.11")
    assert list_specifiers(requirements) == ["<2.16,>=2.14"]
    assert requirements.lines == ("numpy<2", 'tomli; python_version < "3.11"')
    assert "docs" in requirements.notes[0]


def test_project_of_poetry(tmp_path: Path) -> None:
    text = """\
[tool.poetry.dependencies]
python = "^3.9"
tensorflow = {version = "~2.15.0", extras = ["and-cuda"]}
numpy = "^1.24"
anything = "*"
old = {version = "1.*", python = "<3.10"}
both = [{version = "1.0", python = "<3.10"}, {version = "2.0", markers = "python_version >= '3.10'"}]
repository = {git = "https://code.example/x.git", tag = "v1"}
extra = {version = "1", optional = true}
[tool.poetry.group.dev.dependencies]
pytest = "*"
"""
    requirement_set = read_files(tmp_path, "pyproject.toml", pyproject__toml=text)
    assert [requirement_set.allows_python(python) for python in ("3.8", "3.9", "3.13")] == [False, True, True]
    requirements = requirement_set.select_for_python("3.11")
    assert list_specifiers(requirements) == ["<2.16.0,>=2.15.0"]
    assert [line.replace(" @ ", "@ ").replace(" ;", ";") for line in requirements.lines] == [
        "numpy<2.0,>=1.24",
        "anything",
        'old==1.*; python_version < "3.10"',
        'both==1.0; python_version < "3.10"',
        'both==2.0; python_version >= "3.10"',
        "repository@ git+https://code.example/x.git@v1",
    ]
    assert "extra: it is optional" in requirements.notes[0]


@pytest.mark.parametrize(
    ("text", "specifier"),
    [
        ("^1.2.3", ">=1.2.3,<2.0.0"),
        ("^1.2", ">=1.2,<2.0"),
        ("^1", ">=1,<2.0"),
        ("^0.2.3", ">=0.2.3,<0.3.0"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0.0", ">=0.0,<0.1"),
        ("^0", ">=0,<1.0"),
        ("~1.2.3", ">=1.2.3,<1.3.0"),
        ("~1.2", ">=1.2,<1.3"),
        ("~1", ">=1,<2.0"),
        ("*", ""),
        ("1.2.*", "==1.2.*"),
        ("1.2.3", "==1.2.3"),
        (">=1.2, <1.5", ">=1.2,<1.5"),
        (">=1.2 <1.5", ">=1.2,<1.5"),
        ("!=1.3", "!=1.3"),
        ("~=1.4.2", "~=1.4.2"),
        ("== 2.0", "== 2.0"),
        ("==*", ""),
        ("=*", ""),
        ("=1.2", "==1.2"),
        ("~0", ">=0,<1.0"),
        ("^1.2.3.4", ">=1.2.3.4,<2.0.0.0"),
        ("~1.2.3.4", ">=1.2.3.4,<1.3.0.0"),
        ("^1.0rc1", ">=1.0rc1,<2.0"),
        (">= 1.0 < 2.0", ">=1.0,<2.0"),
        ("1.*", "==1.*"),
    ],
)
def test_version_constraint_of_poetry(text: str, specifier: str) -> None:
    assert SpecifierSet(convert_poetry_constraint(text, "x")) == SpecifierSet(specifier)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[project]\ndynamic = ['dependencies']", "build program"),
        ("[tool.x]\n", "neither"),
        ("[project\n", "not TOML"),
        ("[project]\ndependencies = [1]", "not a text"),
        ("[project]\ndependencies = ['no spaces here']", "not a requirement"),
        ("[tool.poetry.dependencies]\nx = '^1 || ^2'", "one of several"),
        ("[tool.poetry.dependencies]\nx = 'newest'", "not a set"),
        ("[tool.poetry.dependencies]\nx = {path = '../x'}", "this machine"),
        ("[tool.poetry.dependencies]\nx = {git = 'ssh://code.example/x'}", "https"),
        ("[project]\nrequires-python = 'three'\ndependencies = []", "not a set"),
    ],
)
def test_projects_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in get_refusal(tmp_path, "pyproject.toml", text)


# ---------------------------------------------------------------- environment.yml

ENVIRONMENT = """\
name: tf  # ours
channels: [conda-forge, nvidia]
dependencies:
  - python=3.11
  - conda-forge::tensorflow-gpu=2.15
  - numpy=1.26.4=py311h64a7726_0
  - "scipy>=1.9,<1.12"
  - pandas 2.1.* py311_0
  - opencv=4.8.1
  - matplotlib-base
  - cudatoolkit=11.8
  - cudnn
  - libstdcxx-ng=13
  - ffmpeg
  - our-own-tool=1
  - pip
  - pip:
      - einops==0.7  # from the index
      - -r more.txt
prefix: /opt/conda/envs/tf
"""


def test_conda_environment(tmp_path: Path) -> None:
    requirement_set = read_files(
        tmp_path, "environment.yml", environment__yml=ENVIRONMENT, more__txt="rich\n"
    )
    assert [requirement_set.allows_python(python) for python in ("3.10", "3.11", "3.11.2", "3.12")] == [
        False,
        True,
        True,
        False,
    ]
    requirements = requirement_set.select_for_python("3.11")
    assert list_specifiers(requirements) == ["==2.15.*"]
    assert requirements.lines == (
        "numpy==1.26.4",
        "scipy<1.12,>=1.9",
        "pandas==2.1.*",
        "opencv-python==4.8.1.*",
        "matplotlib",
        "einops==0.7",
        "rich",
    )
    notes = "\n".join(requirements.notes)
    assert "cudatoolkit, cudnn left out" in notes
    assert "only in conda: libstdcxx-ng, ffmpeg." in notes
    assert "our-own-tool. Those that it has, add with --package." in notes


def test_unindented_and_inline_lists(tmp_path: Path) -> None:
    flat = "dependencies:\n- python=3.10.4\n- numpy\n- pip:\n  - einops\n"
    requirement_set = read_files(tmp_path, "a.yml", a__yml=flat)
    assert requirement_set.select_for_python("3.10").lines == ("numpy", "einops")
    assert requirement_set.allows_python("3.10.12")
    assert "Python 3.10.4 is taken as 3.10," in requirement_set.select_for_python("3.10").notes[0]
    inline = "dependencies: [python=3.9, numpy=1.2, 'scipy>=1,<2']\n"
    assert read_files(tmp_path, "b.yaml", b__yaml=inline).select_for_python("3.9").lines == (
        "numpy==1.2.*",
        "scipy<2,>=1",
    )


@pytest.mark.parametrize(
    ("text", "specifier"),
    [
        ("", ""),
        ("*", ""),
        ("=1.2", "==1.2.*"),
        ("=1.2.*", "==1.2.*"),
        ("==1.2", "==1.2"),
        ("1.2.3", "==1.2.3"),
        ("1.2.3 py39_0", "==1.2.3"),
        ("=1.2.3=py39_0", "==1.2.3"),
        ("==1.2.3=py39_0", "==1.2.3"),
        (">=1.2,<2.0a0", ">=1.2,<2.0a0"),
        (">=1.2.*", ">=1.2"),
        ("1.2.*", "==1.2.*"),
        (" ", ""),
        ("=1", "==1.*"),
        ("1.2*", "==1.2.*"),
        ("!=1.2.*", "!=1.2.*"),
        ("<1.2.*", "<1.2"),
        ("~=1.2", "~=1.2"),
        (">=1.2,*", ">=1.2"),
        (">=1.2, <2", ">=1.2,<2"),
    ],
)
def test_version_constraint_of_conda(text: str, specifier: str) -> None:
    assert convert_conda_constraint(text, "x") == specifier


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dependencies:\n  - numpy\n  - {a: b}\n", "is not read"),
        ("dependencies:\n  - &x numpy\n", "is not read"),
        ("dependencies:\n  - pip:\n    - x\n   - numpy\n", "is not read"),
        ("dependencies:\n  numpy: 1\n", "is not read"),
        ("dependencies: !tag\n", "is not read"),
        ("dependencies:\n\t- numpy\n", "tab"),
        ("services:\n  web: 1\n", "is not read"),
        ("name: x\n", "no list of dependencies"),
        ("dependencies:\n  - numpy[version='1|2']\n", "one of several"),
        ("dependencies:\n  - numpy=1.2|1.3\n", "one of several"),
        ("dependencies:\n  - numpy=py_0\n", "not understood"),
        ("dependencies:\n  - numpy=*.1\n", "not understood"),
        ("dependencies:\n  - numpy=1.*.2\n", "not understood"),
        ("dependencies:\n  - numpy<2=x\n", "not understood"),
        (f"dependencies:\n  - {'x' * 301}\n", "not understood"),
        ("dependencies:\n" + "- x\n" * 2001, "more than 2000"),
        ("dependencies:\n  - 'a\n", "is not read"),
        ("dependencies:\n  - 'a''b'\n", "is not read"),
        ("dependencies:\n  - 'a\\b'\n", "is not read"),
        ("dependencies:\n  - numpy:\n", "is not read"),
        ("- x\n", "no list of dependencies"),
        ("dependencies:\n  - pip:\n  - x\n    - y\n", "is not read"),
        ("dependencies: [a, b\n", "is not read"),
        ("dependencies:\n  - \x07\n", "control character"),
        ("dependencies:\n  - pip:\n    - tf-nightly\n", "not one of the TensorFlow packages"),
    ],
)
def test_environments_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in get_refusal(tmp_path, "environment.yml", text)


# ---------------------------------------------------------------- locks

UV_LOCK = f"""\
version = 1
requires-python = ">=3.10, <3.13"

[[package]]
name = "mine"
version = "0.1"
source = {{ editable = "." }}
dependencies = [
    {{ name = "tensorflow", extra = ["and-cuda"] }},
    {{ name = "colorama", marker = "sys_platform == 'win32'" }},
    {{ name = "numpy", version = "1.26.4", marker = "python_full_version < '3.12'" }},
    {{ name = "numpy", version = "2.1.0", marker = "python_full_version >= '3.12'" }},
]
[package.optional-dependencies]
docs = [{{ name = "sphinx" }}]

[[package]]
name = "tensorflow"
version = "2.15.1"
source = {{ registry = "https://index.example/simple" }}
dependencies = [{{ name = "six" }}]
[package.optional-dependencies]
and-cuda = [{{ name = "nvidia-cudnn-cu12" }}]

[[package]]
name = "six"
version = "1.16.0"
source = {{ registry = "https://index.example/simple" }}
sdist = {{ url = "https://files.example/six.tar.gz", hash = "sha256:{A}" }}
wheels = [{{ url = "https://files.example/six.whl", hash = "sha256:{B}" }}]

[[package]]
name = "nvidia-cudnn-cu12"
version = "8.9.4.25"
source = {{ registry = "https://index.example/simple" }}

[[package]]
name = "numpy"
version = "1.26.4"
source = {{ registry = "https://index.example/simple" }}
[[package]]
name = "numpy"
version = "2.1.0"
source = {{ registry = "https://index.example/simple" }}
[[package]]
name = "colorama"
version = "0.4.6"
source = {{ registry = "https://index.example/simple" }}
[[package]]
name = "sphinx"
version = "7.0"
source = {{ registry = "https://index.example/simple" }}
"""


def test_lock_of_uv(tmp_path: Path) -> None:
    requirement_set = read_files(tmp_path, "uv.lock", uv__lock=UV_LOCK)
    assert requirement_set.depends_on_python
    assert [requirement_set.allows_python(python) for python in ("3.9", "3.12", "3.13")] == [
        False,
        True,
        False,
    ]
    requirements = requirement_set.select_for_python("3.11")
    assert list_specifiers(requirements) == ["==2.15.1"]
    assert requirements.lines == (
        "numpy==1.26.4",
        "nvidia-cudnn-cu12==8.9.4.25",
        f"six==1.16.0 --hash=sha256:{A} --hash=sha256:{B}",
    )
    assert requirement_set.select_for_python("3.12").lines[0] == "numpy==2.1.0"


def test_lock_without_project_evaluates_markers(tmp_path: Path) -> None:
    text = UV_LOCK.replace('editable = "."', 'registry = "https://index.example/simple"')
    assert not any(
        line.startswith("colorama")
        for line in read_files(tmp_path, "uv.lock", uv__lock=text).select_for_python("3.11").lines
    )


POETRY_LOCK = f"""\
[[package]]
name = "tensorflow"
version = "2.15.0"
optional = false
python-versions = ">=3.9"
files = [{{file = "t.whl", hash = "sha256:{A}"}}]
[package.dependencies]
numpy = ">=1.23.5,<2.0.0"
tensorflow-intel = {{version = "2.15.0", markers = "platform_system == \\"Windows\\""}}
[package.extras]
and-cuda = ["nvidia-cudnn-cu12 (==8.9.4.25)"]

[[package]]
name = "tensorflow-intel"
version = "2.15.0"
optional = false
python-versions = ">=3.9"
[package.dependencies]
only-there = "*"

[[package]]
name = "only-there"
version = "1.0"
optional = false
python-versions = "*"

[[package]]
name = "numpy"
version = "1.26.2"
optional = false
python-versions = ">=3.9"
files = [{{file = "n.whl", hash = "sha256:{B}"}}]

[[package]]
name = "extra"
version = "1.0"
optional = true
python-versions = "*"

[[package]]
name = "repository"
version = "1.0"
optional = false
python-versions = "*"
[package.source]
type = "git"
url = "https://code.example/x.git"
reference = "main"
resolved_reference = "0123abc"

[metadata]
lock-version = "2.0"
python-versions = ">=3.9,<3.12"
"""


def test_lock_of_poetry(tmp_path: Path) -> None:
    requirement_set = read_files(tmp_path, "poetry.lock", poetry__lock=POETRY_LOCK)
    requirements = requirement_set.select_for_python("3.11")
    assert list_specifiers(requirements) == ["==2.15.0"]
    assert [line.replace(" @ ", "@ ") for line in requirements.lines] == [
        f"numpy==1.26.2 --hash=sha256:{B}",
        "repository@ git+https://code.example/x.git@0123abc",
    ]
    assert not requirement_set.allows_python("3.12")


def test_newer_and_older_locks_of_poetry(tmp_path: Path) -> None:
    newer = """\
[[package]]
name = "numpy"
version = "1.26.2"
groups = ["main"]
markers = "python_version < '3.12'"
[[package]]
name = "numpy"
version = "2.1"
groups = ["main", "dev"]
markers = {main = "python_version >= '3.12'", dev = "python_version >= '3.9'"}
[[package]]
name = "pytest"
version = "8.0"
groups = ["dev"]
"""
    requirement_set = read_files(tmp_path, "poetry.lock", poetry__lock=newer)
    assert requirement_set.select_for_python("3.11").lines == ("numpy==1.26.2",)
    assert requirement_set.select_for_python("3.12").lines == ("numpy==2.1",)
    older = f"""\
[[package]]
name = "Six"
version = "1.16.0"
category = "main"
[[package]]
name = "pytest"
version = "8.0"
category = "dev"
[metadata.files]
Six = [{{file = "six.whl", hash = "sha256:{A}"}}]
"""
    assert read_files(tmp_path, "poetry.lock", poetry__lock=older).select_for_python("3.8").lines == (
        f"six==1.16.0 --hash=sha256:{A}",
    )


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock"])
@pytest.mark.parametrize(
    "text", ["", "package = 1", "[[package]]\nversion='1'", "[[package]]\nname='x'", "="]
)
def test_invalid_locks_are_refused(tmp_path: Path, name: str, text: str) -> None:
    assert get_refusal(tmp_path, name, text)


def test_sources_in_a_lock_of_uv(tmp_path: Path) -> None:
    """Only the folder "." is the project; hashes and addresses depend on the source."""
    sources = {
        "commit": "git = 'https://c.example/x.git?rev=main#0123'",
        "branch": "git = 'https://c.example/x.git'",
        "url": "url = 'https://f.example/u.whl'",
        "index": "registry = 'https://i.example'",
        "virtual": "virtual = 'sub'",
        "directory": "directory = 'sub'",
        "path": "path = 'x.whl'",
    }
    wheels = f"wheels = [{{hash = 'sha256:{B}'}}, {{hash = 'sha256:{A}'}}, {{hash = 'sha256:{A}'}}, {{hash = 'md5:1'}}, 5]"
    lock = "requires-python = '>=3.9 || <3'\n" + "".join(
        f"[[package]]\nname = '{name}'\nversion = '1.0'\nsource = {{{source}}}\n{wheels}\nsdist = 'x'\n"
        for name, source in sources.items()
    )
    hashes = f"--hash=sha256:{A} --hash=sha256:{B}"
    requirement_set = read_files(tmp_path, "uv.lock", uv__lock=lock)
    assert requirement_set.python_conditions == ()
    requirements = requirement_set.select_for_python("3.11")
    assert [line.replace(" @ ", "@ ") for line in requirements.lines] == [
        "branch@ git+https://c.example/x.git",
        "commit@ git+https://c.example/x.git@0123",
        f"index==1.0 {hashes}",
        f"url@ https://f.example/u.whl {hashes}",
    ]
    project = "[[package]]\nname = 'mine'\nsource = {virtual = '.'}\ndependencies = [{name = 'Index'}, 5, {name = 5}]\n"
    lines = read_files(tmp_path, "uv.lock", uv__lock=lock + project).select_for_python("3.11").lines
    assert lines == (f"index==1.0 {hashes}",)


def test_markers_and_extras_in_a_lock_of_uv(tmp_path: Path) -> None:
    lock = """\
[[package]]
name = "mine"
source = {editable = "."}
dependencies = [{name = "a", extra = ["more", "none"]}, {name = "forked"}]
[[package]]
name = "a"
version = "1"
dependencies = [{name = "b"}, {name = "missing"}]
[package.optional-dependencies]
more = [{name = "c"}]
less = [{name = "d"}]
[[package]]
name = "b"
version = "1"
dependencies = [{name = "a"}]
[[package]]
name = "c"
version = "1"
dependencies = [{name = "a", extra = ["more"]}]
[[package]]
name = "d"
version = "1"
[[package]]
name = "forked"
version = "1"
resolution-markers = ["python_version < '3.10'", "python_version > '3.12'"]
[[package]]
name = "forked"
version = "2"
resolution-markers = ["python_version >= '3.10'"]
"""
    requirement_set = read_files(tmp_path, "uv.lock", uv__lock=lock)
    assert requirement_set.select_for_python("3.11").lines == ("a==1", "b==1", "c==1", "forked==2")
    assert requirement_set.select_for_python("3.9").lines[-1] == "forked==1"
    assert requirement_set.select_for_python("3.13").lines[-2:] == ("forked==1", "forked==2")
    wrong = lock.replace('{name = "forked"}', '{name = "forked", marker = "no marker"}')
    assert "is not a marker" in get_refusal(tmp_path, "uv.lock", wrong)


def test_sources_in_a_lock_of_poetry(tmp_path: Path) -> None:
    lock = "".join(
        f"[[package]]\nname = '{name}'\nversion = '1.0'\n{more}files = [{{hash = 'sha256:{A}'}}]\n{source}"
        for name, more, source in (
            ("folder", "", "[package.source]\ntype = 'directory'\nurl = 'sub'\n"),
            ("file", "", "[package.source]\ntype = 'file'\nurl = 'x.whl'\n"),
            (
                "branch",
                "",
                "[package.source]\ntype = 'git'\nurl = 'https://c.example/x.git'\nreference = 'main'\n",
            ),
            ("url", "", "[package.source]\ntype = 'url'\nurl = 'https://f.example/u.whl'\n"),
            ("legacy", "", "[package.source]\ntype = 'legacy'\nurl = 'https://i.example'\n"),
            ("extra", "optional = true\n", ""),
            ("other", "groups = ['dev', 'docs']\n", ""),
            ("both", "groups = ['dev', 'main']\n", ""),
        )
    )
    lock += "[metadata]\npython-versions = '^3.8 || ^3.10'\n"
    requirement_set = read_files(tmp_path, "poetry.lock", poetry__lock=lock)
    requirements = requirement_set.select_for_python("3.11")
    assert [line.replace(" @ ", "@ ") for line in requirements.lines] == [
        f"both==1.0 --hash=sha256:{A}",
        "branch@ git+https://c.example/x.git@main",
        f"legacy==1.0 --hash=sha256:{A}",
        f"url@ https://f.example/u.whl --hash=sha256:{A}",
    ]
    assert sum("a path of this machine" in note for note in requirements.notes) == 2
    assert requirement_set.python_conditions == ()


def test_extras_in_a_lock_of_poetry(tmp_path: Path) -> None:
    """A package that only an extra needs is in the lock if some package requires the extra."""
    dependencies = {
        "a": """\
b = {version = "*", optional = true, markers = "extra == 'x'"}
win = {version = "*", markers = "sys_platform == 'win32' and extra == 'x'"}
""",
        "b": """\
c = [{version = "1", markers = "sys_platform == 'win32'"}, {version = "2", markers = "sys_platform == 'linux'"}]
""",
        "c": "",
        "win": "deeper = '*'\n",
        "deeper": "deepest = '*'\n",
        "deepest": "",
    }
    lock = "".join(
        f"[[package]]\nname = '{name}'\nversion = '1'\n[package.dependencies]\n{text}"
        for name, text in dependencies.items()
    )
    lines = read_files(tmp_path, "poetry.lock", poetry__lock=lock).select_for_python("3.11").lines
    assert lines == ("a==1", "b==1", "c==1")


# ---------------------------------------------------------------- NVIDIA's wheels


def test_cuda_of_the_plan_replaces_that_of_the_file() -> None:
    plan = {"nvidia-cudnn-cu12": "8.9.4.25", "nvidia-cuda-runtime-cu12": "12.2.140"}
    lines, notes = drop_cuda_lines(
        [
            "numpy",
            "nvidia-cudnn-cu12==8.9.7.29",
            "nvidia-cudnn-cu11==8.6",
            "nvidia-cuda-runtime-cu12==12.2.140 --hash=sha256:00",
            "nvidia-cuda-runtime",
            "nvidia-dali-cuda120==1.0",
            "nvidia-ml-py",
        ],
        plan,
    )
    assert lines == ("numpy", "nvidia-cuda-runtime", "nvidia-dali-cuda120==1.0", "nvidia-ml-py")
    assert "nvidia-cudnn-cu12==8.9.7.29, nvidia-cudnn-cu11==8.6." in notes[0]
    assert drop_cuda_lines(["nvidia-cudnn-cu12"], plan) == ((), ())


# ---------------------------------------------------------------- any text


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="-=:[]{}#'\"|.,<>~^*\\ \n\tabnpi0129_", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for head, read in (
        ("dependencies:\n", lambda content: read_environment(content, Path("e.yml"), lambda _: "")),
        ("", lambda content: read_project(content, "p")),
        ("[[package]]\nname = 'x'\n", lambda content: parse_uv(content, "u")),
        ("[[package]]\nname = 'x'\n", lambda content: parse_poetry(content, "p")),
    ):
        with contextlib.suppress(UsageError):
            read(head + text)
    for convert in (convert_poetry_constraint, convert_conda_constraint):
        with contextlib.suppress(UsageError):
            SpecifierSet(convert(text, "x"))
