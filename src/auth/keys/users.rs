//! The users of the keys: their records, and programs that act for them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::watch;

use super::super::key::KeyId;
use super::super::users::{ActAsError, Roles, User, UserInfo};
use super::{KeyStoreError, Keys, Verified, scan_all};
use base::shutdown::lock_or_abort;
use base::types::{Author, Groups, Principal, Scope, UserId, is_name};
use events::event::{ActorKind, AuditActor, UserCreated, UserUpdated};
use log::audit::pending_entry;
use log::store::{Batch, ReadError, RecordState, Table};

/// The maximum number of groups of a user.
const MAX_GROUPS: usize = 64;

/// A change of a user; `None` leaves a member as it is.
#[derive(Debug, Clone, Default)]
pub struct UserChange {
    /// `Some(None)` removes the role.
    pub role: Option<Option<String>>,
    pub groups: Option<Vec<String>>,
    pub is_deactivated: Option<bool>,
}

#[derive(Debug, thiserror::Error)]
pub enum UpdateUserError {
    #[error("there is no user {0}: `acp-gateway key create {0}` creates one")]
    NotFound(String),
    #[error("the user 'owner' runs the gateway: it has no role and cannot be deactivated")]
    Owner,
    #[error(
        "expected at most {MAX_GROUPS} groups whose names have 1 to 64 letters, digits, '.', '_', '-' or '@'"
    )]
    Groups,
    #[error("there is no role {name}: expected one of {known}")]
    Role { name: String, known: String },
    #[error(transparent)]
    Store(#[from] KeyStoreError),
}

impl Keys {
    /// Replaces the roles, from the next reload on.
    pub fn set_roles(&self, roles: Roles) {
        *lock_or_abort(self.0.roles.write()) = roles;
    }

    /// The users with a record and those with keys, sorted by tenant and name.
    pub fn users(&self) -> Vec<UserInfo> {
        lock_or_abort(self.0.users.read()).infos()
    }

    /// The groups of all users, at present and after each change.
    pub fn watch_groups(&self) -> watch::Receiver<Groups> {
        self.0.groups.subscribe()
    }

    /// Whether the user exists and is not deactivated.
    pub fn is_active(&self, user: &UserId) -> bool {
        lock_or_abort(self.0.users.read()).is_active(user)
    }

    /// Whether the user, or a program for it, has this scope at present.
    pub fn may(&self, user: &UserId, scope: Scope) -> bool {
        let allows = |key: &Verified| key.principal.scopes.contains(scope);
        if self.has_key(user, allows) {
            return true;
        }
        let program = lock_or_abort(self.0.users.read())
            .get(user)
            .and_then(|record| record.created_by.clone());
        program.is_some_and(|program| {
            self.has_key(&program, |key| {
                let acting = self.act_as(key, user.name());
                acting.is_ok_and(|acting| acting.is_some_and(|acting| allows(&acting)))
            })
        })
    }

    pub fn update_user(&self, id: &UserId, change: &UserChange) -> Result<(), UpdateUserError> {
        if *id == UserId::owner() {
            return Err(UpdateUserError::Owner);
        }
        self.reload()?;
        if let Some(Some(role)) = &change.role {
            let users = lock_or_abort(self.0.users.read());
            if !users.roles().contains(role) {
                let known: Vec<_> = users.roles().names().collect();
                return Err(UpdateUserError::Role {
                    name: role.clone(),
                    known: known.join(", "),
                });
            }
        }
        let groups = change.groups.as_ref();
        if groups.is_some_and(|names| {
            names.len() > MAX_GROUPS || !names.iter().all(|name| is_name(name))
        }) {
            return Err(UpdateUserError::Groups);
        }
        self.commit(|| {
            let users = lock_or_abort(self.0.users.read());
            if !users.exists(id) {
                return Err(UpdateUserError::NotFound(id.name().to_owned()));
            }
            let stored = users.get(id);
            let mut user = stored.cloned().unwrap_or_default();
            if let Some(role) = &change.role {
                user.role.clone_from(role);
            }
            if let Some(names) = groups {
                let names: BTreeSet<Arc<str>> =
                    names.iter().map(|name| name.as_str().into()).collect();
                user.groups = names.into_iter().collect();
            }
            user.is_deactivated = change.is_deactivated.unwrap_or(user.is_deactivated);
            let event = UserUpdated {
                user: id.to_string(),
                role: user.role.clone(),
                groups: user.groups.iter().map(ToString::to_string).collect(),
                is_deactivated: user.is_deactivated,
            };
            let mut batch = Batch::default();
            batch.expect.push(user_record(id, stored));
            batch.records.push(user_record(id, Some(&user)));
            let event = pending_entry(&self.0.ids, ActorKind::CommandLine, event);
            batch.records.push(event);
            Ok((batch, ()))
        })
    }

    /// The rights of a program that acts for the user of this name in its tenant. `None`: there is no such user, and
    /// [`Keys::create_user`] creates it.
    pub fn act_as(&self, program: &Verified, name: &str) -> Result<Option<Verified>, ActAsError> {
        if !is_name(name) {
            return Err(ActAsError::Name(name.chars().take(64).collect()));
        }
        let user = UserId::new(&program.principal.user.tenant(), name);
        let users = lock_or_abort(self.0.users.read());
        let own = program.principal.scopes;
        let scopes = users.act_as(&user, own.without(Scope::ActAs))?;
        Ok(users.exists(&user).then(|| Verified {
            principal: Principal {
                user,
                scopes,
                ..program.principal.clone()
            },
            ..program.clone()
        }))
    }

    /// Creates a user for whom a program acts. Blocks on the store.
    pub fn create_user(
        &self,
        author: &Author,
        program: &Verified,
        name: &str,
    ) -> Result<(), ActAsError> {
        let _one_at_a_time = lock_or_abort(self.0.creates_user.lock());
        let created_by = &program.principal.user;
        let id = UserId::new(&created_by.tenant(), name);
        let max = self.0.limits.max_users_per_program;
        let created = self.commit(|| {
            let users = lock_or_abort(self.0.users.read());
            let mut batch = Batch::default();
            let is_full = users.created_by(created_by) >= max;
            if users.exists(&id) || is_full {
                return Ok::<_, KeyStoreError>((batch, users.exists(&id)));
            }
            let user = User {
                created_by: Some(created_by.clone()),
                ..User::default()
            };
            let event = UserCreated {
                user: id.to_string(),
            };
            batch.expect.push(user_record(&id, None));
            batch.records.push(user_record(&id, Some(&user)));
            let actor = AuditActor::from(author);
            batch.records.push(pending_entry(&self.0.ids, actor, event));
            Ok((batch, true))
        });
        match created {
            Ok(true) => Ok(()),
            Ok(false) => Err(ActAsError::TooMany(max)),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not store a user"
                );
                Err(ActAsError::Store(name.to_owned()))
            }
        }
    }

    /// A key with the rights for this user: its own one, or one for whom it acts.
    pub(in crate::auth) fn verified_for(&self, key: &KeyId, user: &UserId) -> Option<Verified> {
        let holder = self.verified_by_id(key)?;
        if holder.principal.user == *user {
            return Some(holder);
        }
        if !holder.principal.scopes.contains(Scope::ActAs) {
            return None;
        }
        self.act_as(&holder, user.name()).ok().flatten()
    }

    pub(super) fn read_users(&self) -> Result<HashMap<UserId, User>, ReadError> {
        let mut users = HashMap::new();
        for (id, record) in scan_all(&*self.0.store, Table::User)? {
            let id = std::str::from_utf8(&id).ok().map(UserId::from_text);
            if let (Some(id), Ok(user)) = (id, serde_json::from_slice(&record)) {
                users.insert(id, user);
            } else {
                tracing::warn!("skipped the record of a user that could not be decoded");
            }
        }
        Ok(users)
    }
}

fn user_record(id: &UserId, user: Option<&User>) -> RecordState {
    let value = user.map(|user| {
        let json = serde_json::to_vec(user);
        json.expect("a user serializes to JSON").into()
    });
    RecordState {
        table: Table::User,
        key: id.as_str().as_bytes().to_vec(),
        value,
    }
}
