"""What several subjects need: steps, kinds, breakdown, collectives, clocks, the graph of steps, late ranks."""
