"""TFD317, python-unusable."""

from __future__ import annotations

from dataclasses import replace

from recorded import HOSTS, load_report
from rules.make_facts import commands, finding
from tfdoctor.core.facts.python import INSTALL_GUARD_FILE, OtherPython, PythonChoice
from tfdoctor.rules import python_unusable


def test_environment_of_an_interrupted_installation_is_recognized():
    """Do not advise to put tfdoctor's own marker file aside."""
    facts = load_report(HOSTS / "python-hangs-in-a-pth-file").facts
    failure = replace(
        facts.python.trouble, files=(f"/srv/tf/lib/python3.11/site-packages/{INSTALL_GUARD_FILE}",)
    )
    result = finding(python_unusable.RULE, replace(facts, python=replace(facts.python, trouble=failure)))
    assert "unfinished" in result.title
    assert commands(result) == ["tfdoctor install --into /srv/tf", "rm -r /srv/tf"]


def test_pythonhome_is_unset_and_no_other_python_is_named():
    """It would keep any other Python from starting, too."""
    facts = load_report(HOSTS / "python-hangs-in-a-pth-file").facts
    failure = replace(facts.python.trouble, kind="home", files=())
    other = OtherPython("/opt/other/bin/python", "in /opt", "2.20.0")
    choice = replace(facts.choice or PythonChoice("/opt/bin/python", "python3 on PATH"), others=(other,))
    result = finding(
        python_unusable.RULE,
        replace(facts, choice=choice, python=replace(facts.python, trouble=failure)),
    )
    assert commands(result)[0] == "unset PYTHONHOME"
    assert len(result.remedies) == 1
