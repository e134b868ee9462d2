"""Reports of an audit: the page, its charts, and tables for the terminal."""
