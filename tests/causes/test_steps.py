"""What the steps of a remedy do to a file."""

from __future__ import annotations

from tfdoctor.causes.steps import TakeOut, comment_out_line


def test_a_line_becomes_a_comment_only_where_it_is_the_same() -> None:
    step = TakeOut("/x/sitecustomize.py", 2, "    a = 1")
    assert comment_out_line(step, "if b:\n    a = 1\n") == "if b:\n    pass  # a = 1\n"
    assert comment_out_line(step, "if b:\n    a = 2\n") is None
    assert comment_out_line(step, "if b:\n") is None
    assert comment_out_line(TakeOut("/x/a.pth", 1, "import os"), "import os\n") == "# import os\n"
