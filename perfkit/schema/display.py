"""How records show themselves in a notebook. What that needs is imported when they do: they know nothing of it."""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class NotebookDisplay:
    """Shows itself in Jupyter."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from perfkit.report import display

        return display.html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  IPython's protocol
        from perfkit.report import display

        printer.text(display.text(self))

    def _figure(self, name: str) -> "Figure":
        from perfkit.report import display

        figure: Figure = display.figure(self, name)
        return figure

    def _tables(self) -> Any:
        from perfkit.report import display

        return display.tables(self)


class RunPlots(NotebookDisplay):
    """Has figures of where the time of its steps goes; plotly is imported when one is made.

    All raise UsageError where there is no such figure: for too few ranks or steps, or a report of several runs.
    """

    __slots__ = ()

    def plot_steps(self) -> "Figure":
        """Return a bar a step, mean over ranks, parted by category."""
        return self._plot("steps")

    def plot_ranks(self) -> "Figure":
        """Return a bar a rank, mean over steps, parted by category."""
        return self._plot("ranks")

    def plot_heat_map(self) -> "Figure":
        """Return every step of every rank, as long as it took, or as one category of it did."""
        return self._plot("heat_map")

    def plot_waiting(self) -> "Figure":
        """Return a bar a rank: waiting and transfer in its collectives, a mean step."""
        return self._plot("waiting")

    def plot_bandwidth(self) -> "Figure":
        """Return the bandwidth of matched collectives against their size, with what was fitted."""
        return self._plot("bandwidth")

    def plot_memory(self) -> "Figure":
        """Return what was allocated over the step with the highest peak, a line a rank and device."""
        return self._plot("memory")

    def _plot(self, name: Literal["steps", "ranks", "heat_map", "waiting", "bandwidth", "memory"]) -> "Figure":
        return self._figure(name)
