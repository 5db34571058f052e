"""Latency and bandwidth of each series, by the fit that is made for the collectives of runs."""

from collections.abc import Sequence

from perfkit.analysis.cross_rank.bandwidth import fit_times
from perfkit.analysis.per_rank.communication.collective_metadata import CollectiveKey
from perfkit.collectives.operations import OPERATIONS
from perfkit.schema.benchmark.collectives import Measurement, Series, SeriesFit


def fit_series(series: Sequence[Series], measurements: Sequence[Measurement]) -> list[SeriesFit]:
    """Fit t = alpha + factor * S / beta to every series with a message, at one collective at a time."""
    fits = []
    for number, one in enumerate(series):
        times = {row.bytes: row.time_ns for row in measurements if row.series == number and row.bytes}
        if times and one.concurrent == 1:
            key = CollectiveKey(OPERATIONS[one.operator].operator, one.dimension, one.group_size)
            fits.append(SeriesFit(series=number, fit=fit_times(key, times)))
    return fits
