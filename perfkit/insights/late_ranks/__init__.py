"""Why late ranks are late: what they have more of than the others."""
