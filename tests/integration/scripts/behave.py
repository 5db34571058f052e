"""What a script may rely on besides training: tests run it alone and under perfkit, and compare."""

import atexit
import logging.config
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType


class Thing:
    """Pickled by reference to `__main__`."""


def square(number: int) -> int:
    return number * number


def where() -> None:
    print(sorted(globals()), [globals().get(name) for name in ("__annotations__", "__cached__", "__doc__")])
    print(__name__, __file__, __spec__, __package__, sys.argv, sys.path[0])
    print(sys.modules["__main__"].__dict__ is globals(), "torch" in sys.modules, "workloads" in sys.modules)


def read() -> None:
    print("read", sys.stdin.read().upper())


def leave() -> None:
    sys.exit(3)


def complain() -> None:
    sys.exit("no more of this")


def mute() -> None:
    sys.stderr = None
    print("no stderr")


def shut() -> None:
    sys.stderr.close()
    print("closed stderr")


def configure() -> None:
    logging.config.dictConfig({"version": 1})
    logging.disable(logging.CRITICAL)
    print("no loggers but those that are named here")


def fail() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def hook() -> None:
    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        print("own hook", kind.__name__, error, trace and trace.tb_frame.f_code.co_name)

    sys.excepthook = show
    fail()


def interrupt() -> None:
    atexit.register(print, "at exit", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def linger() -> None:
    def late() -> None:
        time.sleep(0.2)
        print("thread", pickle.loads(pickle.dumps(Thing())) is not None)  # noqa: S301  # its own

    atexit.register(lambda: print("at exit", len(pickle.dumps(Thing())) > 0, sys.argv[1:]))
    threading.Thread(target=late).start()


def share() -> None:
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(square, [1, 2, 3]))


def receive() -> None:
    for method in ("spawn", "forkserver"):
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            print(isinstance(pool.submit(Thing).result(), Thing))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
