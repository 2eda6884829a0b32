"""Does release R serve host H, and which release is best? The only answer; each reason names its row of compat/.

Pure. `plan` makes options of it, the rules' remedies and the matrix ask it, too.
"""

from tfdoctor.fit.drivers import driver_version, limits_of_cards, newest_of_branch, not_driven
from tfdoctor.fit.host import host_of
from tfdoctor.fit.judge import Judgement
from tfdoctor.fit.models import Card, Caveat, Host, Reason
from tfdoctor.fit.serve import Fit, best, candidates, environment, on_cards, preferred, serves

__all__ = [
    "Card",
    "Caveat",
    "Fit",
    "Host",
    "Judgement",
    "Reason",
    "best",
    "candidates",
    "driver_version",
    "environment",
    "host_of",
    "limits_of_cards",
    "newest_of_branch",
    "not_driven",
    "on_cards",
    "preferred",
    "serves",
]
