"""The same traces according to another tool."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.report.content.cross_check:tables")
