"""An array that can be appended to."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class GrowableArray:
    """Grows in place by a fraction of its size: a list of parts would fragment the heap when it is freed."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._values: NDArray[Any] = np.empty(0, dtype)
        self._count = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Add values at the end, of which none is too negative; the array becomes wider for those that do not fit."""
        if values.dtype.itemsize > self._values.itemsize and values.max(initial=0) > np.iinfo(self._values.dtype).max:
            self._values = self._values.astype(values.dtype)
        count = self._count + len(values)
        if count > len(self._values):
            self._values.resize(count + count // 16, refcheck=False)
        self._values[self._count : count] = values
        self._count = count

    def build(self) -> NDArray[Any]:
        """Return the column; nothing can be added afterwards."""
        self._values.resize(self._count, refcheck=False)
        return self._values
