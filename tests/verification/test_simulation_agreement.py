"""`verify --simulate` and `recommend` agree on every release, card and driver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from rules.make_facts import COMPAT, healthy
from tfdoctor.core.facts import value_of
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning import Option, Recipe, Request
from tfdoctor.planning.arguments import parse_gpu
from tfdoctor.planning.hypothetical_facts import make_predicted_facts
from tfdoctor.planning.recipes import try_recipe
from tfdoctor.prediction.fit.models import Host
from tfdoctor.verification import simulation
from tfdoctor.verification.session import VerificationRun, VerifyRequest, ignore_stage
from tfdoctor.verification.simulate.kernels import GpuCode
from tfdoctor.verification.simulate.request import make_simulated_gpus

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts
    from tfdoctor.system import System

CARDS = (
    *(
        "GTX 680",
        "Tesla K20",
        "Tesla K40",
        "Tesla K80",
        "GTX 750",
        "GTX 960",
        "GTX 980",
        "Tesla M40",
        "Tesla M60",
    ),
    *("GTX 1050", "GTX 1060", "GTX 1070", "GTX 1080 Ti", "Tesla P4", "Tesla P40", "Tesla P100", "Tesla V100"),
    *("GTX 1650", "GTX 1660", "RTX 2060", "RTX 2080 Ti", "Tesla T4", "A100", "A30", "RTX 3060", "RTX 3090"),
    *("A10", "A40", "RTX A6000", "RTX 4060", "RTX 4090", "L4", "L40S", "H100", "H200", "B200", "B300"),
    *("RTX 5070", "RTX 5090", "RTX PRO 6000"),
)
DRIVERS = ("390", "418", "450", "460", "470", "510", "525", "535", "550", "560", "570", "580")
GPUS = [parse_gpu(COMPAT, name) for name in CARDS]
MACHINES = [
    (gpu, driver, make_simulated_gpus(COMPAT, [gpu], driver=driver)) for driver in DRIVERS for gpu in GPUS
]


def test_cards_and_drivers_are_many() -> None:
    assert len(CARDS) == 40
    assert len(DRIVERS) == 12
    assert len(MACHINES) == 480


@pytest.mark.few(1)
@pytest.mark.parametrize("recipe", [*Recipe])
def test_simulation_accepts_what_the_planner_offers(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    """What the planner offers for a machine is green on it, and if it offers nothing, its usual choice is red."""
    healthy_report = diagnose(healthy(), COMPAT)
    disagreements, answers = [], []
    for release in COMPAT.gpu_releases:
        usual_option = try_recipe(COMPAT, release, Request(), Host(), recipe)
        if not isinstance(usual_option, Option):
            continue
        # NVIDIA compiles its own TensorFlow, whose code is not in the tables.
        counts = {} if recipe is Recipe.NGC else COMPAT.find_binary_counts(release) or {}
        monkeypatch.setattr(simulation, "read_gpu_code", lambda *_, counts=counts: GpuCode(counts, "unknown"))
        facts_by_image: dict[tuple[str | None, str], Facts] = {}
        for gpu, driver, simulated in MACHINES:
            planned = try_recipe(COMPAT, release, Request(), Host(cards=(gpu,), driver=driver), recipe)
            is_offered = isinstance(planned, Option)
            option = planned if isinstance(planned, Option) else usual_option
            key = (option.base.image if option.base is not None else None, option.cuda)
            if key not in facts_by_image:
                facts_by_image[key] = make_predicted_facts(COMPAT, option, Host())
            facts = facts_by_image[key]
            python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
            assert python is not None
            assert tensorflow is not None
            report = replace(healthy_report, facts=facts, findings=())
            run = VerificationRun("/python", VerifyRequest(simulated_gpus=simulated), ignore_stage)
            simulation.check_kernels(run, cast("System", None), python, tensorflow, report, COMPAT)
            is_green = not (run.has_failed or simulated.refusal_reasons)
            answers.append(is_green)
            if is_offered is not is_green:
                disagreements.append(f"{release.version} {gpu.name} {driver}: {planned}, but {run.stages}")
    assert not disagreements
    assert answers.count(True) > 100
    assert answers.count(False) > 100
