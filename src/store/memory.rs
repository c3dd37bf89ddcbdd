//! A store in memory. Its content is lost when the process exits.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use crate::shutdown::lock_or_abort;
use crate::types::{Epoch, Ids, SessionId, Timestamp};

use super::usage::Usages;
use super::{
    Batch, CommitError, Committed, Cut, EventStore, LogUsage, Maintenance, Page, Pruned, ReadError, Record,
    RecordStore, Run, RunHeader, Table, Tail,
};

/// Keeps everything in maps. For tests, and for gateways without durable data.
#[derive(Debug)]
pub struct MemoryStore {
    epoch: Epoch,
    ids: Ids,
    maps: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    /// By the position of the last event.
    runs: BTreeMap<u64, (Run, Timestamp)>,
    /// For each session, the position of each run by its last seq.
    sessions: HashMap<SessionId, BTreeMap<u64, u64>>,
    records: BTreeMap<(Table, Vec<u8>), Bytes>,
    usages: Usages,
    last_pos: u64,
    pruned_pos: u64,
}

impl MemoryStore {
    pub fn new(ids: Ids) -> Self {
        Self { epoch: ids.epoch(), ids, maps: Mutex::default() }
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        lock_or_abort(self.maps.lock())
    }
}

impl Maps {
    fn check(&self, batch: &Batch) -> Result<(), CommitError> {
        for (index, expect) in batch.expect.iter().enumerate() {
            let found = self.records.get(&(expect.table, expect.key.clone()));
            if found != expect.value.as_ref() {
                return Err(CommitError::Conflict { index });
            }
        }
        Ok(())
    }

    fn erase(&mut self, session: SessionId) {
        for pos in self.sessions.remove(&session).unwrap_or_default().into_values() {
            self.runs.remove(&pos);
        }
        self.usages.erase(session);
    }

    fn append(&mut self, run: &Run, time: Timestamp) -> RunHeader {
        self.last_pos += run.count();
        let pos = self.last_pos;
        let head = run_header(run, pos, time);
        self.usages.append(run.tenant.as_str(), &head);
        self.sessions.entry(run.session).or_default().insert(run.last_seq, pos);
        self.runs.insert(pos, (Run { last_pos: pos, ..run.clone() }, time));
        head
    }

    fn prune(&mut self, cut: Cut, max_runs: usize) -> Pruned {
        let mut pruned = Pruned::default();
        let Some(places) = self.sessions.get_mut(&cut.session) else { return pruned };
        while places.len() > 1 && pruned.runs < max_runs as u64 {
            let Some(oldest) = places.first_entry().filter(|oldest| *oldest.key() <= cut.through) else {
                break;
            };
            let pos = oldest.remove();
            if let Some((run, _)) = self.runs.remove(&pos) {
                pruned.runs += 1;
                pruned.bytes += run.frames.len() as u64;
            }
            self.pruned_pos = self.pruned_pos.max(pos);
        }
        if let Some((run, _)) = places.first_key_value().and_then(|(_, pos)| self.runs.get(pos)) {
            self.usages.cut(cut.session, run.first_seq, run.first_pos(), pruned);
        }
        pruned
    }
}

/// The header of a run. Frames are stored without compression.
fn run_header(run: &Run, last_pos: u64, time: Timestamp) -> RunHeader {
    RunHeader::of(run, last_pos, run.frames.len() as u64, time)
}

impl RecordStore for MemoryStore {
    fn commit(&self, batch: &Batch) -> Result<Committed, CommitError> {
        let time = batch.time.unwrap_or_else(|| self.ids.now());
        let mut maps = self.maps();
        maps.check(batch)?;
        for session in &batch.erase {
            maps.erase(*session);
        }
        let heads: Vec<RunHeader> = batch.runs.iter().map(|run| maps.append(run, time)).collect();
        for put in &batch.puts {
            maps.records.insert((put.table, put.key.clone()), put.value.clone());
        }
        for delete in &batch.deletes {
            maps.records.remove(&(delete.table, delete.key.clone()));
        }
        Ok(Committed::of(&heads))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.maps().records.get(&(table, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded((table, after.to_vec())),
            _ => Bound::Included((table, prefix.to_vec())),
        };
        let maps = self.maps();
        let found = maps.records.range((from, Bound::Unbounded));
        let found = found.take_while(|((of, key), _)| *of == table && key.starts_with(prefix));
        Ok(found.take(limit).map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }
}

impl EventStore for MemoryStore {
    fn epoch(&self) -> Epoch {
        self.epoch.clone()
    }

    fn read(&self, session: SessionId, after: u64, max_bytes: usize) -> Result<Vec<Run>, ReadError> {
        let maps = self.maps();
        let Some(places) = maps.sessions.get(&session) else { return Ok(Vec::new()) };
        let mut bytes = 0;
        let mut found = Vec::new();
        for pos in places.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, pos)| pos) {
            if bytes >= max_bytes && !found.is_empty() {
                break;
            }
            if let Some(run) = maps.runs.get(pos).and_then(|(run, _)| run.after(after)) {
                bytes += run.frames.len();
                found.push(run);
            }
        }
        Ok(found)
    }

    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        wanted: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError> {
        let maps = self.maps();
        let mut page = Page { runs: Vec::new(), through_pos: after_pos.max(maps.last_pos) };
        let mut bytes = 0;
        for (run, _) in
            maps.runs.range((Bound::Excluded(after_pos), Bound::Unbounded)).map(|(_, entry)| entry)
        {
            if bytes >= max_bytes && !page.runs.is_empty() {
                page.through_pos = page.runs.last().map_or(after_pos, |last| last.last_pos);
                break;
            }
            if wanted(run.tenant.as_str(), run.session) {
                bytes += run.frames.len();
                page.runs.extend(run.after_pos(after_pos));
            }
        }
        Ok(page)
    }

    fn usage(&self, session: SessionId) -> Option<LogUsage> {
        self.maps().usages.get(session)
    }

    fn tail(&self) -> Tail {
        let maps = self.maps();
        Tail { first_pos: maps.pruned_pos + 1, last_pos: maps.last_pos }
    }
}

impl Maintenance for MemoryStore {
    fn usages(&self, limit: usize, wanted: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        self.maps().usages.select(limit, wanted)
    }

    fn total_bytes(&self) -> u64 {
        self.maps().usages.bytes()
    }

    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError> {
        let maps = self.maps();
        let found = maps.runs.range((Bound::Excluded(after_pos), Bound::Unbounded)).map(|(_, entry)| entry);
        let found = found.filter(|(run, _)| session.is_none_or(|session| run.session == session));
        Ok(found.take(limit).map(|(run, time)| run_header(run, run.last_pos, *time)).collect())
    }

    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError> {
        let mut maps = self.maps();
        let mut sum = Pruned::default();
        for cut in cuts {
            sum.add(maps.prune(*cut, max_runs));
        }
        Ok(sum)
    }
}
