"""The findings of `bench`, with the texts that `explain` prints."""

from __future__ import annotations

from tfdoctor.core.causes.codes import CodePage

__all__ = ["BENCH_PAGES"]

BENCH_PAGES = (
    CodePage(
        "not-timed",
        "A measurement that has no times",
        "TensorFlow did not compute what `bench` asked it to.",
        "TensorFlow was not imported, or every piece of work failed or was stopped.",
        "tfdoctor check says why; with --duration give it more seconds.",
    ),
    CodePage(
        "bench-disturbed",
        "A measurement that something else disturbed",
        "Other programs used the processors or the card, a quota stopped TensorFlow, or the card was hot.",
        "The times are what a program gets at this moment. They are no measure of the machine, and a "
        "comparison with another run says nothing.",
        "End what else runs, let the card cool down, and measure again.",
    ),
    CodePage(
        "slower-than-one",
        "Several devices that train slower than one of them",
        "The same whole batch takes longer on several devices than on the fastest of them.",
        "Each device gets a part of the batch, and after each step the gradients are averaged. A small part "
        "takes almost as long as the whole batch; averaging costs the more, the slower the way between the "
        "devices is; and each step waits for the slowest device.",
        "Give each device the batch that one alone has, or train on one.",
    ),
    CodePage(
        "below-peak",
        "A card that gives far less than it can",
        "Its largest matrix products ran at less than 30 % of what its multiprocessors can give in float32.",
        "The usual reasons, in this order: a power limit, another program, heat, a slow clock that was set.",
        "Watch nvidia-smi -q -d CLOCK,POWER,PERFORMANCE while it computes.",
    ),
    CodePage(
        "narrow-link",
        "A card whose way to the host is narrower than it could be",
        "While it computed it used fewer lanes of PCI Express, or a lower generation, than card and slot "
        "could have.",
        "Data comes to it more slowly than it could: copies of batches, and gradients between cards without "
        "NVLink. Computing itself is as fast. Of 16 lanes 4 carry a quarter. An idle card lowers the "
        "generation to save power; only what it had while it computed counts.",
        "Check which slots have how many lanes, and which share them with another card or a disk; whether a "
        "riser is in between; what the firmware is set to. Then put the card in again.",
    ),
)
