#!/bin/bash
# Real programs on plain ext2 and on FS2 side by side, through the kernel: a volume is filled, its image copied, and the same
# program runs cold on both in turns, on a modelled drive in real time. While it runs on plain ext2 FS2 copies what it read before.
# Needs root, FUSE and loop devices; says which Debian packages are missing and installs none outside its own volumes.
usage() { cat <<'U'
usage: benches/programs.sh [OPTIONS] cvs|start|server ...
  cvs     `cvs update` of a working copy whose repository lies on the same volume; 40 files are committed before each run
  start   cold starts out of a Debian tree that was installed and upgraded on the volume: Python, LibreOffice, Chromium
  server  pgbench -S on PostgreSQL while nginx serves static files of the same volume; two more runs draw anew
options:
  --runs N       runs of each policy [5]
  --rest S       seconds FS2 has for its copies between two runs, at least [60]
  --size SIZE    of the volume [32G]
  --drive D      modelled drive, as for `fs2 mount` [wd800-repaired]
  --options O    more options for FS2's mount, such as "--space 10%"
  --dir DIR      work here [a new directory in /tmp]; it needs some 20 GB
  --image FILE   start: take this filled image (it is copied); with --only-fill: leave it here
  --only-fill    fill the volume and stop
  --sources S    cvs: a tar or a directory [/usr/src/linux-source-6.1.tar.xz]
  --files N      cvs: of so many files [9000]
  --mirror URL   start: of Debian [the first of this machine's apt sources]
  --memory M     server: page cache and memory of both servers, in MiB [96]
FS2=path/to/fs2 and MKFS2=path/to/mkfs2 name the programs (default: target/release).
U
}
set -euo pipefail
runs=5 rest=60 size=32G drive=wd800-repaired more="" base="" image="" only_fill="" files=9000 memory=96
sources=/usr/src/linux-source-6.1.tar.xz mirror="" work=()
while [ $# -gt 0 ]; do
    case $1 in
        -h|--help) usage; exit 0;;
        --only-fill) only_fill=1; shift; continue;;
        --runs) runs=${2:?};; --rest) rest=${2:?};; --size) size=${2:?};; --drive) drive=${2:?};; --options) more=${2:?};;
        --dir) base=${2:?};; --image) image=${2:?};; --sources) sources=${2:?};; --files) files=${2:?};;
        --mirror) mirror=${2:?};; --memory) memory=${2:?};;
        cvs|start|server) work+=("$1"); shift; continue;;
        *) usage >&2; exit 2;;
    esac
    shift 2
done
[ ${#work[@]} -gt 0 ] || { usage >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "skipped: needs root" >&2; exit 77; }
here=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}
fs2=${FS2:-$target/release/fs2} mkfs2=${MKFS2:-$target/release/mkfs2}
[ -x "$fs2" ] && [ -x "$mkfs2" ] || { echo "build first: cargo build --release -p fs2-tools" >&2; exit 1; }
pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)
missing=""
need() { command -v "$1" > /dev/null || missing+=" $2"; }
need mke2fs e2fsprogs; need python3 python3
for w in "${work[@]}"; do
    case $w in
        cvs) need cvs cvs; [ -e "$sources" ] || missing+=" linux-source-6.1 (or --sources)";;
        start)
            [ -f "$image" ] || need debootstrap debootstrap
            [ -n "$mirror" ] || mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null | grep -E '^(deb |URIs:)' | grep -oE 'https?://[^ ]+' | grep -v security | head -1 || true)
            [ -f "$image" ] || [ -n "$mirror" ] || { echo "no apt source names a mirror: --mirror URL" >&2; exit 1; };;
        server) need nginx nginx-light; [ -x "$pg/pgbench" ] || missing+=" postgresql";;
    esac
done
[ -z "$missing" ] || { echo "skipped: apt-get install$missing" >&2; exit 77; }
exec 8< "$0"
flock -n 8 || { echo "another one is running; they would disturb each other" >&2; exit 1; }

made=""
if [ -z "$base" ]; then base=$(mktemp -d); made=$base; fi
mkdir -p "$base"; base=$(cd "$base" && pwd)
dir=$(mktemp -d -p "$base" run.XXXXXX); chmod 711 "$base" "$dir"
export FS2_RUNTIME_DIR=$dir/run
cgroup=/sys/fs/cgroup/memory/fs2-programs.$$ limit=memory.limit_in_bytes
[ -d /sys/fs/cgroup/memory ] || { cgroup=/sys/fs/cgroup/fs2-programs.$$ limit=memory.max; }
cleanup() {
    set +e
    servers_stop
    for s in plain fs2; do mountpoint -q "$dir/$s" && { "$fs2" umount "$dir/$s" 2> /dev/null || umount "$dir/$s"; }; done
    mountpoint -q "$dir/make" && umount "$dir/make"
    [ -d "$cgroup" ] && rmdir "$cgroup"
    for _ in $(seq 150); do mount | grep -q " $dir/" || break; sleep 0.2; done # the daemons end after their mounts
    if mount | grep -q " $dir/"; then echo "still mounted: $dir" >&2; else rm -rf --one-file-system "$dir" $made; fi
}
servers_stop() {
    [ -f "$dir/nginx.pid" ] && nginx -c "$dir/nginx.conf" -e "$dir/nginx.err" -s quit 2> /dev/null
    [ -f "$dir/v/pgdata/postmaster.pid" ] && as_postgres "$pg/pg_ctl" -D "$dir/v/pgdata" -m fast -w stop > /dev/null
    for _ in $(seq 50); do [ -f "$dir/nginx.pid" ] || break; sleep 0.1; done
}
as_postgres() { (cd / && exec setpriv --reuid postgres --regid postgres --clear-groups "$@"); }
limited() { [ -w "$cgroup/cgroup.procs" ] && echo $BASHPID > "$cgroup/cgroup.procs"; "$@"; }
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
unmount() { for _ in $(seq 50); do umount "$1" 2> /dev/null && return; sleep 0.2; done; umount "$1"; } # servers take a moment to end
say() { echo "$@" >&2; }
on() { ln -sfn "$dir/$1" "$dir/v"; } # programs find both volumes under one name

# cvs: sources are imported, checked out, and then change for four rounds, with other users' files coming and going between.
edit() { # $1: a checkout, $2: seed, $3: files; the same ones in the same way for the same seed
    python3 - "$1" "$2" "$3" <<'P'
import os, random, sys
top, seed, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
found = sorted(os.path.join(d, f) for d, _, fs in os.walk(top) if not d.endswith("/CVS") for f in fs)
r = random.Random(seed)
for p in r.sample(found, n):
    with open(p, "a") as f:
        for _ in range(r.randrange(1, 30)):
            f.write(f"/* {seed} {r.random()} */\n")
    print(os.path.relpath(p, top))
P
}
commit() { # $1: a checkout, $2: seed, $3: files
    local list; list=$(edit "$1" "$2" "$3")
    (cd "$1" && xargs -d '\n' cvs -Q commit -m "$2" <<< "$list" > /dev/null)
}
cvs_make() {
    local s=$dir/sources
    if [ -d "$sources" ]; then s=$sources; else mkdir "$s"; tar -C "$s" -xf "$sources" --strip-components=1; fi
    mkdir "$dir/make"/{cvsroot,home,usr,srv,var} "$dir/make/home/user"
    python3 - "$s" "$dir" "$files" <<'P'
import os, random, shutil, sys
source, dir, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
parts = [os.path.relpath(os.path.join(d, s), source) for d, ss, _ in os.walk(source) if os.path.relpath(d, source).count("/") == 0 and d != source for s in ss]
r = random.Random(5); parts.sort(); r.shuffle(parts)
taken = 0
with open(f"{dir}/rest", "w") as rest:
    for p in parts:
        here = sum(len([f for f in fs if not os.path.islink(os.path.join(d, f))]) for d, _, fs in os.walk(f"{source}/{p}"))
        if taken < n and here <= n / 8:
            taken += here
            shutil.copytree(f"{source}/{p}", f"{dir}/tree/{p}", symlinks=True)
        else:
            rest.write(p + "\n")
P
    find "$dir/tree" -type l -delete; find "$dir/tree" -type f -empty -delete
    export CVSROOT=$dir/v/cvsroot; on make
    cvs init; (cd "$dir/tree" && cvs -Q import -ko '-I!' -W '*.x -k o' -m start tree vendor start > /dev/null)
    rm -r "$dir/tree"
    mkdir "$dir/make/usr/src"; sed -n 1,12p "$dir/rest" | tar -C "$s" -c -T - | tar -C "$dir/make/usr/src" -x
    (cd "$dir" && cvs -Q checkout -d committer tree > /dev/null)
    (cd "$dir/v/home/user" && cvs -Q checkout tree > /dev/null)
    local r
    for r in 1 2 3 4; do
        mkdir "$dir/make/srv/$r" "$dir/make/home/other$r"
        head -c 150M /dev/urandom | split -b 300k - "$dir/make/srv/$r/"
        commit "$dir/committer" "round $r" $((files / 12))
        [ -d "$dir/make/srv/$((r-1))" ] && find "$dir/make/srv/$((r-1))" -name '*[a-m]' -delete
        sed -n "$((12+r))p" "$dir/rest" | tar -C "$s" -c -T - | tar -C "$dir/make/home/other$r" -x
        (cd "$dir/v/home/user/tree" && cvs -Q update -d > /dev/null)
    done
    cp -a "$dir/committer" "$dir/committer.plain"; mv "$dir/committer" "$dir/committer.fs2"
    say "$(find "$dir/committer.fs2" -type f | grep -vc /CVS/) files in $(find "$dir/committer.fs2" -type d -not -name CVS | wc -l) directories are under cvs"
    (cd "$dir/make" && find usr srv home/other* -type f -print0 | sort -z | xargs -0 md5sum > "$dir/sums")
}
cvs_change() { commit "$dir/committer.$1" "run $2" 40; }
cvs_run() {
    (cd "$dir/v/home/user/tree" && cvs -q update > "$dir/out")
    [ "$(grep -c '^[UP] ' "$dir/out")" = 40 ] || { say "cvs updated $(grep -c '^[UP] ' "$dir/out") files, not 40"; exit 1; }
}
cvs_check() { diff -r -x CVS "$dir/committer.$1" "$dir/v/home/user/tree" && say "$1: the working copy is what was committed"; }

# start: a Debian tree, installed in three steps and upgraded; files of users come between.
inside() { # in the tree of volume v, with mounts and processes that end with it
    unshare --mount --pid --fork --kill-child --propagation slave bash -c '
        mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/tmp"; mount -t tmpfs tmpfs "$0/run"
        export HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
        exec chroot "$0" "$@"' "$dir/v/sys" "$@"
}
start_make() {
    on make; mkdir "$dir/make"/{sys,home,srv}
    debootstrap --variant=minbase bookworm "$dir/make/sys" "$mirror" > "$dir/debootstrap.log" || { tail -5 "$dir/debootstrap.log" >&2; exit 1; }
    cp /etc/resolv.conf "$dir/make/sys/etc/resolv.conf"; echo "127.0.0.1 localhost" > "$dir/make/sys/etc/hosts"
    local n=0 step
    for step in "python3-numpy python3-scipy python3-pandas python3-matplotlib" "libreoffice-writer-nogui libreoffice-calc-nogui fonts-dejavu" chromium; do
        n=$((n+1)); mkdir "$dir/make/srv/$n"; head -c 300M /dev/urandom | split -b 200k - "$dir/make/srv/$n/"
        inside apt-get -qq update
        inside apt-get -qq -y --no-install-recommends install $step > /dev/null
        find "$dir/make/srv/$n" -name '*[a-m]' -delete
        if [ $n = 2 ]; then
            printf '%s\n' "deb $mirror bookworm-updates main" "deb ${mirror%/}-security bookworm-security main" >> "$dir/make/sys/etc/apt/sources.list"
            inside apt-get -qq update; inside apt-get -qq -y --no-install-recommends dist-upgrade > /dev/null
        fi
    done
    # Packages are installed anew in an order of their own, as updates would over the years.
    inside python3 -c '
import random, subprocess
p = sorted(subprocess.check_output(["dpkg-query", "-W", "-f", "${Package}\n"], text=True).split())
r = random.Random(4); p = [n for n in p if n.startswith(("lib", "python3", "chromium", "fonts"))]; r.shuffle(p)
for i in range(0, 160, 8):
    subprocess.run(["apt-get", "-qq", "-y", "--reinstall", "install", *p[i:i + 8]], stdout=subprocess.DEVNULL, check=True)' 
    inside apt-get clean
    cat > "$dir/make/sys/root/plot.py" <<'P'
import numpy, scipy.stats, scipy.optimize, scipy.signal, pandas, matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
f = pandas.DataFrame({"x": numpy.arange(200), "y": numpy.sin(numpy.arange(200) / 9)})
f.plot(x="x", y="y"); plt.savefig("/tmp/plot.png"); print(scipy.stats.linregress(f.x, f.y).slope)
P
    python3 - "$dir/make/sys/root" <<'P'
import random, sys
r = random.Random(3); words = [w.strip() for w in open("/usr/share/common-licenses/GPL-3").read().split()]
text = "\n".join(" ".join(r.choice(words) for _ in range(80)) for _ in range(60))
open(sys.argv[1] + "/letter.txt", "w").write(text)
open(sys.argv[1] + "/page.html", "w").write("<title>x</title><h1>x</h1>" + "".join(f"<p>{l}</p>" for l in text.split("\n")) + "<script>document.title = document.querySelectorAll('p').length</script>")
P
    cat > "$dir/make/sys/root/session" <<'S'
cd /root
one() { local t=$(date +%s%N); "${@:2}" > /tmp/out 2>&1 || { echo "$1 failed" >&2; cat /tmp/out >&2; exit 1; }; echo "$1 $(( ($(date +%s%N) - t) / 1000000 ))"; }
one python python3 plot.py
one soffice soffice --headless --convert-to pdf --outdir /tmp letter.odt
one chromium timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir=/root/chromium --dump-dom file:///root/page.html
[ -s /tmp/letter.pdf ] && [ -s /tmp/plot.png ]
S
    inside soffice --headless --convert-to odt --outdir /root /root/letter.txt > /dev/null 2>&1
    inside bash /root/session > /dev/null
    start_sums
}
start_sums() { say "$(du -sxm "$dir/make/sys" | cut -f 1) MiB in $(find "$dir/make/sys" -xdev -type f | wc -l) files"; (cd "$dir/make" && find srv sys/usr sys/etc sys/var/lib/dpkg -type f -print0 | sort -z | xargs -0 md5sum > "$dir/sums"); }
start_run() { inside bash /root/session > "$dir/out"; say "  $1: $(tr '\n' ' ' < "$dir/out")ms"; }

# server: a database of 60 x 100,000 rows that has seen updates, and 6,000 files beside it.
server_make() {
    on make; mkdir "$dir/make"/{pgdata,www,home,log}; chown postgres "$dir/make/pgdata"; chmod 700 "$dir/make/pgdata"; mkdir "$dir/sock"; chown postgres "$dir/sock"
    as_postgres "$pg/initdb" -D "$dir/v/pgdata" -A trust > /dev/null
    cat >> "$dir/make/pgdata/postgresql.conf" <<C
listen_addresses = ''
unix_socket_directories = '$dir/sock'
shared_buffers = 8MB
max_connections = 12
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 128MB
min_wal_size = 64MB
C
    cat > "$dir/nginx.conf" <<C
user nobody nogroup; worker_processes 1; pid $dir/nginx.pid; error_log $dir/nginx.err; daemon on;
events { worker_connections 64; }
http { access_log $dir/v/log/access.log; sendfile on; default_type application/octet-stream;
  client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4; scgi_temp_path $dir/t5;
  server { listen unix:$dir/web; root $dir/v/www; } }
C
    as_postgres "$pg/pg_ctl" -D "$dir/v/pgdata" -w -l "$dir/sock/log" start > /dev/null
    www 0 3000
    as_postgres "$pg/pgbench" -h "$dir/sock" -i -q -s 60 postgres 2> /dev/null > /dev/null
    www 3000 4500
    as_postgres "$pg/pgbench" -h "$dir/sock" -n -c 4 -t 5000 --random-seed=1 postgres > /dev/null 2>&1
    www 4500 6000
    sql 'vacuum freeze' ; sql checkpoint
    rows=$(server_rows)
    as_postgres "$pg/pg_ctl" -D "$dir/v/pgdata" -m fast -w stop > /dev/null
    say "$(du -sm "$dir/make/pgdata" | cut -f 1) MiB of database, $(du -sm "$dir/make/www" | cut -f 1) MiB in 6000 files"
    (cd "$dir/make" && find www -type f -print0 | sort -z | xargs -0 md5sum > "$dir/sums")
    mkdir "$cgroup" && echo $((memory << 20)) > "$cgroup/$limit" || say "no memory limit: caches are as large as memory"
}
sql() { as_postgres "$pg/psql" -h "$dir/sock" -qAt -c "$1" postgres; }
server_rows() { sql 'select count(*), sum(hashtextextended(t::text, 0)) from pgbench_accounts t'; }
www() { # sizes as SURGE has them for most files
    python3 - "$dir/make/www" "$1" "$2" <<'P'
import os, random, sys
top, a, b = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
r = random.Random(a)
for i in range(a, b):
    os.makedirs(f"{top}/{i % 60}", exist_ok=True)
    with open(f"{top}/{i % 60}/{i}", "wb") as f:
        f.write(r.randbytes(min(4 << 20, int(r.lognormvariate(9.357, 1.318)))))
P
}
server_before() {
    (limited as_postgres "$pg/pg_ctl" -D "$dir/v/pgdata" -w -l "$dir/sock/log" start > /dev/null)
    (limited nginx -c "$dir/nginx.conf" -e "$dir/nginx.err")
}
server_run() { # $2: the run; those after the last one draw anew, the others are one list
    local seed=1; [ "$2" -le "$runs" ] || seed=$2
    as_postgres "$pg/pgbench" -h "$dir/sock" -S -n -c 2 -t 900 --random-seed=$seed postgres > "$dir/out.db" 2>&1 & local db=$!
    python3 - "$dir/web" "$seed" > "$dir/out" <<'P'
import http.client, random, socket, sys, threading, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.connect(sys.argv[1])
names = list(range(6000)); random.Random(2).shuffle(names)
waits = []
def client(k):
    r = random.Random(f"{sys.argv[2]} {k}")
    picks = r.choices(names, [1 / (i + 1) ** 0.8 for i in range(6000)], k=700)
    c = Unix("web")
    for i in picks:
        t = time.monotonic(); c.request("GET", f"/{i % 60}/{i}"); a = c.getresponse()
        assert a.status == 200, a.status
        assert len(a.read()) == int(a.headers["content-length"])
        waits.append(time.monotonic() - t)
threads = [threading.Thread(target=client, args=(k,)) for k in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(waits) == 1400
print(f"web {sum(waits) / len(waits) * 1000:.2f} ms a request", end=", ")
P
    wait $db || { cat "$dir/out.db" >&2; exit 1; }
    say "  $1: $(cat "$dir/out")$(sed -n 's/^latency average = \(.*\)/database \1/p' "$dir/out.db")"
}
server_after() { servers_stop; }
server_check() {
    as_postgres "$pg/pg_ctl" -D "$dir/v/pgdata" -w -l "$dir/sock/log" start > /dev/null
    [ "$(server_rows)" = "$rows" ] || { say "$1: rows differ"; exit 1; }
    say "$1: every row is right"; as_postgres "$pg/pg_ctl" -D "$dir/v/pgdata" -m fast -w stop > /dev/null
}

have() { declare -F "$1" > /dev/null; }
step() { if have "$1_$2"; then "$1_$2" "${@:3}"; fi; }
clean() { e2fsck -fn "$1" > "$dir/e2fsck" 2>&1 || { cat "$dir/e2fsck" >&2; say "e2fsck -fn: $1 is not clean"; exit 1; }; }
field() { "$fs2" status --json "$dir/$1" > "$2"; }
cold() { # $1: unmounted and mounted anew, its buffers dropped
    local dev discard=""; dev=$(findmnt -n -o SOURCE "$dir/$1"); [ "$1" = fs2 ] && discard=,discard
    exec 9< "$dev"; unmount "$dir/$1"; blockdev --flushbufs "$dev"
    python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)' "$dev" || { say "$dev is mounted elsewhere, too: not cold"; exit 1; }
    mount -t ext2 -o "noatime$discard" "$dev" "$dir/$1"; exec 9<&-
}
one() { # $1 workload, $2 volume, $3 run: figures into out.$2
    on "$2"; cold "$2"; step "$1" before "$2"
    field "$2" "$dir/before.json"; local t0 t1 c0 c1; t0=$(date +%s.%N)
    "$1_run" "$2" "$3"
    t1=$(date +%s.%N); field "$2" "$dir/after.json"
    step "$1" after "$2"; sync -f "$dir/$2"
    python3 - "$dir/before.json" "$dir/after.json" "$t0" "$t1" > "$dir/out.$2" <<'P'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:3]); wall = float(sys.argv[4]) - float(sys.argv[3])
t = lambda k: b["total_s"][k] - a["total_s"][k]
n = max(1, t("accesses")); s, r, x = (t(k) for k in ("seek", "rotation", "transfer"))
reads = b["reads"] - a["reads"]; d = lambda k: b[k] - a[k]
print(f"{wall:.2f} {(s + r + x) / n * 1000:.2f} {s / n * 1000:.2f} {r / n * 1000:.2f} {t('read') / max(1, t('reads')) * 1000:.2f} {n} {reads} {d('reads_from_replica') / max(1, reads) * 100:.1f} {(s + r + x) / wall * 100:.0f} {b['copies_written']} {d('writes')}")
P
}
measure() { # $1 workload
    local w=$1 r since last p
    mkdir -p "$dir"/{make,plain,fs2}
    if [ "$w" = start ] && [ -f "$image" ]; then
        cp --sparse=always "$image" "$dir/plain.img"; mount -o loop,noatime "$dir/plain.img" "$dir/make"; start_sums
    else
        truncate -s "$size" "$dir/plain.img"; mke2fs -q -t ext2 -m 0 "$dir/plain.img"
        mount -o loop,noatime "$dir/plain.img" "$dir/make"
        "${w}_make"
    fi
    say "the volume: $(df -h --output=size,used "$dir/make" | tail -1)"
    unmount "$dir/make"; clean "$dir/plain.img"
    if [ -n "$only_fill" ]; then [ -z "$image" ] || mv "$dir/plain.img" "$image"; return; fi
    cp --sparse=always "$dir/plain.img" "$dir/fs2.img"
    "$mkfs2" "$dir/fs2.img" > /dev/null; clean "$dir/fs2.img"
    local options="--drive $drive --frontend fuse --host-reserve 0% -o noatime"
    "$fs2" mount $options --policy none --passive "$dir/plain.img" "$dir/plain" > /dev/null
    "$fs2" mount $options --require-active $more "$dir/fs2.img" "$dir/fs2" > /dev/null
    echo "$w, drive $drive, volume $size; T_A, T_s, T_r: ms an access; read: ms dispatch to completion"
    echo "run system  wall s    T_A   T_s   T_r  read  accesses   reads  from replicas  drive busy  copies so far  writes"
    since=0 last=$runs; [ "$w" = server ] && last=$((runs + 2))
    for r in $(seq 1 "$last"); do
        on plain; step "$w" change plain "$r"; on fs2; step "$w" change fs2 "$r"
        [ "$since" = 0 ] && since=$(date +%s)
        one "$w" plain "$r"
        while [ $(( $(date +%s) - since )) -lt "$rest" ]; do sleep 1; done
        one "$w" fs2 "$r"; since=$(date +%s)
        for p in plain fs2; do
            read -r wall ta ts tr rd n reads share busy copies writes < "$dir/out.$p"
            printf '%3d %-6s %7s %6s %5s %5s %5s %9s %7s %12s %% %9s %% %14s %7s\n' "$r" $p $wall $ta $ts $tr $rd $n $reads $share $busy $copies $writes
        done
    done
    "$fs2" status "$dir/fs2" > "$dir/status"; sed 's/^/    /' "$dir/status"
    "$fs2" umount "$dir/plain"; "$fs2" umount "$dir/fs2"
    for p in plain fs2; do
        clean "$dir/$p.img"; mount -o loop,noatime "$dir/$p.img" "$dir/$p"; on "$p"
        (cd "$dir/$p" && md5sum -c --quiet "$dir/sums"); step "$w" check "$p"; unmount "$dir/$p"
        echo "$p: e2fsck -fn is clean, and through a plain loop mount every file is what was written"
    done
}
for w in "${work[@]}"; do
    measure "$w"
    rm -rf --one-file-system "$dir"/*.img "$dir"/committer* "$dir"/sources
done
