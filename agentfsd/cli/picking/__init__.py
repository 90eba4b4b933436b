"""Choosing single hunks of changed files, as `git add -p` does it: hunks.py has the model, hunk_dialogue.py asks."""
