"""Who set a variable: what the target Python has when its own start is over, and the lines that did it."""

from __future__ import annotations

import json
import shutil
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tfdoctor.payload
from lab import standins
from startup import needs_sitecustomize
from tfdoctor.facts import MODULE_PATH, Origin, value_of
from tfdoctor.probes import driver, environment
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.facts import EnvironmentFacts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/environ")
HIDE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without anything in it."""
    root = tmp_path_factory.mktemp("my env") / "env"
    venv.create(root, symlinks=True)
    return root


@pytest.fixture
def env(bare: Path, tmp_path: Path) -> Path:
    root = tmp_path / "env"
    shutil.copytree(bare, root, symlinks=True)
    activate = root / "bin/activate"
    activate.write_text(activate.read_text(encoding="utf-8").replace(str(bare), str(root)), encoding="utf-8")
    return root


def site(env: Path) -> Path:
    (found,) = env.glob("lib/python*/site-packages")
    return found


@pytest.fixture(params=[pytest.param("sitecustomize", marks=needs_sitecustomize), "company_defaults"])
def custom(env: Path, request: pytest.FixtureRequest) -> Path:
    """The file of a module that runs as Python starts: one that Python asks for, or one that a .pth file imports."""
    if request.param != "sitecustomize":
        (site(env) / "defaults.pth").write_text(f"import {request.param}\n", encoding="utf-8")
    return site(env) / f"{request.param}.py"


def look(env: Path, variables: Mapping[str, str] = {}, *, active: bool = False) -> EnvironmentFacts:
    given = {"PATH": "/usr/bin:/bin", **({"VIRTUAL_ENV": str(env)} if active else {}), **variables}
    return environment.probe(LiveSystem(env=given), str(env / "bin/python"), timeout=30)


def test_sitecustomize_decides_what_tensorflow_has(env: Path, custom: Path) -> None:
    custom.write_text(f"# {HIDE}\nimport os\nos.environ['{HIDE}'] = '-1'\n", encoding="utf-8")
    seen = look(env, {HIDE: "0"})
    assert seen.variables[HIDE] == "-1"
    assert seen.changed == {HIDE: "-1"}
    assert seen.origin(HIDE) == Origin(HIDE, "start", None, str(custom), 3, f"os.environ['{HIDE}'] = '-1'")


def test_a_pth_file_that_sets_a_default_loses_against_the_shell(env: Path) -> None:
    path = site(env) / "gpu.pth"
    path.write_text(f"import os; os.environ.setdefault('{HIDE}', '')\n", encoding="utf-8")
    seen = look(env)
    origin = seen.origin(HIDE)
    assert (seen.variables[HIDE], origin and origin.path, origin and origin.line) == ("", str(path), 1)
    given = look(env, {HIDE: "1"})
    assert (given.variables[HIDE], given.changed) == ("1", {})
    assert given.origin(HIDE) == Origin(HIDE, "shell")


def test_a_module_that_a_pth_file_imports(env: Path) -> None:
    (site(env) / "a.pth").write_text("import company_defaults\n", encoding="utf-8")
    module = site(env) / "company_defaults.py"
    module.write_text(f"from os import environ\n\nenviron.update({HIDE}='-1')\n", encoding="utf-8")
    origin = look(env).origin(HIDE)
    assert origin is not None
    assert (origin.path, origin.line) == (str(module), 3)


def test_the_lines_that_put_folders_on_the_path(env: Path, tmp_path: Path) -> None:
    team, mine = tmp_path / "team libs", site(env) / "mine"
    for folder in (team, mine):
        folder.mkdir()
    first = site(env) / "a.pth"
    first.write_text(f"import sys; sys.path.insert(0, {str(team)!r})\n", encoding="utf-8")
    second = site(env) / "b.pth"
    second.write_text("# mine\nmine\n/nowhere\n", encoding="utf-8")
    seen = look(env, {"PYTHONPATH": str(tmp_path)})
    assert seen.origin(MODULE_PATH, str(team)) == Origin(
        MODULE_PATH, "start", str(team), str(first), 1, first.read_text(encoding="utf-8").strip()
    )
    assert seen.origin(MODULE_PATH, str(mine)) == Origin(
        MODULE_PATH, "start", str(mine), str(second), 2, "mine"
    )
    assert seen.origin(MODULE_PATH, str(tmp_path)) is None
    assert [one.entry for one in look(env).origins] == [str(team), str(mine)]


def test_a_folder_that_no_line_names(env: Path, tmp_path: Path) -> None:
    line = f"import os, sys; sys.path.insert(0, os.path.join({str(tmp_path.parent)!r}, {tmp_path.name!r}))\n"
    (site(env) / "a.pth").write_text(line, encoding="utf-8")
    assert look(env).origin(MODULE_PATH, str(tmp_path)) == Origin(MODULE_PATH, "start", str(tmp_path))


def test_what_the_start_takes_away(env: Path, custom: Path) -> None:
    custom.write_text(f"import os\nos.environ.pop('{HIDE}', 0)\n", encoding="utf-8")
    seen = look(env, {HIDE: "1"})
    assert HIDE not in seen.variables
    assert seen.changed == {HIDE: None}


def test_the_loader_reads_its_path_before(env: Path, custom: Path) -> None:
    custom.write_text("import os\nos.environ['LD_LIBRARY_PATH'] = '/late'\n", encoding="utf-8")
    seen = look(env, {"LD_LIBRARY_PATH": "/early"})
    assert seen.variables["LD_LIBRARY_PATH"] == "/early"
    assert [(one.name, one.line) for one in seen.late] == [("LD_LIBRARY_PATH", 2)]


def test_a_misspelt_name_that_the_start_sets(env: Path, custom: Path) -> None:
    custom.write_text("import os\nos.environ['CUDA_VISIBLE_DEVICE'] = '0'\n", encoding="utf-8")
    assert look(env).misspelt == (("CUDA_VISIBLE_DEVICE", HIDE),)


@pytest.mark.parametrize(
    ("line", "value", "ours"),
    [
        (f"export {HIDE}=-1", "-1", True),
        (f"export {HIDE}='-1'", "-1", True),
        (f'export A=1 {HIDE}="-1"; export B', "-1", True),
        (f"export {HIDE}=0", "-1", False),  # then somebody else has, afterwards
        (f"# export {HIDE}=-1", "-1", False),
        (f"export MY_{HIDE}=-1", "-1", False),
        (f"export {HIDE}=", "", True),
    ],
)
def test_a_line_of_activate(env: Path, line: str, value: str, *, ours: bool) -> None:
    script = env / "bin/activate"
    script.write_text(f"{script.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
    number = len(script.read_text(encoding="utf-8").splitlines())
    origin = look(env, {HIDE: value}, active=True).origin(HIDE)
    expected = Origin(HIDE, "activation", None, str(script), number, line) if ours else Origin(HIDE, "shell")
    assert origin == expected
    assert look(env, {HIDE: value}).origin(HIDE) == Origin(HIDE, "shell")  # not activated


def test_each_entry_of_a_list_has_its_own(env: Path) -> None:
    script = env / "bin/activate"
    line = 'export LD_LIBRARY_PATH="$VIRTUAL_ENV/lib64:/opt/old/:$LD_LIBRARY_PATH"'
    script.write_text(f"{script.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
    seen = look(env, {"LD_LIBRARY_PATH": f"{env}/lib64:/opt/old/:/mine"}, active=True)
    by = [(o.entry, o.by) for o in seen.origins if o.name == "LD_LIBRARY_PATH"]
    assert by == [(f"{env}/lib64", "activation"), ("/opt/old/", "activation"), ("/mine", "shell")]
    assert seen.origin("LD_LIBRARY_PATH", "/opt/old") is not None


def test_a_file_that_activate_reads(env: Path, tmp_path: Path) -> None:
    other = tmp_path / "gpu.sh"
    other.write_text(f"export {HIDE}=\n", encoding="utf-8")
    script = env / "bin/activate"
    script.write_text(f"{script.read_text(encoding='utf-8')}. {other}\n", encoding="utf-8")
    origin = look(env, {HIDE: ""}, active=True).origin(HIDE)
    assert origin is not None
    assert (origin.path, origin.line) == (str(other), 1)


def test_an_interpreter_that_is_a_script(env: Path, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\nexport {HIDE}=-1\nexport LD_LIBRARY_PATH=/nix/lib\nexec {env}/bin/python "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    seen = environment.probe(LiveSystem(env={"PATH": "/bin"}), str(script), timeout=30)
    assert seen.variables["LD_LIBRARY_PATH"] == "/nix/lib"
    assert seen.late == ()
    origin = seen.origin(HIDE)
    assert origin is not None
    assert (origin.by, origin.path, origin.line) == ("wrapper", str(script), 2)


def test_tfdoctor_in_the_environment_itself(env: Path, custom: Path) -> None:
    """What is set for the examined Python is set for tfdoctor then, too."""
    custom.write_text(f"import os\nos.environ['{HIDE}'] = '-1'\n", encoding="utf-8")
    source = Path(tfdoctor.payload.__file__).parents[2]
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; from tfdoctor.probes import environment; "
        "from tfdoctor.system import LiveSystem; seen = environment.probe(LiveSystem(), sys.argv[1], timeout=30); "
        f"print(LiveSystem().env.get('{HIDE}'), seen.variables['{HIDE}'], seen.origin('{HIDE}').line)"
    )
    python = str(env / "bin/python")
    done = LiveSystem(env={"PATH": "/usr/bin:/bin", HIDE: "3"}).run(
        [python, "-c", code, python, str(source), *sys.path[1:]], timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["3", "-1", "2"], "")


def test_a_python_that_does_not_answer(tmp_path: Path) -> None:
    system = LiveSystem(env={HIDE: "1", "HOME": "/nowhere"})
    seen = environment.probe(system, str(tmp_path / "nothing"), timeout=5)
    assert (seen.variables, seen.origins) == ({HIDE: "1"}, ())


def test_what_is_answered_holds_nothing_else(env: Path, custom: Path) -> None:
    """A recording must not carry what was not asked for."""
    custom.write_text(
        "import os\nos.environ['MY_TOKEN'] = 'secret-value'\nos.environ['TF_X'] = '1'\n", encoding="utf-8"
    )
    script = Path(tfdoctor.payload.__file__).with_name("variables.py")
    given = {"PATH": "/bin", "OTHER_TOKEN": "secret-value"}
    result = LiveSystem(env=given).run(
        [str(env / "bin/python"), "-B", str(script), "python", "TF_*"], timeout=30
    )
    assert "secret-value" not in result.stdout
    assert "OTHER_TOKEN" not in result.stdout
    assert json.loads(result.stdout.partition(":")[2])["now"] == {"TF_X": "1"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")
def test_the_driver_is_asked_without_what_the_start_sets(
    env: Path, custom: Path, standin_cache: Path, tmp_path: Path
) -> None:
    custom.write_text(f"import os\nos.environ['{HIDE}'] = '-1'\n", encoding="utf-8")
    folder = standins.driver(tmp_path / "driver", standin_cache, gpus=2)

    class Inside(LiveSystem):
        """As in a container: the driver is asked in the examined Python."""

        own_python = None

    system = Inside(env={"PATH": "/bin", "LD_LIBRARY_PATH": str(folder)})

    def count(variables: Mapping[str, str | None]) -> int | None:
        cuda, _ = driver.probe_libraries(system, str(env / "bin/python"), timeout=30, variables=variables)
        answer = value_of(cuda)
        return answer.count if answer is not None else None

    assert count({}) in (0, None)
    assert count({HIDE: None}) == 2
    assert count({HIDE: "1"}) == 1


def test_a_shim_counts_where_the_chosen_version_has_the_program(tmp_path: Path) -> None:
    shims, there = tmp_path / ".pyenv/shims", tmp_path / ".pyenv/versions/3.11.7/bin"
    for folder, names in ((shims, ("pip", "uv")), (there, ("pip",))):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
            (folder / name).chmod(0o755)
    (tmp_path / ".pyenv/version").write_text("3.11.7\n", encoding="utf-8")
    system = LiveSystem(env={"PATH": f"{shims}:/bin"}, cwd=str(tmp_path))
    seen = environment.probe(system).programs or frozenset()
    assert "pip" in seen
    assert "uv" not in seen
    other = LiveSystem(env={"PATH": f"{shims}:/bin", "PYENV_VERSION": "3.9.9"}, cwd=str(tmp_path))
    assert "pip" not in (environment.probe(other).programs or frozenset())


def test_what_a_kernel_sets_is_set_by_its_kernel_json(env: Path, tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    variables = {HIDE: "-1", "LD_LIBRARY_PATH": "/k:/both", "TOKEN": "secret"}
    path.write_text(json.dumps({"argv": [str(env / "bin/python")], "env": variables}, indent=1))
    given = {"PATH": "/usr/bin:/bin", **variables, "TF_CPP_MIN_LOG_LEVEL": "2"}
    seen = environment.probe(LiveSystem(env=given), str(env / "bin/python"), kernel=str(path), timeout=30)
    assert seen.origin(HIDE) == Origin(HIDE, "kernel", None, str(path), 6, f'"{HIDE}": "-1"')
    of_list = seen.origin("LD_LIBRARY_PATH", "/both")
    assert of_list is not None
    assert (of_list.by, of_list.path) == ("kernel", str(path))
    other = seen.origin("TF_CPP_MIN_LOG_LEVEL")
    assert other is not None
    assert other.by == "shell"
    changed = environment.probe(
        LiveSystem(env={**given, HIDE: "0"}), str(env / "bin/python"), kernel=str(path), timeout=30
    )
    origin = changed.origin(HIDE)
    assert origin is not None
    assert origin.by == "shell"
    assert "secret" not in str(seen)
