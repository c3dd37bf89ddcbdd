//! The members of the dialect that have connected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::member::CcaMember;
use crate::shutdown::lock_or_abort;
use crate::types::AgentName;

/// The number of remembered members, as in the fleet. Beyond it, one that is not connected is forgotten.
const MAX_MEMBERS: usize = 256;

/// All members of the dialect.
#[derive(Debug, Default)]
pub struct CcaMembers(Mutex<HashMap<AgentName, Entry>>);

#[derive(Debug)]
struct Entry {
    key: Arc<str>,
    /// The resume token.
    instance: Option<String>,
    member: Arc<Mutex<CcaMember>>,
    /// The number of the current connection. `None`: the member is not connected.
    connection: Option<u64>,
    connections: u64,
}

/// Why a member cannot connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the name belongs to another key")]
    OtherKey,
    #[error(
        "another member with this name is connected; only a connection with the same `instance` replaces it"
    )]
    Connected,
    #[error("too many members are connected (limit {MAX_MEMBERS})")]
    TooMany,
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

    /// Begins a connection. A member that returns has its former channels.
    pub fn open(
        self: &Arc<Self>,
        name: &AgentName,
        key: &Arc<str>,
        instance: Option<String>,
    ) -> Result<CcaConnection, OpenError> {
        let mut entries = self.entries();
        if entries.len() >= MAX_MEMBERS && !entries.contains_key(name) {
            let away = entries.iter().find(|(_, entry)| entry.connection.is_none());
            let away = away.map(|(name, _)| name.clone()).ok_or(OpenError::TooMany)?;
            entries.remove(&away);
        }
        let entry = entries.entry(name.clone()).or_insert_with(|| Entry {
            key: Arc::clone(key),
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
        let (members, name) = (Arc::clone(self), name.clone());
        Ok(CcaConnection { members, name, connection: entry.connections, member: Arc::clone(&entry.member) })
    }

    /// Forgets a member that an operator has removed.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_connection_needs_the_same_key_and_instance() {
        let members = Arc::new(CcaMembers::default());
        let (name, key): (AgentName, Arc<str>) = ("worker".parse().unwrap(), "a".into());
        let first = members.open(&name, &key, Some("1".to_owned())).unwrap();
        let error = |key: &str, instance: Option<&str>| {
            members.open(&name, &key.into(), instance.map(str::to_owned)).unwrap_err()
        };
        assert_eq!(error("b", Some("1")), OpenError::OtherKey);
        assert_eq!(error("a", Some("2")), OpenError::Connected);
        assert_eq!(error("a", None), OpenError::Connected);
        let second = members.open(&name, &key, Some("1".to_owned())).unwrap();
        drop(first);
        assert_eq!(error("a", None), OpenError::Connected);
        drop(second);
        members.open(&name, &key, None).unwrap();
    }
}
