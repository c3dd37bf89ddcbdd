//! Keys that expire without use: those of links, and those of `attach` processes, with the folders granted to them.

use std::path::Path;

use super::super::key::{Key, KeyId, KeyText};
use super::{
    ATTACH_NAME, CreateKeyError, Entry, KeyStoreError, Keys, LINK_NAME, NewKey, push_change,
    revoked_by,
};
use base::types::{Scope, Scopes, UserId};
use events::api::KeyKind;
use events::event::{ActorKind, FolderGranted};
use log::audit::pending_entry;
use log::store::Batch;

const MAX_FOLDERS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error("this key has too many folders (limit {MAX_FOLDERS}): start the editor again")]
    TooMany,
    #[error("the key was revoked")]
    NotFound,
    #[error(transparent)]
    Store(#[from] KeyStoreError),
}

impl Keys {
    /// Creates the key of a link that a person asks for. It has the scopes `read`, `prompt`, `approve` and `files`,
    /// and expires without use.
    ///
    /// If there are too many link keys, this removes the oldest ones that nobody has used. A key in use never ends for
    /// another one.
    pub fn create_link_key(&self) -> Result<KeyText, CreateKeyError> {
        let scopes = Scopes::from_iter(PERSONAL_SCOPES);
        self.create_owner_key(false, scopes).map(|(text, _)| text)
    }

    /// Creates the key of the link that a start prints. It replaces an unused link of an earlier start, so
    /// that restarts do not accumulate keys. The store has only the hash of a key, so a start cannot print an earlier link again.
    /// `sets_up`: the key also has the scope `admin`.
    pub fn create_start_link_key(&self, sets_up: bool) -> Result<KeyText, CreateKeyError> {
        let scopes = PERSONAL_SCOPES.into_iter();
        let scopes = scopes.chain(sets_up.then_some(Scope::Admin)).collect();
        let (text, new) = self.create_owner_key(true, scopes)?;
        let is_replaced = |entry: &Entry| {
            entry.key.printed_by_start && entry.last_used().is_none() && entry.key.id != new.id
        };
        self.remove_where(is_replaced, &revoked_by(ActorKind::Gateway))?;
        Ok(text)
    }

    fn create_owner_key(
        &self,
        printed_by_start: bool,
        scopes: Scopes,
    ) -> Result<(KeyText, Key), CreateKeyError> {
        let max = self.0.limits.max_link_keys;
        let links = self.keys_of_kind(KeyKind::Link);
        let surplus = (links.len() + 1).saturating_sub(max);
        let unused = links.iter().filter(|key| key.last_used_at.is_none());
        let unused: Vec<_> = unused.take(surplus).map(|key| key.id.clone()).collect();
        if unused.len() < surplus {
            return Err(CreateKeyError::TooManyLinks(max));
        }
        let is_surplus =
            |entry: &Entry| unused.contains(&entry.key.id) && entry.last_used().is_none();
        self.remove_where(is_surplus, &revoked_by(ActorKind::Gateway))?;
        let new = NewKey {
            name: LINK_NAME,
            user: UserId::owner(),
            scopes,
            member_names: Vec::new(),
            limits: Vec::new(),
            expires_at: None,
        };
        Ok(self.insert(KeyKind::Link, printed_by_start, ActorKind::Gateway, &new)?)
    }

    fn keys_of_kind(&self, kind: KeyKind) -> Vec<Key> {
        let keys = self.list().into_iter();
        keys.filter(|key| key.kind == kind).collect()
    }

    /// Creates the key of an `attach` process. Like a link key, it expires without use, because a killed gateway revokes
    /// nothing. It may also define MCP servers: its user can start programs anyway.
    pub fn create_attach_key(&self) -> Result<(KeyText, KeyId), KeyStoreError> {
        self.create_local(attach_scopes())
    }

    pub fn create_sign_in_key(&self) -> Result<(KeyText, KeyId), KeyStoreError> {
        self.create_local([Scope::Admin].into_iter().collect())
    }

    /// Creates a key that the gateway revokes when its program ends, also if the program never uses it. Keys that a killed
    /// gateway has left are surplus: this removes the least recently used ones.
    fn create_local(&self, scopes: Scopes) -> Result<(KeyText, KeyId), KeyStoreError> {
        let new = NewKey {
            name: ATTACH_NAME,
            user: UserId::owner(),
            scopes,
            member_names: Vec::new(),
            limits: Vec::new(),
            expires_at: None,
        };
        let (text, key) = self.insert(KeyKind::Local, false, ActorKind::CommandLine, &new)?;
        let mut local = self.keys_of_kind(KeyKind::Local);
        local.sort_by_key(|key| std::cmp::Reverse(key.last_used_at.unwrap_or(key.created_at)));
        let surplus = local.into_iter().skip(self.0.limits.max_link_keys);
        let surplus: Vec<_> = surplus.map(|key| key.id).collect();
        self.remove_where(
            |entry| surplus.contains(&entry.key.id),
            &revoked_by(ActorKind::Gateway),
        )?;
        Ok((text, key.id))
    }

    pub fn attach_key(&self, presented: &str) -> Option<KeyId> {
        let id = self.verify(presented)?.key;
        let is_attach =
            |key: &Key| key.id == id && key.kind == KeyKind::Local && key.scopes == attach_scopes();
        self.list().iter().any(is_attach).then_some(id)
    }

    /// Grants a folder to a key. `folder` is its real path.
    pub fn grant_folder(&self, id: &KeyId, folder: &Path) -> Result<(), GrantError> {
        self.commit(|| {
            let entries = self.entries();
            let found = entries.iter().find(|(_, entry)| entry.key.id == *id);
            let (hash, entry) = found.ok_or(GrantError::NotFound)?;
            let mut batch = Batch::default();
            if entry.key.folders.contains(folder) {
                return Ok((batch, ()));
            }
            if entry.key.folders.len() >= MAX_FOLDERS {
                return Err(GrantError::TooMany);
            }
            let key = Key {
                folders: entry.key.folders.with(folder.to_owned()),
                ..entry.key.clone()
            };
            let event = FolderGranted {
                key: key.audited(),
                folder: folder.to_string_lossy().into_owned(),
            };
            let event = pending_entry(&self.0.ids, ActorKind::CommandLine, event);
            batch.records.push(event);
            push_change(&mut batch, *hash, Some(&key), Some(entry.stored.clone()));
            Ok((batch, ()))
        })
    }
}

const PERSONAL_SCOPES: [Scope; 4] = [Scope::Read, Scope::Prompt, Scope::Approve, Scope::Files];

fn attach_scopes() -> Scopes {
    PERSONAL_SCOPES.into_iter().chain([Scope::Mcp]).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::super::key::KeyHash;
    use super::*;
    use crate::auth::limits::Limits;
    use base::types::{Ids, PrincipalLimits};
    use log::store::MemoryStore;

    #[test]
    fn folder_is_granted_to_one_key_and_survives_a_reload() {
        let store = std::sync::Arc::new(MemoryStore::new(Ids::system()));
        let keys = Keys::open(
            store,
            Ids::system(),
            &Limits::default(),
            PrincipalLimits::default(),
            None,
        )
        .unwrap();
        let [(text, id), (other, _)] = [(); 2].map(|()| keys.create_attach_key().unwrap());
        let folder = PathBuf::from("/home/me/project");
        keys.grant_folder(&id, &folder).unwrap();
        keys.grant_folder(&id, &folder.join("below")).unwrap();
        keys.reload().unwrap();
        let folders = |text: &KeyText| keys.verify(text.expose()).unwrap().principal.folders;
        assert_eq!(folders(&text).iter().collect::<Vec<_>>(), [&folder]);
        assert!(folders(&other).is_empty());
        for number in 1..MAX_FOLDERS {
            keys.grant_folder(&id, Path::new(&format!("/f/{number}")))
                .unwrap();
        }
        assert!(matches!(
            keys.grant_folder(&id, Path::new("/more")),
            Err(GrantError::TooMany)
        ));
        let unknown = KeyHash::of("nothing").id();
        assert!(matches!(
            keys.grant_folder(&unknown, &folder),
            Err(GrantError::NotFound)
        ));
    }

    #[test]
    fn only_keys_of_attach_processes_are_attach_keys() {
        let store = std::sync::Arc::new(MemoryStore::new(Ids::system()));
        let keys = Keys::open(
            store,
            Ids::system(),
            &Limits::default(),
            PrincipalLimits::default(),
            None,
        )
        .unwrap();
        let (text, id) = keys.create_attach_key().unwrap();
        assert_eq!(keys.attach_key(text.expose()), Some(id));
        let link = keys.create_link_key().unwrap();
        let (sign_in, _) = keys.create_sign_in_key().unwrap();
        for other in [link.expose(), sign_in.expose(), "acpg_nothing"] {
            assert_eq!(keys.attach_key(other), None);
        }
    }
}
