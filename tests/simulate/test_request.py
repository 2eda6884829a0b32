"""Which card and driver are simulated: what the tables know, what is refused, what nobody can know."""

from __future__ import annotations

import pytest

from rules.make_facts import COMPAT
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.errors import UsageError
from tfdoctor.fit import Card, find_driver_refusal, find_newest_driver
from tfdoctor.simulate.request import MEMORY_MIB, Simulated, add_stand_in, parse_memory


def run_question(*names: str, driver: str | None = None, gpus: str | None = None) -> Simulated:
    found = parse_simulation(COMPAT, names, driver=driver, gpus=gpus)
    assert found is not None
    return found


def test_nothing_is_simulated_where_nobody_asks() -> None:
    assert parse_simulation(COMPAT, (), driver="550") is None


def test_a_card_behind_a_branch() -> None:
    one = run_question("RTX 4090", driver="550", gpus="2")
    assert one.title == "2 x GeForce RTX 4090 (compute capability 8.9), driver 550.54.15 (CUDA 12.4)"
    assert one.variables == {
        "STANDIN_GPUS": "2",
        "STANDIN_CC": "89,89",
        "STANDIN_NAME": "GeForce RTX 4090 (simulated);GeForce RTX 4090 (simulated)",
        "STANDIN_MEM_MIB": f"{MEMORY_MIB},{MEMORY_MIB}",
        "STANDIN_MP": "40",
        "STANDIN_CUDA": "12040",
        "STANDIN_DRIVER": "550.54.15",
    }
    assert one.typed == ("--simulate", "RTX 4090", "--driver", "550", "--gpus", "2")


def test_cards_of_different_capability() -> None:
    one = run_question("T4", "8.0")
    assert one.variables["STANDIN_CC"] == "75,80"
    assert "compute capability 8.0" in one.title


@pytest.mark.parametrize(
    ("card", "branch"), [("Tesla K80", "470"), ("GTX 980", "580"), ("RTX 5090", "595"), ("Tesla V100", "580")]
)
def test_without_a_driver_the_newest_that_drives_the_card(card: str, branch: str) -> None:
    one = run_question(card)
    assert one.driver.partition(".")[0] == branch
    assert (len(one.shown), one.undriven) == (1, ())


@pytest.mark.parametrize(
    ("card", "driver", "why"),
    [
        ("RTX 4090", "470", "speaks CUDA 11.4, which knows cards up to compute capability 8.7"),
        ("RTX 5090", "550.54.15", "knows cards up to compute capability 9.0"),
        ("Tesla K80", "550", "the last branch for compute capability 3.7 is 470"),
        ("GTX 1080", "590", "the last branch for compute capability 6.1 is 580"),
    ],
)
def test_a_driver_that_does_not_know_the_card_shows_none(card: str, driver: str, why: str) -> None:
    one = run_question(card, driver=driver)
    assert (one.shown, one.variables["STANDIN_GPUS"]) == ((), "0")
    assert why in one.undriven[0]


def test_a_branch_means_its_newest() -> None:
    ada = Card("Ada", "8.9")
    assert find_newest_driver(COMPAT, "520") == "520.61.05"
    assert find_driver_refusal(COMPAT, "520", ada) is None
    assert find_driver_refusal(COMPAT, "520.61.05", ada) is None
    assert find_driver_refusal(COMPAT, "515.65.01", ada) is not None


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (("RTX 9999",), {}, "no NVIDIA GPU called"),
        (("GTX 750 Ti",), {}, "compute capability 3.0 and 5.0"),
        (("99.0",), {}, "no NVIDIA GPU of compute capability 99.0"),
        (("RTX 4090",), {"driver": "999"}, "which CUDA driver 999 speaks is not known"),
        (("RTX 4090",), {"driver": "12.4"}, "version of NVIDIA's driver"),
        (("Tesla K80", "RTX 5090"), {}, "drives Tesla K80 and GeForce RTX 5090 together"),
        (("RTX 4090",), {"gpus": "all"}, "--gpus"),
        (("RTX 4090",), {"gpus": "0"}, "--gpus"),
        (("RTX 4090",), {"gpus": "999"}, "--gpus"),
        (("RTX 4090", "T4"), {"gpus": "2"}, "--gpus"),
    ],
)
def test_what_does_not_exist_is_refused(names: tuple[str, ...], options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        run_question(*names, **options)
    assert said in refused.value.message


def test_what_is_not_known_is_said() -> None:
    assert any("memory of GeForce RTX 4090" in text for text in run_question("RTX 4090").does_not_prove())
    assert parse_memory(Card("A100-SXM4-80GB", "8.0")) == 80 << 10
    assert parse_memory(Card("GeForce RTX 4090", "8.9")) is None


def test_no_name_breaks_the_stand_ins_lists() -> None:
    one = Simulated((Card("a;b,c\n", "8.0"),), "550.54.15", "12.4", shown=(Card("a;b,c\n", "8.0"),))
    assert one.variables["STANDIN_NAME"] == "a b c  (simulated)"


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "/s"), ("/a:/b", "/a:/b:/s"), ("/a:", "/a:/s")],
)
def test_the_stand_in_comes_last(before: str, after: str) -> None:
    """What hides a driver has to hide the stand-in, too."""
    env = {"LD_LIBRARY_PATH": before, "STANDIN_INIT": "999", "PATH": "/bin"}
    there = add_stand_in(env, run_question("RTX 4090"), "/s")
    assert there["LD_LIBRARY_PATH"] == after
    assert there["PATH"] == "/bin"
    assert "STANDIN_INIT" not in there
