//! The keys that a user makes and ends over HTTP. No key gives more than the one that makes it.

use std::time::Duration;

use super::super::key::{Key, KeyHash, KeyText};
use super::{CreateKeyError, KeyStoreError, Keys, NewKey, Verified, push_change, revoked_by};
use base::types::{Author, Scope, Scopes, Timestamp};
use events::api::KeyKind;
use events::event::{AuditActor, KeyRotated};
use log::audit::pending_entry;
use log::store::Batch;

#[derive(Debug, Clone)]
pub struct NewOwnKey {
    pub name: String,
    /// `None`: the scopes of the key that makes it.
    pub scopes: Option<Scopes>,
    /// `None`: the end of the key that makes it, if it has one.
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, thiserror::Error)]
pub enum OwnKeyError {
    #[error("a program that acts for a user makes and ends no keys: use a key of the user")]
    Acting,
    #[error("the key of a program on this machine ends with it, so it makes and ends no keys")]
    Local,
    #[error("this key has no scope {}: it cannot make, replace or end a key that has it", names(.0))]
    Scopes(Vec<Scope>),
    #[error("this key ends at {0}: it cannot make or replace a key that ends later")]
    EndsLater(Timestamp),
    #[error("this key lacks a name of a member that the other key permits")]
    MemberNames,
    #[error("`expiresAt` is not in the future")]
    Ended,
    #[error("this user has {0} keys, which is the limit: revoke one first")]
    TooMany(usize),
    #[error("only a named key has a new secret: make a key in its place")]
    NotNamed,
    #[error("there is no such key")]
    NotFound,
    #[error(transparent)]
    Create(#[from] CreateKeyError),
    #[error(transparent)]
    Store(#[from] KeyStoreError),
}

fn names(scopes: &[Scope]) -> String {
    let names: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
    names.join(", ")
}

impl Keys {
    pub fn create_own(
        &self,
        author: &Author,
        by: &Verified,
        new: &NewOwnKey,
    ) -> Result<(KeyText, Key), OwnKeyError> {
        let maker = self.maker(by)?;
        let scopes = new.scopes.unwrap_or(by.principal.scopes);
        check_scopes(by, scopes)?;
        let end = maker.as_ref().and_then(|key| key.expires_at);
        let expires_at = new.expires_at.or(end);
        check_end(end, expires_at)?;
        if expires_at.is_some_and(|at| at.since(self.now()) == Duration::ZERO) {
            return Err(OwnKeyError::Ended);
        }
        let new = NewKey {
            name: &new.name,
            user: by.principal.user.clone(),
            scopes,
            member_names: maker.map(|key| key.member_names).unwrap_or_default(),
            limits: Vec::new(),
            expires_at,
        };
        self.check_new(&new)?;
        let user = &new.user;
        let owned = self.list().iter().filter(|key| key.user == *user).count();
        if owned >= self.0.limits.max_keys_per_user {
            return Err(OwnKeyError::TooMany(owned));
        }
        Ok(self.insert(KeyKind::Named, false, author, &new)?)
    }

    /// Gives a key a new secret. The previous one ends at once.
    pub fn rotate_own(
        &self,
        author: &Author,
        by: &Verified,
        id: &str,
    ) -> Result<(KeyText, Key), OwnKeyError> {
        let maker = self.maker(by)?;
        let end = maker.and_then(|key| key.expires_at);
        self.commit(|| {
            let entries = self.entries();
            let found = entries.iter().find(|(_, entry)| is_own(&entry.key, by, id));
            let (hash, entry) = found.ok_or(OwnKeyError::NotFound)?;
            check_scopes(by, entry.key.scopes)?;
            check_end(end, entry.key.expires_at)?;
            if !by.member_names.covers(&entry.key.permitted_member_names()) {
                return Err(OwnKeyError::MemberNames);
            }
            if entry.key.kind != KeyKind::Named {
                return Err(OwnKeyError::NotNamed);
            }
            let text = KeyText::generate(&self.0.ids);
            let new_hash = KeyHash::of(text.expose());
            let key = Key {
                id: new_hash.id(),
                created_at: self.0.ids.now(),
                last_used_at: None,
                networks: Vec::new(),
                ..entry.key.clone()
            };
            let event = KeyRotated {
                key_id: Some(key.id.to_string()),
                previous_key_id: Some(entry.key.id.to_string()),
            };
            let mut batch = Batch::default();
            push_change(&mut batch, *hash, None, Some(entry.stored.clone()));
            push_change(&mut batch, new_hash, Some(&key), None);
            let actor = AuditActor::from(author);
            batch.records.push(pending_entry(&self.0.ids, actor, event));
            Ok((batch, (text, key)))
        })
    }

    pub fn revoke_own(&self, author: &Author, by: &Verified, id: &str) -> Result<(), OwnKeyError> {
        self.maker(by)?;
        let keys = self.list();
        let key = keys.iter().find(|key| is_own(key, by, id));
        check_scopes(by, key.ok_or(OwnKeyError::NotFound)?.scopes)?;
        self.remove_where(|entry| is_own(&entry.key, by, id), &revoked_by(author))?;
        Ok(())
    }

    /// The key of the request; `None` for that of the configuration.
    fn maker(&self, by: &Verified) -> Result<Option<Key>, OwnKeyError> {
        let maker = self.list().into_iter().find(|key| key.id == by.key);
        match &maker {
            Some(key) if key.user != by.principal.user => Err(OwnKeyError::Acting),
            Some(key) if key.kind == KeyKind::Local => Err(OwnKeyError::Local),
            _ => Ok(maker),
        }
    }
}

fn is_own(key: &Key, by: &Verified, id: &str) -> bool {
    key.user == by.principal.user && key.id.as_str() == id
}

/// `end`: that of the key of the request. Without one, a key never ends.
fn check_end(end: Option<Timestamp>, wanted: Option<Timestamp>) -> Result<(), OwnKeyError> {
    match end {
        Some(end) if wanted.is_none_or(|wanted| wanted > end) => Err(OwnKeyError::EndsLater(end)),
        _ => Ok(()),
    }
}

fn check_scopes(by: &Verified, wanted: Scopes) -> Result<(), OwnKeyError> {
    let missing = wanted
        .iter()
        .filter(|scope| !by.principal.scopes.contains(*scope));
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(OwnKeyError::Scopes(missing))
    }
}
