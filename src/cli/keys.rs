//! `key create|update|list|revoke`: works directly on the store, also while a gateway runs.
//!
//! A running gateway holds the lock of the data folder. The commands do not need it: keys are separate
//! records, the store supports a second writer, and the gateway reloads the keys every second.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::output::Failure;
use super::source::{self, local_config};
use super::{link, output};
use crate::auth::{Key, KeyChange, Keys, NewKey};
use crate::config::{Flags, parse_duration};
use base::types::{
    AgentName, AgentNameError, LimitChange, PrincipalLimit, Scope, Tenant, Timestamp, UserId,
};
use events::api::KeyInfo;

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create a key and print it; it cannot be printed again. A gateway that runs accepts it when it is printed
    Create {
        /// The name of the key. Without --user it is also the name of its user, which events show
        name: String,
        /// The user of the key. Sessions belong to the user; other users do not see them. `owner` is the person that runs
        /// the gateway
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// The tenant of the user
        #[arg(long, value_name = "TENANT", default_value = "default")]
        tenant: String,
        /// The time after which the key ends, such as 12h or 30d
        #[arg(long, value_name = "DURATION", value_parser = parse_expiry)]
        expires_in: Option<Duration>,
        #[arg(
            long,
            help = format!("The scopes of the key: {}", scope_names()),
            value_name = "SCOPES",
            value_delimiter = ',',
            value_parser = parse_scope,
            default_value = "read,prompt,approve,files"
        )]
        scopes: Vec<Scope>,
        /// Print a link that opens the page with the key, in place of the key
        #[arg(long)]
        link: bool,
        /// The only names that members of the fleet may use with the key, also names of known agents. Without it, a
        /// member may use every name except those of known agents
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        member_names: Vec<AgentName>,
        #[command(flatten)]
        limits: LimitFlags,
    },
    /// Change the scopes of the key with this id, or of all keys with this name, and the limits of their users
    Update {
        #[arg(value_name = "ID|NAME")]
        key: String,
        #[arg(long, help = format!("The new scopes of the key: {}", scope_names()), value_name = "SCOPES", value_delimiter = ',', value_parser = parse_scope)]
        scopes: Option<Vec<Scope>>,
        /// The only names that members of the fleet may use with the key, or `default`
        #[arg(long, value_name = "NAMES|default")]
        member_names: Option<NameList>,
        #[command(flatten)]
        limits: LimitFlags,
    },
    /// List all keys, without their secrets
    List,
    /// Revoke the key with this id, or all keys with this name; their streams end within a second
    Revoke {
        #[arg(value_name = "ID|NAME")]
        key: String,
    },
}

// All keys of a user share these limits. (A doc comment would replace the help text of the
// subcommand.)
#[derive(Debug, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "a flag has the name of its configuration key"
)]
pub(super) struct LimitFlags {
    /// Maximum requests in a minute
    #[arg(long, value_name = "N|default")]
    max_requests_per_minute: Option<LimitValue>,
    /// Maximum prompts in a minute
    #[arg(long, value_name = "N|default")]
    max_prompts_per_minute: Option<LimitValue>,
    /// Maximum concurrent streams and held responses
    #[arg(long, value_name = "N|default")]
    max_streams: Option<LimitValue>,
    /// Maximum sessions that have a process or wait for one
    #[arg(long, value_name = "N|default")]
    max_live_sessions: Option<LimitValue>,
    /// Maximum prompts that wait for a process of one agent
    #[arg(long, value_name = "N|default")]
    max_queued_prompts: Option<LimitValue>,
    /// Maximum bytes of tasks that wait for a process
    #[arg(long, value_name = "N|default")]
    max_queued_task_bytes: Option<LimitValue>,
    /// Maximum members of the fleet
    #[arg(long, value_name = "N|default")]
    max_fleet_members: Option<LimitValue>,
}

impl LimitFlags {
    fn changes(&self) -> Vec<LimitChange> {
        let flags = [
            (PrincipalLimit::Requests, self.max_requests_per_minute),
            (PrincipalLimit::Prompts, self.max_prompts_per_minute),
            (PrincipalLimit::Streams, self.max_streams),
            (PrincipalLimit::LiveSessions, self.max_live_sessions),
            (PrincipalLimit::QueuedPrompts, self.max_queued_prompts),
            (PrincipalLimit::QueuedTaskBytes, self.max_queued_task_bytes),
            (PrincipalLimit::Members, self.max_fleet_members),
        ];
        let set = flags.into_iter();
        set.filter_map(|(limit, value)| Some((limit, value?.0)))
            .collect()
    }
}

/// The value of a limit; `None` restores the default from the configuration.
#[derive(Debug, Clone, Copy)]
struct LimitValue(Option<u32>);

impl std::str::FromStr for LimitValue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "default" => Ok(Self(None)),
            Ok(value) if value > 0 => Ok(Self(Some(value))),
            _ => Err("expected a positive integer or `default`"),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct NameList(Vec<AgentName>);

impl std::str::FromStr for NameList {
    type Err = AgentNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "default" {
            return Ok(Self(Vec::new()));
        }
        let names: Result<_, _> = text.split(',').map(str::parse).collect();
        Ok(Self(names?))
    }
}

pub(super) fn run(command: &KeyCommand, flags: &Flags, json: bool) -> Result<(), Failure> {
    let config = local_config(flags)?;
    let (keys, lock) = match command {
        KeyCommand::Create { .. } => source::open_or_create_keys(&config)?,
        _ => source::open_keys(&config)?,
    };
    match command {
        KeyCommand::Create {
            name,
            user,
            tenant,
            expires_in,
            scopes,
            link,
            member_names,
            limits,
        } => {
            let is_running = lock.is_none();
            let url = link
                .then(|| link::configured_page_url(&config, is_running))
                .transpose()?;
            let scopes = scopes.iter().copied().collect();
            let (text, key) = keys.create(&NewKey {
                name,
                user: UserId::new(&Tenant::new(tenant), user.as_ref().unwrap_or(name)),
                scopes,
                member_names: member_names.clone(),
                limits: limits.changes(),
                expires_at: expires_in.map(|time| keys.now().after(time)),
            })?;
            if is_running {
                source::wait_for_reload(&config);
            }
            let secret = match url {
                Some(url) => PrintedSecret::Link(link::link(&url, &text)),
                None => PrintedSecret::Key(text.expose().to_owned()),
            };
            let key = keys.info(&key);
            output::write_result(&CreatedKey { key, secret }, json)
        }
        KeyCommand::Update {
            key,
            scopes,
            member_names,
            limits,
        } => {
            let scopes = scopes
                .as_ref()
                .map(|scopes| scopes.iter().copied().collect());
            let change = KeyChange {
                scopes,
                member_names: member_names.as_ref().map(|names| names.0.clone()),
                limits: limits.changes(),
            };
            if change.is_empty() {
                return Err("nothing to change: set --scopes, --member-names or a limit".into());
            }
            let updated = keys.update(key, &change)?;
            output::write_result(&ChangedKeys::new("updated", &keys, &updated), json)
        }
        KeyCommand::List => {
            let keys = keys.list().iter().map(|key| keys.info(key)).collect();
            output::write_result(&KeyTable { keys }, json)
        }
        KeyCommand::Revoke { key } => {
            let revoked = keys.revoke(key)?;
            output::write_result(&ChangedKeys::new("revoked", &keys, &revoked), json)
        }
    }
}

fn scope_names() -> String {
    let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.name()).collect();
    names.join(", ")
}

fn parse_expiry(text: &str) -> Result<Duration, &'static str> {
    let duration = parse_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or("expected a time such as 90m, 12h or 30d")
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    let mut scopes = Scope::ALL.iter().copied();
    let found = scopes.find(|scope| scope.name() == text);
    found.ok_or_else(|| format!("expected one of {}", scope_names()))
}

#[derive(Serialize, derive_more::Display)]
#[serde(rename_all = "camelCase")]
enum PrintedSecret {
    Key(String),
    Link(String),
}

/// The result of `create`. The text is only the secret, for a variable of a shell.
#[derive(Serialize, derive_more::Display)]
#[display("{secret}\n")]
struct CreatedKey {
    #[serde(flatten)]
    key: KeyInfo,
    #[serde(flatten)]
    secret: PrintedSecret,
}

/// The result of `update` and `revoke`.
#[derive(Serialize)]
struct ChangedKeys {
    #[serde(skip)]
    change: &'static str,
    keys: Vec<KeyInfo>,
}

impl ChangedKeys {
    fn new(change: &'static str, keys: &Keys, changed: &[Key]) -> Self {
        let keys = changed.iter().map(|key| keys.info(key)).collect();
        Self { change, keys }
    }
}

impl Display for ChangedKeys {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for KeyInfo { key_id, name, .. } in &self.keys {
            writeln!(f, "{} {key_id} ({name})", self.change)?;
        }
        Ok(())
    }
}

/// The result of `list`: a table.
#[derive(Serialize)]
struct KeyTable {
    keys: Vec<KeyInfo>,
}

impl Display for KeyTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.keys.iter().map(|key| {
            let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.name()).collect();
            let time = |time: Option<Timestamp>| {
                time.map_or_else(|| "never".to_owned(), |time| time.to_string())
            };
            vec![
                key.key_id.clone(),
                key.name.clone(),
                qualified_user(key),
                key.kind.to_string(),
                scopes.join(","),
                format_limits(key),
                time(key.created_at),
                time(key.expires_at),
                time(key.last_used_at),
            ]
        });
        let head = "ID,NAME,USER,KIND,SCOPES,LIMITS,CREATED,EXPIRES,LAST USED";
        output::write_table(f, head, rows)
    }
}

fn qualified_user(key: &KeyInfo) -> String {
    let tenant = Tenant::new(&key.tenant);
    if tenant == Tenant::default() {
        return key.user.clone();
    }
    UserId::new(&tenant, &key.user).as_str().to_owned()
}

fn format_limits(key: &KeyInfo) -> String {
    let names: Vec<_> = key.member_names.iter().map(AgentName::as_str).collect();
    let names = (!names.is_empty()).then(|| format!("member-names={}", names.join("+")));
    let limits = key.limits.iter();
    let set: Vec<_> = limits
        .map(|(limit, value)| format!("{}={value}", limit.flag()))
        .chain(names)
        .collect();
    if set.is_empty() {
        "default".to_owned()
    } else {
        set.join(",")
    }
}
