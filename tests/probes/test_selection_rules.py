"""The choice of a Python on recorded machines: each rule by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfdoctor.core.errors import UsageError
from tfdoctor.core.facts.python import OtherPython, PythonChoice, UnusableEnvironment
from tfdoctor.probes import interpreter_selection as selection
from tfdoctor.system import RecordedSystem

PYENV = "/p/versions/2/bin"
DENIED_LIST = ["list", 13, "Permission denied"]
UV = "/u/.cache/uv/archive-v0/abc/bin/python3"


def make_system(*files: str, **host: Any) -> RecordedSystem:
    """Return a machine with these empty files and these tables of host.json."""
    texts = {**dict.fromkeys(files, ""), **host.pop("texts", {})}
    host = {"cwd": "/srv", "files": texts, **host}
    return RecordedSystem({"host.json": json.dumps({"schema_version": 1, **host}).encode()})


def choose(system: RecordedSystem, requested: str | None = None) -> PythonChoice:
    return selection.choose_python(system, requested)


def get_refusal(system: RecordedSystem, requested: str | None) -> str:
    with pytest.raises(UsageError) as caught:
        choose(system, requested)
    return f"{caught.value} {caught.value.hint}"


# ---------------------------------------------------------------- without a request


@pytest.mark.parametrize(
    ("which", "output", "path"),
    [
        ({"python3": "/usr/bin/python3", "python": "/usr/bin/python"}, "", "/usr/bin/python3"),
        ({"python": "/usr/bin/python"}, "", "/usr/bin/python"),
        ({"python3": UV}, f"{UV}\n/usr/bin/python3\n/other\n", "/usr/bin/python3"),
        ({"python3": UV}, f"{UV}\nrelative/python3\n", UV),
        ({"python3": UV}, "", UV),
        (
            {"python3": "/cache/archive-v0/abc/lib/python3"},
            "/usr/bin/python3\n",
            "/cache/archive-v0/abc/lib/python3",
        ),
    ],
)
def test_python_on_path(which: dict[str, str], output: str, path: str) -> None:
    choice = choose(make_system(which=which, commands={"which -a python3": {"stdout": output}}))
    assert (choice.path, choice.lost) == (path, ())
    assert choice.how == ("python3 on PATH" if "python3" in which else "python on PATH")


def test_relative_environment_is_not_active() -> None:
    """A relative path can lead to a file of the working folder."""
    for variable in selection.ACTIVE_VARIABLES:
        system = make_system(
            "/srv/env/bin/python", env={variable: "env"}, which={"python3": "/usr/bin/python3"}
        )
        assert choose(system).path == "/usr/bin/python3"


def test_shim_is_named() -> None:
    choice = choose(make_system(which={"python3": "/p/shims/python3"}))
    assert choice.why == "python3 on PATH, the shim /p/shims/python3"


@pytest.mark.parametrize(
    ("files", "host", "problem"),
    [
        ((), {}, "gone"),
        (("/env/other",), {}, "empty"),
        (("/env/x",), {"errors": {"/env": ["list", 13, "Permission denied"]}}, "closed"),
        (("/env/x",), {"errors": {"/env": ["list", 5, "I/O"]}}, "empty"),
        (("/env/x",), {"errors": {"/env/bin/python3": ["read", 13, "Permission denied"]}}, "closed"),
        (("/env/x",), {"errors": {"/env/python.exe": ["read", 13, "Permission denied"]}}, "empty"),
        (("/env/bin/x",), {"links": {"/env/bin/python": "/gone/python"}}, "base-gone"),
        (("/env/bin/x",), {"links": {"/env/bin/python3": "/gone/python"}}, "base-gone"),
    ],
)
def test_active_environment_without_python(
    files: tuple[str, ...], host: dict[str, Any], problem: str
) -> None:
    system = make_system(*files, env={"VIRTUAL_ENV": "/env/"}, which={"python": "/usr/bin/python"}, **host)
    choice = choose(system)
    (unusable,) = choice.lost
    assert (choice.path, unusable.problem, unusable.variable, unusable.prefix) == (
        "/usr/bin/python", problem, "VIRTUAL_ENV", "/env",
    )  # fmt: skip
    assert (unusable.target == "/gone/python") is (problem == "base-gone")
    message = get_refusal(make_system(*files, env={"VIRTUAL_ENV": "/env"}, **host), None)
    assert "$VIRTUAL_ENV names /env, " in message
    assert selection.describe_unusable_environment(unusable) in message


def test_no_python_at_all() -> None:
    assert get_refusal(make_system(), None).startswith("No Python found: no active environment")
    assert choose(make_system("/python.exe", env={"CONDA_PREFIX": "/"})).path == "/python.exe"
    assert choose(
        make_system("C:/e/python.exe", env={"CONDA_PREFIX": "C:/e"}, exists={"C:/e/python.exe": True})
    ).path


@pytest.mark.parametrize(
    ("default", "variable", "why"),
    [
        ("base", "CONDA_PREFIX", "conda's base environment, which is active"),
        ("other", "CONDA_PREFIX", "the active conda environment"),
        ("base", "VIRTUAL_ENV", "the active virtual environment"),
    ],
)
def test_active_environment_is_described(default: str, variable: str, why: str) -> None:
    choice = choose(make_system("/env/bin/python", env={variable: "/env", "CONDA_DEFAULT_ENV": default}))
    assert (choice.path, choice.why) == ("/env/bin/python", why)


@pytest.mark.parametrize(
    ("python", "how"),
    [
        ("/conda/bin/python", "$CONDA_PREFIX"),
        ("/env/bin/python", "$VIRTUAL_ENV"),
        ("/condab/bin/python", "$VIRTUAL_ENV"),
    ],
)
def test_python_on_path_decides_between_two_environments(python: str, how: str) -> None:
    env = {"VIRTUAL_ENV": "/env", "CONDA_PREFIX": "/conda/"}
    assert (
        choose(make_system("/env/bin/python", "/conda/bin/python", env=env, which={"python": python})).how
        == how
    )
    assert (
        choose(make_system("/env/bin/python", "/conda/bin/python", env=env, which={"python3": python})).how
        == how
    )


@pytest.mark.parametrize(
    ("which", "on_path"),
    [
        ({"python": "/usr/bin/python"}, "/usr/bin/python"),
        ({"python3": "/usr/bin/python3"}, "/usr/bin/python3"),
        ({"python": "/env/bin/python"}, ""),
        ({"python": "/link/bin/python"}, ""),
        ({"python": "bin/python"}, ""),
        ({"python": "/p/shims/python"}, "/p/shims/python"),
        ({"python": "/manager/shims/python"}, ""),
        ({}, ""),
    ],
)
def test_other_python_on_path(which: dict[str, str], on_path: str) -> None:
    for prefix in ("/env", "/manager/versions/env"):
        links = (
            {"/link": prefix, "/env/bin": "/manager/versions/env/bin"}
            if prefix != "/env"
            else {"/link": prefix}
        )
        if prefix != "/env" and which.get("python") == "/env/bin/python":
            continue
        if prefix == "/env" and "manager" in which.get("python", ""):
            continue
        system = make_system(f"{prefix}/bin/python", env={"VIRTUAL_ENV": prefix}, which=which, links=links)
        assert choose(system).on_path == on_path, prefix


# ---------------------------------------------------------------- a requested Python


@pytest.mark.parametrize(
    ("requested", "path"),
    [
        ("/env/bin/python", "/env/bin/python"),
        ("/env/", "/env/bin/python"),
        ("env", "/srv/env/bin/python3"),
        ("./env", "/srv/./env/bin/python3"),
        ("~/venv", "/home/me/venv/bin/python"),
        ("python3.9", "/usr/bin/python3.9"),
        ("local", "/srv/local"),
    ],
)
def test_requested_python(requested: str, path: str) -> None:
    system = make_system(
        "/env/bin/python", "/srv/env/bin/python3", "/home/me/venv/bin/python", "/srv/local",
        env={"HOME": "/home/me"}, which={"python3.9": "/usr/bin/python3.9", "env": "/usr/bin/env", "local": "/x"},
    )  # fmt: skip
    choice = choose(system, requested)
    assert (choice.path, choice.how, choice.lost) == (path, requested, ())
    assert choice.why.startswith("from --python")


@pytest.mark.parametrize(
    ("requested", "host", "message"),
    [
        (" ", {}, "an empty path"),
        ("a\0b", {}, "null character"),
        ("nothing", {}, "there is no `nothing` on PATH"),
        ("/nothing", {}, "/nothing does not exist"),
        ("C:\\nothing", {}, "does not exist"),
        ("/closed/python", {"errors": {"/closed/python": ["read", 13, "Permission denied"]}}, "may not be looked at"),
        ("/bin/link", {"files": {"/bin/x": ""}, "links": {"/bin/link": "/gone"}}, "is a link to /gone, which does not exist"),
        ("/folder", {"files": {"/folder/x": ""}}, "is a folder without bin/python. Name the interpreter"),
        ("/folder", {"files": {"/folder/venv/bin/python": ""}}, "An environment is in it: --python /folder/venv"),
        ("/folder", {"files": {"/folder/x": ""}, "errors": {"/folder": DENIED_LIST}}, "may not be looked into"),
    ],
)  # fmt: skip
def test_unusable_request_is_refused(requested: str, host: dict[str, Any], message: str) -> None:
    assert message in get_refusal(make_system(texts=host.pop("files", {}), **host), requested)


def test_environment_whose_base_is_gone() -> None:
    host: dict[str, Any] = {
        "links": {"/env/bin/python": "/gone/python3.9"},
        "which": {"python3.9": "/usr/bin/python3.9"},
    }
    pyvenv = {"/env/pyvenv.cfg": "version = 3.9.2\n", "/env/bin/x": ""}
    for requested in ("/env", "/env/bin/python"):
        choice = choose(make_system(texts=pyvenv, **host), requested)
        assert choice.path == "/env/bin/python"
        assert choice.lost == (
            UnusableEnvironment(
                "--python",
                "/env",
                "base-gone",
                target="/gone/python3.9",
                version="3.9.2",
                successor="/usr/bin/python3.9",
            ),
        )
    conda = make_system("/env/conda-meta/history", "/env/bin/x", **host)
    assert choose(conda, "/env/bin/python").lost[0].problem == "base-gone"
    assert "which does not exist" in get_refusal(make_system("/env/bin/x", **host), "/env/bin/python")


@pytest.mark.parametrize(
    ("texts", "version"),
    [
        ({"/env/pyvenv.cfg": "home = /x\n Version = 3.9.2 \n"}, "3.9.2"),
        ({"/env/pyvenv.cfg": "version_info = 3.10.1.final.0\n"}, "3.10.1"),
        ({"/env/pyvenv.cfg": "version = x\n", "/env/lib/python3.8/x": ""}, "3.8"),
        ({"/env/lib/python3/x": "", "/env/lib/x/y": ""}, None),
        ({}, None),
    ],
)
def test_version_in_the_files_of_an_environment(texts: dict[str, str], version: str | None) -> None:
    assert selection._find_version(make_system(texts=texts), "/env") == version


@pytest.mark.parametrize(
    ("version", "which", "files", "successor"),
    [
        ("3.9.2", {"python3.9": "/usr/bin/python3.9"}, (), "/usr/bin/python3.9"),
        ("3.9.2", {"python3": "/usr/bin/python3"}, (), None),
        ("3.9", {"python3.9": "/p/shims/python3.9"}, ("/p/versions/1/x", f"{PYENV}/python3.9"), f"{PYENV}/python3.9"),
        ("3.9", {"python3.9": "/p/shims/python3.9"}, (), None),
        (None, {"python": "/x"}, (), None),
    ],
)  # fmt: skip
def test_successor_of_a_base(
    version: str | None, which: dict[str, str], files: tuple[str, ...], successor: str | None
) -> None:
    assert selection._find_successor(make_system(*files, which=which), version) == successor


def test_moved_environments_are_found() -> None:
    texts = {
        "/home/me/new/pyvenv.cfg": "command = /usr/bin/python -m venv /home/me/old\n",
        "/home/me/sub/pyvenv.cfg": "command = /usr/bin/python -m venv /home/me/old/sub\n",
        "/home/me/script/pyvenv.cfg": "",
        "/home/me/script/bin/activate": "VIRTUAL_ENV='/home/me/old'\nexport\n",
        "/home/me/other/pyvenv.cfg": "",
        "/home/me/other/bin/activate": "VIRTUAL_ENV=/home/me/older\n",
        "/home/me/plain/bin/activate": "VIRTUAL_ENV=/home/me/old\n",
        "/srv/moved/pyvenv.cfg": "command = x /home/me/old\n",
        "/beside/pyvenv.cfg": "command = x /home/me/old\n",
    }
    system = make_system(texts=texts)
    expected = ("/home/me/new", "/home/me/script", "/srv/moved", "/beside")
    assert selection._find_moved_environments(system, "/home/me/old") == expected
    for number in range(9):
        texts[f"/home/me/new{number}/pyvenv.cfg"] = "command = x /home/me/old\n"
    assert len(selection._find_moved_environments(make_system(texts=texts), "/home/me/old")) == 5
    deep = {"/base/x/pyvenv.cfg": "command = x /base/gone/deep/old\n"}
    assert selection._find_moved_environments(make_system(texts=deep), "/base/gone/deep/old") == ("/base/x",)


# ---------------------------------------------------------------- Jupyter kernels

KERNEL = "/env/share/jupyter/kernels/k/kernel.json"


def make_kernel(*argv: Any, **fields: Any) -> str:
    return json.dumps({"argv": [*argv, "-m", "ipykernel_launcher"], **fields})


@pytest.mark.parametrize(
    ("program", "files", "which", "path"),
    [
        ("/env/bin/python", ("/env/bin/python",), {}, "/env/bin/python"),
        ("python", ("/env/bin/python",), {"python": "/usr/bin/python"}, "/env/bin/python"),
        ("python3", ("/usr/bin/python3",), {"python3": "/usr/bin/python3"}, "/usr/bin/python3"),
        ("/gone/bin/python", ("/gone/pyvenv.cfg",), {}, "/gone/bin/python"),
    ],
)
def test_python_of_a_kernel(program: str, files: tuple[str, ...], which: dict[str, str], path: str) -> None:
    text = make_kernel(program, env={"A": "1", "B=": "2", "C": 3, "": "4", "D": "\0"})
    system = make_system(*files, texts={KERNEL: text}, which=which)
    for requested in (KERNEL, "/env/share/jupyter/kernels/k/"):
        choice = choose(system, requested)
        assert (choice.path, choice.kernel, choice.kernel_sets) == (path, KERNEL, ("A",))
        assert "which also sets A, B=, C" in choice.why
        assert bool(choice.lost) is path.startswith("/gone")
        assert selection.read_kernel_variables(system, requested) == {"A": "1"}
    plain = make_system(*files, texts={KERNEL: make_kernel(program)}, which=which)
    assert choose(plain, KERNEL).why == f"the Jupyter kernel {KERNEL}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it names no command"),
        ("[]", "it names no command"),
        ("[" * 60_000, "it names no command"),
        ('{"argv": "python"}', "it names no command"),
        ('{"argv": []}', "it names no command"),
        ('{"argv": [1]}', "it names no command"),
        ('{"argv": ["\\u0000 "]}', "it names no command"),
        (make_kernel("R"), "starts R, which is no Python"),
        (make_kernel("/gone/bin/python"), "starts /gone/bin/python, which does not exist"),
        (make_kernel("python3.9"), "starts python3.9, which does not exist"),
    ],
)
def test_unusable_kernel_is_refused(text: str, message: str) -> None:
    assert message in get_refusal(make_system(texts={KERNEL: text}), KERNEL)


def test_folder_with_python_is_no_kernel() -> None:
    system = make_system("/env/bin/python", texts={"/env/kernel.json": make_kernel("R")})
    assert choose(system, "/env").path == "/env/bin/python"
    assert selection.read_kernel_variables(system, "/env") == {}
    assert selection.read_kernel_variables(system, "/none.json") == {}
    assert choose(make_system("/x.json2"), "/x.json2").path == "/x.json2"


# ---------------------------------------------------------------- other Pythons


def make_tensorflow(prefix: str, entry: str | None = "tensorflow-2.18.1.dist-info") -> dict[str, str]:
    """Return the files of an environment with TensorFlow."""
    site = f"{prefix}/lib/python3.11/site-packages"
    files = {f"{prefix}/bin/python": "", f"{site}/tensorflow/__init__.py": ""}
    return files if entry is None else {**files, f"{site}/{entry}/METADATA": ""}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (make_tensorflow("/env"), (True, "2.18.1")),
        (make_tensorflow("/env", "tensorflow_gpu-2.4.0.dist-info"), (True, "2.4.0")),
        (make_tensorflow("/env", "tf_nightly-2.21.0.dev1.dist-info"), (True, "2.21.0.dev1")),
        (make_tensorflow("/env", "tensorflow_hub-1.0.dist-info"), (True, None)),
        ({"/env/lib/python3.11/site-packages/tensorflow-2.18.1.dist-info/x": ""}, (False, None)),
        ({"/env/lib/other/site-packages/tensorflow/__init__.py": ""}, (False, None)),
        ({}, (False, None)),
    ],
)
def test_tensorflow_of_an_environment(files: dict[str, str], expected: tuple[bool, str | None]) -> None:
    assert selection._find_tensorflow(make_system(texts=files), "/env") == expected


def test_other_pythons_with_tensorflow() -> None:
    prefixes = (
        "/moved",
        "/usr",
        "/srv/.venv",
        "/srv/venv",
        "/kernel",
        "/conda",
        "/own/versions/3.9",
        "/examined",
    )
    texts: dict[str, str] = {}
    for prefix in prefixes:
        texts |= make_tensorflow(prefix)
    del texts["/srv/venv/bin/python"]
    texts |= {
        "/home/me/.local/share/jupyter/kernels/k/kernel.json": make_kernel("/kernel/bin/python"),
        "/home/me/.local/share/jupyter/kernels/r/kernel.json": make_kernel("/srv/.venv/bin/R"),
        "/examined/share/jupyter/kernels/same/kernel.json": make_kernel("/kernel/bin/python"),
        "/home/me/.conda/environments.txt": "relative\n/conda/\n/examined\n",
        "/own/versions/3.8/x": "",
    }
    env = {"HOME": "/home/me", "PYENV_ROOT": "/own"}
    system = make_system(texts=texts, env=env)
    lost = UnusableEnvironment("VIRTUAL_ENV", "/old", "gone", moved_to=("/moved",))
    choice = PythonChoice("/examined/bin/python", "x", lost=(lost,), on_path="/usr/bin/python")
    assert selection.find_other_pythons(system, choice, "/examined") == (
        OtherPython("/moved/bin/python", "made as /old", "2.18.1"),
        OtherPython("/usr/bin/python", "what the shell finds", "2.18.1"),
        OtherPython("/srv/.venv/bin/python", ".venv in the working folder", "2.18.1"),
        OtherPython("/kernel/bin/python", "the Jupyter kernel `k`", "2.18.1"),
        OtherPython("/conda/bin/python", "a conda environment", "2.18.1"),
        OtherPython("/own/versions/3.9/bin/python", "pyenv", "2.18.1"),
    )
    plain = PythonChoice("/x/bin/python", "x")
    of_an_image = make_system(texts=make_tensorflow("/opt/tensorflow"), cwd="/")
    assert selection.find_other_pythons(of_an_image, plain, "") == (
        OtherPython("/opt/tensorflow/bin/python", "/opt/tensorflow", "2.18.1"),
    )
    assert selection.find_other_pythons(make_system(texts=texts, cwd="/"), plain, "") == ()
    pyenv = make_system(
        texts=make_tensorflow("/home/me/.pyenv/versions/1"), env={"HOME": "/home/me"}, cwd="/x"
    )
    assert [found.path for found in selection.find_other_pythons(pyenv, plain, "")] == [
        "/home/me/.pyenv/versions/1/bin/python"
    ]
