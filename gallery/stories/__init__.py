"""Runnable stories: `python -m gallery.stories.NAME` prints what happens; tests run each of them small."""
