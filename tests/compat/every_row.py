"""Checks of every row of a table in one test, which lists all rows that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def for_each(
    rows: Iterable[Any], describe: Callable[[Any], str] = str
) -> Callable[[Callable[[Any], None]], Any]:
    """Return a decorator that makes one test of a check of a row. `describe` gives the name of a row."""

    def decorate(check: Callable[[Any], None]) -> Callable[[], None]:
        def test() -> None:
            offenders = []
            for row in rows:
                try:
                    check(row)
                except AssertionError as error:
                    offenders.append(f"{describe(row)}: {error}")
            assert not offenders, "\n".join(offenders)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate
