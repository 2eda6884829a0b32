"""Every kind of text has a parser and is detected by its content."""

from __future__ import annotations

import json

import pytest

from probes.parsers.texts import TF_ENV
from tfdoctor.probes.parsers.registry import PARSERS, detect_kind, parse

SAMPLES = {
    "smi_table": "| NVIDIA-SMI 999.13                 Driver Version: 999.13                    |\n",
    "smi_failure": "Failed to initialize NVML: Unknown Error\n",
    "smi_q_xml": "<nvidia_smi_log></nvidia_smi_log>",
    "smi_q": "==============NVSMI LOG==============\nDriver Version : 999.1\n",
    "smi_csv": "name, memory.total [MiB]\nTesla T4, 15360 MiB\n",
    "smi_list": "GPU 0: Tesla T4 (UUID: GPU-1)\n",
    "smi_topo": "\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n",
    "smi_version": "NVIDIA-SMI version  : 999.1\nDRIVER version : 999.1\n",
    "nvcc": "Cuda compilation tools, release 12.9, V12.9.86\n",
    "cudnn_header": "#define CUDNN_MAJOR 9\n",
    "cuda_version_file": "CUDA Version 10.1.243\n",
    "ldconfig": "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1\n",
    "dpkg": "ii  libcudnn8   8.8.0.121-1+cuda11.8    amd64        cuDNN runtime libraries\n",
    "pip_conda": "numpy==1.26.4\ntensorflow==2.16.1\n",
    "lspci": "01:00.0 VGA compatible controller: NVIDIA Corporation GP104 (rev a1)\n",
    "proc_version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.99  Mon Jan  1 00:00:00 2018\n",
    "container_cli": "NVRM version:   999.54.03\nCUDA version:   12.2\n",
    "docker_info": " Runtimes: nvidia runc\n",
    "lsmod": "Module                  Size  Used by\nnvidia_drm             57344  0\n",
    "tf_env": TF_ENV,
}


def test_every_kind_is_parsed_and_detected() -> None:
    assert SAMPLES.keys() == PARSERS.keys()
    for kind, text in SAMPLES.items():
        assert detect_kind(text) == kind
        json.dumps(parse(kind, text))


def test_unknown_text_is_not_detected() -> None:
    assert detect_kind("") is None
    assert detect_kind("My GPU is not seen by TensorFlow, please help.\n") is None


def test_unknown_kind() -> None:
    with pytest.raises(KeyError):
        parse("smoke_signals", "")
