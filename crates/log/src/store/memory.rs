//! A store in memory: the reference that the durable store is compared with, and the fastest store for tests.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use base::shutdown::lock_or_abort;
use base::types::{Epoch, Ids, SessionId, Timestamp};

use super::{
    Batch, CommitError, Cut, Disk, EventStore, LogUsage, Maintenance, Page, Pruned, ReadError,
    Record, RecordStore, Run, RunHeader, Table, Tail,
};

#[derive(Debug)]
pub struct MemoryStore {
    epoch: Epoch,
    shard: u16,
    ids: Ids,
    maps: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    /// By the position of the last event.
    runs: BTreeMap<u64, (Run, Timestamp)>,
    logs: HashMap<SessionId, Log>,
    records: BTreeMap<(Table, Vec<u8>), Bytes>,
    last_pos: u64,
    pruned_pos: u64,
}

#[derive(Debug)]
struct Log {
    /// The position of each run by its last seq.
    places: BTreeMap<u64, u64>,
    usage: LogUsage,
}

impl MemoryStore {
    pub fn new(ids: Ids) -> Self {
        Self {
            epoch: ids.epoch(),
            shard: ids.shard(),
            ids,
            maps: Mutex::default(),
        }
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
        let erased = self.logs.remove(&session).map(|log| log.places);
        for pos in erased.unwrap_or_default().into_values() {
            self.runs.remove(&pos);
        }
    }

    fn append(&mut self, run: &Run, time: Timestamp) -> RunHeader {
        self.last_pos += run.count();
        let run = Run {
            last_pos: self.last_pos,
            ..run.clone()
        };
        let head = run_header(&run, time);
        let log = self.logs.entry(run.session).or_insert_with(|| Log {
            places: BTreeMap::new(),
            usage: LogUsage {
                session: run.session,
                owner: run.owner.clone(),
                first_seq: run.first_seq,
                last_seq: 0,
                first_pos: run.first_pos(),
                last_pos: 0,
                bytes: 0,
                runs: 0,
                last_time: time,
            },
        });
        log.places.insert(run.last_seq, run.last_pos);
        log.usage.last_seq = run.last_seq;
        log.usage.last_pos = run.last_pos;
        log.usage.last_time = log.usage.last_time.max(time);
        log.usage.bytes += head.bytes;
        log.usage.runs += 1;
        self.runs.insert(run.last_pos, (run, time));
        head
    }

    fn prune(&mut self, cut: Cut, max_runs: usize) -> Pruned {
        let mut pruned = Pruned::default();
        let Some(Log { places, usage }) = self.logs.get_mut(&cut.session) else {
            return pruned;
        };
        while places.len() > 1 && pruned.runs < max_runs as u64 {
            let oldest = places.first_entry();
            let Some(oldest) = oldest.filter(|oldest| *oldest.key() <= cut.through) else {
                break;
            };
            let pos = oldest.remove();
            if let Some((run, _)) = self.runs.remove(&pos) {
                let bytes = run.frames.len() as u64;
                pruned.add(Pruned { runs: 1, bytes });
            }
            self.pruned_pos = self.pruned_pos.max(pos);
        }
        let first = places.first_key_value();
        if let Some((run, _)) = first.and_then(|(_, pos)| self.runs.get(pos)) {
            usage.first_seq = run.first_seq;
            usage.first_pos = run.first_pos();
        }
        usage.bytes -= pruned.bytes;
        usage.runs -= pruned.runs;
        pruned
    }
}

/// The header of a committed run. Frames are stored without compression.
fn run_header(run: &Run, time: Timestamp) -> RunHeader {
    RunHeader::of(run, run.last_pos, run.frames.len() as u64, time)
}

impl RecordStore for MemoryStore {
    fn commit(&self, batch: &Batch) -> Result<Vec<RunHeader>, CommitError> {
        let time = batch.time.unwrap_or_else(|| self.ids.now());
        let mut maps = self.maps();
        maps.check(batch)?;
        for session in &batch.erase {
            maps.erase(*session);
        }
        let runs = batch.runs.iter();
        let heads = runs.map(|run| maps.append(run, time)).collect();
        for record in &batch.records {
            let key = (record.table, record.key.clone());
            match &record.value {
                Some(value) => maps.records.insert(key, value.clone()),
                None => maps.records.remove(&key),
            };
        }
        Ok(heads)
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
        let found = found.take(limit);
        Ok(found
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect())
    }
}

impl EventStore for MemoryStore {
    fn epoch(&self) -> Epoch {
        self.epoch.clone()
    }

    fn shard(&self) -> u16 {
        self.shard
    }

    fn read(
        &self,
        session: SessionId,
        after: u64,
        max_bytes: usize,
    ) -> Result<Vec<Run>, ReadError> {
        let maps = self.maps();
        let Some(log) = maps.logs.get(&session) else {
            return Ok(Vec::new());
        };
        let mut bytes = 0;
        let mut found = Vec::new();
        let later = (Bound::Excluded(after), Bound::Unbounded);
        for (_, pos) in log.places.range(later) {
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
        filter: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError> {
        let maps = self.maps();
        let mut page = Page {
            runs: Vec::new(),
            through: after_pos.max(maps.last_pos),
        };
        let mut bytes = 0;
        let later = (Bound::Excluded(after_pos), Bound::Unbounded);
        for (run, _) in maps.runs.range(later).map(|(_, entry)| entry) {
            if bytes >= max_bytes && !page.runs.is_empty() {
                page.through = page.runs.last().map_or(after_pos, |last| last.last_pos);
                break;
            }
            if filter(run.owner.as_str(), run.session) {
                bytes += run.frames.len();
                page.runs.extend(run.after_pos(after_pos));
            }
        }
        Ok(page)
    }

    fn usage(&self, session: SessionId) -> Option<LogUsage> {
        self.maps().logs.get(&session).map(|log| log.usage.clone())
    }

    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        Ok(self.usage(session))
    }

    fn tail(&self) -> Tail {
        let maps = self.maps();
        Tail {
            first_pos: maps.pruned_pos + 1,
            last_pos: maps.last_pos,
        }
    }
}

impl Maintenance for MemoryStore {
    fn usages(&self, limit: usize, filter: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        let maps = self.maps();
        let usages = maps.logs.values().map(|log| &log.usage);
        usages
            .filter(|log| filter(log))
            .take(limit)
            .cloned()
            .collect()
    }

    fn session_count(&self) -> usize {
        let maps = self.maps();
        let is_deleted = |id: &SessionId| {
            let tombstone = (Table::Tombstone, id.as_bytes().to_vec());
            maps.records.contains_key(&tombstone)
        };
        let sessions = maps.logs.keys();
        let sessions = sessions.filter(|id| **id != SessionId::AUDIT && !is_deleted(id));
        sessions.count()
    }

    fn total_bytes(&self) -> u64 {
        self.maps().logs.values().map(|log| log.usage.bytes).sum()
    }

    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError> {
        let maps = self.maps();
        let later = (Bound::Excluded(after_pos), Bound::Unbounded);
        let found = maps.runs.range(later).map(|(_, entry)| entry);
        let found = found.filter(|(run, _)| session.is_none_or(|session| run.session == session));
        let found = found.take(limit);
        Ok(found.map(|(run, time)| run_header(run, *time)).collect())
    }

    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError> {
        let mut maps = self.maps();
        let mut sum = Pruned::default();
        for cut in cuts {
            sum.add(maps.prune(*cut, max_runs));
        }
        Ok(sum)
    }

    fn compact(&self) -> Result<bool, CommitError> {
        Ok(false)
    }

    fn disk(&self) -> io::Result<Disk> {
        Ok(Disk {
            free: 1 << 40,
            total: 1 << 40,
        })
    }

    fn keep_reserve(&self, _bytes: u64, _free: u64) -> io::Result<bool> {
        Ok(true)
    }

    fn release_reserve(&self) -> bool {
        false
    }
}
