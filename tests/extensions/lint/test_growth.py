"""Time of `lint` and `cluster` is linear in the size of a file, and reached limits are reported."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc

import pytest

from tfdoctor.core.python_size import MAX_TOKENS
from tfdoctor.extensions.cluster.analysis import evaluate_cluster
from tfdoctor.extensions.cluster.merge import merge_clusters
from tfdoctor.extensions.cluster.reader import parse_cluster
from tfdoctor.extensions.cluster.render import render_cluster
from tfdoctor.extensions.lint.analysis import lint_text
from tfdoctor.extensions.lint.models import LintTarget
from tfdoctor.extensions.lint.reporter import MAX_FINDINGS, MAX_STEPS

IMPORTS = "import os, tensorflow as tf\n"
SPEC = 'c#=tf.train.ClusterSpec({"worker":["h#:1","g#:1"]})\n'
SERVER = 's#=tf.distribute.Server(c#,"worker",0)\n'
LINES = {
    "nested if": ("shell", "#!/bin/sh\n", "if true; then\n", 2000),
    "nested case": ("shell", "CUDA_=1\n", "case x in x)\n", 2000),
    "nested functions": ("shell", "CUDA_=1\n", "f() {\n", 2000),
    "commands on one line": ("shell", "", "export CUDA_VISIBLE_DEVIES=1; ", 800),
    "variables not exported": ("shell", "#!/bin/sh\n", "CUDA_VISIBLE_DEVICES=0\n", 1000),
    "one RUN": ("dockerfile", "FROM a\nRUN true", " && \\\n export CUDA_VISIBLE_DEVIES=1", 800),
    "chained functions": ("python", IMPORTS, "def f#():\n    return g#()\n", 800),
    "classes": ("python", IMPORTS, "class A#:\n  def f(self): return tf.zeros(1)\nA#().f()\n", 500),
    "branches": ("python", IMPORTS, "x#=1\nif a:\n  y#=1\n", 400),
    "handlers": ("python", IMPORTS, "x#=1\ntry:\n  y#=1\nexcept E: pass\n", 400),
    "one line that is not ASCII": ("python", IMPORTS, "'é';os.environ['CUDA_VISIBLE_DEVIES']='0'; ", 500),
    "devices in a loop": (
        "python",
        IMPORTS + "for i in range(4):\n",
        "  with tf.device('/gpu:0'): x=1\n",
        250,
    ),
    "numbers without quotes": ("python", IMPORTS, "os.environ['NCCL_DEBUG']=0\nx=1\n" * 2, 50),
    "programs started": ("python", IMPORTS, "os.environ['NCCL_DEBUG']='1'\nsubprocess.run('x')\n", 400),
    "parts of a module": ("python", IMPORTS + "d=tf\n", "d=d.a\n", 6000),
    "clusters": ("cluster", "", SPEC, 60),
    "clusters and servers": ("cluster", "", SPEC + SERVER, 60),
    "servers of one cluster": ("cluster", SPEC, SERVER.replace("c#", "c"), 200),
    "values beside clusters": ("cluster", "", "x#=1\n" * 9 + SPEC, 60),
}
"""(kind, beginning, repeated text with # for its number, repetitions)."""
CELLS = {
    "cells": ("import tensorflow", 400),
    "cells with names": ("import tensorflow as tf\nx#=tf.zeros(y#)\n", 300),
    "cells with options": ("import tensorflow as tf\nx#=tf.ConfigProto()\n", 300),
}


def make_file(name: str, times: int) -> tuple[str, str]:
    """Return the kind and the text of a file, with this multiple of its repetitions."""
    if name in CELLS:
        source, count = CELLS[name]
        sources = (source.replace("#", str(number)) for number in range(count * times))
        return "notebook", json.dumps({"cells": [{"cell_type": "code", "source": item} for item in sources]})
    kind, beginning, line, count = LINES[name]
    return kind, beginning + "".join(line.replace("#", str(number)) for number in range(count * times))


def lint_file(kind: str, text: str) -> None:
    if kind == "cluster":
        specs = [parse_cluster(text, "x", is_python=True)]
        render_cluster([evaluate_cluster(cluster, source) for source, cluster in merge_clusters(specs)])
    else:
        lint_text(text, kind, LintTarget())


def measure_seconds(name: str, times: int) -> float:
    """Return the least CPU time of three runs."""
    kind, text = make_file(name, times)
    fastest = 99.0
    gc.collect()
    gc.disable()  # a collection would also visit the objects of earlier tests
    try:
        for _ in range(3):
            start = time.process_time()
            lint_file(kind, text)
            fastest = min(fastest, time.process_time() - start)
    finally:
        gc.enable()
    return fastest


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [*LINES, *CELLS])
def test_time_is_linear_in_the_size_of_a_file(name: str) -> None:
    # other programs disturb a measurement, so one of three has to pass; quadratic time would be 16 times as long
    assert any(measure_seconds(name, 4) < 6 * max(measure_seconds(name, 1), 0.01) for _ in range(3))


DOUBLING = {
    "a dictionary": "d={'a':1}\n" + "d={**d,**d}\n" * 60,
    "an update": "d={'a':1}\n" + "d.update(d)\n" * 60,
    "a text in a text": "d='a'\n" + "d=f'{d}{d}'\n" * 60,
    "a joined text": "d='a'\n" + "d=d.join([d,d,d])\n" * 60,
    "a filled text": "d='a{}'\n" + "d=d.format(d)\n" * 60,
    "a percent sign": "d='a%s'\n" + "d=d % d\n" * 60,
    "values of a cluster": "a0=['b:1']\n"
    + "".join(f"a{n + 1}=a{n}+a{n}\n" for n in range(60))
    + "c=tf.train.ClusterSpec({'w':a60})\n",
    "texts of a cluster": "a0='"
    + "b" * 1000
    + "'\n"
    + "".join(f"a{n + 1}=f'{{a{n}}}{{a{n}}}{{a{n}}}{{a{n}}}'\n" for n in range(12))
    + "c=tf.train.ClusterSpec({'w':[a12]})\n",
}


@pytest.mark.parametrize("name", DOUBLING)
def test_doubling_value_is_not_evaluated(name: str) -> None:
    start = time.process_time()
    tracemalloc.start()
    try:
        lint_file("python", IMPORTS + DOUBLING[name])
        lint_file("cluster", DOUBLING[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60e6
    assert time.process_time() - start < 6


def test_reached_limit_is_reported() -> None:
    for kind, text, limit in (
        ("python", IMPORTS + "a\n" * (MAX_STEPS // 2), f"more than {MAX_STEPS:,} statements"),
        ("python", IMPORTS + "x=[" + "1," * (MAX_TOKENS // 2) + "]\n", f"more than {MAX_TOKENS:,} words"),
        (
            "python",
            IMPORTS + "os.environ['CUDA_VISIBLE_DEVIES']='0'\n" * MAX_FINDINGS,
            f"{MAX_FINDINGS:,} findings",
        ),
    ):
        _, limit_text = lint_text(text, kind, LintTarget())
        assert limit in str(limit_text)
        if "findings" not in limit:
            assert lint_text(text.replace(IMPORTS, ""), "python", LintTarget())[0] == []


def test_cluster_limit_is_reported() -> None:
    text = "".join(SPEC.replace("#", str(n)) for n in range(1001))
    spec = parse_cluster(text, "x.py", is_python=True)
    assert len(spec.specifications) == 1001
    assert (
        "more than 1,000 of ClusterSpec: not checked from line 1,001 on"
        in spec.specifications[-1].unknown_note
    )
    large = parse_cluster("x=[" + "1," * (MAX_TOKENS // 2) + "]\n", "x.py", is_python=True)
    assert f"more than {MAX_TOKENS:,} words" in large.specifications[0].unknown_note


def test_comment_or_string_is_one_token() -> None:
    text = (
        IMPORTS
        + '"""'
        + "a b " * MAX_TOKENS
        + '"""\n'
        + "# a b c\n" * 1000
        + "os.environ['CUDA_VISIBLE_DEVIES']='0'\n"
    )
    problems, limit_text = lint_text(text, "python", LintTarget())
    assert [problem.kind_name for problem in problems] == ["misspelt-variable"]
    assert limit_text is None
