//! The bounds and sizes of all logs, in memory, so that limit checks need no query. The source may be a
//! damaged file, so the numbers may be inconsistent.

use std::collections::HashMap;

use base::types::{SessionId, Timestamp, UserId};

use super::ports::LogUsage;
use super::run::RunHeader;

/// The usage of all logs of a store. Updated after each commit.
#[derive(Debug, Default)]
pub(super) struct Usages {
    logs: HashMap<SessionId, Log>,
    /// Each user once, because a log holds only the index.
    owners: Vec<UserId>,
    /// The index of each user in `owners`.
    numbers: HashMap<UserId, u32>,
    bytes: u64,
}

/// The compact form of [`LogUsage`]. Each stored session needs one for as long as the store is open.
#[derive(Debug, Clone, Copy)]
struct Log {
    first_seq: u64,
    last_seq: u64,
    first_pos: u64,
    last_pos: u64,
    bytes: u64,
    last_time: Timestamp,
    runs: u32,
    /// The index of the user in `owners`.
    owner: u32,
}

impl Usages {
    /// Reserves capacity, so that loading does not reallocate.
    pub(super) fn reserve(&mut self, logs: usize) {
        self.logs.reserve(logs);
    }

    pub(super) fn get(&self, session: SessionId) -> Option<LogUsage> {
        let log = self.logs.get(&session)?;
        Some(self.to_usage(session, *log))
    }

    pub(super) fn contains(&self, session: SessionId) -> bool {
        self.logs.contains_key(&session)
    }

    pub(super) fn count(&self) -> usize {
        self.logs.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn select(&self, limit: usize, filter: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        let logs = self.logs.iter();
        let shown = logs.map(|(session, log)| self.to_usage(*session, *log));
        shown.filter(|log| filter(log)).take(limit).collect()
    }

    /// Sets a log to values that were loaded, corrected or changed by a prune.
    pub(super) fn restore(&mut self, usage: &LogUsage) {
        self.erase(usage.session);
        let owner = self.owner(&usage.owner);
        self.bytes += usage.bytes;
        let log = Log {
            first_seq: usage.first_seq,
            last_seq: usage.last_seq,
            first_pos: usage.first_pos,
            last_pos: usage.last_pos,
            bytes: usage.bytes,
            last_time: usage.last_time,
            runs: u32::try_from(usage.runs).unwrap_or(u32::MAX),
            owner,
        };
        self.logs.insert(usage.session, log);
    }

    pub(super) fn append(&mut self, owner: &UserId, head: &RunHeader) {
        self.bytes += head.bytes;
        let owner = self.owner(owner);
        let log = self.logs.entry(head.session).or_insert(Log {
            first_seq: head.first_seq.max(1),
            last_seq: 0,
            // The columns of a damaged row may have any value.
            first_pos: head
                .last_pos
                .saturating_sub(head.last_seq.saturating_sub(head.first_seq))
                .max(1),
            last_pos: 0,
            bytes: 0,
            last_time: head.time,
            runs: 0,
            owner,
        });
        log.last_seq = head.last_seq;
        log.last_pos = head.last_pos;
        // A clock that was set back must not make a log look older.
        log.last_time = log.last_time.max(head.time);
        log.bytes += head.bytes;
        log.runs += 1;
    }

    pub(super) fn erase(&mut self, session: SessionId) {
        if let Some(log) = self.logs.remove(&session) {
            self.bytes = self.bytes.saturating_sub(log.bytes);
        }
    }

    fn owner(&mut self, owner: &UserId) -> u32 {
        if let Some(number) = self.numbers.get(owner) {
            return *number;
        }
        let number = u32::try_from(self.owners.len()).unwrap_or(u32::MAX);
        self.owners.push(owner.clone());
        self.numbers.insert(owner.clone(), number);
        number
    }

    fn to_usage(&self, session: SessionId, log: Log) -> LogUsage {
        LogUsage {
            session,
            owner: self.owners[log.owner as usize].clone(),
            first_seq: log.first_seq,
            last_seq: log.last_seq,
            first_pos: log.first_pos,
            last_pos: log.last_pos,
            bytes: log.bytes,
            runs: u64::from(log.runs),
            last_time: log.last_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::session;
    use super::*;

    #[test]
    fn stored_session_costs_fixed_memory() {
        assert_eq!(size_of::<(SessionId, Log)>(), 72);
        let mut usages = Usages::default();
        for number in 0..=u8::MAX {
            let head = RunHeader {
                session: session(number),
                first_seq: 1,
                last_seq: 3,
                last_pos: 3 + 3 * u64::from(number),
                bytes: 10,
                time: Timestamp::from_millis(1),
            };
            let owner = UserId::from_text(if number % 2 == 0 { "a" } else { "b" });
            usages.append(&owner, &head);
        }
        assert_eq!(usages.owners.len(), 2, "each user is stored once");
        assert_eq!(usages.get(session(4)).unwrap().owner.as_str(), "a");
        assert_eq!(usages.get(session(5)).unwrap().owner.as_str(), "b");
    }
}
