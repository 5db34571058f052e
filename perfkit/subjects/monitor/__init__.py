"""The whole run, by the monitor's record of every step."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.report.content.monitor:tables")
