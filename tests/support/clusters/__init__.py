"""A discrete-event simulation of clusters of devices, apart from perfkit: what a change saves is simulated again."""
