"""Dockerfiles in which pip fails: incompatible requirements and an externally managed Python."""

from __future__ import annotations

from cli.dockerfile_cases import make_case

PIP_CASES = (
    make_case(
        "a numpy that the named release excludes",
        "TFD519",
        False,
        "package-conflict",
        """
        FROM python:3.11
        RUN pip install "tensorflow[and-cuda]==2.16.2" "numpy>=2"
        """,
        lines={"TFD519": 2},
    ),
    make_case(
        "the same in a file of requirements",
        "TFD519",
        False,
        "package-conflict",
        """
        FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip
        COPY requirements.txt .
        RUN pip3 install -r requirements.txt
        """,
        {"requirements.txt": "tensorflow==2.12.0\nnumpy>=2\n"},
        lines={"TFD519": 2},
    ),
    make_case(
        "a devel image that is there",
        "",
        True,
        "healthy",
        """
        FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04
        RUN apt-get update && apt-get install -y python3-pip && pip3 install tensorflow==2.12.0
        """,
    ),
    make_case(
        "constraints that exclude what is asked for",
        "TFD519",
        False,
        "package-conflict",
        """
        FROM python:3.11
        COPY limits.txt .
        RUN pip install -c limits.txt "tensorflow[and-cuda]==2.18.0" "numpy==2.0.2"
        """,
        {"limits.txt": "numpy<2\n"},
    ),
    make_case(
        "a range after TensorFlow takes another version than TensorFlow asks for",
        "TFD306",
        False,
        "numpy-abi",
        """
        FROM python:3.11
        RUN pip install "tensorflow[and-cuda]==2.16.2"
        RUN pip install pandas "numpy>=2"
        """,
        lines={"TFD306": 3},
    ),
    make_case(
        "a range beside the TensorFlow of the image",
        "TFD306",
        False,
        "numpy-abi",
        """
        FROM tensorflow/tensorflow:2.16.1-gpu
        RUN pip install "numpy>=2"
        """,
        lines={"TFD306": 2},
    ),
    make_case(
        "a range before TensorFlow, which puts its own version there",
        "",
        True,
        "healthy",
        """
        FROM python:3.11
        RUN pip install "numpy>=2"
        RUN pip install "tensorflow[and-cuda]==2.16.2"
        """,
    ),
    make_case(
        "a range that the version which is there meets",
        "",
        True,
        "healthy",
        """
        FROM python:3.11
        RUN pip install "tensorflow[and-cuda]==2.16.2"
        RUN pip install "numpy>=1.24"
        """,
    ),
    make_case(
        "one after the other is no conflict for pip, and wrong all the same",
        "TFD306",
        False,
        "numpy-abi",
        """
        FROM python:3.11
        RUN pip install "tensorflow[and-cuda]==2.16.2"
        RUN pip install "numpy==2.0.2"
        """,
    ),
    *(
        make_case(
            f"the system's own Python of {base}, with {pip}",
            "TFD520",
            False,
            "inconclusive",
            f"""
            FROM {base}
            RUN apt-get update && apt-get install -y python3-pip
            RUN {pip} install {requirement}
            """,
            lines={"TFD520": 3},
        )
        for base, pip, requirement in (
            ("ubuntu:24.04", "pip3", "tensorflow[and-cuda]==2.18.0"),
            ("debian:bookworm", "pip3", "tensorflow[and-cuda]==2.18.0"),
            ("debian:12-slim", "python3 -m pip", "tensorflow[and-cuda]==2.18.0"),
            ("debian:trixie", "pip", "tensorflow[and-cuda]==2.20.0"),
        )
    ),
    *(
        make_case(
            f"pip of trixie, called {pip}, has no wheel for 3.13",
            "TFD507 TFD520",
            False,
            "inconclusive",
            f"""
            FROM debian:trixie
            RUN apt-get update && apt-get install -y python3-pip
            RUN {pip} install tensorflow[and-cuda]==2.18.0
            """,
        )
        for pip in ("pip", "pip3")
    ),
    *(
        make_case(
            f"what pip takes on bookworm: {name}",
            "",
            True,
            "healthy",
            "FROM debian:bookworm\nRUN apt-get update && apt-get install -y python3-pip python3-venv\n"
            + lines,
        )
        for name, lines in (
            (
                "a virtual environment",
                "RUN python3 -m venv /v && /v/bin/pip install tensorflow[and-cuda]==2.18.0",
            ),
            (
                "one on PATH",
                "RUN python3 -m venv /v\nENV PATH=/v/bin:$PATH\nRUN pip install tensorflow[and-cuda]==2.18.0",
            ),
            ("the option", "RUN pip install --break-system-packages tensorflow[and-cuda]==2.18.0"),
            (
                "the variable",
                "ENV PIP_BREAK_SYSTEM_PACKAGES=1\nRUN pip install tensorflow[and-cuda]==2.18.0",
            ),
            (
                "the mark taken away",
                "RUN rm /usr/lib/python3.11/EXTERNALLY-MANAGED && pip install tensorflow[and-cuda]==2.18.0",
            ),
        )
    ),
)
