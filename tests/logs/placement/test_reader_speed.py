"""Blocks that are counted as a whole give the same result as lines that are counted one by one."""

from __future__ import annotations

import random

import pytest

from tfdoctor.logs.placement.reader import PlacementReader, read_placement

DEVICE = "/job:localhost/replica:0/task:0/device:"
OPS = ("MatMul", "AddV2", "ReadVariableOp", "Cast", "_Send", "_Arg", "Sum")


def make_graph(count: int, random_source: random.Random) -> str:
    """Return the nodes of a graph, each printed by printf and by TensorFlow's logging."""
    lines = []
    for index in range(count):
        op = random_source.choice(OPS)
        node = f"tower/block{index // 9}/{op}_{index}: ({op}): {DEVICE}GPU:{index % 3}\n"
        lines += [
            node,
            f"2024-05-05 12:00:00.{index:06d}: I tensorflow/core/common_runtime/placer.cc:54] {node}",
        ]
    return "".join(lines)


def make_executions(count: int, random_source: random.Random, *, with_graphs: bool) -> str:
    """Return executions, some of functions, with other lines between them."""
    lines = []
    for index in range(count):
        op, device = random_source.choice(OPS[:4]), f"{DEVICE}{random_source.choice(('GPU:0', 'CPU:0'))}"
        for node in (f"input: (_Arg): {device}", f"{op}: ({op}): {device}") if with_graphs else ():
            lines += [f"{node}\n", f"2024-05-05 12:00:00.{index:06d}: I placer.cc:114] {node}\n"]
        lines.append(
            f"2024-05-05 12:00:00.{index:06d}: I execute.cc:1525] Executing op {op} in device {device}\n"
        )
        if index % 7 == 0:
            lines += [
                f"Epoch {index}\n",
                f"I execute.cc:1525] Executing op __inference_step_{index % 3} in device {device}\n",
            ]
    return "".join(lines)


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 5000])
def test_whole_blocks_and_single_lines_agree(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(3)
    text = (
        make_graph(600, source)
        + make_executions(900, source, with_graphs=True)
        + make_executions(900, source, with_graphs=False)
        + make_graph(600, source)
        + make_executions(300, source, with_graphs=True)
    ).encode()
    chunks = [text[start : start + chunk_bytes] for start in range(0, len(text), chunk_bytes)]
    whole = read_placement(chunks)
    monkeypatch.setattr(PlacementReader, "_count_known_executions", lambda *_: False)
    monkeypatch.setattr(PlacementReader, "_count_graph", lambda *_: False)
    monkeypatch.setattr(PlacementReader, "_count_eager_graphs", lambda _, block: block)
    assert read_placement(chunks) == whole
    assert sum(count.count for count in whole.op_counts) > 2000
