"""What NCCL's logs say: who is connected to whom, and what that means."""
