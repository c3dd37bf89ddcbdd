//! `user list|update`: works directly on the store, also while a gateway runs.

use std::fmt::{self, Display, Formatter};

use clap::Subcommand;
use serde::Serialize;

use super::output::{Failure, write_result, write_table};
use super::source::{self, local_config};
use crate::auth::{UserChange, UserInfo};
use crate::config::Flags;
use base::types::{Tenant, UserId};

#[derive(Debug, Subcommand)]
pub(super) enum UserCommand {
    /// List the users that have keys, a role, or were created by a program
    List,
    /// Change the role of a user, or deactivate it: its streams end within a second
    Update {
        #[arg(value_name = "NAME")]
        user: String,
        /// The tenant of the user
        #[arg(long, value_name = "TENANT", default_value = "default")]
        tenant: String,
        /// viewer, member, operator, admin, or a role of the configuration. The keys of the user then have only the scopes of the
        /// role. `none` removes the role
        #[arg(long, value_name = "ROLE|none")]
        role: Option<String>,
        /// The groups of the user, or `none`. A session can be shared with a group
        #[arg(long, value_name = "NAMES|none", value_delimiter = ',')]
        groups: Option<Vec<String>>,
        /// `false`: the keys of the user are not valid, and no program can act for it
        #[arg(long, value_name = "BOOL")]
        active: Option<bool>,
    },
}

pub(super) fn run(command: &UserCommand, flags: &Flags, json: bool) -> Result<(), Failure> {
    let config = local_config(flags)?;
    let (keys, _lock) = source::open_keys(&config)?;
    match command {
        UserCommand::List => write_result(
            &UserTable {
                users: keys.users(),
            },
            json,
        ),
        UserCommand::Update {
            user,
            tenant,
            role,
            groups,
            active,
        } => {
            if role.is_none() && groups.is_none() && active.is_none() {
                return Err("nothing to change: set --role, --groups or --active".into());
            }
            let id = UserId::new(&Tenant::new(tenant), user);
            let role = role.as_ref();
            let groups = groups.clone();
            let change = UserChange {
                groups: groups.map(|names| if names == ["none"] { Vec::new() } else { names }),
                role: role.map(|role| (role != "none").then(|| role.clone())),
                is_deactivated: active.map(|active| !active),
            };
            keys.update_user(&id, &change)?;
            let mut users = keys.users();
            users.retain(|info| info.user == *user && info.tenant == *tenant);
            write_result(&UserTable { users }, json)
        }
    }
}

#[derive(Serialize)]
struct UserTable {
    users: Vec<UserInfo>,
}

impl Display for UserTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.users.iter().map(|info| {
            let state = if info.is_deactivated {
                "deactivated"
            } else {
                "active"
            };
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            vec![
                info.user.clone(),
                info.tenant.clone(),
                text(&info.role),
                if info.groups.is_empty() {
                    "-".to_owned()
                } else {
                    info.groups.join(",")
                },
                state.to_owned(),
                text(&info.created_by),
            ]
        });
        write_table(f, "NAME,TENANT,ROLE,GROUPS,STATE,CREATED BY", rows)
    }
}
