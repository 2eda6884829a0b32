"""Read docstrings, also where `python -OO` or PYTHONOPTIMIZE=2 leaves them out of the compiled code."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

__all__ = ["read_docstring"]


def read_docstring(documented: ModuleType | Callable[..., Any]) -> str:
    """Return the docstring of a module or a function without its indentation; "" if it has none."""
    if documented.__doc__ is not None:
        return inspect.cleandoc(documented.__doc__)
    import ast
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(documented)))
    except (OSError, TypeError, SyntaxError):  # there is no source
        return ""
    node = tree if inspect.ismodule(documented) else tree.body[0]
    return (ast.get_docstring(node) if isinstance(node, (ast.Module, ast.FunctionDef)) else None) or ""
