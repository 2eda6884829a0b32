"""Build files in the manner of public repositories: no error in those that work, and each planted fault is found.

`tfdoctor lint` reads all of them in one call, without the network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKING: dict[str, dict[str, str]] = {
    "train": {
        "Dockerfile": """\
FROM tensorflow/tensorflow:2.14.0-gpu
LABEL maintainer="ml-team"
ENV PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=1
WORKDIR /srv/train
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
ENTRYPOINT ["python", "-m", "train"]
""",
        "requirements.txt": """\
pandas==2.0.3
scikit-learn==1.3.2
tqdm
""",
    },
    "slim-and-cuda": {
        "Dockerfile": """\
# syntax=docker/dockerfile:1
FROM python:3.11-slim
RUN --mount=type=cache,target=/root/.cache/pip \\
    pip install "tensorflow[and-cuda]==2.17.1" "keras-cv"
COPY src/ /src/
CMD ["python", "/src/main.py"]
""",
    },
    "cuda-12.6": {
        "Dockerfile": """\
ARG CUDA=12.6.3
FROM nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu22.04
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update -y && apt-get install -y --no-install-recommends python3 python3-pip && rm -rf /var/lib/apt/lists/*
RUN python3 -m pip install --upgrade pip && python3 -m pip install tensorflow==2.18.0
""",
    },
    "ngc": {
        "Dockerfile": """\
FROM nvcr.io/nvidia/tensorflow:24.03-tf2-py3
RUN pip install wandb hydra-core
WORKDIR /workspace
""",
    },
    "compose": {
        "docker-compose.yml": """\
services:
  trainer:
    image: tensorflow/tensorflow:2.14.0-gpu
    command: python train.py
    volumes: ["./:/app"]
    working_dir: /app
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 1
              capabilities: [gpu]
  board:
    image: tensorflow/tensorflow:2.14.0
    command: tensorboard --logdir /logs --bind_all
    ports: ["6006:6006"]
""",
    },
    "devcontainer": {
        ".devcontainer/devcontainer.json": """\
{
  // notebook
  "name": "tf",
  "image": "tensorflow/tensorflow:2.14.0-gpu-jupyter",
  "runArgs": ["--gpus", "all", "--shm-size=2g"],
  "postCreateCommand": "pip install -r requirements-dev.txt",
}
""",
        "requirements-dev.txt": """\
black
pytest
""",
    },
    "multistage": {
        "Dockerfile": """\
FROM python:3.10-bookworm AS build
RUN python -m venv /opt/venv
ENV PATH="/opt/venv/bin:$PATH"
RUN pip install "tensorflow[and-cuda]==2.16.2"
FROM python:3.10-slim-bookworm
COPY --from=build /opt/venv /opt/venv
ENV PATH="/opt/venv/bin:$PATH"
USER 1001
CMD ["gunicorn", "app:app"]
""",
    },
    "conda-override": {
        "Dockerfile": """\
FROM continuumio/miniconda3
ENV CONDA_OVERRIDE_CUDA=12.0
RUN conda create -y -n tf -c conda-forge python=3.11 "tensorflow=2.16.*=cuda*" && conda clean -afy
ENV PATH=/opt/conda/envs/tf/bin:$PATH
""",
    },
    "uv": {
        "Dockerfile": """\
FROM ghcr.io/astral-sh/uv:python3.12-bookworm-slim
WORKDIR /app
ENV UV_SYSTEM_PYTHON=1 UV_LINK_MODE=copy
RUN uv pip install "tensorflow[and-cuda]==2.19.0"
""",
    },
    "cuda-11.8": {
        "Dockerfile": """\
FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04
RUN apt update && apt install -y python3-pip git wget
RUN pip3 install tensorflow==2.12.0 tensorflow-probability==0.20.1
""",
    },
    "two-targets": {
        "Dockerfile": """\
FROM python:3.11-slim AS base
RUN pip install numpy==1.26.4
FROM base AS cpu-tests
RUN pip install tensorflow-cpu==2.15.1 pytest
FROM base AS gpu
RUN pip install "tensorflow[and-cuda]==2.15.1"
""",
    },
    "compose-build": {
        "compose.yaml": """\
services:
  jupyter:
    build:
      context: .
    gpus: all
    environment:
      - TF_FORCE_GPU_ALLOW_GROWTH=true
    ports:
      - "8888:8888"
  db:
    image: postgres:16
    environment:
      POSTGRES_PASSWORD: example
""",
        "Dockerfile": """\
FROM tensorflow/tensorflow:2.13.0-gpu-jupyter
RUN python3 -m pip install matplotlib seaborn
""",
    },
}
FAULTY: dict[str, tuple[str, dict[str, str]]] = {
    "gpu-package": (
        "TFD508",
        {
            "Dockerfile": """\
FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu20.04
RUN apt-get update && apt-get install -y python3.9 python3-pip
RUN pip3 install tensorflow-gpu==2.12.0
""",
        },
    ),
    "py312": (
        "TFD507",
        {
            "Dockerfile": """\
FROM python:3.12-slim
WORKDIR /code
COPY ./requirements.txt /code/requirements.txt
RUN pip install --no-cache-dir --upgrade -r /code/requirements.txt
CMD ["uvicorn", "app.main:app", "--host", "0.0.0.0"]
""",
            "requirements.txt": """\
fastapi
uvicorn[standard]
tensorflow==2.15.0
""",
        },
    ),
    "tag": (
        "TFD501",
        {
            "Dockerfile": """\
FROM nvidia/cuda:11.2-cudnn8-devel-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip3 install tensorflow==2.8.0
""",
        },
    ),
    "2.15.0": (
        "TFD503",
        {
            "Dockerfile": """\
FROM tensorflow/tensorflow:2.15.0-gpu
RUN pip install librosa
COPY . /app
""",
        },
    ),
    "hidden": (
        "TFD515",
        {
            "Dockerfile": """\
FROM tensorflow/tensorflow:2.13.0-gpu
ENV CUDA_VISIBLE_DEVICES=-1
COPY predict.py /
CMD ["python", "/predict.py"]
""",
        },
    ),
    "stubs": (
        "TFD516",
        {
            "Dockerfile": """\
FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:${LD_LIBRARY_PATH}
RUN apt-get update && apt-get install -y python3 python3-pip && pip3 install tensorflow==2.13.1
""",
        },
    ),
    "no-libs": (
        "TFD201",
        {
            "Dockerfile": """\
FROM nvidia/cuda:12.2.2-base-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip install tensorflow==2.15.1
""",
        },
    ),
    "numpy": (
        "TFD306 TFD519",
        {
            "Dockerfile": """\
FROM python:3.10
ADD requirements.txt /
RUN pip install -r /requirements.txt
""",
            "requirements.txt": """\
tensorflow[and-cuda]==2.15.1
numpy==2.0.2
""",
        },
    ),
    "pep668": (
        "TFD520",
        {
            "Dockerfile": """\
FROM ubuntu:24.04
RUN apt-get update && apt-get install -y python3 python3-pip
RUN pip3 install 'tensorflow[and-cuda]==2.18.0'
""",
        },
    ),
    "key": (
        "TFD513",
        {
            "Dockerfile": """\
FROM tensorflow/tensorflow:2.4.1-gpu
RUN apt-get update && apt-get install -y git libgl1-mesa-glx
RUN pip install opencv-python==4.5.1.48
""",
        },
    ),
    "compose-no-gpu": (
        "TFD515",
        {
            "docker-compose.yaml": """\
version: "3.8"
services:
  worker:
    image: tensorflow/tensorflow:2.14.0-gpu
    command: ["python", "/app/train.py", "--epochs", "10"]
    volumes:
      - .:/app
""",
        },
    ),
    "compose-void": (
        "TFD515",
        {
            "docker-compose.yml": """\
version: "2.3"
services:
  train:
    image: tensorflow/tensorflow:2.14.0-gpu
    runtime: nvidia
    environment:
      NVIDIA_VISIBLE_DEVICES: void
""",
        },
    ),
    "devcontainer-without-gpu": (
        "TFD515",
        {
            ".devcontainer/devcontainer.json": """\
{
  "name": "train",
  "image": "tensorflow/tensorflow:2.14.0-gpu",
  "customizations": {"vscode": {"extensions": ["ms-python.python"]}}
}
""",
        },
    ),
    "gpu-at-build": (
        "TFD524",
        {
            "Dockerfile": """\
FROM tensorflow/tensorflow:2.14.0-gpu
COPY . /app
WORKDIR /app
RUN nvidia-smi && python scripts/prepare.py
""",
        },
    ),
    "driver": (
        "TFD522",
        {
            "Dockerfile": """\
FROM ubuntu:22.04
RUN apt-get update && apt-get install -y nvidia-driver-535 nvidia-utils-535 python3-pip
RUN pip3 install "tensorflow[and-cuda]==2.16.2"
""",
        },
    ),
    "capabilities": (
        "TFD515",
        {
            "Dockerfile": """\
FROM python:3.11-slim
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=video,graphics
RUN pip install "tensorflow[and-cuda]==2.17.1"
""",
        },
    ),
    "protobuf": (
        "TFD307",
        {
            "Dockerfile": """\
FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip3 install tensorflow==2.9.3
RUN pip3 install protobuf==4.25.3 grpcio
""",
        },
    ),
    "copied-user-site": (
        "TFD521",
        {
            "Dockerfile": """\
FROM python:3.10 as builder
RUN pip install --user "tensorflow[and-cuda]==2.16.2"
FROM python:3.11-slim
COPY --from=builder /root/.local /root/.local
ENV PATH=/root/.local/bin:$PATH
CMD python main.py
""",
        },
    ),
    "alpine": (
        "TFD507",
        {
            "Dockerfile": """\
FROM python:3.11-alpine
RUN apk add --no-cache build-base
RUN pip install tensorflow==2.16.1
""",
        },
    ),
    "copied-target": (
        "TFD521",
        {
            "Dockerfile": """\
FROM python:3.9-slim AS deps
RUN pip install --target=/deps "tensorflow[and-cuda]==2.15.1"
FROM python:3.11-slim
COPY --from=deps /deps /usr/local/lib/python3.11/site-packages
""",
        },
    ),
    "devcontainer-python": (
        "TFD507",
        {
            ".devcontainer/devcontainer.json": """\
{
  "name": "py",
  "image": "mcr.microsoft.com/devcontainers/python:3.12",
  "runArgs": ["--gpus", "all"],
  "postCreateCommand": "pip install --user tensorflow==2.15.0"
}
""",
        },
    ),
    "devcontainer-libraries": (
        "TFD201",
        {
            ".devcontainer/devcontainer.json": """\
{
  "image": "mcr.microsoft.com/devcontainers/python:1-3.11-bookworm",
  "runArgs": ["--gpus", "all"],
  "postCreateCommand": "pip install tensorflow==2.19.0"
}
""",
        },
    ),
    "tensorrt": (
        "TFD511",
        {
            "Dockerfile": """\
FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip3 install tensorflow[and-cuda]==2.15.0
""",
        },
    ),
    "misspelt": (
        "TFD711",
        {
            "Dockerfile": """\
FROM tensorflow/tensorflow:2.14.0-gpu
ENV CUDA_VISIBLE_DEVICE=0
ENV TF_FORCE_GPU_ALLOW_GROWHT=true
""",
        },
    ),
    "conda-libs": (
        "TFD306",
        {
            "Dockerfile": """\
FROM continuumio/miniconda3:23.5.2-0
RUN conda install -y -c conda-forge python=3.9 cudatoolkit=10.1 cudnn=7.6
RUN pip install tensorflow==2.11.0
ENV LD_LIBRARY_PATH=/opt/conda/lib
""",
        },
    ),
    "tf1-py38": (
        "TFD507",
        {
            "Dockerfile": """\
FROM python:3.8-buster
RUN pip install tensorflow-gpu==1.15.0 keras==2.2.5 h5py==2.10
""",
        },
    ),
    "no-cudnn": (
        "TFD205",
        {
            "Dockerfile": """\
FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip install tensorflow==2.12.1
""",
        },
    ),
    "keras3": (
        "TFD519",
        {
            "Dockerfile": """\
FROM tensorflow/tensorflow:2.14.0-gpu
RUN pip install tensorflow==2.14.0 keras==3.3.3
""",
        },
    ),
    "conda-cpu": (
        "TFD523",
        {
            "Dockerfile": """\
FROM mambaorg/micromamba:1.5.8
RUN micromamba install -y -n base -c conda-forge python=3.11 tensorflow=2.16 && micromamba clean -a -y
""",
        },
    ),
    "cudnn-old": (
        "TFD206",
        {
            "Dockerfile": """\
FROM nvidia/cuda:12.5.1-cudnn-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip install tensorflow==2.18.0
""",
        },
    ),
    "no-such": (
        "TFD508",
        {
            "Dockerfile": """\
FROM python:3.9
RUN pip install "tensorflow[and-cuda]==2.15.7"
""",
        },
    ),
    "plain": (
        "TFD201",
        {
            "Dockerfile": """\
FROM python:3.11
RUN pip install tensorflow==2.16.1 keras-tuner
CMD ["python", "tune.py"]
""",
        },
    ),
    "arm": (
        "TFD507",
        {
            "Dockerfile": """\
FROM --platform=linux/arm64 python:3.11-slim
RUN pip install "tensorflow==2.16.2"
""",
        },
    ),
    "compose-cap": (
        "TFD515",
        {
            "compose.yml": """\
services:
  api:
    image: tensorflow/tensorflow:2.14.0-gpu
    environment:
      NVIDIA_DRIVER_CAPABILITIES: utility
    deploy:
      resources:
        reservations:
          devices:
            - capabilities: [gpu]
""",
        },
    ),
}
"""The codes of the errors and warnings, and the files."""


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[tuple[str, str]]]:
    """Return the (code, severity) of the findings in each project."""
    root = tmp_path_factory.mktemp("projects")
    projects = {**WORKING, **{name: files for name, (_, files) in FAULTY.items()}}
    for project, files in projects.items():
        for name, text in files.items():
            path = root / project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), encoding="utf-8")
    environment = {**os.environ, "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    command = [sys.executable, "-m", "tfdoctor", "lint", str(root), "--json"]
    result = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=250)
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for finding in json.loads(result.stdout)["findings"]:
        project = finding["path"].removeprefix(f"{root}/").partition("/")[0]
        found[project].add((finding["code"], finding["severity"]))
    return found


@pytest.mark.parametrize("name", WORKING)
def test_working_file_has_no_error(codes: Mapping[str, set[tuple[str, str]]], name: str) -> None:
    assert [code for code, severity in codes[name] if severity == "error"] == []


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_found(codes: Mapping[str, set[tuple[str, str]]], name: str) -> None:
    expected = set(FAULTY[name][0].split())
    assert expected <= {code for code, _ in codes[name]}, codes[name]


def test_files_without_a_build_are_not_blamed_for_libraries(
    codes: Mapping[str, set[tuple[str, str]]],
) -> None:
    """No TensorFlow that pip finds could use a GPU there, whatever libraries the image has."""
    for name in ("alpine", "arm"):
        assert {code for code, _ in codes[name]} == {"TFD507"}
