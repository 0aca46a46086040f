//! Between the client and the daemon: connections, what waits in their sockets, and what becomes of it.
//!
//! S1: what came over one connection is read in order; what came over several in any.
//! S2: a connection's last words are read before its end is seen, unless the daemon notices earlier that its
//!     client is gone ([`Action::Notice`]); then it is told to the engine.

use super::*;

impl World {
    /// The client sends a request; it arrives at once unless there are several connections.
    pub(super) fn send(&mut self, ask: Ask) {
        let now = self.held_by(ask);
        let connection = self.connection + self.route;
        let id = self.kernel.send(ask, connection, &now);
        if self.setup.queues > 0 {
            self.sockets.entry(connection).or_default().push((id, ask));
        } else {
            self.submit(id, ask, connection);
        }
    }

    /// What the blocks of a request hold on the device, where that is made of values.
    fn held_by(&self, ask: Ask) -> Vec<Option<[Value; 2]>> {
        ask.blocks().map(|b| self.devices[0].block(self.blocks[b]).cells()).collect()
    }

    /// The daemon reads the next request of a connection.
    pub(super) fn receive(&mut self, connection: u32) {
        let socket = self.sockets.get_mut(&connection).expect("it was looked at");
        let (id, ask) = socket.remove(0);
        self.sockets.retain(|_, s| !s.is_empty());
        if self.kernel.ghosts.contains(&id) {
            let now = self.held_by(ask);
            self.kernel.arrives_late(id, ask, connection, &now);
        }
        self.submit(id, ask, connection);
    }

    /// What the connections in use still hold arrives, in some order.
    pub(super) fn deliver(&mut self) -> bool {
        let live = |c: &&u32| **c >= self.connection;
        match self.sockets.keys().find(live).copied() {
            Some(c) if self.setup.queues > 0 && self.served() => {
                self.receive(c);
                true
            }
            _ => false,
        }
    }

    /// What the daemon may read next, and which dead connections it may notice.
    pub fn unread(&self) -> Vec<Action> {
        let (now, queues) = (self.connection, self.setup.queues);
        let dead = self.sockets.keys().filter(|c| **c < now);
        let dead = dead.flat_map(|c| [Action::Receive(*c), Action::Notice(*c)]);
        let all = dead.chain((0..queues).map(Action::Arrives));
        all.filter(|a| self.is_enabled(*a)).collect()
    }

    pub(super) fn reconnect(&mut self) {
        let (old, n) = (self.connection, self.setup.queues.max(1));
        self.left.extend(old..old + n);
        self.connection += n;
        self.route = 0;
        let mut again = Vec::new();
        // What the daemon has read is done, now or later, and sent again all the same.
        for (id, o) in &self.kernel.outstanding {
            let unread = self.sockets.values().flatten().any(|(other, _)| other == id);
            if !o.late && !unread {
                again.push((Some(*id), o.ask));
            }
        }
        // What it has not read stays where it is: data only, since an old superblock, bitmap or directory that
        // arrives late would end the file system below any server, and so would an old discard that is passed
        // down.
        let passed = self.setup.discard == DiscardMode::Pass;
        for (_, unread) in self.sockets.range_mut(old..old + n) {
            for (id, ask) in std::mem::take(unread) {
                self.kernel.lose(id);
                again.push((None, ask));
                let data = ask == Ask::Flush || !ask.blocks().is_empty() && !ask.touches(P);
                if data && !(passed && ask.discards()) {
                    unread.push((id, ask));
                } else {
                    self.kernel.ghosts.remove(&id);
                }
            }
        }
        self.sockets.retain(|_, s| !s.is_empty());
        for (id, ask) in again {
            if let Some(id) = id {
                self.kernel.send_again_later(id);
            }
            self.send(ask);
        }
    }

    /// A new daemon serves the client: what was never answered is sent again.
    pub(super) fn send_all_again(&mut self) {
        self.connection += self.setup.queues.max(1);
        self.route = 0;
        let connection = self.connection;
        let mut again = Vec::new();
        for (id, o) in &mut self.kernel.outstanding {
            o.connection = connection;
            again.push((*id, o.ask));
        }
        for (id, ask) in again {
            if self.setup.queues > 0 {
                self.sockets.entry(connection).or_default().push((id, ask));
            } else {
                self.submit(id, ask, connection);
            }
        }
    }

    /// The daemon is gone, and every socket with it.
    pub(super) fn hang_up(&mut self) {
        self.sockets.clear();
        self.left.clear();
        self.kernel.forget_late();
    }

    /// A connection that was left, and whose last request has ended, is gone.
    pub(super) fn part_with_the_left(&mut self) {
        let Some(volume) = &mut self.volume else { return };
        let busy = |c: &u32| {
            self.sockets.contains_key(c) || self.kernel.outstanding.values().any(|o| o.connection == *c)
        };
        let (stay, gone): (Vec<u32>, Vec<u32>) = self.left.drain(..).partition(busy);
        self.left = stay;
        for c in gone {
            volume.connection_gone(ConnectionId(c));
        }
    }
}
