"""Regular expressions that cost nothing until they are used.

Compiling one takes as long as loading a small module, and `check` loads a hundred to use some dozens.
"""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["late"]


class _Late:
    """Stands for a compiled expression: whatever is asked of it first compiles it."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # none of an expression's own: who copies or pickles asks for them
            raise AttributeError(name)
        found = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, found)
        return found


def late(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As re.compile, which is called when the first method or attribute is used, and raises its errors then.

    The functions of `re` themselves do not take it: `late(…).sub(…)`, not `re.sub(late(…), …)`.
    """
    return cast("re.Pattern[str]", _Late(pattern, flags))
