"""Where the data files are: inside the installed package, or in a checkout."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DataMissingError", "data_dir"]


class DataMissingError(FileNotFoundError):
    """A data folder is neither in the package nor in a checkout around it."""


def data_dir(name: str) -> Path:
    """Return the folder of data files called `name` (`"compat"`, `"dockerfiles"`).

    The packaged copy (`tfdoctor/_data/NAME`) wins over the checkout's `NAME/`, which is what an editable install
    finds. Raises DataMissingError, naming both places, if there is neither.
    """
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "_data" / name, package.parent.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    looked = " and ".join(str(folder) for folder in candidates)
    msg = f"tfdoctor's own data folder `{name}` is missing (looked in {looked}): reinstall tfdoctor"
    raise DataMissingError(msg)
