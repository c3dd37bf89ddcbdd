//! `key create|list|revoke`: works on the store itself, beside a gateway that runs on it.
//!
//! A running gateway keeps its lock: keys are records of their own, the store takes a second writer, and the gateway
//! reads the keys again each second.

use std::fmt::Write;

use clap::Subcommand;

use super::{Failure, Options, lock, output};
use crate::app;
use crate::auth::{Key, KeyKind, Keys, NewKey};
use crate::types::{Ids, Scope, Tenant};

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key and print it, once
    Create {
        /// Who holds it; shown in events. A second key of one name is the same principal
        name: String,
        /// What it allows: read, prompt, approve, files, admin
        #[arg(
            long,
            value_name = "SCOPES",
            value_delimiter = ',',
            value_parser = scope,
            default_value = "read,prompt,approve,files"
        )]
        scopes: Vec<Scope>,
    },
    /// Show all keys, without their texts
    List,
    /// End a key by its id, or all keys of a name; their streams end within a second
    Revoke {
        #[arg(value_name = "ID|NAME")]
        key: String,
    },
}

pub(super) fn run(command: &KeyCommand, options: &Options) -> Result<(), Failure> {
    let gateway = options.beside()?;
    lock::lay_out(&gateway.data)?;
    let alone = lock::beside_gateway(&gateway.data)?;
    // To open the log brings it to this version, and the gateway that runs does not know that one.
    if alone.is_none() && app::is_earlier(&gateway.data)? {
        return Err(lock::DataDirError::Earlier(gateway.data.path().to_owned()).into());
    }
    let ids = Ids::system();
    let store = app::open_store(&gateway.data, &gateway.limits, &ids)?;
    let keys = Keys::open(store, ids, &gateway.limits, None)?;
    match command {
        KeyCommand::Create { name, scopes } => {
            let scopes = scopes.iter().copied().collect();
            let (text, _) = keys.create(&NewKey { name, tenant: Tenant::default(), scopes })?;
            output::line(text.expose())?;
        }
        KeyCommand::List => output::write(table(&keys.list()).as_bytes())?,
        KeyCommand::Revoke { key } => {
            for revoked in keys.revoke(key)? {
                output::line(&format!("revoked {} ({})", revoked.id, revoked.name))?;
            }
        }
    }
    Ok(())
}

fn scope(text: &str) -> Result<Scope, String> {
    let known = Scope::ALL.into_iter().find(|scope| name_of(*scope) == text);
    known.ok_or_else(|| "a scope is one of read, prompt, approve, files, admin".to_owned())
}

fn name_of(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Prompt => "prompt",
        Scope::Approve => "approve",
        Scope::Files => "files",
        Scope::Admin => "admin",
    }
}

fn table(keys: &[Key]) -> String {
    let mut rows = vec![["ID", "NAME", "KIND", "SCOPES", "CREATED", "LAST USED"].map(str::to_owned)];
    rows.extend(keys.iter().map(|key| {
        let scopes: Vec<_> = key.scopes.iter().map(name_of).collect();
        let kind = match key.kind {
            KeyKind::Link => "link",
            KeyKind::Named => "named",
            KeyKind::Admin => "admin",
        };
        [
            key.id.to_string(),
            key.name.to_string(),
            kind.to_owned(),
            scopes.join(","),
            key.created_at.to_string(),
            key.last_used_at.map_or_else(|| "never".to_owned(), |time| time.to_string()),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..6).map(width).collect();
    rows.iter().fold(String::new(), |mut text, row| {
        let cells = row.iter().zip(&widths).fold(String::new(), |mut line, (cell, width)| {
            write!(line, "{cell:<width$}  ").expect("writing to a string does not fail");
            line
        });
        text.push_str(cells.trim_end());
        text.push('\n');
        text
    })
}
