"""The commands that build the software GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfdoctor.verification.simulate.compute_libraries import (
    Compilers,
    LibrarySet,
    build_compute_libraries,
    make_defines,
)
from tfdoctor.verification.simulate.sources import COMPUTE_SOURCES, PTX_SOURCES, SOURCES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COMPILERS = Compilers(c=("cc", "-a"), cxx=("c++", "-b"))
LIBRARIES = LibrarySet(("libcudart.so.12", "libnowhere.so.1"), "12.5.1", "9.3")


@pytest.mark.parametrize(
    ("cuda", "cudnn", "defines"),
    [
        ("12.5.1", "9.3", ["-DCUDART=12050", "-DCUDNN=90300"]),
        ("11.8", "8.9.7", ["-DCUDART=11080", "-DCUDNN=8900"]),
        ("10.0", "7.6", ["-DCUDART=10000", "-DCUDNN=7600"]),
        ("13", "10", ["-DCUDART=13000", "-DCUDNN=100000"]),
    ],
)
def test_version_numbers(cuda: str, cudnn: str, defines: list[str]) -> None:
    assert make_defines(LibrarySet((), cuda, cudnn)) == defines


def build(
    folder: Path, failing: str = "", options: tuple[str, ...] = ("-O2",)
) -> tuple[str | None, list[list[str]]]:
    """Build with commands that only write their output; one that contains `failing` fails."""
    commands: list[list[str]] = []

    def run(command: Sequence[str]) -> str | None:
        commands.append(list(command))
        output = command[command.index("-o") + 1]
        with open(output, "w", encoding="utf-8"):  # noqa: PTH123
            return f"no {failing}" if failing and any(failing in word for word in command) else None

    reason = build_compute_libraries(
        run, COMPILERS, folder, LIBRARIES, options=options, c_options=("-only-c",), cxx_options=("-only-cxx",)
    )
    return reason, commands


def test_commands_of_a_build(tmp_path: Path) -> None:
    reason, commands = build(tmp_path)
    assert reason is None
    compiled = {command[command.index("-c") + 1]: command for command in commands if "-c" in command}
    assert str(PTX_SOURCES / "run.cc") not in compiled
    assert len(compiled) == len(list(PTX_SOURCES.glob("*.cc"))) - 1 + 4 + 1
    memory, driver = compiled[str(COMPUTE_SOURCES / "memory.c")], compiled[str(SOURCES / "libcuda.c")]
    assert memory[:5] == ["cc", "-a", "-std=gnu11", "-only-c", "-O2"]
    assert driver[:5] == ["cc", "-a", "-std=gnu99", "-DCOMPUTES", "-O2"]
    cxx = next(command for source, command in compiled.items() if source.endswith(".cc"))
    assert cxx[:2] == ["c++", "-b"]
    assert "-only-cxx" in cxx
    (link,) = [command for command in commands if "-Wl,-soname,libcuda.so.1" in command]
    assert "-static-libstdc++" in link
    assert sum(word.endswith(".o") for word in link) == len(compiled)
    linked = {
        command[command.index("-o") + 1].rpartition("/")[2]: command
        for command in commands[len(compiled) + 1 :]
    }
    assert set(linked) == {"libcudart.so.12", "libnowhere.so.1", "libnccl.so.2", "libnvidia-ml.so.1"}
    assert "-l:libcuda.so.1" in linked["libcudart.so.12"]
    assert "-l:libcuda.so.1" not in linked["libnccl.so.2"]
    assert "/dev/null" in linked["libnowhere.so.1"]
    assert "/dev/null" not in linked["libnccl.so.2"]
    assert "-only-c" in linked["libnccl.so.2"]
    assert "-only-c" not in linked["libnvidia-ml.so.1"]
    assert str(SOURCES / "libnvidia-ml.c") in linked["libnvidia-ml.so.1"]
    assert (tmp_path / "libnccl.versions").read_text() == "libnccl.so.2 { global: *; };\n"
    assert (tmp_path / "libnvidia-ml.versions").read_text() == " { global: *; };\n"
    assert not list(tmp_path.glob("*.o"))


def test_runtime_is_linked_dynamically_with_sanitizers(tmp_path: Path) -> None:
    _, commands = build(tmp_path, options=("-O1", "-fsanitize=address"))
    (link,) = [command for command in commands if "-Wl,-soname,libcuda.so.1" in command]
    assert "-static-libstdc++" not in link


@pytest.mark.parametrize(
    ("failing", "later"),
    [("memory.c", "-Wl,-soname,libcuda.so.1"), ("-Wl,-soname,libcuda.so.1", "-Wl,-soname,libnccl.so.2")],
)
def test_failure_ends_the_build(tmp_path: Path, failing: str, later: str) -> None:
    reason, commands = build(tmp_path, failing)
    assert reason == f"no {failing}"
    assert not any(later in command for command in commands)
    assert not list(tmp_path.glob("*.o"))
    assert build(tmp_path, "libnowhere.so.1")[0] == "no libnowhere.so.1"
