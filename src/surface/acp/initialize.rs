//! `initialize`: the answer for a client, from the capabilities of the agent and those of the gateway.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use strum::VariantNames as _;
use tokio::sync::mpsc;

use super::client::{Capabilities, Client, ClientInfo, META, OwnMeta, Role};
use super::connection::{AcpState, Connection, MAX_CONNECTIONS};
use super::message::{Failure, Result, raw};
use super::request::Head;
use super::session_view::SessionView;
use agents::agent::AgentSpec;
use agents::pool::Priority;
use wire::acp::{self, AcpVersion, InitializeResult, method};

use base::types::{AgentName, Principal, Scope};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    protocol_version: u64,
    #[serde(borrow)]
    client_capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    client_info: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    protocol_version: u64,
    agent_capabilities: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_info: Option<&'a RawValue>,
    auth_methods: Box<RawValue>,
    #[serde(rename = "_meta")]
    meta: serde_json::Value,
}

pub(super) async fn open_connection(
    head: &Head,
    params: &RawValue,
    id: Box<str>,
    socket: Option<mpsc::Sender<Arc<SessionView>>>,
) -> Result<(Arc<Connection>, Box<RawValue>)> {
    let app = &head.app;
    let principal: &Principal = &head.by;
    let params: Params<'_> = acp::parse(params)
        .map_err(|_| Failure::invalid_params("expected an integer protocolVersion"))?;
    if params.protocol_version == 0 {
        let detail = "the gateway does not speak version 0 of ACP";
        return Err(Failure::invalid_params(detail));
    }
    let spec = find_agent(app, head.agent.as_deref())?;
    let initialized = initialized(app, principal, &spec).await?;
    if initialized.acp_version != AcpVersion::V1 {
        let agent = &spec.name;
        let detail = format!(
            "agent {agent} speaks version 2 of ACP. Clients of /acp speak version 1: set protocol = 1 in the agent's entry, or use the REST API"
        );
        return Err(Failure::invalid_params(detail));
    }
    let counted = app.connections.count(&principal.user);
    let counted = counted.ok_or_else(|| {
        let detail = format!("too many connections of this user (limit {MAX_CONNECTIONS})");
        Failure::invalid_request(detail)
    })?;
    let own = OwnMeta::parse(params.meta);
    let client = Client {
        name: format!(
            "{}/{}",
            principal.user.name(),
            own.client.as_deref().unwrap_or(&id)
        )
        .into(),
        keeps_name: own.client.is_some(),
        capabilities: Capabilities::parse(params.client_capabilities),
        scopes: principal.scopes,
        info: ClientInfo::parse(params.client_info),
        uses_attach: own.attach,
    };
    // With the epoch, a client can name the position before the first event of a new session.
    let epoch = app.epoch().to_string();
    let mut meta =
        serde_json::json!({ META: { "connectionId": id, "agent": spec.name, "epoch": epoch } });
    let mut roles: &[&str] = &[];
    if client.uses_attach {
        meta[META]["unstable"] =
            serde_json::json!([method::SESSION_ATTACH, method::SESSION_DETACH]);
        roles = Role::VARIANTS;
    }
    let answer = Answer {
        protocol_version: AcpVersion::V1.number(),
        agent_capabilities: acp::served_capabilities(
            &initialized.raw_capabilities,
            initialized.capabilities.session.fork && initialized.capabilities.can_restore(),
            principal.scopes.contains(Scope::Mcp),
            roles,
        ),
        agent_info: initialized.agent_info.as_deref(),
        auth_methods: if spec.settings.terminal_auth && own.terminal_sign_in {
            initialized.bridged_auth_methods()
        } else {
            initialized.client_auth_methods()
        },
        meta,
    };
    let result = raw(&answer);
    let presence = app.connections.present(&client);
    let connection = Arc::new(Connection::new(
        id,
        client,
        principal.user.clone(),
        counted,
        presence,
        spec.name.clone(),
        socket,
    ));
    app.connections.insert(Arc::clone(&connection));
    Ok((connection, result))
}

fn find_agent(app: &AcpState, name: Option<&str>) -> Result<Arc<AgentSpec>> {
    let catalogue = app.catalogue.load();
    let names: Vec<&str> = catalogue.agents().map(|spec| spec.name.as_str()).collect();
    let names = names.join(", ");
    if let Some(name) = name {
        let found = name.parse::<AgentName>().ok();
        let found = found.and_then(|name| catalogue.agent(&name).cloned());
        let detail = format!("there is no such agent; the agents are: {names}");
        return found.ok_or_else(|| Failure::invalid_params(detail));
    }
    let mut agents = catalogue.agents();
    let detail = match (agents.next(), agents.next()) {
        (Some(only), None) => return Ok(Arc::clone(only)),
        (None, _) => "the gateway has no agent: add one to its configuration".to_owned(),
        _ => format!("name an agent in the URL: /acp/{{agent}}; the agents are: {names}"),
    };
    Err(Failure::invalid_params(detail))
}

/// The last `initialize` result of the agent. An agent that has never started is started once for all clients.
async fn initialized(
    app: &AcpState,
    principal: &Principal,
    spec: &Arc<AgentSpec>,
) -> Result<Arc<InitializeResult>> {
    if let Some(initialized) = known(app, principal, spec) {
        return Ok(initialized);
    }
    let app = app.clone();
    let principal = principal.clone();
    let spec = Arc::clone(spec);
    let shutdown = app.shutdown.clone();
    // The start continues if its client disconnects. Otherwise the next client would start another process.
    let started = shutdown.spawn_isolated(async move {
        let lock = app
            .connections
            .start_lock(&principal.user.tenant(), &spec.name);
        let _starting = lock.lock().await;
        if let Some(initialized) = known(&app, &principal, &spec) {
            return Ok(initialized);
        }
        let pool = app.pool();
        let lease = pool.short_lease(&spec, &principal, Priority::Reclaim);
        let lease = lease.await?;
        let initialized = Arc::new(lease.initialized().clone());
        lease.release_untouched();
        Ok(initialized)
    });
    started.await.map_err(|_| Failure::internal())?
}

fn known(app: &AcpState, principal: &Principal, spec: &AgentSpec) -> Option<Arc<InitializeResult>> {
    let stats = app.pool().agent_stats(&spec.name, &principal.user.tenant());
    stats.and_then(|(_, initialized)| initialized)
}
