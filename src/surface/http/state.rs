//! The state that all surfaces share.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tokio::sync::watch;
use tracing::Span;

use super::authorized::Authorized;
use super::error::ApiError;
use crate::auth::{Admission, Policy};
use crate::config::Limits;
use crate::registry::{Installations, Listing};
use crate::server::{BodyMemory, RateLimits, RequestContext, stream_response};
use crate::stream::{
    Encoder, EventTypes, Feed, KeepAliveTicker, Source, Stream, StreamGuard, Streams,
};
use agents::agent::CurrentCatalogue;
use agents::cca::CcaMembers;
use agents::pool::Pool;
use base::shutdown::Shutdown;
use base::types::{Author, Epoch, Ids, KeyedCounts, PrincipalLimits, PromptId, SessionId};
use events::api::ConfigurationValue;
use log::audit::Audit;
use log::eventlog::EventLog;
use sessions::broadcast::{self, Broadcasts};
use sessions::conversation::{self, Conversations};
use sessions::session::{SessionDirectory, SessionError, SessionHandle};
use sessions::task::Tasks;
use sessions::webhooks::Webhooks;
use wire::fleet::Fleet;

pub struct AppParts {
    pub sessions: SessionDirectory,
    pub registry: Listing,
    pub installations: Installations,
    pub catalogue: CurrentCatalogue,
    pub policy: Arc<Policy>,
    pub fleet: Fleet,
    pub tasks: Tasks,
    pub webhooks: Webhooks,
    pub ids: Ids,
    pub audit: Audit,
    pub limits: Arc<Limits>,
    /// The current values of the configuration, without secrets.
    pub configuration: watch::Receiver<Vec<ConfigurationValue>>,
    /// The data folder.
    pub data: PathBuf,
    pub principal_limits: PrincipalLimits,
    pub shutdown: Shutdown,
}

/// Names the session of a request in the access log and in the following log lines of the request.
pub(crate) fn record_session(session: SessionId) {
    Span::current().record("session", tracing::field::display(session));
}

#[derive(Clone, derive_more::Debug, derive_more::Deref)]
#[debug("AppState")]
pub struct AppState(Arc<Shared>);

#[derive(derive_more::Deref)]
pub struct Shared {
    #[deref]
    parts: AppParts,
    pub(crate) requests: Arc<RequestContext>,
    pub(crate) streams: Streams,
    pub(crate) cca: Arc<CcaMembers>,
    pub(crate) broadcasts: Broadcasts,
    pub(crate) conversations: Conversations,
    /// The clients of turns that end with their last client.
    pub(crate) chat_watchers: KeyedCounts<(SessionId, PromptId)>,
    keep_alive_ticker: KeepAliveTicker,
}

impl AppState {
    pub fn new(parts: AppParts) -> Self {
        let requests = Arc::new(RequestContext {
            policy: Arc::clone(&parts.policy),
            ids: parts.ids.clone(),
            shutdown: parts.shutdown.clone(),
            rates: RateLimits::new(parts.principal_limits.clone()),
            bodies: BodyMemory::new(parts.limits.http.max_body_memory_bytes),
        });
        let streams = Streams::new(parts.principal_limits.clone());
        let keep_alive_ticker = KeepAliveTicker::new(
            &parts.limits.stream,
            parts.shutdown.clone(),
            parts.policy.keys.watch_ended(),
            parts.sessions.context().log.watch_grants(),
        );
        let conversations = conversation::start(&parts.sessions);
        let cca = Arc::<CcaMembers>::default();
        let broadcasts = Broadcasts::new(broadcast::Parts {
            sessions: parts.sessions.clone(),
            pool: parts.sessions.context().pool.clone(),
            catalogue: parts.catalogue.clone(),
            fleet: parts.fleet.clone(),
            cca: Arc::clone(&cca),
            audit: parts.audit.clone(),
            ids: parts.ids.clone(),
        });
        Self(Arc::new(Shared {
            parts,
            requests,
            streams,
            cca,
            broadcasts,
            conversations,
            chat_watchers: KeyedCounts::default(),
            keep_alive_ticker,
        }))
    }

    pub(crate) fn log(&self) -> &EventLog {
        &self.sessions.context().log
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.sessions.context().pool
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.log().epoch()
    }

    pub(crate) fn feed(&self, source: Source) -> Feed {
        Feed {
            client_cursor: source.cursor(),
            source,
            types: EventTypes::All,
            turn: None,
            from_tail: false,
            epoch: self.epoch(),
            ids: self.ids.clone(),
        }
    }

    /// Opens the session of a request.
    pub(crate) async fn open_session<S>(
        &self,
        by: &Authorized<S>,
        id: SessionId,
    ) -> Result<SessionHandle, SessionError> {
        record_session(id);
        self.open_one_session(by, id).await
    }

    /// Opens one of the sessions of a request. The audit log records the readers that do not own a session.
    pub(crate) async fn open_one_session<S>(
        &self,
        by: &Authorized<S>,
        id: SessionId,
    ) -> Result<SessionHandle, SessionError> {
        let session = self.sessions.open(by, id).await?;
        let owner = session.log().owner();
        if by.user != *owner {
            self.audit.session_read(&by.author(), id, owner);
        }
        Ok(session)
    }

    pub(crate) fn audit_forbidden(&self, author: &Author) {
        self.policy.count_forbidden(author);
    }

    pub(crate) async fn admit(&self, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        match self.requests.admit(&mut parts).await {
            Ok(None) => {
                let admission = parts.extensions.get::<Arc<Admission>>();
                let author = admission.and_then(|admission| admission.author());
                let response = next.run(Request::from_parts(parts, body)).await;
                if response.status() == StatusCode::FORBIDDEN
                    && let Some(author) = author
                {
                    self.audit_forbidden(&author);
                }
                response
            }
            Ok(Some(response)) => response,
            Err(error) => ApiError::from(error).into_response(),
        }
    }

    /// The response that streams the feed. During a drain, it is also a stream, with a `shutdown` frame only. A
    /// status would stop an `EventSource` from reconnecting.
    pub(crate) fn stream_response(
        &self,
        admission: &Arc<Admission>,
        guard: StreamGuard,
        feed: Feed,
        encoder: Box<dyn Encoder>,
        follow: bool,
    ) -> Response {
        let keep_alive = self.keep_alive_ticker.register();
        stream_response(Stream::new(
            feed,
            encoder,
            follow,
            Arc::clone(admission),
            keep_alive,
            guard,
        ))
    }
}
