"""Print the variables of a rank, and whether its port is reserved; with an argument, first wait for a line of input."""

import os
import socket
import sys

if sys.argv[1:]:
    sys.stdin.readline()
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
values = " ".join(str(os.environ.get(name)) for name in names)
if "MASTER_PORT" in os.environ and os.environ.get("RANK") == "0":
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        except OSError:
            pass
        else:
            values += " not reserved"
sys.stdout.write(values + "\n")
