"""What a watch of the lower has heard, and what the kernel holds for it."""

from pathlib import Path

from agentfsd.lower.watch import LowerWatch


def told(watcher: LowerWatch) -> dict[tuple[bytes, bytes | None], bool]:
    news = watcher.news()
    assert len({change[:2] for change in news}) == len(news)
    return {(change.directory, change.name): change.replaced for change in news}


def watches_in_kernel(watcher: LowerWatch) -> int:
    return Path(f"/proc/self/fdinfo/{watcher.fd}").read_text().count("inotify wd:")
