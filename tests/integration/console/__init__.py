"""The console: its pages, forms, logins, and what a browser sees."""
