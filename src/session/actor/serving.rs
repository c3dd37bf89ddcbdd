//! Files and terminals that the ACP client of a turn serves.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use super::requests::{HandlerResult, disconnected};
use crate::acp::{self, Outcome, RequestKind, error_code, method};
use crate::api::{PendingRequest, Resolution};
use crate::jsonrpc::IncomingId;
use crate::session::agent_requests::{OfferedRequest, Resolving, Wait};
use crate::session::client_methods::WorkOutput;
use crate::session::client_methods::files::work_aborted;
use crate::session::serving_clients::{Route, ServingClient};
use crate::types::ServedBy;

/// The terminal that the params of `terminal/*` name.
fn terminal_of(params: &RawValue) -> Option<String> {
    let acp::TerminalParams { terminal_id } = acp::parse(params).ok()?;
    Some(terminal_id.into_owned())
}

impl Actor {
    /// The client that alone serves a request of the agent that the policy permits. `None`: the policy decides.
    pub(super) fn serving_client(
        &mut self,
        kind: RequestKind,
        method: &str,
        params: &RawValue,
    ) -> Result<Option<Arc<ServingClient>>, Outcome> {
        let terminal = match kind {
            RequestKind::TerminalOutput | RequestKind::WaitForExit | RequestKind::EndTerminal => {
                terminal_of(params)
            }
            _ => None,
        };
        match self
            .serving
            .route(kind, terminal.as_deref(), Instant::now())
        {
            Route::Policy => Ok(None),
            Route::Client(client) => Ok(Some(client)),
            Route::Disconnected => {
                if method == method::TERMINAL_RELEASE {
                    self.forget_terminal(params);
                }
                Err(disconnected())
            }
        }
    }

    /// Offers a request to the client that alone serves it. A client on the machine of the gateway serves only files in the
    /// folders of the session, which are checked outside of the actor.
    pub(super) fn offer_to_client(
        &mut self,
        kind: RequestKind,
        offer: OfferedRequest,
        client: Arc<ServingClient>,
    ) -> HandlerResult {
        if kind == RequestKind::CreateTerminal {
            self.check_terminal_limit()?;
        }
        let is_file = matches!(kind, RequestKind::ReadFile | RequestKind::WriteFile);
        if !(is_file && client.only_session_folders) {
            return self.offer_to(offer, client);
        }
        let (folders, shutdown) = (self.folders(), self.context.shutdown.clone());
        self.serve(offer.incoming, true, async move {
            let checked = shutdown
                .spawn_blocking(move || folders.check(&offer.method, &offer.params).map(|()| offer))
                .await;
            let offer = checked.map_err(|_| work_aborted())??;
            Ok(WorkOutput::File(offer, client))
        })
    }

    pub(super) fn offer_to(
        &mut self,
        mut offer: OfferedRequest,
        client: Arc<ServingClient>,
    ) -> HandlerResult {
        // The turn can end during a check.
        offer.prompt = self.if_sent(offer.prompt);
        let id = self.offer_request(offer)?;
        self.serving.offered(id, client);
        Ok(())
    }

    /// Notes the answer to a request that one client had to answer. Returns the outcome for the agent.
    pub(in crate::session) fn client_served(
        &mut self,
        request: &PendingRequest,
        outcome: Outcome,
    ) -> Outcome {
        let Some(client) = self.serving.resolved(request.request_id) else {
            return outcome;
        };
        match (request.method.as_str(), &outcome) {
            (method::TERMINAL_CREATE, Ok(result)) => {
                let id = terminal_of(result).unwrap_or_default();
                if self.client_methods.has_terminal(&id)
                    || !self.serving.terminal_created(id, client)
                {
                    let detail = "the client returned the id of another terminal";
                    return Err(acp::error(error_code::INTERNAL, detail));
                }
            }
            (method::TERMINAL_RELEASE, Ok(_)) => self.forget_terminal(&request.params),
            _ => {}
        }
        outcome
    }

    /// The agent released a terminal that a client runs, or ran.
    pub(super) fn forget_terminal(&mut self, params: &RawValue) {
        if let Some(id) = terminal_of(params) {
            self.serving.terminal_released(&id);
        }
    }

    /// Ends the requests whose only client has disconnected. The policy of the agent serves those for files. A command may
    /// have been started already, so those for terminals fail.
    pub(super) fn end_requests_of_disconnected(&mut self, now: Instant) {
        while let Some(id) = self.serving.disconnected(now) {
            let resolving =
                self.agent_requests
                    .resolve(id, Resolution::Disconnected, None, disconnected());
            let Some(resolving) = resolving else {
                self.serving.resolved(id);
                continue;
            };
            let is_file = matches!(
                RequestKind::from_method(&resolving.request.method),
                RequestKind::ReadFile | RequestKind::WriteFile
            );
            let served_by = self.served_by().0;
            if !is_file || served_by == ServedBy::Off {
                self.resolve(resolving);
                continue;
            }
            let Resolving {
                request,
                incoming,
                resolution,
                outcome,
                ..
            } = resolving;
            self.serving.resolved(id);
            self.append_resolved(&request, resolution, None, &outcome, None);
            if let Err(response) = self.serve_by_policy(incoming, &request, served_by) {
                self.link.answer(incoming, &response);
            }
        }
    }

    /// Serves a request for a file again that a client did not answer.
    fn serve_by_policy(
        &mut self,
        incoming: IncomingId,
        request: &PendingRequest,
        served_by: ServedBy,
    ) -> HandlerResult {
        if served_by == ServedBy::Gateway {
            return self.serve_file(incoming, &request.method, &request.params);
        }
        let offer = OfferedRequest {
            method: request.method.clone(),
            incoming,
            params: request.params.clone(),
            prompt: request
                .prompt_id
                .filter(|_| request.prompt_id == self.turns.sent()),
            subagent: request.subagent.clone(),
            acp_client: None,
            wait: Wait::AtMost(self.context.limits.client_answer_timeout),
        };
        self.offer_request(offer).map(drop)
    }
}
