"""Run `perfkit` in the process of the tests: as the shell would, but without starting an interpreter."""

import contextlib
import io
import subprocess
from pathlib import Path

from perfkit.cli import main


def run_command(
    *args: str | Path, cwd: Path | None = None, encoding: str = "utf-8"
) -> subprocess.CompletedProcess[str]:
    """Return the exit code and what was written, to no terminal; in UTF-8, whatever the encoding of the streams.

    Starting Python and importing perfkit costs more than most commands; tests of the start itself use a process.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main([str(arg) for arg in args])
    return subprocess.CompletedProcess(["perfkit", *map(str, args)], code, *(_text(stream) for stream in (out, err)))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")
