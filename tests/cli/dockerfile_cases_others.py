"""Dockerfiles with faults of copies, drivers, conda and builds without a GPU, and the files that look like them."""

from __future__ import annotations

from cli.dockerfile_cases import make_case

OTHER_CASES = (
    make_case(
        "a prefix of another Python",
        "TFD521",
        False,
        "tensorflow-missing",
        """
        FROM python:3.11-slim AS build
        RUN pip install --prefix=/install "tensorflow[and-cuda]==2.19.0"
        FROM python:3.12-slim
        COPY --from=build /install /usr/local
        """,
        lines={"TFD521": 4},
    ),
    make_case(
        "a user's packages of another Python",
        "TFD521",
        False,
        "tensorflow-missing",
        """
        FROM python:3.11 AS build
        RUN pip install --user "tensorflow[and-cuda]==2.19.0"
        FROM python:3.10-slim
        COPY --from=build /root/.local /root/.local
        """,
    ),
    make_case(
        "a folder that pip of another Python filled",
        "TFD521",
        False,
        "tensorflow-missing",
        """
        FROM python:3.9 AS deps
        RUN pip install --target=/deps "tensorflow[and-cuda]==2.15.1"
        FROM python:3.11-slim
        COPY --from=deps /deps /usr/local/lib/python3.11/site-packages
        """,
        lines={"TFD521": 4},
    ),
    make_case(
        "a folder that the same Python filled",
        "",
        True,
        "healthy",
        """
        FROM python:3.11 AS deps
        RUN pip install -t /deps/lib "tensorflow[and-cuda]==2.15.1"
        FROM python:3.11-slim
        COPY --from=deps /deps /deps
        ENV PYTHONPATH=/deps/lib
        """,
    ),
    make_case(
        "the same Python in both stages",
        "",
        True,
        "healthy",
        """
        FROM python:3.11 AS build
        RUN pip install --prefix=/install "tensorflow[and-cuda]==2.19.0"
        FROM python:3.11-slim
        COPY --from=build /install /usr/local
        """,
    ),
    make_case(
        "the interpreter comes with its packages",
        "",
        True,
        "healthy",
        """
        FROM python:3.11 AS build
        RUN pip install "tensorflow[and-cuda]==2.19.0"
        FROM python:3.12-slim
        COPY --from=build /usr/local /usr/local
        """,
    ),
    make_case(
        "the interpreter comes in a copy of its own",
        "",
        True,
        "healthy",
        """
        FROM debian:bookworm AS build
        COPY --from=ghcr.io/astral-sh/uv:0.9 /uv /bin/uv
        RUN uv venv --python 3.12 /app/venv && VIRTUAL_ENV=/app/venv uv pip install "tensorflow[and-cuda]==2.19.0"
        FROM debian:bookworm-slim
        COPY --from=build /python /python
        COPY --from=build /app/venv /app/venv
        """,
    ),
    make_case(
        "a driver in the image",
        "TFD522",
        None,
        "inconclusive",
        """
        FROM python:3.11-slim
        RUN apt-get update && apt-get install -y nvidia-utils-550 libnvidia-compute-550
        RUN pip install "tensorflow[and-cuda]==2.19.0"
        """,
        lines={"TFD522": 2},
    ),
    make_case(
        "the toolkit alone is no driver",
        "",
        True,
        "healthy",
        """
        FROM python:3.11-slim
        RUN apt-get update && apt-get install -y cuda-nvcc-12-5 nvtop
        RUN pip install "tensorflow[and-cuda]==2.19.0"
        """,
    ),
    make_case(
        "conda without a GPU",
        "TFD523",
        False,
        "cpu-only-build",
        """
        FROM condaforge/miniforge3
        RUN conda install -y tensorflow=2.15
        """,
        lines={"TFD523": 2},
    ),
    make_case(
        "conda that is told of CUDA",
        "",
        None,
        "inconclusive",
        """
        FROM condaforge/miniforge3
        RUN CONDA_OVERRIDE_CUDA=12.0 conda install -y tensorflow=2.15
        """,
    ),
    make_case(
        "a training while the image is built",
        "TFD524",
        None,
        "inconclusive",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        COPY train.py /app/
        RUN python3 /app/train.py
        """,
        lines={"TFD524": 3},
    ),
    make_case(
        "nvidia-smi while the image is built",
        "TFD524",
        None,
        "inconclusive",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        RUN nvidia-smi
        """,
    ),
    make_case(
        "a training when the container starts",
        "",
        True,
        "healthy",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        COPY . /app/
        RUN python3 /app/setup.py install
        CMD ["python3", "/app/train.py"]
        """,
    ),
    make_case(
        "pip leaves the TensorFlow of the image alone",
        "",
        True,
        "healthy",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        RUN pip install tensorflow
        """,
    ),
    make_case(
        "pip upgrades the TensorFlow of the image",
        "TFD206 TFD510",
        False,
        "cudnn-version-mismatch",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        RUN pip install -U tensorflow
        """,
    ),
    make_case(
        "an apt key of 1.14",
        "TFD513",
        None,
        "inconclusive",
        """
        FROM tensorflow/tensorflow:1.14.0-gpu-py3
        RUN apt-get update && apt-get install -y libgl1
        """,
        lines={"TFD513": 2},
    ),
    make_case(
        "the new apt key from a key server",
        "",
        True,
        "healthy",
        """
        FROM tensorflow/tensorflow:2.4.1-gpu
        RUN apt-key adv --keyserver keyserver.ubuntu.com --recv-keys A4B469963BF863CC
        RUN apt-get update && apt-get install -y libgl1
        """,
    ),
    make_case(
        "all is no index",
        "TFD515",
        False,
        "hidden-by-env",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        ENV CUDA_VISIBLE_DEVICES=all
        """,
        lines={"TFD515": 2},
    ),
    make_case(
        "indexes and UUIDs",
        "",
        True,
        "healthy",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        ENV CUDA_VISIBLE_DEVICES=0,GPU-8932f937
        """,
    ),
    make_case(
        "a requirements file that nothing copies",
        "TFD525",
        False,
        "inconclusive",
        """
        FROM python:3.11
        RUN pip install -r requirements.txt
        COPY . .
        """,
        lines={"TFD525": 2},
    ),
    make_case(
        "a requirements file that a command may have made",
        "",
        None,
        "inconclusive",
        """
        FROM python:3.11
        RUN git clone https://example.org/app.git
        RUN pip install -r app/requirements.txt
        """,
    ),
    make_case(
        "a typographic dash",
        "TFD525",
        False,
        "inconclusive",
        """
        FROM tensorflow/tensorflow:2.17.0-gpu
        RUN pip install -\N{EN DASH}upgrade pip
        """,
        lines={"TFD525": 2},
    ),
    make_case(
        "ubuntu 26.04",
        "TFD507 TFD510 TFD520",
        False,
        "inconclusive",
        """
        FROM ubuntu:26.04
        RUN apt-get update && apt-get install -y python3-pip
        RUN pip3 install tensorflow
        """,
    ),
)
