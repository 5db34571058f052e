"""Recommendations: rules over one run or several return losses, ranked by the time they could save.

A plug-in builds its rule from the names exported here.
"""

from perfkit.insights.loss import Loss, Rule
from perfkit.insights.run_context import RunContext
from perfkit.records.facts import fact

__all__ = ["Loss", "Rule", "RunContext", "fact"]
