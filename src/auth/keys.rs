//! All keys of this gateway, stored as hashes and verified in memory.
//!
//! The command line creates and revokes keys in the same store while the gateway runs. The gateway reloads
//! the table every second, so a revoked key is valid for at most one second longer. The gateway writes the
//! first use of a key to the store at once, because unused link keys are evicted, and later uses every minute. The command
//! line sees them with that delay.

mod expiring;
mod own;
mod users;

use std::collections::HashMap;
use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use super::key::{Key, KeyHash, KeyId, KeyText};
use super::users::{Roles, Users};

use crate::auth::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{
    AgentName, Author, Expiry, GrantedFolders, Groups, Ids, KeyLimits, LimitChange, OWNER,
    Principal, PrincipalLimits, Scope, Scopes, Timestamp, UserId, client_network, is_name,
};
use events::api::{KeyInfo, KeyKind};
use events::event::{
    ActorKind, AuditActor, AuditEvent, KeyCreated, KeyExpired, KeyRevoked, KeyRotated, KeyUpdated,
};
use log::audit::pending_entry;
use log::store::{Batch, CommitError, ReadError, RecordState, RecordStore, Table};
use wire::fleet::MemberNames;

pub use expiring::GrantError;
pub use own::{NewOwnKey, OwnKeyError};
pub use users::{UpdateUserError, UserChange};

const LINK_NAME: &str = "link";
/// The name of the keys of `attach` processes without a key of their own.
const ATTACH_NAME: &str = "attach";
const ADMIN_NAME: &str = "admin";
const MAX_TRIES: usize = 5;
/// How often the gateway writes `lastUsedAt` to the store, after the first use.
const FLUSH_INTERVAL: Duration = Duration::from_mins(1);

/// A handle to the keys that is cheap to clone. Methods that write or reload block on the store; `verify`
/// does not.
#[derive(Clone)]
pub struct Keys(Arc<Inner>);

struct Inner {
    store: Arc<dyn RecordStore>,
    ids: Ids,
    expiry: Expiry,
    limits: Limits,
    admin: RwLock<Option<KeyHash>>,
    admin_networks: Arc<Networks>,
    entries: RwLock<HashMap<KeyHash, Entry>>,
    users: RwLock<Users>,
    /// The roles for the next reload.
    roles: RwLock<Roles>,
    groups: watch::Sender<Groups>,
    /// Held while the tables are read and replaced, so that an earlier reading never replaces a later one.
    reloads: Mutex<()>,
    /// Held while a program creates a user, so that the limit counts all of them.
    creates_user: Mutex<()>,
    principal_limits: PrincipalLimits,
    /// Counts the changes that revoked a key, expired it, or removed one of its scopes.
    ended_count: watch::Sender<u64>,
    first_use: Notify,
}

struct Entry {
    key: Key,
    /// The scopes of the key that the role of its user permits.
    rights: Scopes,
    networks: Arc<Networks>,
    /// The stored record. Writes expect it unchanged, so a late write never restores a revoked key.
    stored: Bytes,
    /// The last use in this process, in milliseconds since the Unix epoch; 0 if there was none.
    last_used_millis: AtomicI64,
}

impl Entry {
    fn last_used(&self) -> Option<Timestamp> {
        let seen = self.last_used_millis.load(Ordering::Relaxed);
        self.key
            .last_used_at
            .max((seen > 0).then(|| Timestamp::from_millis(seen)))
    }

    fn verified(&self) -> Verified {
        let key = &self.key;
        Verified {
            principal: Principal {
                scopes: self.rights,
                ..key.principal()
            },
            key: key.id.clone(),
            member_names: key.permitted_member_names(),
            networks: Arc::clone(&self.networks),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        let names = self.key.permitted_member_names();
        self.rights.covers(other.rights) && names.covers(&other.key.permitted_member_names())
    }
}

/// The networks from which clients have used a key, the latest last.
#[derive(Default)]
pub struct Networks(RwLock<Vec<IpAddr>>);

impl Networks {
    /// Beyond this number, the oldest network counts as new again.
    const MAX: usize = 16;

    fn new(known: Vec<IpAddr>) -> Self {
        Self(RwLock::new(known))
    }

    fn list(&self) -> Vec<IpAddr> {
        lock_or_abort(self.0.read()).clone()
    }

    /// Adds the network of a client. Returns true if it is new.
    pub fn add(&self, client: IpAddr) -> bool {
        let network = client_network(client);
        if lock_or_abort(self.0.read()).contains(&network) {
            return false;
        }
        let mut known = lock_or_abort(self.0.write());
        if known.contains(&network) {
            return false;
        }
        if known.len() == Self::MAX {
            known.remove(0);
        }
        known.push(network);
        true
    }
}

#[derive(Clone)]
pub struct NewKey<'a> {
    pub name: &'a str,
    pub user: UserId,
    pub scopes: Scopes,
    pub member_names: Vec<AgentName>,
    pub limits: Vec<LimitChange>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone)]
pub struct Verified {
    pub principal: Principal,
    pub key: KeyId,
    pub member_names: MemberNames,
    pub networks: Arc<Networks>,
}

impl Verified {
    pub fn author(&self, address: IpAddr) -> Author {
        Author {
            name: self.principal.user.name().into(),
            key: self.key.as_str().into(),
            address,
            http_request_id: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeyStoreError {
    #[error("could not read the keys from the store")]
    Read(#[from] ReadError),
    #[error("could not write a key to the store")]
    Commit(#[from] CommitError),
}

#[derive(Debug, thiserror::Error)]
pub enum CreateKeyError {
    #[error(
        "invalid name of a key or a user: expected 1 to 64 letters, digits, '.', '_', '-' or '@'"
    )]
    Name,
    #[error("keys of the gateway itself have the name '{0}': use another name")]
    Reserved(&'static str),
    #[error(
        "the user 'owner' is the person that runs the gateway: name the key and add `--user owner`"
    )]
    Owner,
    #[error("expected at least one scope")]
    NoScope,
    #[error("too many keys ({0}): revoke a key first")]
    TooMany(usize),
    #[error(
        "{0} link keys are in use, which is the limit: revoke one with `acp-gateway key revoke ID`; `acp-gateway key list` has the ids"
    )]
    TooManyLinks(usize),
    #[error(transparent)]
    Store(#[from] KeyStoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    #[error("no key has this id or name")]
    NotFound,
    #[error(transparent)]
    Store(#[from] KeyStoreError),
}

impl Keys {
    /// Loads all keys. `admin` is the hash of the operator's key, which is never stored.
    pub fn open(
        store: Arc<dyn RecordStore>,
        ids: Ids,
        limits: &Limits,
        principal_limits: PrincipalLimits,
        admin: Option<KeyHash>,
    ) -> Result<Self, KeyStoreError> {
        let keys = Self(Arc::new(Inner {
            expiry: Expiry::new(ids.clone(), None),
            store,
            ids,
            limits: limits.clone(),
            admin: RwLock::new(admin),
            admin_networks: Arc::default(),
            entries: RwLock::default(),
            users: RwLock::default(),
            roles: RwLock::default(),
            groups: watch::Sender::default(),
            reloads: Mutex::default(),
            creates_user: Mutex::default(),
            principal_limits,
            ended_count: watch::Sender::new(0),
            first_use: Notify::new(),
        }));
        keys.reload()?;
        keys.remove_expired()?;
        Ok(keys)
    }

    fn verified_admin(&self, hash: &KeyHash) -> Verified {
        Verified {
            principal: Principal {
                user: UserId::owner(),
                scopes: Scopes::from_iter([Scope::Admin]),
                folders: GrantedFolders::default(),
                is_local: false,
            },
            key: hash.id(),
            member_names: MemberNames::Any,
            networks: Arc::clone(&self.0.admin_networks),
        }
    }

    fn admin_hash(&self) -> Option<KeyHash> {
        *lock_or_abort(self.0.admin.read())
    }

    /// Replaces the operator's key and ends the streams of the previous one. Returns the event of the audit log if
    /// the key has changed.
    pub fn set_admin(&self, admin: Option<KeyHash>) -> Option<KeyRotated> {
        let previous = std::mem::replace(&mut *lock_or_abort(self.0.admin.write()), admin);
        let changed = previous != admin;
        if changed {
            self.0.ended_count.send_modify(|count| *count += 1);
        }
        let id = |hash: Option<KeyHash>| hash.map(|hash| hash.id().to_string());
        changed.then(|| KeyRotated {
            key_id: id(admin),
            previous_key_id: id(previous),
        })
    }

    /// Verifies the text of a key; `None` if it is not valid.
    ///
    /// The map compares only hashes. A client cannot choose the hash of its text, so the timing of the lookup
    /// reveals nothing about a key.
    pub fn verify(&self, presented: &str) -> Option<Verified> {
        let hash = KeyHash::of(presented);
        if self.admin_hash().is_some_and(|admin| admin.matches(&hash)) {
            return Some(self.verified_admin(&hash));
        }
        let now = self.0.expiry.earliest_now();
        let entries = self.entries();
        let entry = entries
            .get(&hash)
            .filter(|entry| self.is_usable_at(entry, now))?;
        let now = self.0.expiry.latest_now().as_millis();
        let used_before = entry.last_used_millis.fetch_max(now, Ordering::Relaxed) > 0;
        let is_first = entry.key.last_used_at.is_none() && !used_before;
        if is_first {
            self.0.first_use.notify_one();
        }
        Some(entry.verified())
    }

    pub fn is_valid(&self, verified: &Verified) -> bool {
        let holder = self.verified_for(&verified.key, &verified.principal.user);
        holder.is_some_and(|now| {
            now.principal.scopes.covers(verified.principal.scopes)
                && now.member_names.covers(&verified.member_names)
        })
    }

    pub fn now(&self) -> Timestamp {
        self.0.ids.now()
    }

    pub fn limits(&self) -> &PrincipalLimits {
        &self.0.principal_limits
    }

    pub(super) fn verified_by_id(&self, id: &KeyId) -> Option<Verified> {
        if let Some(admin) = self.admin_hash().filter(|admin| admin.id() == *id) {
            return Some(self.verified_admin(&admin));
        }
        let now = self.0.expiry.earliest_now();
        let entries = self.entries();
        let entry = entries
            .values()
            .find(|entry| entry.key.id == *id && self.is_usable_at(entry, now))?;
        Some(entry.verified())
    }

    /// Whether a key of this user meets the condition.
    pub fn has_key(&self, user: &UserId, condition: impl Fn(&Verified) -> bool) -> bool {
        let admin = self.admin_hash().map(|admin| self.verified_admin(&admin));
        if admin.is_some_and(|admin| admin.principal.user == *user && condition(&admin)) {
            return true;
        }
        let now = self.0.expiry.earliest_now();
        self.entries().values().any(|entry| {
            let key = &entry.key;
            key.user == *user && condition(&entry.verified()) && self.is_usable_at(entry, now)
        })
    }

    /// Completes when the key ends or loses a scope. Long-lived streams wait for it. Cancel-safe.
    pub async fn wait_ended(&self, verified: &Verified) {
        let mut changes = self.0.ended_count.subscribe();
        while self.is_valid(verified) {
            // `self` owns the sender, so the channel does not close while this waits.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub fn watch_ended(&self) -> watch::Receiver<u64> {
        self.0.ended_count.subscribe()
    }

    pub fn create(&self, new: &NewKey<'_>) -> Result<(KeyText, Key), CreateKeyError> {
        self.check_new(new)?;
        Ok(self.insert(KeyKind::Named, false, ActorKind::CommandLine, new)?)
    }

    fn check_new(&self, new: &NewKey<'_>) -> Result<(), CreateKeyError> {
        if !is_name(new.name) || !is_name(new.user.name()) || !is_name(new.user.tenant().as_str()) {
            return Err(CreateKeyError::Name);
        }
        if new.name == OWNER {
            return Err(CreateKeyError::Owner);
        }
        let reserved = [ADMIN_NAME, ATTACH_NAME, LINK_NAME];
        if let Some(name) = reserved.into_iter().find(|name| *name == new.name) {
            return Err(CreateKeyError::Reserved(name));
        }
        if new.scopes.iter().next().is_none() {
            return Err(CreateKeyError::NoScope);
        }
        let named = self
            .list()
            .iter()
            .filter(|key| key.kind == KeyKind::Named)
            .count();
        if named >= self.0.limits.max_named_keys {
            return Err(CreateKeyError::TooMany(named));
        }
        Ok(())
    }

    pub fn list(&self) -> Vec<Key> {
        let now = self.0.expiry.earliest_now();
        let entries = self.entries();
        let mut keys: Vec<_> = entries
            .values()
            .filter(|entry| self.is_valid_at(entry, now))
            .map(|entry| Key {
                last_used_at: entry.last_used(),
                ..entry.key.clone()
            })
            .collect();
        keys.sort_by(|a, b| (a.created_at, a.id.as_str()).cmp(&(b.created_at, b.id.as_str())));
        keys
    }

    /// Describes a key without its text.
    pub fn info(&self, key: &Key) -> KeyInfo {
        let folders = key.folders.iter();
        KeyInfo {
            key_id: key.id.to_string(),
            name: key.name.to_string(),
            kind: key.kind,
            user: key.user.name().to_owned(),
            tenant: key.user.tenant().as_str().to_owned(),
            scopes: key.scopes.iter().collect(),
            member_names: key.member_names.clone(),
            folders: folders.map(|folder| folder.display().to_string()).collect(),
            limits: key.limits,
            created_at: Some(key.created_at),
            expires_at: self.expires_at(key, key.last_used_at),
            last_used_at: key.last_used_at,
            is_current: None,
        }
    }

    /// All keys, also that of the configuration.
    pub fn infos(&self) -> Vec<KeyInfo> {
        let admin = self.admin_hash().map(|admin| {
            let Verified { principal, key, .. } = self.verified_admin(&admin);
            KeyInfo {
                key_id: key.to_string(),
                name: ADMIN_NAME.to_owned(),
                kind: KeyKind::Admin,
                user: principal.user.name().to_owned(),
                tenant: principal.user.tenant().as_str().to_owned(),
                scopes: principal.scopes.iter().collect(),
                member_names: Vec::new(),
                folders: Vec::new(),
                limits: KeyLimits::default(),
                created_at: None,
                expires_at: None,
                last_used_at: None,
                is_current: None,
            }
        });
        let stored = self.list();
        let stored = stored.iter().map(|key| self.info(key));
        admin.into_iter().chain(stored).collect()
    }

    /// When a key ends that is not used again. `None` if it does not expire.
    fn expires_at(&self, key: &Key, last_used_at: Option<Timestamp>) -> Option<Timestamp> {
        let last_use = last_used_at.unwrap_or(key.created_at);
        let is_temporary = matches!(key.kind, KeyKind::Link | KeyKind::Local);
        let unused = is_temporary.then(|| last_use.after(self.0.limits.link_key_idle_timeout));
        key.expires_at.into_iter().chain(unused).min()
    }

    pub fn revoke(&self, id_or_name: &str) -> Result<Vec<Key>, RevokeError> {
        let by = revoked_by(ActorKind::CommandLine);
        let revoked = self.remove_where(|entry| entry.key.is_named(id_or_name), &by)?;
        if revoked.is_empty() {
            Err(RevokeError::NotFound)
        } else {
            Ok(revoked)
        }
    }

    pub async fn run(self, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(self.0.limits.key_reload_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut flushed = tokio::time::Instant::now();
        loop {
            let is_due = tokio::select! {
                () = shutdown.drain_started() => true,
                () = self.0.first_use.notified() => true,
                _ = ticks.tick() => flushed.elapsed() >= FLUSH_INTERVAL,
            };
            let stop = shutdown.is_draining();
            let flush = is_due || stop;
            if flush {
                flushed = tokio::time::Instant::now();
            }
            let keys = self.clone();
            let work = move || {
                if flush {
                    keys.flush_last_used()?;
                }
                keys.remove_expired()?;
                keys.reload()
            };
            run_blocking(&shutdown, "could not reload the keys; retrying", work).await;
            if stop {
                return;
            }
        }
    }

    /// Reloads the tables, and wakes [`Keys::wait_ended`] if a key was revoked or lost a right, or a user changed.
    pub fn reload(&self) -> Result<(), KeyStoreError> {
        let _one_at_a_time = lock_or_abort(self.0.reloads.lock());
        let mut keys = Vec::new();
        for (hash, stored) in scan_all(&*self.0.store, Table::Key)? {
            let Some((hash, key)) = decode(&hash, &stored) else {
                tracing::warn!("skipped a key record that could not be decoded");
                continue;
            };
            keys.push((hash, key, stored));
        }
        let roles = lock_or_abort(self.0.roles.read()).clone();
        let users = Users::new(
            self.read_users()?,
            keys.iter().map(|(_, key, _)| key),
            roles,
        );
        let groups = users.groups();
        let mut found = HashMap::new();
        for (hash, key, stored) in keys {
            found.insert(
                hash,
                Entry {
                    rights: users.limit(&key.user, key.scopes),
                    networks: Arc::new(Networks::new(key.networks.clone())),
                    key,
                    stored,
                    last_used_millis: AtomicI64::new(0),
                },
            );
        }
        let any_ended = {
            let mut entries = lock_or_abort(self.0.entries.write());
            for (hash, entry) in &mut found {
                if let Some(old) = entries.get(hash) {
                    entry.networks = Arc::clone(&old.networks);
                    let last_used = old.last_used_millis.load(Ordering::Relaxed);
                    entry.last_used_millis.store(last_used, Ordering::Relaxed);
                }
            }
            let any_ended = entries
                .iter()
                .any(|(hash, old)| found.get(hash).is_none_or(|new| !new.covers(old)));
            self.0
                .principal_limits
                .set_key_limits(limits_by_user(found.values().map(|entry| &entry.key)));
            *entries = found;
            any_ended
        };
        // No other lock is held here. Programs that act for users look at both tables.
        let users_changed = {
            let mut current = lock_or_abort(self.0.users.write());
            let changed = *current != users;
            *current = users;
            changed
        };
        self.0.groups.send_if_modified(|current| {
            let is_new = *current != groups;
            *current = groups;
            is_new
        });
        if any_ended || users_changed {
            self.0.ended_count.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    fn insert(
        &self,
        kind: KeyKind,
        printed_by_start: bool,
        by: impl Into<AuditActor>,
        new: &NewKey<'_>,
    ) -> Result<(KeyText, Key), KeyStoreError> {
        let text = KeyText::generate(&self.0.ids);
        let hash = KeyHash::of(text.expose());
        let same_user = |key: &Key| key.user == new.user;
        let earlier = self
            .list()
            .into_iter()
            .rfind(same_user)
            .map(|key| key.limits)
            .unwrap_or_default();
        let key = Key {
            id: hash.id(),
            kind,
            name: new.name.into(),
            user: new.user.clone(),
            scopes: new.scopes,
            member_names: new.member_names.clone(),
            limits: earlier.with(&new.limits),
            folders: GrantedFolders::default(),
            printed_by_start,
            created_at: self.0.ids.now(),
            expires_at: new.expires_at,
            last_used_at: None,
            networks: Vec::new(),
        };
        let mut batch = Batch::default();
        push_change(&mut batch, hash, Some(&key), None);
        batch.records.push(pending_entry(
            &self.0.ids,
            by,
            KeyCreated { key: key.audited() },
        ));
        for (hash, entry) in self
            .entries()
            .iter()
            .filter(|(_, entry)| same_user(&entry.key))
        {
            if entry.key.limits != key.limits {
                let other = Key {
                    limits: key.limits,
                    ..entry.key.clone()
                };
                push_change(&mut batch, *hash, Some(&other), Some(entry.stored.clone()));
            }
        }
        self.0.store.commit(&batch)?;
        self.reload()?;
        Ok((text, key))
    }

    fn remove_where(
        &self,
        ends: impl Fn(&Entry) -> bool,
        event: &dyn Fn(&Key) -> (AuditActor, AuditEvent),
    ) -> Result<Vec<Key>, KeyStoreError> {
        self.commit(|| {
            let mut batch = Batch::default();
            let mut keys = Vec::new();
            for (hash, entry) in self.entries().iter().filter(|(_, entry)| ends(entry)) {
                let (by, event) = event(&entry.key);
                push_change(&mut batch, *hash, None, Some(entry.stored.clone()));
                batch.records.push(pending_entry(&self.0.ids, by, event));
                keys.push(entry.key.clone());
            }
            Ok((batch, keys))
        })
    }

    /// Commits a change and reloads the keys. Repeats it if another process has changed one of the keys.
    fn commit<T, E: From<KeyStoreError>>(
        &self,
        change: impl Fn() -> Result<(Batch, T), E>,
    ) -> Result<T, E> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (batch, result) = change()?;
            if batch.records.is_empty() {
                return Ok(result);
            }
            let committed = self.0.store.commit(&batch);
            if tries < MAX_TRIES && matches!(committed, Err(CommitError::Conflict { .. })) {
                self.reload()?;
                continue;
            }
            committed.map_err(KeyStoreError::from)?;
            self.reload()?;
            return Ok(result);
        }
    }

    fn remove_expired(&self) -> Result<(), KeyStoreError> {
        let now = self.0.expiry.earliest_now();
        let expired = |key: &Key| {
            let event = KeyExpired { key: key.audited() };
            (ActorKind::Timeout.into(), event.into())
        };
        self.remove_where(|entry| !self.is_valid_at(entry, now), &expired)
            .map(drop)
    }

    /// Writes `lastUsedAt` of the keys used since the last flush. A key revoked meanwhile stays revoked.
    fn flush_last_used(&self) -> Result<(), KeyStoreError> {
        let used: Vec<_> = self
            .entries()
            .iter()
            .filter(|(_, entry)| {
                entry.last_used() != entry.key.last_used_at
                    || entry.networks.list() != entry.key.networks
            })
            .map(|(hash, entry)| {
                let key = Key {
                    last_used_at: entry.last_used(),
                    networks: entry.networks.list(),
                    ..entry.key.clone()
                };
                let mut batch = Batch::default();
                push_change(&mut batch, *hash, Some(&key), Some(entry.stored.clone()));
                batch
            })
            .collect();
        for batch in used {
            match self.0.store.commit(&batch) {
                Ok(_) | Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the key is valid, and the role of its user permits anything.
    fn is_usable_at(&self, entry: &Entry, now: Timestamp) -> bool {
        !entry.rights.is_empty() && self.is_valid_at(entry, now)
    }

    fn is_valid_at(&self, entry: &Entry, now: Timestamp) -> bool {
        let end = self.expires_at(&entry.key, entry.last_used());
        end.is_none_or(|end| now < end)
    }

    fn entries(&self) -> RwLockReadGuard<'_, HashMap<KeyHash, Entry>> {
        lock_or_abort(self.0.entries.read())
    }
}

fn revoked_by(by: impl Into<AuditActor>) -> impl Fn(&Key) -> (AuditActor, AuditEvent) {
    let by = by.into();
    move |key| (by.clone(), KeyRevoked { key: key.audited() }.into())
}

#[derive(Clone, Default)]
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
    /// Scopes and names of members belong to a key. Limits belong to the user, so they change for every key of the user.
    pub fn update(&self, id_or_name: &str, change: &KeyChange) -> Result<Vec<Key>, UpdateKeyError> {
        if change
            .scopes
            .is_some_and(|scopes| scopes.iter().next().is_none())
        {
            return Err(UpdateKeyError::NoScope);
        }
        self.reload()?;
        self.commit(|| {
            let named = self
                .list()
                .into_iter()
                .filter(|key| key.is_named(id_or_name));
            let users: Vec<_> = named.map(|key| key.user).collect();
            if users.is_empty() {
                return Err(UpdateKeyError::NotFound);
            }
            let mut batch = Batch::default();
            let mut changed = Vec::new();
            for (hash, entry) in self.entries().iter() {
                let mut key = entry.key.clone();
                if key.is_named(id_or_name) {
                    key.scopes = change.scopes.unwrap_or(key.scopes);
                    if let Some(names) = &change.member_names {
                        key.member_names.clone_from(names);
                    }
                }
                if users.contains(&key.user) {
                    key.limits = key.limits.with(&change.limits);
                }
                if key != entry.key {
                    let event = KeyUpdated {
                        key: key.audited(),
                        previous_scopes: entry.key.scopes,
                        limits_changed: key.limits != entry.key.limits
                            || key.member_names != entry.key.member_names,
                    };
                    let entry_of_log = pending_entry(&self.0.ids, ActorKind::CommandLine, event);
                    batch.records.push(entry_of_log);
                    push_change(&mut batch, *hash, Some(&key), Some(entry.stored.clone()));
                    changed.push(key);
                }
            }
            Ok((batch, changed))
        })
    }
}

/// The limits of each user. All keys of a user have the same limits; if not, the newest key counts.
fn limits_by_user<'a>(keys: impl Iterator<Item = &'a Key>) -> HashMap<UserId, KeyLimits> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by_key(|key| key.created_at);
    let all = keys.into_iter().map(|key| (key.user.clone(), key.limits));
    let mut limits: HashMap<_, _> = all.collect();
    limits.retain(|_, limits: &mut KeyLimits| !limits.is_empty());
    limits
}

/// Adds to `batch` the record of a key, or its removal. The commit fails unless the store still has `stored`.
fn push_change(batch: &mut Batch, hash: KeyHash, key: Option<&Key>, stored: Option<Bytes>) {
    let state = |value| RecordState {
        table: Table::Key,
        key: hash.as_bytes().to_vec(),
        value,
    };
    let record = key.map(|key| {
        serde_json::to_vec(key)
            .expect("a key serializes to JSON")
            .into()
    });
    batch.records.push(state(record));
    batch.expect.push(state(stored));
}

fn decode(hash: &[u8], record: &[u8]) -> Option<(KeyHash, Key)> {
    let hash = KeyHash::from_bytes(hash.try_into().ok()?);
    let key: Key = serde_json::from_slice(record).ok()?;
    Some((
        hash,
        Key {
            id: hash.id(),
            ..key
        },
    ))
}

const PAGE_SIZE: usize = 500;

pub(super) fn scan_all(
    store: &dyn RecordStore,
    table: Table,
) -> Result<Vec<(Vec<u8>, Bytes)>, ReadError> {
    let mut records: Vec<(Vec<u8>, Bytes)> = Vec::new();
    loop {
        let after = records.last().map(|(key, _)| key.as_slice());
        let page = store.scan(table, b"", after, PAGE_SIZE)?;
        let is_last = page.len() < PAGE_SIZE;
        records.extend(page);
        if is_last {
            return Ok(records);
        }
    }
}

pub(super) async fn run_blocking<E: Error + Send + 'static>(
    shutdown: &Shutdown,
    failure: &'static str,
    work: impl FnOnce() -> Result<(), E> + Send + 'static,
) {
    match shutdown.spawn_blocking(work).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = &error as &dyn Error, "{failure}"),
        Err(error) => tracing::error!(%error, "{failure}"),
    }
}
