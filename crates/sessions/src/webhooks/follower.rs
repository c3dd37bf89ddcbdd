//! Reads the log of each user that has webhooks, and creates their deliveries.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, sleep};

use super::delivery::{DeliveryRecord, WebhookRecord, event_body};
use super::handle::{OpenError, WebhookOptions, Webhooks};
use super::sender;

use crate::limits::Limits;
use base::shutdown::Shutdown;
use base::types::{Epoch, Ids, UserId};
use log::eventlog::{
    Closed, EventLog, GlobalScope, Item, ReadError, Reader, Records, Run, Start, from_json,
    to_json, user_prefix,
};
use log::store::Table;

const SAVE_INTERVAL: Duration = Duration::from_secs(30);
const READ_RETRY: Duration = Duration::from_secs(5);
const MAX_COMMIT_BYTES: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Runs until the user has no webhook.
async fn run(webhooks: Webhooks, user: UserId) {
    loop {
        match follow(&webhooks, &user).await {
            Ok(()) | Err(FollowError::Closed(_)) => return,
            Err(FollowError::Read(error)) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not read events for webhooks; trying again"
                );
            }
        }
        sleep(READ_RETRY).await;
    }
}

async fn follow(webhooks: &Webhooks, user: &UserId) -> Result<(), FollowError> {
    let mut changes = webhooks.0.version.subscribe();
    let mut follower = Follower::open(webhooks, user).await?;
    let mut save = tokio::time::interval(SAVE_INTERVAL);
    save.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while webhooks.is_followed(user) {
        tokio::select! {
            // A new webhook is known before its first event is read: its creation was committed before it.
            biased;
            _ = changes.changed() => follower.selected = webhooks.list(user),
            item = follower.reader.next() => follower.handle(item?).await?,
            _ = save.tick() => follower.save().await?,
        }
    }
    Ok(())
}

/// The position after the last event whose deliveries are stored.
#[derive(Debug, Serialize, Deserialize)]
struct FollowerPosition {
    epoch: Epoch,
    pos: u64,
}

struct Follower<'a> {
    webhooks: &'a Webhooks,
    user: &'a UserId,
    reader: Reader,
    selected: Vec<WebhookRecord>,
    saved_pos: u64,
}

impl<'a> Follower<'a> {
    /// Continues at the stored position, but not before the oldest webhook.
    async fn open(webhooks: &'a Webhooks, user: &'a UserId) -> Result<Self, FollowError> {
        let log = &webhooks.0.log;
        let selected = webhooks.list(user);
        let created = selected.iter().map(|record| record.after_pos).min();
        // The event at a webhook's position can be committed and not yet published.
        let created = created.unwrap_or_default().min(log.position().pos);
        let stored = log
            .get(Table::WebhookPosition, user_prefix(user))
            .await?
            .and_then(|value| from_json::<FollowerPosition>(&value));
        let start = match stored {
            Some(stored) if stored.epoch == log.epoch() => Start::After(stored.pos.max(created)),
            // The log was restored from a copy: its later events are other ones.
            Some(_) => Start::Tail,
            None => Start::After(created),
        };
        let scope = GlobalScope {
            owner: user.clone(),
            with_shared: false,
            sessions: None,
        };
        let reader = log.global_reader(scope, start).await?;
        Ok(Self {
            webhooks,
            user,
            reader,
            selected,
            saved_pos: 0,
        })
    }

    async fn handle(&mut self, item: Item) -> Result<(), FollowError> {
        match item {
            Item::Run(run) => self.deliver(&run).await?,
            Item::Reset { reason, before, .. } => {
                tracing::warn!(
                    ?reason,
                    position = before,
                    "webhooks miss events that were deleted from the log"
                );
            }
            Item::Ready { .. } | Item::End => {}
        }
        Ok(())
    }

    async fn deliver(&mut self, run: &Run) -> Result<(), FollowError> {
        let ids = &self.webhooks.0.ids;
        let mut created = Vec::new();
        let mut bytes = 0;
        for event in run.events() {
            let pos = run.pos(event.seq());
            for WebhookRecord { webhook, .. } in self
                .selected
                .iter()
                .filter(|record| pos > record.after_pos && record.selects(event.kind()))
            {
                let id = Some(webhook.webhook_id);
                let url = webhook.url.clone();
                let session = run.session;
                let body = event_body(&event, session, ids.now());
                bytes += body.len();
                created.push(DeliveryRecord::new(
                    ids,
                    id,
                    url,
                    event.kind(),
                    Some(session),
                    body,
                ));
            }
            if bytes > MAX_COMMIT_BYTES {
                self.store(std::mem::take(&mut created), pos).await?;
                bytes = 0;
            }
        }
        if !created.is_empty() {
            self.store(created, self.reader.cursor()).await?;
        }
        Ok(())
    }

    async fn store(
        &mut self,
        deliveries: Vec<DeliveryRecord>,
        pos: u64,
    ) -> Result<(), FollowError> {
        self.webhooks.room().await;
        let records = self.position(pos);
        Ok(self
            .webhooks
            .store_deliveries(self.user, &deliveries, records)
            .await?)
    }

    fn position(&mut self, pos: u64) -> Records {
        self.saved_pos = pos;
        let epoch = self.webhooks.0.log.epoch();
        Records::default().put(
            Table::WebhookPosition,
            user_prefix(self.user),
            to_json(&FollowerPosition { epoch, pos }),
        )
    }

    async fn save(&mut self) -> Result<(), FollowError> {
        if self.reader.cursor() != self.saved_pos {
            let records = self.position(self.reader.cursor());
            self.webhooks.0.log.write(records).await?;
        }
        Ok(())
    }
}

/// Reads all records. If webhooks are enabled, also starts the sender, and a follower for each user that has webhooks.
pub async fn start(
    options: WebhookOptions,
    log: EventLog,
    ids: Ids,
    limits: &Limits,
    shutdown: &Shutdown,
) -> Result<Webhooks, OpenError> {
    let webhooks = Webhooks::read(options, log, ids, limits, shutdown).await?;
    if webhooks.0.outgoing.is_some() {
        shutdown.spawn(sender::run(webhooks.clone()));
        shutdown.spawn_until_drain(start_followers(webhooks.clone()));
    }
    Ok(webhooks)
}

async fn start_followers(webhooks: Webhooks) {
    let shutdown = &webhooks.0.shutdown;
    let mut changes = webhooks.0.version.subscribe();
    loop {
        changes.mark_unchanged();
        for user in webhooks.begin_followers() {
            shutdown.spawn_until_drain(run(webhooks.clone(), user));
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
