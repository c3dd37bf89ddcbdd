//! Small records beside the runs. The store keeps them and does not interpret them.

use bytes::Bytes;

/// What a record is about. The numbers are on disk: they are never given to something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    Session = 1,
    SessionIndex = 2,
    Prompt = 3,
    Request = 4,
    Fold = 5,
    Idempotency = 6,
    Open = 7,
    Tombstone = 8,
    Key = 9,
    Meta = 10,
    Ticket = 11,
    AgentSession = 12,
    Terminal = 13,
    SessionMetadata = 14,
}

/// Writes a record, over an earlier one of the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Bytes,
}

/// Removes a record; one that is not there is removed already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    pub table: Table,
    pub key: Vec<u8>,
}

/// What a record has to be at the commit; `None`: absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Option<Bytes>,
}

/// A record as a scan gives it: key and value.
pub type Record = (Vec<u8>, Bytes);
