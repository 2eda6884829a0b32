"""The cards are connected only over a slow path.

What it means
-------------
Training on several cards (MirroredStrategy) exchanges gradients between them all the time. Cards that are
connected by NVLink or behind one PCIe switch do that directly. Between cards at two processors (SYS) or
two host bridges (NODE) everything goes through the processors' own links. This works, but more slowly;
nothing fails.

How it is seen
--------------
From `nvidia-smi topo -m`, which runs only if NVIDIA's driver has two or more cards.

What to do
----------
If you use only some of the cards, choose those that are close to each other.
"""

from __future__ import annotations

from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext, outcome_if_unknown

SLOW_LINKS = {"SYS": "through the link between two processors", "SOC": "through the link between two processors",
       "NODE": "through two host bridges of one processor"}  # fmt: skip
FAST_LINKS = ("NV", "PIX", "PXB", "PSB", "C2C")


def _require_links(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    return outcome_if_unknown(context.facts.kernel.links, "how the cards are joined")


def check(context: RuleContext) -> Result:
    fact = context.facts.kernel.links
    answer = value_of(context.facts.driver.cuda)
    if answer is not None and len(answer.devices) < 2:
        return NotApplicable("one card is visible here")
    links = value_of(fact) or {}
    far = {pair: link for pair, link in links.items() if link in SLOW_LINKS}
    if not far:
        return ()
    near_pairs = [pair for pair, link in links.items() if link.startswith(FAST_LINKS)]
    remedies = []
    if near_pairs:
        numbers = near_pairs[0].replace("GPU", "").replace("-", ",")
        remedies.append(
            Remedy(
                f"For two cards, take a pair that is near each other ({near_pairs[0]}).",
                ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", f"export CUDA_VISIBLE_DEVICES={numbers}"),
            )
        )
    details = sorted({f"{link}: {SLOW_LINKS[link]}" for link in far.values()})
    shown = ", ".join(list(far)[:6]) + (f" and {len(far) - 6} more" if len(far) > 6 else "")
    return [
        RULE.finding(
            Cause.HEALTHY,
            Severity.INFO,
            f"{len(far)} of {len(links)} pairs of cards are connected only over a slow path ({'; '.join(details)}): "
            f"{shown}. Training on these together is slower than it could be.",
            title="Some cards are connected only over a slow path",
            evidence=[
                Evidence("nvidia-smi topo -m", f"{pair}: {link}") for pair, link in list(far.items())[:8]
            ],
            remedies=remedies,
        )
    ]


RULE = Rule(
    "TFD125",
    "slow-links",
    "The cards are connected only over a slow path",
    (Cause.HEALTHY,),
    check,
    short_title="the cards are connected over a slow path",
    needs=(_require_links,),
)
