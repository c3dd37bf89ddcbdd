//! The grants of all shared sessions, in memory. Each change is in the store before it is here.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use base::shutdown::lock_or_abort;
use base::types::{Access, Grant, Grantee, Groups, SessionId, Tenant, UserId};

/// A session that has grants. The store has the same form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSession {
    pub owner: UserId,
    pub grants: Vec<Grant>,
}

impl SharedSession {
    /// The users whom the grants name.
    pub(super) fn users(&self) -> impl Iterator<Item = UserId> {
        let tenant = self.owner.tenant();
        self.grants
            .iter()
            .filter_map(move |grant| match &grant.grantee {
                Grantee::User(name) => Some(UserId::new(&tenant, name)),
                Grantee::Group(_) | Grantee::Tenant => None,
            })
    }

    /// The highest access that the grants give to this user. The owner has access without a grant.
    fn access_of(&self, user: &UserId, groups: &Groups) -> Option<Access> {
        if !self.owner.has_tenant_of(user) {
            return None;
        }
        let grants = self.grants.iter();
        let groups = groups.of(user);
        let given = grants.filter(|grant| grant.grantee.includes(user, groups));
        given.map(|grant| grant.access).max()
    }
}

#[derive(Debug)]
pub(super) struct Shares {
    state: RwLock<State>,
    /// The number of shared sessions. Most gateways have none, and then no reader needs the lock.
    count: AtomicUsize,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionId, SharedSession>,
    /// So that a list of the sessions that are shared with a user does not read the grants of others.
    by_grantee: HashMap<(Tenant, Grantee), HashSet<SessionId>>,
    groups: Groups,
}

/// A user that a change of groups gives another access to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedAccess {
    pub user: UserId,
    pub session: SessionId,
    /// `None`: the user has lost the access.
    pub access: Option<Access>,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            state: RwLock::default(),
            count: AtomicUsize::new(0),
            changes: watch::Sender::new(0),
        }
    }
}

impl Shares {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        lock_or_abort(self.state.read())
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        lock_or_abort(self.state.write())
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The access that grants give a user to a session.
    pub(super) fn access(&self, session: SessionId, user: &UserId) -> Option<Access> {
        if self.is_empty() {
            return None;
        }
        let state = self.read();
        let shared = state.sessions.get(&session)?;
        shared.access_of(user, &state.groups)
    }

    pub(super) fn contains(&self, session: SessionId) -> bool {
        !self.is_empty() && self.read().sessions.contains_key(&session)
    }

    pub(super) fn get(&self, session: SessionId) -> Option<SharedSession> {
        self.read().sessions.get(&session).cloned()
    }

    /// The sessions of others to which grants give a user access.
    pub(super) fn with(&self, user: &UserId) -> Vec<(SessionId, Access)> {
        let state = self.read();
        state.shared_with(user, &state.groups)
    }

    /// Whether a user of the tenant is in the group.
    pub(super) fn has_group(&self, tenant: &Tenant, name: &str) -> bool {
        self.read().groups.contains(tenant, name)
    }

    /// Replaces the groups of all users. Returns what users lose and gain.
    pub(super) fn set_groups(&self, groups: Groups) -> Vec<ChangedAccess> {
        let mut state = self.write();
        if state.groups == groups {
            return Vec::new();
        }
        let users: HashSet<_> = state.groups.users().chain(groups.users()).collect();
        let users = users.into_iter();
        let moved = users.filter(|user| state.groups.of(user) != groups.of(user));
        let mut changed = Vec::new();
        for user in moved {
            let after: HashMap<_, _> = state.shared_with(user, &groups).into_iter().collect();
            let before: HashMap<_, _> =
                state.shared_with(user, &state.groups).into_iter().collect();
            let sessions: HashSet<_> = before.keys().chain(after.keys()).collect();
            for session in sessions {
                let access = after.get(session).copied();
                if before.get(session).copied() != access {
                    changed.push(ChangedAccess {
                        user: user.clone(),
                        session: *session,
                        access,
                    });
                }
            }
        }
        state.groups = groups;
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
        changed
    }

    /// Replaces the grants of a session.
    pub(super) fn set(&self, session: SessionId, shared: SharedSession) {
        let mut state = self.write();
        state.remove(session);
        if !shared.grants.is_empty() {
            let tenant = shared.owner.tenant();
            for grant in &shared.grants {
                let key = (tenant.clone(), grant.grantee.clone());
                state.by_grantee.entry(key).or_default().insert(session);
            }
            state.sessions.insert(session, shared);
        }
        self.count.store(state.sessions.len(), Ordering::Release);
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Removes the grants of a session that was erased.
    pub(super) fn remove(&self, session: SessionId) {
        let mut state = self.write();
        let removed = state.remove(session);
        self.count.store(state.sessions.len(), Ordering::Release);
        drop(state);
        if removed.is_some() {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// A receiver that is notified after each change.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl State {
    fn shared_with(&self, user: &UserId, groups: &Groups) -> Vec<(SessionId, Access)> {
        let named = [Grantee::User(user.name().into()), Grantee::Tenant];
        let of_groups = groups.of(user).iter().cloned().map(Grantee::Group);
        let found: HashSet<SessionId> = named
            .into_iter()
            .chain(of_groups)
            .filter_map(|grantee| self.by_grantee.get(&(user.tenant(), grantee)))
            .flatten()
            .copied()
            .collect();
        let shared = |id| {
            let shared = &self.sessions[&id];
            let access = shared.access_of(user, groups)?;
            (shared.owner != *user).then_some((id, access))
        };
        found.into_iter().filter_map(shared).collect()
    }

    fn remove(&mut self, session: SessionId) -> Option<SharedSession> {
        let shared = self.sessions.remove(&session)?;
        let tenant = shared.owner.tenant();
        for grant in &shared.grants {
            let key = (tenant.clone(), grant.grantee.clone());
            if let Some(sessions) = self.by_grantee.get_mut(&key) {
                sessions.remove(&session);
                if sessions.is_empty() {
                    self.by_grantee.remove(&key);
                }
            }
        }
        Some(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::types::{Ids, Timestamp};

    fn grant(grantee: &str, access: Access) -> Grant {
        Grant {
            grantee: grantee.parse().unwrap(),
            access,
            granted_by: "alice".to_owned(),
            granted_at: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn grants_apply_to_their_users_of_the_same_tenant_until_they_are_replaced() {
        let shares = Shares::default();
        let session = Ids::system().session();
        let user = |text: &str| UserId::from_text(text);
        let share = |grants: &[(&str, Access)]| {
            let grants = grants.iter().map(|(name, access)| grant(name, *access));
            let owner = user("a/alice");
            let grants = grants.collect();
            shares.set(session, SharedSession { owner, grants });
        };
        share(&[("user:bob", Access::Prompt), ("tenant", Access::Read)]);
        assert_eq!(shares.access(session, &user("a/bob")), Some(Access::Prompt));
        assert_eq!(shares.access(session, &user("a/carol")), Some(Access::Read));
        assert_eq!(shares.access(session, &user("b/bob")), None);
        assert_eq!(shares.with(&user("a/bob")), [(session, Access::Prompt)]);
        assert_eq!(
            shares.with(&user("a/alice")),
            [],
            "it is not shared with its owner"
        );
        assert_eq!(shares.with(&user("b/bob")), []);

        share(&[("user:carol", Access::Own)]);
        assert_eq!(shares.access(session, &user("a/bob")), None);
        assert_eq!(shares.with(&user("a/bob")), []);
        assert_eq!(shares.with(&user("a/carol")), [(session, Access::Own)]);
        share(&[]);
        assert_eq!(shares.get(session), None);
        assert!(shares.read().by_grantee.is_empty());
    }

    #[test]
    fn members_of_a_group_have_its_access_until_they_leave() {
        let shares = Shares::default();
        let [one, two] = [(); 2].map(|()| Ids::system().session());
        let user = |text: &str| UserId::from_text(text);
        let groups = |members: &[&str]| {
            let members = members.iter().map(|name| (user(name), vec!["team".into()]));
            Groups::from(members.collect::<HashMap<_, _>>())
        };
        for (session, grantee) in [(one, "group:team"), (two, "user:bob")] {
            let grants = vec![grant(grantee, Access::Prompt)];
            let owner = user("a/alice");
            shares.set(session, SharedSession { owner, grants });
        }
        let changed = |name: &str, access| ChangedAccess {
            user: user(name),
            session: one,
            access,
        };
        assert_eq!(shares.access(one, &user("a/bob")), None);
        let gained = shares.set_groups(groups(&["a/bob", "b/carol"]));
        assert_eq!(gained, [changed("a/bob", Some(Access::Prompt))]);
        assert_eq!(shares.access(one, &user("a/bob")), Some(Access::Prompt));
        assert_eq!(shares.access(one, &user("b/carol")), None, "another tenant");
        assert_eq!(shares.with(&user("a/bob")).len(), 2);
        assert_eq!(shares.set_groups(groups(&["a/bob", "b/carol"])), []);
        assert_eq!(shares.set_groups(groups(&[])), [changed("a/bob", None)]);
        assert_eq!(shares.with(&user("a/bob")), [(two, Access::Prompt)]);
    }
}
