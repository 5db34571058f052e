"""Tables of how well the device is used: launches, and operators against its limits."""
