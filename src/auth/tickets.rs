//! Tickets: credentials in the URL of a stream, because `EventSource` cannot send a key.
//!
//! A ticket is valid for the user and the scopes of its key, and for its paths. It expires some time after its creation
//! if no stream uses it. A stream keeps its ticket valid, and so does the time after the last stream, because an
//! `EventSource` reconnects to the same URL. An `EventSource` never retries after a 401, so tickets survive a
//! restart of the gateway: a ticket is stored before the client receives it, and its expiry is stored in the
//! background.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::key::{KeyHash, KeyId};
use super::keys::{Keys, Verified, run_blocking, scan_all};

use crate::auth::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{Ids, Timestamp, UserId};
use log::store::{Batch, CommitError, ReadError, RecordState, RecordStore, Table};

/// How often the expiry of tickets with open streams is stored again. The stored expiry is later by this
/// interval, so that a ticket never expires early after a restart.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub struct Tickets(Arc<Inner>);

struct Inner {
    store: Arc<dyn RecordStore>,
    ids: Ids,
    limits: Limits,
    /// By the hash of their text, for the same reason as keys.
    tickets: Mutex<HashMap<KeyHash, Ticket>>,
    /// Held from reading the tickets until their commit, so that commits have the order of the reads.
    store_lock: Mutex<()>,
    flush_requested: Notify,
}

struct Ticket {
    holder: Verified,
    paths: Vec<String>,
    streams: usize,
    expires_at: Instant,
    stored_expires_at: Instant,
}

impl Ticket {
    fn is_valid(&self, now: Instant) -> bool {
        self.streams > 0 || now < self.expires_at
    }

    fn to_record(&self, hash: KeyHash, until: Timestamp) -> RecordState {
        let record = TicketRecord {
            key: self.holder.key.clone(),
            user: self.holder.principal.user.clone(),
            paths: self.paths.clone(),
            until,
        };
        let value = serde_json::to_vec(&record).expect("a ticket record serializes to JSON");
        RecordState::present(Table::Ticket, hash.as_bytes(), value)
    }
}

/// The record of a ticket in `Table::Ticket`, stored under its hash. Its user is that of its key, or one for whom the key acts.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct TicketRecord {
    key: KeyId,
    user: UserId,
    paths: Vec<String>,
    until: Timestamp,
}

pub struct IssuedTicket {
    pub ticket: String,
    pub expires_at: Timestamp,
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
        store: Arc<dyn RecordStore>,
        ids: Ids,
        limits: &Limits,
        keys: &Keys,
    ) -> Result<Self, TicketStoreError> {
        let tickets = Self(Arc::new(Inner {
            store,
            ids,
            limits: limits.clone(),
            tickets: Mutex::default(),
            store_lock: Mutex::default(),
            flush_requested: Notify::new(),
        }));
        tickets.load(keys)?;
        Ok(tickets)
    }

    fn load(&self, keys: &Keys) -> Result<(), TicketStoreError> {
        let instant = Instant::now();
        let now = self.0.ids.now();
        let decode = |hash: &[u8], record: &[u8]| {
            let hash = KeyHash::from_bytes(hash.try_into().ok()?);
            let TicketRecord {
                key,
                user,
                paths,
                until,
            } = serde_json::from_slice(record).ok()?;
            let left = until.since(now);
            if left.is_zero() {
                return None;
            }
            // If the wall clock was set back, the ticket must still expire soon.
            let max_left = self.0.limits.ticket_idle_timeout + REFRESH_INTERVAL;
            let expires_at = instant + left.min(max_left);
            let holder = keys.verified_for(&key, &user)?;
            Some((
                hash,
                Ticket {
                    holder,
                    paths,
                    streams: 0,
                    expires_at,
                    stored_expires_at: expires_at,
                },
            ))
        };
        let mut expired = Vec::new();
        for (key, record) in scan_all(&*self.0.store, Table::Ticket)? {
            match decode(&key, &record) {
                Some((hash, ticket)) => {
                    self.tickets().insert(hash, ticket);
                }
                None => expired.push(RecordState::absent(Table::Ticket, key)),
            }
        }
        self.commit(expired)
    }

    /// Issues a ticket for GET on these paths (without a query), with the rights of `holder`. Blocks on the
    /// store.
    ///
    /// At the limit for a user, this evicts unused tickets, those that expire first.
    pub fn issue(
        &self,
        holder: &Verified,
        paths: Vec<String>,
    ) -> Result<IssuedTicket, TicketStoreError> {
        let text = URL_SAFE_NO_PAD.encode(self.0.ids.secret());
        let hash = KeyHash::of(&text);
        let now = Instant::now();
        let until = now + self.0.limits.ticket_unused_timeout;
        let expires_at = self.0.ids.now().after(self.0.limits.ticket_unused_timeout);
        let ticket = Ticket {
            holder: holder.clone(),
            paths,
            streams: 0,
            expires_at: until,
            stored_expires_at: until,
        };
        let _store_guard = lock_or_abort(self.0.store_lock.lock());
        let surplus = self.tickets_to_evict(holder);
        let mut records = vec![ticket.to_record(hash, expires_at)];
        records.extend(surplus.iter().map(removed));
        self.commit(records)?;
        let mut tickets = self.tickets();
        for hash in surplus {
            match tickets.get_mut(&hash) {
                // A client has opened a stream with this ticket meanwhile. Keep the ticket, and store it
                // again.
                Some(ticket) if ticket.streams > 0 => ticket.stored_expires_at = now,
                Some(_) | None => {
                    tickets.remove(&hash);
                }
            }
        }
        tickets.insert(hash, ticket);
        drop(tickets);
        self.0.flush_requested.notify_one();
        Ok(IssuedTicket {
            ticket: text,
            expires_at,
        })
    }

    /// The tickets to evict before the user receives another one: those without a stream that expire
    /// first.
    fn tickets_to_evict(&self, holder: &Verified) -> Vec<KeyHash> {
        let tickets = self.tickets();
        let user = &holder.principal.user;
        let of_holder = |ticket: &&Ticket| ticket.holder.principal.user == *user;
        let count = tickets.values().filter(of_holder).count();
        let idle = tickets
            .iter()
            .filter(|(_, ticket)| of_holder(ticket) && ticket.streams == 0);
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|(_, ticket)| ticket.expires_at);
        idle.truncate((count + 1).saturating_sub(self.0.limits.max_tickets));
        idle.into_iter().map(|(hash, _)| *hash).collect()
    }

    /// `None` if the ticket is not valid, or not for this path.
    pub fn open_stream(&self, presented: &str, path: &str) -> Option<TicketGuard> {
        let hash = KeyHash::of(presented);
        let now = Instant::now();
        let mut tickets = self.tickets();
        let ticket = tickets.get_mut(&hash)?;
        if !ticket.is_valid(now) || !ticket.paths.iter().any(|allowed| allowed == path) {
            return None;
        }
        ticket.streams += 1;
        self.0.flush_requested.notify_one();
        Some(TicketGuard {
            tickets: self.clone(),
            hash,
            key: ticket.holder.key.clone(),
            user: ticket.holder.principal.user.clone(),
        })
    }

    pub async fn run(self, shutdown: Shutdown) {
        loop {
            let stop = tokio::select! {
                () = shutdown.drain_started() => true,
                () = self.0.flush_requested.notified() => false,
                () = tokio::time::sleep(REFRESH_INTERVAL) => false,
            };
            let tickets = self.clone();
            let failure = "could not store tickets; tickets in use may be invalid after a restart";
            run_blocking(&shutdown, failure, move || tickets.flush()).await;
            if stop {
                return;
            }
        }
    }

    /// Stores the expiry of each ticket whose stored value is out of date, and deletes expired tickets.
    fn flush(&self) -> Result<(), TicketStoreError> {
        let _store_guard = lock_or_abort(self.0.store_lock.lock());
        let now = Instant::now();
        let wall = self.0.ids.now();
        let after = self.0.limits.ticket_idle_timeout;
        let mut records = Vec::new();
        let mut stored = Vec::new();
        let mut expired = Vec::new();
        for (hash, ticket) in self.tickets().iter() {
            if !ticket.is_valid(now) {
                expired.push(*hash);
                continue;
            }
            let stored_until = ticket.stored_expires_at;
            let (until, is_stored) = if ticket.streams > 0 {
                let until = now + after + REFRESH_INTERVAL;
                (until, stored_until >= now + after)
            } else {
                (ticket.expires_at, stored_until == ticket.expires_at)
            };
            if !is_stored {
                records.push(ticket.to_record(*hash, wall.after(until - now)));
                stored.push((*hash, until));
            }
        }
        records.extend(expired.iter().map(removed));
        self.commit(records)?;
        // Update the memory only after the commit, so that the next flush retries a failed one.
        let mut tickets = self.tickets();
        for hash in expired {
            tickets.remove(&hash);
        }
        for (hash, until) in stored {
            if let Some(ticket) = tickets.get_mut(&hash) {
                ticket.stored_expires_at = until;
            }
        }
        Ok(())
    }

    fn commit(&self, records: Vec<RecordState>) -> Result<(), TicketStoreError> {
        if !records.is_empty() {
            self.0.store.commit(&Batch {
                records,
                ..Batch::default()
            })?;
        }
        Ok(())
    }

    fn tickets(&self) -> MutexGuard<'_, HashMap<KeyHash, Ticket>> {
        lock_or_abort(self.0.tickets.lock())
    }
}

fn removed(hash: &KeyHash) -> RecordState {
    RecordState::absent(Table::Ticket, hash.as_bytes())
}

#[derive(derive_more::Debug)]
#[debug("TicketGuard")]
pub struct TicketGuard {
    tickets: Tickets,
    hash: KeyHash,
    pub(super) key: KeyId,
    pub(super) user: UserId,
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        if let Some(ticket) = self.tickets.tickets().get_mut(&self.hash) {
            ticket.streams -= 1;
            ticket.expires_at = Instant::now() + self.tickets.0.limits.ticket_idle_timeout;
        }
        self.tickets.0.flush_requested.notify_one();
    }
}

#[cfg(test)]
mod tests;
