"""Losses of a run: what rules return, what they read, and what rules of several subjects share.

A package that adds a subject builds its rules from the names exported here.
"""

from perfkit.engine.losses.context import LossContext
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.records.facts import fact

__all__ = ["Loss", "LossContext", "Rules", "fact"]
