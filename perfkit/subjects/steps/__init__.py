"""Single steps: which are the slowest."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.report.content.steps:tables")
