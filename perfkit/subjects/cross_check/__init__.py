"""The same traces according to another tool."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.subjects.cross_check.tables:tables")
