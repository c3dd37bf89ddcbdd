//! The catalogue with the members of the fleet, and their records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::member_events;
use crate::agent::{AgentSpec, Catalogue};
use crate::audit::Audit;
use crate::auth::Keys;
use crate::eventlog::{EventLog, RecordPages, Records};
use crate::fleet::{Fleet, KEY_ENDED_TEXT, MemberInfo, StoredMember};
use crate::pool::Pool;
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::store::{ReadError, Table};
use crate::types::{AgentName, Tenant};

/// Publishes the catalogue: the configured agents and the members.
#[derive(Debug, Clone)]
pub(super) struct Publisher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The agents of the configuration. The lock also serializes publications.
    configured: Mutex<Catalogue>,
    sender: watch::Sender<Arc<Catalogue>>,
    pool: Pool,
    fleet: Fleet,
    keys: Keys,
}

/// The change of the catalogue.
pub(super) struct Published {
    pub(super) former: Arc<Catalogue>,
    pub(super) current: Arc<Catalogue>,
}

impl Publisher {
    pub(super) fn new(
        configured: Catalogue,
        sender: watch::Sender<Arc<Catalogue>>,
        pool: Pool,
        fleet: Fleet,
        keys: Keys,
    ) -> Self {
        Self(Arc::new(Inner {
            configured: Mutex::new(configured),
            sender,
            pool,
            fleet,
            keys,
        }))
    }

    /// Publishes new agents of the configuration, or the current ones, with the current members.
    pub(super) fn publish(&self, configured: Option<Catalogue>) -> Published {
        let mut current = lock_or_abort(self.0.configured.lock());
        if let Some(configured) = configured {
            *current = configured;
        }
        let former = Arc::clone(&self.0.sender.borrow());
        let merged = with_members(current.clone(), &self.0.fleet).reusing_entries_of(&former);
        let merged = Arc::new(merged);
        // The pool first, so that every agent in the published catalogue has a pool.
        self.0.pool.reload(&merged);
        self.0.sender.send_replace(Arc::clone(&merged));
        Published {
            former,
            current: merged,
        }
    }

    /// Starts the tasks that publish new members and record the changes of their state.
    pub(super) fn start(&self, log: &EventLog, audit: &Audit, shutdown: &Shutdown) {
        let changes = self.0.fleet.state_changes();
        shutdown.spawn(member_events::record(
            changes,
            audit.clone(),
            shutdown.clone(),
        ));
        shutdown.spawn(remove_with_keys(
            self.0.fleet.clone(),
            self.0.keys.clone(),
            shutdown.clone(),
        ));
        shutdown.spawn(self.clone().run(log.clone(), shutdown.clone()));
    }

    /// Publishes each new member after its record is durable, so that a restarted gateway knows every member that has sessions.
    async fn run(self, log: EventLog, shutdown: Shutdown) {
        let fleet = self.0.fleet.clone();
        let mut changes = fleet.changes();
        let mut stored: BTreeMap<AgentName, StoredMember> = BTreeMap::new();
        loop {
            changes.mark_unchanged();
            let members: BTreeMap<_, _> = fleet
                .status()
                .into_iter()
                .map(|member| {
                    let record = StoredMember {
                        key: member.key.to_string(),
                        info: member.info,
                    };
                    (member.name, record)
                })
                .collect();
            if members != stored {
                let mut records = Records::default();
                for (name, member) in &members {
                    let value = serde_json::to_vec(member)
                        .expect("a record has string keys and serializes");
                    records = records.put(Table::Member, name.as_str(), value);
                }
                for name in stored.keys().filter(|name| !members.contains_key(*name)) {
                    records = records.delete(Table::Member, name.as_str());
                }
                if let Err(error) = log.write(records).await {
                    tracing::warn!(%error, "could not store the members of the fleet");
                }
                stored = members;
                self.publish(None);
            }
            tokio::select! {
                outcome = changes.changed() => if outcome.is_err() { return },
                () = shutdown.drain_started() => return,
            }
        }
    }
}

/// Adds the entries of the members.
pub(super) fn with_members(configured: Catalogue, fleet: &Fleet) -> Catalogue {
    let members = fleet.status().into_iter();
    configured.with_members(members.map(|member| {
        let MemberInfo {
            capacity,
            roots,
            dialect,
            ..
        } = member.info;
        AgentSpec::member(member.name, capacity, roots, dialect)
    }))
}

/// Whether the fleet may have a member of this name. Members are not bound to one key, so that an operator can replace it
/// by another one of the same name.
fn is_permitted(keys: &Keys, name: &AgentName, key: &str) -> bool {
    keys.permits_member(&Tenant::default(), key, name)
}

/// Removes members whose keys have ended, until the drain.
async fn remove_with_keys(fleet: Fleet, keys: Keys, shutdown: Shutdown) {
    let mut ended = keys.watch_ended();
    loop {
        ended.mark_unchanged();
        let is_over = |name: &AgentName, key: &Arc<str>| !is_permitted(&keys, name, key);
        for member in fleet.remove_where(is_over, KEY_ENDED_TEXT) {
            tracing::info!(%member, "removed a member from the fleet, because its key has ended");
        }
        tokio::select! {
            outcome = ended.changed() => if outcome.is_err() { return },
            () = shutdown.drain_started() => return,
        }
    }
}

/// Adds the members of an earlier gateway process to the fleet, and forgets those whose keys have ended.
pub(super) async fn restore(fleet: &Fleet, log: &EventLog, keys: &Keys) -> Result<(), ReadError> {
    let mut ended = Records::default();
    let mut pages = RecordPages::of(log, Table::Member);
    while let Some(page) = pages.next_raw().await? {
        for (key, value) in &page {
            let name = std::str::from_utf8(key)
                .ok()
                .and_then(|name| name.parse().ok());
            match (name, serde_json::from_slice::<StoredMember>(value)) {
                (Some(name), Ok(stored)) if is_permitted(keys, &name, &stored.key) => {
                    fleet.restore(name, stored);
                }
                _ => ended = ended.delete(Table::Member, key.clone()),
            }
        }
    }
    if !ended.is_empty()
        && let Err(error) = log.write(ended).await
    {
        tracing::warn!(%error, "could not delete the records of members whose keys have ended");
    }
    Ok(())
}
