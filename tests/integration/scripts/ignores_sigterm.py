"""A script that cannot be asked to end: it ignores SIGTERM and SIGHUP, and makes a file when it does."""

import os
import signal
import sys
import time
from pathlib import Path

import torch

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
Path(sys.argv[1], f"ready{os.environ['RANK']}").write_text(torch.__version__)
time.sleep(1000)
