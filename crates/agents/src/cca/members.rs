//! The members of the dialect that have connected.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::member::CcaMember;
use base::shutdown::lock_or_abort;
use base::types::{AgentName, QueuedLine, Tenant, UserId};

/// The number of remembered members, as in the fleet. Beyond it, one that is not connected is forgotten.
const MAX_MEMBERS: usize = 256;

#[derive(Debug, Default)]
pub struct CcaMembers(Mutex<HashMap<AgentName, Entry>>);

#[derive(Debug)]
struct Entry {
    key: UserId,
    instance: Option<String>,
    member: Arc<Mutex<CcaMember>>,
    /// The number of the current connection. `None`: the member is not connected.
    connection: Option<u64>,
    connections: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the name belongs to another key")]
    OtherKey,
    #[error(
        "another member with this name is connected; only a connection with the same `instance` replaces it"
    )]
    Connected,
    #[error("too many members are connected")]
    TooMany,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the member is not connected")]
    Disconnected,
    #[error("too many messages wait for the member")]
    QueueFull,
}

/// A connection of a member. Dropping it ends the connection.
#[derive(Debug)]
pub struct CcaConnection {
    members: Arc<CcaMembers>,
    name: AgentName,
    connection: u64,
    member: Arc<Mutex<CcaMember>>,
}

impl CcaMembers {
    fn entries(&self) -> MutexGuard<'_, HashMap<AgentName, Entry>> {
        lock_or_abort(self.0.lock())
    }

    /// Begins a connection. A member that reconnects keeps its channels. The fleet has checked that the key may use the name.
    pub fn open(
        self: &Arc<Self>,
        name: &AgentName,
        key: &UserId,
        instance: Option<String>,
        max_of_key: usize,
    ) -> Result<CcaConnection, OpenError> {
        let mut entries = self.entries();
        // The fleet has forgotten a member whose name it gives to another user.
        entries.retain(|of, entry| of != name || entry.key == *key || entry.connection.is_some());
        if !entries.contains_key(name) {
            let of_key = entries.values().filter(|entry| entry.key == *key).count();
            if of_key >= max_of_key || entries.len() >= MAX_MEMBERS {
                let away = entries.iter().find(|(_, entry)| {
                    entry.connection.is_none() && (of_key < max_of_key || entry.key == *key)
                });
                let away = away
                    .map(|(name, _)| name.clone())
                    .ok_or(OpenError::TooMany)?;
                entries.remove(&away);
            }
        }
        let entry = entries.entry(name.clone()).or_insert_with(|| Entry {
            key: key.clone(),
            instance: None,
            member: Arc::new(Mutex::new(CcaMember::new(name.clone()))),
            connection: None,
            connections: 0,
        });
        if entry.key != *key {
            return Err(OpenError::OtherKey);
        }
        let resumes = instance.is_some() && entry.instance == instance;
        if entry.connection.is_some() && !resumes {
            return Err(OpenError::Connected);
        }
        entry.instance = instance;
        entry.connections += 1;
        entry.connection = Some(entry.connections);
        Ok(CcaConnection {
            members: Arc::clone(self),
            name: name.clone(),
            connection: entry.connections,
            member: Arc::clone(&entry.member),
        })
    }

    pub fn connected(&self, tenant: &Tenant) -> BTreeSet<AgentName> {
        let entries = self.entries();
        let connected = entries
            .iter()
            .filter(|(_, entry)| entry.connection.is_some() && entry.key.tenant() == *tenant);
        connected.map(|(name, _)| name.clone()).collect()
    }

    pub fn contains(&self, name: &AgentName) -> bool {
        self.entries().contains_key(name)
    }

    /// Queues a message for a connected member of the tenant. The receiver completes when the connection has the message, and
    /// fails if the connection ends before. The caller wakes the connection.
    pub fn send(
        &self,
        name: &AgentName,
        tenant: &Tenant,
        message: String,
    ) -> Result<oneshot::Receiver<()>, SendError> {
        let entries = self.entries();
        let entry = entries
            .get(name)
            .filter(|entry| entry.connection.is_some() && entry.key.tenant() == *tenant);
        let entry = entry.ok_or(SendError::Disconnected)?;
        let (line, delivered) = QueuedLine::reported(Bytes::from(message));
        if lock_or_abort(entry.member.lock()).queue(line) {
            Ok(delivered)
        } else {
            Err(SendError::QueueFull)
        }
    }

    pub fn forget(&self, name: &AgentName) {
        self.entries().remove(name);
    }
}

impl CcaConnection {
    pub fn member(&self) -> MutexGuard<'_, CcaMember> {
        lock_or_abort(self.member.lock())
    }

    pub fn name(&self) -> &AgentName {
        &self.name
    }
}

impl Drop for CcaConnection {
    fn drop(&mut self) {
        let mut entries = self.members.entries();
        if let Some(entry) = entries.get_mut(&self.name)
            && entry.connection == Some(self.connection)
        {
            entry.connection = None;
            lock_or_abort(entry.member.lock()).queued.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_connection_needs_the_same_key_and_instance() {
        let members = Arc::new(CcaMembers::default());
        let name: AgentName = "worker".parse().unwrap();
        let of = |key: &str| UserId::new(&Tenant::default(), key);
        let first = members
            .open(&name, &of("a"), Some("1".to_owned()), 2)
            .unwrap();
        let error = |key: &str, instance: Option<&str>| {
            members
                .open(&name, &of(key), instance.map(str::to_owned), 2)
                .unwrap_err()
        };
        assert_eq!(error("b", Some("1")), OpenError::OtherKey);
        assert_eq!(error("a", Some("2")), OpenError::Connected);
        assert_eq!(error("a", None), OpenError::Connected);
        let second = members
            .open(&name, &of("a"), Some("1".to_owned()), 2)
            .unwrap();
        drop(first);
        assert_eq!(error("a", None), OpenError::Connected);
        drop(second);
        members.open(&name, &of("a"), None, 2).unwrap();
        // The fleet gives the name to another user when it has forgotten the member.
        members.open(&name, &of("b"), None, 2).unwrap();
    }

    #[test]
    fn one_key_has_a_limited_number_of_names() {
        let members = Arc::new(CcaMembers::default());
        let of = |key: &str| UserId::new(&Tenant::default(), key);
        let open = |name: &str, key: &str| members.open(&name.parse().unwrap(), &of(key), None, 2);
        let away = open("other", "b").unwrap();
        drop(away);
        let first = open("first", "a").unwrap();
        let _second = open("second", "a").unwrap();
        assert_eq!(open("third", "a").unwrap_err(), OpenError::TooMany);
        drop(first);
        let _third = open("third", "a").unwrap();
        let names = |name: &str| members.contains(&name.parse().unwrap());
        assert!(
            !names("first") && names("other"),
            "it replaces its own only"
        );
    }

    #[tokio::test]
    async fn message_reaches_the_connection_of_its_tenant_only() {
        let members = Arc::new(CcaMembers::default());
        let name: AgentName = "worker".parse().unwrap();
        let ours = Tenant::default();
        let send = |tenant: &Tenant| members.send(&name, tenant, "{}".to_owned());
        assert_eq!(send(&ours).unwrap_err(), SendError::Disconnected);
        let connection = members
            .open(&name, &UserId::new(&ours, "a"), None, 2)
            .unwrap();
        assert_eq!(
            send(&Tenant::new("other")).unwrap_err(),
            SendError::Disconnected
        );
        assert!(
            members.connected(&Tenant::new("other")).is_empty()
                && members.connected(&ours).contains(&name)
        );
        let delivered = send(&ours).unwrap();
        connection.member().next_queued().unwrap().delivered();
        delivered.await.unwrap();
        let lost = send(&ours).unwrap();
        while send(&ours).is_ok() {}
        assert_eq!(send(&ours).unwrap_err(), SendError::QueueFull);
        drop(connection);
        lost.await.unwrap_err();
    }
}
