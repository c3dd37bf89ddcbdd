//! The messages of the editor.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Bridge, Effect, Phase};
use crate::acp::{self, RawObject, error_code, method};
use crate::attach::agent_requests::Ended;
use crate::attach::calls::{CallKind, id_of};
use crate::attach::editor::Input;
use crate::attach::message::{call, raw, response, rpc_error, with_client, with_members};
use crate::attach::sessions::Followed;
use crate::jsonrpc::{Message, RpcError};

/// The folders that requests for sessions have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Folders<'a> {
    #[serde(borrow)]
    cwd: Option<Cow<'a, str>>,
    additional_directories: Option<Vec<String>>,
}

impl Bridge {
    /// Handles a line of the editor.
    pub(in crate::attach) fn line(&mut self, line: Input) {
        match line {
            Err(error) => self.respond(RawValue::NULL, &Err(error)),
            Ok(Message::Request { id, method, params }) => self.request(id, &method, params),
            Ok(Message::Notification { method, params }) => self.notification(&method, &params),
            Ok(Message::Response { id, outcome }) => self.answer(&id, &outcome),
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
            return self.respond_error(
                &id,
                error_code::INVALID_REQUEST,
                "initialize must be the first request",
            );
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
            return self.respond_error(
                &id,
                error_code::INVALID_REQUEST,
                "initialize was sent before",
            );
        }
        let params = acp::null_to_empty(params);
        let Some(object) = RawObject::parse(&params) else {
            return self.respond_error(
                &id,
                error_code::INVALID_PARAMS,
                "the params must be an object",
            );
        };
        self.initialize = with_client(&object, &self.client);
        self.phase = Phase::Initializing(id);
        self.effects.push_back(Effect::Connect);
    }

    fn open_request(&mut self, id: Box<RawValue>, method: &str, params: &RawValue) {
        let kind = CallKind::of(method, params);
        let loaded = self
            .settings
            .session
            .clone()
            .filter(|_| method == method::SESSION_NEW);
        if let Some(session) = loaded {
            let object = RawObject::parse(params).unwrap_or_else(RawObject::empty);
            let params = with_members(&object, &[("sessionId", raw(&*session))]);
            let load = (method::SESSION_LOAD, &*params);
            let number = self.open_call(CallKind::LoadAsNew(session), Some(id), None, load);
            return self.queue.push_call(number);
        }
        let session = session_of(params);
        let number = self.open_call(kind.clone(), Some(id), session.clone(), (method, params));
        self.queue.push_call(number);
        if let (CallKind::Load | CallKind::Resume, Some(session)) = (kind, session) {
            if let Some(followed) = self
                .sessions
                .get_mut(&session)
                .filter(|followed| !followed.is_closed)
            {
                followed.restoring = Some(number);
            } else {
                self.follow(
                    &session,
                    Followed {
                        restoring: Some(number),
                        is_new: true,
                        ..Followed::default()
                    },
                );
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
        let invalid = |detail: String| rpc_error(error_code::INVALID_PARAMS, detail);
        let object = RawObject::parse(&params);
        let folders = acp::parse::<Folders<'_>>(&params).ok();
        let (Some(object), Some(folders)) = (object, folders) else {
            let detail = "cwd must be a string, and additionalDirectories a list of strings";
            return Err(invalid(detail.to_owned()));
        };
        let remote = |path: &str| {
            self.settings
                .paths
                .to_remote(path)
                .map_err(|error| invalid(error.to_string()))
        };
        let mut members = Vec::new();
        if let Some(cwd) = folders.cwd {
            members.push(("cwd", raw(&remote(&cwd)?)));
        }
        if let Some(others) = folders.additional_directories {
            let others = others
                .iter()
                .map(|path| remote(path))
                .collect::<Result<Vec<_>, _>>()?;
            members.push(("additionalDirectories", raw(&others)));
        }
        Ok(with_members(&object, &members))
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
        let cwd = cwd.filter(|cwd| !cwd.is_empty()).map(Cow::into_owned);
        cwd.into_iter()
            .chain(additional_directories.unwrap_or_default())
            .collect()
    }

    fn notification(&mut self, method: &str, params: &RawValue) {
        if matches!(self.phase, Phase::New) {
            return;
        }
        if method == method::CANCEL_REQUEST {
            return self.cancel_request(params);
        }
        let is_cancel = method == method::SESSION_CANCEL;
        self.push_notification(session_of(params), call(None, method, params), is_cancel);
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
        let params = raw(&json!({ "requestId": id_of(number) }));
        self.push_message(session, call(None, method::CANCEL_REQUEST, &params));
    }

    /// The editor, or the bridge itself, answers a request of the agent.
    pub(super) fn answer(&mut self, id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) {
        if let Some(Ended { session }) = self.requests.end(id) {
            self.push_answer(session, id, response(id, outcome));
        }
    }
}

fn session_of(params: &RawValue) -> Option<Box<str>> {
    acp::session_id_of(params).ok().flatten().map(Into::into)
}
