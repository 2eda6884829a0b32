"""The loader model on recorded machines: the cases that a compiler does not produce easily."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfdoctor.core.facts import FOLDER_DENIED, NOEXEC_ERROR, PERMISSION_DENIED
from tfdoctor.probes import loader
from tfdoctor.probes.loader import FileCache, LoaderProcess, list_hwcap_folders, split_library_path
from tfdoctor.system import RecordedSystem
from tfdoctor.system.elf import ElfProblem

LEVEL_2 = loader.HWCAP_LEVELS["x86-64-v2"]
LEVEL_3 = LEVEL_2 | loader.HWCAP_LEVELS["x86-64-v3"]
LEVEL_4 = LEVEL_3 | loader.HWCAP_LEVELS["x86-64-v4"]
INTEL = {"GenuineIntel", "lm"}


def make_process(elf: dict[str, Any], *, env: dict[str, str] | None = None, **options: Any) -> LoaderProcess:
    """Return the process of /bin/python on a machine with these ELF objects."""
    host = {
        key: options.pop(key)
        for key in ("errors", "links", "directories", "cwd", "unresolved")
        if key in options
    }
    executable = options.pop("executable", "/bin/python")
    tables = {"elf": {"/bin/python": {}, **elf}, **host}
    system = RecordedSystem({"host.json": json.dumps({"schema_version": 1, **tables}).encode()})
    return LoaderProcess(system, executable, env or {}, **options)


def open_library(
    process: LoaderProcess, name: str = "libx.so.1", caller: str | None = None, **options: Any
) -> tuple[str | None, str]:
    """Return the path and the error of dlopen, from the main program or another object."""
    link = process.add_object(caller) if caller is not None else process.python_library
    resolution = process.dlopen(name, link, **options)
    return resolution.path, resolution.error


@pytest.mark.parametrize(
    ("value", "folders"),
    [(None, ()), ("", ()), ("/a:/b;/c", ("/a", "/b", "/c")), (":/a", ("./", "/a"))],
)
def test_library_path_is_split(value: str | None, folders: tuple[str, ...]) -> None:
    assert split_library_path(value) == folders


@pytest.mark.parametrize(
    ("flags", "glibc", "folders"),
    [
        (LEVEL_4, "2.37", ["glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2"]),
        (LEVEL_3, "2.37.1", ["glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2"]),
        (LEVEL_3 - {"popcnt"}, "2.37", []),
        (LEVEL_2, "2.33", ["glibc-hwcaps/x86-64-v2"]),
        (LEVEL_2, "2.32", []),
        (LEVEL_2, None, []),
        (LEVEL_2, "2", []),
        (LEVEL_2, "2.x", []),
        ({"lm"}, "2.36", ["tls/x86_64", "tls", "x86_64"]),
        ({"lm"}, "2.37", []),
        (INTEL | loader.HASWELL_FLAGS, "2.17", [
            "tls/haswell/x86_64", "tls/haswell", "tls/x86_64", "tls", "haswell/x86_64", "haswell", "x86_64",
        ]),
        ({"lm"} | loader.HASWELL_FLAGS, "2.17", ["tls/x86_64", "tls", "x86_64"]),
        (INTEL | loader.AVX512_1_FLAGS, "2.17", [
            "tls/avx512_1/x86_64", "tls/avx512_1", "tls/x86_64", "tls", "avx512_1/x86_64", "avx512_1", "x86_64",
        ]),
        ({"lm"} | loader.AVX512_1_FLAGS, "2.17", ["tls/x86_64", "tls", "x86_64"]),
    ],
)  # fmt: skip
def test_hardware_subfolders(flags: Any, glibc: str | None, folders: list[str]) -> None:
    assert list(list_hwcap_folders(flags, glibc)) == folders


def test_hardware_subfolder_comes_before_its_folder() -> None:
    elf = {"/a/glibc-hwcaps/x86-64-v2/libx.so.1": {}, "/a/libx.so.1": {}, "/b/libx.so.1": {}}
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/a"}, cpu_flags=LEVEL_2, glibc="2.35")
    assert open_library(process) == ("/a/glibc-hwcaps/x86-64-v2/libx.so.1", "")
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/b:/a"}, cpu_flags=LEVEL_2, glibc="2.35")
    assert open_library(process) == ("/b/libx.so.1", "")


# ---------------------------------------------------------------- the search path

EVERYWHERE = {
    f"{folder}/libx.so.1": {} for folder in ("/rpath", "/main", "/env", "/runpath", "/lib64", "/usr/lib")
}


@pytest.mark.parametrize(
    ("caller", "main", "env", "path"),
    [
        ({"rpath": "/rpath"}, {"rpath": "/main"}, "/env", "/rpath/libx.so.1"),
        ({}, {"rpath": "/main"}, "/env", "/main/libx.so.1"),
        ({}, {"rpath": "/main", "runpath": "/runpath"}, "/env", "/env/libx.so.1"),
        ({"rpath": "/rpath", "runpath": "/runpath"}, {"rpath": "/main"}, "", "/runpath/libx.so.1"),
        ({"runpath": "/runpath"}, {"rpath": "/main"}, "/env", "/env/libx.so.1"),
        ({}, {"runpath": "/runpath"}, "", "/lib64/libx.so.1"),
        ({"nodeflib": True}, {}, "", None),
        ({"runpath": "/none:/runpath"}, {}, "", "/runpath/libx.so.1"),
        ({"runpath": "$ORIGIN/../runpath/"}, {}, "", "/own/../runpath/libx.so.1"),
        ({"runpath": "${ORIGIN}/../runpath"}, {}, "", "/own/../runpath/libx.so.1"),
        ({"runpath": "/usr/$LIB/../lib:/usr/lib"}, {}, "", "/usr/lib64/../lib/libx.so.1"),
        ({}, {}, "$ORIGIN/../env", "/bin/../env/libx.so.1"),
    ],
)
def test_order_of_the_search(
    caller: dict[str, Any], main: dict[str, Any], env: str, path: str | None
) -> None:
    elf = {**EVERYWHERE, "/bin/python": main, "/own/libcaller.so": caller, "/bin/../env/libx.so.1": {}}
    process = make_process(elf, env={"LD_LIBRARY_PATH": env})
    assert open_library(process, caller="/own/libcaller.so")[0] == path


def test_working_folder_is_searched_for_an_empty_entry() -> None:
    elf = {"/srv/libx.so.1": {}, "/srv/sub/liby.so.1": {}, "/own/libcaller.so": {"runpath": ":/none"}}
    process = make_process(elf, cwd="/srv", env={"LD_LIBRARY_PATH": "./sub/"})
    assert open_library(process, caller="/own/libcaller.so") == ("/srv/libx.so.1", "")
    assert open_library(process, "liby.so.1") == ("/srv/sub/liby.so.1", "")
    assert open_library(process, "./sub/liby.so.1") == ("/srv/sub/liby.so.1", "")
    assert process.library_entries == (("./sub/", "/srv/sub"),)
    assert make_process({}, cwd="/", env={"LD_LIBRARY_PATH": ":"}).library_folders == ("/", "/")


def test_empty_run_path_is_ignored() -> None:
    for name in ("runpath", "rpath"):
        process = make_process({"/srv/libx.so.1": {}, "/own/libcaller.so": {name: ""}}, cwd="/srv")
        assert open_library(process, caller="/own/libcaller.so")[0] is None


def test_multiarch_folders_are_the_defaults_if_they_exist() -> None:
    elf = {"/usr/lib/x86_64-linux-gnu/libx.so.1": {}, "/lib64/libx.so.1": {}}
    process = make_process(elf)
    assert open_library(process) == ("/usr/lib/x86_64-linux-gnu/libx.so.1", "")
    assert "/lib64" not in process.default_folders


# ---------------------------------------------------------------- files that cannot be used

DENIED = ["read", 13, "Permission denied"]


@pytest.mark.parametrize(
    ("first", "options", "path", "error", "attempt"),
    [
        ({"problem": ElfProblem.WRONG_CLASS.value, "detail": "d"}, {}, "/b/libx.so.1", "", True),
        ({"problem": ElfProblem.WRONG_MACHINE.value}, {}, "/b/libx.so.1", "", True),
        ({"problem": ElfProblem.TOO_SHORT.value}, {}, None, "/a/libx.so.1: file too short", True),
        ({"problem": ElfProblem.NO_DYNAMIC_SECTION.value}, {}, None, "libx.so.1: ", True),
        ({"problem": ElfProblem.TRUNCATED.value}, {}, None, "/a/libx.so.1: ", True),
        ({"errno": 13, "strerror": "Permission denied"}, {}, "/b/libx.so.1", "", True),
        ({"errno": 20, "strerror": "Not a directory"}, {}, "/b/libx.so.1", "", False),
        ({"errno": 40, "strerror": "Too many levels"}, {}, "/lib64/libx.so.1", "", True),
        ({"errno": 21, "strerror": "Is a directory"}, {}, None, "/a/libx.so.1: cannot read file data: Is a directory", True),
        ({"program": "position-independent executable"}, {}, None, "libx.so.1: cannot dynamically load position", True),
        ({}, {"noexec": ("/a/",)}, None, f"/a/libx.so.1: {NOEXEC_ERROR}", True),
        ({}, {"noexec": ("/",)}, None, f"/a/libx.so.1: {NOEXEC_ERROR}", True),
        ({}, {"noexec": ("/aa",)}, "/a/libx.so.1", "", True),
    ],
)  # fmt: skip
def test_unusable_file_skips_or_ends_the_search(
    first: dict[str, Any], options: dict[str, Any], path: str | None, error: str, attempt: bool
) -> None:
    elf = {"/a/libx.so.1": first, "/b/libx.so.1": {}, "/lib64/libx.so.1": {}}
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/a:/b"}, **options)
    resolution = process.dlopen("libx.so.1", process.python_library)
    assert resolution.path == path
    assert resolution.error.startswith(error)
    assert bool(error) is bool(resolution.error)
    assert (resolution.tried[0].path == "/a/libx.so.1") is attempt
    assert resolution.crash is (first.get("problem") == ElfProblem.TRUNCATED.value)
    if path is not None:
        assert resolution.via == ("the default folders" if path.startswith("/lib64") else "LD_LIBRARY_PATH")


def test_only_unusable_file_names_the_reason() -> None:
    for problem, error in (
        (ElfProblem.WRONG_CLASS, "wrong ELF class: ELFCLASS32"),
        (ElfProblem.WRONG_MACHINE, loader.NOT_FOUND),
    ):
        process = make_process({"/a/libx.so.1": {"problem": problem.value}}, env={"LD_LIBRARY_PATH": "/a"})
        assert open_library(process) == (None, f"libx.so.1: {error}")
    process = make_process(
        {"/a/libx.so.1": {"problem": ElfProblem.WRONG_CLASS.value, "detail": "ELFCLASS32"}}
    )
    assert open_library(process, "/a/libx.so.1") == (None, "/a/libx.so.1: wrong ELF class: ELFCLASS32")
    assert open_library(process, "/none.so") == (
        None, "/none.so: cannot open shared object file: No such file or directory",
    )  # fmt: skip


def test_denied_file_and_denied_folder_differ() -> None:
    denied = {"errno": 13, "strerror": "Permission denied"}
    process = make_process({"/a/libx.so.1": denied}, env={"LD_LIBRARY_PATH": "/a"})
    assert process.dlopen("libx.so.1", None).tried[0].problem == PERMISSION_DENIED
    errors = {"/closed": ["list", 13, "Permission denied"], "/odd": ["list", 5, "I/O"]}
    process = make_process(
        {"/closed/libx.so.1": denied}, env={"LD_LIBRARY_PATH": "/odd:/closed"}, errors=errors
    )
    assert [attempt.problem for attempt in process.dlopen("libx.so.1", None).tried] == [FOLDER_DENIED]


def test_main_program_that_is_no_elf_object() -> None:
    elf = {"/bin/python": {"problem": ElfProblem.BAD_MAGIC.value}, "/env/libx.so.1": {}}
    process = make_process(elf, env={"LD_LIBRARY_PATH": "$ORIGIN:/env", "LD_PRELOAD": "libx.so.1"})
    assert process.python_library is None
    assert "its RPATH is not known" in process.notes[0]
    assert process.library_folders == ("/env",)


# ---------------------------------------------------------------- loaded objects


def test_loaded_object_is_used_again() -> None:
    elf = {
        "/env/libx.so.1": {"soname": "libreal.so.2", "device_inode": [1, 5]},
        "/env/libsame.so": {"device_inode": [1, 5]},
        "/env/libzero.so": {"device_inode": [0, 0]},
        "/env/libother.so": {"device_inode": [0, 0]},
    }
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"})
    first = process.dlopen("libx.so.1", None)
    assert first.via == "LD_LIBRARY_PATH"
    for name in ("libx.so.1", "libreal.so.2", "/env/libx.so.1"):
        resolution = process.dlopen(name, None)
        assert (resolution.path, resolution.via) == ("/env/libx.so.1", "already in the process")
    count = len(process.loaded_objects)
    assert process.dlopen("libsame.so", None).path == "/env/libx.so.1"
    assert len(process.loaded_objects) == count
    assert process.dlopen("libzero.so", None).path == "/env/libzero.so"
    assert process.dlopen("libother.so", None).path == "/env/libother.so"
    found = process.find_loaded_object("/env/../env/libx.so.1")
    assert found is not None
    assert found.path == "/env/libx.so.1"
    assert process.find_loaded_object("/none") is None


def test_preloaded_objects() -> None:
    elf = {"/env/libx.so.1": {}, "/abs/libp.so": {}}
    process = make_process(
        elf, env={"LD_LIBRARY_PATH": "/env", "LD_PRELOAD": "/abs/libp.so:libx.so.1 libnone.so"}
    )
    assert process.preloaded_names == ("/abs/libp.so", "libx.so.1")
    assert process.notes[-1] == f"LD_PRELOAD: libnone.so: {loader.NOT_FOUND}; the loader ignores it"
    assert process.dlopen("libx.so.1", None).via == "LD_PRELOAD"


def test_missing_dependency_of_the_main_program_is_noted() -> None:
    process = make_process({"/bin/python": {"needed": ["libnone.so"]}})
    assert process.notes[-1] == f"/bin/python: libnone.so: {loader.NOT_FOUND}"


def test_all_missing_dependencies_are_listed() -> None:
    elf = {
        "/env/libx.so.1": {"needed": ["liby.so.1", "libnone.so.1"]},
        "/env/liby.so.1": {"needed": ["libx.so.1", "libgone.so.1", "libnone.so.1"]},
    }
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"})
    before = list(process.loaded_objects)
    resolution = process.dlopen("libx.so.1", None)
    assert resolution.path == "/env/libx.so.1"
    assert resolution.really_missing == ("libnone.so.1", "libgone.so.1")
    assert resolution.needed_by == "/env/libx.so.1"
    assert process.loaded_objects == before  # nothing of a failed dlopen stays
    missing = process.dlopen("libnone.so.1", None)
    assert (missing.path, missing.really_missing, missing.needed_by) == (None, ("libnone.so.1",), None)


def test_number_of_followed_objects_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MAX_OBJECTS", 3)
    elf = {f"/env/lib{number}.so": {"needed": [f"lib{number + 1}.so"]} for number in range(9)}
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"})
    assert open_library(process, "lib0.so") == ("/env/lib0.so", "")
    assert len(process.loaded_objects) == 4
    assert process.notes == ["/env/lib0.so needs more than 3 objects; not all were followed"]
    elf = {"/env/lib0.so": {"needed": ["lib1.so"]}, "/env/lib1.so": {}}
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"})
    assert open_library(process, "lib0.so")[1] == ""
    assert process.notes == []


# ---------------------------------------------------------------- versions and symbols


@pytest.mark.parametrize(
    ("verneed", "verdef", "error"),
    [
        ([["liby.so.1", ["V1"]]], ["V1", "V2"], ""),
        ([["liby.so.1", ["V1", "V3"]]], ["V1", "V2"], "/env/liby.so.1: version `V3' not found (required by /env/libx.so.1)"),
        ([["liby.so.1", ["V1"]]], [], "/env/libx.so.1: undefined symbol: lost"),
        ([["liby.so.1", []]], [], ""),
        ([["libabsent.so.1", ["V9"]]], [], ""),
        ([["liby.so.1", ["V1"]], ["libz.so.1", ["V1"]]], [], "/env/libx.so.1: undefined symbol: lost"),
    ],
)  # fmt: skip
def test_symbol_versions_are_compared(verneed: list[Any], verdef: list[str], error: str) -> None:
    elf = {
        "/env/libx.so.1": {"needed": ["liby.so.1", "libz.so.1"], "verneed": verneed},
        "/env/liby.so.1": {"verdef": verdef},
        "/env/libz.so.1": {"verdef": ["V1"]},
    }
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"}, unresolved={"/env/libx.so.1": ["lost"]})
    path, actual = open_library(process, bind_now=False)
    assert (path, actual) == ("/env/libx.so.1", error)
    if not error:  # it is loaded now, so the symbols are compared in a new process
        process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"}, unresolved={"/env/libx.so.1": ["lost"]})
        assert open_library(process, bind_now=True)[1] == "/env/libx.so.1: undefined symbol: lost"


def test_symbols_of_system_libraries_are_not_compared() -> None:
    process = make_process({"/lib64/libx.so.1": {}}, unresolved={"/lib64/libx.so.1": ["lost"]})
    assert open_library(process) == ("/lib64/libx.so.1", "")


def test_symbols_are_not_compared_in_a_large_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, error in ((2, "/env/libx.so.1: undefined symbol: lost"), (1, "")):
        monkeypatch.setattr(loader, "MAX_BOUND_OBJECTS", limit)
        process = make_process(
            {"/env/libx.so.1": {}}, env={"LD_LIBRARY_PATH": "/env"}, unresolved={"/env/libx.so.1": ["lost"]}
        )
        assert open_library(process)[1] == error


@pytest.mark.parametrize(("is_global", "count"), [(True, 4), (False, 3)])
def test_symbols_of_local_objects_are_seen_by_their_users_only(is_global: bool, count: int) -> None:
    elf = {"/env/libfirst.so": {}, "/env/libx.so.1": {"needed": ["liby.so.1"]}, "/env/liby.so.1": {}}
    unresolved = {f"/env/libx.so.1#{count}": ["seen"]}
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"}, unresolved=unresolved)
    process.dlopen("libfirst.so", None, is_global=is_global)
    assert open_library(process)[1] == "/env/libx.so.1: undefined symbol: seen"
    assert process.dlopen("libx.so.1", None).really_missing == ("libx.so.1",)


def test_name_of_the_object_that_caused_an_error() -> None:
    elf = {"/env/libx.so.1": {"needed": ["liby.so.1"]}, "/env/liby.so.1": {}}
    process = make_process(elf, env={"LD_LIBRARY_PATH": "/env"}, unresolved={"/env/liby.so.1": ["lost"]})
    assert process.dlopen("libx.so.1", None).really_missing == ("liby.so.1",)


# ---------------------------------------------------------------- helpers


def test_python_calls_from_libpython_if_it_is_loaded() -> None:
    elf = {
        "/bin/python": {"needed": ["libpython3.11.so.1.0"]},
        "/lib64/libpython3.11.so.1.0": {},
        "/x/ext.so": {},
    }
    process = make_process(elf)
    assert process.python_library is not None
    assert process.python_library.path == "/lib64/libpython3.11.so.1.0"
    added = process.add_object("/x/ext.so")
    assert added is not None
    assert added.requester is process.python_library
    nested = process.add_object("/x/ext.so", added)
    assert nested is not None
    assert nested.requester is added
    assert process.add_object("/none.so") is None
    assert process.load_extension("/x/ext.so", bind_now=True).path == "/x/ext.so"


def test_folders_of_a_run_path_are_normalized_for_display() -> None:
    elf = {
        "/a/libx.so": {"runpath": "$ORIGIN/../b:/b/:/none:/a", "rpath": "/r"},
        "/b/libr.so": {"rpath": "/b"},
        "/b/libn.so": {},
    }
    process = make_process(elf)
    for path, folders in (("/a/libx.so", ("/b", "/a")), ("/b/libr.so", ("/b",)), ("/b/libn.so", ())):
        link = process.add_object(path)
        assert link is not None
        assert process.list_run_path_folders(link) == folders


def test_processes_of_one_machine_share_their_files() -> None:
    cache = FileCache()
    process = make_process({"/lib64/libx.so.1": {}}, files=cache)
    open_library(process)
    assert process.file_cache is cache
    assert "/lib64/libx.so.1" in cache.elf_by_path
    assert process.cached_paths_by_soname == {}
    assert any(note.startswith("/etc/ld.so.cache: ") for note in process.notes)
    cache.paths_by_soname = {
        "libx.so.1": ("/c/libx.so.1", "/d/libx.so.1"),
        "libd.so.1": ("/lib64/libd.so.1",),
    }
    elf = {"/c/libx.so.1": {}, "/lib64/libd.so.1": {}, "/own/caller.so": {"nodeflib": True}}
    process = make_process(elf, files=FileCache(paths_by_soname=cache.paths_by_soname))
    resolution = process.dlopen("libx.so.1", None)
    assert (resolution.path, resolution.via) == ("/c/libx.so.1", "/etc/ld.so.cache")
    assert open_library(process, "libd.so.1", caller="/own/caller.so")[0] is None
    assert open_library(process, "libd.so.1") == ("/lib64/libd.so.1", "")
