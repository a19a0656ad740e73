"""From a recording to a report: estimates, verdict, culprits, limit, remedies and doubts. Pure; no torch, no clock.

Three kinds of evidence are weighed: contrasts of the ladder, knock-outs (the loop's speed with one stage served from
cache) and the accounting of the workers' clocks. Where they disagree the report says so.
"""

from unstarve.judge.evidence import THRESHOLD
from unstarve.judge.verdict import account, judge

__all__ = ["THRESHOLD", "account", "judge"]
