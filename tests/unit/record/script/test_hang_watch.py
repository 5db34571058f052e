"""Which failures of a script are explained by what its ranks waited for."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from perfkit.engine.hangs.rules import DUE_TO_ANOTHER_RANK
from perfkit.errors import RunError
from perfkit.options.script import ScriptConfig
from perfkit.record.endings import TerminatedError
from perfkit.record.hangs.rank_state import write_rank_state
from perfkit.record.hangs.report import DIAGNOSIS_NAME
from perfkit.record.script.hang_watch import Cause, ScriptHangWatch
from perfkit.record.script.rank_marks import mark_joined
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure, read_failure
from tests.support.hangs.rank_states import call, frame, state

LOST = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:26527")
TIMED_OUT = RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation")
WATCHDOG = RuntimeError("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 60000 milliseconds")
SIGNAL = TerminatedError("ended by SIGTERM")
GONE = RunError("was killed, or ended without a message, before rank 1 was ended by SIGTERM")


@pytest.fixture
def watch(tmp_path: Path) -> ScriptHangWatch:
    """Return the watch of rank 1 of two; both are this process, which runs."""
    for rank in range(2):
        mark_joined(tmp_path, rank)
    return ScriptHangWatch(tmp_path, 1, 2, ScriptConfig(), lambda: False)


def leave_what_ranks_did(folder: Path) -> None:
    waiting = state(0, call(1), world_size=2, ended=DUE_TO_ANOTHER_RANK)
    write_rank_state(folder, waiting)
    late = state(1, world_size=2, main=[frame("data.py", 88, "load_batch")])
    write_rank_state(folder, replace(late, request=0))


@pytest.mark.parametrize("error", [LOST, TIMED_OUT, WATCHDOG], ids=["lost", "gloo's timeout", "NCCL's timeout"])
def test_what_another_rank_has_caused_is_explained(error: RuntimeError, watch: ScriptHangWatch, tmp_path: Path) -> None:
    leave_what_ranks_did(tmp_path)
    cause = watch.explain(Cause(1, error), error)
    assert cause.diagnosis.endswith("rank 1 has not issued it: it is in `load_batch` at data.py:88")
    assert str(cause.error).endswith(f"; {cause.diagnosis}")
    assert (tmp_path / DIAGNOSIS_NAME).exists()


@pytest.mark.parametrize(
    "error", [RuntimeError("DataLoader timed out after 5 seconds"), TimeoutError("Read timed out.")], ids=str
)
def test_a_timeout_of_the_script_is_its_own_failure(
    error: RuntimeError, watch: ScriptHangWatch, tmp_path: Path
) -> None:
    leave_what_ranks_did(tmp_path)
    assert watch.explain(Cause(1, error), error) == Cause(1, error)


@pytest.mark.parametrize("error", [SIGNAL, GONE], ids=["the signal", "a rank that is gone"])
def test_the_end_of_a_rank_by_a_signal_is_not_explained(
    error: RunError, watch: ScriptHangWatch, tmp_path: Path
) -> None:
    leave_what_ranks_did(tmp_path)
    left = set(tmp_path.iterdir())
    cause = Cause(1, error)
    assert watch.explain(cause, SIGNAL) == cause
    assert set(tmp_path.iterdir()) == left


def test_a_rank_that_a_signal_ends_lets_another_explain_the_failure_first(
    watch: ScriptHangWatch, tmp_path: Path
) -> None:
    (tmp_path / ".explains").touch()
    failure = Failure(rank=0, message="boom; rank 0 waits in all_reduce")
    recorded = threading.Timer(0.2, claim_failure, (tmp_path, failure))
    recorded.start()
    watch.explain(Cause(1, SIGNAL), SIGNAL)
    found = read_failure(tmp_path)
    recorded.join()
    assert found == failure
