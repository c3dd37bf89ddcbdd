//! All members of the gateway.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::frame::{ChannelId, Hello, MemberInfo, PROTOCOL};
use super::member::{
    Channel, ChannelOutput, MAX_CHANNELS, Member, MemberChange, MemberState, MemberStatus,
    shown_error,
};
use crate::fleet::{MemberNameError, MemberNames};
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::text::check_name;
use base::types::{AgentName, EffectiveLimits, LimitExceeded, PrincipalLimit, random_uuid};

/// The number of members that the gateway remembers. Beyond it, a new member replaces one that is disconnected.
const MAX_MEMBERS: usize = 256;
const MAX_METADATA: usize = 32;
const METADATA_BYTES: usize = 256;
const MAX_CAPACITY: usize = 256;
const MAX_ROOTS: usize = 32;
const ROOT_BYTES: usize = 4096;
/// The number of changes that a slow observer may not have read. It loses the oldest ones.
const QUEUED_CHANGES: usize = 256;
/// When a member that exceeds a limit may try again.
const RETRY_AFTER: Duration = Duration::from_mins(1);
/// The last segment of the path on which members connect. A member of this name would have the same path.
const RESERVED_NAME: &str = "connect";

#[derive(Debug, Clone)]
pub struct Fleet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    members: Mutex<BTreeMap<AgentName, Arc<Member>>>,
    /// Changes with each member that is new or has another description.
    version: watch::Sender<u64>,
    changes: broadcast::Sender<MemberChange>,
    /// How long the processes of a member wait for its return.
    return_timeout: Duration,
    shutdown: Shutdown,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error(
        "the gateway speaks version {PROTOCOL} of the fleet protocol; update the older of the two programs"
    )]
    Version,
    #[error("the name belongs to another key")]
    OtherKey,
    #[error(
        "another member with this name is connected, or may still return; try again later or use another name"
    )]
    NameTaken,
    #[error("too many members (limit {MAX_MEMBERS})")]
    TooMany,
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error(transparent)]
    Name(#[from] MemberNameError),
    #[error("{0}")]
    Invalid(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    #[error("no member of that name has joined the fleet")]
    Unknown,
    #[error("the member is not connected, and did not return within {0:?}")]
    Away(Duration),
    #[error("the member no longer has the process")]
    Gone,
    #[error("the member is being drained and accepts no new processes")]
    Draining,
}

#[derive(Debug, Clone)]
pub struct MemberKey {
    /// The user of the key. Names of members belong to the user.
    pub name: Arc<str>,
    pub names: MemberNames,
    pub limits: EffectiveLimits,
}

/// A connection of a member. Dropping it ends the connection.
#[derive(Debug)]
pub struct Joined {
    pub member: Arc<Member>,
    pub connection: u64,
    error: Option<String>,
    fleet: Fleet,
}

/// The record of a member, which survives a restart of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredMember {
    /// The user to whom the name of the member belongs.
    pub key: String,
    pub info: MemberInfo,
}

impl Fleet {
    /// `return_timeout`: how long the processes of a member wait for its return.
    pub fn new(return_timeout: Duration, shutdown: Shutdown) -> Self {
        Self(Arc::new(Shared {
            members: Mutex::default(),
            version: watch::Sender::new(0),
            changes: broadcast::Sender::new(QUEUED_CHANGES),
            return_timeout,
            shutdown,
        }))
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<AgentName, Arc<Member>>> {
        lock_or_abort(self.0.members.lock())
    }

    /// Adds a member of an earlier gateway process, which may return to its processes.
    pub fn restore(&self, name: AgentName, stored: StoredMember) {
        let member = Member::new(name.clone(), stored.key.into(), stored.info);
        let member = Arc::new(member);
        self.members().insert(name, Arc::clone(&member));
        self.expect_return(member, 0);
    }

    /// Notified when a member is new or has another description.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    pub fn state_changes(&self) -> broadcast::Receiver<MemberChange> {
        self.0.changes.subscribe()
    }

    pub fn rejected(&self, name: &AgentName, key: &Arc<str>, error: String) {
        self.publish(MemberChange {
            name: name.clone(),
            key: Arc::clone(key),
            state: None,
            attempt: 0,
            error: Some(error),
        });
    }

    fn publish(&self, change: MemberChange) {
        // Nobody observes the changes before the gateway is ready, and at its end.
        let _ = self.0.changes.send(change);
    }

    pub fn status(&self) -> Vec<MemberStatus> {
        let members: Vec<_> = self.members().values().cloned().collect();
        members.iter().map(|member| member.status()).collect()
    }

    pub fn member(&self, name: &AgentName) -> Option<Arc<Member>> {
        self.members().get(name).cloned()
    }

    /// Removes members: ends their connections and loses their processes. Returns the names of the removed ones.
    pub fn remove_where(
        &self,
        condition: impl Fn(&AgentName, &Arc<str>) -> bool,
        reason: &str,
    ) -> Vec<AgentName> {
        let removed: Vec<_> = self
            .members()
            .extract_if(.., |name, member| condition(name, member.key()))
            .collect();
        for (_, member) in &removed {
            member.remove(reason);
            self.publish(member.change(MemberState::Disconnected, Some(reason.to_owned())));
        }
        if !removed.is_empty() {
            self.0.version.send_modify(|version| *version += 1);
        }
        removed.into_iter().map(|(name, _)| name).collect()
    }

    pub fn check(&self, name: &AgentName, key: &MemberKey) -> Result<(), JoinError> {
        admit(&self.members(), name, key).map(drop)
    }

    pub fn join(&self, hello: Hello, key: &MemberKey) -> Result<Joined, JoinError> {
        check(&hello)?;
        let mut members = self.members();
        let replaced = admit(&members, &hello.name, key)?;
        let member = match members.get(&hello.name) {
            Some(member) if !member.accepts(hello.instance) => return Err(JoinError::NameTaken),
            Some(member) => Arc::clone(member),
            None => {
                if let Some(replaced) = replaced {
                    members.remove(&replaced);
                }
                let member = Arc::new(Member::new(
                    hello.name.clone(),
                    Arc::clone(&key.name),
                    hello.info.clone(),
                ));
                members.insert(hello.name.clone(), Arc::clone(&member));
                member
            }
        };
        let attempt = hello.attempt;
        let error = hello.error.as_deref().map(shown_error);
        let connection = member.connect(hello);
        drop(members);
        self.publish(MemberChange {
            attempt,
            ..member.change(MemberState::Connected, error)
        });
        self.0.version.send_modify(|version| *version += 1);
        Ok(Joined {
            member,
            connection,
            error: None,
            fleet: self.clone(),
        })
    }

    /// Opens a channel for a new process of the member. Waits for the return of the member.
    pub async fn open(&self, name: &AgentName) -> Result<(Channel, ChannelOutput), FleetError> {
        let member = self.connected(name).await?;
        if member.is_draining() {
            return Err(FleetError::Draining);
        }
        Ok(Channel::open(member, random_uuid()))
    }

    /// Claims the channel of an earlier gateway process. Waits for the return of the member.
    pub async fn claim(
        &self,
        name: &AgentName,
        id: ChannelId,
        offset: u64,
    ) -> Result<(Channel, ChannelOutput), FleetError> {
        let member = self.connected(name).await?;
        Channel::claim(member, id, offset).ok_or(FleetError::Gone)
    }

    async fn connected(&self, name: &AgentName) -> Result<Arc<Member>, FleetError> {
        let member = self.member(name).ok_or(FleetError::Unknown)?;
        let away = FleetError::Away(self.0.return_timeout);
        let deadline = Instant::now() + self.0.return_timeout;
        let mut presence = member.presence();
        loop {
            presence.mark_unchanged();
            if member.is_connected() {
                return Ok(member);
            }
            if member.state() == MemberState::Disconnected {
                return Err(away);
            }
            let returned = tokio::time::timeout_at(deadline, presence.changed());
            if returned.await.is_err() {
                return Err(away);
            }
        }
    }

    /// Loses the processes of the member if it does not return after the connection.
    fn expect_return(&self, member: Arc<Member>, connection: u64) {
        let timeout = self.0.return_timeout;
        let shutdown = self.0.shutdown.clone();
        let fleet = self.clone();
        self.0.shutdown.spawn_client(async move {
            tokio::select! {
                () = tokio::time::sleep(timeout) => {}
                () = shutdown.closing_started() => return,
            }
            let reason = format!("the member did not return within {timeout:?}");
            if member.give_up(connection, &reason) {
                tracing::warn!(member = %member.name(), state = "disconnected", "a member of the fleet did not return; its processes are lost");
                fleet.publish(member.change(MemberState::Disconnected, Some(reason)));
            }
        });
    }
}

impl Joined {
    pub fn ends(&mut self, error: String) {
        self.error = Some(error);
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if self.member.disconnected(self.connection) {
            let closed = || "the member closed the connection".to_owned();
            let error = self.error.take().unwrap_or_else(closed);
            tracing::info!(member = %self.member.name(), state = "reconnecting", error, "a member of the fleet lost its connection");
            let change = self.member.change(MemberState::Reconnecting, Some(error));
            self.fleet.publish(change);
            let member = Arc::clone(&self.member);
            self.fleet.expect_return(member, self.connection);
        }
    }
}

fn admit(
    members: &BTreeMap<AgentName, Arc<Member>>,
    name: &AgentName,
    key: &MemberKey,
) -> Result<Option<AgentName>, JoinError> {
    key.names.check(name)?;
    if let Some(member) = members.get(name) {
        return if *member.key() == key.name {
            Ok(None)
        } else {
            Err(JoinError::OtherKey)
        };
    }
    let own = || members.values().filter(|member| *member.key() == key.name);
    if own().count() >= key.limits.max(PrincipalLimit::Members) {
        let exceeded = || key.limits.exceeded(PrincipalLimit::Members, RETRY_AFTER);
        return longest_gone(own())
            .map(Some)
            .ok_or_else(|| exceeded().into());
    }
    if members.len() >= MAX_MEMBERS {
        let gone = longest_gone(members.values());
        return gone.map(Some).ok_or(JoinError::TooMany);
    }
    Ok(None)
}

/// The member that has been disconnected for the longest time.
fn longest_gone<'a>(members: impl Iterator<Item = &'a Arc<Member>>) -> Option<AgentName> {
    let gone = members.map(|member| member.status());
    let gone = gone.filter(|status| status.state == MemberState::Disconnected);
    gone.max_by_key(|status| status.since)
        .map(|status| status.name)
}

/// Whether a root is absolute and has one spelling, so that folders can be compared with it by name.
fn is_root(root: &str) -> bool {
    let mut parts = root
        .strip_prefix('/')
        .into_iter()
        .flat_map(|rest| rest.split('/'));
    let is_clean = root == "/" || parts.all(|part| !matches!(part, "" | "." | ".."));
    root.starts_with('/') && root.len() <= ROOT_BYTES && is_clean
}

fn check(hello: &Hello) -> Result<(), JoinError> {
    let info = &hello.info;
    let is_short = |text: &String| text.len() <= METADATA_BYTES;
    let mut metadata = info.metadata.iter().flat_map(|(key, value)| [key, value]);
    let has_short_texts = metadata.clone().all(is_short) && is_short(&info.version);
    let invalid = if hello.protocol != PROTOCOL {
        return Err(JoinError::Version);
    } else if !(1..=MAX_CAPACITY).contains(&info.capacity) {
        "`capacity` must be from 1 to 256"
    } else if hello.name.as_str() == RESERVED_NAME {
        "the name `connect` is reserved"
    } else if info.metadata.len() > MAX_METADATA || !has_short_texts {
        "the description must have at most 32 entries with at most 256 bytes each"
    } else if info.roots.len() > MAX_ROOTS || !info.roots.iter().all(|root| is_root(root)) {
        "the roots must be at most 32 absolute folders with at most 4096 bytes each, without `.` and `..`"
    } else if hello.channels.len() > MAX_CHANNELS {
        "too many channels"
    } else {
        let mut texts = std::iter::once(("version", &info.version))
            .chain(info.roots.iter().map(|root| ("roots", root)))
            .chain(metadata.by_ref().map(|text| ("metadata", text)));
        return texts.try_for_each(|(member, text)| {
            let invalid = |error| JoinError::Invalid(format!("`{member}` is not valid: {error}"));
            check_name(text).map_err(invalid)
        });
    };
    Err(JoinError::Invalid(invalid.to_owned()))
}
