//! The handle on all webhooks, with their state in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::delivery::{DeliveryRecord, WebhookRecord, delivery_key, get_delivery, task_body};
use super::target::{self, MasterSecret, TargetError};

use crate::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{Ids, Timestamp, UserId};
use events::api::{Task, Webhook, WebhookDelivery};
use events::event::{TASK_ENDED, webhook_types};
use log::eventlog::{
    Closed, EventLog, ReadError, RecordPages, Records, Selected, from_json, user_key, user_prefix,
};
use log::store::Table;
use outgoing::{
    AddressRule, Client, ClientOptions, HostPattern, ProxyVariables, TlsError, is_public,
};

const MAX_WEBHOOKS: usize = 64;
/// The number of deliveries that wait or are repeated. Beyond it, the followers wait: the log keeps the events.
pub(super) const MAX_PENDING: usize = 10_000;

pub struct WebhookOptions {
    /// The hosts to which deliveries may go. Without one, webhooks are disabled.
    pub allowed_hosts: Vec<HostPattern>,
    /// Certificates in PEM that are trusted in addition to those of the system.
    pub ca_certificates: Option<Vec<u8>>,
    pub proxies: ProxyVariables,
    pub secret_file: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("could not read the webhooks")]
    Records(#[from] ReadError),
    #[error("could not open the secret of webhooks: {}", .path.display())]
    Secret {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not create the client of webhooks")]
    Tls(#[from] TlsError),
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("webhooks are disabled: the operator permits hosts with `webhooks.allowed_hosts`")]
    Disabled,
    #[error(transparent)]
    Url(#[from] TargetError),
    #[error("expected at least one event type, each once, of: {}", webhook_types().join(", "))]
    Events,
    #[error("too many webhooks (limit {MAX_WEBHOOKS}): delete one first")]
    TooMany,
    #[error(transparent)]
    Closed(#[from] Closed),
}

#[derive(Debug, thiserror::Error)]
pub enum RepeatError {
    #[error("no such delivery")]
    Unknown,
    #[error("the webhook of the delivery was deleted")]
    Deleted,
    #[error("too many deliveries wait (limit {MAX_PENDING}): try again later")]
    TooMany,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

#[derive(Clone)]
pub struct Webhooks(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) log: EventLog,
    pub(super) ids: Ids,
    pub(super) retry_unit: Duration,
    pub(super) shutdown: Shutdown,
    pub(super) allowed_hosts: Vec<HostPattern>,
    /// `None` if webhooks are disabled.
    pub(super) outgoing: Option<Outgoing>,
    state: Mutex<State>,
    /// Notifies the sender of deliveries that wait.
    pub(super) pending_added: Notify,
    /// Notifies the followers of ended deliveries.
    pending_removed: Notify,
    pub(super) version: watch::Sender<u64>,
}

pub(super) struct Outgoing {
    pub(super) client: Client,
    pub(super) secret: MasterSecret,
}

#[derive(Default)]
struct State {
    webhooks: BTreeMap<(UserId, Uuid), WebhookRecord>,
    followed: BTreeSet<UserId>,
    pending: BTreeMap<Uuid, Pending>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Receiver {
    Webhook(Uuid),
    /// The host of a URL that a client named for one task.
    Callback(String),
}

#[derive(Clone)]
pub(super) struct Pending {
    pub(super) user: UserId,
    pub(super) receiver: Receiver,
    pub(super) due: Timestamp,
    pub(super) is_running: bool,
}

impl State {
    /// Whether a delivery may be sent: its webhook exists, or it belongs to a task.
    fn accepts(&self, user: &UserId, webhook: Option<Uuid>) -> bool {
        webhook.is_none_or(|webhook| self.webhooks.contains_key(&(user.clone(), webhook)))
    }
}

impl Webhooks {
    pub(super) async fn read(
        options: WebhookOptions,
        log: EventLog,
        ids: Ids,
        limits: &Limits,
        shutdown: &Shutdown,
    ) -> Result<Self, OpenError> {
        let outgoing = if options.allowed_hosts.is_empty() {
            None
        } else {
            Some(outgoing(&options, limits)?)
        };
        let mut state = State::default();
        let mut pages = RecordPages::of(&log, Table::Webhook);
        while let Some(page) = pages.next::<WebhookRecord>().await? {
            for (user, record) in page {
                let key = (user, record.webhook.webhook_id);
                state.webhooks.insert(key, record);
            }
        }
        let mut pages = RecordPages::of(&log, Table::WebhookDelivery);
        while let Some(page) = pages.next::<DeliveryRecord>().await? {
            let waiting = page
                .iter()
                .filter_map(|(user, record)| pending(user, &record.delivery));
            state.pending.extend(waiting);
        }
        Ok(Self(Arc::new(Inner {
            log,
            ids,
            retry_unit: limits.webhook_retry_unit,
            shutdown: shutdown.clone(),
            allowed_hosts: options.allowed_hosts,
            outgoing,
            state: Mutex::new(state),
            pending_added: Notify::new(),
            pending_removed: Notify::new(),
            version: watch::Sender::new(0),
        })))
    }

    pub async fn create(
        &self,
        user: &UserId,
        url: &str,
        events: Vec<String>,
    ) -> Result<Webhook, CreateError> {
        self.check_callback(url)?;
        let known = webhook_types();
        let distinct: BTreeSet<_> = events.iter().collect();
        if events.is_empty()
            || distinct.len() != events.len()
            || !events.iter().all(|event| known.contains(&event.as_str()))
        {
            return Err(CreateError::Events);
        }
        let webhook = Webhook {
            webhook_id: self.0.ids.uuid(),
            url: url.to_owned(),
            events,
            created_at: self.0.ids.now(),
            gone: false,
        };
        let key = (user.clone(), webhook.webhook_id);
        let record = WebhookRecord {
            webhook,
            after_pos: self.0.log.committed_position(),
        };
        {
            let mut state = self.state();
            if state.webhooks.keys().filter(|(of, _)| of == user).count() >= MAX_WEBHOOKS {
                return Err(CreateError::TooMany);
            }
            state.webhooks.insert(key.clone(), record.clone());
        }
        if let Err(error) = self.0.log.write(record.put(user)).await {
            self.state().webhooks.remove(&key);
            return Err(error.into());
        }
        self.0.version.send_modify(|version| *version += 1);
        Ok(record.webhook)
    }

    pub fn check_callback(&self, url: &str) -> Result<(), CreateError> {
        if self.0.outgoing.is_none() {
            return Err(CreateError::Disabled);
        }
        target::check(url, &self.0.allowed_hosts)?;
        Ok(())
    }

    /// Commits the records of a task that has ended, together with the deliveries that report its end. It does not wait while
    /// many deliveries wait: a task adds few, and a receiver must not delay tasks.
    pub async fn commit_task_end(
        &self,
        user: &UserId,
        task: &Task,
        callback: Option<&str>,
        records: Records,
    ) -> Result<(), Closed> {
        let mut receivers = Vec::new();
        for record in self.list(user) {
            if record.selects(TASK_ENDED) {
                receivers.push((Some(record.webhook.webhook_id), record.webhook.url));
            }
        }
        if let Some(url) = callback
            && self.0.outgoing.is_some()
        {
            receivers.push((None, url.to_owned()));
        }
        let ids = &self.0.ids;
        let body = task_body(task, ids.now());
        let deliveries: Vec<_> = receivers
            .into_iter()
            .map(|(webhook, url)| {
                DeliveryRecord::new(ids, webhook, url, TASK_ENDED, task.session_id, body.clone())
            })
            .collect();
        self.store_deliveries(user, &deliveries, records).await
    }

    /// Deletes a webhook with its waiting deliveries. Returns false if the user has no such webhook.
    pub async fn delete(&self, user: &UserId, id: Uuid) -> Result<bool, Closed> {
        let mut records = Records::default().delete(Table::Webhook, user_key(user, id.as_u128()));
        {
            let mut state = self.state();
            if state.webhooks.remove(&(user.clone(), id)).is_none() {
                return Ok(false);
            }
            let waiting = state.pending.extract_if(.., |_, pending| {
                pending.receiver == Receiver::Webhook(id) && pending.user == *user
            });
            for (delivery, _) in waiting {
                records = records.delete(Table::WebhookDelivery, delivery_key(user, delivery));
            }
        }
        self.0.pending_removed.notify_waiters();
        self.0.version.send_modify(|version| *version += 1);
        self.0.log.write(records).await?;
        Ok(true)
    }

    pub fn list(&self, user: &UserId) -> Vec<WebhookRecord> {
        let state = self.state();
        let of_user = state.webhooks.iter().filter(|((of, _), _)| of == user);
        of_user.map(|(_, record)| record.clone()).collect()
    }

    /// The number of deliveries that wait, over all users.
    pub fn pending_count(&self) -> usize {
        self.state().pending.len()
    }

    /// The text of the secret that signs the deliveries of a user. `None` if webhooks are disabled.
    pub fn signing_secret(&self, user: &UserId) -> Option<String> {
        self.0
            .outgoing
            .as_ref()
            .map(|outgoing| outgoing.secret.of_user(user).text())
    }

    pub async fn deliveries(
        &self,
        user: &UserId,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Selected<WebhookDelivery>, ReadError> {
        RecordPages::below(&self.0.log, Table::WebhookDelivery, user_prefix(user))
            .after(before.map(|before| delivery_key(user, before)))
            .select(limit, |value| {
                let record = from_json::<DeliveryRecord>(value);
                Ok(record.map(|record| record.delivery))
            })
            .await
    }

    pub async fn repeat(&self, user: &UserId, id: Uuid) -> Result<WebhookDelivery, RepeatError> {
        let found = get_delivery(&self.0.log, user, id).await?;
        let mut record = found.ok_or(RepeatError::Unknown)?;
        let now = self.0.ids.now();
        {
            let mut state = self.state();
            if !state.accepts(user, record.delivery.webhook_id) {
                return Err(RepeatError::Deleted);
            }
            if let Some(waiting) = state.pending.get_mut(&id) {
                waiting.due = now;
                self.0.pending_added.notify_one();
                return Ok(record.delivery);
            }
            if state.pending.len() >= MAX_PENDING {
                return Err(RepeatError::TooMany);
            }
        }
        record.repeat(now);
        self.store_deliveries(user, std::slice::from_ref(&record), Records::default())
            .await?;
        Ok(record.delivery)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.0.state.lock())
    }

    /// The users that have webhooks and whose log is not read yet. They are followed from now on.
    pub(super) fn begin_followers(&self) -> Vec<UserId> {
        let mut state = self.state();
        let users: BTreeSet<_> = state
            .webhooks
            .keys()
            .map(|(user, _)| user.clone())
            .collect();
        users
            .into_iter()
            .filter(|user| state.followed.insert(user.clone()))
            .collect()
    }

    /// Whether a follower continues. It ends with the last webhook of its user.
    pub(super) fn is_followed(&self, user: &UserId) -> bool {
        let mut state = self.state();
        let continues = state.webhooks.keys().any(|(of, _)| of == user);
        if !continues {
            state.followed.remove(user);
        }
        continues
    }

    pub(super) async fn room(&self) {
        loop {
            let mut removed = std::pin::pin!(self.0.pending_removed.notified());
            removed.as_mut().enable();
            if self.state().pending.len() < MAX_PENDING {
                return;
            }
            removed.await;
        }
    }

    /// Stores deliveries with other records in one commit, and passes them to the sender.
    pub(super) async fn store_deliveries(
        &self,
        user: &UserId,
        deliveries: &[DeliveryRecord],
        records: Records,
    ) -> Result<(), Closed> {
        let put = |records, record: &DeliveryRecord| record.put(user, records);
        self.0
            .log
            .write(deliveries.iter().fold(records, put))
            .await?;
        let mut state = self.state();
        for record in deliveries {
            // A webhook that was deleted during the commit gets no deliveries.
            if let Some((id, waiting)) = pending(user, &record.delivery)
                && state.accepts(user, record.delivery.webhook_id)
            {
                state.pending.insert(id, waiting);
            }
        }
        drop(state);
        self.0.pending_added.notify_one();
        Ok(())
    }

    pub(super) fn with_pending<R>(
        &self,
        change: impl FnOnce(&mut BTreeMap<Uuid, Pending>) -> R,
    ) -> R {
        change(&mut self.state().pending)
    }

    /// Stores the state of a delivery after an attempt. A deleted delivery is not stored again.
    pub(super) async fn finish_attempt(
        &self,
        user: &UserId,
        record: &DeliveryRecord,
    ) -> Result<(), Closed> {
        let id = record.delivery.delivery_id;
        if !self.with_pending(|pending| pending.contains_key(&id)) {
            return Ok(());
        }
        let records = record.put(user, Records::default());
        self.0.log.write(records).await?;
        self.with_pending(|all| match record.delivery.next_attempt_at {
            Some(next_attempt_at) => {
                if let Some(waiting) = all.get_mut(&id) {
                    waiting.due = next_attempt_at;
                    waiting.is_running = false;
                }
            }
            None => drop(all.remove(&id)),
        });
        self.0.pending_removed.notify_waiters();
        Ok(())
    }

    /// Ends the deliveries of a webhook whose receiver has answered 410.
    pub(super) async fn mark_gone(&self, user: &UserId, id: Uuid) -> Result<(), Closed> {
        let records = {
            let mut state = self.state();
            let Some(record) = state.webhooks.get_mut(&(user.clone(), id)) else {
                return Ok(());
            };
            record.webhook.gone = true;
            record.put(user)
        };
        self.0.version.send_modify(|version| *version += 1);
        self.0.log.write(records).await
    }
}

fn outgoing(options: &WebhookOptions, limits: &Limits) -> Result<Outgoing, OpenError> {
    let path = options.secret_file.clone();
    let secret = MasterSecret::open(&path).map_err(|source| OpenError::Secret { path, source })?;
    let is_permitted = if limits.webhooks_to_loopback {
        |address| is_public(address) || address.is_loopback()
    } else {
        is_public
    };
    let client = Client::new(ClientOptions {
        proxies: &options.proxies,
        uses_tls: true,
        ca_certificates: options.ca_certificates.as_deref(),
        addresses: AddressRule::Only(is_permitted),
    })?;
    Ok(Outgoing { client, secret })
}

/// `None` if the delivery is finished.
fn pending(user: &UserId, delivery: &WebhookDelivery) -> Option<(Uuid, Pending)> {
    let receiver = match delivery.webhook_id {
        Some(webhook) => Receiver::Webhook(webhook),
        None => Receiver::Callback(target::host(&delivery.url)),
    };
    let pending = Pending {
        user: user.clone(),
        receiver,
        due: delivery.next_attempt_at?,
        is_running: false,
    };
    Some((delivery.delivery_id, pending))
}
