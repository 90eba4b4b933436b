"""What shells and small tools do with descriptors, with the library and without: the same words, the same files."""

import shlex

from tests.interpose.conftest import Forwarding

IDIOMS = {
    "redirection": ("echo one > out; cat out", {"out"}),
    "append": ("echo one > out; echo two >> out; cat out", {"out"}),
    "group": ("{ echo one; sh -c 'echo two'; echo three; } > out; cat out", {"out"}),
    "both streams": ("{ echo one; echo two >&2; } > out 2>&1; cat out", {"out"}),
    "read and write": ("printf abcdef > f; exec 3<>f; dd bs=2 count=1 <&3 2>/dev/null; printf XY >&3; exec 3>&-; cat f", {"f"}),
    "replaced stdout": ("exec 5>&1 > out; echo hidden; exec >&5 5>&-; cat out", {"out"}),
    "reading what is large": ("sum < large; wc -c < large; tail -c 3 large | od -c", {"large"}),
    "lock around a command": ("( flock 9; echo in >> log ) 9>lock; ( flock -n 9 && echo free ) 9>lock; cat log", {"lock", "log"}),
    "a file shown to itself": ("echo x > a; cat a >> a 2>&1 || echo refused; cat a", {"a"}),
    "grep sees its own output": ("echo x > a; grep -r x . > out 2>&1; cat out", {"out"}),
    "sort onto itself": ("printf 'c\\na\\nb\\n' > f; sort -o f f; cat f", {"f"}),
    "tee": ("echo x | tee a b; cat a b; echo y | tee -a a > /dev/null; cat a", {"a", "b"}),
    "names of descriptors": ("exec 7> f; readlink /proc/self/fd/7 | sed 's,.*/,,'; echo x > /dev/fd/7; exec 7>&-; cat f", {"f"}),
    "standard names": ("sh -c 'echo one > /dev/stdout; echo two > /dev/stderr' > out 2> err; cat out err", {"out", "err"}),
    "truncated while open": ("exec 3> f; echo long line >&3; : > f; echo x >&3; exec 3>&-; od -c f", {"f"}),
    "attributes": (
        "umask 027; echo x > f; stat -c '%a %h %s %F' f; exec 4>>f; chmod 640 f; touch -d @5 f; stat -c '%a %Y' f; "
        "ln f g; stat -c %h - <&4; rm f; stat -c %h - <&4",
        {"f"},
    ),
    "copies": (
        "cp large a; cp --reflink=auto a b; cp -a b c; cmp a c; cp small s; dd if=a of=d bs=64k conv=fsync 2>/dev/null; "
        "cmp a d; cp --sparse=always a e; cmp a e",
        {"a", "b", "c", "d", "e", "large"},
    ),
    "tar": (
        "mkdir t; cp large t/a; cp small t/b; ln t/a t/c; tar cf x.tar --mtime=@0 t; mkdir u; tar xf x.tar -C u; "
        "diff -r t u/t; stat -c '%a %s %Y' u/t/b; tar tf x.tar",
        {"x.tar", "u/t/a", "u/t/b"},
    ),
    "sparse": (
        "truncate -s 1M f; printf x | dd of=f bs=1 seek=70000 conv=notrunc 2>/dev/null; stat -c '%s' f; "
        "fallocate -l 2M f; stat -c %s f; cp --sparse=auto f g; cmp f g",
        {"f", "g"},
    ),
    "in place": ("echo abc > f; sed -i s/b/X/ f; cat f; perl -i -pe 's/X/YY/' f; cat f", {"f"}),
}  # fmt: skip


def test_idioms_do_the_same_with_the_library(forwarding: Forwarding) -> None:
    parts = []
    for number, (script, _) in enumerate(IDIOMS.values()):
        inner = f"cp ../small ../large .; ({script}) 2>&1"
        parts.append(f"mkdir d{number}; (cd d{number}; sh -uc {shlex.quote(inner)}) > said{number}")
    forwarding.run("with", "sh", "-c", "\n".join(parts))
    forwarding.run("without", "sh", "-c", "\n".join(parts), plain=True)
    with_it, without = forwarding.tree("with"), forwarding.tree("without")
    for number, (name, (_, expected)) in enumerate(IDIOMS.items()):
        assert with_it[f"said{number}"].decode() == without[f"said{number}"].decode(), name
        assert {f"d{number}/{path}" for path in expected} <= forwarding.forwarded(), name
    assert with_it == without
