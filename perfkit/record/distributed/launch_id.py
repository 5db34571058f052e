"""An identifier that the ranks of one launch share, and no other launch has; without torch."""

import os
from pathlib import Path
from typing import Final

from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE, Launcher
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.process_stat import PARENT, START, stat_fields

_LAUNCH_VARIABLES: Final = {"openmpi": "PMIX_NAMESPACE", "pals": "PALS_APID"}
"""Variable with an identifier of the launch that is the same on all hosts; Hydra has none."""


def launch_id(launcher: Launcher, info: RankInfo) -> str | None:
    """Return that identifier.

    None if the ranks are on several hosts and the launcher has no such identifier.
    """
    if launcher.name == "perfkit":
        return Path(os.environ[RENDEZVOUS_VARIABLE]).parent.name
    if launcher.name == "slurm":
        return slurm_step()
    if info.single_host and (process := _launcher_process(launcher)):
        return f"{process}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    name = os.environ.get(_LAUNCH_VARIABLES.get(launcher.name, ""))
    return name.replace("/", "-") if name else None


def slurm_step() -> str:
    return ".".join(os.environ.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"))


def _launcher_process(launcher: Launcher) -> str | None:
    """Return an identifier of the process that started the ranks: the nearest ancestor that is not a rank itself.

    None if that cannot be found out: the environment of another user's process cannot be read.
    """
    pid = os.getppid()
    try:
        while any(f"{name}=".encode() in Path(f"/proc/{pid}/environ").read_bytes() for name in launcher.rank):
            pid = int(stat_fields(pid)[PARENT])
        return f"{pid}-{stat_fields(pid)[START]}"
    except PermissionError:
        return None
    except OSError:  # no /proc
        return str(pid)
