"""What commands that look at folders refuse."""

from collections.abc import Iterable
from pathlib import Path

from perfkit.errors import StoreError


def check_folders(paths: Iterable[Path]) -> None:
    """Check that all paths are folders.

    Raises:
        StoreError: One is not.
    """
    for path in paths:
        if not path.is_dir():
            raise StoreError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}")
