"""Display of records in notebooks and by `print`. The package gives it the rendering; this room does not import it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

RENDERING: Final[list[Callable[[], Any]]] = []
"""What imports the rendering of records, and returns it: functions `html`, `text`, `figure` and `tables` of a record.
`perfkit` itself puts it here."""


class NotebookDisplay:
    """Shows the summary: as HTML in Jupyter, as text by `print` and in an interactive session."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = RENDERING[0]().html(self)
        return html

    def __repr__(self) -> str:
        text: str = RENDERING[0]().text(self)
        return text

    def _figure(self, name: str) -> "Figure":
        figure: Figure = RENDERING[0]().figure(self, name)
        return figure

    def _tables(self) -> Any:
        return RENDERING[0]().tables(self)


class RunPlots(NotebookDisplay):
    """Charts of where step time goes, as plotly figures.

    All raise UsageError if the chart does not exist: for too few ranks or steps, or a report of several runs.
    """

    __slots__ = ()

    def figure(self, name: str) -> "Figure":
        """Return the chart that `-o NAME.svg` draws: `scaling`, `lost`, `throughput`, `ranks` and others.

        Of a scaling report, `scaling` is where the step goes by ranks (`strong`, `weak`: of one kind), `lost` where
        points of efficiency were lost. An unknown name is refused with the list of all.
        """
        return self._figure(name)

    def plot_steps(self) -> "Figure":
        """Return one bar per step, mean over ranks, stacked by category."""
        return self._figure("steps")

    def plot_ranks(self) -> "Figure":
        """Return one bar per rank, mean over steps, stacked by category."""
        return self._figure("ranks")

    def plot_heat_map(self) -> "Figure":
        """Return the time of every step of every rank, in total or of one category."""
        return self._figure("heat_map")

    def plot_waiting(self) -> "Figure":
        """Return one bar per rank: wait and transfer time in its collectives, mean per step."""
        return self._figure("waiting")

    def plot_bandwidth(self) -> "Figure":
        """Return the bandwidth of matched collectives against their size, with its fit."""
        return self._figure("bandwidth")

    def plot_memory(self) -> "Figure":
        """Return allocated memory over the step with the highest peak, one line per rank and device."""
        return self._figure("memory")

    def plot_memory_by_category(self) -> "Figure":
        """Return what memory is used for over the step with the highest peak, of the device that has it."""
        return self._figure("memory_by_category")

    def plot_roofline(self) -> "Figure":
        """Return what operators achieved against operations per byte, below the peaks of the device."""
        return self._figure("roofline")
