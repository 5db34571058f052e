"""How a document is drawn: terminal, HTML, Markdown, Jupyter."""
