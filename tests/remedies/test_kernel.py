"""Remedies for a Jupyter kernel: changes of variables go into its kernel.json instead of a shell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import (
    COMPAT,
    context,
    healthy,
    locate_in_wheel,
    make_missing,
    with_environment,
    with_loader,
)
from tfdoctor.core.causes.steps import Install, RemoveEntries, UnsetVariable
from tfdoctor.core.facts.python import PythonChoice
from tfdoctor.core.findings import Remedy
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.remedies.kernel import adapt_to_kernel
from tfdoctor.remedies.pip import format_check_command

if TYPE_CHECKING:
    from tfdoctor.remedies.target import Target

KERNEL_JSON = "/k/kernel.json"
CHECK_AGAIN = f"tfdoctor check --python {KERNEL_JSON}"


def make_target(*names: str, **variables: str) -> Target:
    choice = PythonChoice("/env/bin/python", KERNEL_JSON, kernel=KERNEL_JSON, kernel_sets=names)
    return replace(context(with_environment(healthy(), **variables)).target, choice=choice)


@pytest.mark.parametrize(
    ("command", "names", "said"),
    [
        ("unset A", ("A",), 'take "A" out'),
        ("export A=1,2", ("A",), '"A": "1,2"'),
        ("export NEW='a b'", (), '"NEW": "a b"'),
        ("export P=/new${P:+:$P}", ("P",), '"P": "/new:/old"'),
        ('export P="/n w${P:+:$P}"', ("P",), '"P": "/n w:/old"'),
        ('export RIGHT="$WRNG"; unset WRNG', ("WRNG",), '"RIGHT" in place of "WRNG"'),
    ],
)
def test_shell_command_becomes_a_kernel_json_change(command: str, names: tuple[str, ...], said: str) -> None:
    remedy = adapt_to_kernel(
        make_target(*names, P="/old"), Remedy("Do it.", (command, CHECK_AGAIN), steps=(UnsetVariable("A"),))
    )
    assert remedy.text == f'Do it. In {KERNEL_JSON}, below "env": {said}. Then start the kernel again.'
    assert remedy.commands == (CHECK_AGAIN,)
    assert remedy.steps == ()


def test_variable_not_set_by_the_kernel_stays_a_command() -> None:
    remedy = Remedy("Do it.", ("unset A", CHECK_AGAIN), steps=(UnsetVariable("A"),))
    assert adapt_to_kernel(make_target("B"), remedy) is remedy


def test_install_commands_stay() -> None:
    steps = (RemoveEntries("P", ("/old",)), Install(("x",)))
    remedy = adapt_to_kernel(
        make_target("P"), Remedy("Do it.", ("unset P", "pip install x", CHECK_AGAIN), steps=steps)
    )
    assert remedy.commands == ("pip install x", CHECK_AGAIN)
    plain = Remedy("Do it.", ("pip install x", CHECK_AGAIN), steps=(Install(("x",)),))
    assert adapt_to_kernel(make_target("P"), plain) is plain


def test_kernel_remedies_have_no_shell_variables() -> None:
    facts = with_loader(
        healthy("2.21.0"),
        make_missing("libcusolver.so.11"),
        also_found=(locate_in_wheel("libcusolver.so.11"),),
    )
    facts = replace(facts, choice=make_target().choice)
    assert format_check_command(context(facts).target) == CHECK_AGAIN
    for finding in diagnose(facts, COMPAT).findings:
        for remedy in finding.remedies:
            assert not [c for c in remedy.commands if c.startswith(("export ", "unset ", "echo "))], remedy
