//! The requests of a client besides `session/prompt` (ACP, Session Setup).
//!
//! The gateway answers them from its own log and pool, for every agent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use super::caller::{Caller, Outcome, session_of, trace_of};
use super::client::META;
use super::message::{self, Failure, Result, raw};
use super::projector::Projector;
use super::session_view::{Attached, Place, SessionView, Start};
use crate::surface::http::{call_sign_in, json};
use agents::agent::client_input_policy::check_meta;
use agents::pool::Priority;
use base::types::Scope;
use events::api::{CreateSession, McpServer, RequestedContext, Session, SessionState};
use events::event::EventRef;
use sessions::session::{ClientCall, InputError, ListQuery, SessionHandle};
use wire::acp::auth::AuthMethod;
use wire::acp::{self, method};

/// The maximum number of sessions on a page of `session/list`.
const PAGE_SESSIONS: usize = 100;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    /// Of `session/load`, `session/resume` and `session/fork`.
    #[serde(borrow)]
    mcp_servers: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewSession {
    /// The working folder. If it is empty, the gateway creates a new folder.
    cwd: String,
    #[serde(default)]
    mcp_servers: Vec<McpServer>,
    #[serde(default)]
    additional_directories: Vec<String>,
    #[serde(rename = "_meta")]
    meta: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// At the first event, as history (`session/load`).
    History,
    /// After the last event (`session/resume`).
    Tail,
}

impl Caller {
    /// Handles a request. `None`: the response is delivered already.
    pub(super) async fn call(
        &self,
        id: &RawValue,
        method: &str,
        params: Box<RawValue>,
    ) -> Option<Outcome> {
        let followed = match method {
            method::SESSION_LOAD => self.restore(id, &params, Begin::History).await,
            method::SESSION_RESUME => self.restore(id, &params, Begin::Tail).await,
            method::SESSION_ATTACH => self.attach(id, &params).await,
            _ => return Some(self.answered(id, method, params).await),
        };
        followed.err().map(Err)
    }

    async fn answered(&self, id: &RawValue, method: &str, params: Box<RawValue>) -> Outcome {
        match method {
            method::SESSION_NEW => self.new_session(id, &params).await,
            method::SESSION_DETACH => self.detach(&params),
            method::SESSION_FORK => self.fork(id, &params).await,
            method::SESSION_LIST => self.list(&params).await,
            method::SESSION_CLOSE => self.close(&params).await,
            method::SESSION_DELETE => self.delete(&params).await,
            method::AUTHENTICATE => self.authenticate(&params).await,
            method::INITIALIZE => {
                let detail = "this connection is initialized already";
                Err(Failure::invalid_request(detail))
            }
            _ => self.call_agent(method, params).await,
        }
    }

    async fn new_session(&self, id: &RawValue, params: &RawValue) -> Outcome {
        self.require(Scope::Prompt)?;
        let key = self.idempotency_key(id, method::SESSION_NEW, params);
        let new: NewSession = parse(params)?;
        let trace = trace_of(new.meta.as_deref());
        let request = CreateSession {
            cwd: Some(new.cwd).filter(|cwd| !cwd.is_empty()),
            mcp_servers: new.mcp_servers,
            additional_directories: new.additional_directories,
            meta: new.meta,
            ..CreateSession::of(self.connection.agent.clone())
        };
        self.require_room()?;
        let created = self
            .sessions
            .create(&self.by, request, None, key, trace)
            .await?;
        self.follow_new(created.response).await
    }

    async fn fork(&self, id: &RawValue, params: &RawValue) -> Outcome {
        self.require(Scope::Prompt)?;
        let key = self.idempotency_key(id, method::SESSION_FORK, params);
        let params: SessionParams<'_> = parse_borrowed(params)?;
        let parent = self.open(&params.session_id).await?;
        self.require_room()?;
        let servers = self.client_servers(params.mcp_servers)?;
        let trace = trace_of(params.meta);
        let forked = self.sessions.fork(&self.by, &parent, &servers, key, trace);
        self.follow_new(forked.await?.response).await
    }

    /// The MCP servers that a client brings for an existing session. Without the scope `mcp`, the session keeps its servers.
    fn client_servers(&self, servers: Option<&RawValue>) -> Result<Vec<McpServer>> {
        match servers {
            Some(servers) if self.by.scopes.contains(Scope::Mcp) => parse(servers),
            _ => Ok(Vec::new()),
        }
    }

    /// The client follows a new session at once, so it must be able to read it.
    fn require_room(&self) -> Result<()> {
        self.require(Scope::Read)?;
        Ok(self.connection.check_room()?)
    }

    /// Follows a new session from its first event. Returns the agent's result with the gateway's session id.
    async fn follow_new(&self, created: Session) -> Outcome {
        let id = created.session_id.to_string();
        let session = self.open(&id).await?;
        let result = attached_result(&session).await?;
        let view = self.connection.view_for_request(&id)?;
        view.attach(Attached {
            session,
            start: Start::default(),
            history: 0,
            responses_after: 0,
            number: view.next_number(),
        });
        Ok(result.unwrap_or_else(|| raw(&json!({ "sessionId": id }))))
    }

    /// Loads or resumes a session of the gateway. Responds itself if it succeeds.
    async fn restore(&self, id: &RawValue, params: &RawValue, begin: Begin) -> Result<()> {
        self.require(Scope::Read)?;
        let params: SessionParams<'_> = parse_borrowed(params)?;
        let session = self.open(&params.session_id).await?;
        let servers = self.client_servers(params.mcp_servers)?;
        if !servers.is_empty() {
            self.check_controller(&params.session_id)?;
        }
        session.bring_servers(&self.by, &servers).await?;
        let mut snapshot = session.snapshot().await?;
        if snapshot.state == SessionState::Closed {
            self.check_controller(&params.session_id)?;
            self.require(Scope::Prompt)?;
            snapshot = session
                .attach(RequestedContext::Kept, trace_of(params.meta))
                .await?;
        }
        let view = self.connection.view_for_request(&params.session_id)?;
        let result = raw(&restored(&snapshot));
        // A client that follows the session already has the open requests.
        let continues = begin == Begin::Tail && view.is_attached();
        let requests = if continues {
            Vec::new()
        } else {
            self.open_requests(&snapshot)
        };
        let last = snapshot.last_event_id.seq;
        self.follow(id, session, &view, last, begin, &result, requests);
        Ok(())
    }

    /// Responds with `result`, and delivers the session to the client. `last`: the event that the result reflects.
    /// `requests`: the open requests of the agent, which follow the response.
    pub(super) fn follow(
        &self,
        id: &RawValue,
        session: SessionHandle,
        view: &SessionView,
        last: u64,
        begin: Begin,
        result: &RawValue,
        requests: Vec<Bytes>,
    ) {
        let delivered = view.delivered_event();
        // A client that follows the session already keeps its place: its stream continues.
        let continues = begin == Begin::Tail && delivered.is_some();
        let number = view.next_number();
        // The response and the open requests wait for the attachment. A request that ends meanwhile is withdrawn after it.
        let follows = if continues {
            Place::default()
        } else {
            Place {
                attachment: number,
                event: last,
            }
        };
        let response = message::response(id, Ok(result));
        self.connection.respond(Some(view), follows, response);
        for request in requests {
            // They belong to the session, whose stream may open later.
            if view.responses.push(follows, request).is_err() {
                self.connection.close();
            }
        }
        if continues {
            return;
        }
        let (after, history) = match begin {
            Begin::History => (0, last),
            Begin::Tail => (last, 0),
        };
        let responses_after = delivered.map_or(history, |delivered| delivered.min(history));
        view.attach(Attached {
            session,
            start: Start { after, skip: 0 },
            history,
            responses_after,
            number,
        });
    }

    /// The open requests of the agent. The client does not receive their events, because the events are before the
    /// start of its messages, or in its history.
    pub(super) fn open_requests(&self, snapshot: &Session) -> Vec<Bytes> {
        let client = &self.connection.client;
        let projector = Projector::new(snapshot.session_id, client, 0, 0);
        let open = snapshot.requests.iter();
        open.filter_map(|open| {
            let only = open.acp_client.as_deref();
            projector.agent_request(open.request_id, only, &open.method, &open.params)
        })
        .collect()
    }

    async fn list(&self, params: &RawValue) -> Outcome {
        #[derive(Deserialize)]
        struct Params {
            cwd: Option<String>,
            cursor: Option<String>,
        }
        self.require(Scope::Read)?;
        let Params { cwd, cursor } = parse(&acp::null_to_empty(params))?;
        let query = ListQuery {
            agent: Some(self.connection.agent.clone()),
            cwd,
            cursor,
            limit: PAGE_SESSIONS,
            ..ListQuery::default()
        };
        let page = self.sessions.list(&self.by, &query).await?;
        let sessions = page.sessions.into_iter().map(|session| {
            json!({
                "sessionId": session.session_id, "cwd": session.cwd, "title": session.title,
                "updatedAt": session.updated_at, "_meta": { META: { "state": session.state } },
            })
        });
        let sessions: Vec<_> = sessions.collect();
        Ok(raw(
            &json!({ "sessions": sessions, "nextCursor": page.next_cursor }),
        ))
    }

    async fn close(&self, params: &RawValue) -> Outcome {
        self.require(Scope::Prompt)?;
        let params: SessionParams<'_> = parse_borrowed(params)?;
        let session = self.open(&params.session_id).await?;
        session.close(&self.by, trace_of(params.meta)).await?;
        Ok(acp::empty_result())
    }

    async fn delete(&self, params: &RawValue) -> Outcome {
        self.require(Scope::Prompt)?;
        let params: SessionParams<'_> = parse_borrowed(params)?;
        let session = self.open(&params.session_id).await?;
        let trace = trace_of(params.meta);
        session
            .delete(&self.by, &self.by.author(), None, trace)
            .await?;
        self.connection.remove_view(&params.session_id);
        Ok(acp::empty_result())
    }

    async fn authenticate(&self, params: &RawValue) -> Outcome {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            method_id: String,
            #[serde(rename = "_meta")]
            meta: Option<Box<RawValue>>,
        }
        self.require(Scope::Admin)?;
        let Params { method_id, meta } = parse(params)?;
        let spec = self.catalogue.agent(&self.connection.agent);
        let spec =
            spec.ok_or_else(|| Failure::invalid_params("the agent is no longer configured"))?;
        let trace = trace_of(meta.as_deref());
        let meta = meta.and_then(|meta| acp::split_meta(&meta).0);
        if let Some(meta) = &meta {
            check_meta(&spec.settings, meta)
                .map_err(|denied| InputError::from_policy(&denied, ""))?;
        }
        let lease = self.pool().short_lease(&spec, &self.by, Priority::Reclaim);
        let lease = lease.await?;
        match lease.initialized().auth_method(&method_id) {
            Ok(AuthMethod::Agent) => {}
            Ok(AuthMethod::Terminal(_)) => {
                let detail =
                    "methodId: this method runs in a terminal, see POST /v1/agents/{agent}/auth";
                return Err(Failure::invalid_params(detail));
            }
            Err(error) => return Err(Failure::invalid_params(format!("methodId: {error}"))),
        }
        let trace = trace.as_ref();
        call_sign_in(
            &self.app,
            &self.by,
            &spec,
            lease,
            method_id,
            meta.as_deref(),
            trace,
        )
        .await?;
        Ok(acp::empty_result())
    }

    /// A call of the agent for a session: its mode, an option, or a method that the agent's entry lists.
    async fn call_agent(&self, method: &str, params: Box<RawValue>) -> Outcome {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Mode {
            mode_id: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Config {
            config_id: String,
            value: Box<RawValue>,
        }
        let id = session_of(&params).ok_or_else(|| Failure::method_not_found(method))?;
        self.require(Scope::Approve)?;
        let trace = acp::RawObject::parse(&params).and_then(|object| trace_of(object.get("_meta")));
        let session = self.open(&id).await?;
        match method {
            method::SESSION_SET_MODE => {
                let Mode { mode_id } = parse(&params)?;
                let call = ClientCall::Mode(mode_id);
                session.call(&self.by, call, trace).await?;
                Ok(acp::empty_result())
            }
            method::SESSION_SET_CONFIG_OPTION => {
                let Config { config_id, value } = parse(&params)?;
                acp::parse::<acp::ConfigValue<'_>>(&value).map_err(|_| {
                    Failure::invalid_params("value: expected the id of a choice, true or false")
                })?;
                let call = ClientCall::Config {
                    option: config_id,
                    value,
                };
                let options = session.call(&self.by, call, trace).await?;
                Ok(raw(&BTreeMap::from([("configOptions", options)])))
            }
            _ => {
                let call = ClientCall::Rpc {
                    method: method.to_owned(),
                    params,
                    notify: false,
                };
                Ok(session.call(&self.by, call, trace).await?)
            }
        }
    }

    /// Passes a notification to the agent, if the agent's entry lists its method.
    pub(super) async fn notify_agent(&self, method: &str, params: &RawValue) -> Result<()> {
        self.require(Scope::Approve)?;
        let id = session_of(params).ok_or_else(|| Failure::method_not_found(method))?;
        let call = ClientCall::Rpc {
            method: method.to_owned(),
            params: params.to_owned(),
            notify: true,
        };
        let session = self.open(&id).await?;
        session.call(&self.by, call, None).await?;
        Ok(())
    }
}

pub(super) fn restored(snapshot: &Session) -> BTreeMap<&'static str, Box<RawValue>> {
    // The Python SDK opens the stream of a session when a result names the session.
    let mut result = BTreeMap::from([("sessionId", raw(&snapshot.session_id))]);
    result.extend(snapshot.modes.clone().map(|modes| ("modes", modes)));
    let options = snapshot.config_options.clone();
    result.extend(options.map(|options| ("configOptions", options)));
    let meta = json!({ META: { "lastEventId": snapshot.last_event_id.to_string() } });
    result.insert("_meta", raw(&meta));
    result
}

/// The agent's result for a new session, from the event of its first process.
async fn attached_result(session: &SessionHandle) -> Result<Option<Box<RawValue>>> {
    /// The size of the part of the log that is read. `session.attached` is one of the first events.
    const READ_BYTES: usize = 64 << 10;
    let runs = session.log().read(0, READ_BYTES).await;
    let runs = runs.map_err(|_| Failure::internal())?;
    let attached = |event: &EventRef<'_>| event.kind() == "session.attached";
    let event = runs.iter().find_map(|run| run.events().find(attached));
    let result = event.and_then(|event| event.payload()?.result);
    let result = result.filter(|result| acp::has_session_id(result));
    Ok(result.map(ToOwned::to_owned))
}

fn parse<T: DeserializeOwned>(params: &RawValue) -> Result<T> {
    parse_borrowed(params)
}

/// Parses params. Errors have no values of the client.
pub(super) fn parse_borrowed<'a, T: Deserialize<'a>>(params: &'a RawValue) -> Result<T> {
    json::read(params.get().as_bytes()).map_err(|error| Failure::invalid_params(error.to_string()))
}
