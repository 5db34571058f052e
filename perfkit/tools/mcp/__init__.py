"""`perfkit mcp`: what perfkit knows of some runs, for agents, over the Model Context Protocol on stdin and stdout.

Each answer is text of at most `LONGEST` characters, names the run, ranks and steps that its figures are of, and ends
with the command that shows them again. What cannot be answered is an answer too, with the reason.
"""
