//! The tasks of webhooks.

use super::handle::{OpenError, WebhookOptions, Webhooks};
use super::{follower, sender};
use crate::eventlog::EventLog;
use crate::shutdown::Shutdown;
use crate::types::{Ids, Limits};

/// Reads all records. If webhooks are enabled, also starts the sender, and a follower for each tenant that has webhooks.
pub async fn start(
    options: WebhookOptions,
    log: EventLog,
    (ids, limits, shutdown): (Ids, &Limits, &Shutdown),
) -> Result<Webhooks, OpenError> {
    let webhooks = Webhooks::read(options, log, (ids, limits, shutdown)).await?;
    if webhooks.outgoing().is_some() {
        shutdown.spawn(sender::run(webhooks.clone()));
        shutdown.spawn(start_followers(webhooks.clone(), shutdown.clone()));
    }
    Ok(webhooks)
}

async fn start_followers(webhooks: Webhooks, shutdown: Shutdown) {
    let mut changes = webhooks.changes();
    loop {
        changes.mark_unchanged();
        for tenant in webhooks.begin_followers() {
            shutdown.spawn(follower::run(webhooks.clone(), tenant));
        }
        tokio::select! {
            () = shutdown.drain_started() => return,
            _ = changes.changed() => {}
        }
    }
}
