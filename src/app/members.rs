//! The catalogue with the members of the fleet, their records, and the changes of their state in the audit log.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::Keys;
use agents::agent::{AgentSpec, Catalogue};
use agents::pool::Pool;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{AgentName, Scope, Tenant, UserId};
use events::event::{ActorKind, AuditActor, AuditedMemberState, FleetMemberChanged};
use log::audit::Audit;
use log::eventlog::{EventLog, RecordPages, Records};
use log::store::{ReadError, Table};
use wire::fleet::{Fleet, KEY_ENDED_TEXT, MemberChange, MemberState, StoredMember};

#[derive(Clone)]
pub(super) struct Publisher {
    /// The agents of the configuration. The lock also serializes publications.
    pub(super) configured: Arc<Mutex<Catalogue>>,
    pub(super) sender: watch::Sender<Arc<Catalogue>>,
    pub(super) pool: Pool,
    pub(super) fleet: Fleet,
    pub(super) keys: Keys,
}

impl Publisher {
    /// Publishes new agents of the configuration, or the current ones, with the current members. Returns the previous
    /// catalogue and the published one.
    pub(super) fn publish(
        &self,
        configured: Option<Catalogue>,
    ) -> (Arc<Catalogue>, Arc<Catalogue>) {
        let mut current = lock_or_abort(self.configured.lock());
        if let Some(configured) = configured {
            *current = configured;
        }
        let previous = Arc::clone(&self.sender.borrow());
        let merged = with_members(current.clone(), &self.fleet).reusing_entries_of(&previous);
        let merged = Arc::new(merged);
        // The pool first, so that every agent in the published catalogue has a pool.
        self.pool.reload(&merged);
        self.sender.send_replace(Arc::clone(&merged));
        (previous, merged)
    }

    pub(super) fn start(&self, log: &EventLog, audit: &Audit, shutdown: &Shutdown) {
        let changes = self.fleet.state_changes();
        shutdown.spawn_until_drain(record_changes(changes, audit.clone()));
        shutdown.spawn_until_drain(remove_with_keys(self.fleet.clone(), self.keys.clone()));
        shutdown.spawn_until_drain(self.clone().run(log.clone()));
    }

    /// Publishes each new member after its record is durable, so that a restarted gateway knows every member that has sessions.
    async fn run(self, log: EventLog) {
        let fleet = self.fleet.clone();
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
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

pub(super) fn with_members(configured: Catalogue, fleet: &Fleet) -> Catalogue {
    let members = fleet.status().into_iter();
    configured.with_members(members.map(|member| {
        let info = member.info;
        AgentSpec::member(member.name, info.capacity, info.roots, info.dialect)
    }))
}

/// Whether the fleet may have a member of this name. `key`: the user of its key. Members are not bound to one key, so that
/// an operator can replace it by another key of the same user.
fn is_permitted(keys: &Keys, name: &AgentName, key: &str) -> bool {
    keys.has_key(&UserId::new(&Tenant::default(), key), |key| {
        key.principal.scopes.contains(Scope::Fleet) && key.member_names.check(name).is_ok()
    })
}

async fn remove_with_keys(fleet: Fleet, keys: Keys) {
    let mut ended = keys.watch_ended();
    loop {
        ended.mark_unchanged();
        let is_over = |name: &AgentName, key: &Arc<str>| !is_permitted(&keys, name, key);
        for member in fleet.remove_where(is_over, KEY_ENDED_TEXT) {
            tracing::info!(%member, "removed a member from the fleet, because its key has ended");
        }
        if ended.changed().await.is_err() {
            return;
        }
    }
}

/// Adds the members of an earlier gateway process to the fleet, and forgets those whose users have no key for them.
pub(super) async fn restore(fleet: &Fleet, log: &EventLog, keys: &Keys) -> Result<(), ReadError> {
    let mut ended = Records::default();
    let mut pages = RecordPages::of(log, Table::Member);
    while let Some(page) = pages.next_raw().await? {
        for (key, value) in &page {
            let name = std::str::from_utf8(key).ok();
            let name = name.and_then(|name| name.parse().ok());
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

/// The number of changes of the members of one user that are recorded in a minute. A member is untrusted and must not
/// displace other events.
const CHANGES_PER_MINUTE: u32 = 60;
const MINUTE: Duration = Duration::from_mins(1);

/// Counts the changes of each user. Users without changes for a minute are forgotten.
#[derive(Default)]
struct Rates(HashMap<Arc<str>, (Instant, u32)>);

impl Rates {
    fn permit(&mut self, key: &Arc<str>, now: Instant) -> bool {
        self.0.retain(|_, (began, _)| now - *began < MINUTE);
        let (_, count) = self.0.entry(Arc::clone(key)).or_insert((now, 0));
        *count += 1;
        if *count == CHANGES_PER_MINUTE + 1 {
            tracing::warn!(%key, "the members of a key change their state too often; not recording more changes in this minute");
        }
        *count <= CHANGES_PER_MINUTE
    }
}

async fn record_changes(mut changes: Receiver<MemberChange>, audit: Audit) {
    let mut rates = Rates::default();
    loop {
        match changes.recv().await {
            Ok(change) if rates.permit(&change.key, Instant::now()) => append(&audit, change),
            Ok(_) => {}
            Err(RecvError::Lagged(count)) => {
                tracing::warn!(
                    count,
                    "changes of members of the fleet are not in the audit log"
                );
            }
            Err(RecvError::Closed) => return,
        }
    }
}

fn append(audit: &Audit, change: MemberChange) {
    let state = match change.state {
        Some(MemberState::Connected) => AuditedMemberState::Connected,
        Some(MemberState::Reconnecting) => AuditedMemberState::Reconnecting,
        Some(MemberState::Disconnected) => AuditedMemberState::Disconnected,
        None => AuditedMemberState::Failed,
    };
    let actor = match state {
        AuditedMemberState::Connected | AuditedMemberState::Failed => AuditActor {
            name: Some(change.key.to_string()),
            ..ActorKind::Key.into()
        },
        AuditedMemberState::Reconnecting | AuditedMemberState::Disconnected => {
            ActorKind::Gateway.into()
        }
    };
    audit.append(
        actor,
        FleetMemberChanged {
            member: change.name,
            state,
            key: change.key.to_string(),
            attempt: change.attempt,
            error: change.error,
        },
    );
}

#[cfg(test)]
mod member_events_tests {
    use super::*;

    #[test]
    fn changes_of_one_key_are_bounded() {
        let mut rates = Rates::default();
        let now = Instant::now();
        let noisy: Arc<str> = "noisy".into();
        let other: Arc<str> = "other".into();
        let mut permitted = 0;
        for _ in 0..1000 {
            permitted += u32::from(rates.permit(&noisy, now));
        }
        assert_eq!(permitted, CHANGES_PER_MINUTE);
        assert!(rates.permit(&other, now), "another key has its own count");
        assert!(rates.permit(&noisy, now + MINUTE), "the count begins again");
        assert_eq!(rates.0.len(), 1);
    }
}
