"""A report format: the mean step time per run, as Prometheus text."""

from statistics import fmean
from typing import TextIO

from perfkit import Report
from perfkit.base.formatting import escape_unprintable


class Prometheus:
    """Writes one gauge per run."""

    record = Report
    suffixes = (".prom",)
    binary = False

    def write(self, record: Report, stream: TextIO, *, top: int) -> None:
        """Write seconds per step of each run, averaged over ranks and steps."""
        stream.write("# TYPE perfkit_step_seconds gauge\n")
        for run in record.runs:
            walls = [step.wall_ns for rank in run.ranks for step in rank.steps]
            if walls:
                stream.write(f'perfkit_step_seconds{{run="{_escaped(run.run)}"}} {fmean(walls) / 1e9:.6f}\n')


def _escaped(text: str) -> str:
    """Return a name as the value of a label: a run's name may come from anywhere."""
    return escape_unprintable(text).replace("\\", "\\\\").replace('"', '\\"')


REPORTER = Prometheus()
