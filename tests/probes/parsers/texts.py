"""Texts that the tests of several parsers use."""

from __future__ import annotations

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
