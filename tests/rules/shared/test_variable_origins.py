"""Lines that only set a variable or only add a folder to sys.path."""

from __future__ import annotations

import pytest

from rules.hiding_facts import HIDE
from tfdoctor.core.facts import MODULE_PATH, Origin
from tfdoctor.rules.shared.variable_origins import _only_adds_folder, _only_sets_variable


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        (f"os.environ['{HIDE}'] = '-1'", True),
        (f"    os.environ['{HIDE}'] = ''", True),
        (f"import os; os.environ.setdefault('{HIDE}', '')", True),
        (f"import os, sys; os.environ.update({HIDE}='-1')", True),
        (f"os.environ.pop('{HIDE}', None)", True),
        (f"del os.environ['{HIDE}']", True),
        (f"os.environ['{HIDE}'] = pick()", False),
        (f"import company; os.environ['{HIDE}'] = '-1'", False),
        (f"os.environ['{HIDE}'] = os.environ['OTHER'] = '-1'", False),
        (f"if os.environ.get('{HIDE}'): stop()", False),
        (f"os.environ.update({{'{HIDE}': '-1'}})", False),
        (f"'{HIDE}': '-1',", False),
        (f"os.environ.update({HIDE}='-1', OTHER='1')", False),
        ("x" * 100_000, False),
        ("", False),
        (f"import os.path; os.environ['{HIDE}'] = '-1'", False),
        (f"from os import environ; environ['{HIDE}'] = '-1'", True),
        (f"from company import environ; environ['{HIDE}'] = '-1'", False),
        (f"from site import x; os.putenv('{HIDE}', '-1')", True),
        (f"os.unsetenv('{HIDE}'); os.putenv('OTHER', '-1')", False),
        (f"os.environ.pop('{HIDE}', pick())", False),
        (f"os.environ.setdefault('{HIDE}', value='1')", False),
        (f"os.environ.setdefault('OTHER', '{HIDE}')", False),
        (f"os.environ.setdefault(name, '{HIDE}')", False),
        ("os.environ.pop()", False),
        (f"os.environ.update({HIDE}=pick())", False),
        (f"os.environ.get('{HIDE}')", False),
        (f"del os.environ['{HIDE}'], other", False),
        (f"settings['{HIDE}'] = '-1'", False),
        (f"os.environ[{HIDE}] = '-1'", False),
        (f"os.environ['{HIDE}'] = (x := '-1')", False),
        (f"os.environ['{HIDE}'] = OTHER", True),
        (f"'{HIDE}'", False),
    ],
)
def test_line_that_only_sets_the_variable(line: str, *, alone: bool) -> None:
    assert _only_sets_variable(Origin(HIDE, "start", text=line)) is alone


@pytest.mark.parametrize(
    ("path", "line", "alone"),
    [
        ("a.pth", "/team/libs", True),
        ("a.pth", "import sys; sys.path.insert(0, '/team/libs')", True),
        ("sitecustomize.py", "sys.path.insert(0, '/team/libs/')", True),
        ("sitecustomize.py", "    site.addsitedir('/team/libs')", True),
        ("sitecustomize.py", "sys.path.insert(0, '/team/other')", False),
        ("sitecustomize.py", "sys.path.insert(0, '/team/libs'); start()", False),
        ("sitecustomize.py", "sys.path.insert(where(), '/team/libs')", False),
        ("sitecustomize.py", "sys.path[:0] = ['/team/libs']", False),
        ("sitecustomize.py", "import company; sys.path.insert(0, '/team/libs')", False),
        ("sitecustomize.py", "/team/libs", False),
        ("a.pth", "import\tsys; sys.path.append('/team/libs')", True),
        ("a.pth", "import company", False),
        ("sitecustomize.py", "from site import addsitedir; addsitedir('/team/libs')", True),
        ("sitecustomize.py", "from sys import path; path.insert(0, '/team/libs'); path.append('/x')", False),
        ("sitecustomize.py", "from sys import path; path.append('/team/libs')", True),
        ("sitecustomize.py", "sys.path.remove('/team/libs')", False),
        ("sitecustomize.py", "site.addsitedir('/team/libs', known_paths=None)", False),
        ("sitecustomize.py", "sys.path", False),
        ("sitecustomize.py", "site.addsitedir()", False),
        ("sitecustomize.py", "folder = '/team/libs'", False),
    ],
)
def test_line_that_only_adds_one_folder_to_the_path(path: str, line: str, *, alone: bool) -> None:
    assert _only_adds_folder(Origin(MODULE_PATH, "start", "/team/libs", path, 1, line)) is alone
