import subprocess
import sys
import threading

from perfkit.record.own_threads import OWN_THREAD, all_threads, start_own_thread

WAITS = """
import threading
from perfkit.record.own_threads import start_own_thread
start_own_thread("lasts", threading.Event().wait)
own = threading.Thread(target=lambda: print(threading.current_thread().name, threading.active_count()))
own.start()
own.join()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
while threading.active_count() > 1:
    pass
print([thread.name for thread in threading.enumerate()])
"""


def test_a_program_does_not_wait_for_threads_that_are_not_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "Thread-1 (<lambda>) 2\n['MainThread']\n"
    assert done.stderr == ""


def test_own_threads_are_seen_where_they_are_asked_for() -> None:
    end, before = threading.Event(), set(threading.enumerate())
    program = threading.Thread(target=end.wait)
    program.start()
    thread = start_own_thread("here", end.wait)
    try:
        assert thread.name == f"{OWN_THREAD}here"
        assert thread.daemon
        assert {thread, program} <= set(all_threads())
        assert set(threading.enumerate()) == {*before, program}
        assert threading.active_count() == len(before) + 1
    finally:
        end.set()
        thread.join()
        program.join()
