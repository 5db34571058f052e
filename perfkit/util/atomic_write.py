"""Write files atomically: readers never see a partial file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfkit.errors import StoreError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` at the end, remove it after an error.

    Raises:
        StoreError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
