"""Toolkit, packages, kernel and container tools."""

from __future__ import annotations

import json

import pytest

from tfdoctor.parse.container_cli import parse_container_cli
from tfdoctor.parse.cuda_version_file import parse_cuda_version_file
from tfdoctor.parse.cudnn_header import parse_cudnn_header
from tfdoctor.parse.docker_info import parse_docker_info
from tfdoctor.parse.dpkg import parse_dpkg
from tfdoctor.parse.kinds import PARSERS, detect, parse
from tfdoctor.parse.ldconfig import parse_ldconfig
from tfdoctor.parse.lsmod import parse_lsmod
from tfdoctor.parse.nvcc import parse_nvcc
from tfdoctor.parse.pci import parse_lspci
from tfdoctor.parse.pip_conda import parse_pip_conda
from tfdoctor.parse.proc_version import parse_proc_version
from tfdoctor.parse.tf_env import parse_tf_env


@pytest.mark.parametrize(
    ("text", "module", "version", "is_open", "gcc"),
    [
        (
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.99  Mon Jan  1 00:00:00 PDT 2018\n"
                "GCC version:  gcc version 4.8.4 (Ubuntu 4.8.4-2ubuntu1~14.04.3)\n"
            ),
            "NVIDIA UNIX x86_64 Kernel Module",
            "999.99",
            False,
            "gcc version 4.8.4 (Ubuntu 4.8.4-2ubuntu1~14.04.3)",
        ),
        (
            (
                "> NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  999.4.0  Release  (a@b-1.2.3)  "
                "GCC version:  Selected multilib: .;@m64"
            ),
            "NVIDIA UNIX Open Kernel Module for aarch64",
            "999.4.0",
            True,
            "Selected multilib: .;@m64",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module",
            "NVIDIA UNIX x86_64 Kernel Module",
            None,
            False,
            None,
        ),
        ("cat: /proc/driver/nvidia/version: No such file or directory", None, None, None, None),
    ],
)
def test_proc_version(
    text: str, module: str | None, version: str | None, is_open: bool | None, gcc: str | None
) -> None:
    parsed = parse_proc_version(text)
    assert (parsed.module, parsed.driver_version, parsed.open_kernel_module, parsed.gcc) == (
        module,
        version,
        is_open,
        gcc,
    )


def test_nvcc() -> None:
    parsed = parse_nvcc("""\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2099 NVIDIA Corporation
Built on Thu_Mar_19_11:12:51_PM_PDT_2099
Cuda compilation tools, release 99.2, V99.2.78
Build cuda_99.2.r99.2/compiler.37668154_0`
""")
    assert (parsed.found, parsed.release, parsed.version) == (True, "99.2", "99.2.78")
    assert parsed.build == "cuda_99.2.r99.2/compiler.37668154_0"
    assert parsed.built_on == "Thu_Mar_19_11:12:51_PM_PDT_2099"


@pytest.mark.parametrize(
    "text",
    ["bash: nvcc: command not found", "Command 'nvcc' not found, but can be installed with:", "", "nothing"],
)
def test_nvcc_not_found(text: str) -> None:
    parsed = parse_nvcc(text)
    assert (parsed.found, parsed.release, parsed.built_on) == (False, None, None)
    assert parsed.notes


def test_cuda_version_file() -> None:
    parsed = parse_cuda_version_file("""\
> cat /usr/local/cuda/version.json
   "cuda" : {
      "name" : "CUDA SDK",
      "version" : "99.8.20990929"
   },
   "cuda_nvcc" : {
      "name" : "CUDA NVCC",
      "version" : "99.8.89"
   },
   "libcublas" : {
""")
    assert (parsed.kind, parsed.cuda_version) == ("version.json", "99.8.20990929")
    assert parsed.components == {"cuda": "99.8.20990929", "cuda_nvcc": "99.8.89"}
    parsed = parse_cuda_version_file("CUDA Version 9.0.176\nCUDA Patch Version 9.0.176.1\n")
    assert (parsed.kind, parsed.cuda_version) == ("version.txt", "9.0.176")
    assert parse_cuda_version_file("nothing").kind is None


def test_cudnn_header() -> None:
    parsed = parse_cudnn_header("""\
a/cudnn_version.h:#define CUDNN_MAJOR      99
a/cudnn_version.h:#define CUDNN_MINOR 10
a/cudnn_version.h:#define CUDNN_PATCHLEVEL 1
#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)
#define CUDNN_MAJOR 7
""")
    assert (parsed.major, parsed.minor, parsed.patch) == (99, 10, 1)
    assert [(one.major, one.minor) for one in parsed.all] == [(99, 10), (7, None)]
    assert parse_cudnn_header("").major is None


def test_ldconfig() -> None:
    parsed = parse_ldconfig("""\
# \tlibcudnn.so.8 (libc6,x86-64) => /a/libcudnn.so.8    libcudnn.so (libc6,x86-64) => /a/libcudnn.so
\tlibicudata.so.60 (libc6,x86-64, OS ABI: Linux 3.2.0) => /usr/lib/libicudata.so.60
\tlibcudart.so.12 -> libcudart.so.12.4.127
/usr/local/cuda/lib64: (from /etc/ld.so.conf.d/cuda.conf:1)
""")
    assert [(lib.soname, lib.path) for lib in parsed.libs] == [
        ("libcudnn.so.8", "/a/libcudnn.so.8"),
        ("libcudnn.so", "/a/libcudnn.so"),
        ("libicudata.so.60", "/usr/lib/libicudata.so.60"),
    ]
    assert [(link.soname, link.target) for link in parsed.links] == [
        ("libcudart.so.12", "libcudart.so.12.4.127")
    ]
    assert parsed.cuda_related == ("libcudart.so.12", "libcudnn.so", "libcudnn.so.8")


def test_lspci_forms() -> None:
    parsed = parse_lspci("""\
00:00.0 Host bridge: Intel Corporation Something (rev 07)
\tKernel driver in use: skl_uncore
00:02.0 Display controller: Intel Corporation HD Graphics 530 (rev 06)
0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2206] (rev a1)
\tSubsystem: NVIDIA Corporation Device 1014
\tKernel driver in use: nouveau
\tKernel modules: nvidiafb, nouveau
0000:01:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:1aef] (rev a1)
> 05:00.0 Bridge: NVIDIA Corporation GA100 [A100 NVSwitch] (rev a1)
02:00.0 0302: 10de:1db4 (rev a1)
12:06:00.0 "VGA compatible controller [0300]" "Advanced Micro Devices [1002]" "Navi [731f]" -rc1
""")
    rows = [(d.slot, d.cls, d.nvidia, d.display, d.vendor_device_id) for d in parsed.devices]
    assert rows == [
        ("00:02.0", "Display controller", False, True, None),
        ("0000:01:00.0", "VGA compatible controller", True, True, "10de:2206"),
        ("0000:01:00.1", "Audio device", True, False, "10de:1aef"),
        ("05:00.0", "Bridge", True, False, None),
        ("02:00.0", "0302", True, True, "10de:1db4"),
        ("06:00.0", "VGA compatible controller", False, True, "1002:731f"),
    ]
    assert (parsed.n_nvidia_gpus, parsed.n_nvidia_functions) == (2, 4)
    assert parsed.drivers_in_use == ("skl_uncore", "nouveau")
    assert (parsed.devices[1].driver, parsed.devices[1].kernel_modules) == (
        "nouveau",
        ("nvidiafb", "nouveau"),
    )


def test_lsmod_and_proc_modules() -> None:
    parsed = parse_lsmod("""\
Module                  Size  Used by
nvidia_drm             57344  0
nvidia              35315712  115 nvidia_uvm,nvidia_modeset
nouveau 2301952 -2 - Live 0xffffffffc0a5d000
drm 491520 6 drm_kms_helper,nvidia, Live 0xffffffffc0a5d000
""")
    assert (parsed.n_modules, parsed.nouveau) == (4, True)
    assert [(m.module, m.size, m.used, m.by) for m in parsed.nvidia_modules] == [
        ("nvidia_drm", 57344, 0, ()),
        ("nvidia", 35315712, 115, ("nvidia_uvm", "nvidia_modeset")),
    ]


def test_dpkg_and_apt() -> None:
    parsed = parse_dpkg("""\
$ dpkg -l | grep nvidia
ii  libcudnn9-cuda-12:amd64    9.1.0.70-1    amd64        cuDNN runtime libraries
rc  nvidia-docker2             2.0.3+docker18.09.3-1  all  nvidia-docker CLI wrapper
un  nvidia-kernel-common       <none>        <none>       (no description available)
iF  nvidia-dkms-999            999.1-0ubuntu1 amd64
in this listing nothing amd64 is missing
libcudnn8/unknown,now 8.8.0.121-1+cuda11.8 amd64 [installed]
""")
    assert [(row.status, row.name, row.version, row.arch) for row in parsed.rows] == [
        ("ii", "libcudnn9-cuda-12:amd64", "9.1.0.70-1", "amd64"),
        ("rc", "nvidia-docker2", "2.0.3+docker18.09.3-1", "all"),
        ("un", "nvidia-kernel-common", "<none>", "<none>"),
        ("iF", "nvidia-dkms-999", "999.1-0ubuntu1", "amd64"),
    ]
    assert [(row.name, row.version, row.arch) for row in parsed.apt_rows] == [
        ("libcudnn8", "8.8.0.121-1+cuda11.8", "amd64")
    ]
    assert parsed.n_rows == 4


@pytest.mark.parametrize(
    ("text", "layout", "count", "relevant"),
    [
        (
            "!pip freeze\nabsl-py==1.0\nKeras==2.3.1\ntorch==1.5.0+cu101 ; python_version>'3'\nx @ file:///x.whl\n",
            "freeze",
            4,
            [("Keras", "2.3.1"), ("torch", "1.5.0+cu101")],
        ),
        (
            (
                "Package    Version Editable project location\n---------- -------\nnumpy      1.26.4\n"
                "tf-nightly 2.99.0  /home/user/src\n"
            ),
            "pip_list",
            2,
            [("tf-nightly", "2.99.0")],
        ),
        ("numpy (1.13.1)\ntensorflow-gpu (1.6.0)\n", "pip_list", 2, [("tensorflow-gpu", "1.6.0")]),
        (
            (
                "# packages in environment at /opt/conda:\n#\n# Name   Version   Build  Channel\n"
                "_tflow_select  2.1.0  gpu\ncudatoolkit  9.0  h13b8566_0  a\nKeras  2.2.2\nblas 1.0 mkl\n"
            ),
            "conda_list",
            4,
            [("_tflow_select", "2.1.0"), ("cudatoolkit", "9.0"), ("Keras", "2.2.2")],
        ),
        (
            "name: x\ndependencies:\n  - cudnn=7.6.0=cuda9.0_0\n  - zlib=1.2.11=h7b6447c_3\n",
            "conda_export",
            2,
            [("cudnn", "7.6.0")],
        ),
        ("There is nothing to see here.\n", None, 0, []),
    ],
)
def test_pip_conda(text: str, layout: str | None, count: int, relevant: list[tuple[str, str]]) -> None:
    parsed = parse_pip_conda(text)
    assert (parsed.format, parsed.n_packages) == (layout, count)
    assert [(package.name, package.version) for package in parsed.relevant] == relevant


def test_container_cli() -> None:
    parsed = parse_container_cli("""\
I0101 00:00:00.000000 1 nvc_info.c:642] requesting device information
NVRM version:   (null)
CUDA version:   99.0

Device Index:   0
Model:          Xavier
GPU UUID:       (null)
Bus Location:   (null)
Architecture:   7.2

Device Index:   1
Model:          NVIDIA A10G
GPU UUID:       GPU-a
Bus Location:   00000000:00:1e.0
Architecture:   8.6
""")
    assert (parsed.nvrm_version, parsed.cuda_version) == ((None,), ("99.0",))
    assert [(d.model, d.uuid, d.architecture) for d in parsed.devices] == [
        ("Xavier", None, "7.2"),
        ("NVIDIA A10G", "GPU-a", "8.6"),
    ]
    assert parsed.bus_location == (None, "00000000:00:1e.0")


@pytest.mark.parametrize(
    ("text", "runtimes", "default", "server"),
    [
        (" Server Version: 99.0.1\n Runtimes: io.containerd.runc.v2 nvidia runc\n Default Runtime: runc\n",
         ("io.containerd.runc.v2", "nvidia", "runc"), "runc", "99.0.1"),
        ('{"Runtimes": {"nvidia": {"path": "x"}, "runc": {}}, "DefaultRuntime": "nvidia", "x": 1}',
         ("nvidia", "runc"), "nvidia", None),
        ("map[io.containerd.runc.v2:{runc [] <nil>} nvidia:{nvidia-container-runtime [] <nil>}]",
         ("io.containerd.runc.v2", "nvidia"), None, None),
        ("Cannot connect to the Docker daemon", (), None, None),
    ],
)  # fmt: skip
def test_docker_info(text: str, runtimes: tuple[str, ...], default: str | None, server: str | None) -> None:
    parsed = parse_docker_info(text)
    assert (parsed.runtimes, parsed.default_runtime, parsed.server_version) == (runtimes, default, server)
    assert parsed.nvidia_runtime == ("nvidia" in runtimes)


TF_ENV = """\

== check python ===================================================
python version: 3.99.1
== are we in docker =============================================
No
== check pips ===================================================
DEPRECATION: something is old
numpy                         1.19.0
tensorflow-gpu (2.2.0)
== check for virtualenv =========================================
True
== tensorflow import ============================================
tf.version.VERSION = 2.2.0
== env ==========================================================
LD_LIBRARY_PATH :/usr/local/cuda/lib64
DYLD_LIBRARY_PATH is unset
== nvidia-smi ===================================================
tf_env_collect.sh: line 147: nvidia-smi: command not found
== cuda libs  ===================================================
/usr/local/cuda-10.1/lib64/libcudart.so.10.1.243
"""


def test_tf_env() -> None:
    second = TF_ENV.replace("tf.version.VERSION = 2.2.0", "ImportError: No module named tensorflow").replace(
        "LD_LIBRARY_PATH :/usr/local/cuda/lib64", "LD_LIBRARY_PATH is unset"
    )
    parsed = parse_tf_env(TF_ENV + second)
    assert parsed.n_runs == 2
    run, broken = parsed.runs
    assert (run.python_version, run.docker, run.virtualenv) == ("3.99.1", False, True)
    assert run.pips == {"numpy": "1.19.0", "tensorflow-gpu": "2.2.0"}
    assert (run.tf_version, run.tf_import_error, run.ld_library_path) == (
        "2.2.0",
        False,
        ":/usr/local/cuda/lib64",
    )
    assert run.nvidia_smi is not None
    assert run.nvidia_smi.failure == "command_not_found"
    assert run.cuda_libs == ("/usr/local/cuda-10.1/lib64/libcudart.so.10.1.243",)
    assert (broken.tf_version, broken.tf_import_error, broken.ld_library_path) == (None, True, None)


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
        assert detect(text) == kind
        json.dumps(parse(kind, text))


def test_detect_knows_when_it_does_not_know() -> None:
    assert detect("") is None
    assert detect("My GPU is not seen by TensorFlow, please help.\n") is None


def test_unknown_kind() -> None:
    with pytest.raises(KeyError):
        parse("smoke_signals", "")
