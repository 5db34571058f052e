"""The iterators whose fetches perfkit times; tests without the real torch create none."""

from typing import Any


class _BaseDataLoaderIter:
    def __next__(self) -> Any: ...


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter): ...


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter): ...
