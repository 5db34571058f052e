"""The iterators whose fetches perfkit times; no test without the real torch makes one."""


class _SingleProcessDataLoaderIter: ...


class _MultiProcessingDataLoaderIter: ...
