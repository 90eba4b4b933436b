"""The database: versions, what it refuses, and that a transaction is all or nothing in rows and in memory."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentfsd.domain_errors import Refusal
from agentfsd.metadata import layer_rows, note_rows, row_store, schema
from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import NoteRow


def refusal(path: Path, lower: str = "/lower") -> Refusal:
    with pytest.raises(Refusal) as caught:
        Store.open(str(path), lower)
    assert caught.value.message
    assert caught.value.hint
    return caught.value


def test_state_of_another_lower_is_refused(tmp_path: Path) -> None:
    Store.open(str(tmp_path / "meta.db"), "/lower").close()
    found = refusal(tmp_path / "meta.db", "/other")
    assert found.code == "other-lower"
    assert "/lower" in found.message
    assert "/other" in found.message
    Store.open(str(tmp_path / "meta.db"), "/lower").close()


def test_state_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    newer = Store.open(str(tmp_path / "meta.db"), "/lower")
    newer.db.execute("PRAGMA user_version = 99")
    newer.close()
    before = (tmp_path / "meta.db").read_bytes()
    assert refusal(tmp_path / "meta.db").code == "newer-state"
    assert (tmp_path / "meta.db").read_bytes() == before


def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.db").write_bytes(b"not a database at all, but long enough to look like a header" * 100)
    before = (tmp_path / "meta.db").read_bytes()
    assert refusal(tmp_path / "meta.db").code == "state-corrupt"
    assert (tmp_path / "meta.db").read_bytes() == before


def test_database_held_by_another_process_is_refused(tmp_path: Path) -> None:
    first = Store.open(str(tmp_path / "meta.db"), "/lower")
    assert refusal(tmp_path / "meta.db").code == "state-in-use"
    first.close()


def test_an_older_version_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(str(tmp_path / "meta.db"), "/lower").close()
    current = row_store.SCHEMA_VERSION
    monkeypatch.setattr(row_store, "SCHEMA_VERSION", current + 2)
    monkeypatch.setitem(schema.MIGRATIONS, current, "CREATE TABLE added (a INTEGER); -- a comment\nINSERT INTO added VALUES (1);")
    monkeypatch.setitem(schema.MIGRATIONS, current + 1, "UPDATE added SET a = a + 1;")
    opened = Store.open(str(tmp_path / "meta.db"), "/lower")
    assert opened.db.execute("SELECT a FROM added").fetchall() == [(2,)]
    assert opened.db.execute("PRAGMA user_version").fetchone() == (current + 2,)
    opened.close()


def test_a_database_of_the_first_version_gets_what_came_since(tmp_path: Path) -> None:
    first = Store.open(str(tmp_path / "meta.db"), "/lower")
    for statement in (
        "DROP TABLE rule", "DROP TABLE note", "DROP TABLE told",
        "DROP TABLE seal", "DROP TABLE merged", "DROP TABLE deed", "DROP TABLE origin",
        "ALTER TABLE snapshot DROP COLUMN kind", "ALTER TABLE snapshot DROP COLUMN author",
        "ALTER TABLE branch DROP COLUMN base_id", "ALTER TABLE step DROP COLUMN home",
        "ALTER TABLE layer DROP COLUMN base", "PRAGMA user_version = 1",
    ):  # fmt: skip
        first.db.execute(statement)
    first.close()
    Store.open(str(tmp_path / "new.db"), "/lower").close()
    tables = "SELECT m.name, c.name, c.type, c.pk FROM sqlite_master AS m, pragma_table_info(m.name) AS c ORDER BY 1, 2"
    shapes = []
    for name in ("meta.db", "new.db"):
        opened = Store.open(str(tmp_path / name), "/lower")
        shapes.append(opened.db.execute(tables).fetchall())
        opened.close()
    assert shapes[0] == shapes[1]


def test_a_failed_migration_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(str(tmp_path / "meta.db"), "/lower").close()
    monkeypatch.setattr(row_store, "SCHEMA_VERSION", row_store.SCHEMA_VERSION + 1)
    script = "CREATE TABLE added (a INTEGER);\nINSERT INTO missing VALUES (1);"
    monkeypatch.setitem(schema.MIGRATIONS, schema.SCHEMA_VERSION, script)
    with pytest.raises(OSError, match="metadata database"):
        Store.open(str(tmp_path / "meta.db"), "/lower")
    monkeypatch.undo()
    opened = Store.open(str(tmp_path / "meta.db"), "/lower")
    assert opened.db.execute("SELECT name FROM sqlite_master WHERE name = 'added'").fetchall() == []
    opened.close()


def test_memory_follows_the_transaction() -> None:
    opened = Store.open(":memory:", "/lower")
    thing, table = SimpleNamespace(a=1), {"kept": 1, "gone": 2}
    with pytest.raises(ZeroDivisionError), opened.transaction() as tx:
        tx.set(thing, a=2)
        tx.set(thing, a=3)
        tx.put(table, "kept", 5)
        tx.put(table, "gone", None)
        tx.put(table, "new", 6)
        raise ZeroDivisionError
    assert (thing.a, table) == (1, {"kept": 1, "gone": 2})
    with opened.transaction() as tx:
        tx.set(thing, a=2)
        tx.put(table, "gone", None)
    assert (thing.a, table) == (2, {"kept": 1})
    opened.close()


def test_numbers_stay_unique_across_rollbacks_and_restarts(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        opened = Store.open(str(tmp_path / "meta.db"), "/lower")
        seen += [opened.next_id("inode") for _ in range(1500)]
        with pytest.raises(ZeroDivisionError), opened.transaction():
            opened.next_id("inode")  # rolled back: may be given again, for nothing was stored under it
            raise ZeroDivisionError
        seen.append(opened.next_id("inode"))
        opened.close()
    assert len(set(seen)) == len(seen)
    assert min(seen) > 1  # 1 is the root


def test_every_column_is_explained() -> None:
    """The DDL is the authority: a column without a comment of its own or its table's is a gap."""
    tables = schema.DDL.split("CREATE TABLE ")[1:]
    assert len(tables) >= 8
    for number, table in enumerate(tables):
        before = schema.DDL.split("CREATE TABLE ")[number]
        assert "--" in before.rpartition(";")[2] or "--" in table, table.split()[0]


def test_a_branch_of_an_older_version_is_told_which_branch_it_was_made_from(tmp_path: Path) -> None:
    first = Store.open(str(tmp_path / "meta.db"), "/lower")
    first.db.execute("ALTER TABLE branch DROP COLUMN base_id")
    first.db.execute("INSERT INTO branch VALUES ('A', 'main', 1, '', 0, 0), ('B', 'child', 2, 'main', 1, 0)")
    first.db.execute("DROP TABLE seal")
    first.db.execute("DROP TABLE step")
    first.db.execute("ALTER TABLE layer DROP COLUMN base")
    first.db.execute("PRAGMA user_version = 2")
    first.close()
    opened = Store.open(str(tmp_path / "meta.db"), "/lower")
    assert opened.db.execute("SELECT base_id FROM branch ORDER BY id").fetchall() == [("",), ("A",)]
    opened.close()


def test_a_session_of_version_8_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Store.open(str(tmp_path / "meta.db"), "/lower")
    first.db.execute("ALTER TABLE step DROP COLUMN home")
    first.db.execute("INSERT INTO step VALUES (1, 's', 'codex', 'A', 1, 0, '', 'p', 0, 'S', 0, 0)")
    first.db.execute("ALTER TABLE layer DROP COLUMN base")
    first.db.execute("PRAGMA user_version = 8")
    first.close()
    opened = Store.open(str(tmp_path / "meta.db"), "/lower")
    assert opened.db.execute("SELECT home FROM step").fetchall() == [("A",)]
    opened.close()


def test_a_state_of_version_10_takes_notes(tmp_path: Path) -> None:
    first = Store.open(str(tmp_path / "meta.db"), "/lower")
    first.db.execute("DROP TABLE note")
    first.db.execute("DROP TABLE told")
    first.db.execute("ALTER TABLE layer DROP COLUMN base")
    first.db.execute("PRAGMA user_version = 10")
    first.close()
    Store.open(str(tmp_path / "new.db"), "/lower").close()
    made = "SELECT m.name, i.name FROM sqlite_master AS m, pragma_table_info(m.name) AS i WHERE m.tbl_name IN ('note', 'told')"
    shapes = []
    for name in ("meta.db", "new.db"):
        opened = Store.open(str(tmp_path / name), "/lower")
        shapes.append(sorted(opened.db.execute(made).fetchall()))
        assert opened.db.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)
        assert ("news",) in opened.db.execute("SELECT name FROM pragma_index_info('note_branch')").fetchall()
        row = NoteRow(1, "A", 0, 0, 1, 4, 0, 5, "me", "", b"path", 7, 3, b"lines", "text")
        with opened.transaction():
            assert note_rows.next_number(opened) == 1
            note_rows.put(opened, row)
        assert note_rows.read(opened, "A") == [row]
        assert note_rows.untold_count(opened, "A", "session") == 1
        opened.close()
    assert shapes[0] == shapes[1]


def test_the_layers_of_version_11_show_the_real_directory(tmp_path: Path) -> None:
    first = Store.open(str(tmp_path / "meta.db"), "/lower")
    first.db.execute("INSERT INTO layer (id, parent) VALUES (7, 0)")
    first.db.execute("ALTER TABLE layer DROP COLUMN base")
    first.db.execute("PRAGMA user_version = 11")
    first.close()
    opened = Store.open(str(tmp_path / "meta.db"), "/lower")
    assert layer_rows.bases(opened) == {}
    with opened.transaction():
        made = layer_rows.new_layer(opened, 7, "B")
    assert layer_rows.bases(opened) == {made: "B"}
    opened.close()


def test_the_schema_asks_for_no_newer_sqlite_than_people_have() -> None:
    """Up to 3.38 HAVING needs a GROUP BY: https://www.sqlite.org/changes.html, 3.39.0. The others are newer than 3.31, too."""
    newer = r"\bHAVING\b|\bRETURNING\b|\bSTRICT\b|\bMATERIALIZED\b|\bDROP COLUMN\b|\bIIF\(|->|\bsqlite_schema\b|\bFULL JOIN\b"
    for script in (schema.DDL, *schema.MIGRATIONS.values()):
        said = "".join(line.split("--")[0] for line in script.splitlines())
        assert re.findall(newer, said, re.IGNORECASE) == []


@pytest.mark.parametrize(("names", "noted"), [((), []), (("export-1", "export-2"), [("1 2",)])])
def test_exports_of_version_4_are_noted_where_there_are_any(
    tmp_path: Path, names: tuple[str, ...], noted: list[tuple[str]]
) -> None:
    first = Store.open(str(tmp_path / "meta.db"), "/lower")
    for number, name in enumerate(names, 1):
        values = (str(number), name, "temporary: of a running export")
        first.db.execute("INSERT INTO snapshot VALUES (?, ?, 'main', 'A', 0, '', 0, ?, 0, NULL, NULL, '', '')", values)
    first.db.execute("DROP TABLE step")
    first.db.execute("ALTER TABLE layer DROP COLUMN base")
    first.db.execute("PRAGMA user_version = 4")
    first.close()
    opened = Store.open(str(tmp_path / "meta.db"), "/lower")
    assert opened.db.execute("SELECT value FROM fact WHERE key = 'temporary'").fetchall() == noted
    opened.close()


def test_another_program_cannot_read_a_database_in_use_and_leaves_its_log(tmp_path: Path) -> None:
    """SQLite's own locks are gone as soon as we close a descriptor of the file; a reader that is alone removes the log."""
    path = tmp_path / "meta.db"
    first = Store.open(str(path), "/lower")
    path.read_bytes()
    reader = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('select count(*) from inode')"
    for _ in range(2):
        with first.transaction():
            first.put_value("key", "value")
        first.commit()
        done = subprocess.run([sys.executable, "-c", reader], capture_output=True, text=True, check=False)
        assert "database is locked" in done.stderr
    first.close()
    assert subprocess.run([sys.executable, "-c", reader], check=False).returncode == 0
    again = Store.open(str(path), "/lower")
    assert again.value("key") == "value"
    assert not again.findings.damage
    again.close()
