"""Processes that wait for delays and events, in the order of time."""

from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush
from itertools import count


class Event:
    """Something that happens once, and the processes that wait for it."""

    def __init__(self) -> None:
        self.happened = False
        self.waiting: list[Process] = []


Process = Generator["int | Event"]
"""Yields a delay (us), or an event to wait for."""


class World:
    """Runs processes until none is left that can go on; `now` is in microseconds."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[tuple[int, int, Process]] = []
        self._number = count()

    def start(self, process: Process, after: int = 0) -> None:
        """Let a process go on, after a delay."""
        heappush(self._due, (self.now + after, next(self._number), process))

    def happen(self, event: Event) -> None:
        """Wake all that wait for an event."""
        event.happened = True
        for process in event.waiting:
            self.start(process)

    def run(self) -> None:
        """Run all processes to their ends, or until they wait for what never happens."""
        while self._due:
            self.now, _, process = heappop(self._due)
            wanted = next(process, None)
            if isinstance(wanted, int):
                self.start(process, wanted)
            elif wanted is not None and wanted.happened:
                self.start(process)
            elif wanted is not None:
                wanted.waiting.append(process)


class Stream:
    """Runs what is put into it one after the other."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self._world = world
        self._items: deque[Process] = deque()
        self._filled = Event()
        world.start(self._run())

    def put(self, item: Process) -> None:
        """Add an item at the end."""
        self._items.append(item)
        if not self._filled.happened:
            self._world.happen(self._filled)

    def _run(self) -> Process:
        while True:
            while self._items:
                yield from self._items.popleft()
            self._filled = Event()
            yield self._filled
