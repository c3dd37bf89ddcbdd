//! The hash chain of the audit log, and reads of the stored log without a running one, for commands.

use std::fmt;
use std::io::{self, BufRead};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::store::{EventStore, ReadError, Run, Table};
use base::types::{Epoch, SessionId};
use events::event::{AuditEntry, AuditLink, Event, EventRef, Framer, Members};

/// The record of the last event of the chain.
pub(super) const HEAD: &[u8] = b"head";
/// The prefix of the keys of pending entries. A key continues with a UUID v7, so that keys have the order of time, and
/// with a number if several entries have one time.
pub(super) const PENDING: &[u8] = b"pending-";
const READ_BYTES: usize = 1 << 20;
/// The maximum number of pending entries. The gateway moves them to the log when it runs.
const MAX_PENDING: usize = 100_000;

/// The SHA-256 of the bytes that follow the id of an event. An event contains the hash of its predecessor, so the
/// hash covers all earlier events. The first event contains 64 zeros instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    fn of(event_after_id: &[u8]) -> Self {
        Self(Sha256::digest(event_after_id).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The last event of the chain: its number and hash. It is stored in the commit of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ChainHead {
    pub(super) seq: u64,
    pub(super) hash: Hash,
}

impl ChainHead {
    pub(super) fn to_record(self) -> Vec<u8> {
        [&self.seq.to_be_bytes()[..], &self.hash.0].concat()
    }

    /// `None` if the record is damaged.
    pub(super) fn from_record(record: &Bytes) -> Option<Self> {
        let (seq, hash) = record.split_first_chunk()?;
        Some(Self {
            seq: u64::from_be_bytes(*seq),
            hash: Hash(hash.try_into().ok()?),
        })
    }
}

#[derive(Debug)]
pub(super) struct Chain {
    head: ChainHead,
    framer: Framer,
    frame: Vec<u8>,
}

impl Chain {
    pub(super) fn new(head: ChainHead, epoch: &Epoch) -> Self {
        Self {
            head,
            framer: Framer::new(epoch, SessionId::AUDIT),
            frame: Vec::new(),
        }
    }

    /// Adds the event with the number `seq`. `append` receives the event and the new head.
    pub(super) fn add<T>(
        &mut self,
        seq: u64,
        entry: &AuditEntry,
        append: impl FnOnce(&Event<'_>, ChainHead) -> T,
    ) -> T {
        let members = entry.members(&self.head.hash.to_string());
        let event = Event {
            kind: entry.event.kind(),
            prompt: None,
            members: Members::whole(&members),
        };
        self.frame.clear();
        self.framer.frame(&mut self.frame, seq, &event, entry.time);
        let framed = EventRef::parse(seq, &self.frame).expect("the framer writes frames");
        self.head = ChainHead {
            seq,
            hash: Hash::of(framed.after_id()),
        };
        append(&event, self.head)
    }
}

/// A difference between the audit log and its chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error(
        "event {0} does not contain the hash of the previous event: one of the two was changed, or events were removed"
    )]
    Broken(u64),
    #[error("event {0} cannot be read")]
    Unreadable(u64),
    #[error("events before {0} are missing, and no `audit.pruned` event explains it")]
    Missing(u64),
    #[error("the log ends with event {found}, but the last event that was written is {expected}")]
    Truncated { found: u64, expected: u64 },
    #[error("the last event {0} was changed")]
    LastChanged(u64),
    #[error("the record of the last event is missing or damaged")]
    NoHead,
}

/// Checks the chain, event by event.
#[derive(Debug, Default)]
pub(super) struct Verifier {
    first: Option<u64>,
    last: ChainHead,
    pruned_through: u64,
}

impl Verifier {
    pub(super) fn check(&mut self, event: &EventRef<'_>) -> Result<(), ChainError> {
        let seq = event.seq();
        let link = AuditLink::of(event).ok_or(ChainError::Unreadable(seq))?;
        if link.seq != seq {
            return Err(ChainError::Broken(seq));
        }
        self.check_link(&link)
    }

    fn check_link(&mut self, link: &AuditLink<'_>) -> Result<(), ChainError> {
        let seq = link.seq;
        // The log no longer contains the predecessor of this first event, so the hash cannot be checked.
        let linked = match self.first {
            None if seq > 1 => true,
            _ => link.previous == self.last.hash.to_string(),
        };
        if !linked || self.first.is_some_and(|_| seq != self.last.seq + 1) {
            return Err(ChainError::Broken(seq));
        }
        let pruned = link.through_seq.unwrap_or_default();
        self.pruned_through = self.pruned_through.max(pruned);
        self.first.get_or_insert(seq);
        self.last = ChainHead {
            seq,
            hash: Hash::of(link.hashed),
        };
        Ok(())
    }

    /// Compares the end of the log with the stored head. Returns the first number and the last event.
    pub(super) fn finish(self, head: Option<ChainHead>) -> Result<(u64, ChainHead), ChainError> {
        let first = self.first.unwrap_or_default();
        match head {
            None if self.first.is_some() => return Err(ChainError::NoHead),
            Some(head) if head.seq != self.last.seq => {
                return Err(ChainError::Truncated {
                    found: self.last.seq,
                    expected: head.seq,
                });
            }
            Some(head) if head.hash != self.last.hash => {
                return Err(ChainError::LastChanged(head.seq));
            }
            _ => {}
        }
        if first > self.pruned_through + 1 {
            return Err(ChainError::Missing(first));
        }
        Ok((first, self.last))
    }
}

/// `None` if the record is damaged.
pub(super) fn decode(record: &Bytes) -> Option<AuditEntry> {
    AuditEntry::decode(record).ok()
}

/// The stored audit log.
#[derive(Debug)]
pub struct Archive<'a, S>(pub &'a S);

/// A log whose chain is intact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The number of the first event. 0: the log is empty.
    pub first_seq: u64,
    pub last_seq: u64,
    /// The hash of the last event in hex. It covers all events.
    pub last_hash: String,
    /// The number of changes that the gateway has not moved to the log yet.
    pub pending: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("could not read the audit log")]
    Read(#[from] ReadError),
    #[error("the audit log was changed")]
    Chain(#[from] ChainError),
}

impl<S: EventStore> Archive<'_, S> {
    /// Calls `each` with every event after `after`, oldest first. Stops at an error. Returns the last number.
    pub fn for_each<E: From<ReadError>>(
        &self,
        mut after: u64,
        mut each: impl FnMut(&EventRef<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        loop {
            let runs = self.0.read(SessionId::AUDIT, after, READ_BYTES)?;
            let Some(last) = runs.last() else {
                return Ok(after);
            };
            after = last.last_seq;
            for event in runs.iter().flat_map(Run::events) {
                each(&event)?;
            }
        }
    }

    /// The changes that the gateway has not moved to the log yet. They have no number.
    pub fn pending(&self) -> Result<Vec<AuditEntry>, ReadError> {
        let found = self.0.scan(Table::Audit, PENDING, None, MAX_PENDING)?;
        let entries = found.iter().filter_map(|(_, record)| decode(record));
        Ok(entries.collect())
    }

    /// Verifies the hash chain.
    pub fn verify(&self) -> Result<Verified, ArchiveError> {
        let mut verifier = Verifier::default();
        let mut read = 0;
        let head = loop {
            let before = read;
            read = self.for_each(read, |event| Ok::<_, ArchiveError>(verifier.check(event)?))?;
            let head = self.0.get(Table::Audit, HEAD)?;
            let head = head.as_ref().and_then(ChainHead::from_record);
            // A running gateway may have appended events before the read of the head.
            if read == before || head.is_none_or(|head| head.seq <= read) {
                break head;
            }
        };
        let (first_seq, last) = verifier.finish(head)?;
        let pending = self.pending()?.len();
        Ok(Verified {
            first_seq,
            last_seq: last.seq,
            last_hash: last.hash.to_string(),
            pending,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("could not read the file")]
    Read(#[from] io::Error),
    #[error("line {0} is not an event of an audit log")]
    Unreadable(u64),
    #[error("the events were changed, or are not consecutive")]
    Chain(#[from] ChainError),
}

/// Verifies the hash chain of the lines that an export of consecutive events printed. The first event can have any number. Changes
/// without a number are pending, and the chain does not cover them.
pub fn verify_export(lines: impl BufRead) -> Result<Verified, ExportError> {
    let mut verifier = Verifier::default();
    let mut pending = 0;
    for (line, number) in lines.split(b'\n').zip(1..) {
        let line = line?;
        if let Some(link) = AuditLink::parse(&line) {
            verifier.check_link(&link)?;
        } else if AuditEntry::decode(&line).is_ok() {
            pending += 1;
        } else {
            return Err(ExportError::Unreadable(number));
        }
    }
    Ok(Verified {
        first_seq: verifier.first.unwrap_or_default(),
        last_seq: verifier.last.seq,
        last_hash: verifier.last.hash.to_string(),
        pending,
    })
}

#[cfg(test)]
mod tests;
