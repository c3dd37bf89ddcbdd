//! Reads the log of a tenant and creates the deliveries of its webhooks.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, sleep};

use super::delivery::Delivery;
use super::handle::Webhooks;
use super::message;
use super::records::{self, FollowerPosition};
use super::webhook::Webhook;
use crate::event::EventRef;
use crate::eventlog::{Closed, GlobalScope, Item, ReadError, Reader, Records, Run, Start};
use crate::types::{SessionId, Tenant};

/// How often a position without deliveries is stored.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);
/// The delay after a failed read of the log.
const READ_RETRY: Duration = Duration::from_secs(5);
/// The bodies of one commit, in bytes.
const MAX_COMMIT_BYTES: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Runs until the drain, or until the tenant has no webhook.
pub(super) async fn run(webhooks: Webhooks, tenant: Tenant) {
    let shutdown = webhooks.shutdown().clone();
    loop {
        let ended = tokio::select! {
            ended = follow(&webhooks, &tenant) => ended,
            () = shutdown.drain_started() => return,
        };
        match ended {
            Ok(()) | Err(FollowError::Closed(_)) => return,
            Err(FollowError::Read(error)) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not read events for webhooks; trying again"
                );
            }
        }
        tokio::select! {
            () = sleep(READ_RETRY) => {}
            () = shutdown.drain_started() => return,
        }
    }
}

async fn follow(webhooks: &Webhooks, tenant: &Tenant) -> Result<(), FollowError> {
    let mut changes = webhooks.changes();
    let mut follower = Follower::open(webhooks, tenant).await?;
    let mut save = tokio::time::interval(SAVE_INTERVAL);
    save.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while webhooks.is_followed(tenant) {
        tokio::select! {
            // A new webhook is known before its first event is read: its creation was committed before it.
            biased;
            _ = changes.changed() => follower.selected = webhooks.list(tenant),
            item = follower.reader.next() => follower.handle(item?).await?,
            _ = save.tick() => follower.save().await?,
        }
    }
    Ok(())
}

struct Follower<'a> {
    webhooks: &'a Webhooks,
    tenant: &'a Tenant,
    reader: Reader,
    selected: Vec<Webhook>,
    saved_pos: u64,
}

impl<'a> Follower<'a> {
    /// Continues at the stored position, but not before the oldest webhook.
    async fn open(webhooks: &'a Webhooks, tenant: &'a Tenant) -> Result<Self, FollowError> {
        let (log, selected) = (webhooks.log(), webhooks.list(tenant));
        let created = selected
            .iter()
            .map(|webhook| webhook.after_pos)
            .min()
            .unwrap_or_default();
        // The event at a webhook's position can be committed and not yet published.
        let created = created.min(log.position().pos);
        let start = match records::get_position(log, tenant).await? {
            Some(stored) if stored.epoch == log.epoch() => Start::After(stored.pos.max(created)),
            // The log was restored from a copy: its later events are other ones.
            Some(_) => Start::Tail,
            None => Start::After(created),
        };
        let scope = GlobalScope {
            tenant: tenant.clone(),
            sessions: None,
        };
        let reader = log.global_reader(scope, start).await?;
        Ok(Self {
            webhooks,
            tenant,
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

    /// Stores the deliveries of a run, in several commits if they are large.
    async fn deliver(&mut self, run: &Run) -> Result<(), FollowError> {
        let (mut created, mut bytes) = (Vec::new(), 0);
        for event in run.events() {
            let pos = run.pos(event.seq());
            for webhook in self
                .selected
                .iter()
                .filter(|webhook| webhook.selects(event.kind(), pos))
            {
                let delivery = self.delivery(webhook, &event, run.session);
                bytes += delivery.body.len();
                created.push(delivery);
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

    fn delivery(&self, webhook: &Webhook, event: &EventRef<'_>, session: SessionId) -> Delivery {
        let (ids, now) = (self.webhooks.ids(), self.webhooks.ids().now());
        let message = (
            event.kind(),
            Some(session),
            message::of_event(event, session, now),
        );
        Delivery::new(ids.uuid(), (Some(webhook.id), &webhook.url), message, now)
    }

    async fn store(&mut self, deliveries: Vec<Delivery>, pos: u64) -> Result<(), FollowError> {
        self.webhooks.room().await;
        let records = self.position(pos);
        Ok(self
            .webhooks
            .store_deliveries(self.tenant, &deliveries, records)
            .await?)
    }

    fn position(&mut self, pos: u64) -> Records {
        self.saved_pos = pos;
        let position = FollowerPosition {
            epoch: self.webhooks.log().epoch(),
            pos,
        };
        records::put_position(self.tenant, &position)
    }

    async fn save(&mut self) -> Result<(), FollowError> {
        if self.reader.cursor() != self.saved_pos {
            let records = self.position(self.reader.cursor());
            self.webhooks.log().write(records).await?;
        }
        Ok(())
    }
}
