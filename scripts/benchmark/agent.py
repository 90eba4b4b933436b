"""What stands in a target's view and runs commands there: one JSON order a line in, one JSON result a line out.

It runs by itself (``python agent.py``), so it imports nothing of this package. It ends when its input does.
"""

import json
import os
import subprocess
import sys
import time

_OUTPUT_CHARACTERS = 200_000


def perform(order: dict[str, list[str] | str]) -> dict[str, object]:
    """Runs one command and takes the time until it has ended, in seconds."""
    argv, cwd = order["argv"], str(order["cwd"])
    begin = time.perf_counter()
    try:
        done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as exc:
        return {"code": -1, "seconds": 0.0, "out": "", "err": str(exc)}
    seconds = time.perf_counter() - begin
    out, err = (part.decode(errors="replace")[-_OUTPUT_CHARACTERS:] for part in (done.stdout, done.stderr))
    return {"code": done.returncode, "seconds": seconds, "out": out, "err": err}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    answers.write(json.dumps({"ready": os.getpid()}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(perform(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
