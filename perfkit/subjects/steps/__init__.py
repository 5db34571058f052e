"""Single steps: which are the slowest."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.subjects.steps.tables:tables", charts="perfkit.subjects.steps.charts:CHARTS")
