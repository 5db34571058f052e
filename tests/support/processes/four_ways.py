"""Registers one listener of recordings, and records a workload, an own loop, a framework's events, and a script."""

import atexit
import json
import sys
from pathlib import Path

import torch

import perfkit
from perfkit.__main__ import main
from perfkit.integrations.recorder import FrameworkRecorder
from perfkit.record.run_listeners import LISTENERS, FollowedRun
from perfkit.record.step_listener import StepListener

STEPS = "wait=0,warmup=1,active=1"
heard: dict[str, list[str]] = {}


class Listener(StepListener):
    def __init__(self, run: FollowedRun) -> None:
        self._events = heard.setdefault(run.recording.folder.name, [])

    def begin(self) -> None:
        self._events.append("begin")

    def end_step(self, *_: object) -> None:
        self._events.append("step")

    def discard(self) -> None:
        self._events.append("end")


LISTENERS.append(Listener)
folder, script = Path(sys.argv[1]), sys.argv[2]
common = ["--trace-dir", str(folder), "--no-report", "--schedule", STEPS]
main(["run", "transformer", "--preset", "tiny", "--steps", "3", "--name", "workload", *common])
with perfkit.profile(folder / "loop", schedule=STEPS) as prof:
    for _ in range(3):
        prof.step()
framework = FrameworkRecorder(folder / "framework", STEPS, passes=False)
framework.begin("framework", torch.device("cpu"))
for _ in range(3):
    framework.step()
framework.end()
atexit.register(lambda: (folder / "heard.json").write_text(json.dumps(heard)))  # a script ends the process
main(["run", script, "--name", "script", *common])
