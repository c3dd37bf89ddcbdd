//! Tickets: credentials in the URL of a stream, because `EventSource` cannot send a key.
//!
//! A ticket is valid for its principal and its paths. It expires some time after its creation if no stream
//! uses it. A stream keeps its ticket valid, and so does the time after the last stream, because an
//! `EventSource` reconnects to the same URL. An `EventSource` never retries after a 401, so tickets survive a
//! restart of the gateway: a ticket is stored before the client receives it, and its expiry is stored in the
//! background.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::key::{KeyHash, KeyId};
use super::keys::{Keys, Verified};
use crate::shutdown::{Shutdown, sound};
use crate::store::{Batch, CommitError, Delete, EventStore, Put, ReadError, Table};
use crate::types::{Ids, Limits, Timestamp};

/// How often the expiry of tickets with open streams is stored again. The stored expiry is later by this
/// interval, so that a ticket never expires early after a restart.
const STAMP: Duration = Duration::from_mins(1);
const PAGE: usize = 500;

/// A handle to the valid tickets that is cheap to clone.
#[derive(Debug, Clone)]
pub struct Tickets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn EventStore>,
    ids: Ids,
    unused: Duration,
    after: Duration,
    each: usize,
    /// By the hash of their text, for the same reason as keys.
    tickets: Mutex<HashMap<KeyHash, Ticket>>,
    /// Held from reading the tickets until their commit, so that commits have the order of the reads.
    books: Mutex<()>,
    /// Wakes the flush task.
    changed: Notify,
}

#[derive(Debug)]
struct Ticket {
    holder: Verified,
    paths: Vec<String>,
    streams: usize,
    /// When the ticket expires if it has no open stream.
    until: Instant,
    /// The stored value of `expires_at`.
    stored: Instant,
}

impl Ticket {
    fn holds(&self, now: Instant) -> bool {
        self.streams > 0 || now < self.until
    }

    fn record(&self, hash: KeyHash, until: Timestamp) -> Put {
        let record =
            TicketRecord { key: self.holder.key.as_str().to_owned(), paths: self.paths.clone(), until };
        let value = serde_json::to_vec(&record).expect("a ticket record serializes to JSON").into();
        Put { table: Table::Ticket, key: hash.as_bytes().to_vec(), value }
    }
}

/// The record of a ticket in `Table::Ticket`, stored under its hash. Its principal is that of its key.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct TicketRecord {
    key: String,
    paths: Vec<String>,
    until: Timestamp,
}

/// A new ticket. Its text is not available later.
pub struct IssuedTicket {
    pub ticket: String,
    /// When the ticket expires if no stream uses it.
    pub expires_at: Timestamp,
}

impl fmt::Debug for IssuedTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedTicket").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    #[error("this ticket is not valid")]
    Unknown,
    #[error("this ticket is not valid for this path")]
    OtherPath,
}

#[derive(Debug, thiserror::Error)]
pub enum TicketStoreError {
    #[error("could not read the tickets from the store")]
    Read(#[from] ReadError),
    #[error("could not write a ticket to the store")]
    Commit(#[from] CommitError),
}

impl Tickets {
    /// Loads the stored tickets and deletes those whose key has ended. Blocks on the store.
    pub fn open(
        store: Arc<dyn EventStore>,
        ids: Ids,
        limits: &Limits,
        keys: &Keys,
    ) -> Result<Self, TicketStoreError> {
        let tickets = Self(Arc::new(Inner {
            store,
            ids,
            unused: limits.ticket_unused,
            after: limits.ticket_after,
            each: limits.tickets,
            tickets: Mutex::default(),
            books: Mutex::default(),
            changed: Notify::new(),
        }));
        tickets.read_in(keys)?;
        Ok(tickets)
    }

    fn read_in(&self, keys: &Keys) -> Result<(), TicketStoreError> {
        let (instant, now) = (Instant::now(), self.0.ids.now().as_millis());
        let (mut over, mut after) = (Vec::new(), None);
        loop {
            let page = self.0.store.scan(Table::Ticket, b"", after.as_deref(), PAGE)?;
            for (key, value) in &page {
                let record: Option<TicketRecord> = serde_json::from_slice(value).ok();
                let hash = key.as_slice().try_into().ok().map(KeyHash::from_bytes);
                let held = record.zip(hash).and_then(|(record, hash)| {
                    let left = u64::try_from(record.until.as_millis() - now).ok().filter(|left| *left > 0)?;
                    // If the wall clock was set back, the ticket must still expire soon.
                    let until = instant + Duration::from_millis(left).min(self.0.after + STAMP);
                    let holder = keys.holder(&KeyId::of(&record.key))?;
                    Some((hash, Ticket { holder, paths: record.paths, streams: 0, until, stored: until }))
                });
                match held {
                    Some((hash, ticket)) => drop(self.tickets().insert(hash, ticket)),
                    None => over.push(Delete { table: Table::Ticket, key: key.clone() }),
                }
            }
            after = page.last().map(|(key, _)| key.clone());
            if page.len() < PAGE {
                break;
            }
        }
        self.commit(Vec::new(), over)
    }

    /// Issues a ticket for GET on these paths (without a query), with the rights of `holder`. Blocks on the
    /// store.
    ///
    /// At the limit for a principal, this evicts unused tickets, those that expire first.
    pub fn issue(&self, holder: &Verified, paths: Vec<String>) -> Result<IssuedTicket, TicketStoreError> {
        let text = URL_SAFE_NO_PAD.encode(self.0.ids.secret());
        let hash = KeyHash::of(&text);
        let now = Instant::now();
        let until = now + self.0.unused;
        let expires_at = self.0.ids.now().after(self.0.unused);
        let ticket = Ticket { holder: holder.clone(), paths, streams: 0, until, stored: until };
        let _alone = sound(self.0.books.lock());
        let surplus = self.surplus(holder);
        let deletes = surplus.iter().map(|hash| delete(*hash)).collect();
        self.commit(vec![ticket.record(hash, expires_at)], deletes)?;
        let mut tickets = self.tickets();
        for hash in surplus {
            match tickets.get_mut(&hash) {
                // A client has opened a stream with this ticket meanwhile. Keep the ticket, and store it
                // again.
                Some(ticket) if ticket.streams > 0 => ticket.stored = now,
                Some(_) | None => drop(tickets.remove(&hash)),
            }
        }
        tickets.insert(hash, ticket);
        drop(tickets);
        self.0.changed.notify_one();
        Ok(IssuedTicket { ticket: text, expires_at })
    }

    /// The tickets to evict before the principal receives another one: those without a stream that expire
    /// first.
    fn surplus(&self, holder: &Verified) -> Vec<KeyHash> {
        let tickets = self.tickets();
        let of_holder = |ticket: &&Ticket| {
            let (theirs, ours) = (&ticket.holder.principal, &holder.principal);
            theirs.tenant == ours.tenant && theirs.id == ours.id
        };
        let count = tickets.values().filter(of_holder).count();
        let idle = tickets.iter().filter(|(_, ticket)| of_holder(ticket) && ticket.streams == 0);
        let mut idle: Vec<_> = idle.map(|(hash, ticket)| (ticket.until, *hash)).collect();
        idle.sort_by_key(|(until, _)| *until);
        idle.into_iter().take((count + 1).saturating_sub(self.0.each)).map(|(_, hash)| hash).collect()
    }

    /// Opens a stream with a ticket. The returned guard keeps the ticket valid.
    pub fn use_for(&self, presented: &str, path: &str) -> Result<TicketUse, TicketError> {
        let hash = KeyHash::of(presented);
        let now = Instant::now();
        let mut tickets = self.tickets();
        let ticket = tickets.get_mut(&hash).filter(|ticket| ticket.holds(now)).ok_or(TicketError::Unknown)?;
        if !ticket.paths.iter().any(|allowed| allowed == path) {
            return Err(TicketError::OtherPath);
        }
        ticket.streams += 1;
        self.0.changed.notify_one();
        Ok(TicketUse { tickets: self.clone(), hash, verified: ticket.holder.clone() })
    }

    /// Stores changes of the tickets until the stop.
    pub async fn follow(self, shutdown: Shutdown) {
        loop {
            let stop = tokio::select! {
                () = shutdown.soft() => true,
                () = self.0.changed.notified() => false,
                () = tokio::time::sleep(STAMP) => false,
            };
            let tickets = self.clone();
            match shutdown.spawn_blocking(move || tickets.flush()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "could not store tickets; tickets in use may be invalid after a restart"
                    );
                }
                Err(error) => {
                    tracing::error!(%error, "could not store tickets; tickets in use may be invalid after a restart");
                }
            }
            if stop {
                return;
            }
        }
    }

    /// Stores the expiry of each ticket whose stored value is out of date, and deletes expired tickets.
    fn flush(&self) -> Result<(), TicketStoreError> {
        let _alone = sound(self.0.books.lock());
        let now = Instant::now();
        let (wall, after) = (self.0.ids.now(), self.0.after);
        let (mut puts, mut stored, mut over) = (Vec::new(), Vec::new(), Vec::new());
        for (hash, ticket) in self.tickets().iter() {
            if !ticket.holds(now) {
                over.push(*hash);
                continue;
            }
            let until = if ticket.streams > 0 { now + after + STAMP } else { ticket.until };
            let known =
                if ticket.streams > 0 { ticket.stored >= now + after } else { ticket.stored == until };
            if !known {
                puts.push(ticket.record(*hash, wall.after(until - now)));
                stored.push((*hash, until));
            }
        }
        self.commit(puts, over.iter().map(|hash| delete(*hash)).collect())?;
        // Update the memory only after the commit, so that the next flush retries a failed one.
        let mut tickets = self.tickets();
        for hash in over {
            tickets.remove(&hash);
        }
        for (hash, until) in stored {
            if let Some(ticket) = tickets.get_mut(&hash) {
                ticket.stored = until;
            }
        }
        Ok(())
    }

    fn commit(&self, puts: Vec<Put>, deletes: Vec<Delete>) -> Result<(), TicketStoreError> {
        if !puts.is_empty() || !deletes.is_empty() {
            self.0.store.commit(&Batch { puts, deletes, ..Batch::default() })?;
        }
        Ok(())
    }

    fn tickets(&self) -> MutexGuard<'_, HashMap<KeyHash, Ticket>> {
        sound(self.0.tickets.lock())
    }
}

fn delete(hash: KeyHash) -> Delete {
    Delete { table: Table::Ticket, key: hash.as_bytes().to_vec() }
}

/// Keeps a ticket valid while a stream uses it. Drop the guard when the stream ends.
#[derive(Debug)]
pub struct TicketUse {
    tickets: Tickets,
    hash: KeyHash,
    verified: Verified,
}

impl TicketUse {
    pub fn verified(&self) -> &Verified {
        &self.verified
    }
}

impl Drop for TicketUse {
    fn drop(&mut self) {
        if let Some(ticket) = self.tickets.tickets().get_mut(&self.hash) {
            ticket.streams -= 1;
            ticket.until = Instant::now() + self.tickets.0.after;
        }
        self.tickets.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
