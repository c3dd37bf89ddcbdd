//! Users with a record, and roles. A user without a record exists as long as it has a key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::key::Key;
use base::types::{Groups, Scope, Scopes, UserId};

/// The name of the role of a user that a program created.
const MEMBER: &str = "member";

const PRIVILEGED: [Scope; 4] = [Scope::Admin, Scope::ActAs, Scope::Fleet, Scope::Metrics];

/// What is stored about a user. The JSON form is the record in `Table::User`, stored under the text of the id.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct User {
    /// Without a role, the keys of the user alone decide about its rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Arc<str>>,
    /// The keys of a deactivated user are not valid, and no program can act for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deactivated: bool,
    /// The user of the program that created this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<UserId>,
}

/// A user as commands print it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserInfo {
    pub user: String,
    pub tenant: String,
    pub role: Option<String>,
    pub groups: Vec<Arc<str>>,
    pub is_deactivated: bool,
    /// The program that created the user.
    pub created_by: Option<String>,
}

/// The scopes of each role. A role of the configuration can have the name of a built-in one, and replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(BTreeMap<String, Scopes>);

impl Default for Roles {
    fn default() -> Self {
        use Scope::{ActAs, Admin, Approve, Files, Fleet, Mcp, Metrics, Prompt, Read};
        let built_in: [(&str, &[Scope]); 4] = [
            ("viewer", &[Read]),
            (MEMBER, &[Read, Prompt, Approve, Files]),
            (
                "operator",
                &[Read, Prompt, Approve, Files, Mcp, Fleet, Metrics],
            ),
            ("admin", &[Admin, Mcp, ActAs]),
        ];
        let scopes = built_in.into_iter();
        Self::of(scopes.map(|(name, scopes)| (name.to_owned(), scopes.iter().copied().collect())))
    }
}

impl Roles {
    fn of(roles: impl IntoIterator<Item = (String, Scopes)>) -> Self {
        Self(roles.into_iter().collect())
    }

    /// The built-in roles with those of the configuration.
    pub fn with(configured: &BTreeMap<String, Scopes>) -> Self {
        let Self(mut roles) = Self::default();
        roles.extend(configured.clone());
        Self(roles)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The scopes of a role. A role that the configuration does not have any more has none.
    fn scopes(&self, name: &str) -> Scopes {
        self.0.get(name).copied().unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActAsError {
    #[error(
        "this key cannot act for the user {0:?}: expected 1 to 64 letters, digits, '.', '_', '-' or '@'"
    )]
    Name(String),
    #[error("this key cannot act for the user {0}, who is deactivated")]
    Deactivated(String),
    #[error(
        "this key cannot act for the user {0}, who administers the gateway or is itself a program"
    )]
    Privileged(String),
    #[error(
        "this key has created {0} users, which is the limit (`auth.max_users_per_program`): deactivated users count too"
    )]
    TooMany(usize),
    #[error("could not store the user {0}: see the log of the gateway")]
    Store(String),
}

/// All users: those with a record, and those with keys.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Users {
    records: HashMap<UserId, User>,
    /// The scopes of all keys of a user together.
    of_keys: HashMap<UserId, Scopes>,
    roles: Roles,
}

impl Users {
    pub(super) fn new<'a>(
        records: HashMap<UserId, User>,
        keys: impl Iterator<Item = &'a Key>,
        roles: Roles,
    ) -> Self {
        let mut of_keys: HashMap<UserId, Scopes> = HashMap::new();
        for key in keys {
            let all = of_keys.entry(key.user.clone()).or_default();
            *all = all.iter().chain(key.scopes.iter()).collect();
        }
        Self {
            records,
            of_keys,
            roles,
        }
    }

    pub(super) fn get(&self, user: &UserId) -> Option<&User> {
        self.records.get(user)
    }

    pub(super) fn roles(&self) -> &Roles {
        &self.roles
    }

    pub(super) fn groups(&self) -> Groups {
        let records = self.records.iter();
        let in_groups = records.filter(|(_, user)| !user.groups.is_empty());
        let groups = in_groups.map(|(id, user)| (id.clone(), user.groups.clone()));
        Groups::from(groups.collect::<HashMap<_, _>>())
    }

    /// All users, sorted by tenant and name.
    pub(super) fn infos(&self) -> Vec<UserInfo> {
        let ids: BTreeSet<_> = self.records.keys().chain(self.of_keys.keys()).collect();
        let info = |id: &UserId| {
            let record = self.records.get(id);
            UserInfo {
                user: id.name().to_owned(),
                tenant: id.tenant().as_str().to_owned(),
                role: record.and_then(|record| record.role.clone()),
                groups: record
                    .map(|record| record.groups.clone())
                    .unwrap_or_default(),
                is_deactivated: record.is_some_and(|record| record.is_deactivated),
                created_by: record
                    .and_then(|record| record.created_by.as_ref())
                    .map(|program| program.name().to_owned()),
            }
        };
        ids.into_iter().map(info).collect()
    }

    /// Whether the user exists and is not deactivated.
    pub(super) fn is_active(&self, user: &UserId) -> bool {
        match self.records.get(user) {
            Some(record) => !record.is_deactivated,
            None => *user == UserId::owner() || self.of_keys.contains_key(user),
        }
    }

    /// The rights of a key of this user that has these scopes.
    pub(super) fn limit(&self, user: &UserId, scopes: Scopes) -> Scopes {
        match self.records.get(user) {
            Some(record) if record.is_deactivated => Scopes::default(),
            Some(User {
                role: Some(role), ..
            }) => self.roles.scopes(role).intersection(scopes),
            _ => scopes,
        }
    }

    /// The rights of a program with these scopes that acts for a user.
    pub(super) fn act_as(&self, user: &UserId, scopes: Scopes) -> Result<Scopes, ActAsError> {
        let record = self.records.get(user);
        let name = || user.name().to_owned();
        if record.is_some_and(|record| record.is_deactivated) {
            return Err(ActAsError::Deactivated(name()));
        }
        let role = record.and_then(|record| record.role.as_deref());
        let role = self.roles.scopes(role.unwrap_or(MEMBER));
        let keys = self.of_keys.get(user).copied().unwrap_or_default();
        let has_privilege =
            |scopes: Scopes| PRIVILEGED.into_iter().any(|scope| scopes.contains(scope));
        if *user == UserId::owner() || has_privilege(role) || has_privilege(keys) {
            return Err(ActAsError::Privileged(name()));
        }
        Ok(scopes.intersection(role))
    }

    pub(super) fn exists(&self, user: &UserId) -> bool {
        self.records.contains_key(user) || self.of_keys.contains_key(user)
    }

    pub(super) fn created_by(&self, program: &UserId) -> usize {
        let records = self.records.values();
        records
            .filter(|user| user.created_by.as_ref() == Some(program))
            .count()
    }
}
