//! A handle on one session's log: append, commit notification, and creation of readers.

use std::sync::{Arc, MutexGuard};

use tokio::sync::watch;

use super::alarm::DiskSpace;
use super::pending::Pending;
use super::queue::Closed;
use super::reader::{Reader, Start};
use super::records::Records;
use super::shares::SharedSession;
use super::state::State;
use super::store_reader::Store;
use crate::store::{ReadError, Run, Table};
use base::types::{EventId, SessionId, Timestamp, UserId};
use events::event::Event;

/// A handle on one session's log. Cheap to clone. The session's state stays in memory while a handle exists.
#[derive(Debug, Clone)]
pub struct SessionLog {
    pub(super) state: Arc<State>,
}

/// An open group of a session's log. Dropping it hands the events to the writer.
#[derive(Debug)]
pub struct Group(SessionLog);

impl Group {
    /// Ends the group, with further records.
    pub fn put(self, records: Records) {
        self.0.put(records);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut pending = self.0.state.pending();
        pending.end_group();
        self.0.enter_queue(pending);
    }
}

impl SessionLog {
    pub fn session(&self) -> SessionId {
        self.state.id
    }

    pub fn owner(&self) -> &UserId {
        &self.state.owner
    }

    /// Appends an event and returns its seq. Never waits. The event and the records are committed together.
    /// After [`erase`](Self::erase) the event is dropped.
    pub fn append(&self, event: &Event<'_>, records: Records) -> u64 {
        self.append_at(self.state.shared.ids.now(), event, records)
    }

    /// Like [`append`](Self::append), with the time of the event.
    pub fn append_at(&self, now: Timestamp, event: &Event<'_>, records: Records) -> u64 {
        let shared = &self.state.shared;
        let mut pending = self.state.pending();
        let seq = pending.append(event, records, now, shared.limits.max_run_bytes);
        self.enter_queue(pending);
        seq
    }

    /// Appends several events without records: one clock read, one lock, one queue entry.
    pub fn append_all<'a>(&self, events: impl Iterator<Item = Event<'a>> + Clone) {
        let shared = &self.state.shared;
        let now = shared.ids.now();
        let mut pending = self.state.pending();
        pending.append_all(events, now, shared.limits.max_run_bytes);
        self.enter_queue(pending);
    }

    /// Adds records to the session's next commit, without an event. After [`erase`](Self::erase) they are
    /// dropped.
    pub fn put(&self, records: Records) {
        if records.is_empty() {
            return;
        }
        let mut pending = self.state.pending();
        pending.put(records);
        self.enter_queue(pending);
    }

    /// Begins a group: all events and records that are appended before the group is dropped are committed together,
    /// with the records of [`Group::put`]. The caller must not await anything before it drops the group.
    pub fn begin_group(&self) -> Group {
        self.state.pending().begin_group();
        Group(self.clone())
    }

    /// Appends the last event and erases all earlier events in the same commit, together with `records`.
    /// Events appended before are committed first and reach readers at the tail. Readers end after the last
    /// event. A slow reader skips directly to it.
    pub fn erase(&self, last: &Event<'_>, records: Records) -> u64 {
        let now = self.state.shared.ids.now();
        let since = self.state.shared.expiry.latest_now().as_millis();
        let tombstone = since.to_be_bytes().to_vec();
        let records = records.put(Table::Tombstone, *self.state.id.as_bytes(), tombstone);
        let mut pending = self.state.pending();
        let seq = pending.erase(last, records, now);
        self.enter_queue(pending);
        seq
    }

    fn enter_queue(&self, mut pending: MutexGuard<'_, Pending>) {
        let enters = pending.enter_queue();
        drop(pending);
        if enters {
            self.state.enqueue();
        }
    }

    /// The seq of the last appended event.
    pub fn appended(&self) -> u64 {
        self.state.pending().appended()
    }

    /// Whether [`Self::erase`] was called. Its commit may still be pending.
    pub fn is_erased(&self) -> bool {
        self.state.pending().is_erased()
    }

    /// The seq of the last durable event.
    pub fn committed(&self) -> u64 {
        self.state.committed.last()
    }

    /// Bytes that are not committed yet. The caller stops accepting input above a bound.
    pub fn pending_bytes(&self) -> usize {
        self.state.pending().bytes()
    }

    /// The committed seq; the receiver is notified of changes.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.state.committed.watch()
    }

    /// Waits until the event `seq` is durable. Fails if the log closes before.
    pub async fn wait(&self, seq: u64) -> Result<(), Closed> {
        let mut commits = self.commits();
        tokio::select! {
            biased;
            reached = commits.wait_for(|committed| *committed >= seq) => reached.map(drop).map_err(|_| Closed),
            () = self.state.shared.queue.closed.cancelled() => {
                if self.committed() >= seq { Ok(()) } else { Err(Closed) }
            }
        }
    }

    /// Waits until the event `seq` is durable (true) or the disk is full (false).
    pub async fn wait_or_full(&self, seq: u64) -> Result<bool, Closed> {
        let mut room = self.state.shared.alarms.disk_space();
        let full = room.wait_for(|room| *room == DiskSpace::Exhausted);
        tokio::select! {
            biased;
            outcome = self.wait(seq) => outcome.map(|()| true),
            _ = full => Ok(self.committed() >= seq),
        }
    }

    pub fn id(&self, seq: u64) -> EventId {
        EventId {
            epoch: self.state.epoch.clone(),
            seq,
        }
    }

    /// Whether any reader reads this session's log at the moment.
    pub fn has_reader(&self) -> bool {
        let State { shared, owner, .. } = &*self.state;
        if shared.readers.has_reader(owner, self.state.id) {
            return true;
        }
        let grants = shared.shares.get(self.state.id);
        let mut users = grants.iter().flat_map(SharedSession::users);
        users.any(|user| shared.readers.follows(user))
    }

    /// Replays from `start` to the tail, then follows.
    pub fn reader(&self, start: Start) -> Reader {
        Reader::of_session(Arc::clone(&self.state), start)
    }

    /// Returns about `max_bytes` of committed events after `after`. Empty at the tail. It skips events that
    /// were pruned or are damaged.
    pub async fn read(&self, after: u64, max_bytes: usize) -> Result<Vec<Run>, ReadError> {
        let committed = self.committed();
        let mut runs = self.read_tail(after, max_bytes);
        let mut cursor = after;
        while runs.is_empty() && cursor < committed {
            let reads = &self.state.shared.reads;
            let session = self.state.id;
            let read = move |store: &dyn Store| store.read(session, cursor, max_bytes);
            match reads.skip_damage(reads.blocking(read).await)? {
                Ok(read) => {
                    runs = read;
                    break;
                }
                Err(damage) => cursor = damage.after,
            }
        }
        let runs = runs.into_iter();
        Ok(runs.filter_map(|run| run.through(committed)).collect())
    }

    fn read_tail(&self, after: u64, max_bytes: usize) -> Vec<Run> {
        let mut cursor = after;
        let mut bytes = 0;
        let mut runs = Vec::new();
        let tail = self.state.tail();
        while bytes < max_bytes || runs.is_empty() {
            let Some(run) = tail.after(cursor) else { break };
            cursor = run.last_seq;
            bytes += run.frames.len();
            runs.push(run);
        }
        runs
    }
}
