//! Reads of the stored audit log without a running log, for commands.

use crate::store::{EventStore, ReadError, Run, Table};
use base::types::SessionId;
use events::event::{AuditEntry, EventRef};

use super::chain::{ChainError, ChainHead, Verifier};
use super::pending::{HEAD, PENDING, decode};

const READ_BYTES: usize = 1 << 20;
/// The maximum number of pending entries. The gateway moves them to the log when it runs.
const MAX_PENDING: usize = 100_000;

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
        let (mut verifier, mut read) = (Verifier::default(), 0);
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
