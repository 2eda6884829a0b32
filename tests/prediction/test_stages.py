"""Stages of the prediction that depend on facts alone."""

from __future__ import annotations

import pytest

from rules.make_facts import COMPAT, SITE, context, finding, healthy, with_environment, with_python
from tfdoctor.core.facts import Distribution
from tfdoctor.core.findings import Cause
from tfdoctor.prediction import predict
from tfdoctor.rules import hidden_by_env


@pytest.mark.parametrize(
    ("version", "value", "ends"),
    [
        ("2.20.0", "--tf_xla_no_such_flag", True),
        ("2.10.1", "--tf_xla_auto_jit=2 --tf_xla_enable_xla_device", True),
        ("2.18.1", "--xla_gpu_cuda_data_dir=/usr/local/cuda", True),
        ("2.18.1", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit", False),
        ("2.18.1", "", False),
        ("2.18.1", "flags.txt", False),
        ("1.15.5", "--tf_xla_no_such_flag", False),
    ],
)
def test_unknown_xla_flag_ends_the_process(version: str, value: str, ends: bool) -> None:
    facts = with_environment(healthy(version), TF_XLA_FLAGS=value)
    prediction = predict(facts, COMPAT)
    assert (prediction.cause is Cause.HIDDEN_BY_ENV) is ends
    assert prediction.gpu_registered is not ends or version == "1.15.5"
    if ends:
        assert "TF_XLA_FLAGS" in finding(hidden_by_env.RULE, facts).title
        assert context(facts).prediction.import_ok


@pytest.mark.parametrize(
    ("version", "python", "name", "value", "stops"),
    [
        ("2.20.0", "3.11.4", "PYTHONOPTIMIZE", "2", True),
        ("2.20.0", "3.11.4", "PYTHONOPTIMIZE", "1", False),
        ("2.20.0", "3.11.4", "PYTHONOPTIMIZE", "yes", False),
        ("2.21.0", "3.11.4", "PYTHONOPTIMIZE", "2", False),
        ("2.4.4", "3.8.4", "PYTHONWARNINGS", "default,error", True),
        ("2.4.4", "3.8.4", "PYTHONWARNINGS", "ignore", False),
        ("2.20.0", "3.11.4", "PYTHONWARNINGS", "error", False),
        ("2.18.1", "3.12.4", "SETUPTOOLS_USE_DISTUTILS", "stdlib", True),
        ("2.18.1", "3.12.4", "SETUPTOOLS_USE_DISTUTILS", "local", False),
        ("2.18.1", "3.11.4", "SETUPTOOLS_USE_DISTUTILS", "stdlib", False),
        ("2.20.0", "3.12.4", "SETUPTOOLS_USE_DISTUTILS", "stdlib", False),
        ("2.20.0", "3.11.4", "KERAS_BACKEND", "theano", True),
        ("2.20.0", "3.11.4", "KERAS_BACKEND", "jax", False),
        ("2.15.1", "3.11.4", "KERAS_BACKEND", "theano", False),
    ],
)
def test_variable_can_stop_the_import(version: str, python: str, name: str, value: str, stops: bool) -> None:
    keras = Distribution("keras", "2.15.0" if version == "2.15.1" else "3.12.0", SITE)
    facts = with_environment(
        with_python(healthy(version), version=python, distributions=(keras,)), **{name: value}
    )
    prediction = predict(facts, COMPAT)
    assert (prediction.cause is Cause.HIDDEN_BY_ENV) is stops
    if stops:
        assert not prediction.import_ok
        problem = finding(hidden_by_env.RULE, facts)
        assert name in problem.title
        assert problem.remedies[0].commands[0] == f"unset {name}"
