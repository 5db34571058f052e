"""Single steps: which are the slowest."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject()
