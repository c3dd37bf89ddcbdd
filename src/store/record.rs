//! Small records beside the runs. The store does not interpret them.

use bytes::Bytes;

/// The kind of a record. The numbers are stored on disk and must never be reused.
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
    Audit = 15,
    /// The position of a session in the output of a member's process.
    OutputPosition = 16,
    /// The members of the fleet.
    Member = 17,
    /// One-shot tasks.
    Task = 18,
    /// The children of a task.
    TaskChild = 19,
    Webhook = 20,
    WebhookDelivery = 21,
    /// The position up to which the events of a tenant have their deliveries.
    WebhookPosition = 22,
    /// The tasks that have not ended.
    OpenTask = 24,
    /// The sessions of the conversations of chat clients.
    Conversation = 25,
}

/// Writes a record and replaces an earlier record with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Bytes,
}

/// Deletes a record. Has no effect if the record does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    pub table: Table,
    pub key: Vec<u8>,
}

/// The value that a record must have at the commit. `None`: the record must not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Option<Bytes>,
}

/// A record that a scan returns: key and value.
pub type Record = (Vec<u8>, Bytes);
