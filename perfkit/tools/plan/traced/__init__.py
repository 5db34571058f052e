"""A step of the real modules on fake ranks and fake tensors, in a separate process: the memory that it needs.

`launch` does not import torch until it runs in the child, as everything else does.
"""
