"""Which run of a folder is shown, and what follows when it has ended."""

from pathlib import Path

from perfkit.base.formatting import shell_word
from perfkit.storage.step_log.follow import RunFollower, latest_run
from perfkit.tools.watch.view import RunView


class NewestRun:
    """The run of a folder whose logs were written to last; once it no longer trains, the next takes its place."""

    def __init__(self, given: Path) -> None:
        self.run = RunFollower(latest_run(given))
        self._given = given
        self._before = ""

    def turn(self, shown: RunView | None) -> None:
        """Turn to the run that was written to last, unless the one that is shown trains."""
        if shown is None or shown.is_training:
            return
        newest = latest_run(self._given)
        if newest != self.run.folder:
            self._before = f"{shown.name}: {self._end(shown)}" if shown.is_over else ""
            self.run = RunFollower(newest)
            self.run.read()

    def notes(self, shown: RunView) -> list[str]:
        """Return what follows the end of the run that is shown, and how the one before it ended, in sentences."""
        found = [f"where its time went: {self._analyze()}"] if shown.is_over else []
        if not shown.is_training and self.run.folder != self._given:
            found.append(f"a run that starts in {self._given} is shown next")
        return found + [self._before] * bool(self._before)

    def _end(self, shown: RunView) -> str:
        return f"{shown.state}; where its time went: {self._analyze()}"

    def _analyze(self) -> str:
        return f"perfkit analyze {shell_word(self.run.folder)}"
