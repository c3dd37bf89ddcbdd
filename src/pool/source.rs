//! Sources of agents. The pool acquires connected agents from a source and does not know how they were connected.
//!
//! [`Launcher`] is the source of agents that are children of the gateway. Agents that are no children need
//! another source. [`AgentSources`] selects the source by the endpoint of the entry.

use std::fmt;
use std::sync::Arc;

use crate::acp::auth::TerminalAuth;
use crate::agent::{
    AgentFailure, AgentSpec, BoxFuture, Endpoint, FailedStart, IdleFolder, Launcher, MemberSource,
    Process, ProcessKey, RemoteConnector, Terminal,
};
use crate::types::{AppliedIsolation, Tenant};

pub trait AgentSource: fmt::Debug + Send + Sync {
    /// The isolation of processes of the entry. `None` if they run on another host.
    fn isolation(&self, _spec: &AgentSpec) -> Option<AppliedIsolation> {
        None
    }

    /// Creates the folder of a process that starts before its session. `None` if it needs none.
    fn create_idle_folder<'a>(
        &'a self,
        _spec: &'a AgentSpec,
        _tenant: &'a Tenant,
    ) -> BoxFuture<'a, Option<IdleFolder>> {
        Box::pin(std::future::ready(None))
    }

    /// Connects to an agent and completes its handshake. Dropping the future ends the attempt.
    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>>;

    /// Runs the agent's own sign-in command in a terminal. An error if the agent runs on another host.
    fn sign_in<'a>(
        &'a self,
        _spec: &'a Arc<AgentSpec>,
        _tenant: &'a Tenant,
        _method: &'a TerminalAuth,
        _size: (u16, u16),
    ) -> BoxFuture<'a, Result<Terminal, AgentFailure>> {
        let method = "a sign-in in a terminal: it runs on another host".to_owned();
        Box::pin(std::future::ready(Err(AgentFailure::Unsupported {
            method,
        })))
    }
}

impl AgentSource for Launcher {
    fn isolation(&self, spec: &AgentSpec) -> Option<AppliedIsolation> {
        Some(self.applied_isolation(spec))
    }

    fn create_idle_folder<'a>(
        &'a self,
        spec: &'a AgentSpec,
        tenant: &'a Tenant,
    ) -> BoxFuture<'a, Option<IdleFolder>> {
        Box::pin(self.create_idle_folder(spec, tenant))
    }

    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>> {
        Box::pin(self.launch(spec, key))
    }

    fn sign_in<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        tenant: &'a Tenant,
        method: &'a TerminalAuth,
        size: (u16, u16),
    ) -> BoxFuture<'a, Result<Terminal, AgentFailure>> {
        Box::pin(self.run_sign_in(spec, tenant, method, size))
    }
}

impl AgentSource for RemoteConnector {
    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>> {
        Box::pin(async move {
            match spec.endpoint.remote() {
                Some(remote) => self.connect(spec, key, remote).await,
                None => Err(AgentFailure::Unsupported {
                    method: "a connection".to_owned(),
                }
                .into()),
            }
        })
    }
}

impl AgentSource for MemberSource {
    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>> {
        Box::pin(self.connect(spec, key))
    }
}

/// The sources of all kinds of agents.
#[derive(Debug)]
pub struct AgentSources {
    pub launcher: Launcher,
    pub remote: RemoteConnector,
    pub members: MemberSource,
}

impl AgentSources {
    fn of(&self, spec: &AgentSpec) -> &dyn AgentSource {
        match spec.endpoint {
            Endpoint::Command { .. } | Endpoint::Invalid => &self.launcher,
            Endpoint::Remote(_) => &self.remote,
            Endpoint::Member(_) => &self.members,
        }
    }
}

impl AgentSource for AgentSources {
    fn isolation(&self, spec: &AgentSpec) -> Option<AppliedIsolation> {
        self.of(spec).isolation(spec)
    }

    fn create_idle_folder<'a>(
        &'a self,
        spec: &'a AgentSpec,
        tenant: &'a Tenant,
    ) -> BoxFuture<'a, Option<IdleFolder>> {
        self.of(spec).create_idle_folder(spec, tenant)
    }

    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>> {
        self.of(spec).connect(spec, key)
    }

    fn sign_in<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        tenant: &'a Tenant,
        method: &'a TerminalAuth,
        size: (u16, u16),
    ) -> BoxFuture<'a, Result<Terminal, AgentFailure>> {
        self.of(spec).sign_in(spec, tenant, method, size)
    }
}
