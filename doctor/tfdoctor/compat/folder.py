"""Find the data files, which are in the installed package or in a checkout."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DataMissingError", "data_dir"]

CHECKOUT_FOLDERS = {"schemas": "docs/schemas", "demo": "tests/hosts"}
"""The folders of a checkout whose path is not their name."""


class DataMissingError(FileNotFoundError):
    """A data folder is neither in the package nor in the checkout that contains it."""


def data_dir(name: str) -> Path:
    """Return the folder of data files called `name` (`"compat"`, `"dockerfiles"`, `"schemas"`, `"demo"`).

    The copy in the package (`tfdoctor/_data/NAME`) is preferred to the folder of the checkout, which an editable
    install uses. Raise DataMissingError if neither exists.
    """
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "_data" / name, package.parent.parent / CHECKOUT_FOLDERS.get(name, name))
    for folder in candidates:
        if folder.is_dir():
            return folder
    paths_text = " and ".join(str(folder) for folder in candidates)
    msg = f"tfdoctor's own data folder `{name}` is missing (looked in {paths_text}): reinstall tfdoctor"
    raise DataMissingError(msg)
