"""The same traces according to another tool."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject()
