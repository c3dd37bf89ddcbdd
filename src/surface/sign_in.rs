//! The sign-in to an agent with one call, as every surface performs it.

use serde_json::value::RawValue;

use super::state::Gateway;
use crate::acp::auth;
use crate::acp::{TraceContext, with_trace};
use crate::agent::{AgentFailure, AgentSpec};
use crate::audit::SignInRecord;
use crate::pool::ShortLease;
use crate::types::{Author, Principal};

/// Calls a sign-in method of the agent, which can wait for a person. `meta` was checked against the agent's entry.
pub(super) async fn call_sign_in(
    gateway: &Gateway,
    (by, author): (&Principal, &Author),
    spec: &AgentSpec,
    mut lease: ShortLease,
    (method_id, meta): (String, Option<&RawValue>),
    trace: Option<&TraceContext>,
) -> Result<(), AgentFailure> {
    let sign_in = auth::authenticate(&method_id, meta);
    let record = SignInRecord::start(&gateway.audit, author, spec.name.clone(), Some(method_id));
    let login = lease.version().login_method();
    let params = with_trace(&sign_in, trace);
    let called = lease
        .call(login, &params, gateway.limits.sign_in_timeout)
        .await;
    record.end(called.is_ok());
    called?;
    lease.signed_in(sign_in);
    tracing::info!(agent = %spec.name, by = %by.id, "signed in to an agent");
    Ok(())
}
