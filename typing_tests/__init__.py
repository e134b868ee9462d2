"""Programs of users, as mypy and pyright see them: `make check` reads them, nothing runs them.

What is right has no error. What is planted as a mistake is marked for each checker, and a mark without an error is one.
"""
