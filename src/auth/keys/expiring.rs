//! Keys that expire without use: those of links, and those of `attach` processes, with the folders granted to them.

use std::path::Path;

use super::super::key::{Key, KeyId, KeyKind, KeyText};
use super::record::push_put;
use super::{ATTACH_NAME, KeyStoreError, Keys, MAX_TRIES, NewKey, OWNER_NAME, revoked_by};
use crate::audit::pending_entry;
use crate::event::{ActorKind, FolderGranted};
use crate::store::{Batch, CommitError};
use crate::types::{Principal, Scope, Scopes, Tenant};

/// The maximum number of folders of a key.
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

/// Whether a principal is an `attach` process with a key of the gateway: a program on the machine of the gateway. No other
/// key can have its name.
pub fn is_local_editor(principal: &Principal) -> bool {
    &*principal.id == ATTACH_NAME
}

impl Keys {
    /// Creates the key of a printed link. It has every scope except `mcp` and `admin`, and expires without use.
    ///
    /// If there are too many link keys, this removes the least recently used ones.
    pub fn create_link_key(&self) -> Result<KeyText, KeyStoreError> {
        self.create_expiring(OWNER_NAME, ActorKind::Gateway, personal_scopes())
            .map(|(text, _)| text)
    }

    /// Creates a key that expires without use.
    fn create_expiring(
        &self,
        name: &str,
        by: ActorKind,
        scopes: Scopes,
    ) -> Result<(KeyText, Key), KeyStoreError> {
        let new = NewKey {
            name,
            tenant: Tenant::default(),
            scopes,
            member_names: Vec::new(),
            limits: Vec::new(),
        };
        let created = self.insert(KeyKind::Link, by, &new)?;
        let mut links: Vec<_> = self
            .list()
            .into_iter()
            .filter(|key| key.kind == KeyKind::Link)
            .collect();
        links.sort_by_key(|key| std::cmp::Reverse(key.last_used_at.unwrap_or(key.created_at)));
        let surplus: Vec<_> = links
            .into_iter()
            .skip(self.0.limits.max_link_keys)
            .map(|key| key.id)
            .collect();
        self.remove_where(
            |key| surplus.contains(&key.id),
            &revoked_by(ActorKind::Gateway),
        )?;
        Ok(created)
    }

    /// Creates the key of an `attach` process. Like a link key, it expires without use, because a killed gateway revokes
    /// nothing. It may also define MCP servers: its user can start programs anyway.
    pub fn create_attach_key(&self) -> Result<(KeyText, KeyId), KeyStoreError> {
        self.create_local(attach_scopes())
    }

    /// Creates the key of a terminal sign-in that the owner of the data folder starts.
    pub fn create_sign_in_key(&self) -> Result<(KeyText, KeyId), KeyStoreError> {
        self.create_local([Scope::Admin].into_iter().collect())
    }

    fn create_local(&self, scopes: Scopes) -> Result<(KeyText, KeyId), KeyStoreError> {
        let (text, key) = self.create_expiring(ATTACH_NAME, ActorKind::CommandLine, scopes)?;
        Ok((text, key.id))
    }

    /// The id of a valid key with this text that [`Keys::create_attach_key`] created.
    pub fn attach_key(&self, presented: &str) -> Option<KeyId> {
        let id = self.verify(presented)?.key;
        let is_attach = |key: &Key| {
            key.id == id
                && key.kind == KeyKind::Link
                && &*key.name == ATTACH_NAME
                && key.scopes == attach_scopes()
        };
        self.list().iter().any(is_attach).then_some(id)
    }

    /// Grants a folder to a key. `folder` is its real path.
    pub fn grant_folder(&self, id: &KeyId, folder: &Path) -> Result<(), GrantError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut batch = Batch::default();
            {
                let entries = self.entries();
                let found = entries.iter().find(|(_, entry)| entry.key.id == *id);
                let (hash, entry) = found.ok_or(GrantError::NotFound)?;
                if entry.key.folders.contains(folder) {
                    return Ok(());
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
                batch
                    .puts
                    .push(pending_entry(&self.0.ids, ActorKind::CommandLine, event));
                push_put(&mut batch, *hash, &key, Some(entry.stored.clone()));
            }
            match self.0.store.commit(&batch) {
                Ok(_) => return Ok(self.reload()?),
                Err(CommitError::Conflict { .. }) if tries < MAX_TRIES => self.reload()?,
                Err(error) => return Err(KeyStoreError::from(error).into()),
            }
        }
    }
}

/// The scopes of a person's own key.
fn personal_scopes() -> Scopes {
    [Scope::Read, Scope::Prompt, Scope::Approve, Scope::Files]
        .into_iter()
        .collect()
}

/// The scopes of a local editor.
fn attach_scopes() -> Scopes {
    [
        Scope::Read,
        Scope::Prompt,
        Scope::Approve,
        Scope::Files,
        Scope::Mcp,
    ]
    .into_iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::super::key::KeyHash;
    use super::*;
    use crate::store::MemoryStore;
    use crate::types::{Ids, Limits};

    #[test]
    fn folder_is_granted_to_one_key_and_survives_a_reload() {
        let store = std::sync::Arc::new(MemoryStore::new(Ids::system()));
        let keys = Keys::open(store, Ids::system(), &Limits::default(), None).unwrap();
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
        let keys = Keys::open(store, Ids::system(), &Limits::default(), None).unwrap();
        let (text, id) = keys.create_attach_key().unwrap();
        assert_eq!(keys.attach_key(text.expose()), Some(id));
        let link = keys.create_link_key().unwrap();
        let (sign_in, _) = keys.create_sign_in_key().unwrap();
        for other in [link.expose(), sign_in.expose(), "acpg_nothing"] {
            assert_eq!(keys.attach_key(other), None);
        }
    }
}
