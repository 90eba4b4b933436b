"""Three processes write to one database at once, one of them without the preloaded library; the argument says how it journals."""

import os
import sqlite3
import subprocess
import sys

WRITER = """
import sqlite3, sys
database = sqlite3.connect("db", timeout=60)
for number in range(25):
    database.execute("insert into t values (?, ?)", (sys.argv[1], number))
    database.commit()
"""

database = sqlite3.connect("db", timeout=60)
database.execute(f"pragma journal_mode={sys.argv[1]}")
database.execute("create table t (who, number)")
database.commit()
bare = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
who_has = {"a": dict(os.environ), "b": bare, "c": dict(os.environ)}
writers = [subprocess.Popen([sys.executable, "-c", WRITER, who], env=env) for who, env in who_has.items()]
print([process.wait() for process in writers])
print(database.execute("select who, count(distinct number) from t group by who order by who").fetchall())
print(database.execute("pragma integrity_check").fetchall())
