"""Find the data files, which are in the installed package or in a checkout."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["DataMissingError", "data_dir", "find_commit"]

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


def find_commit() -> str:
    """Return the commit that the package was built from, or that is checked out. Empty if it is not known."""
    package = Path(__file__).resolve().parent.parent
    try:
        built = (package / "_data" / "build.json").read_text(encoding="utf-8")
        return str(json.loads(built)["commit"])
    except (OSError, ValueError, KeyError):
        return _read_git_head(package.parent.parent)


def _read_git_head(root: Path) -> str:
    """Return the abbreviated commit of a checkout, read from the files of git. Empty if that is not possible."""
    try:
        folder = root / ".git"
        if folder.is_file():  # another working tree of the same repository
            folder = root / folder.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        reference = head.removeprefix("ref: ")
        if reference != head:
            shared = folder / "commondir"
            common = folder / shared.read_text(encoding="utf-8").strip() if shared.is_file() else folder
            loose = common / reference
            lines = (
                [] if loose.is_file() else (common / "packed-refs").read_text(encoding="utf-8").splitlines()
            )
            head = (
                loose.read_text(encoding="utf-8").strip()
                if loose.is_file()
                else next((line.split()[0] for line in lines if line.endswith(f" {reference}")), "")
            )
    except (OSError, ValueError):
        return ""
    return head[:12]
