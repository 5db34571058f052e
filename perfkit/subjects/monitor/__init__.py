"""The whole run, by the monitor's record of every step."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.subjects.monitor.tables:tables", charts="perfkit.subjects.monitor.charts:CHARTS"
)
