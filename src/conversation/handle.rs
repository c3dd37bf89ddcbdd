//! Reads and changes of conversations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::record::{Conversation, ConversationKey};
use crate::eventlog::{Closed, EventLog, ReadError, RecordPages, Records, from_json, to_json};
use crate::session::SessionRegistry;
use crate::shutdown::lock_or_abort;
use crate::store::Table;

/// The time between two removals of records whose session no longer exists.
const SWEEP_INTERVAL: Duration = Duration::from_hours(6);
/// The conversations with the same history under one key. Beyond them, the oldest is forgotten.
pub const MAX_OF_HISTORY: usize = 8;

/// A handle that is cheap to clone.
#[derive(Debug, Clone)]
pub struct Conversations {
    log: EventLog,
    locks: Arc<Mutex<HashMap<ConversationKey, Arc<tokio::sync::Mutex<()>>>>>,
}

/// The right to change the conversations of a key. No other request has it.
#[derive(Debug)]
pub struct Locked {
    conversations: Conversations,
    key: ConversationKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Conversations {
    fn new(log: EventLog) -> Self {
        Self {
            log,
            locks: Arc::default(),
        }
    }

    /// Waits until no other request uses the conversation.
    pub async fn lock(&self, key: ConversationKey) -> Locked {
        let lock = Arc::clone(
            lock_or_abort(self.locks.lock())
                .entry(key.clone())
                .or_default(),
        );
        Locked {
            conversations: self.clone(),
            key,
            guard: Some(lock.lock_owned().await),
        }
    }

    /// The conversations under a key, the newest one last: one under an id, and several under a history that they have in common.
    pub async fn get(&self, key: &ConversationKey) -> Result<Vec<Conversation>, ReadError> {
        Ok(self
            .log
            .get(Table::Conversation, key.bytes())
            .await?
            .and_then(|value| from_json(&value))
            .unwrap_or_default())
    }

    /// Removes records whose session no longer exists.
    async fn sweep(&self, sessions: &SessionRegistry) -> Result<(), ReadError> {
        let mut pages = RecordPages::of(&self.log, Table::Conversation);
        while let Some(page) = pages.next_raw().await? {
            let mut records = Records::default();
            for (key, value) in &page {
                let mut exists = false;
                for conversation in from_json::<Vec<Conversation>>(value).unwrap_or_default() {
                    exists |= sessions.exists(conversation.session).await?;
                }
                if !exists {
                    records = records.delete(Table::Conversation, key.clone());
                }
            }
            if !records.is_empty() && self.log.write(records).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Why a conversation was not stored.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl Locked {
    /// Stores a conversation under a key that only holders of this lock write, beside at most `max - 1` others. It replaces
    /// the one of the same session.
    pub async fn put(
        &self,
        key: &ConversationKey,
        conversation: Conversation,
        max: usize,
    ) -> Result<(), PutError> {
        let mut all = self.conversations.get(key).await?;
        all.retain(|other| other.session != conversation.session);
        all.push(conversation);
        let excess = all.len().saturating_sub(max);
        all.drain(..excess);
        let records = Records::default().put(Table::Conversation, key.bytes(), to_json(&all));
        Ok(self.conversations.log.write(records).await?)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut locks = lock_or_abort(self.conversations.locks.lock());
        self.guard = None;
        // Only the table has the lock: nobody waits for it.
        if locks
            .get(&self.key)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(&self.key);
        }
    }
}

/// Starts the removal of old records.
pub fn start(sessions: &SessionRegistry) -> Conversations {
    let context = sessions.context();
    let conversations = Conversations::new(context.log.clone());
    let (sweeper, sessions, shutdown) = (
        conversations.clone(),
        sessions.clone(),
        context.shutdown.clone(),
    );
    context.shutdown.spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
                () = shutdown.drain_started() => return,
            }
            if let Err(error) = sweeper.sweep(&sessions).await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not remove old conversations"
                );
            }
        }
    });
    conversations
}
