"""Tests of the contents of an image: packages, requirements files, Pythons and CUDA from elsewhere."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.images.read import image_model
from tfdoctor.images.read.image_model import ImageModel, parse_image
from tfdoctor.images.read.libraries import list_nvidia_wheels, list_required_libraries
from tfdoctor.images.read.reader import parse_dockerfile
from tfdoctor.images.read.tensorflow import find_tensorflow

COMPAT = Compat.load()


def parse(*lines: str, **files: str) -> ImageModel:
    """Return the model of a Dockerfile; a file is named by its key, with `__` for a slash."""
    texts = {name.replace("__", "/") + ".txt": text for name, text in files.items()}
    first = () if lines[0].startswith(("FROM", "ARG")) else ("FROM python:3.11",)
    return parse_image(parse_dockerfile("\n".join((*first, *lines))), COMPAT, texts.get)


def list_packages(model: ImageModel) -> dict[str, str]:
    return {name: item.requirement.specifier for name, item in model.packages.items()}


# ---------------------------------------------------------------- pip


@pytest.mark.parametrize(
    ("lines", "packages", "unnamed"),
    [
        (("RUN pip install a==1 b", "RUN pip uninstall -y b"), {"a": "==1"}, 0),
        (("RUN pip install a==1", "RUN pip install a"), {"a": "==1"}, 0),
        (("RUN pip install a==1", "RUN pip install a==2"), {"a": "==2"}, 0),
        (("RUN pip install a==1", "RUN pip install a[x]"), {"a": ""}, 0),
        (("RUN pip install a[x]==1", "RUN pip install a[x]"), {"a": "==1"}, 0),
        (("RUN pip install \"a==1; python_version < '3'\" \"b; sys_platform == 'linux'\"",), {"b": ""}, 0),
        (
            ("FROM x", "RUN pip install \"a; python_version < '3'\" \"b; sys_platform == 'win32'\""),
            {"a": ""},
            0,
        ),
        (("RUN pip install \"a; platform_python_implementation == 'X'\"",), {}, 0),
        (("RUN pip install . a",), {"a": ""}, 1),
        (("COPY a.txt /", "RUN pip install -r a.txt"), {"a": "==1", "g": ""}, 1),
        (
            ("COPY a.txt b.txt /w/", "WORKDIR /w", "RUN pip install -r b.txt"),
            {"a": "==1", "b": "", "g": ""},
            1,
        ),
        (("COPY . /w", "RUN cd /w && pip install -r d/c.txt"), {"c": "", "a": "==1", "g": "", "n": ""}, 1),
        (("COPY *.txt /w/", "RUN pip install -r /w/a.txt"), {"a": "==1", "g": ""}, 1),
        (("COPY <<E /a.txt", "z", "E", "RUN pip install -r /a.txt"), {"z": ""}, 0),
        (("COPY a.txt /x.txt", "COPY b.txt /x.txt", "RUN pip install -r /x.txt"), {"b": ""}, 0),
    ],
)
def test_packages_of_pip(lines: tuple[str, ...], packages: dict[str, str], unnamed: int) -> None:
    model = parse(
        *lines,
        a="a==1 --hash=sha256:0 --hash sha256:1\n./local\ng # why",
        b="-ra.txt\nb\n",
        d__c="--requirement=../a.txt\nc\n-r n.txt",
        d__n="n",
    )
    expected = {**packages}
    if any("x.txt" in line for line in lines):
        assert model.unknown_lines, "-ra.txt is beside x.txt, where nothing was copied"
    assert (list_packages(model), model.unnamed_count) == (expected, unnamed)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("RUN pip install -r a.txt",), "requirements a.txt could not be read"),
        (("RUN pip install -c c.txt a",), "constraints c.txt could not be read"),
        (
            ("COPY a.txt /", "RUN pip install -r http://h/a.txt"),
            "requirements http://h/a.txt could not be read",
        ),
        (("COPY a.txt /", "WORKDIR $X", "RUN pip install -r a.txt"), "requirements a.txt could not be read"),
        (("COPY r.txt /", "RUN pip install -r r.txt"), "requirements r.txt could not be read"),
        (("RUN conda env create -f e.yml",), "e.yml: files of conda are not read"),
        (("RUN poetry install",), "poetry install: what it installs is not read"),
        (("RUN uv sync --frozen",), "uv sync --frozen: what it installs is not read"),
        (("RUN uv add x",), "uv add x: what it installs is not read"),
    ],
)
def test_unknown_lines(lines: tuple[str, ...], reason: str) -> None:
    model = parse(*lines, a="a", r="-r r.txt")
    assert [line.text for line in model.unknown_lines] == [reason]
    assert not parse("RUN uv lock").unknown_lines


def test_number_of_files_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_model, "MAX_FILES", 1)
    model = parse("COPY a.txt /", "RUN pip install -r a.txt", "RUN pip install -r a.txt", a="a")
    assert len(model.unknown_lines) == 1


def test_constraints() -> None:
    model = parse(
        "COPY . /",
        "RUN pip install -r r.txt -c c.txt a==1",
        r="-c d.txt\n--constraint=e.txt\nb>2",
        c="a<9\n./unnamed\n-r f.txt",
        d="b<3",
        e="e<1",
        f="f<1",
    )
    assert {name: [item.specifier for item in items] for name, items in model.constraints.items()} == {
        "b": ["<3"],
        "e": ["<1"],
        "a": ["<9"],
        "f": ["<1"],
    }
    assert model.list_specifiers("a") == ("==1", "<9")
    assert model.list_specifiers("b") == (">2", "<3")
    assert model.list_specifiers("e") == ("<1",)
    assert (model.unnamed_count, list_packages(model)) == (0, {"a": "==1", "b": ">2"})


@pytest.mark.parametrize(
    ("lines", "complete"),
    [
        (("RUN pip install a",), [True]),
        (("RUN pip install a .",), [False]),
        (("RUN pip install a -r x.txt",), [False]),
        (("RUN pip install -i http://x a",), [False]),
        (("RUN pip install --index-url=http://x a",), [False]),
        (("ENV PIP_INDEX_URL=x", "RUN pip install a"), [False]),
        (("RUN pip install a>2",), [False]),
        (("RUN pip install a==$X",), [False]),
        (("RUN pip install 'a @ https://h/a-1-py3-none-any.whl'",), [False]),
        (("RUN pip install --no-deps a", "RUN pip download a"), []),
    ],
)
def test_completeness_of_a_command(lines: tuple[str, ...], complete: list[bool]) -> None:
    model = parse(*lines)
    assert [call.is_complete for call in model.pip_calls] == complete
    assert model.skips_dependencies is any("--no-deps" in line for line in lines)


def test_last_tensorflow_counts() -> None:
    model = parse("RUN pip install tensorflow==2.15 tf-nightly", "RUN pip install tensorflow==2.16 keras")
    names = [item.requirement.name for item in model.tensorflow_installations]
    assert names == ["tf-nightly", "tensorflow"]
    model = parse("RUN pip install tensorflow tensorflow-cpu", "RUN pip uninstall -y tensorflow-cpu")
    assert [item.requirement.name for item in model.tensorflow_installations] == ["tensorflow"]


# ---------------------------------------------------------------- other commands


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("RUN sh cuda_12.run --silent", ["sh cuda_12.run --silent"]),
        ("RUN ./cuda_12.run", ["./cuda_12.run"]),
        ("RUN dpkg -i cuda-repo.deb", ["dpkg -i cuda-repo.deb"]),
        ("RUN dpkg -i cuda-keyring.deb", []),
        ("RUN echo cuda", []),
        ("RUN apt-get install cuda-$X", ["apt-get install cuda-"]),
        ("RUN apt-get install $X", []),
        ("COPY --from=nvidia/cuda:12 /usr/local/lib /x", ["COPY --from=nvidia/cuda:12"]),
        ("COPY --from=other /x/cuda /y", ["COPY --from=other"]),
        ("COPY --from=other /x /y", []),
        ("COPY --from=0 /x/cuda /y", ["COPY --from=0 /x/cuda"]),
        ("COPY --from=0 /x /cuda", ["COPY --from=0 /x"]),
        ("COPY --from=0 /usr/lib /x", ["COPY --from=0 /usr/lib"]),
        ("COPY --from=0 /etc /x", []),
        ("COPY --from=0 /etc /x/cuda /y/", ["COPY --from=0 /etc /x/cuda"]),
        ("COPY --from=0 /etc /usr/lib /y/", ["COPY --from=0 /etc /usr/lib"]),
        ("COPY --from=1 /usr/lib /x", []),
        ("COPY --from=1 /opt/conda /x", ["COPY --from=1 /opt/conda"]),
        ("COPY --from=2 /usr/lib /x", ["COPY --from=2 /usr/lib"]),
        ("COPY --from=3 /usr/lib /x", []),
    ],
)
def test_cuda_from_other_sources(line: str, lines: list[str]) -> None:
    model = parse(
        "FROM nvidia/cuda:12.2.0-runtime-ubuntu22.04",
        "FROM x AS y",
        "RUN conda install cudatoolkit",
        "FROM z",
        "RUN dpkg -i cuda.deb",
        "FROM z",
        "RUN pip install nvidia-cudnn-cu12",
        "FROM python:3.11",
        line,
    )
    if line.startswith("COPY --from=1 /usr/lib"):
        lines = ["COPY --from=1 /usr/lib"]  # conda's name of it is a mention
    assert [item.text for item in model.cuda_from_other_sources] == lines


def test_packages_come_with_a_stage() -> None:
    stages = (
        "FROM python:3.9 AS base",
        "COPY r.txt /r.txt",
        "FROM base AS build",
        "ENV PATH=/opt/v/bin:$PATH",
        "RUN python3 -m venv /opt/v && pip install -r /r.txt a",
        "FROM python:3.11",
    )
    model = parse(*stages, "COPY --from=build /opt/v /opt/v", "COPY --from=build /root /root", r="b")
    assert {name: item.python for name, item in model.packages.items()} == {"b": "3.9", "a": "3.9"}
    assert len(model.pip_calls) == 1
    assert list_packages(parse(*stages, "COPY --from=build / /", r="b")) == {"b": "", "a": ""}
    assert list_packages(parse(*stages, "COPY --from=build /etc /opt/v /x/", r="b")) == {"b": "", "a": ""}
    assert not list_packages(parse(*stages, "COPY --from=build /etc /etc", r="b"))
    assert not list_packages(parse(*stages, "RUN pip install -r /r.txt", r="b")), "the other stage has it"


@pytest.mark.parametrize(
    ("lines", "fixed"),
    [
        ((), False),
        (("RUN rm /etc/apt/sources.list.d/cuda.list",), True),
        (("RUN cat /etc/apt/sources.list.d/cuda.list",), False),
        (("RUN apt-key adv --fetch-keys x/3bf863cc.pub",), True),
        (("RUN dpkg -i cuda-keyring_1.0-1_all.deb",), True),
    ],
)
def test_fixed_apt_list(lines: tuple[str, ...], fixed: bool) -> None:
    model = parse(*lines, "RUN apt-get update")
    assert [is_fixed for _, is_fixed in model.apt_updates] == [fixed]


def test_loader_and_stubs() -> None:
    model = parse(
        "RUN echo /x > /etc/ld.so.conf.d/x.conf",
        "RUN sed -i /x /etc/ld.so.conf",
        "RUN LD_LIBRARY_PATH=/x run LD_LIBRARY_PATH",
        "RUN ln -s /usr/local/cuda/lib64/stubs/libcuda.so /x",
        "RUN ls /usr/local/cuda/lib64/stubs/libcuda.so",
    )
    assert [line.line for line in model.loader_lines] == [2, 3, 4]
    assert [line.line for line in model.stub_links] == [5]
    assert not model.cuda_from_other_sources


# ---------------------------------------------------------------- Pythons


@pytest.mark.parametrize(
    ("lines", "python"),
    [
        (("FROM ubuntu:18.04", "RUN pip3 install a"), "3.6"),
        (("FROM ubuntu:18.04", "RUN pip install a"), None),
        (("FROM ubuntu:20.04", "RUN pip install a"), "3.8"),
        (("FROM ubuntu:20.04", "RUN python -m pip install a"), None),
        (
            ("FROM ubuntu:20.04", "RUN apt-get install python-is-python3", "RUN python -m pip install a"),
            "3.8",
        ),
        (("FROM ubuntu:18.04", "RUN apt-get install python-pip", "RUN pip install a"), "2.7"),
        (("FROM debian:bullseye", "RUN pip install a"), "3.9"),
        (("FROM debian:buster", "RUN pip install a"), None),
        (("FROM python:3.9-slim", "RUN /usr/local/bin/python -m pip install a"), "3.9"),
        (("FROM python:3.9", "RUN /opt/x/bin/pip install a"), None),
        (("FROM python:3.9", "RUN python3.8 -m venv /v/", "RUN /v/bin/pip install a"), "3.8"),
        (
            ("FROM python:3.9", "RUN python3.8 -m venv /v", 'ENV PATH="/v/bin:$PATH"', "RUN pip install a"),
            "3.8",
        ),
        (("FROM python:3.9", "RUN python3.8 -m venv /v", ". /v/bin/activate", "RUN pip install a"), "3.9"),
        (("FROM python:3.9", "RUN python3.8 -m venv /v && . /v/bin/activate && pip install a"), "3.8"),
        (("FROM python:3.9", "ENV PATH=/opt/conda/bin:$PATH", "RUN pip install a"), None),
        (("FROM python:3.9", "ENV PATH=/opt/x/bin:$PATH", "RUN pip install a"), "3.9"),
        (("FROM python:3.9", "RUN virtualenv -p python3.8 /v", "RUN /v/bin/pip install a"), "3.8"),
        (
            (
                "FROM python:3.9",
                "RUN virtualenv --python=/usr/bin/python3.8.1 /v",
                "RUN /v/bin/pip install a",
            ),
            "3.8",
        ),
        (("FROM python:3.9", "RUN virtualenv /v", "RUN /v/bin/pip install a"), "3.9"),
        (("FROM python:3.9", "RUN uv venv --python 3.8", "RUN uv pip install a"), "3.8"),
        (("FROM python:3.9", "RUN uv venv /v", "RUN uv pip install a"), "3.9"),
        (("FROM python:3.9", "RUN uv pip install a"), "3.9"),
        (("FROM ubuntu:22.04", "RUN uv pip install --system a"), "3.10"),
        (
            ("FROM python:3.9", "RUN python3.8 -m venv /v", "ENV VIRTUAL_ENV=/v", "RUN uv pip install a"),
            "3.8",
        ),
        (
            ("FROM python:3.9", "RUN python3.8 -m venv /v", "ENV VIRTUAL_ENV=/w", "RUN uv pip install a"),
            "3.9",
        ),
        (("FROM python:3.9", "RUN uv python install 3.8", "RUN pip install a"), None),
        (("FROM python:3.9", "RUN pyenv global 3.8", "RUN pip install a"), None),
        (("FROM python:3.9", "RUN conda install python=3.8.1", "RUN pip install a"), "3.8"),
        (("FROM python:3.9", "RUN conda install 'python>=3.8'", "RUN pip install a"), None),
        (
            ("FROM ubuntu:18.04", "RUN ln -sf /usr/bin/python3.8 /usr/bin/python3", "RUN pip3 install a"),
            "3.8",
        ),
        (("FROM ubuntu:18.04", "RUN ln -sf python3.8 /usr/bin/", "RUN pip3 install a"), "3.6"),
        (("FROM ubuntu:20.04", "RUN ln -sf python3.9 /usr/bin/python3", "RUN pip install a"), "3.9"),
        (
            (
                "FROM ubuntu:18.04",
                "RUN apt-get install python-pip",
                "RUN ln -sf python3.8 /usr/bin/python3",
                "RUN pip install a",
            ),
            "2.7",
        ),
        (
            (
                "FROM ubuntu:18.04",
                "RUN update-alternatives --install /usr/bin/python3 python3 /usr/bin/python3.8 1",
                "RUN pip3 install a",
            ),
            "3.8",
        ),
        (
            (
                "FROM ubuntu:18.04",
                "RUN update-alternatives --set python3 /usr/bin/python3.8",
                "RUN pip3 install a",
            ),
            "3.8",
        ),
        (("FROM ubuntu:18.04", "RUN update-alternatives --list python3 x", "RUN pip3 install a"), "3.6"),
        (("FROM ubuntu:18.04", "RUN python3.8 get-pip.py", "RUN pip install a"), "3.8"),
        (("FROM ubuntu:18.04", "RUN curl x | python3.8", "RUN pip install a"), "3.8"),
        (("FROM ubuntu:18.04", "RUN curl x | python3.8 - a b", "RUN pip3 install a"), "3.6"),
        (("FROM ubuntu:18.04", "RUN python3.8 x.py", "RUN pip3 install a"), "3.6"),
    ],
)
def test_python_of_a_command(lines: tuple[str, ...], python: str | None) -> None:
    assert parse(*lines).packages["a"].python == python


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (("RUN pip3 install a",), True),
        (("RUN /usr/bin/pip3 install a",), True),
        (("RUN pip3 install --break-system-packages a",), False),
        (("RUN pip3 install --target=/x a",), False),
        (("RUN pip3 download a",), False),
        (("ENV PIP_BREAK_SYSTEM_PACKAGES=1", "RUN pip3 install a"), False),
        (("ENV PIP_BREAK_SYSTEM_PACKAGES=0", "RUN pip3 install a"), True),
        (("RUN rm /usr/lib/python3.12/EXTERNALLY-MANAGED", "RUN pip3 install a"), False),
        (("RUN pip3 config set global.break-system-packages true", "RUN pip3 install a"), False),
        (("RUN python3 -m venv /v", "RUN /v/bin/pip install a"), False),
        (("RUN python3 -m venv /v", "ENV PATH=/v/bin:$PATH", "RUN pip install a"), False),
        (("RUN python3 -m venv /v", "ENV PATH=/v/bin:$PATH", "RUN python3.12 -m pip install a"), True),
        (("RUN python3.11 -m pip install a",), False),
        (("RUN uv pip install --system a",), True),
        (("RUN uv pip install a",), False),
    ],
)
def test_system_python_refuses_pip(lines: tuple[str, ...], refused: bool) -> None:
    assert bool(parse("FROM ubuntu:24.04", *lines).refused_pip_lines) is refused


# ---------------------------------------------------------------- libraries


def find_states(*lines: str) -> dict[str, bool | None]:
    model = parse(*lines)
    tensorflow = find_tensorflow(model, COMPAT)
    return {item.soname: item.is_found for item in list_required_libraries(model, tensorflow, COMPAT)}


TF = "RUN pip install tensorflow==2.15.1"


@pytest.mark.parametrize(
    ("lines", "cudart", "cublas", "cudnn"),
    [
        (("FROM ubuntu:22.04", TF), False, False, False),
        (("FROM ubuntu:22.04", "RUN pip install tensorflow[and-cuda]==2.15.1"), True, True, True),
        (("FROM nvidia/cuda:12.2.0-base-ubuntu22.04", TF), True, False, False),
        (("FROM nvidia/cuda:12.2.0-runtime-ubuntu22.04", TF), True, True, False),
        (("FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04", TF), True, True, True),
        (("FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04", TF), True, True, False),
        (("FROM nvidia/cuda:12.4-cudnn-runtime-ubi8", TF), True, True, False),
        (("FROM nvidia/cuda:12.3-cudnn-runtime-ubi8", TF), True, True, None),
        (("FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04", TF), False, False, False),
        (("FROM nvidia/cuda:nonsense", TF), None, None, None),
        (("FROM mine:1", TF), None, None, None),
        (("FROM ubuntu:22.04", TF, "RUN conda install cudatoolkit"), None, None, None),
        (("FROM ubuntu:22.04", TF, "RUN conda install numpy"), False, False, False),
        (("FROM ubuntu:22.04", TF, "RUN apt-get install cuda-toolkit"), None, None, None),
        (("FROM ubuntu:22.04", TF, "RUN apt-get install nvidia-cuda-toolkit"), None, None, None),
        (("FROM ubuntu:22.04", TF, "RUN pip install -r requirements.txt"), None, None, None),
        (("FROM ubuntu:22.04", TF, "RUN poetry install"), False, False, False),
        (("FROM ubuntu:22.04", TF, "RUN apt-get install cuda-toolkit-12-2"), True, True, False),
        (("FROM ubuntu:22.04", TF, "RUN apt-get install libcublas-12-2"), False, True, False),
        (("FROM ubuntu:22.04", TF, "RUN apt-get install libcublas-dev-12-2"), False, True, False),
        (("FROM ubuntu:22.04", TF, "RUN apt-get install libcublas-11-8"), False, False, False),
        (
            ("FROM ubuntu:22.04", TF, "RUN apt-get install cuda-cudart-12-2 libcudnn8=8.9.7.29-1"),
            True,
            False,
            True,
        ),
        (("FROM ubuntu:22.04", TF, "RUN apt-get install libcudnn9"), False, False, False),
        (
            ("FROM ubuntu:22.04", TF, "RUN pip install nvidia-cublas-cu12 nvidia-cudnn-cu12==8.9.*"),
            False,
            True,
            True,
        ),
        (
            ("FROM ubuntu:22.04", TF, "RUN pip install nvidia-cublas-cu11 nvidia-cudnn-cu12"),
            False,
            False,
            False,
        ),
        (("FROM tensorflow/tensorflow:2.15.0-gpu",), None, None, True),
        (("FROM tensorflow/tensorflow:2.15.0",), None, None, None),
    ],
)
def test_libraries_of_an_image(
    lines: tuple[str, ...], cudart: bool | None, cublas: bool | None, cudnn: bool | None
) -> None:
    states = find_states(*lines)
    if lines[0].endswith(":2.15.0"):
        assert not states, "it is for the CPU"
        return
    assert (states["libcudart.so.12"], states["libcublas.so.12"], states["libcudnn.so.8"]) == (
        cudart,
        cublas,
        cudnn,
    )


def test_base_image_with_tensorflow_has_all_libraries() -> None:
    for image in ("tensorflow/tensorflow:2.4.0-gpu", "nvcr.io/nvidia/tensorflow:23.03-tf1-py3"):
        states = find_states(f"FROM {image}")
        assert states
        assert all(states.values())


def test_pins_of_nvidia_wheels() -> None:
    model = parse(
        "RUN pip install nvidia-cudnn-cu12==8.9.* nvidia-cublas-cu12~=12.2 'nvidia-cufft-cu12>=11' nvidia-ml-py"
    )
    assert list_nvidia_wheels(model) == {
        "nvidia-cudnn-cu12": "8.9",
        "nvidia-cublas-cu12": "12.2",
        "nvidia-cufft-cu12": "",
    }


@pytest.mark.parametrize(
    ("requirement", "state", "version"),
    [
        ("tensorflow", "there", COMPAT.newest.version),
        ("tensorflow==2.15.1", "there", "2.15.1"),
        ("tensorflow==2.15.*", "there", "2.15.1"),
        ("tensorflow<2.16", "there", "2.15.1"),
        ("tensorflow===2.15.1", "there", "2.15.1"),
        ("tensorflow==2.4.1", "no-wheel", "2.4.1"),
        ("tensorflow==99", "newer", "99"),
        ("tensorflow>=99", "newer", ""),
        ("tensorflow<0.1", "unknown", ""),
        ("tensorflow==2.15.7", "no-such", "2.15.7"),
        ("tensorflow-gpu==2.12.0", "retired", "2.12.0"),
        ("tensorflow-gpu==99", "no-such", "99"),
        ("tensorflow-cpu", "cpu", ""),
        ("tf-nightly", "unknown", ""),
        ("tensorflow==$X", "unknown", ""),
        ("tensorflow>2", "there", COMPAT.newest.version),
    ],
)
def test_state_of_a_requirement(requirement: str, state: str, version: str) -> None:
    quoted = requirement if ">" in requirement and "=" not in requirement else f'"{requirement}"'
    tensorflow = find_tensorflow(parse(f"RUN pip install {quoted}"), COMPAT)
    assert (tensorflow.state, tensorflow.version) == (state, version)
    assert tensorflow.is_pinned is (
        requirement[10:].strip("-gpu").startswith("==") and not requirement.endswith(("*", "$X"))
    )


@pytest.mark.parametrize(
    ("image", "state", "version", "pinned"),
    [
        ("tensorflow/tensorflow:2.15.0-gpu", "there", "2.15.0", True),
        ("tensorflow/tensorflow:latest-gpu", "there", COMPAT.newest.version, False),
        ("tensorflow/tensorflow:2.15.0", "cpu", "2.15.0", True),
        ("tensorflow/tensorflow:9.9.0-gpu", "unknown", "", True),
        ("tensorflow/tensorflow:nightly-gpu", "unknown", "", True),
        ("nvcr.io/nvidia/tensorflow:23.03-tf1-py3", "there", "1.15.5", True),
        ("nvcr.io/nvidia/tensorflow:99.99-tf2-py3", "unknown", "", True),
        ("ubuntu:22.04", "none", "", False),
    ],
)
def test_tensorflow_of_a_base_image(image: str, state: str, version: str, pinned: bool) -> None:
    tensorflow = find_tensorflow(parse(f"FROM {image}"), COMPAT)
    assert (tensorflow.state, tensorflow.version, tensorflow.is_pinned) == (state, version, pinned)


@pytest.mark.parametrize(
    ("reference", "kind", "python", "is_managed"),
    [
        ("mcr.microsoft.com/devcontainers/python:3.12", "python", "3.12", False),
        ("mcr.microsoft.com/devcontainers/python:3.11-bookworm", "python", "3.11", False),
        ("mcr.microsoft.com/devcontainers/python:1-3.10-bullseye", "python", "3.10", False),
        ("mcr.microsoft.com/vscode/devcontainers/python:0-3.9", "python", "3.9", False),
        ("mcr.microsoft.com/devcontainers/python:1.2.3-3.9", "python", "3.9", False),
        ("mcr.microsoft.com/devcontainers/python", "python", None, False),
        ("mcr.microsoft.com/devcontainers/base:ubuntu-24.04", "plain", "3.12", True),
        ("mcr.microsoft.com/devcontainers/base:1-jammy", "plain", "3.10", False),
        ("mcr.microsoft.com/devcontainers/base:debian-12", "plain", "3.11", True),
        ("mcr.microsoft.com/devcontainers/base:bullseye", "plain", "3.9", False),
        ("mcr.microsoft.com/devcontainers/miniconda:3", "plain", None, False),
        ("mcr.microsoft.com/devcontainers/go:1", "unknown", None, False),
        ("example.com/devcontainers/python:3.12", "unknown", None, False),
    ],
)
def test_dev_container_image_is_its_base_image(
    reference: str, kind: str, python: str | None, is_managed: bool
) -> None:
    base = parse(f"FROM {reference}").base
    assert (base.kind, base.python, base.is_python_managed) == (kind, python, is_managed)
    assert base.image_name == reference
