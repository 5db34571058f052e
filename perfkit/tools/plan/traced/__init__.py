"""A step of the real modules on fake ranks and fake tensors, in a separate process: the memory that it needs.

`launch` and `messages` do not import torch; everything else runs in the child only.
"""
