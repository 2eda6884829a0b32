"""tfdoctor.compat.folder: finding the data in a checkout and in an installed package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat import folder as data

if TYPE_CHECKING:
    from pathlib import Path


def test_checkout_has_the_data() -> None:
    assert (data.data_dir("compat") / "tensorflow.json").is_file()


def test_packaged_data_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "doctor" / "tfdoctor"
    packaged = package / "_data" / "compat"
    checkout = tmp_path / "compat"
    for folder in (packaged, checkout):
        folder.mkdir(parents=True)
    monkeypatch.setattr(data, "__file__", str(package / "compat" / "folder.py"))
    assert data.data_dir("compat") == packaged.resolve()
    packaged.rmdir()
    assert data.data_dir("compat") == checkout.resolve()
    checkout.rmdir()
    with pytest.raises(data.DataMissingError, match=r"`compat` is missing .* reinstall"):
        data.data_dir("compat")
