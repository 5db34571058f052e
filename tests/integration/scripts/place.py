"""Says what its rank has been told, and that nobody else gets its port; with an argument it waits for a line before."""

import os
import socket
import sys

if sys.argv[1:]:
    sys.stdin.readline()
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
told = " ".join(str(os.environ.get(name)) for name in names)
if "MASTER_PORT" in os.environ and os.environ.get("RANK") == "0":
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        except OSError:
            pass
        else:
            told += " not reserved"
sys.stdout.write(told + "\n")
