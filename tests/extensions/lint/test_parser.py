"""Python that `ast` cannot parse: the tree of the parts that are valid is the one that `ast` makes of them."""

from __future__ import annotations

import ast

import pytest

from tfdoctor.extensions.lint.parser import MAX_TREE_DEPTH, parse

STATEMENTS = """\
import os, sys as s
import a.b
from os import path, environ as e
from . import x
from ..y import *
from z import (a, b)
if a:
    pass
elif b == 1:
    x = 1
elif c: x = 3
else:
    y = 2
for i in range(3):
    continue
else:
    break
while x == 1:
    x += 1
else:
    pass
with open(f) as g, h:
    z = g
try:
    x = 1
except E:
    pass
except (A, B):
    pass
except:
    pass
else:
    y = 1
finally:
    z = 2
def f(a, b=1, c="é"):
    return a + b
class C(A, b.B):
    def g(self):
        return
@d
@e.f(1)
def h():
    global x, y
    pass
x = y = 1
x.y[0] = x["k"].z
x = f(1, k=2, **kw)
x = [1, 2.5, "a", 'b' "c", None, True, False]
x = ()
x = (1,)
x = {1: 2, "é": d}
x = a[:], a[b, c]
x = lambda x, y=1: x
x = a + b % c | d
x = a == b
x = 0x10 + 0o17
"é" % x; x = 1
b"bytes"
"""


def test_valid_statements_have_the_tree_of_ast() -> None:
    expected = ast.parse(STATEMENTS).body
    tree = parse(STATEMENTS + 'print "x"\n')
    assert tree.is_python_2
    for statement, same in zip(tree.root.body, expected, strict=False):
        assert ast.dump(statement) == ast.dump(same)
        for node, other in zip(ast.walk(statement), ast.walk(same), strict=True):
            if isinstance(node, (ast.Name, ast.Call, ast.Assign)):
                assert (node.lineno, node.col_offset) == (other.lineno, other.col_offset), ast.dump(node)


@pytest.mark.parametrize(
    ("text", "is_python_2"),
    [
        ("x = 1\n", False),
        ("print x\n", True),
        ("exec 'x'\n", True),
        ("try:\n    x\nexcept E, e:\n    pass\n", True),
        ("raise E, 'text'\n", True),
        ("x = = 1\n", False),
    ],
)
def test_python_2_is_recognized(text: str, is_python_2: bool) -> None:
    assert parse(text).is_python_2 is is_python_2


def test_deep_tree_is_cut() -> None:
    for depth, is_whole in ((MAX_TREE_DEPTH // 4, True), (MAX_TREE_DEPTH * 2, False)):
        tree = parse(f"x = {'f(' * depth}y{')' * depth}\nprint 1\n")
        assert ("id='y'" in ast.dump(tree.root)) is is_whole
