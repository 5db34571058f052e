"""perfkit's log on stderr: plain lines, shown from a level on."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from perfkit.base import log
from perfkit.record.messages import print_error, print_status, print_warning
from tests.support.processes.launching import LIMIT_S


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    logger = logging.getLogger(log.ROOT)
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def write_all_levels() -> None:
    logger = logging.getLogger("perfkit.some.module")
    for level in (logging.DEBUG, logging.INFO, log.STATUS, logging.WARNING, logging.ERROR):
        logger.log(level, "%s", "text")


@pytest.mark.parametrize(
    ("verbosity", "hidden"), [(-1, ["debug", "info"]), (0, ["debug", "info"]), (1, ["debug"]), (2, []), (9, [])]
)
def test_verbosity(verbosity: int, hidden: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(verbosity)
    write_all_levels()
    every = ["perfkit: debug: text", "perfkit: info: text", "perfkit: text", "perfkit: warning: text"]
    shown = [line for line in every if not any(f": {level}:" in line for level in hidden)]
    assert lines(capsys) == [*shown, "perfkit: error: text"]


def test_configured_twice_a_line_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(2)
    log.configure()
    write_all_levels()
    assert lines(capsys) == ["perfkit: text", "perfkit: warning: text", "perfkit: error: text"]


def test_a_record_is_one_line_of_printable_text(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure()
    logging.getLogger("perfkit.x").warning("two\nlines \x1b[2J")
    assert lines(capsys) == ["perfkit: warning: two lines \\x1b[2J"]


@pytest.mark.parametrize("verbosity", [0, 2])
def test_lines_of_a_recording_are_shown_once_at_any_verbosity(
    verbosity: int, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure(verbosity)
    print_status("a")
    print_status("b", bare=True)
    print_warning("c")
    print_error("d")
    assert lines(capsys) == ["perfkit: a", "b", "perfkit: warning: c", "perfkit: error: d"]


def test_a_recording_in_a_program_that_logs_by_itself() -> None:
    code = (
        "import logging\nlogging.basicConfig(level=logging.DEBUG)\n"
        "from perfkit.record.messages import print_status\nprint_status('done')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stderr == "perfkit: done\n"


def test_a_closed_stderr_is_no_error() -> None:
    code = "import sys\nfrom perfkit.record.messages import print_error\nsys.stderr.close()\nprint_error('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
