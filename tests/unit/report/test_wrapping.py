"""Figures stay on one line with their units."""

from rich.console import Console
from rich.text import Text

from perfkit.report.renderers.text import wrap


def test_no_line_ends_between_a_figure_and_its_unit() -> None:
    text = "the step would take 18.5 ms instead of 18.6 ms: 7.86 µs (0.04 %) less; 8.11 GB more"
    for width in range(12, 60):
        lines = [line.plain for line in wrap(Text(text), Console(width=width), width)]
        assert " ".join(lines) == text
        assert not [line for line in lines if line[-1].isdigit()], (width, lines)
        assert max(map(len, lines)) <= width
