"""Recommendations: rules over one run or several, ranked by the time they could save.

A plug-in builds its rule from the names exported here.
"""

from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext

__all__ = ["InsightDraft", "Rule", "RunContext"]
