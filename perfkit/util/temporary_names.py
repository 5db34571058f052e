"""Names of what this process leaves in the system's temporary folder, so that what others left there can be removed.

A process that is killed, or ends by `os._exit`, removes nothing. Each name has the process and where it runs: a process
of another container that shares the folder is not taken for one that has ended.
"""

import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def temporary_prefix(kind: str) -> str:
    """Return the beginning of the names of this process, and remove what ended processes of the same user have left.

    Args:
        kind: What the names are for, such as `perfkit-loader`: the same for all processes.
    """
    place = _place()
    if place:
        _remove_left(re.compile(rf"{re.escape(kind)}-{place}-([0-9]{{1,10}})-[^/]*"))
    return f"{kind}-{place}-{os.getpid()}-"


def _place() -> str:
    """Return what tells apart the sets of processes in which a pid is unique; empty if that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")[:16]
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _remove_left(names: re.Pattern[str]) -> None:
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            match = names.fullmatch(entry.name)
            if match and _has_ended(int(match[1])):
                _remove_own(entry.path)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # a name that anybody may have made has any number
        return False
    return False


def _remove_own(path: str) -> None:
    """Remove a file or folder of this user; a link is not followed."""
    with suppress(OSError):
        status = os.lstat(path)
        if status.st_uid != os.geteuid():
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            os.unlink(path)
