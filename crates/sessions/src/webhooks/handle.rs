//! The handle on all webhooks, with their state in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::delivery::{self, Delivery, DeliveryState, EVENT_TYPES, TASK_ENDED, Webhook, task_body};
use super::target::{self, MasterSecret, TargetError};

use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{HostPattern, Ids, Limits, ProxyVariables, SessionId, Tenant, Timestamp};
use log::eventlog::{Closed, EventLog, ReadError, RecordPages, Records, Selected};
use log::store::Table;
use outgoing::{AddressRule, Client, ClientOptions, TlsError, is_public};

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
    #[error("expected at least one event type, each once, of: {}", EVENT_TYPES.join(", "))]
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
    webhooks: BTreeMap<(Tenant, Uuid), Webhook>,
    followed: BTreeSet<Tenant>,
    pending: BTreeMap<Uuid, Pending>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Receiver {
    Webhook(Uuid),
    /// The host of a URL that a client named for one task.
    Callback(String),
}

pub struct TaskReport<'a> {
    pub tenant: &'a Tenant,
    pub callback: Option<&'a str>,
    pub session: Option<SessionId>,
    pub task: Uuid,
    pub data: &'a str,
}

#[derive(Clone)]
pub(super) struct Pending {
    pub(super) tenant: Tenant,
    pub(super) receiver: Receiver,
    pub(super) due: Timestamp,
    pub(super) is_running: bool,
}

impl State {
    /// Whether a delivery may be sent: its webhook exists, or it belongs to a task.
    fn accepts(&self, tenant: &Tenant, webhook: Option<Uuid>) -> bool {
        webhook.is_none_or(|webhook| self.webhooks.contains_key(&(tenant.clone(), webhook)))
    }
}

impl Pending {
    fn webhook(&self) -> Option<Uuid> {
        match self.receiver {
            Receiver::Webhook(webhook) => Some(webhook),
            Receiver::Callback(_) => None,
        }
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
        while let Some(page) = pages.next::<Webhook>().await? {
            state.webhooks.extend(
                page.into_iter()
                    .map(|(tenant, webhook)| ((tenant, webhook.id), webhook)),
            );
        }
        let mut pages = RecordPages::of(&log, Table::WebhookDelivery);
        while let Some(page) = pages.next::<Delivery>().await? {
            state.pending.extend(
                page.iter()
                    .filter_map(|(tenant, delivery)| pending(tenant, delivery)),
            );
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
        tenant: &Tenant,
        url: &str,
        events: Vec<String>,
    ) -> Result<Webhook, CreateError> {
        if self.0.outgoing.is_none() {
            return Err(CreateError::Disabled);
        }
        target::check(url, &self.0.allowed_hosts)?;
        let distinct: BTreeSet<_> = events.iter().collect();
        if events.is_empty()
            || distinct.len() != events.len()
            || !events.iter().all(|event| EVENT_TYPES.contains(&&**event))
        {
            return Err(CreateError::Events);
        }
        let webhook = Webhook {
            id: self.0.ids.uuid(),
            url: url.to_owned(),
            events,
            created_at: self.0.ids.now(),
            after_pos: self.0.log.committed_position(),
            gone: false,
        };
        {
            let mut state = self.state();
            if state.webhooks.keys().filter(|(of, _)| of == tenant).count() >= MAX_WEBHOOKS {
                return Err(CreateError::TooMany);
            }
            state
                .webhooks
                .insert((tenant.clone(), webhook.id), webhook.clone());
        }
        let stored = self
            .0
            .log
            .write(delivery::put_webhook(Records::default(), tenant, &webhook))
            .await;
        if let Err(error) = stored {
            self.state().webhooks.remove(&(tenant.clone(), webhook.id));
            return Err(error.into());
        }
        self.0.version.send_modify(|version| *version += 1);
        Ok(webhook)
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
        report: TaskReport<'_>,
        records: Records,
    ) -> Result<(), Closed> {
        let deliveries = self.task_deliveries(&report);
        self.store_deliveries(report.tenant, &deliveries, records)
            .await
    }

    fn task_deliveries(&self, report: &TaskReport<'_>) -> Vec<Delivery> {
        let selected = self
            .list(report.tenant)
            .into_iter()
            .filter(Webhook::selects_tasks);
        let selected = selected.map(|webhook| (Some(webhook.id), webhook.url));
        let callback = report
            .callback
            .filter(|_| self.0.outgoing.is_some())
            .map(|url| (None, url.to_owned()));
        let now = self.0.ids.now();
        let delivery = |(webhook, url): (Option<Uuid>, String)| {
            let message = (
                TASK_ENDED,
                report.session,
                task_body(report.task, report.data, now),
            );
            Delivery::new(self.0.ids.uuid(), (webhook, &url), message, now)
        };
        selected.chain(callback).map(delivery).collect()
    }

    /// Deletes a webhook with its waiting deliveries. Returns false if the tenant has no such webhook.
    pub async fn delete(&self, tenant: &Tenant, id: Uuid) -> Result<bool, Closed> {
        let (known, waiting) = {
            let mut state = self.state();
            let known = state.webhooks.remove(&(tenant.clone(), id)).is_some();
            let waiting = state.pending.extract_if(.., |_, pending| {
                pending.receiver == Receiver::Webhook(id) && pending.tenant == *tenant
            });
            (
                known,
                waiting.map(|(delivery, _)| delivery).collect::<Vec<_>>(),
            )
        };
        if !known {
            return Ok(false);
        }
        self.0.pending_removed.notify_waiters();
        self.0.version.send_modify(|version| *version += 1);
        let records = delivery::delete_webhook(Records::default(), tenant, id);
        let delete = |records, delivery| delivery::delete_delivery(records, tenant, delivery);
        self.0
            .log
            .write(waiting.into_iter().fold(records, delete))
            .await?;
        Ok(true)
    }

    pub fn list(&self, tenant: &Tenant) -> Vec<Webhook> {
        let state = self.state();
        state
            .webhooks
            .iter()
            .filter(|((of, _), _)| of == tenant)
            .map(|(_, webhook)| webhook.clone())
            .collect()
    }

    /// The text of the secret that signs the deliveries of a tenant. `None` if webhooks are disabled.
    pub fn signing_secret(&self, tenant: &Tenant) -> Option<String> {
        self.0
            .outgoing
            .as_ref()
            .map(|outgoing| outgoing.secret.of_tenant(tenant).text())
    }

    pub async fn deliveries(
        &self,
        tenant: &Tenant,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Selected<Delivery>, ReadError> {
        delivery::deliveries(&self.0.log, tenant, before, limit).await
    }

    pub async fn repeat(&self, tenant: &Tenant, id: Uuid) -> Result<Delivery, RepeatError> {
        let found = delivery::get_delivery(&self.0.log, tenant, id).await?;
        let mut delivery = found.ok_or(RepeatError::Unknown)?;
        let now = self.0.ids.now();
        {
            let mut state = self.state();
            if !state.accepts(tenant, delivery.webhook) {
                return Err(RepeatError::Deleted);
            }
            if let Some(waiting) = state.pending.get_mut(&id) {
                waiting.due = now;
                self.0.pending_added.notify_one();
                return Ok(delivery);
            }
            if state.pending.len() >= MAX_PENDING {
                return Err(RepeatError::TooMany);
            }
        }
        delivery.repeat(now);
        self.store_deliveries(tenant, std::slice::from_ref(&delivery), Records::default())
            .await?;
        Ok(delivery)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.0.state.lock())
    }

    /// The tenants that have webhooks and whose log is not read yet. They are followed from now on.
    pub(super) fn begin_followers(&self) -> Vec<Tenant> {
        let mut state = self.state();
        let tenants: BTreeSet<_> = state
            .webhooks
            .keys()
            .map(|(tenant, _)| tenant.clone())
            .collect();
        tenants
            .into_iter()
            .filter(|tenant| state.followed.insert(tenant.clone()))
            .collect()
    }

    /// Whether a follower continues. It ends with the last webhook of its tenant.
    pub(super) fn is_followed(&self, tenant: &Tenant) -> bool {
        let mut state = self.state();
        let continues = state.webhooks.keys().any(|(of, _)| of == tenant);
        if !continues {
            state.followed.remove(tenant);
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
        tenant: &Tenant,
        deliveries: &[Delivery],
        records: Records,
    ) -> Result<(), Closed> {
        let put = |records, delivery| delivery::put_delivery(records, tenant, delivery);
        self.0
            .log
            .write(deliveries.iter().fold(records, put))
            .await?;
        let added = deliveries
            .iter()
            .filter_map(|delivery| pending(tenant, delivery));
        let mut state = self.state();
        // A webhook that was deleted meanwhile gets no deliveries.
        let added: Vec<_> = added
            .filter(|(_, pending)| state.accepts(tenant, pending.webhook()))
            .collect();
        state.pending.extend(added);
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
        tenant: &Tenant,
        delivery: &Delivery,
    ) -> Result<(), Closed> {
        if !self.with_pending(|pending| pending.contains_key(&delivery.id)) {
            return Ok(());
        }
        self.0
            .log
            .write(delivery::put_delivery(Records::default(), tenant, delivery))
            .await?;
        self.with_pending(|all| match delivery.state {
            DeliveryState::Pending { next_attempt_at } => {
                if let Some(waiting) = all.get_mut(&delivery.id) {
                    (waiting.due, waiting.is_running) = (next_attempt_at, false);
                }
            }
            DeliveryState::Delivered | DeliveryState::Failed => drop(all.remove(&delivery.id)),
        });
        self.0.pending_removed.notify_waiters();
        Ok(())
    }

    /// Ends the deliveries of a webhook whose receiver has answered 410.
    pub(super) async fn mark_gone(&self, tenant: &Tenant, id: Uuid) -> Result<(), Closed> {
        let webhook = {
            let mut state = self.state();
            let Some(webhook) = state.webhooks.get_mut(&(tenant.clone(), id)) else {
                return Ok(());
            };
            webhook.gone = true;
            webhook.clone()
        };
        self.0.version.send_modify(|version| *version += 1);
        self.0
            .log
            .write(delivery::put_webhook(Records::default(), tenant, &webhook))
            .await
    }
}

fn outgoing(options: &WebhookOptions, limits: &Limits) -> Result<Outgoing, OpenError> {
    let path = &options.secret_file;
    let secret = MasterSecret::open(path);
    let secret = secret.map_err(|source| OpenError::Secret {
        path: path.clone(),
        source,
    })?;
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

fn pending(tenant: &Tenant, delivery: &Delivery) -> Option<(Uuid, Pending)> {
    let DeliveryState::Pending { next_attempt_at } = delivery.state else {
        return None;
    };
    let receiver = delivery.webhook.map_or_else(
        || Receiver::Callback(target::host(&delivery.url)),
        Receiver::Webhook,
    );
    let tenant = tenant.clone();
    Some((
        delivery.id,
        Pending {
            tenant,
            receiver,
            due: next_attempt_at,
            is_running: false,
        },
    ))
}
