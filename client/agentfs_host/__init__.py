"""Directory trees of this machine: system calls that Python lacks, and opening, walking and copying by descriptor.

This is the lowest package: the daemon and both client packages use it, and it imports none of them.
"""
