"""What the logs of NCCL and oneCCL contain: who is connected to whom, and what that means."""
