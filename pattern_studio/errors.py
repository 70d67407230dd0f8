"""The one family of errors that a user's input can cause.

Every message says what was expected, what was got and what to do. The command line turns a
StudioError into exit code 2 and one line on stderr; anything else is a fault of ours.
"""


class StudioError(ValueError):
    """Input that can't be honoured: a pattern, a problem, a file or an option."""
