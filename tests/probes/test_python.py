"""The answer of the child process that examines a Python, and the library folders of a machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rules.make_facts import SITE, healthy
from tfdoctor.core.errors import UsageError
from tfdoctor.core.facts import PythonFacts, TensorFlowFacts, Unknown, value_of
from tfdoctor.core.facts.python import PythonChoice, StartupFailure, UnusablePython
from tfdoctor.probes import loading, python
from tfdoctor.system import CommandResult, RecordedSystem
from tfdoctor.system.elf import ElfProblem


def make_system(**host: Any) -> RecordedSystem:
    """Return a recorded machine with these tables of host.json."""
    return RecordedSystem({"host.json": json.dumps({"schema_version": 1, **host}).encode()})


def make_python(**raw: Any) -> PythonFacts:
    return python._make_python_facts(raw, "asked")


# ---------------------------------------------------------------- the interpreter


@pytest.mark.parametrize(
    ("raw", "field", "expected"),
    [
        ({"prefix": "/e", "base_prefix": "/usr"}, "virtual", True),
        ({"prefix": "/e", "base_prefix": "/e"}, "virtual", False),
        ({"prefix": "/e"}, "virtual", False),
        ({"prefix": "/e"}, "base_prefix", "/e"),
        ({"prefix": "/e", "conda": True}, "conda_prefix", "/e"),
        ({"prefix": "/e"}, "conda_prefix", None),
        ({}, "bits", 64),
        ({"version": "3.11.4", "implementation": "CPython"}, "tag", "cp311"),
        ({"version": "3", "implementation": "PyPy"}, "tag", "pp3"),
        ({"pip": True, "ensurepip": 1}, "pip", True),
        ({"pip": True, "ensurepip": 1}, "ensurepip", None),
        ({"user_site": ""}, "user_site", None),
        ({"shadows": [["a", "b", "c"], ["short"], "abc"]}, "shadows", (("a", "b", "c"),)),
        ({"shadows": "text"}, "shadows", ()),
        ({"unwritable": [["/a", "me"], ["/a"]]}, "unwritable", (("/a", "me"),)),
        ({"noexec": [["/a", "/"], []]}, "noexec", (("/a", "/"),)),
        ({"absent": ["A_b"]}, "absent", ("a-b",)),
        ({"mapped": None, "modules": None, "carried": None}, "mapped", ()),
    ],
)
def test_field_of_the_interpreter(raw: dict[str, Any], field: str, expected: Any) -> None:
    value = getattr(make_python(**raw), field)
    if field == "shadows":
        value = tuple((shadow.name, shadow.taken, shadow.hidden) for shadow in value)
    assert value == expected


def test_distributions_and_files() -> None:
    facts = make_python(
        distributions=[
            {
                "name": "A_b.C", "version": "1\n", "location": SITE, "installer": "pip", "requires": ["x"], "lost": ["l"],
                "differs": [["p", "cut"], ["p"]], "changed": [{"path": "c", "recorded": 1, "size": 2, "cut": 1}],
                "files": ["f"], "pins": ["p"], "real_location": "/real",
            },
            {},
            "text",
        ],
        conda_packages=[{"name": "cudnn", "version": "9", "build": "b"}, 5],
        shared=[{"path": "s", "location": SITE, "owners": [["A_b", "1"]], "now": ["A_b", "1"]}, {"now": None}],
        closed=[["/a", "/b", "me", True, "700"], ["/a", "/b", None, None, None], ["/a"]],
    )  # fmt: skip
    first, empty = facts.distributions
    assert (first.name, first.version, first.installer, first.requires, first.lost) == (
        "a-b-c",
        "1",
        "pip",
        ("x",),
        ("l",),
    )
    assert [(difference.path, difference.what) for difference in first.differs] == [("p", "cut")]
    assert [(file.path, file.recorded, file.size, file.cut, file.foreign) for file in first.changed] == [
        ("c", 1, 2, True, False)
    ]
    assert (first.files, first.pins, first.real_location) == (("f",), ("p",), "/real")
    assert (empty.name, empty.installer, empty.real_location) == ("", None, "")
    assert [package.name for package in facts.conda_packages] == ["cudnn"]
    assert [(file.owners, file.now) for file in facts.shared] == [((("a-b", "1"),), ("a-b", "1")), ((), None)]
    assert [(path.owner, path.own, path.mode) for path in facts.closed] == [
        ("me", True, "700"),
        (None, None, None),
    ]


def make_answer(
    *, header: str = "", versions: tuple[tuple[str, str, str], ...] = (), **raw: Any
) -> TensorFlowFacts:
    facts = make_python(
        distributions=[
            {"name": name, "version": version, "location": location} for name, version, location in versions
        ],
        conda_packages=raw.pop("conda", []),
    )
    return python._make_tensorflow_facts(
        {"package_dir": f"{SITE}/tensorflow", "version_header": header, **raw}, facts, None
    )


HEADER = "#define TF_MAJOR_VERSION 2\n#define TF_MINOR_VERSION 18\n#define TF_PATCH_VERSION 1\n"
CPU = ("tensorflow-cpu", "2.18.1", SITE)
GPU = ("tensorflow", "2.17.0", SITE)


@pytest.mark.parametrize(
    ("header", "versions", "distribution", "version"),
    [
        ("", (GPU,), "tensorflow", "2.17.0"),
        (HEADER, (GPU,), "tensorflow", "2.18.1"),
        (HEADER, (GPU, CPU), "tensorflow-cpu", "2.18.1"),
        (HEADER, (GPU, ("tensorflow-cpu", "2.18.1", "/other")), "tensorflow", "2.18.1"),
        (HEADER, (("tensorflow", "2.18.1.post1", "/other"),), "tensorflow", "2.18.1.post1"),
        (
            HEADER + '#define TF_VERSION_SUFFIX "-rc0"\n',
            (("tensorflow", "2.18.1rc0", SITE),),
            "tensorflow",
            "2.18.1rc0",
        ),
        (HEADER, (("numpy", "2.18.1", SITE),), None, "2.18.1"),
        (HEADER.replace("PATCH", "OTHER"), (), None, None),
        ("", (GPU, CPU), "tensorflow", "2.17.0"),
    ],
)
def test_distribution_and_version_of_tensorflow(
    header: str, versions: tuple[tuple[str, str, str], ...], distribution: str | None, version: str | None
) -> None:
    tensorflow = make_answer(header=header, versions=versions)
    assert (tensorflow.distribution, tensorflow.version) == (distribution, version)


def test_other_fields_of_tensorflow() -> None:
    conda = [
        {"name": "numpy", "version": "1", "build": "n"},
        {"name": "tensorflow-base", "version": "2", "build": "mkl"},
    ]
    tensorflow = make_answer(conda=conda, missing=["a"], plugins=None, core_dir="/core")
    assert (tensorflow.conda_build, tensorflow.missing_files, tensorflow.plugins, tensorflow.core_dir) == (
        "mkl",
        ("a",),
        (),
        "/core",
    )
    assert (make_answer().conda_build, make_answer().core_dir, make_answer().shadowed_by) == (
        None,
        f"{SITE}/tensorflow",
        None,
    )


# ---------------------------------------------------------------- a Python that does not answer


@pytest.mark.parametrize(
    ("kind", "is_requested", "files", "is_refused"),
    [
        ("rubbish", True, {}, True),
        ("rubbish", False, {}, False),
        ("site", True, {}, False),
        ("silent", True, {}, False),
        ("rubbish", True, {"/e/pyvenv.cfg": ""}, False),
        ("rubbish", True, {"/e/conda-meta/history": ""}, False),
    ],
)
def test_requested_program_that_is_no_python_is_refused(
    kind: str, is_requested: bool, files: dict[str, str], is_refused: bool
) -> None:
    failure = StartupFailure(kind, "/e/bin/python", "prints rubbish", said="hello", detail="detail")
    arguments = (
        make_system(files=files),
        PythonChoice("/e/bin/python", "asked"),
        CommandResult((), 1),
        failure,
        "d",
    )
    if is_refused:
        with pytest.raises(UsageError, match="is not a Python") as caught:
            python._make_unanswered_fact(*arguments, is_requested=is_requested)
        assert caught.value.hint == "It said: hello"
    else:
        fact = python._make_unanswered_fact(*arguments, is_requested=is_requested)
        assert isinstance(fact, UnusablePython)
        assert fact.why == "/e/bin/python prints rubbish: detail: hello"
    slow = python._make_unanswered_fact(*arguments[:3], None, "is slow", is_requested=True)
    assert slow == Unknown("/e/bin/python is slow", "/e/bin/python")


# ---------------------------------------------------------------- libraries

TENSORFLOW = value_of(healthy().tensorflow)
PYTHON = value_of(healthy().python)
assert TENSORFLOW is not None
assert PYTHON is not None
PYTHON = replace(PYTHON, executable="/env/bin/python", real_executable="/env/bin/python", glibc="2.36")
OWN = {"/env/bin/python": {}, TENSORFLOW.framework: {}, TENSORFLOW.pywrap: {"needed": []}}


def probe_loading(
    elf: dict[str, Any], sonames: tuple[str, ...], *, env: dict[str, str] | None = None, **options: Any
) -> Any:
    """Return the loader facts of a machine with these objects."""
    host = options.pop("host", {})
    system = make_system(elf={**OWN, **elf}, env=env or {}, **host)
    facts = options.pop("python", PYTHON)
    tensorflow = options.pop("tensorflow", TENSORFLOW)
    return loading.probe(
        system,
        facts,
        tensorflow,
        sonames=sonames,
        caller=options.pop("caller", "framework"),
        cpu_flags=(),
        **options,
    )


def test_only_glibc_is_modelled() -> None:
    for changes in ({"platform": "win-amd64"}, {"glibc": None}):
        assert isinstance(probe_loading({}, (), python=replace(PYTHON, **changes)), Unknown)
    missing = {key: {"problem": ElfProblem.TOO_SHORT.value} for key in OWN}
    assert isinstance(probe_loading(missing, ()), Unknown)


@pytest.mark.parametrize(
    ("caller", "elf", "expected"),
    [
        ("framework", {}, "framework"),
        ("pywrap", {}, "pywrap"),
        ("framework", {"framework": {"problem": ElfProblem.TOO_SHORT.value}}, "pywrap"),
        ("pywrap", {"pywrap": {"problem": ElfProblem.TOO_SHORT.value}}, "framework"),
    ],
)
def test_object_that_opens_the_libraries(caller: str, elf: dict[str, Any], expected: str) -> None:
    paths = {"framework": TENSORFLOW.framework, "pywrap": TENSORFLOW.pywrap}
    fact = probe_loading({paths[name]: entry for name, entry in elf.items()}, (), caller=caller)
    assert fact.value.caller == paths[expected]
    assert bool(fact.value.import_needs) is (elf.keys() == {"pywrap"})


def test_needs_of_libraries_outside_the_search_path() -> None:
    """Where each wheel has its own folder, the RUNPATH of a library does not lead to what it needs."""
    solver, jit = "/w/solver/nvidia/cusolver/lib", "/w/jit/nvidia/nvjitlink/lib"
    elf = {
        f"{solver}/libcusolver.so.11": {"needed": ["libnvJitLink.so.12"]},
        f"{jit}/libnvJitLink.so.12": {},
    }
    facts = replace(PYTHON, sys_path=("/w/solver", "/w/jit"))
    loader = probe_loading(elf, ("libcusolver.so.11",), python=facts).value
    assert loader.found_needs == ("libnvJitLink.so.12",)
    assert {file.path for file in loader.found} == {path for path in elf if path.startswith("/w/")}
    beside = {**elf, f"{solver}/libcusolver.so.11": {"needed": ["libnvJitLink.so.12"], "runpath": jit}}
    assert probe_loading(beside, ("libcusolver.so.11",), python=facts).value.found_needs == ()


def test_variables_of_the_examined_python_replace_those_of_the_process() -> None:
    elf = {"/own/libx.so.1": {}, "/other/libx.so.1": {}}
    for variables, path in (
        (None, "/own/libx.so.1"),
        ({}, None),
        ({"LD_LIBRARY_PATH": "/other"}, "/other/libx.so.1"),
    ):
        fact = probe_loading(elf, ("libx.so.1",), env={"LD_LIBRARY_PATH": "/own"}, variables=variables)
        assert fact.value.resolutions[0].path == path


CUDNN, INCLUDE = "/usr/lib64/libcudnn.so.9", "/usr/include"


def make_header(*numbers: int) -> str:
    """Return a header of cuDNN with the first of its three numbers."""
    names = ("MAJOR", "MINOR", "PATCHLEVEL")
    return "".join(f"#define CUDNN_{name} {number}\n" for name, number in zip(names, numbers, strict=False))


@pytest.mark.parametrize(
    ("soname", "host", "version", "real"),
    [
        ("libcudnn.so.9", {"links": {CUDNN: f"{CUDNN}.1.0"}}, "9.1.0", f"{CUDNN}.1.0"),
        ("libcudnn.so.9", {"files": {f"{INCLUDE}/cudnn_version.h": make_header(9, 2, 3)}}, "9.2.3", ""),
        (
            "libcudnn.so.9",
            {"files": {f"{INCLUDE}/cudnn_version.h": make_header(9), f"{INCLUDE}/cudnn.h": make_header(9, 5)}},
            "9.5", "",
        ),
        ("libcudnn.so.9", {}, None, ""),
        ("libcublas.so.12", {"files": {f"{INCLUDE}/cudnn.h": make_header(9, 5)}}, None, ""),
    ],
)  # fmt: skip
def test_version_of_a_library_from_its_name_or_header(
    soname: str, host: dict[str, Any], version: str | None, real: str
) -> None:
    elf = {f"/usr/lib64/{soname}": {}, f"{CUDNN}.1.0": {}}
    resolution = probe_loading(elf, (soname,), host=host).value.resolutions[0]
    assert (resolution.version, resolution.real) == (version, real)


def test_results_without_entries_of_the_variables() -> None:
    elf = {
        "/a/libx.so.1": {"problem": ElfProblem.TOO_SHORT.value},
        "/b/liby.so.1": {},
        "/usr/lib64/libx.so.1": {},
        "/p/libp.so": {},
        TENSORFLOW.framework: {},
    }
    env = {"LD_LIBRARY_PATH": "/a:/b:/unused", "LD_PRELOAD": "/p/libp.so"}
    facts = probe_loading(elf, ("libx.so.1", "liby.so.1"), env=env).value
    assert [(attempt.variable, attempt.entries) for attempt in facts.without] == [
        ("LD_LIBRARY_PATH", ("/a",)),
        ("LD_LIBRARY_PATH", ("/b",)),
        ("LD_LIBRARY_PATH", ("/a", "/b")),
        ("LD_PRELOAD", ("/p/libp.so",)),
    ]
    first, second = facts.without[0], facts.without[1]
    assert first.resolutions[0].path == "/usr/lib64/libx.so.1"
    assert not second.resolutions[0].ok
    assert [(library.soname, library.path, library.other) for library in first.instead] == [
        ("libx.so.1", "/a/libx.so.1", "/usr/lib64/libx.so.1")
    ]
    assert [(library.soname, library.other) for library in second.instead] == [("liby.so.1", None)]


def test_entries_are_removed_if_the_import_fails() -> None:
    pywrap = {TENSORFLOW.pywrap: {"needed": ["libx.so.1"]}, "/usr/lib64/libx.so.1": {}}
    elf = {**pywrap, "/a/libx.so.1": {"problem": ElfProblem.TOO_SHORT.value}}
    facts = probe_loading(elf, (), env={"LD_LIBRARY_PATH": "/a"}).value
    assert [need.error for need in facts.import_needs] == ["/a/libx.so.1: file too short"]
    assert [attempt.import_needs for attempt in facts.without] == [()]


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"LD_LIBRARY_PATH": "/a"}, 1),
        ({"LD_PRELOAD": "/a/libcuda.so.1"}, 1),
        ({"LD_LIBRARY_PATH": "/b"}, 0),
        ({}, 0),
    ],
)
def test_entries_are_removed_if_the_driver_comes_from_them(env: dict[str, str], count: int) -> None:
    elf = {
        "/a/libcuda.so.1": {"soname": "libcuda.so.1"},
        "/b/libx.so.1": {},
        "/usr/lib64/libcuda.so.1": {},
        "/usr/lib64/libx.so.1": {},
    }
    assert len(probe_loading(elf, ("libcuda.so.1", "libx.so.1"), env=env).value.without) == count


def test_removed_entries() -> None:
    assert loading._list_removals(()) == []
    assert loading._list_removals(("a", "a")) == [("a",)]
    assert loading._list_removals(tuple("abcdef")) == [("a",), ("b",), ("c",), ("d",), tuple("abcdef")]
    assert loading._remove_entries("LD_PRELOAD", "a b:c", ("b",)) == "a c"
    assert loading._remove_entries("LD_LIBRARY_PATH", "a:b;c", ("b",)) == "a:c"


def test_installed_libraries_of_all_folders() -> None:
    files = (
        f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9",
        f"{SITE}/nvidia/cudnn/lib/libcudnn_ops.so.9",
        f"{SITE}/torch/lib/libcudnn.so.8",
        "/conda/lib/libcudnn.so.7",
        "/path/libcudnn.so.9",
        "/usr/local/cuda-12/lib64/libcudnn.so.9.1.0",
        "/usr/local/other/lib64/libcudnn.so.9",
        "/usr/lib64/libcudnn.so",
        "/usr/lib64/libcuda.so.1",
        "/more/dist-packages/torch/lib/libcudnn.so.5",
        "/more/lib/torch/lib/libcudnn.so.4",
    )
    facts = replace(PYTHON, conda_prefix="/conda", sys_path=(SITE, "/more/dist-packages", "/more/lib"))
    found = probe_loading(
        {key: {} for key in files},
        ("libcudnn.so.9", "libcuda.so.1"),
        python=facts,
        env={"LD_LIBRARY_PATH": "/path"},
    ).value.found
    assert [(library.path, library.package) for library in found] == [
        (f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn"),
        (f"{SITE}/torch/lib/libcudnn.so.8", "torch"),
        ("/more/dist-packages/torch/lib/libcudnn.so.5", "torch"),
        ("/more/lib/torch/lib/libcudnn.so.4", "torch"),  # pip install --target, on PYTHONPATH
        ("/conda/lib/libcudnn.so.7", "conda"),
        ("/path/libcudnn.so.9", None),
        ("/usr/local/cuda-12/lib64/libcudnn.so.9.1.0", "/usr/local/cuda-12"),
    ]
    assert probe_loading({}, ("libcuda.so.1", "text")).value.found == ()


@pytest.mark.parametrize(
    ("path", "env"),
    [
        ("/data/sw/cuda-11.2/lib64", {"PATH": "/usr/bin:/data/sw/cuda-11.2/bin"}),
        ("/data/toolkit/lib64", {"CUDA_HOME": "/data/toolkit/"}),
        ("/data/cudnn/lib", {"CUDNN_PATH": "/data/cudnn"}),
        ("/opt/cuda-11.2/lib64", {}),
        ("/srv/u/cuda/lib64", {"HOME": "/srv/u"}),
    ],
)
def test_libraries_of_a_toolkit_that_is_elsewhere(path: str, env: dict[str, str]) -> None:
    files: dict[str, Any] = {f"{path}/libcudnn.so.8": {}}
    found = probe_loading(files, ("libcudnn.so.8",), env=env).value.found
    assert [library.path for library in found] == [f"{path}/libcudnn.so.8"]
    unnamed = probe_loading({"/data/else/lib64/libcudnn.so.8": {}}, ("libcudnn.so.8",), env=env).value.found
    assert unnamed == ()


def test_objects_that_python_has_loaded_and_plugins() -> None:
    elf = {"/m/ext.so": {"soname": "libx.so.1"}, "/plugin.so": {"needed": ["libnone.so"]}}
    fact = probe_loading(
        elf,
        ("libx.so.1",),
        python=replace(PYTHON, mapped=("/m/ext.so", "/none.so")),
        tensorflow=replace(TENSORFLOW, plugins=("/plugin.so",)),
    )
    assert fact.value.resolutions[0].path == "/m/ext.so"
    assert [plugin.ok for plugin in fact.value.plugins] == [False]
