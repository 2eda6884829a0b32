"""The simulated GPU and driver: what the tables say, what is rejected, and what remains unknown."""

from __future__ import annotations

import pytest

from rules.make_facts import COMPAT
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.core.errors import UsageError
from tfdoctor.prediction.fit.drivers import find_driver_refusal, find_newest_driver
from tfdoctor.prediction.fit.models import HostGpu
from tfdoctor.verification.simulate.request import MEMORY_MIB, SimulatedGpus, add_stand_in, parse_memory_mib


def simulate(*names: str, driver: str | None = None, count: int | None = None) -> SimulatedGpus:
    simulation = parse_simulation(COMPAT, names, driver=driver, count=count)
    assert simulation is not None
    return simulation


def test_nothing_is_simulated_without_a_gpu() -> None:
    assert parse_simulation(COMPAT, (), driver="550") is None


def test_gpu_with_a_driver_branch() -> None:
    simulation = simulate("RTX 4090", driver="550", count=2)
    assert simulation.title == "2 x GeForce RTX 4090 (compute capability 8.9), driver 550.54.15 (CUDA 12.4)"
    assert simulation.variables == {
        "STANDIN_GPUS": "2",
        "STANDIN_CC": "89,89",
        "STANDIN_NAME": "GeForce RTX 4090 (simulated);GeForce RTX 4090 (simulated)",
        "STANDIN_MEM_MIB": f"{MEMORY_MIB},{MEMORY_MIB}",
        "STANDIN_MP": "40",
        "STANDIN_CUDA": "12040",
        "STANDIN_DRIVER": "550.54.15",
    }
    assert simulation.typed_options == ("--simulate", "RTX 4090", "--driver", "550", "--gpu-count", "2")


def test_gpus_of_different_capability() -> None:
    simulation = simulate("T4", "8.0")
    assert simulation.variables["STANDIN_CC"] == "75,80"
    assert "compute capability 8.0" in simulation.title


@pytest.mark.parametrize(
    ("card", "branch"), [("Tesla K80", "470"), ("GTX 980", "580"), ("RTX 5090", "595"), ("Tesla V100", "580")]
)
def test_default_driver_is_the_newest_for_the_gpu(card: str, branch: str) -> None:
    simulation = simulate(card)
    assert simulation.driver.partition(".")[0] == branch
    assert (len(simulation.visible_cards), simulation.refusal_reasons) == (1, ())


@pytest.mark.parametrize(
    ("card", "driver", "why"),
    [
        ("RTX 4090", "470", "speaks CUDA 11.4, which knows cards up to compute capability 8.7"),
        ("RTX 5090", "550.54.15", "knows cards up to compute capability 9.0"),
        ("Tesla K80", "550", "the last branch for compute capability 3.7 is 470"),
        ("GTX 1080", "590", "the last branch for compute capability 6.1 is 580"),
    ],
)
def test_driver_without_support_shows_no_gpu(card: str, driver: str, why: str) -> None:
    simulation = simulate(card, driver=driver)
    assert (simulation.visible_cards, simulation.variables["STANDIN_GPUS"]) == ((), "0")
    assert why in simulation.refusal_reasons[0]


def test_branch_means_its_newest_driver() -> None:
    ada = HostGpu("Ada", "8.9")
    assert find_newest_driver(COMPAT, "520") == "520.61.05"
    assert find_driver_refusal(COMPAT, "520", ada) is None
    assert find_driver_refusal(COMPAT, "520.61.05", ada) is None
    assert find_driver_refusal(COMPAT, "515.65.01", ada) is not None


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (("RTX 9999",), {}, "no NVIDIA GPU called"),
        (("8",), {}, "neither the name of a card nor a compute capability"),
        (("-1",), {}, "neither the name of a card nor a compute capability"),
        (("86",), {}, "neither the name of a card nor a compute capability"),
        (("GTX 750 Ti",), {}, "compute capability 3.0 and 5.0"),
        (("99.0",), {}, "no NVIDIA GPU of compute capability 99.0"),
        (("RTX 4090",), {"driver": "999"}, "no driver of branch 999 is known"),
        (("RTX 4090",), {"driver": "12.4"}, "version of NVIDIA's driver"),
        (("Tesla K80", "RTX 5090"), {}, "drives Tesla K80 and GeForce RTX 5090 together"),
        (("RTX 4090",), {"count": 0}, "--gpu-count"),
        (("RTX 4090",), {"count": 999}, "--gpu-count"),
        (("RTX 4090", "T4"), {"count": 2}, "--gpu-count"),
    ],
)
def test_invalid_request_is_rejected(
    names: tuple[str, ...], options: dict[str, str | int], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(*names, **options)  # type: ignore[arg-type]
    assert said in caught.value.message


def test_unknown_memory_size_is_stated() -> None:
    assert any("memory of GeForce RTX 4090" in text for text in simulate("RTX 4090").list_unproven())
    assert parse_memory_mib(HostGpu("A100-SXM4-80GB", "8.0")) == 80 << 10
    assert parse_memory_mib(HostGpu("GeForce RTX 4090", "8.9")) is None


def test_separators_in_a_name_are_replaced() -> None:
    simulation = SimulatedGpus(
        (HostGpu("a;b,c\n", "8.0"),), "550.54.15", "12.4", visible_cards=(HostGpu("a;b,c\n", "8.0"),)
    )
    assert simulation.variables["STANDIN_NAME"] == "a b c  (simulated)"


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "/s"), ("/a:/b", "/a:/b:/s"), ("/a:", "/a:/s")],
)
def test_stand_in_is_last_on_the_path(before: str, after: str) -> None:
    """Whatever hides a driver must hide the stand-in too."""
    env = {"LD_LIBRARY_PATH": before, "STANDIN_INIT": "999", "PATH": "/bin"}
    environment = add_stand_in(env, simulate("RTX 4090"), "/s")
    assert environment["LD_LIBRARY_PATH"] == after
    assert environment["PATH"] == "/bin"
    assert "STANDIN_INIT" not in environment
