"""The iterators whose fetches perfkit times; no test without the real torch makes one."""

from typing import Any


class _SingleProcessDataLoaderIter:
    def __init__(self, loader: Any) -> None:
        raise NotImplementedError


class _MultiProcessingDataLoaderIter:
    def __init__(self, loader: Any) -> None:
        raise NotImplementedError
