"""The loader model compared with the real loader: each case is compiled, opened in a child process and predicted.

The child loads `libcaller.so` by its path, as Python loads an extension, and calls its `opener`, which calls
dlopen. The search therefore starts from an object with its own RUNPATH or RPATH, as it does in TensorFlow.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import standins
from probes import loader_oddities as oddities
from tfdoctor.probes.loader import LoaderProcess, list_hwcap_folders, split_library_path
from tfdoctor.probes.loading import _is_same_file
from tfdoctor.probes.machine import parse_cpu_flags
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.skipif(
        platform.system() != "Linux" or shutil.which("cc") is None, reason="needs Linux and cc"
    ),
    pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="glibc's loader is modelled"),
]

CALLER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
static char path[4096];
const char *opener(const char *name) {
    struct link_map *map = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!map) return 0;
    __builtin_strncpy(path, map->l_name, sizeof path - 1);
    return path;
}
const char *failure(void) { return dlerror(); }
"""
CHILD = """
import ctypes, json, sys
caller = ctypes.CDLL(sys.argv[1])
caller.opener.restype = caller.failure.restype = ctypes.c_char_p
answers = []
for name in sys.argv[2:]:
    path = caller.opener(name.encode())
    answers.append([path.decode() if path else None, None if path else caller.failure().decode()])
print(json.dumps(answers))
"""


@dataclass
class LoaderCase:
    """The folder and the search settings of one case."""

    root: Path
    cache: Path
    runpath: str | None = "$ORIGIN/../lib"
    rpath: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None

    def library(self, where: str, **options: Any) -> Path:
        """Compile a library at the path `where` below the root."""
        path = self.root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        return standins.write_library(path, self.cache, **options)

    def bad(self, where: str, content: bytes) -> None:
        """Write a file with this content at the path `where` below the root."""
        path = self.root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def search(self, *folders: str) -> None:
        """Set LD_LIBRARY_PATH to these folders below the root."""
        self.env["LD_LIBRARY_PATH"] = ":".join(str(self.root / folder) for folder in folders)


def plain(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1")
    return ["libx.so.1", "libnowhere.so.1"]


def library_path_before_runpath(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1")
    case.library("first/libx.so.1")
    case.search("first")
    return ["libx.so.1"]


def rpath_before_library_path(case: LoaderCase) -> list[str]:
    case.runpath, case.rpath = None, "$ORIGIN/../lib"
    case.library("lib/libx.so.1")
    case.library("first/libx.so.1")
    case.search("first")
    return ["libx.so.1"]


def needs_are_looked_for_with_their_own_runpath(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1", needs=["liby.so.1"], runpath="$ORIGIN/deep")
    case.library("lib/deep/liby.so.1", needs=["libz.so.1"])
    case.library("lib/deep/libz.so.1")  # the RUNPATH of libx does not apply to the needs of liby
    return ["libx.so.1"]


def rpath_serves_the_needs_of_needs(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1", needs=["liby.so.1"], rpath="$ORIGIN/deep")
    case.library("lib/deep/liby.so.1", needs=["libz.so.1"])
    case.library("lib/deep/libz.so.1")
    return ["libx.so.1"]


def load_by_soname(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1", needs=["liby.so.1"], runpath="$ORIGIN/deep")
    case.library("lib/deep/liby.so.1")
    return ["liby.so.1", "libx.so.1", "liby.so.1"]  # not found at first, then already loaded


def soname_other_than_the_file(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1", soname="libreally.so.9")
    return ["libx.so.1", "libreally.so.9"]


def empty_file_ends_the_search(case: LoaderCase) -> list[str]:
    case.bad("first/libx.so.1", b"")
    case.library("lib/libx.so.1")
    case.search("first")
    return ["libx.so.1"]


def text_file_ends_the_search(case: LoaderCase) -> list[str]:
    case.bad("first/libx.so.1", b"/* GNU ld script */ INPUT ( libx.so.1.2 )" + b" " * 64)
    case.library("lib/libx.so.1")
    case.search("first")
    return ["libx.so.1"]


def directory_ends_the_search(case: LoaderCase) -> list[str]:
    (case.root / "first/libx.so.1").mkdir(parents=True)
    case.library("lib/libx.so.1")
    case.search("first")
    return ["libx.so.1"]


def other_class_is_passed_over(case: LoaderCase) -> list[str]:
    (case.root / "first").mkdir()
    standins.write_wrong_class(case.root / "first/libx.so.1")
    standins.write_wrong_class(case.root / "first/libonly.so.1")
    case.library("lib/libx.so.1")
    case.search("first")
    return ["libx.so.1", "libonly.so.1"]


def other_machine_is_passed_over(case: LoaderCase) -> list[str]:
    (case.root / "first").mkdir()
    standins.write_wrong_machine(case.root / "first/libx.so.1")
    standins.write_wrong_machine(case.root / "first/libonly.so.1")
    case.library("lib/libx.so.1")
    case.search("first")
    return ["libx.so.1", "libonly.so.1"]


def a_library_without_versions_or_symbols(case: LoaderCase) -> list[str]:
    """A missing version causes only a warning, but a missing symbol fails as it is bound."""
    with_version = case.library("build/liby.so.1", symbols=["y@V1"])
    case.library(
        "lib/libx.so.1", needs=["liby.so.1"], imports=["y@V1"], runpath="$ORIGIN", flags=[str(with_version)]
    )
    case.library("lib/liby.so.1", symbols=["y@V1"])
    case.library("first/liby.so.1")
    case.search("first")
    return ["libx.so.1"]


def a_library_without_versions_that_lacks_something_itself(case: LoaderCase) -> list[str]:
    """The library is bound before the object that needs it."""
    with_version = case.library("build/liby.so.1", symbols=["y@V1"])
    case.library(
        "lib/libx.so.1", needs=["liby.so.1"], imports=["y@V1"], runpath="$ORIGIN", flags=[str(with_version)]
    )
    case.library("first/liby.so.1", imports=["gone"])
    case.search("first")
    return ["libx.so.1"]


def links(case: LoaderCase) -> list[str]:
    case.library("store/libx.so.1", needs=["liby.so.1"], runpath="$ORIGIN/near")
    case.library("lib/near/liby.so.1")  # next to the link, not next to the file
    (case.root / "lib/libx.so.1").symlink_to("../store/libx.so.1")
    (case.root / "lib/libdangling.so.1").symlink_to("nowhere")
    (case.root / "lib/libloop.so.1").symlink_to("libloop.so.1")
    return ["libx.so.1", "libdangling.so.1", "libloop.so.1"]


def entries_of_the_path(case: LoaderCase) -> list[str]:
    case.library("here/libx.so.1")
    case.library("there/liby.so.1")
    case.library("semi/libz.so.1")
    case.cwd = case.root / "here"
    case.env["LD_LIBRARY_PATH"] = f":/nowhere:{case.root}/there/;{case.root}/semi"
    return ["libx.so.1", "liby.so.1", "libz.so.1"]


def make_undefined_symbol(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1", needs=["liby.so.1"], runpath="$ORIGIN", imports=["gone", "there"])
    case.library("lib/liby.so.1", symbols=["there"])
    case.library("lib/libfine.so.1", needs=["liby.so.1"], runpath="$ORIGIN", imports=["there"])
    return ["libx.so.1", "libfine.so.1"]


def undefined_in_what_is_needed_too(case: LoaderCase) -> list[str]:
    case.library("lib/libx.so.1", needs=["liby.so.1"], runpath="$ORIGIN", imports=["gone"])
    case.library("lib/liby.so.1", imports=["gone_too"])
    return ["libx.so.1"]


def version_not_defined(case: LoaderCase) -> list[str]:
    newer = case.library("new/liby.so.1", symbols=["f@NEW_2"])
    case.library(
        "lib/libx.so.1", needs=["liby.so.1"], runpath="$ORIGIN", imports=["f@NEW_2"], flags=[str(newer)]
    )
    case.library("lib/liby.so.1", symbols=["f@OLD_1"])
    return ["libx.so.1"]


def make_preloaded(case: LoaderCase) -> list[str]:
    path = case.library("else/anyname.so", soname="libx.so.1")
    case.env["LD_PRELOAD"] = str(path)
    return ["libx.so.1"]


def hardware_folders(case: LoaderCase) -> list[str]:
    for sub in (
        "glibc-hwcaps/x86-64-v2",
        "glibc-hwcaps/x86-64-v3",
        "glibc-hwcaps/x86-64-v4",
        "tls",
        "x86_64",
        "haswell",
    ):
        name = sub.rpartition("/")[2].replace("-", "")
        case.library(f"first/{sub}/lib{name}.so.1")
        case.library(f"first/{sub}/libx.so.1")
    case.library("first/libx.so.1")
    case.search("first")
    return [
        "libx.so.1",
        "libx8664v2.so.1",
        "libx8664v3.so.1",
        "libx8664v4.so.1",
        "libtls.so.1",
        "libx86_64.so.1",
        "libhaswell.so.1",
    ]


def system_libraries(_: LoaderCase) -> list[str]:
    return ["libc.so.6", "libz.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libcrypt.so.1", "libutil.so.1"]


def programs_under_a_library_s_name(case: LoaderCase) -> list[str]:
    oddities.compile_program(case.root / "lib/libpie.so.1", "-pie", "-fPIE")
    oddities.compile_program(case.root / "lib/libfixed.so.1", "-no-pie")
    case.library("lib/libneeds.so.1", needs=["libpie.so.1"], runpath="$ORIGIN")
    oddities.compile_program(case.root / "first/libx.so.1", "-no-pie")
    case.library("lib/libx.so.1")  # later in the search path, never reached
    case.search("first")
    return ["libpie.so.1", "libfixed.so.1", "libneeds.so.1", "libx.so.1"]


def dynamic_section_of_another_size(case: LoaderCase) -> list[str]:
    """The loader reads the section up to DT_NULL, whatever size the header has."""
    names = []
    for number, size in enumerate((1 << 63, (1 << 64) - 1, 1 << 20, 16, 8, 1)):
        names.append(f"libx{number}.so.1")
        path = case.library(f"lib/{names[-1]}", needs=["libgone.so.1"] if number % 2 else [])
        oddities.set_header_field(path, 2, 32, size)
    return names


def drop_dynamic_section(case: LoaderCase) -> list[str]:
    oddities.remove_header(case.library("lib/libnone.so.1"), 2)
    oddities.set_header_field(case.library("lib/libempty.so.1"), 2, 32, 0)
    return ["libnone.so.1", "libempty.so.1"]


def long_chain(case: LoaderCase) -> list[str]:
    return [oddities.build_chain(case.root / "lib", case.cache, 3000)]


def devices(case: LoaderCase) -> list[str]:
    (case.root / "lib").mkdir()
    (case.root / "lib/libzero.so.1").symlink_to("/dev/zero")
    unix_socket = socket.socket(socket.AF_UNIX)
    working_folder = Path.cwd()
    os.chdir(case.root / "lib")  # a socket's path is limited to 107 bytes
    try:
        unix_socket.bind("libsocket.so.1")
    finally:
        os.chdir(working_folder)
        unix_socket.close()
    return ["libzero.so.1", "libsocket.so.1"]


CASES: tuple[Callable[[LoaderCase], list[str]], ...] = (
    plain,
    library_path_before_runpath,
    rpath_before_library_path,
    needs_are_looked_for_with_their_own_runpath,
    rpath_serves_the_needs_of_needs,
    load_by_soname,
    soname_other_than_the_file,
    empty_file_ends_the_search,
    text_file_ends_the_search,
    directory_ends_the_search,
    other_class_is_passed_over,
    other_machine_is_passed_over,
    a_library_without_versions_or_symbols,
    links,
    entries_of_the_path,
    make_undefined_symbol,
    a_library_without_versions_that_lacks_something_itself,
    undefined_in_what_is_needed_too,
    version_not_defined,
    make_preloaded,
    hardware_folders,
    system_libraries,
    programs_under_a_library_s_name,
    dynamic_section_of_another_size,
    drop_dynamic_section,
    long_chain,
    devices,
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


def compile_caller(case: LoaderCase) -> Path:
    """Compile libcaller.so with the RPATH or RUNPATH of the case."""
    source, target = case.root / "caller.c", case.root / "bin" / "libcaller.so"
    source.write_text(CALLER, encoding="utf-8")
    target.parent.mkdir()
    if case.rpath is not None:
        options = [f"-Wl,-rpath,{case.rpath}", "-Wl,--disable-new-dtags"]
    else:
        options = [f"-Wl,-rpath,{case.runpath}", "-Wl,--enable-new-dtags"] if case.runpath is not None else []
    command = ["cc", "-shared", "-fPIC", "-o", str(target), str(source), *options, "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return target


def run_loader(
    caller: Path, names: list[str], env: dict[str, str], cwd: Path
) -> list[tuple[str | None, str | None]]:
    """Return the path or the error of each name from the real loader, in a child process."""
    process = subprocess.run(
        [sys.executable, "-c", CHILD, str(caller), *names],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return [(path, error) for path, error in json.loads(process.stdout)]


def run_model(
    caller: Path, names: list[str], env: dict[str, str], cwd: Path
) -> list[tuple[str | None, str | None]]:
    """Return the path or the error of each name from the loader model."""
    system = LiveSystem(env=env, cwd=str(cwd))
    flags = parse_cpu_flags(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    executable = os.path.realpath(sys.executable)
    process = LoaderProcess(system, executable, env, cpu_flags=flags, glibc=platform.libc_ver()[1])
    assert process.load_extension(str(caller), bind_now=True).ok
    opener = process.find_loaded_object(str(caller))
    answers: list[tuple[str | None, str | None]] = []
    for name in names:
        resolution = process.dlopen(name, opener)
        answers.append((None, resolution.error) if resolution.error else (resolution.path, None))
    return answers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.few(12)
def test_model_agrees_with_the_loader(
    case: Callable[[LoaderCase], list[str]], tmp_path: Path, cache: Path
) -> None:
    bench = LoaderCase(tmp_path.resolve(), cache)
    names = case(bench)
    caller = compile_caller(bench)
    env = {"PATH": os.environ.get("PATH", ""), **bench.env}
    cwd = bench.cwd or bench.root
    for name, (path, error), (model_path, model_error) in zip(
        names, run_loader(caller, names, env, cwd), run_model(caller, names, env, cwd), strict=True
    ):
        assert (model_path is None) == (path is None), (
            f"{name}: real {path or error}, model {model_path or model_error}"
        )
        if path is not None and model_path is not None:
            assert os.path.realpath(model_path) == os.path.realpath(cwd / path), name
        else:
            messages = [(text or "").replace("//", "/") for text in (model_error, error)]
            if (
                "undefined symbol" in messages[1]
            ):  # compare the file only: of several symbols, the linker decides which comes first
                messages = [text.partition(": undefined symbol")[0] for text in messages]
            assert messages[0] == messages[1], name


def test_named_pipe_does_not_block(tmp_path: Path) -> None:
    """The real loader would wait forever."""
    os.mkfifo(tmp_path / "libx.so.1")
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    process = LoaderProcess(LiveSystem(env=env), os.path.realpath(sys.executable), env)
    resolution = process.dlopen("libx.so.1", process.python_library)
    assert not resolution.ok
    assert "named pipe" in resolution.tried[0].problem


def test_library_path_is_split_like_glibc() -> None:
    assert split_library_path(None) == ()
    assert split_library_path("") == ()
    assert split_library_path("/a:/b;/c") == ("/a", "/b", "/c")
    assert split_library_path(":/a:") == ("./", "/a", "./")


def test_hwcap_folders_by_glibc_and_processor() -> None:
    v2 = ["lm", "cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]
    assert list_hwcap_folders(v2, "2.38") == ("glibc-hwcaps/x86-64-v2",)
    assert list_hwcap_folders(v2, "2.31") == ("tls/x86_64", "tls", "x86_64")
    assert list_hwcap_folders([], "2.38") == ()
    assert list_hwcap_folders(v2, None) == ()


def test_library_without_versions_binds_symbols(tmp_path: Path, standin_cache: Path) -> None:
    """Binding happens even with lazy binding: an example is another program's libstdc++ before the system's."""
    bench = LoaderCase(tmp_path, standin_cache)
    a_library_without_versions_or_symbols(bench)
    for env, error in ((bench.env, "undefined symbol: y"), ({}, "")):
        process = LoaderProcess(LiveSystem(env=env), str(Path(sys.executable).resolve()), env)
        resolution = process.load_extension(str(tmp_path / "lib/libx.so.1"), bind_now=False)
        assert resolution.error.endswith(error), env
        assert resolution.ok is not bool(error)


def test_library_that_lacks_a_symbol_is_named(tmp_path: Path, standin_cache: Path) -> None:
    """Every file exists; the one that the loader's message begins with is at fault, not the opened one."""
    standins.write_library(
        tmp_path / "libnvJitLink.so.12", standin_cache, imports=("a_function_that_nobody_has",)
    )
    standins.write_library(tmp_path / "libcusparse.so.12", standin_cache, needs=("libnvJitLink.so.12",))
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    process = LoaderProcess(LiveSystem(env=env), os.path.realpath(sys.executable), env)
    for name in ("libcusparse.so.12", "libnvJitLink.so.12"):
        assert process.dlopen(name, process.python_library).really_missing == ("libnvJitLink.so.12",)


@pytest.mark.parametrize("visible", [False, True])
def test_local_library_does_not_share_its_symbols(tmp_path: Path, standin_cache: Path, visible: bool) -> None:
    """TensorFlow defines functions of cuSPARSE; cuSOLVER can use them only if they are visible."""
    standins.write_library(tmp_path / "libtensorflow.so.2", standin_cache, symbols=("cusparseCreate",))
    standins.write_library(tmp_path / "libcusolver.so.11", standin_cache, imports=("cusparseCreate",))
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    process = LoaderProcess(LiveSystem(env=env), os.path.realpath(sys.executable), env)
    tensorflow = process.load_extension(
        str(tmp_path / "libtensorflow.so.2"), bind_now=True, is_global=visible
    )
    assert tensorflow.ok
    resolution = process.dlopen("libcusolver.so.11", process.python_library)
    assert resolution.ok is visible, resolution.error


def test_two_spellings_of_a_path_are_the_same_file() -> None:
    assert _is_same_file("/site/tensorflow/../nvidia/lib/libx.so.1", "/site/nvidia/lib/libx.so.1")
    assert not _is_same_file("/old/libx.so.1", "/site/nvidia/lib/libx.so.1")
    assert not _is_same_file("/old/libx.so.1", None)
