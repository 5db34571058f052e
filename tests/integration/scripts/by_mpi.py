"""A DDP script that asks MPI for its place, and chooses its own port, as many do on clusters."""

import os

from mpi4py import MPI

from tests.support.processes.ports import free_port

comm = MPI.COMM_WORLD
port = comm.bcast(free_port())
os.environ |= {"RANK": str(comm.rank), "WORLD_SIZE": str(comm.size)}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
value = torch.tensor([float(comm.rank)])
dist.all_reduce(value)
print(value.item())
dist.destroy_process_group()
