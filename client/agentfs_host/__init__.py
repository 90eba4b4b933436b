"""A directory tree of this machine: the system calls that Python lacks, and opening, walking and copying by descriptor.

It is the lowest package: the daemon and both client packages use it, and it imports none of them.
"""
