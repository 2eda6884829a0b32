"""Origin of a variable: what the target Python has after its startup, and the lines that set it."""

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
from tfdoctor.core.facts import MODULE_PATH, Origin, value_of
from tfdoctor.diagnosis import make_live_system
from tfdoctor.probes import driver, environment
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.facts import EnvironmentFacts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/environ")
HIDE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty virtual environment."""
    root = tmp_path_factory.mktemp("my env") / "env"
    venv.create(root, symlinks=True)
    return root


@pytest.fixture
def env(bare: Path, tmp_path: Path) -> Path:
    """Return a copy of the empty virtual environment."""
    root = tmp_path / "env"
    shutil.copytree(bare, root, symlinks=True)
    activate = root / "bin/activate"
    activate.write_text(activate.read_text(encoding="utf-8").replace(str(bare), str(root)), encoding="utf-8")
    return root


def find_site_packages(env: Path) -> Path:
    """Return the site-packages of an environment."""
    (folder,) = env.glob("lib/python*/site-packages")
    return folder


@pytest.fixture(params=[pytest.param("sitecustomize", marks=needs_sitecustomize), "company_defaults"])
def custom(env: Path, request: pytest.FixtureRequest) -> Path:
    """Return the path of a module that runs as Python starts: sitecustomize, or a module that a .pth file imports."""
    if request.param != "sitecustomize":
        (find_site_packages(env) / "defaults.pth").write_text(f"import {request.param}\n", encoding="utf-8")
    return find_site_packages(env) / f"{request.param}.py"


def probe_environment(
    env: Path, variables: Mapping[str, str] = {}, *, active: bool = False
) -> EnvironmentFacts:
    """Return the environment facts of the Python in `env`."""
    environ = {"PATH": "/usr/bin:/bin", **({"VIRTUAL_ENV": str(env)} if active else {}), **variables}
    return environment.probe(LiveSystem(env=environ), str(env / "bin/python"), timeout=30)


def test_startup_module_overrides_the_shell(env: Path, custom: Path) -> None:
    custom.write_text(f"# {HIDE}\nimport os\nos.environ['{HIDE}'] = '-1'\n", encoding="utf-8")
    facts = probe_environment(env, {HIDE: "0"})
    assert facts.variables[HIDE] == "-1"
    assert facts.changed == {HIDE: "-1"}
    assert facts.find_origin(HIDE) == Origin(
        HIDE, "start", None, str(custom), 3, f"os.environ['{HIDE}'] = '-1'"
    )


def test_pth_default_does_not_override_the_shell(env: Path) -> None:
    path = find_site_packages(env) / "gpu.pth"
    path.write_text(f"import os; os.environ.setdefault('{HIDE}', '')\n", encoding="utf-8")
    facts = probe_environment(env)
    origin = facts.find_origin(HIDE)
    assert (facts.variables[HIDE], origin and origin.path, origin and origin.line) == ("", str(path), 1)
    facts_with_shell = probe_environment(env, {HIDE: "1"})
    assert (facts_with_shell.variables[HIDE], facts_with_shell.changed) == ("1", {})
    assert facts_with_shell.find_origin(HIDE) == Origin(HIDE, "shell")


def test_line_in_a_module_imported_by_pth(env: Path) -> None:
    (find_site_packages(env) / "a.pth").write_text("import company_defaults\n", encoding="utf-8")
    module = find_site_packages(env) / "company_defaults.py"
    module.write_text(f"from os import environ\n\nenviron.update({HIDE}='-1')\n", encoding="utf-8")
    origin = probe_environment(env).find_origin(HIDE)
    assert origin is not None
    assert (origin.path, origin.line) == (str(module), 3)


def test_lines_that_extend_the_module_path(env: Path, tmp_path: Path) -> None:
    team, mine = tmp_path / "team libs", find_site_packages(env) / "mine"
    for folder in (team, mine):
        folder.mkdir()
    first = find_site_packages(env) / "a.pth"
    first.write_text(f"import sys; sys.path.insert(0, {str(team)!r})\n", encoding="utf-8")
    second = find_site_packages(env) / "b.pth"
    second.write_text("# mine\nmine\n/nowhere\n", encoding="utf-8")
    facts = probe_environment(env, {"PYTHONPATH": str(tmp_path)})
    assert facts.find_origin(MODULE_PATH, str(team)) == Origin(
        MODULE_PATH, "start", str(team), str(first), 1, first.read_text(encoding="utf-8").strip()
    )
    assert facts.find_origin(MODULE_PATH, str(mine)) == Origin(
        MODULE_PATH, "start", str(mine), str(second), 2, "mine"
    )
    assert facts.find_origin(MODULE_PATH, str(tmp_path)) is None
    assert [origin.entry for origin in probe_environment(env).origins] == [str(team), str(mine)]


def test_added_folder_without_a_line(env: Path, tmp_path: Path) -> None:
    line = f"import os, sys; sys.path.insert(0, os.path.join({str(tmp_path.parent)!r}, {tmp_path.name!r}))\n"
    (find_site_packages(env) / "a.pth").write_text(line, encoding="utf-8")
    assert probe_environment(env).find_origin(MODULE_PATH, str(tmp_path)) == Origin(
        MODULE_PATH, "start", str(tmp_path)
    )


def test_variable_removed_at_startup(env: Path, custom: Path) -> None:
    custom.write_text(f"import os\nos.environ.pop('{HIDE}', 0)\n", encoding="utf-8")
    facts = probe_environment(env, {HIDE: "1"})
    assert HIDE not in facts.variables
    assert facts.changed == {HIDE: None}


def test_library_path_set_at_startup_is_too_late(env: Path, custom: Path) -> None:
    custom.write_text("import os\nos.environ['LD_LIBRARY_PATH'] = '/late'\n", encoding="utf-8")
    facts = probe_environment(env, {"LD_LIBRARY_PATH": "/early"})
    assert facts.variables["LD_LIBRARY_PATH"] == "/early"
    assert [(origin.name, origin.line) for origin in facts.late] == [("LD_LIBRARY_PATH", 2)]


def test_misspelt_variable_set_at_startup(env: Path, custom: Path) -> None:
    custom.write_text("import os\nos.environ['CUDA_VISIBLE_DEVICE'] = '0'\n", encoding="utf-8")
    assert probe_environment(env).misspelt == (("CUDA_VISIBLE_DEVICE", HIDE),)


@pytest.mark.parametrize(
    ("line", "value", "ours"),
    [
        (f"export {HIDE}=-1", "-1", True),
        (f"export {HIDE}='-1'", "-1", True),
        (f'export A=1 {HIDE}="-1"; export B', "-1", True),
        (f"export {HIDE}=0", "-1", False),  # something else changed it afterwards
        (f"# export {HIDE}=-1", "-1", False),
        (f"export MY_{HIDE}=-1", "-1", False),
        (f"export {HIDE}=", "", True),
    ],
)
def test_line_of_the_activate_script(env: Path, line: str, value: str, *, ours: bool) -> None:
    script = env / "bin/activate"
    script.write_text(f"{script.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
    number = len(script.read_text(encoding="utf-8").splitlines())
    origin = probe_environment(env, {HIDE: value}, active=True).find_origin(HIDE)
    expected = Origin(HIDE, "activation", None, str(script), number, line) if ours else Origin(HIDE, "shell")
    assert origin == expected
    assert probe_environment(env, {HIDE: value}).find_origin(HIDE) == Origin(HIDE, "shell")  # not activated


@pytest.mark.parametrize(
    ("line", "is_setting"),
    [
        (f'export {HIDE}=""', True),
        (f"{HIDE}=; export {HIDE}", True),
        (f"alias cpu='{HIDE}= python'", False),
        (f"{HIDE}= python train.py", False),
    ],
)
def test_line_of_the_users_profile(env: Path, tmp_path: Path, line: str, *, is_setting: bool) -> None:
    (tmp_path / ".bashrc").write_text(f"# mine\n{line}\n", encoding="utf-8")
    origin = probe_environment(env, {HIDE: "", "HOME": str(tmp_path)}).find_origin(HIDE)
    expected = Origin(HIDE, "profile", None, f"{tmp_path}/.bashrc", 2, line)
    assert origin == (expected if is_setting else Origin(HIDE, "shell"))


def test_file_of_uv_run(env: Path, tmp_path: Path) -> None:
    """`uv run` does not change a variable that is set already."""
    (tmp_path / "gpu.env").write_text(f"A=1\nexport {HIDE}='-1' # no GPU\n", encoding="utf-8")
    variables = {"PATH": "/usr/bin", "UV_ENV_FILE": str(tmp_path / "gpu.env")}
    for before, value in (({}, "-1"), ({HIDE: "0"}, "0")):
        system = make_live_system(None, {**variables, **before})
        facts = environment.probe(system, str(env / "bin/python"), timeout=30)
        origin = facts.find_origin(HIDE)
        assert origin is not None
        assert (facts.variables[HIDE], origin.by, origin.line) == (
            (value, "shell", None) if before else (value, "uv", 2)
        )
    assert HIDE not in make_live_system(None, {**variables, "UV_NO_ENV_FILE": "1"}).env


@pytest.mark.parametrize("value", [":/a", "/a:", "./:/a", ":"])
def test_entries_that_name_the_working_folder_are_reported(env: Path, value: str) -> None:
    """The probes are started without them, and the user's program is not."""
    facts = probe_environment(env, {"LD_LIBRARY_PATH": value})
    assert (facts.variables["LD_LIBRARY_PATH"], facts.late, facts.changed) == (value, (), {})


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ('{"backend": "torch", "floatx": "float32"}', "torch"),
        ('{"floatx": "float32"}', ""),
        ("[", ""),
        ("[]", ""),
    ],
)
def test_backend_in_the_file_of_keras(tmp_path: Path, text: str, backend: str) -> None:
    (tmp_path / ".keras").mkdir()
    path = tmp_path / ".keras/keras.json"
    path.write_text(text, encoding="utf-8")
    for variables in ({"HOME": str(tmp_path)}, {"HOME": "/nowhere", "KERAS_HOME": str(tmp_path / ".keras")}):
        facts = environment.probe(LiveSystem(env=variables))
        assert (facts.keras_file, facts.keras_backend) == ((str(path), backend) if backend else ("", ""))


def test_each_path_entry_has_its_own_origin(env: Path) -> None:
    script = env / "bin/activate"
    line = 'export LD_LIBRARY_PATH="$VIRTUAL_ENV/lib64:/opt/old/:$LD_LIBRARY_PATH"'
    script.write_text(f"{script.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
    facts = probe_environment(env, {"LD_LIBRARY_PATH": f"{env}/lib64:/opt/old/:/mine"}, active=True)
    sources = [(origin.entry, origin.by) for origin in facts.origins if origin.name == "LD_LIBRARY_PATH"]
    assert sources == [(f"{env}/lib64", "activation"), ("/opt/old/", "activation"), ("/mine", "shell")]
    assert facts.find_origin("LD_LIBRARY_PATH", "/opt/old") is not None


def test_file_sourced_by_activate(env: Path, tmp_path: Path) -> None:
    other = tmp_path / "gpu.sh"
    other.write_text(f"export {HIDE}=\n", encoding="utf-8")
    script = env / "bin/activate"
    script.write_text(f"{script.read_text(encoding='utf-8')}. {other}\n", encoding="utf-8")
    origin = probe_environment(env, {HIDE: ""}, active=True).find_origin(HIDE)
    assert origin is not None
    assert (origin.path, origin.line) == (str(other), 1)


def test_wrapper_script_sets_variables(env: Path, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\nexport {HIDE}=-1\nexport LD_LIBRARY_PATH=/nix/lib\nexec {env}/bin/python "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    facts = environment.probe(LiveSystem(env={"PATH": "/bin"}), str(script), timeout=30)
    assert facts.variables["LD_LIBRARY_PATH"] == "/nix/lib"
    assert facts.late == ()
    origin = facts.find_origin(HIDE)
    assert origin is not None
    assert (origin.by, origin.path, origin.line) == ("wrapper", str(script), 2)


def test_tfdoctor_inside_the_examined_environment(env: Path, custom: Path) -> None:
    """The startup of the examined Python also changes tfdoctor's own variables."""
    custom.write_text(f"import os\nos.environ['{HIDE}'] = '-1'\n", encoding="utf-8")
    source = Path(tfdoctor.payload.__file__).parents[2]
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; from tfdoctor.probes import environment; "
        "from tfdoctor.system import LiveSystem; seen = environment.probe(LiveSystem(), sys.argv[1], timeout=30); "
        f"print(LiveSystem().env.get('{HIDE}'), seen.variables['{HIDE}'], seen.find_origin('{HIDE}').line)"
    )
    python = str(env / "bin/python")
    result = LiveSystem(env={"PATH": "/usr/bin:/bin", HIDE: "3"}).run(
        [python, "-c", code, python, str(source), *sys.path[1:]], timeout=60
    )
    assert (result.stdout.split(), result.stderr) == (["3", "-1", "2"], "")


def test_python_that_does_not_answer(tmp_path: Path) -> None:
    system = LiveSystem(env={HIDE: "1", "HOME": "/nowhere"})
    facts = environment.probe(system, str(tmp_path / "nothing"), timeout=5)
    assert (facts.variables, facts.origins) == ({HIDE: "1"}, ())


def test_payload_answers_only_requested_variables(env: Path, custom: Path) -> None:
    """A recording must not contain anything that was not requested."""
    custom.write_text(
        "import os\nos.environ['MY_TOKEN'] = 'secret-value'\nos.environ['TF_X'] = '1'\n", encoding="utf-8"
    )
    script = Path(tfdoctor.payload.__file__).with_name("variables.py")
    environ = {"PATH": "/bin", "OTHER_TOKEN": "secret-value"}
    result = LiveSystem(env=environ).run(
        [str(env / "bin/python"), "-B", str(script), "python", "TF_*"], timeout=30
    )
    assert "secret-value" not in result.stdout
    assert "OTHER_TOKEN" not in result.stdout
    assert json.loads(result.stdout.partition(":")[2])["now"] == {"TF_X": "1"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")
def test_driver_query_ignores_startup_variables(
    env: Path, custom: Path, standin_cache: Path, tmp_path: Path
) -> None:
    custom.write_text(f"import os\nos.environ['{HIDE}'] = '-1'\n", encoding="utf-8")
    folder = standins.write_driver(tmp_path / "driver", standin_cache, gpus=2)

    class Inside(LiveSystem):
        """A container, in which the driver is queried from the examined Python."""

        own_python = None

    system = Inside(env={"PATH": "/bin", "LD_LIBRARY_PATH": str(folder)})

    def count(variables: Mapping[str, str | None]) -> int | None:
        cuda, _ = driver.probe_libraries(system, str(env / "bin/python"), timeout=30, variables=variables)
        cuda_facts = value_of(cuda)
        return cuda_facts.count if cuda_facts is not None else None

    assert count({}) in (0, None)
    assert count({HIDE: None}) == 2
    assert count({HIDE: "1"}) == 1


def test_kernel_variables_come_from_kernel_json(env: Path, tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    variables = {HIDE: "-1", "LD_LIBRARY_PATH": "/k:/both", "TOKEN": "secret"}
    path.write_text(json.dumps({"argv": [str(env / "bin/python")], "env": variables}, indent=1))
    environ = {"PATH": "/usr/bin:/bin", **variables, "TF_CPP_MIN_LOG_LEVEL": "2"}
    facts = environment.probe(LiveSystem(env=environ), str(env / "bin/python"), kernel=str(path), timeout=30)
    assert facts.find_origin(HIDE) == Origin(HIDE, "kernel", None, str(path), 6, f'"{HIDE}": "-1"')
    path_origin = facts.find_origin("LD_LIBRARY_PATH", "/both")
    assert path_origin is not None
    assert (path_origin.by, path_origin.path) == ("kernel", str(path))
    log_origin = facts.find_origin("TF_CPP_MIN_LOG_LEVEL")
    assert log_origin is not None
    assert log_origin.by == "shell"
    facts_with_shell = environment.probe(
        LiveSystem(env={**environ, HIDE: "0"}), str(env / "bin/python"), kernel=str(path), timeout=30
    )
    origin = facts_with_shell.find_origin(HIDE)
    assert origin is not None
    assert origin.by == "shell"
    assert "secret" not in str(facts)


def test_unknown_variables_are_reported_only_with_plain_values() -> None:
    values = {
        "TF_TOKEN_app_terraform_io": "a1B2.atlasv1.Zx9Y",
        "TF_VAR_host": "gpu17.example",
        "NCCL_COMM_ID": "gpu17:1234",
        "TF_NEW_SWITCH": "true",
        "NCCL_NTHREADS": "256",
        "TF_ENABLED_DEVICE_TYPES": "CPU",
    }
    assert dict(environment.select_variables(values)) == {
        "NCCL_NTHREADS": "256",
        "TF_ENABLED_DEVICE_TYPES": "CPU",
        "TF_NEW_SWITCH": "true",
    }
