"""Dockerfiles as people write them, with their findings. Written for the tests after public examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class DockerfileCase:
    """A Dockerfile and the expected result of its check."""

    name: str
    text: str
    codes: frozenset[str]
    """Codes of the findings that are warnings or errors."""
    usable: bool | None
    cause: str
    files: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line number that the evidence of a finding names, by finding code."""


def make_case(
    name: str,
    codes: str,
    usable: bool | None,
    cause: str,
    text: str,
    files: Mapping[str, str] | None = None,
    lines: Mapping[str, int] | None = None,
) -> DockerfileCase:
    """Return a case; `codes` are separated by spaces, and the common indentation of `text` is removed."""
    return DockerfileCase(
        name, dedent(text).lstrip("\n"), frozenset(codes.split()), usable, cause, files or {}, lines or {}
    )


CASES = (
    make_case(
        "cuda 10.1 with 1.14, as many wrote it",
        "TFD202 TFD501",
        False,
        "inconclusive",
        """
        FROM nvidia/cuda:10.1-cudnn7-devel-ubuntu18.04
        RUN apt-get update && apt-get install -y \\
            libsm6 libxext6 \\
            python3 \\
            python3-pip
        RUN pip3 install tensorflow-gpu==1.14.0 opencv-python
        CMD bash
        """,
        lines={"TFD501": 1, "TFD202": 6},
    ),
    make_case(
        "the official image of 2.18",
        "TFD503",
        False,
        "cudnn-version-mismatch",
        """
        FROM tensorflow/tensorflow:2.18.0-gpu
        WORKDIR /app
        COPY . .
        RUN python -m pip install --upgrade pip
        ENTRYPOINT ["python"]
        """,
        lines={"TFD503": 1},
    ),
    make_case(
        "latest-gpu",
        "TFD503 TFD510",
        False,
        "cudnn-version-mismatch",
        """
        # docker run needs --gpus
        FROM tensorflow/tensorflow:latest-gpu
        RUN apt-get update
        RUN pip install --upgrade setuptools
        """,
        lines={"TFD503": 2},
    ),
    make_case(
        "a slim image and plain tensorflow",
        "TFD201 TFD510",
        False,
        "libs-not-installed",
        """
        FROM python:3.11-slim-bookworm
        ENV PYTHONUNBUFFERED=1 \\
            PIP_NO_CACHE_DIR=1
        RUN pip install tensorflow flask
        """,
        lines={"TFD201": 4},
    ),
    make_case(
        "old capitals, exec form, 1.0 on CUDA 8",
        "TFD501",
        False,
        "inconclusive",
        """
        # from nvidia/cuda:10.0-cudnn7-devel
        from nvidia/cuda:8.0-cudnn5-devel-ubuntu16.04
        run apt-get update
        run apt-get install -y python3 python3-pip vim
        run ["pip3", "install", "tensorflow-gpu==1.0.0", "protobuf==3.17.3"]
        """,
        lines={"TFD501": 2},
    ),
    make_case(
        "requirements with two packages and a NumPy that is too new",
        "TFD304 TFD306 TFD513",
        False,
        "both-packages",
        """
        FROM tensorflow/tensorflow:2.4.1-gpu-jupyter
        COPY requirements.txt /tmp/requirements.txt
        RUN apt-get update && apt-get install -y --no-install-recommends libgl1
        RUN pip install -r /tmp/requirements.txt
        """,
        {"requirements.txt": "numpy==1.24.4\r\ntensorflow==2.4.1\r\ntensorflow-gpu==2.4.1\r\n"},
        {"TFD304": 2, "TFD306": 1, "TFD513": 3},
    ),
    make_case(
        "that image with its key mended",
        "",
        None,
        "inconclusive",
        """
        FROM tensorflow/tensorflow:2.4.1-gpu
        RUN rm /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list \\
         && apt-get update && apt-get install -y libgl1
        COPY missing.txt .
        RUN pip install -r missing.txt
        """,
    ),
    make_case(
        "a base image without cuDNN",
        "TFD205",
        False,
        "cudnn-missing",
        """
        FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip
        RUN pip3 install 'tensorflow==2.13.1'
        """,
    ),
    make_case(
        "the wrong cuDNN",
        "TFD206",
        False,
        "cudnn-version-mismatch",
        """
        FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip
        RUN pip3 install "tensorflow==2.18.0"
        """,
    ),
    make_case(
        "a cuDNN that is too old",
        "TFD206",
        False,
        "cudnn-version-mismatch",
        """
        FROM nvidia/cuda:12.3.2-cudnn9-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip
        RUN pip3 install "tensorflow==2.18.0"
        """,
    ),
    make_case(
        "stages, arguments, a base flavour, capabilities",
        "TFD201 TFD307 TFD515",
        False,
        "libs-not-installed",
        """
        # syntax=docker/dockerfile:1
        ARG CUDA=11.2.2
        ARG OS=20.04
        FROM nvidia/cuda:${CUDA}-cudnn8-devel-ubuntu${OS} AS build
        RUN make -j
        FROM nvidia/cuda:${CUDA}-base-ubuntu${OS} AS base
        ARG TF_VERSION=2.6.0
        ENV NVIDIA_DRIVER_CAPABILITIES=utility
        RUN apt-get update && apt-get install -y python3-pip \\
          # the newer one

          python3.9
        RUN python3.9 -m pip install "tensorflow==${TF_VERSION}" \\
            numpy
        FROM base
        COPY --from=build /src/tool /usr/bin/tool
        """,
        lines={"TFD201": 13, "TFD515": 8},
    ),
    make_case(
        "compilers where nothing is compiled",
        "",
        True,
        "healthy",
        """
        FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04
        RUN apt-get update && apt-get install -y python3 python3-pip
        RUN pip3 install tensorflow==2.13.1
        """,
    ),
    make_case(
        "only the last stage counts",
        "",
        True,
        "healthy",
        """
        FROM nvidia/cuda:9.0-devel-ubuntu16.04 AS old
        RUN pip install tensorflow-gpu==1.5.0
        FROM python:3.11-slim AS final
        RUN pip install "tensorflow[and-cuda]==2.18.0"
        """,
    ),
    make_case(
        "a virtual environment from another stage",
        "TFD201",
        False,
        "libs-not-installed",
        """
        FROM python:3.11-slim AS builder
        RUN python -m venv /opt/venv
        ENV PATH="/opt/venv/bin:$PATH"
        COPY requirements.txt .
        RUN pip install -r requirements.txt
        FROM python:3.11-slim
        COPY --from=builder /opt/venv /opt/venv
        ENV PATH="/opt/venv/bin:$PATH"
        """,
        {"requirements.txt": "tensorflow==2.15.1\n"},
        {"TFD201": 1},
    ),
    make_case(
        "a Python that is too new",
        "TFD507",
        False,
        "no-matching-wheel",
        """
        FROM python:3.12
        RUN pip install tensorflow==2.15.1
        """,
        lines={"TFD507": 2},
    ),
    make_case(
        "a Python from deadsnakes, linked",
        "TFD507",
        False,
        "no-matching-wheel",
        """
        FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
        RUN apt-get update && apt-get install -y software-properties-common && \\
            add-apt-repository ppa:deadsnakes/ppa && apt-get install -y python3.11 curl
        RUN update-alternatives --install /usr/bin/python3 python3 /usr/bin/python3.11 1
        RUN curl -sS https://bootstrap.example/get-pip.py | python3.11
        RUN pip install tensorflow==2.8.0
        """,
    ),
    make_case(
        "alpine",
        "TFD507 TFD510",
        False,
        "no-matching-wheel",
        """
        FROM python:3.11-alpine
        RUN pip install tensorflow
        """,
    ),
    make_case(
        "no such release",
        "TFD508",
        False,
        "no-matching-wheel",
        """
        FROM python:3.11-slim
        RUN pip install --no-cache-dir tensorflow==2.15.7
        """,
    ),
    make_case(
        "tensorflow-gpu without a version",
        "TFD501 TFD508",
        False,
        "inconclusive",
        """
        FROM nvidia/cuda:10.0-cudnn7-devel-ubuntu18.04
        RUN apt-get update && apt-get install -y python3 python3-pip
        RUN pip3 install tensorflow-gpu opencv-python
        """,
    ),
    make_case(
        "a build for the CPU",
        "TFD303",
        False,
        "cpu-only-build",
        """
        FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
        RUN apt-get update && apt-get install -y python3-pip
        ARG TENSORFLOW_PKG=tensorflow-cpu==2.8.0
        RUN pip3 install ${TENSORFLOW_PKG}
        """,
        lines={"TFD303": 4},
    ),
    make_case(
        "the patch release without GPU code",
        "TFD303",
        False,
        "cpu-only-build",
        """
        FROM python:3.7-slim
        RUN pip install tensorflow==1.15.5
        """,
    ),
    make_case(
        "limits that the shell eats",
        "TFD202 TFD510",
        False,
        "libs-wrong-version",
        """
        FROM nvcr.io/nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip && pip install tensorflow>=2.4 numpy<2
        """,
        lines={"TFD510": 2},
    ),
    make_case(
        "the extra that cannot be installed",
        "TFD511",
        False,
        "no-matching-wheel",
        """
        FROM python:3.11-slim
        RUN pip install uv && uv venv /opt/venv --python 3.11
        RUN uv pip install --python /opt/venv/bin/python "tensorflow[and-cuda]==2.15.0"
        """,
    ),
    make_case(
        "the search path that is wrong",
        "TFD511",
        False,
        "libs-not-on-path",
        """
        FROM python:3.12-slim
        RUN --mount=type=cache,target=/var/cache/pip <<EOF
        set -e
        pip install --upgrade pip
        pip install 'tensorflow[and-cuda]==2.21.0'
        EOF
        """,
        lines={"TFD511": 5},
    ),
    make_case(
        "that path, mended",
        "",
        True,
        "healthy",
        """
        FROM python:3.12-slim
        RUN pip install 'tensorflow[and-cuda]==2.21.0'
        ENV LD_LIBRARY_PATH=/usr/local/lib/python3.12/site-packages/nvidia/cusolver/lib
        """,
    ),
    make_case(
        "an extra that is not there",
        "TFD201",
        False,
        "libs-not-installed",
        """
        FROM python:3.10-slim
        RUN pip install 'tensorflow[and-cuda]==2.13.1'
        """,
    ),
    make_case(
        "variables that hide the card, and stubs",
        "TFD515 TFD516",
        False,
        "hidden-by-env",
        """
        FROM nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04
        ENV CUDA_VISIBLE_DEVICES ""
        ENV NVIDIA_VISIBLE_DEVICES=none NVIDIA_DRIVER_CAPABILITIES="compute,video"
        ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:${LD_LIBRARY_PATH}
        RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.18.0
        """,
        lines={"TFD515": 2, "TFD516": 4},
    ),
    make_case(
        "a fresh build of something old",
        "TFD307",
        False,
        "protobuf-conflict",
        """
        FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
        RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.6.0
        """,
    ),
    make_case(
        "the same with the pins that it needs",
        "",
        True,
        "healthy",
        """
        FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
        RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.6.0 'protobuf<3.21'
        """,
    ),
    make_case(
        "TensorFlow's own recipe of 2.4 on a tag that exists",
        "",
        True,
        "healthy",
        """
        ARG UBUNTU_VERSION=18.04
        ARG ARCH=
        ARG CUDA=11.0
        FROM nvidia/cuda${ARCH:+-$ARCH}:${CUDA}.3-base-ubuntu${UBUNTU_VERSION} as base
        ARG ARCH
        ARG CUDA
        ARG CUDNN=8.0.4.30-1
        SHELL ["/bin/bash", "-c"]
        RUN apt-get update && apt-get install -y --no-install-recommends \\
                build-essential \\
                cuda-command-line-tools-${CUDA/./-} \\
                libcublas-${CUDA/./-} \\
                libcufft-${CUDA/./-} \\
                libcurand-${CUDA/./-} \\
                libcusolver-${CUDA/./-} \\
                libcusparse-${CUDA/./-} \\
                libcudnn8=${CUDNN}+cuda${CUDA}
        ENV LD_LIBRARY_PATH /usr/local/cuda/extras/CUPTI/lib64:/usr/local/cuda/lib64:$LD_LIBRARY_PATH
        RUN ln -s /usr/local/cuda/lib64/stubs/libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1 \\
            && echo "/usr/local/cuda/lib64/stubs" > /etc/ld.so.conf.d/z-cuda-stubs.conf \\
            && ldconfig
        RUN apt-get update && apt-get install -y python3 python3-pip
        RUN python3 -m pip --no-cache-dir install --upgrade "pip<20.3" setuptools
        ARG TF_PACKAGE=tensorflow
        ARG TF_PACKAGE_VERSION=2.4.1
        RUN python3 -m pip install --no-cache-dir ${TF_PACKAGE}${TF_PACKAGE_VERSION:+==${TF_PACKAGE_VERSION}}
        """,
    ),
    make_case(
        "that recipe without cuSOLVER",
        "TFD201",
        False,
        "libs-not-installed",
        """
        FROM nvidia/cuda:11.0.3-base-ubuntu18.04
        RUN apt-get update && apt-get install -y python3-pip libcublas-11-0 libcufft-11-0 libcurand-11-0 \\
            libcusparse-11-0 libcudnn8=8.0.4.30-1+cuda11.0
        RUN pip3 install tensorflow==2.4.1
        """,
    ),
    make_case(
        "two packages with the same files",
        "",
        True,
        "healthy",
        """
        FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
        RUN apt-get update && apt-get install -y python3-pip
        RUN pip3 install tensorflow==2.6.0 tensorflow-gpu==2.6.0 'protobuf<3.21'
        """,
    ),
    make_case(
        "two packages that no wheel fits",
        "TFD507",
        False,
        "no-matching-wheel",
        """
        FROM python:3.11-slim
        RUN pip install tensorflow==1.15.0 tensorflow-gpu==1.15.0
        """,
    ),
    make_case(
        "variables that stop TensorFlow itself",
        "TFD601",
        False,
        "hidden-by-env",
        """
        FROM python:3.11-slim
        ENV TF_XLA_FLAGS=--tf_xla_auto_jitt=2
        ENV TF_ENABLED_DEVICE_TYPES=$SOMETHING
        RUN pip install "tensorflow[and-cuda]==2.18.0"
        """,
        lines={"TFD601": 2},
    ),
    make_case(
        "the extra brings its own cuDNN",
        "",
        True,
        "healthy",
        """
        FROM nvidia/cuda:12.3.2-cudnn9-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip
        RUN pip3 install "tensorflow[and-cuda]==2.18.0"
        """,
    ),
    make_case(
        "the official image for the CPU",
        "TFD303",
        False,
        "cpu-only-build",
        """
        FROM tensorflow/tensorflow:2.15.0
        """,
        lines={"TFD303": 1},
    ),
    make_case(
        "CUDA that 1.12 is linked with, in a different version",
        "TFD207 TFD501",
        False,
        "inconclusive",
        """
        FROM nvidia/cuda:10.0-cudnn7-runtime-ubuntu18.04
        RUN apt-get update && apt-get install -y python3-pip
        RUN pip3 install tensorflow-gpu==1.12.0 "numpy<1.17" "protobuf<3.21"
        """,
        lines={"TFD207": 3},
    ),
    make_case(
        "a healthy one on a runtime image",
        "",
        True,
        "healthy",
        """
        FROM nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*
        RUN pip3 install --no-cache-dir "tensorflow==2.18.0"
        """,
    ),
    make_case(
        "conda",
        "",
        None,
        "inconclusive",
        """
        FROM continuumio/miniconda3:4.12.0
        RUN conda create -n tf python=3.8 tensorflow-gpu=2.4 cudatoolkit=11.0
        """,
    ),
    make_case(
        "an image of one's own",
        "",
        None,
        "inconclusive",
        """
        ARG BASE
        FROM ${BASE}
        RUN pip install tensorflow==2.15.1
        """,
    ),
    make_case(
        "a runfile brings CUDA",
        "",
        None,
        "inconclusive",
        """
        FROM ubuntu:20.04
        RUN wget -q https://x.example/cuda_11.2.0_460.27.04_linux.run
        RUN sh cuda_11.2.0_460.27.04_linux.run --silent
        RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.5.0 "protobuf<3.21"
        """,
    ),
    make_case(
        "a tag that nobody knows",
        "TFD502",
        None,
        "inconclusive",
        """
        FROM nvidia/cuda:12.4.1-cudnn8-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.16.2
        """,
    ),
    make_case(
        "no tag at all, Windows' line ends and a mark at the beginning",
        "TFD501",
        False,
        "inconclusive",
        "\ufeffFROM nvidia/cuda\r\nRUN apt-get update && \\\r\n    apt-get install -y cowsay\r\n",
    ),
    make_case(
        "the other escape",
        "TFD507",
        False,
        "no-matching-wheel",
        """
        # escape=`
        FROM python:3.13
        RUN pip install `
            tensorflow[and-cuda]==2.18.0
        """,
        lines={"TFD507": 4},
    ),
)
