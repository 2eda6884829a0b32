"""What a shell would be told is told to the kernel.json that starts the Python."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import (
    COMPAT,
    context,
    healthy,
    is_in_wheel_folder,
    make_lost,
    with_environment,
    with_loader,
)
from tfdoctor import advice
from tfdoctor.advice.kernel import adapt_to_kernel
from tfdoctor.causes.steps import Drop, Install, Unset
from tfdoctor.facts.python import Choice
from tfdoctor.findings import Remedy
from tfdoctor.report.diagnose import diagnose

if TYPE_CHECKING:
    from tfdoctor.advice.target import Target

KERNEL = "/k/kernel.json"
AGAIN = f"tfdoctor check --python {KERNEL}"


def target(*names: str, **variables: str) -> Target:
    choice = Choice("/env/bin/python", KERNEL, kernel=KERNEL, kernel_sets=names)
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
def test_a_line_of_a_shell_becomes_one_of_the_kernels(
    command: str, names: tuple[str, ...], said: str
) -> None:
    remedy = adapt_to_kernel(
        target(*names, P="/old"), Remedy("Do it.", (command, AGAIN), steps=(Unset("A"),))
    )
    assert remedy.text == f'Do it. In {KERNEL}, below "env": {said}. Then start the kernel again.'
    assert remedy.commands == (AGAIN,)
    assert remedy.steps == ()


def test_what_the_kernel_does_not_set_comes_from_where_jupyter_was_started() -> None:
    remedy = Remedy("Do it.", ("unset A", AGAIN), steps=(Unset("A"),))
    assert adapt_to_kernel(target("B"), remedy) is remedy


def test_what_is_installed_is_installed_as_ever() -> None:
    steps = (Drop("P", ("/old",)), Install(("x",)))
    remedy = adapt_to_kernel(target("P"), Remedy("Do it.", ("unset P", "pip install x", AGAIN), steps=steps))
    assert remedy.commands == ("pip install x", AGAIN)
    plain = Remedy("Do it.", ("pip install x", AGAIN), steps=(Install(("x",)),))
    assert adapt_to_kernel(target("P"), plain) is plain


def test_no_remedy_of_a_kernels_python_speaks_to_a_shell() -> None:
    facts = with_loader(
        healthy("2.21.0"),
        make_lost("libcusolver.so.11"),
        also_found=(is_in_wheel_folder("libcusolver.so.11"),),
    )
    facts = replace(facts, choice=target().choice)
    assert advice.check_again(context(facts).target) == AGAIN
    for finding in diagnose(facts, COMPAT).findings:
        for remedy in finding.remedies:
            assert not [c for c in remedy.commands if c.startswith(("export ", "unset ", "echo "))], remedy
