//! The control requests of the client.

use serde_json::json;
use serde_json::value::RawValue;

use super::input::Control;
use super::state::{Call, Phase, StreamJson};
use crate::acp::{RawObject, method};
use crate::jsonrpc::{Message, RpcError};
use crate::served::dialect::Served;
use crate::served::message::{object, raw};

/// The maximum number of control requests that wait for the session.
const MAX_WAITING: usize = 64;

/// The answer to a control request.
fn response(id: &RawValue, outcome: Result<Box<RawValue>, &str>) -> Box<RawValue> {
    let subtype = if outcome.is_ok() { "success" } else { "error" };
    let mut members = vec![("subtype", raw(subtype)), ("request_id", id.to_owned())];
    members.push(match outcome {
        Ok(response) => ("response", response),
        Err(error) => ("error", raw(error)),
    });
    object(&[
        ("type", raw("control_response")),
        ("response", object(&members)),
    ])
}

impl StreamJson {
    /// Handles a control request. Requests wait until the session exists.
    pub(super) fn control(&mut self, id: Box<RawValue>, control: Control, served: &mut Served) {
        match self.phase {
            Phase::Ready => {}
            Phase::Failed => return Self::reject(&id, "the session could not be started", served),
            _ if self.controls.len() < MAX_WAITING => return self.controls.push((id, control)),
            _ => return Self::reject(&id, "too many requests wait for the session", served),
        }
        match control {
            Control::Initialize => {
                let settings = raw(&self.settings.initialize_response());
                Self::accept(&id, settings, served);
            }
            Control::Interrupt => {
                self.interrupt(served);
                Self::accept(&id, raw(&json!({})), served);
            }
            Control::SetMode(mode) => {
                let params = json!({ "sessionId": self.writer.session, "modeId": mode });
                let call = Call::Mode { request: id, mode };
                self.call_for(call, method::SESSION_SET_MODE, raw(&params), served);
            }
            Control::SetModel(model) => {
                let Some(option) = self.settings.model_option() else {
                    return Self::reject(&id, "the agent offers no models", served);
                };
                let params =
                    json!({ "sessionId": self.writer.session, "configId": option, "value": model });
                let call = Call::Model { request: id, model };
                self.call_for(
                    call,
                    method::SESSION_SET_CONFIG_OPTION,
                    raw(&params),
                    served,
                );
            }
            Control::Unsupported(subtype) => {
                let reason = format!("Unsupported control request subtype: {subtype}");
                Self::reject(&id, &reason, served);
            }
        }
    }

    /// Sends the call of a control request.
    fn call_for(&mut self, call: Call, method: &str, params: Box<RawValue>, served: &mut Served) {
        let (Call::Mode { request, .. } | Call::Model { request, .. }) = &call else {
            return;
        };
        let request = request.clone();
        if !self.call(call, method, params, served) {
            Self::reject(&request, "the agent does not answer", served);
        }
    }

    fn accept(id: &RawValue, result: Box<RawValue>, served: &mut Served) {
        served
            .to_client
            .push(super::writer::bare(response(id, Ok(result))));
    }

    fn reject(id: &RawValue, reason: &str, served: &mut Served) {
        served
            .to_client
            .push(super::writer::bare(response(id, Err(reason))));
    }

    /// Cancels the turn, and withdraws the open requests.
    fn interrupt(&mut self, served: &mut Served) {
        let Some(turn) = &mut self.turn else { return };
        turn.is_interrupted = true;
        let params = raw(&json!({ "sessionId": self.writer.session }));
        served.to_agent.push(Message::Notification {
            method: method::SESSION_CANCEL.into(),
            params,
        });
        for (request, answer) in self.permissions.cancel_all() {
            served
                .to_client
                .push(super::permission::withdrawal(&request));
            served.to_agent.push(answer);
        }
    }

    pub(super) fn mode_answered(
        &mut self,
        request: &RawValue,
        mode: &str,
        outcome: Result<Box<RawValue>, RpcError>,
        served: &mut Served,
    ) {
        match outcome {
            Ok(_) => {
                Self::accept(request, raw(&json!({ "mode": mode })), served);
                self.mode_changed(mode, served);
            }
            Err(error) => Self::reject(request, &error.message, served),
        }
    }

    pub(super) fn mode_changed(&mut self, mode: &str, served: &mut Served) {
        if self.settings.set_mode(mode) {
            let status = [
                ("subtype", raw("status")),
                ("status", RawValue::NULL.to_owned()),
            ];
            let mode = [("permissionMode", raw(mode))];
            served.to_client.push(
                self.writer
                    .event("system", &[&status[..], &mode[..]].concat()),
            );
        }
    }

    pub(super) fn model_answered(
        &mut self,
        request: &RawValue,
        model: &str,
        outcome: Result<Box<RawValue>, RpcError>,
        served: &mut Served,
    ) {
        match outcome {
            Ok(result) => {
                self.settings.set_model(model);
                let options =
                    RawObject::parse(&result).and_then(|result| result.get("configOptions"));
                if let Some(options) = options {
                    self.settings.set_options(options);
                }
                self.writer.model = self.settings.model().to_owned();
                Self::accept(request, raw(&json!({})), served);
            }
            Err(error) => Self::reject(request, &error.message, served),
        }
    }
}
