"""Recommendations: rules over one run or several, ranked by the time they could save."""
