"""All checks of `perfkit doctor`."""

import socket
from pathlib import Path

from perfkit.doctor import system
from perfkit.doctor.packages import check_packages
from perfkit.doctor.torch_checks import check_torch
from perfkit.schema.doctor import DoctorReport


def diagnose(trace_dir: Path) -> DoctorReport:
    """Look at this machine as this process sees it; seconds, most of them torch's import.

    Args:
        trace_dir: Where traces would be written; it need not exist.
    """
    launcher, place = system.check_launcher()
    return DoctorReport(
        rank=place.rank,
        world_size=place.world_size,
        host=socket.gethostname(),
        checks=[
            system.check_python(),
            *check_torch(place.local_rank),
            launcher,
            system.check_cores(),
            *check_packages(),
            *system.check_folders(trace_dir),
            system.check_compiler(),
        ],
    )
