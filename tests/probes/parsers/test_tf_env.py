"""The output of TensorFlow's tf_env_collect.sh."""

from __future__ import annotations

from probes.parsers.texts import TF_ENV
from tfdoctor.probes.parsers.tf_env import parse_tf_env


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
