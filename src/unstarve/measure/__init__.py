"""Turning a live loop into a `Recording`: cut points, pools, the switchboard and the experiment. Needs torch."""
