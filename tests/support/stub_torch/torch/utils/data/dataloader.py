"""The iterators whose fetches perfkit times; tests without the real torch create none."""


class _SingleProcessDataLoaderIter: ...


class _MultiProcessingDataLoaderIter: ...
