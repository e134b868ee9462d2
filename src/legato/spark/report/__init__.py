"""What an audit found, drawn: the page, its charts, and the tables of a terminal."""
