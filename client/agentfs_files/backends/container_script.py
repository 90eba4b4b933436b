"""The script that a shell in a container runs to answer requests about files. It uses POSIX sh, and stat, find, dd, readlink,
tar, xargs as coreutils, findutils and busybox have them. It must never read more than it was sent, nor leave a temporary file
when it ends.

A request is one line, a command of those below; data follow where the command says how many bytes. The answer is the output of
the command, then the end mark and a status: ``0``, the name of an errno, ``ESCAPE``, or ``FAILED`` (standard error says why).

Paths come as a directory and a name in it. ``enter`` goes to the directory and checks where it is. From then on the shell holds
the directory, so a process that replaces a directory by a symlink meanwhile has no effect. Only a symlink at the end of a path is
resolved by its name.
"""

# File descriptors: 3 requests, 4 the file being read, 5 the temporary file being written.
# Records of files end with //: no path has two slashes, while a name may hold a newline.
SCRIPT = r"""
LC_ALL=C
export LC_ALL
unset CDPATH
root=$1 temporary=
nl='
'
IFS= read -r end
exec 3<&0 </dev/null
trap 'exit 1' HUP INT PIPE TERM
trap '[ -z "$temporary" ] || rm -f -- "$temporary"' EXIT

fail() { status=$1; return 1; }

blame() { # why directory $1 cannot be entered
    rest=$1/ head=$root
    while [ -n "$rest" ]; do
        head=$head/${rest%%/*} rest=${rest#*/}
        [ -e "$head" ] || fail ENOENT || return 1
        [ -d "$head" ] || fail ENOTDIR || return 1
        inside=$(cd -P -- "$head" 2>/dev/null && printf '%s/x' "$PWD") || fail EACCES || return 1
        case $inside in "$root"/*) ;; *) fail ESCAPE; return 1 ;; esac
    done
    fail ENOENT
}

enter() {
    cd -P -- "$root/$1" 2>/dev/null || { blame "$1"; return 1; }
    case $PWD/ in "$root"/*) ;; *) fail ESCAPE; return 1 ;; esac
}

locate() { # $2 in directory $1: where that is, symlinks resolved, is then here, and called $name
    enter "$1" || return 1
    name=$2
    [ -L "./$name" ] || return 0
    real=$(readlink -f -- "./$name" && echo x) || { fail ENOENT; return 1; }
    real=${real%"${nl}x"}
    case $real in "$root" | "$root"/*) ;; *) fail ESCAPE; return 1 ;; esac
    if [ -d "$real" ]; then
        name=
        cd -P -- "$real" || { fail EACCES; return 1; }
    else
        name=${real##*/}
        cd -P -- "${real%/*}/" || { fail EACCES; return 1; }
    fi
    case $PWD/ in "$root"/*) ;; *) fail ESCAPE; return 1 ;; esac
}

about() { # mode in hexadecimal, bytes, seconds: of what $2 in directory $1 leads to
    locate "$1" "$2" || return 1
    [ -e "./$name" ] || { fail ENOENT; return 1; }
    stat -L -c '%f %s %Y' -- "./$name"
}

about_name() { # of a symlink itself
    enter "$1" || return 1
    [ -e "./$2" ] || [ -L "./$2" ] || { fail ENOENT; return 1; }
    stat -c '%f %s %Y' -- "./$2"
}

follow='
root=$1; shift
for path; do
    real=$(readlink -f -- "$path" 2>/dev/null; echo x)
    real=${real%"
x"}
    about="0 0 0"
    case $real in "$root" | "$root"/*) about=$(stat -c "%f %s %Y" -- "$real" 2>/dev/null) || about="0 0 0" ;; esac
    printf "@%s %s//\n" "$about" "$path"
done'

describe() { # the directory itself is among them; busybox runs no `-exec +` in parentheses
    find . "$@" -type l -exec sh -c "$follow" sh "$root" {} + -o -exec stat -c '%f %s %Y %n//' {} + 2>/dev/null
}

entries() {
    enter "$1" || return 1
    [ -r . ] || { fail EACCES; return 1; }
    describe -maxdepth 1 || true
}

walk() { # $2 names deep, or to any depth
    enter "$1" || return 1
    if [ -n "$2" ]; then describe -maxdepth "$2"; else describe; fi || true
}

contents() { # tar archives, one upon the other, of the files whose names from directory $1 follow, $2 bytes, each ended by NUL
    enter "$1" || { dd bs="$2" count=1 iflag=fullblock <&3 >/dev/null 2>&1; return 1; }
    dd bs="$2" count=1 iflag=fullblock <&3 2>/dev/null | xargs -0 tar -cf - -- 2>/dev/null || true
}

hold() { # prints how many bytes the file has, then at most $3 chunks of them; what has more stays open
    locate "$1" "$2" || return 1
    [ -e "./$name" ] || { fail ENOENT; return 1; }
    [ ! -d "./$name" ] || { fail EISDIR; return 1; }
    [ -f "./$name" ] || { fail EINVAL; return 1; }
    command exec 4<"./$name" || return 1
    size=$(stat -L -c %s /proc/self/fd/4) || return 1
    printf '%s\n' "$size"
    take "$3" || return 1
    [ "$size" -gt $(($3 * 65536)) ] || exec 4<&-
}

take() { dd bs=65536 count="$1" <&4 2>/dev/null; }

rewind() { # to chunk $1
    command exec 4</proc/self/fd/4 && dd bs=65536 skip="$1" count=0 <&4 2>/dev/null
}

release() { exec 4<&-; }

begin() { # what is to become $2 in directory $1; $3 is the temporary file's name, $4 the mode
    locate "$1" "$2" || return 1
    if [ -e "./$name" ]; then
        [ ! -d "./$name" ] || { fail EISDIR; return 1; }
        [ -f "./$name" ] || { fail EINVAL; return 1; }
        [ "$4" != create ] || { fail EEXIST; return 1; }
    fi
    command exec 5>"./$3" || { fail FAILED; return 1; }
    temporary=./$3
}

more() { # $1 bytes
    if [ "$1" = 0 ]; then
        [ "$status" = 0 ]
    elif [ "$status" = 0 ]; then
        dd bs="$1" count=1 iflag=fullblock <&3 >&5
    else
        dd bs="$1" count=1 iflag=fullblock <&3 >/dev/null 2>&1
        return 1
    fi
}

finish() {
    exec 5>&-
    case $1 in
        append) append ;;
        create) create ;;
        *) if [ -e "./$name" ]; then replace; else mv -f -- "$temporary" "./$name"; fi ;;
    esac || return 1
    temporary=
}

append() {
    if [ -e "./$name" ]; then
        cat -- "$temporary" >>"./$name" && rm -f -- "$temporary"
    else
        mv -f -- "$temporary" "./$name"
    fi
}

create() {
    (set -C && : >"./$name") 2>/dev/null || { fail EEXIST; return 1; }
    mv -f -- "$temporary" "./$name"
}

replace() { # with owner and mode as they were; what has several names keeps them all
    set -- $(stat -c '%h %u:%g %a' -- "./$name")
    if [ "$1" = 1 ]; then
        chown "$2" "$temporary" 2>/dev/null || true
        chmod "$3" "$temporary" && mv -f -- "$temporary" "./$name"
    else
        cat -- "$temporary" >"./$name" && rm -f -- "$temporary"
    fi
}

complete() { # $1 last bytes, and $2 the mode: then it is there
    more "$1" && finish "$2" || { abandon; return 1; }
}

abandon() {
    exec 5>&-
    [ -z "$temporary" ] || rm -f -- "$temporary"
    temporary=
}

make() {
    enter "$1" || return 1
    if [ -e "./$2" ] || [ -L "./$2" ]; then fail EEXIST; return 1; fi
    mkdir -- "./$2"
}

remove() { # $3: -f for a file, -rf for a directory with all that is in it
    enter "$1" || return 1
    [ -e "./$2" ] || [ -L "./$2" ] || { fail ENOENT; return 1; }
    [ -L "./$2" ] || [ ! -d "./$2" ] || [ "$3" = -rf ] || { fail EISDIR; return 1; }
    rm "$3" -- "./$2"
}

empty() {
    enter "" && find . ! -name . -prune -exec rm -rf -- {} +
}

unpack() { # into the directory $1, which is made beneath the root: a tar archive in pieces, each a line with its bytes; 0 ends
    { enter "" && mkdir -- "./$1"; } || { pieces >/dev/null; return 1; }
    pieces | { tar -xf - -C "./$1"; result=$?; cat >/dev/null; exit "$result"; } || { rm -rf -- "./$1"; return 1; }
}

pieces() {
    while IFS= read -r bytes <&3 && [ "$bytes" != 0 ]; do
        dd bs="$bytes" count=1 iflag=fullblock <&3 2>/dev/null || break
    done
}

exchange() { # what is beneath the root goes, and what is in $1/$2 comes; $3 is where the old is meanwhile
    enter "" && mkdir -- "./$3" || return 1
    if move . "./$3" "$1" "$3" && move "./$1/$2" . "$1" "$3"; then
        rm -rf -- "./$1" "./$3"
    else
        find . ! -name . -prune ! -name "$1" ! -name "$3" -exec rm -rf -- {} +
        move "./$3" . "$1" "$3" && rm -rf -- "./$1" "./$3"
        return 1
    fi
}

move() { # all that is in directory $1 to directory $2, but for the names $3 and $4
    find "$1/." ! -name . -prune ! -name "$3" ! -name "$4" -exec sh -c 'to=$1; shift; mv -- "$@" "$to/"' sh "$2" {} +
}

status=0
cd -P -- "$root/" && root=${PWD%/}
while IFS= read -r line <&3; do
    status=0
    eval "$line" || [ "$status" != 0 ] || status=FAILED
    printf '%s%s\n' "$end" "$status"
    printf '%s' "$end" >&2
done
"""
