"""TFD603, gpu-busy-other-process."""

from __future__ import annotations

from rules.kernel_facts import judged, of, seen


def test_holders_are_named_by_user_program_and_amount() -> None:
    (finding,) = of(judged(seen("earlier-notebook")), "TFD603")
    for words in (
        "(pid 4242) of yours, 14000 MiB",
        "train.py (pid 5151) of alice",
        "no longer there",
        "Xorg",
    ):
        assert words in finding.explanation
    assert "secret" not in finding.explanation
    assert any("kill 4242" in remedy.commands for remedy in finding.remedies)
    assert not any("5151" in command for remedy in finding.remedies for command in remedy.commands)


def test_what_tensorflow_would_take_of_the_rest_is_said() -> None:
    report = judged(seen("one-of-two-busy"))
    (finding,) = of(report, "TFD603")
    assert "about 3040 MiB" in finding.explanation  # 24576 - 20000, less the 1536 that it leaves on 8.x
