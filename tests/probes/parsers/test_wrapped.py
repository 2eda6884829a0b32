"""Outputs inside JSON, notebooks and lists are parsed like the plain outputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tfdoctor.probes.parsers.registry import detect_kind, parse
from tfdoctor.probes.parsers.wrapped import unwrap

if TYPE_CHECKING:
    from collections.abc import Callable

NVCC = (
    "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2022 NVIDIA Corporation\n"
    "Built on Wed_Sep_21_10:33:58_PDT_2022\nCuda compilation tools, release 11.8, V11.8.89\n"
    "Build cuda_11.8.r11.8/compiler.31833905_0\n"
)
DPKG = (
    "ii  libcudnn9-cuda-12  9.1.0.70-1  amd64  cuDNN runtime libraries\n"
    "un  libcudnn8  <none>  <none>  (no description available)\n"
    "rc  cuda-drivers:amd64  550.54.14-1  amd64  NVIDIA driver\n"
)
SMI_Q = (
    "==============NVSMI LOG==============\n\nTimestamp                                 : Tue Mar  5 10:00:00 2024\n"
    "Driver Version                            : 550.54.14\nCUDA Version                              : 12.4\n\n"
    "Attached GPUs                             : 1\nGPU 00000000:01:00.0\n"
    "    Product Name                          : Tesla T4\n"
)
VERSION = (
    "NVIDIA-SMI version  : 610.43.02\nNVML version        : 610.43\n"
    'DRIVER version      : Deprecated, see "KMD version" instead\nKMD version         : 610.43.02\n'
    "CUDA UMD Version    : 13.2\nCUDA Version        : Deprecated, see above\n"
)
CSV = "index, name, memory.total [MiB], pcie.rx [KB/s]\n0, Tesla T4, 15360 MiB, 12 KB/s\n"
OUTPUTS = {"nvcc": NVCC, "dpkg": DPKG, "smi_q": SMI_Q, "smi_version": VERSION, "smi_csv": CSV}


def make_json_records(text: str) -> str:
    return "\n".join(json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in text.splitlines())


def make_notebook(text: str) -> str:
    output = {"output_type": "stream", "text": text.splitlines(keepends=True)}
    return json.dumps({"cells": [{"cell_type": "code", "source": ["!it"], "outputs": [output]}]}, indent=1)


SHAPES: dict[str, Callable[[str], str]] = {
    "a string": json.dumps,
    "an answer": lambda text: json.dumps({"rc": 0, "stdout": text, "stderr": ""}),
    "a list of answers": lambda text: json.dumps([{"rc": 0}, {"out": {"stdout": text}}]),
    "a record a line": make_json_records,
    "a notebook": make_notebook,
    "a part of a notebook": lambda text: "\n".join(
        f" {json.dumps(f'{line}{chr(10)}')}," for line in text.splitlines()
    ),
    "a list": lambda text: "".join(f"- {line}\n" for line in text.splitlines()),
    "a numbered list": lambda text: "".join(f"{n}. {line}\n" for n, line in enumerate(text.splitlines(), 1)),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_wrapped_output_is_parsed_the_same(kind: str, shape: Callable[[str], str]) -> None:
    text = OUTPUTS[kind]
    assert detect_kind(text) == kind
    assert parse(kind, shape(text)) == parse(kind, text)
    assert detect_kind(shape(text)) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"cuda": {"name": "CUDA SDK", "version": "12.4.0"}}',
        '{"Runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
        "[" * 100_000,
        "name: env\ndependencies:\n  - python=3.10\n  - cudatoolkit=11.2\n",
        "1. one\n3. three\n",
    ],
)
def test_text_that_is_not_wrapped_is_unchanged(text: str) -> None:
    assert unwrap(text) == text


def test_query_of_all_columns() -> None:
    column_names = (
        "utilization.gpu",
        "ecc.errors.corrected.volatile.device_memory",
        "clocks.max.sm",
        "pcie.link.gen.gpucurrent",
    )
    units = (" [%]", "", " [MHz]", " [KB/s]")
    header = ["index", *(f"{column_names[n % 4]}_{n}{units[n % 4]}" for n in range(239))]
    rows = [", ".join(["0", *["[N/A]"] * 239]), ", ".join(["1", *["12 %"] * 239])]
    parsed = parse("smi_csv", "\n".join([", ".join(header), *rows]))
    assert (len(parsed["header"]), parsed["n_rows"]) == (240, 2)


def test_labels_of_the_610_series() -> None:
    parsed = parse("smi_version", VERSION)
    assert (parsed["driver_version"], parsed["cuda_version"]) == ("610.43.02", "13.2")


def test_packages_without_a_version() -> None:
    assert parse("dpkg", DPKG)["rows"][1] == {
        "status": "un",
        "name": "libcudnn8",
        "version": "<none>",
        "arch": "<none>",
    }


def test_packages_of_a_dpkg_without_architectures() -> None:
    text = "un  nvidia-driver  <none>  (no description available)\nun  nvidia-smi  <none>\n"
    assert [(package["name"], package["arch"]) for package in parse("dpkg", text)["rows"]] == [
        ("nvidia-driver", ""),
        ("nvidia-smi", ""),
    ]


LSPCI = "01:00.0 VGA compatible controller: NVIDIA Corporation GP104 [GeForce GTX 1080] (rev a1)\n"


@pytest.mark.parametrize(
    ("kind", "text"),
    [*OUTPUTS.items(), ("lspci", LSPCI)],
    ids=[*OUTPUTS, "lspci"],
)
@pytest.mark.parametrize("words", ["My nvidia-smi says: ", "It prints ", "Here `dpkg -l` gives me: "])
def test_sentence_before_the_output_is_ignored(kind: str, text: str, words: str) -> None:
    assert parse(kind, words + text) == parse(kind, text)
    assert detect_kind(words + text) == kind


def test_sentences_of_programs_are_unchanged() -> None:
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. It shows nothing here.\n"
    assert unwrap(text) == text
