"""Choosing single hunks of changed files, as `git add -p` does it: hunk_dialogue.py asks; agentfsd/review has the model."""
