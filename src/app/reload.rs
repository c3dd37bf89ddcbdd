//! Reloads the configuration while the gateway runs: agents, MCP servers, the operator's key and the limits
//! of users. Every other change takes effect at the next start.
//!
//! - An unchanged entry keeps its `Arc`, so the pool and the sessions detect a change by a comparison of pointers.
//! - Every entry contains all MCP servers, because a session can name any of them. A change of one server therefore
//!   changes every entry.
//! - A process gets only secrets of the entry with which it started. Its stderr masks only these secrets.
//! - The result of a sign-in counts only for the entry with which the sign-in began.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::catalogue;
use super::members::Publisher;
use crate::auth::{KeyHash, Keys, Roles};
use crate::config::{self, Config};
use agents::agent::Catalogue;
use agents::pool::Pool;
use base::shutdown::Shutdown;
use base::types::AgentName;
use events::api::ConfigurationValue;
use events::event::ActorKind;
use log::audit::Audit;

/// Applies a new configuration to the running gateway.
///
/// Only the start and the reloader read the configuration. A new catalogue first reaches the pool, then all
/// readers of the current catalogue.
#[derive(Clone)]
pub struct Reloader {
    pub(super) publisher: Publisher,
    pub(super) pool: Pool,
    pub(super) keys: Keys,
    pub(super) audit: Audit,
    pub(super) shutdown: Shutdown,
    pub(super) config: Config,
    /// The values of `config` for readers of the gateway's state.
    pub(super) reported: watch::Sender<Vec<ConfigurationValue>>,
}

impl Reloader {
    /// Reads the whole configuration with `read`, and applies the parts that can change while the gateway
    /// runs.
    ///
    /// On an error, this changes nothing, and logs and returns the error.
    pub async fn reload<E: fmt::Display + Send + 'static>(
        &mut self,
        read: impl FnOnce() -> Result<Config, E> + Send + 'static,
    ) -> Result<(), String> {
        let previous = self.config.clone();
        let built = self.shutdown.spawn_blocking(move || {
            let read = read().map_err(|error| error.to_string())?;
            // They decide which agents and keys the gateway finds itself, but they do not change at a reload.
            let becomes_local = previous.listen.is_exposed() && !read.listen.is_exposed();
            if becomes_local || !previous.is_personal() && read.is_personal() {
                return Err(
                    "only this machine would reach the gateway with the new `listen`, `public_url`, `allowed_hosts` and \
                     `trusted_proxies`: restart it to apply them"
                        .to_owned(),
                );
            }
            let fixed_changes = previous.changes_that_need_restart(&read);
            let mut config = previous;
            config.limits.per_key = read.limits.per_key.clone();
            config.replace_entries(read);
            let catalogue = catalogue::build(&config).map_err(|error| error.to_string())?;
            Ok::<_, String>((config, catalogue, fixed_changes))
        });
        let built = built.await.map_err(|error| error.to_string()).flatten();
        let (config, catalogue, fixed_changes) = match built {
            Ok(built) => built,
            Err(error) => {
                tracing::error!(%error, "the configuration was not reloaded; the previous one stays in effect");
                return Err(error);
            }
        };
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        for error in &config.errors {
            tracing::error!(%error, "an entry of the configuration was not reloaded; a previous version stays in effect");
        }
        if !fixed_changes.is_empty() {
            let keys = fixed_changes.join(", ");
            tracing::warn!(%keys, "some changed keys of the configuration take effect only at the next start");
        }
        self.apply(config, catalogue);
        Ok(())
    }

    fn apply(&mut self, config: Config, catalogue: Catalogue) {
        let (previous, current) = self.publisher.publish(Some(catalogue));
        let names = |catalogue: &Catalogue| -> BTreeSet<_> {
            catalogue.agents().map(|spec| spec.name.clone()).collect()
        };
        let before = names(&previous);
        let after = names(&current);
        let mut changed = &before & &after;
        changed.retain(|name| match (previous.agent(name), current.agent(name)) {
            (Some(before), Some(after)) => !Arc::ptr_eq(before, after),
            _ => false,
        });
        let listed = |names: BTreeSet<AgentName>| {
            let names: Vec<_> = names.iter().map(AgentName::as_str).collect();
            names.join(" ")
        };
        let rotated = self
            .keys
            .set_admin(config.admin_key.map(KeyHash::from_bytes));
        let admin_key = rotated.is_some();
        if let Some(rotated) = rotated {
            self.audit.append(ActorKind::Gateway, rotated);
        }
        self.keys.set_roles(Roles::with(&config.roles));
        let limits = self.keys.limits().set_defaults(&config.limits.per_key);
        let mcp = self.config.mcp != config.mcp;
        self.reported.send_replace(config::report(&config));
        self.config = config;
        tracing::info!(
            added = listed(&after - &before),
            changed = listed(changed),
            removed = listed(&before - &after),
            mcp,
            admin_key,
            limits,
            "the configuration was reloaded"
        );
    }
}
