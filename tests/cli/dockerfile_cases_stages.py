"""Dockerfiles that copy from another stage: the libraries that the copy brings and those that it lacks."""

from __future__ import annotations

from cli.dockerfile_cases import make_case

STAGE_CASES = (
    make_case(
        "a virtual environment from a stage that has CUDA of its own",
        "TFD201",
        False,
        "libs-not-installed",
        """
        FROM nvidia/cuda:11.2.2-cudnn8-devel-ubuntu20.04 AS builder
        RUN apt-get update && apt-get install -y python3 python3-venv
        RUN python3 -m venv /opt/venv
        RUN /opt/venv/bin/pip install tensorflow==2.10.1
        FROM ubuntu:20.04
        COPY --from=builder /opt/venv /opt/venv
        """,
        lines={"TFD201": 4},
    ),
    make_case(
        "libraries of CUDA from another stage",
        "",
        None,
        "inconclusive",
        """
        FROM mambaorg/micromamba:1.5.8 AS cuda
        RUN micromamba create -y -p /tmp/cuda -c conda-forge cudatoolkit=10.0 cudnn=7.6 \\
         && install -d /tmp/libraries && cp -a /tmp/cuda/lib/libcu*.so* /tmp/libraries
        FROM python:3.7-slim
        COPY --from=cuda /tmp/libraries /opt/libraries
        RUN echo /opt/libraries >/etc/ld.so.conf.d/libraries.conf && ldconfig
        RUN pip install tensorflow-gpu==1.14.0 "protobuf<3.21" "numpy<1.19"
        """,
    ),
    make_case(
        "the libraries of an image of CUDA",
        "",
        None,
        "inconclusive",
        """
        FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04 AS base
        FROM python:3.9-slim
        COPY --from=base /usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu
        COPY --from=base /usr/local /usr/local
        RUN pip install tensorflow==2.10.1 "protobuf<3.20" "numpy<2"
        """,
    ),
    make_case(
        "an environment of conda from another stage",
        "",
        None,
        "inconclusive",
        """
        FROM condaforge/miniforge3 AS build
        RUN mamba create -y -p /opt/env python=3.7 cudatoolkit=10.0 cudnn=7.6
        RUN /opt/env/bin/pip install tensorflow-gpu==1.14.0 "protobuf<3.21" "numpy<1.19"
        FROM debian:bookworm-slim
        COPY --from=build /opt/env /opt/env
        """,
    ),
)
