//! The messages of the editor.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::queue::PostKind;
use super::{Bridge, Effect, Outcome, Phase};
use crate::attach::message::{call, with_client};
use crate::attach::tables::{CallKind, Ended, Followed, id_of};
use wire::acp::{self, RawObject, error_code, method, to_raw};
use wire::jsonrpc::{self, Message, RpcError};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Folders<'a> {
    #[serde(borrow)]
    cwd: Option<Cow<'a, str>>,
    additional_directories: Option<Vec<String>>,
}

impl Bridge {
    pub(in crate::attach) fn message(&mut self, message: Message) {
        match message {
            Message::Request { id, method, params } => self.request(id, &method, params),
            Message::Notification { method, params } => self.notification(&method, &params),
            Message::Response { id, outcome } => self.answer(&id, &outcome),
        }
    }

    fn request(&mut self, id: Box<RawValue>, method: &str, params: Box<RawValue>) {
        if matches!(id.get().as_bytes().first(), Some(b'{' | b'[' | b't' | b'f')) {
            let detail = "the id must be a string, a number or null";
            return self.respond_error(RawValue::NULL, error_code::INVALID_REQUEST, detail);
        }
        if method == method::INITIALIZE {
            return self.initialize(id, &params);
        }
        if matches!(self.phase, Phase::New) {
            let detail = "initialize must be the first request";
            return self.respond_error(&id, error_code::INVALID_REQUEST, detail);
        }
        if !self.has_room(params.get().len()) {
            let detail = "too many messages wait for the gateway";
            return self.respond_error(&id, error_code::INTERNAL, detail);
        }
        match self.map_folders(method, params) {
            Ok(params) => self.open_request(id, method, &params),
            Err(error) => self.respond(&id, &Err(error)),
        }
    }

    fn initialize(&mut self, id: Box<RawValue>, params: &RawValue) {
        if !matches!(self.phase, Phase::New) {
            let detail = "initialize was sent before";
            return self.respond_error(&id, error_code::INVALID_REQUEST, detail);
        }
        let params = acp::null_to_empty(params);
        let Some(object) = RawObject::parse(&params) else {
            let detail = "the params must be an object";
            return self.respond_error(&id, error_code::INVALID_PARAMS, detail);
        };
        self.initialize = with_client(&object, &self.client);
        self.phase = Phase::Initializing(id);
        self.effects.push_back(Effect::Connect);
    }

    fn open_request(&mut self, id: Box<RawValue>, method: &str, params: &RawValue) {
        let kind = CallKind::of(method, params);
        if method == method::SESSION_NEW
            && let Some(session) = self.settings.session.clone()
        {
            let object = RawObject::parse(params).unwrap_or_else(RawObject::empty);
            let params = object.with_members(&[("sessionId", to_raw(&*session))]);
            let kind = CallKind::LoadAsNew(session);
            let number = self.open_call(kind, Some(id), None, method::SESSION_LOAD, &params);
            return self.queue.push_call(number);
        }
        let session = session_of(params);
        let number = self.open_call(kind.clone(), Some(id), session.clone(), method, params);
        self.queue.push_call(number);
        if let (CallKind::Load | CallKind::Resume, Some(session)) = (kind, session) {
            match self.sessions.get_mut(&session) {
                Some(followed) if !followed.is_closed => followed.restoring = Some(number),
                _ => {
                    let followed = Followed {
                        restoring: Some(number),
                        is_new: true,
                        ..Followed::default()
                    };
                    self.follow(&session, followed);
                }
            }
        }
    }

    /// Returns the params with each folder of the editor mapped to its path at the gateway. Fails if a folder is
    /// invalid or has no mapping.
    fn map_folders(&self, method: &str, params: Box<RawValue>) -> Result<Box<RawValue>, RpcError> {
        let has_folders = matches!(
            method,
            method::SESSION_NEW
                | method::SESSION_LOAD
                | method::SESSION_RESUME
                | method::SESSION_FORK
        );
        if !has_folders || self.settings.paths.is_empty() {
            return Ok(params);
        }
        let invalid = |detail: String| RpcError::new(error_code::INVALID_PARAMS, detail);
        let object = RawObject::parse(&params);
        let folders = acp::parse::<Folders<'_>>(&params).ok();
        let (Some(object), Some(folders)) = (object, folders) else {
            let detail = "cwd must be a string, and additionalDirectories a list of strings";
            return Err(invalid(detail.to_owned()));
        };
        let remote = |path: &str| {
            let mapped = self.settings.paths.to_remote(path);
            mapped.map_err(|error| invalid(error.to_string()))
        };
        let mut members = Vec::new();
        if let Some(cwd) = folders.cwd {
            members.push(("cwd", to_raw(&remote(&cwd)?)));
        }
        if let Some(others) = folders.additional_directories {
            let others: Result<Vec<_>, _> = others.iter().map(|path| remote(path)).collect();
            members.push(("additionalDirectories", to_raw(&others?)));
        }
        Ok(object.with_members(&members))
    }

    /// The folders of a new session, as far as the gateway must accept them.
    pub(super) fn folders_to_allow(&self, params: &RawValue) -> Vec<String> {
        if !self.settings.allow_folders {
            return Vec::new();
        }
        // The gateway rejects other params.
        let Ok(Folders {
            cwd,
            additional_directories,
        }) = acp::parse(params)
        else {
            return Vec::new();
        };
        let mut folders = additional_directories.unwrap_or_default();
        match cwd {
            Some(cwd) if !cwd.is_empty() => folders.insert(0, cwd.into_owned()),
            _ => {}
        }
        folders
    }

    fn notification(&mut self, method: &str, params: &RawValue) {
        if matches!(self.phase, Phase::New) {
            return;
        }
        if method == method::CANCEL_REQUEST {
            return self.cancel_request(params);
        }
        let is_cancel = method == method::SESSION_CANCEL;
        let kind = PostKind::Once { is_cancel };
        self.push_message(session_of(params), call(None, method, params), kind);
    }

    /// `$/cancel_request` names a request of the editor, which has another id at the gateway.
    fn cancel_request(&mut self, params: &RawValue) {
        let Ok(cancel) = acp::parse::<acp::CancelRequest<'_>>(params) else {
            return;
        };
        // A request that has ended cannot be cancelled any more.
        let Some(number) = self.calls.by_editor_id(cancel.request_id) else {
            return;
        };
        let session = self.calls.get(number).and_then(|call| call.session.clone());
        let params = to_raw(&json!({ "requestId": id_of(number) }));
        let body = call(None, method::CANCEL_REQUEST, &params);
        self.push_message(session, body, PostKind::Repeatable);
    }

    /// The editor, or the bridge itself, answers a request of the agent.
    pub(super) fn answer(&mut self, id: &RawValue, outcome: &Outcome) {
        if let Some(Ended { session }) = self.requests.end(id) {
            self.push_answer(session, id, jsonrpc::response(id, outcome.as_deref()));
        }
    }
}

fn session_of(params: &RawValue) -> Option<Box<str>> {
    acp::session_id_of(params).ok().flatten().map(Into::into)
}
