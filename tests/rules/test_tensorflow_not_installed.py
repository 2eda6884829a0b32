"""TFD301, tensorflow-not-installed."""

from __future__ import annotations

import pytest

from rules.make_facts import (
    commands,
    finding,
    healthy,
    with_cards,
    without_tensorflow,
)
from tfdoctor.rules import (
    tensorflow_not_installed,
)


@pytest.mark.parametrize(("card", "version"), [("12.0", "2.21.0"), ("5.0", "2.16.2"), ("3.5", "2.14.1")])
def test_release_fits_the_gpu(card, version):
    assert any(
        f"=={version}" in command
        for command in commands(
            finding(tensorflow_not_installed.RULE, with_cards(without_tensorflow(healthy()), card))
        )
    )
