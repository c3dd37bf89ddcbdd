//! The keys of records.

use crate::eventlog::tenant_prefix;
use crate::types::{AgentName, SessionId, Tenant, Timestamp};

pub(in crate::session) fn session_key(id: SessionId) -> Vec<u8> {
    id.as_bytes().to_vec()
}

/// The key of a prompt, a request or a terminal by its number in the session.
pub(in crate::session) fn numbered_key(id: SessionId, number: u32) -> Vec<u8> {
    [id.as_bytes().as_slice(), &number.to_be_bytes()].concat()
}

/// The key prefix of the gateway sessions that use this session of an agent.
pub(in crate::session) fn agent_session_prefix(
    tenant: &Tenant,
    agent: &AgentName,
    agent_session_id: &str,
) -> Vec<u8> {
    [
        tenant.as_str(),
        "\0",
        agent.as_str(),
        "\0",
        agent_session_id,
        "\0",
    ]
    .concat()
    .into_bytes()
}

/// The index key of a session. The newest `lastActivityAt` sorts first.
pub(in crate::session) fn index_key(
    tenant: &Tenant,
    last_activity_at: Timestamp,
    id: SessionId,
) -> Vec<u8> {
    let newest_first = !u64::try_from(last_activity_at.as_millis()).unwrap_or_default();
    [
        &tenant_prefix(tenant)[..],
        &newest_first.to_be_bytes(),
        id.as_bytes(),
    ]
    .concat()
}
