//! Sends waiting deliveries and deletes old ones.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Request, header};
use http_body_util::Full;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::delivery::{DeliveryRecord, Outcome, delivery_key, get_delivery};
use super::handle::{Receiver, Webhooks};
use super::target;
use base::telemetry::metrics;
use base::types::UserId;
use events::api::WebhookDeliveryState;
use log::eventlog;
use log::store::Table;
use outgoing::read_body;

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// The number of attempts at the same time, in total and for one receiver.
const MAX_RUNNING: usize = 16;
const MAX_RUNNING_OF_RECEIVER: usize = 4;
/// The response body is not used. A longer one closes the connection.
const MAX_RESPONSE_BYTES: usize = 16 << 10;
/// A wall clock that jumps delays an attempt by this time at most.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
const READ_RETRY: Duration = Duration::from_secs(5);
/// The time for running attempts at a stop. Attempts that do not end are repeated after the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// How often old deliveries are deleted, their age, and their number for one user.
const PRUNE_INTERVAL: Duration = Duration::from_mins(10);
const MAX_AGE: Duration = Duration::from_hours(7 * 24);
const MAX_FINISHED: usize = 1000;

pub(super) async fn run(webhooks: Webhooks) {
    let mut running = FuturesUnordered::new();
    let mut prune_at = Instant::now();
    loop {
        if Instant::now() >= prune_at {
            prune_at = Instant::now() + PRUNE_INTERVAL;
            prune(&webhooks).await;
        }
        let (started, next) = begin_due(&webhooks);
        running.extend(
            started
                .into_iter()
                .map(|(id, user)| attempt(&webhooks, user, id)),
        );
        let next = next.min(prune_at);
        tokio::select! {
            () = webhooks.0.shutdown.drain_started() => break,
            () = webhooks.0.pending_added.notified() => {}
            () = sleep_until(next) => {}
            Some(()) = running.next() => {}
        }
    }
    let ends = async { while running.next().await.is_some() {} };
    let _ = timeout(STOP_TIMEOUT, ends).await;
}

/// Marks due deliveries as running. Also returns the time of the next one.
fn begin_due(webhooks: &Webhooks) -> (Vec<(Uuid, UserId)>, Instant) {
    let now = webhooks.0.ids.now();
    webhooks.with_pending(|all| {
        let mut running: HashMap<Receiver, usize> = HashMap::new();
        let mut total = 0;
        for delivery in all.values().filter(|delivery| delivery.is_running) {
            *running.entry(delivery.receiver.clone()).or_default() += 1;
            total += 1;
        }
        let mut started = Vec::new();
        let mut next = LONGEST_WAIT;
        for (id, delivery) in all.iter_mut().filter(|(_, delivery)| !delivery.is_running) {
            let of_receiver = running.entry(delivery.receiver.clone()).or_default();
            if total >= MAX_RUNNING || *of_receiver >= MAX_RUNNING_OF_RECEIVER {
                continue;
            }
            match delivery.due.since(now) {
                Duration::ZERO => {
                    delivery.is_running = true;
                    *of_receiver += 1;
                    total += 1;
                    started.push((*id, delivery.user.clone()));
                }
                wait => next = next.min(wait),
            }
        }
        (started, Instant::now() + next)
    })
}

async fn attempt(webhooks: &Webhooks, user: UserId, id: Uuid) {
    let mut record = match get_delivery(&webhooks.0.log, &user, id).await {
        Ok(Some(record)) if !record.is_finished() => record,
        Ok(_) => return webhooks.with_pending(|all| drop(all.remove(&id))),
        Err(error) => {
            tracing::error!(%id, error = &error as &dyn std::error::Error, "could not read a delivery of a webhook");
            sleep(READ_RETRY).await;
            return webhooks.with_pending(|all| {
                if let Some(waiting) = all.get_mut(&id) {
                    waiting.is_running = false;
                }
            });
        }
    };
    let outcome = timeout(ATTEMPT_TIMEOUT, send(webhooks, &user, &record)).await;
    let seconds = ATTEMPT_TIMEOUT.as_secs();
    let outcome = outcome
        .unwrap_or_else(|_| Outcome::Failed(format!("no response within {seconds} seconds")));
    let gone = record.attempted(outcome, webhooks.0.ids.now(), webhooks.0.retry_unit);
    let outcome = match record.delivery.state {
        WebhookDeliveryState::Delivered => "delivered",
        WebhookDeliveryState::Pending => "retried",
        WebhookDeliveryState::Failed => "failed",
    };
    metrics().webhook_attempts(outcome, 1);
    if gone && let Some(webhook) = record.delivery.webhook_id {
        tracing::warn!(%webhook, "a receiver has answered 410; its webhook gets no more deliveries");
        let _ = webhooks.mark_gone(&user, webhook).await;
    }
    // If the log is closed, the delivery is sent again after the next start.
    let _ = webhooks.finish_attempt(&user, &record).await;
}

async fn send(webhooks: &Webhooks, user: &UserId, record: &DeliveryRecord) -> Outcome {
    let Some(outgoing) = &webhooks.0.outgoing else {
        return Outcome::Failed("webhooks are disabled".to_owned());
    };
    let url = match target::check(&record.delivery.url, &webhooks.0.allowed_hosts) {
        Ok(url) => url,
        Err(error) => return Outcome::Failed(format!("the URL {error}")),
    };
    let id = record.delivery.delivery_id.to_string();
    let seconds = webhooks.0.ids.now().as_millis() / 1000;
    let signature = outgoing
        .secret
        .of_user(user)
        .sign(&id, seconds, record.body.as_bytes());
    let request = Request::post(url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(
            header::USER_AGENT,
            concat!("acp-gateway/", env!("CARGO_PKG_VERSION")),
        )
        .header("webhook-id", id)
        .header("webhook-timestamp", seconds.to_string())
        .header("webhook-signature", signature)
        .body(Full::new(Bytes::from(record.body.clone())));
    let Ok(request) = request else {
        return Outcome::Failed("the URL is not valid".to_owned());
    };
    let response = match outgoing.client.send(request).await {
        Ok(response) => response,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    // The status is the result. Reading the body permits another request on the connection.
    let _ = read_body(response, MAX_RESPONSE_BYTES).await;
    Outcome::Answered {
        status,
        retry_after: retry_after.map(Duration::from_secs),
    }
}

async fn prune(webhooks: &Webhooks) {
    let pruned = eventlog::prune(
        &webhooks.0.log,
        Table::WebhookDelivery,
        webhooks.0.ids.now().before(MAX_AGE),
        MAX_FINISHED,
        |record: &DeliveryRecord| record.is_finished().then_some(record.delivery.created_at),
        |record, user, records| {
            let key = delivery_key(user, record.delivery.delivery_id);
            records.delete(Table::WebhookDelivery, key)
        },
    );
    if let Err(error) = pruned.await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not read the deliveries of webhooks"
        );
    }
}
