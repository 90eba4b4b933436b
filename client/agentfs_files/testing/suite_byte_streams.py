"""Tests of open_read() and open_write(): streams of bytes."""

from typing import Any, cast

import pytest

from agentfs_files.filesystem.filesystem_protocol import ByteReader, ByteWriter, Filesystem
from agentfs_files.testing.suite_settings import Settings, contents


class ByteReaderTests(Settings):
    def test_reader_knows_its_file(self, fs: Filesystem) -> None:
        fs.write("dir/file", "12345")
        with fs.open_read("./dir/file") as reader:
            assert isinstance(reader, ByteReader)
            assert (reader.path, reader.size, reader.position, reader.closed) == ("dir/file", 5, 0, False)
        assert reader.closed

    def test_reads_go_on_where_the_last_ended(self, fs: Filesystem) -> None:
        fs.write("file", "0123456789")
        with fs.open_read("file") as reader:
            assert (reader.read(3), reader.position) == (b"012", 3)
            assert (reader.read(0), reader.position) == (b"", 3)
            assert (reader.read(4), reader.position) == (b"3456", 7)
            assert (reader.read(), reader.position) == (b"789", 10)
            assert (reader.read(5), reader.read(), reader.position) == (b"", b"", 10)

    def test_seek_from_start_here_and_end(self, fs: Filesystem) -> None:
        fs.write("file", "0123456789")
        with fs.open_read("file") as reader:
            assert (reader.seek(4), reader.position, reader.read(2)) == (4, 4, b"45")
            assert (reader.seek(-3, 1), reader.read(1)) == (3, b"3")
            assert (reader.seek(-2, 2), reader.read()) == (8, b"89")
            assert (reader.seek(0), reader.read(1)) == (0, b"0")

    def test_seek_behind_the_end_reads_nothing(self, fs: Filesystem) -> None:
        fs.write("file", "0123456789")
        with fs.open_read("file") as reader:
            assert (reader.seek(50), reader.read(5), reader.read()) == (50, b"", b"")

    def test_seek_to_where_nothing_can_be(self, fs: Filesystem) -> None:
        fs.write("file", "0123456789")
        with fs.open_read("file") as reader:
            reader.seek(2)
            for offset, whence in ((-1, 0), (-3, 1), (-11, 2), (0, 3)):
                with pytest.raises((ValueError, OSError)):
                    reader.seek(offset, whence)
            assert (reader.position, reader.read(1)) == (2, b"2")

    def test_iteration_gives_chunks_of_the_default_size(self, fs: Filesystem) -> None:
        content = bytes(range(256)) * 600
        fs.write_bytes("file", content)
        size = self.limits.chunk_bytes
        with fs.open_read("file") as reader:
            chunks = list(reader)
        assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(content) // size)
        assert b"".join(chunks) == content

    def test_chunks_have_the_size_asked_for(self, fs: Filesystem) -> None:
        fs.write("file", "0123456789")
        with fs.open_read("file") as reader:
            reader.seek(1)
            assert list(reader.chunks(4)) == [b"1234", b"5678", b"9"]
            assert list(reader.chunks(size=4)) == []
            with pytest.raises(ValueError):
                reader.chunks(0)

    def test_empty_file_has_no_chunks(self, fs: Filesystem) -> None:
        fs.write("file", "")
        with fs.open_read("file") as reader:
            assert (reader.size, list(reader), reader.read()) == (0, [], b"")

    def test_two_readers_do_not_meet(self, fs: Filesystem) -> None:
        fs.write("file", "0123456789")
        with fs.open_read("file") as one, fs.open_read("file") as two:
            one.read(5)
            assert (two.read(2), one.read(2)) == (b"01", b"56")

    def test_closed_reader_raises(self, fs: Filesystem) -> None:
        fs.write("file", "x")
        reader = fs.open_read("file")
        chunks = iter(reader)
        reader.close()
        reader.close()
        attempts = (reader.read, lambda: reader.read(1), lambda: reader.seek(0), lambda: reader.chunks(1), lambda: iter(reader))
        for attempt in (*attempts, lambda: next(chunks), lambda: reader.position, reader.__enter__):
            with pytest.raises(ValueError):
                attempt()

    def test_reader_closes_when_its_block_fails(self, fs: Filesystem) -> None:
        fs.write("file", "x")
        with pytest.raises(ZeroDivisionError), fs.open_read("file") as reader:
            raise ZeroDivisionError
        assert reader.closed

    def test_what_cannot_be_opened(self, fs: Filesystem) -> None:
        fs.write("dir/file", "")
        with pytest.raises(FileNotFoundError):
            fs.open_read("missing")
        with pytest.raises(IsADirectoryError):
            fs.open_read("dir")
        with pytest.raises(NotADirectoryError):
            fs.open_read("dir/file/inner")


class ByteWriterTests(Settings):
    def test_writer_counts(self, fs: Filesystem) -> None:
        with fs.open_write("dir/./file") as writer:
            assert isinstance(writer, ByteWriter)
            assert (writer.path, writer.bytes_written, writer.closed) == ("dir/file", 0, False)
            assert (writer.write(b"abc"), writer.write(b""), writer.bytes_written) == (3, 0, 3)
            assert (writer.write_all([b"de", b"f"]), writer.bytes_written) == (3, 6)
        assert (writer.closed, writer.bytes_written) == (True, 6)
        assert fs.read_bytes("dir/file").content == b"abcdef"

    def test_reader_can_be_written(self, fs: Filesystem) -> None:
        content = bytes(range(256)) * 600
        fs.write_bytes("source", content)
        with fs.open_read("source") as source, fs.open_write("target") as target:
            assert target.write_all(source) == len(content)
        assert fs.read_bytes("target").content == content

    def test_file_can_be_written_from_itself(self, fs: Filesystem) -> None:
        fs.write("file", "abc")
        with fs.open_read("file") as source, fs.open_write("file") as target:
            target.write(b"-")
            target.write_all(source)
        assert fs.read("file").content == "-abc"

    def test_writing_takes_effect_at_the_end(self, fs: Filesystem) -> None:
        fs.write("file", "old")
        with fs.open_write("file") as over, fs.open_write("new", mode="create") as new:
            over.write(b"new")
            new.write(b"new")
            assert contents(fs) == {"file": "old"}
        assert contents(fs) == {"file": "new", "new": "new"}

    def test_writing_nothing_makes_an_empty_file(self, fs: Filesystem) -> None:
        fs.write("file", "old")
        for path in ("file", "new"):
            fs.open_write(path).close()
        assert contents(fs) == {"file": "", "new": ""}

    def test_failed_block_leaves_things_as_they_were(self, fs: Filesystem) -> None:
        fs.write("dir/file", "old")
        for path, mode in (("dir/file", "overwrite"), ("dir/file", "append"), ("dir/new", "create"), ("dir/new", "append")):
            with pytest.raises(ZeroDivisionError), fs.open_write(path, mode=cast(Any, mode)) as writer:
                writer.write(b"half of it")
                raise ZeroDivisionError
            assert writer.closed
        assert contents(fs) == {"dir/file": "old"}
        assert [entry.name for entry in fs.list("dir")] == ["file"]

    def test_failed_source_leaves_things_as_they_were(self, fs: Filesystem) -> None:
        fs.write("file", "old")
        with pytest.raises(ZeroDivisionError), fs.open_write("file") as writer:
            writer.write_all(bytes([1 // number]) for number in (1, 0))
        assert contents(fs) == {"file": "old"}

    def test_modes_of_writers(self, fs: Filesystem) -> None:
        with fs.open_write("file", mode="create") as writer:
            writer.write(b"a")
        with fs.open_write("file", mode="append") as writer:
            writer.write(b"b")
            writer.write(b"c")
        assert (writer.bytes_written, fs.read("file").content) == (2, "abc")
        with pytest.raises(FileExistsError):
            fs.open_write("file", mode="create")
        with pytest.raises(ValueError):
            fs.open_write("file", mode=cast(Any, "w"))

    def test_closed_writer_raises(self, fs: Filesystem) -> None:
        writer = fs.open_write("file")
        writer.write(b"x")
        writer.close()
        writer.close()
        for attempt in (
            lambda: writer.write(b"y"),
            lambda: writer.write_all([b"y"]),
            lambda: writer.write_all([]),
            writer.__enter__,
        ):
            with pytest.raises(ValueError):
                attempt()
        assert fs.read("file").content == "x"

    def test_writers_do_not_seek(self, fs: Filesystem) -> None:
        with fs.open_write("file") as writer, pytest.raises(OSError):
            cast(Any, writer).seek(0)

    def test_text_is_no_bytes(self, fs: Filesystem) -> None:
        fs.write("file", "old")
        with pytest.raises(TypeError), fs.open_write("file") as writer:
            writer.write(cast(Any, "text"))
        assert fs.read("file").content == "old"

    def test_what_cannot_be_written(self, fs: Filesystem) -> None:
        fs.write("dir/file", "")
        with pytest.raises(IsADirectoryError):
            fs.open_write("dir")
        with pytest.raises(NotADirectoryError):
            fs.open_write("dir/file/inner")
        with pytest.raises(FileNotFoundError):
            fs.open_write("none/file", create_parents=False)
        assert [entry.name for entry in fs.list()] == ["dir"]
