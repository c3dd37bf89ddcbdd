//! Forks sessions at the agent, with their history.

use serde_json::value::RawValue;

use super::SessionRegistry;
use super::adopt::begin_adoption;
use super::create::Created;
use crate::acp::{self, TraceContext};
use crate::agent::AgentFailure;
use crate::api::{McpServer, Session};
use crate::jsonrpc::RpcError;
use crate::session::brought_servers;
use crate::session::command::ClientCall;
use crate::session::error::{CreateError, ProcessError};
use crate::session::handle::SessionHandle;
use crate::session::idempotency::{Claim, IdempotencyKey};
use crate::session::origin::{Origin, can_fork};
use crate::session::upstream_delete;
use crate::types::Principal;

impl SessionRegistry {
    /// Creates a fork of a session with its history, and with the MCP servers that the client brings. The operation continues if the caller is dropped.
    pub async fn fork(
        &self,
        by: &Principal,
        parent: &SessionHandle,
        servers: &[McpServer],
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Created, CreateError> {
        let servers = brought_servers::parse(by, servers)?;
        let (registry, owner, parent) = (self.clone(), by.clone(), parent.clone());
        let create = async move |claim| {
            registry
                .create_fork(&owner, &parent, servers, trace, claim)
                .await
        };
        self.create_once(by, key, create).await
    }

    async fn create_fork(
        &self,
        by: &Principal,
        parent: &SessionHandle,
        servers: Vec<acp::McpServer>,
        trace: Option<TraceContext>,
        claim: Option<Claim>,
    ) -> Result<Session, CreateError> {
        let context = self.context();
        // The parent's actor checks the capabilities again.
        let agent = parent.query().record().await?.agent;
        let known = context
            .pool
            .agent_stats(&agent, &by.tenant)
            .and_then(|(_, initialized)| initialized);
        known.map_or(Ok(()), |initialized| can_fork(&initialized.capabilities))?;
        let result = parent.call(by, ClientCall::Fork, trace.clone()).await?;
        let agent_session_id = new_session_id(&result)?;
        let mut record = parent.query().record().await?;
        // Another client may have adopted the fork in the meantime.
        let _adoption = begin_adoption(
            context,
            &self.adoptions,
            by,
            &record.agent,
            &agent_session_id,
        )
        .await?;
        record.begin_fork(
            context.ids.session(),
            by,
            agent_session_id,
            context.ids.now(),
        );
        let session = self
            .start_actor(
                (record.clone(), servers),
                Origin::Forked(parent.id()),
                claim,
                trace,
            )
            .await;
        session.inspect_err(|_| {
            // No session of the gateway refers to the fork, so the agent must delete it.
            upstream_delete::request_delete(context, &record, by, None);
        })
    }
}

/// The id of the fork in the agent's result.
fn new_session_id(result: &RawValue) -> Result<String, ProcessError> {
    let new = acp::parse::<acp::NewSessionResult<'_>>(result).map_err(|error| {
        let message = format!("invalid result of session/fork: {error}");
        AgentFailure::Rpc(RpcError {
            code: acp::error_code::INTERNAL,
            message,
            data: None,
        })
    })?;
    Ok(new.session_id.into_owned())
}
