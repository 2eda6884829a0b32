"""The cards are connected only over a slow path.

What it means
-------------
Training on several GPUs (MirroredStrategy) exchanges gradients between them all the time. Cards that are
connected by NVLink or behind one PCIe switch do that directly. Between GPUs at two processors (SYS) or
two host bridges (NODE) everything goes through the processors' own links. This works, but more slowly;
nothing fails.

How it is seen
--------------
tfdoctor runs `nvidia-smi topo -m` if NVIDIA's driver has two or more GPUs.

What to do
----------
If you use only some of the GPUs, choose those that are close to each other.
"""

from __future__ import annotations

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import join_first
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext, require_known_fact

SLOW_LINK_DESCRIPTIONS = {"SYS": "through the link between two processors", "SOC": "through the link between two processors",
       "NODE": "through two host bridges of one processor"}  # fmt: skip
"""A clause for each slow connection that `nvidia-smi topo -m` names."""
FAST_LINK_PREFIXES = ("NV", "PIX", "PXB", "PSB", "C2C")
"""Prefixes of the names of fast connections, such as "NV4"."""


def _require_links(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    return require_known_fact(context.facts.kernel.links, "how the cards are joined")


def check(context: RuleContext) -> Result:
    fact = context.facts.kernel.links
    driver_result = value_of(context.facts.driver.cuda)
    if driver_result is not None and len(driver_result.devices) < 2:
        return NotApplicable("one card is visible here")
    links = value_of(fact) or {}
    slow_links = {pair: link for pair, link in links.items() if link in SLOW_LINK_DESCRIPTIONS}
    if not slow_links:
        return ()
    fast_pairs = [pair for pair, link in links.items() if link.startswith(FAST_LINK_PREFIXES)]
    remedies = []
    if fast_pairs:
        numbers = fast_pairs[0].replace("GPU", "").replace("-", ",")
        remedies.append(
            Remedy(
                f"For two cards, take a pair that is near each other ({fast_pairs[0]}).",
                ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", f"export CUDA_VISIBLE_DEVICES={numbers}"),
            )
        )
    details = sorted({f"{link}: {SLOW_LINK_DESCRIPTIONS[link]}" for link in slow_links.values()})
    pairs_text = join_first(list(slow_links), 6)
    return [
        RULE.make_finding(
            Cause.HEALTHY,
            Severity.INFO,
            f"{len(slow_links)} of {len(links)} pairs of cards are connected only over a slow path ({'; '.join(details)}): "
            f"{pairs_text}. Training on these together is slower than it could be.",
            title="Some cards are connected only over a slow path",
            evidence=[
                Evidence("nvidia-smi topo -m", f"{pair}: {link}")
                for pair, link in list(slow_links.items())[:8]
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
