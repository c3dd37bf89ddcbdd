//! Sources of agents. The pool acquires connected agents from a source and does not know how they were connected.
//!
//! [`AgentSources`] selects the source by the endpoint of the entry. Tests have a source of their own.

use std::fmt;
use std::sync::Arc;

use crate::agent::{
    AgentFailure, AgentSpec, BoxFuture, Endpoint, FailedStart, IdleFolder, Launcher, Process,
    ProcessKey, RemoteConnector, Terminal,
};
use base::types::{AppliedIsolation, Tenant};
use children::PtySize;
use wire::acp::auth::TerminalAuth;

pub trait AgentSource: fmt::Debug + Send + Sync {
    /// The isolation of processes of the entry. `None` if they are not child processes of the gateway.
    fn isolation(&self, spec: &AgentSpec) -> Option<AppliedIsolation>;

    /// Creates the folder of a process that starts before its session. `None` if it needs none.
    fn create_idle_folder<'a>(
        &'a self,
        spec: &'a AgentSpec,
        tenant: &'a Tenant,
    ) -> BoxFuture<'a, Option<IdleFolder>>;

    /// Connects to an agent and completes its handshake. Dropping the future ends the attempt.
    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>>;

    /// Runs the agent's own sign-in command in a terminal. An error if the agent is not a child process of the gateway.
    fn sign_in<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        tenant: &'a Tenant,
        method: &'a TerminalAuth,
        size: PtySize,
    ) -> BoxFuture<'a, Result<Terminal, AgentFailure>>;
}

#[derive(Debug)]
pub struct AgentSources {
    pub launcher: Launcher,
    pub remote: RemoteConnector,
}

impl AgentSource for AgentSources {
    fn isolation(&self, spec: &AgentSpec) -> Option<AppliedIsolation> {
        let is_child = spec.endpoint.is_child();
        is_child.then(|| self.launcher.applied_isolation(spec))
    }
    fn create_idle_folder<'a>(
        &'a self,
        spec: &'a AgentSpec,
        tenant: &'a Tenant,
    ) -> BoxFuture<'a, Option<IdleFolder>> {
        Box::pin(async move {
            if !spec.endpoint.is_child() {
                return None;
            }
            self.launcher.create_idle_folder(spec, tenant).await
        })
    }
    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>> {
        match &spec.endpoint {
            Endpoint::Command { .. } | Endpoint::Invalid => {
                Box::pin(self.launcher.launch(spec, key))
            }
            Endpoint::Remote(remote) => Box::pin(self.remote.connect(spec, key, remote)),
            Endpoint::Member(_) => Box::pin(self.remote.connect_member(spec, key)),
        }
    }
    fn sign_in<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        tenant: &'a Tenant,
        method: &'a TerminalAuth,
        size: PtySize,
    ) -> BoxFuture<'a, Result<Terminal, AgentFailure>> {
        Box::pin(async move {
            if !spec.endpoint.is_child() {
                let method = "a sign-in in a terminal: it runs on another host".to_owned();
                return Err(AgentFailure::Unsupported { method });
            }
            self.launcher.run_sign_in(spec, tenant, method, size).await
        })
    }
}
