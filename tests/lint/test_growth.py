"""Time of `lint` and `cluster` grows with a file and not with its square; what a limit leaves out is said."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc

import pytest

from tfdoctor.cluster import evaluate_cluster, merge_clusters, read_cluster
from tfdoctor.lint import LintTarget, lint_text
from tfdoctor.lint.reporter import MAX_FINDINGS, MAX_STEPS
from tfdoctor.parse.python_size import MAX_TOKENS
from tfdoctor.render.cluster import render_cluster

TF = "import os, tensorflow as tf\n"
SPEC = 'c#=tf.train.ClusterSpec({"worker":["h#:1","g#:1"]})\n'
SERVER = 's#=tf.distribute.Server(c#,"worker",0)\n'
LINES = {
    "nested if": ("shell", "#!/bin/sh\n", "if true; then\n", 2000),
    "nested case": ("shell", "CUDA_=1\n", "case x in x)\n", 2000),
    "nested functions": ("shell", "CUDA_=1\n", "f() {\n", 2000),
    "commands on one line": ("shell", "", "export CUDA_VISIBLE_DEVIES=1; ", 800),
    "variables not exported": ("shell", "#!/bin/sh\n", "CUDA_VISIBLE_DEVICES=0\n", 1000),
    "one RUN": ("dockerfile", "FROM a\nRUN true", " && \\\n export CUDA_VISIBLE_DEVIES=1", 800),
    "chained functions": ("python", TF, "def f#():\n    return g#()\n", 800),
    "classes": ("python", TF, "class A#:\n  def f(self): return tf.zeros(1)\nA#().f()\n", 500),
    "branches": ("python", TF, "x#=1\nif a:\n  y#=1\n", 400),
    "handlers": ("python", TF, "x#=1\ntry:\n  y#=1\nexcept E: pass\n", 400),
    "one line that is not ASCII": ("python", TF, "'é';os.environ['CUDA_VISIBLE_DEVIES']='0'; ", 500),
    "devices in a loop": ("python", TF + "for i in range(4):\n", "  with tf.device('/gpu:0'): x=1\n", 250),
    "programs started": ("python", TF, "os.environ['NCCL_DEBUG']='1'\nsubprocess.run('x')\n", 400),
    "parts of a module": ("python", TF + "d=tf\n", "d=d.a\n", 6000),
    "clusters": ("cluster", "", SPEC, 60),
    "clusters and servers": ("cluster", "", SPEC + SERVER, 60),
    "servers of one cluster": ("cluster", SPEC, SERVER.replace("c#", "c"), 200),
    "values beside clusters": ("cluster", "", "x#=1\n" * 9 + SPEC, 60),
}
"""Kind, beginning, what is repeated (# is its number), how often."""
CELLS = {
    "cells": ("import tensorflow", 400),
    "cells with names": ("import tensorflow as tf\nx#=tf.zeros(y#)\n", 300),
    "cells with options": ("import tensorflow as tf\nx#=tf.ConfigProto()\n", 300),
}


def text_of(name: str, times: int) -> tuple[str, str]:
    """The kind and the text of a file of so many times the size."""
    if name in CELLS:
        source, count = CELLS[name]
        sources = (source.replace("#", str(number)) for number in range(count * times))
        return "notebook", json.dumps({"cells": [{"cell_type": "code", "source": one} for one in sources]})
    kind, begin, line, count = LINES[name]
    return kind, begin + "".join(line.replace("#", str(number)) for number in range(count * times))


def judge(kind: str, text: str) -> None:
    if kind == "cluster":
        specs = [read_cluster(text, "x", python=True)]
        render_cluster([evaluate_cluster(written, source) for source, written in merge_clusters(specs)])
    else:
        lint_text(text, kind, LintTarget())


def seconds(name: str, times: int) -> float:
    """CPU time, the least of some."""
    kind, text = text_of(name, times)
    best = 99.0
    gc.collect()
    gc.disable()  # it would go over all that other tests left, again and again
    try:
        for _ in range(3):
            began = time.process_time()
            judge(kind, text)
            best = min(best, time.process_time() - began)
    finally:
        gc.enable()
    return best


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [*LINES, *CELLS])
def test_time_grows_with_the_size_of_a_file(name: str) -> None:
    # other programs disturb a measurement; with the square of the size it is 16 times as long whenever it is measured
    assert any(seconds(name, 4) < 6 * max(seconds(name, 1), 0.01) for _ in range(3))


DOUBLED = {
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


@pytest.mark.parametrize("name", DOUBLED)
def test_what_doubles_again_and_again_is_not_put_together(name: str) -> None:
    began = time.process_time()
    tracemalloc.start()
    try:
        judge("python", TF + DOUBLED[name])
        judge("cluster", DOUBLED[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60e6
    assert time.process_time() - began < 6


def test_a_limit_that_is_reached_is_said() -> None:
    for kind, text, limit in (
        ("python", TF + "a\n" * (MAX_STEPS // 2), f"more than {MAX_STEPS:,} statements"),
        ("python", TF + "x=[" + "1," * (MAX_TOKENS // 2) + "]\n", f"more than {MAX_TOKENS:,} words"),
        (
            "python",
            TF + "os.environ['CUDA_VISIBLE_DEVIES']='0'\n" * MAX_FINDINGS,
            f"{MAX_FINDINGS:,} findings",
        ),
    ):
        _, why = lint_text(text, kind, LintTarget())
        assert limit in str(why)
        assert lint_text(text.replace(TF, ""), "python", LintTarget())[0] == [] or "findings" in limit


def test_clusters_beyond_the_limit_are_said() -> None:
    text = "".join(SPEC.replace("#", str(n)) for n in range(1001))
    spec = read_cluster(text, "x.py", python=True)
    assert len(spec.written) == 1001
    assert "more than 1,000 of ClusterSpec: not checked from line 1,001 on" in spec.written[-1].partly
    large = read_cluster("x=[" + "1," * (MAX_TOKENS // 2) + "]\n", "x.py", python=True)
    assert f"more than {MAX_TOKENS:,} words" in large.written[0].partly


def test_a_comment_or_a_string_is_one_word() -> None:
    text = (
        TF
        + '"""'
        + "a b " * MAX_TOKENS
        + '"""\n'
        + "# a b c\n" * 1000
        + "os.environ['CUDA_VISIBLE_DEVIES']='0'\n"
    )
    found, why = lint_text(text, "python", LintTarget())
    assert [one.name for one in found] == ["misspelt-variable"]
    assert why is None
