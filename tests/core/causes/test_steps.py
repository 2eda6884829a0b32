"""Effect of a remedy's steps on a file."""

from __future__ import annotations

from tfdoctor.core.causes.steps import CommentOutLine


def test_only_an_unchanged_line_is_commented_out() -> None:
    step = CommentOutLine("/x/sitecustomize.py", 2, "    a = 1")
    assert step.edit("if b:\n    a = 1\n") == "if b:\n    pass  # a = 1\n"
    assert step.edit("if b:\n    a = 2\n") is None
    assert step.edit("if b:\n") is None
    assert CommentOutLine("/x/a.pth", 1, "import os").edit("import os\n") == "# import os\n"
