//! Changes to existing keys: their scopes, and the limits of their principals.

use super::super::key::Key;
use super::record::push_put;
use super::{KeyStoreError, Keys, MAX_TRIES};
use crate::audit::pending_entry;
use crate::event::{ActorKind, KeyUpdated};
use crate::store::{Batch, CommitError};
use crate::types::{AgentName, LimitChange, Scopes};

/// A change to existing keys.
#[derive(Debug, Clone, Default)]
pub struct KeyChange {
    pub scopes: Option<Scopes>,
    /// An empty list permits all names except those of known agents.
    pub member_names: Option<Vec<AgentName>>,
    pub limits: Vec<LimitChange>,
}

impl KeyChange {
    pub fn is_empty(&self) -> bool {
        self.scopes.is_none() && self.member_names.is_none() && self.limits.is_empty()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UpdateKeyError {
    #[error("no key has this id or name")]
    NotFound,
    #[error("expected at least one scope")]
    NoScope,
    #[error(transparent)]
    Store(#[from] KeyStoreError),
}

impl Keys {
    /// Changes the key with this id, or all keys with this name. Returns the changed keys.
    ///
    /// Scopes and names of members belong to a key. Limits belong to the principal, so they change for every key with the same
    /// name.
    pub fn update(&self, id_or_name: &str, change: &KeyChange) -> Result<Vec<Key>, UpdateKeyError> {
        if change
            .scopes
            .is_some_and(|scopes| scopes.iter().next().is_none())
        {
            return Err(UpdateKeyError::NoScope);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            self.reload()?;
            let named = self
                .list()
                .into_iter()
                .filter(|key| key.is_named(id_or_name));
            let principals: Vec<_> = named.map(|key| (key.tenant, key.name)).collect();
            if principals.is_empty() {
                return Err(UpdateKeyError::NotFound);
            }
            let (mut batch, mut changed) = (Batch::default(), Vec::new());
            for (hash, entry) in self.entries().iter() {
                let mut key = entry.key.clone();
                if let Some(scopes) = change.scopes.filter(|_| key.is_named(id_or_name)) {
                    key.scopes = scopes;
                }
                if let Some(names) = &change.member_names
                    && key.is_named(id_or_name)
                {
                    key.member_names.clone_from(names);
                }
                if principals
                    .iter()
                    .any(|(tenant, name)| (tenant, name) == (&key.tenant, &key.name))
                {
                    key.limits = key.limits.with(&change.limits);
                }
                if key != entry.key {
                    let event = KeyUpdated {
                        key: key.audited(),
                        former_scopes: entry.key.scopes,
                        limits_changed: key.limits != entry.key.limits
                            || key.member_names != entry.key.member_names,
                    };
                    batch
                        .puts
                        .push(pending_entry(&self.0.ids, ActorKind::CommandLine, event));
                    push_put(&mut batch, *hash, &key, Some(entry.stored.clone()));
                    changed.push(key);
                }
            }
            if changed.is_empty() {
                return Ok(changed);
            }
            match self.0.store.commit(&batch) {
                Ok(_) => {
                    self.reload()?;
                    return Ok(changed);
                }
                Err(CommitError::Conflict { .. }) if tries < MAX_TRIES => {}
                Err(error) => return Err(KeyStoreError::from(error).into()),
            }
        }
    }
}
