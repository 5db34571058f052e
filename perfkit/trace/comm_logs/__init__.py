"""Logs of NCCL and RCCL (`NCCL_DEBUG=INFO`): lines, and the facts that they contain."""
