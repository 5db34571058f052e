"""Charts as specifications, drawn by the page and by notebooks."""
