"""What the daemon itself costs a request, with everything else held still: a client that sends so many reads at once,
takes all of their answers, and only then sends more. Client and daemons share one processor and go before other
programs, where that is permitted; the daemons take turns every few ms. So neither how client and server happen to
meet, nor who else is at work, makes much of a difference: a few hundredths show that fio does not."""
import os, random, re, socket, statistics, struct, subprocess, time
from pathlib import Path

PART = "steps"
# Reads of a turn, and turns of each daemon: some ms, and some seconds in all.
READS, TURNS = 3200, 100
# Until a daemon has looked at its host's free space, and knows that it is not to copy.
LEAD_IN = 3.0


class Client:
    def __init__(self, server, path):
        known = self.connections(server)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.take(18)
        self.socket.sendall(b"\0\0\0\3IHAVEOPT\0\0\0\1\0\0\0\0")
        self.take(10)
        # The thread that serves it.
        self.thread = next(iter(self.connections(server) - known))

    @staticmethod
    def connections(server):
        tasks = Path(f"/proc/{server.processes[0].pid}/task").iterdir()
        return {t for t in tasks if re.fullmatch(r"nbd-\d+\n", (t / "comm").read_text())}

    def take(self, n):
        view = memoryview(bytearray(n))
        while view:
            view = view[self.socket.recv_into(view, 0, socket.MSG_WAITALL):]

    def cpu_ns(self):
        # Counted when the thread sleeps: it does now, or soon will.
        time.sleep(0.002)
        return int((self.thread / "schedstat").read_text().split()[0])


def run(title, servers, depth, block, first, blocks, interval, results):
    """servers: (Server, its socket); reads of `blocks` blocks from `first` on."""
    rng = random.Random(7)
    read = lambda n: struct.pack(">IHHQQI", 0x25609513, 0, 0, n, (first + rng.randrange(blocks)) * block, block)
    batches = [b"".join(map(read, range(depth))) for _ in range(2000)]
    time.sleep(LEAD_IN)
    clients = [(server.name, Client(server, path)) for server, path in servers]
    for server, _ in servers:
        pid = str(server.processes[0].pid)
        subprocess.run(["taskset", "-a", "-p", "-c", "0", pid], check=True, capture_output=True)
        subprocess.run(["renice", "-n", "-20", *(t.name for t in Path(f"/proc/{pid}/task").iterdir())], capture_output=True)
    before, nice = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    os.sched_setaffinity(0, {0})
    if not os.geteuid():
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    rows, at = {name: [] for name, _ in clients}, 0
    for turn in range(TURNS):
        for name, client in clients if turn % 2 == 0 else clients[::-1]:
            idle = client.cpu_ns()
            for _ in range(READS // depth):
                client.socket.sendall(batches[at % len(batches)])
                client.take(depth * (16 + block))
                at += 1
            rows[name].append((client.cpu_ns() - idle) / (READS // depth * depth))
    os.sched_setaffinity(0, before)
    if not os.geteuid():
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    ours = rows[clients[0][0]]
    for name, client in clients:
        client.socket.close()
        ratio = interval([a / b for a, b in zip(ours, rows[name])])
        line = f"  reads at once: {depth:3} {name:16} {statistics.median(rows[name]):7.0f} ns"
        print(line + ("" if name == clients[0][0] else f"   time x{ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}]"), flush=True)
        results.append({"part": PART, "case": f"{title}, {depth} at once", "server": name, "turns": rows[name], "time_ratio": ratio})
