"""A name that the ranks of one launch share, and no other launch has."""

import os
from pathlib import Path
from typing import Final

from perfkit.capture.distributed.launcher_env import RENDEZVOUS_VARIABLE, Launcher, RankInfo

_LAUNCH: Final = {"openmpi": "PMIX_NAMESPACE", "pals": "PALS_APID"}
"""Variable that tells one launch from another on whatever host; Hydra has none."""


def launch_id(launcher: Launcher, info: RankInfo) -> str | None:
    """Return that name; None where the ranks on several hosts cannot know it."""
    if launcher.name == "perfkit":
        return Path(os.environ[RENDEZVOUS_VARIABLE]).parent.name
    if launcher.name == "slurm":
        return ".".join(os.environ.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"))
    if info.single_host and (starter := _starter(launcher)):
        return f"{starter}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    name = os.environ.get(_LAUNCH.get(launcher.name, ""))
    return name.replace("/", "-") if name else None


def _starter(launcher: Launcher) -> str | None:
    """Return what identifies the process that started the ranks: the nearest above that is no rank itself.

    None where that cannot be known: somebody else's process cannot be asked whether it is a rank.
    """
    pid = os.getppid()
    try:
        while any(f"{name}=".encode() in Path(f"/proc/{pid}/environ").read_bytes() for name in launcher.rank):
            pid = int(_stat(pid)[1])
        return f"{pid}-{_stat(pid)[19]}"  # a number is given again some day: the time it started is not
    except PermissionError:
        return None
    except OSError:  # no /proc
        return str(pid)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may hold anything: state, parent, …, start time."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
